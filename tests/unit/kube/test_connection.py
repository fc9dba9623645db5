"""Requests to the API server and their answers, as they go over real connections."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.client import ApiServer, Request, configured
from tests.support.servers.serving import serving


class Server(ThreadingHTTPServer):
    """An API server that answers as the path says; `seen` are its requests, each with its connection."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[int, str, str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def connections(self) -> int:
        return len({connection for connection, *_ in self.seen})

    def asked(self) -> list[str]:
        return [f"{method} {path}" for _, method, path, _ in self.seen]

    def handle_error(self, *_: object) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.client_address[1], self.command, self.path, body))
        what = self.path.rpartition("/")[2]
        if what == "cut":
            self.close_connection = True
            return
        if what == "silent":
            self.rfile.read(1)  # until the client has gone
            return
        self.send_response(409 if what == "conflict" else 200)
        content = b'{"message":"changed"}'
        if what == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            content = b"".join(
                b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:9], content[9:], b"")
            )
        else:
            self.send_header("Content-Length", str(len(content) + 10 * (what == "half")))
        if what == "last":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.close_connection or what == "half"

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 (http.server's names)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found, serving(found):
        yield found


def connected(folder: Path, url: str, **cluster: str) -> ApiServer:
    path = folder / "kubeconfig"
    document = {
        "clusters": [{"name": "one", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    path.write_text(json.dumps(document))
    with mock.patch.dict("os.environ", {"KUBECONFIG": str(path)}):
        return ApiServer(configured())


def test_requests_go_over_one_connection_that_is_kept_whatever_the_answers_are(
    server: Server, tmp_path: Path
) -> None:
    api = connected(tmp_path, server.url)
    assert api.call(Request("GET", "/pods/a")) == b'{"message":"changed"}'
    assert api.call(Request("GET", "/pods/chunked")) == b'{"message":"changed"}'
    with pytest.raises(ClusterRefusedError, match=r"refused POST /pods/conflict \(409\): changed") as caught:
        api.call(Request("POST", "/pods/conflict", body={"a": 1}))
    assert caught.value.status == 409
    assert list(api.lines(Request("GET", "/pods/b"))) == []
    assert server.connections == 1
    assert server.seen[2][3] == b'{"a":1}'
    api.close()


def test_a_connection_is_opened_anew_after_an_answer_that_was_its_last(
    server: Server, tmp_path: Path
) -> None:
    api = connected(tmp_path, server.url)
    for _ in range(2):
        assert api.call(Request("POST", "/pods/last", body={})) == b'{"message":"changed"}'
    assert (server.connections, len(server.seen)) == (2, 2)
    api.close()


@pytest.mark.parametrize("what", ["cut", "half"])
def test_only_what_changes_nothing_is_sent_again_where_the_connection_breaks(
    server: Server, tmp_path: Path, what: str
) -> None:
    api = connected(tmp_path, server.url)
    for request, times in (
        (Request("GET", f"/pods/{what}"), 2),
        (Request("POST", f"/pods/{what}", body={}), 1),
        (Request("POST", f"/pods/{what}", body={}, again=True), 2),
    ):
        server.seen.clear()
        with pytest.raises(ClusterUnavailableError, match=r"did not answer \(the connection was closed\)"):
            api.call(request)
        assert server.asked() == [f"{request.method} /pods/{what}"] * times
    assert api.call(Request("POST", "/pods/a", body={})) == b'{"message":"changed"}'
    api.close()


def test_what_is_not_answered_in_time_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, server.url)
    with pytest.raises(ClusterUnavailableError, match=r"did not answer \(no answer in time\)"):
        api.call(Request("GET", "/pods/silent", 0.1))
    assert server.asked() == ["GET /pods/silent"]
    assert api.call(Request("GET", "/pods/a")) == b'{"message":"changed"}'
    api.close()


def test_a_path_that_is_part_of_the_server_s_url_is_kept(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, f"{server.url}/k8s/clusters/c-1")
    api.call(Request("GET", "/pods/a?limit=5"))
    assert server.asked() == ["GET /k8s/clusters/c-1/pods/a?limit=5"]
    api.close()


def test_a_proxy_is_asked_for_the_whole_url(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, "http://api.example/base", **{"proxy-url": server.url})
    assert api.call(Request("GET", "/pods/a")) == b'{"message":"changed"}'
    assert api.call(Request("PATCH", "/pods/a", body={"b": 2})) == b'{"message":"changed"}'
    assert server.asked() == [f"{method} http://api.example/base/pods/a" for method in ("GET", "PATCH")]
    api.close()


def test_a_server_s_url_that_is_none_is_told_when_it_is_asked(tmp_path: Path) -> None:
    api = connected(tmp_path, "http://127.0.0.1:99999")
    with pytest.raises(ClusterUnavailableError, match="did not answer"):
        api.call(Request("GET", "/pods/a"))
