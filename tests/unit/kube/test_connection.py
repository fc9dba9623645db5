"""Requests to the API server and their answers, as they go over real connections."""

import gc
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube import connection
from berth.kube.client import ApiServer, Request, configured
from tests.support.servers.serving import serving

CONTENT = b'{"message":"changed"}'
LENGTH = b"Content-Length: %d\r\n" % len(CONTENT)
ODD = {
    "announced": b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\nHTTP/1.1 200 OK\r\n%s\r\n%s"
    % (LENGTH, CONTENT),
    "to-the-end": b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT,
    "old": b"HTTP/1.0 200 OK\r\n%s\r\n%s" % (LENGTH, CONTENT),
    "twice": b"HTTP/1.1 200 OK\r\n%s\r\n%s" % (LENGTH, CONTENT)
    + b"HTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\n?",
    "more": b"HTTP/1.1 200 OK\r\nConnection: close\r\n%s\r\n%s and more" % (LENGTH, CONTENT),
}
"""Answers that are in order, from a server that is not in what it does besides."""
WRONG = {
    "half": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + CONTENT,
    "half-a-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n{",
    "half-a-head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "only-announced": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "cut": b"",
    "no-http": b"SSH-2.0-OpenSSH_9.2\r\n",
}


class Server(ThreadingHTTPServer):
    """An API server that answers as the path says; `seen` are its requests, each with its connection."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[int, str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []

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
        self.server.headers.append(dict(self.headers.items()))
        what = self.path.rpartition("/")[2]
        if what in ODD or what in WRONG:
            self.wfile.write(ODD.get(what) or WRONG[what])
            self.close_connection = what != "announced"
            return
        if what == "silent":
            self.rfile.read(1)  # until the client has gone
            return
        self.send_response(409 if what == "conflict" else 200)
        content = CONTENT
        if what == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            content = b"".join(
                b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:9], content[9:], b"")
            )
        else:
            self.send_header("Content-Length", str(len(content)))
        if what == "last":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 (http.server's names)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found, serving(found):
        yield found


def connected(folder: Path, url: str, token: str = "secret", **cluster: str) -> ApiServer:
    path = folder / "kubeconfig"
    document = {
        "clusters": [{"name": "one", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "one", "user": {"token": token}}],
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
    assert api.call(Request("GET", "/pods/a")) == CONTENT
    assert api.call(Request("GET", "/pods/chunked")) == CONTENT
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
        assert api.call(Request("POST", "/pods/last", body={})) == CONTENT
    assert (server.connections, len(server.seen)) == (2, 2)
    api.close()


@pytest.mark.parametrize("what", ODD)
def test_an_answer_is_taken_from_a_server_that_does_odd_things_around_it(
    server: Server, tmp_path: Path, what: str
) -> None:
    api = connected(tmp_path, server.url)
    for _ in range(2):
        assert api.call(Request("POST", f"/pods/{what}", body={})) == CONTENT
    assert (server.connections, len(server.seen)) == (1 if what == "announced" else 2, 2)
    api.close()


def test_a_request_says_who_is_asked_by_whom_and_how_much_it_brings(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, server.url)
    api.call(Request("PATCH", "/pods/a", body={"a": "ü"}, content_type="application/merge-patch+json"))
    api.call(Request("POST", "/pods/a"))
    api.call(Request("GET", "/pods/a"))
    patch, post, get = ({name.lower(): value for name, value in sent.items()} for sent in server.headers)
    assert patch["host"] == server.url.removeprefix("http://")
    assert (patch["authorization"], patch["accept"]) == ("Bearer secret", "application/json")
    assert (patch["content-type"], patch["content-length"]) == ("application/merge-patch+json", "10")
    assert patch["accept-encoding"] == "identity"
    assert post["content-length"] == "0"
    assert "content-length" not in get
    api.close()


def readers() -> int:
    """How many readers of answers there are, also those that nobody can reach."""
    return sum(type(thing) is connection._Reader for thing in gc.get_objects())


def test_nothing_of_an_answer_stays_until_python_looks_for_circles(server: Server, tmp_path: Path) -> None:
    """A page of a list has some megabytes, and reconcile reads hundreds of them."""
    api = connected(tmp_path, server.url)
    gc.collect()
    before = readers()
    gc.disable()
    try:
        api.call(Request("GET", "/pods/a"))
        assert readers() == before
    finally:
        gc.enable()
    api.close()


def test_a_token_with_a_line_break_is_not_sent(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, server.url, token="secret\r\nImpersonate-User: admin")
    with pytest.raises(ValueError, match="line break"):
        api.call(Request("GET", "/pods/a"))
    assert server.seen == []


@pytest.mark.parametrize("what", WRONG)
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
    assert api.call(Request("POST", "/pods/a", body={})) == CONTENT
    api.close()


def test_what_is_not_answered_in_time_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, server.url)
    with pytest.raises(ClusterUnavailableError, match=r"did not answer \(no answer in time\)"):
        api.call(Request("GET", "/pods/silent", 0.1))
    assert server.asked() == ["GET /pods/silent"]
    assert api.call(Request("GET", "/pods/a")) == CONTENT
    api.close()


@pytest.mark.parametrize("signalled", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(
    "part", ["on_message_begin", "on_header", "on_headers_complete", "on_body", "on_message_complete"]
)
def test_a_signal_while_an_answer_is_read_is_heard(
    part: str, signalled: type[BaseException], server: Server, tmp_path: Path
) -> None:
    """Python raises it in whatever function runs then, also one that httptools calls."""
    api = connected(tmp_path, server.url)
    with mock.patch.object(connection._Reader, part, side_effect=signalled), pytest.raises(signalled):
        api.call(Request("GET", "/pods/a"))
    assert server.asked() == ["GET /pods/a"]
    assert api.call(Request("GET", "/pods/a")) == CONTENT
    api.close()


def test_a_path_that_is_part_of_the_server_s_url_is_kept(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, f"{server.url}/k8s/clusters/c-1")
    api.call(Request("GET", "/pods/a?limit=5"))
    assert server.asked() == ["GET /k8s/clusters/c-1/pods/a?limit=5"]
    api.close()


def test_a_proxy_is_asked_for_the_whole_url(server: Server, tmp_path: Path) -> None:
    api = connected(tmp_path, "http://api.example/base", **{"proxy-url": server.url})
    assert api.call(Request("GET", "/pods/a")) == CONTENT
    assert api.call(Request("PATCH", "/pods/a", body={"b": 2})) == CONTENT
    assert server.asked() == [f"{method} http://api.example/base/pods/a" for method in ("GET", "PATCH")]
    api.close()


def test_a_server_s_url_that_is_none_is_told_when_it_is_asked(tmp_path: Path) -> None:
    api = connected(tmp_path, "http://127.0.0.1:99999")
    with pytest.raises(ClusterUnavailableError, match="did not answer"):
        api.call(Request("GET", "/pods/a"))
