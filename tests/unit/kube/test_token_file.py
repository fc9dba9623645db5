"""Bearer tokens in files that are replaced while a process runs, in a pod and in a kubeconfig."""

import json
import ssl
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

from berth.errors import ClusterRefusedError, SettingsError
from berth.kube.client import ApiServer, InCluster, Request, configured, library_client
from berth.kube.token_file import TokenFile
from tests.support.builders.certificates import self_signed
from tests.support.builders.ledgers import Time
from tests.support.fakes.podsown import Pod
from tests.support.servers.serving import serving

LIST, BINDING = Request("GET", "/api/v1/pods"), Request("POST", "/binding", body={"kind": "Binding"})


class Server(ThreadingHTTPServer):
    """An API server that does what is asked with the token `valid`, and answers `refusal` to all others."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.valid, self.refusal = "old", 401
        self.bodies: list[bytes] = []
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked += 1
        is_valid = self.headers["Authorization"] == f"Bearer {self.server.valid}"
        if is_valid:
            self.server.bodies.append(body)
        answer = json.dumps({"message": "done" if is_valid else "Unauthorized"}).encode() + b"\n"
        self.send_response(200 if is_valid else self.server.refusal)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(started := Server()):
        yield started


def kubeconfig(folder: Path, url: str, user: dict[str, Any]) -> Path:
    document = {
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "another"}, {"name": "u", "user": user}],
        "current-context": "c",
    }
    folder.mkdir(exist_ok=True)
    (folder / "config").write_text(json.dumps(document))
    return folder / "config"


def with_token_file(
    folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch, monotonic: Time
) -> tuple[ApiServer, Path]:
    """The server as a kubeconfig with a tokenFile beside it names it, and that file."""
    config = kubeconfig(folder, server.url, {"tokenFile": "token"})
    (folder / "token").write_text("old\n")
    monkeypatch.setenv("KUBECONFIG", str(config))
    return ApiServer(configured(monotonic)), folder / "token"


@pytest.mark.parametrize("refusal", [401, 403])
@pytest.mark.parametrize("request_", [LIST, BINDING], ids=["read", "write"])
def test_a_kubeconfig_s_token_that_was_replaced_is_read_when_the_old_one_is_refused(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, refusal: int, request_: Request
) -> None:
    api, file = with_token_file(tmp_path, server, monkeypatch, Time())
    api.call(request_)
    file.write_text("new\n")
    server.valid, server.refusal = "new", refusal
    assert json.loads(api.call(request_)) == {"message": "done"}
    assert (server.asked, len(server.bodies)) == (3, 2)


def test_a_kubeconfig_s_token_is_read_each_minute(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    api, file = with_token_file(tmp_path, server, monkeypatch, time)
    file.write_text("new")
    time.advance(60)
    server.valid = "new"
    api.call(BINDING)
    assert server.asked == 1


@pytest.mark.parametrize(("token", "asked"), [("old", 1), ("newer", 2)])
def test_a_refusal_is_final_where_the_token_is_the_same_or_is_refused_as_well(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, token: str, asked: int
) -> None:
    api, file = with_token_file(tmp_path, server, monkeypatch, Time())
    file.write_text(token)
    server.valid = "new"
    with pytest.raises(ClusterRefusedError, match="401"):
        api.call(LIST)
    assert server.asked == asked


def test_lines_of_a_watch_and_headers_are_asked_for_with_the_new_token_too(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, file = with_token_file(tmp_path, server, monkeypatch, Time())
    for token, ask in (
        ("new", lambda: list(api.lines(LIST))),
        ("newer", lambda: api.header(LIST, "Content-Length")),
    ):
        file.write_text(token)
        server.valid = token
        assert ask()
    assert (server.asked, len(server.bodies)) == (4, 2)


def test_a_pod_s_own_token_is_read_when_the_old_one_is_refused(tmp_path: Path, server: Server) -> None:
    with Pod(tmp_path) as pod:
        server.valid = "own"
        client = InCluster(pod.environment, pod.account, Time())
        client.host = server.url
        api = ApiServer(client)
        api.call(LIST)
        (pod.account / "token").write_text("new")
        server.valid = "new"
        api.call(LIST)
    assert server.asked == 3


def test_the_kubernetes_client_itself_gets_the_new_token_after_a_minute(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    _, file = with_token_file(tmp_path, server, monkeypatch, time)
    library = library_client(time)
    file.write_text("new")
    time.advance(60)
    headers: dict[str, str] = {}
    library.update_params_for_auth(headers, None, ["BearerToken"], "", "GET", None)
    assert headers == {"authorization": "Bearer new"}


def test_a_token_beside_a_token_file_is_what_the_kubernetes_client_takes(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of the file")
    config = kubeconfig(tmp_path, server.url, {"tokenFile": "token", "token": "old"})
    monkeypatch.setenv("KUBECONFIG", str(config))
    ApiServer(configured(Time())).call(LIST)
    assert server.asked == 1


@pytest.mark.parametrize(("content", "why"), [("", "is empty"), (None, "No such file")])
def test_a_token_file_with_nothing_in_it_is_told_at_once(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, content: str | None, why: str
) -> None:
    config = kubeconfig(tmp_path, server.url, {"tokenFile": "token"})
    if content is not None:
        (tmp_path / "token").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(SettingsError, match=f"^no cluster to talk to .*{why}"):
        configured(Time())


def test_of_several_kubeconfigs_the_token_file_is_beside_the_one_that_names_it(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = kubeconfig(tmp_path / "a", server.url, {"tokenFile": "token"})
    (tmp_path / "a" / "token").write_text("old")
    empty = tmp_path / "empty"
    empty.write_text("")
    monkeypatch.setenv("KUBECONFIG", f"{empty}:{config}")
    ApiServer(configured(Time())).call(LIST)
    assert len(server.bodies) == 1


def test_what_can_not_be_read_leaves_the_token_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    token = TokenFile(tmp_path / "token", Time())
    for damage in (b"", b"\xff\xfe"):
        (tmp_path / "token").write_bytes(damage)
        token.renew()
        assert token.token() == "old"
    (tmp_path / "token").unlink()
    token.renew()
    assert token.token() == "old"


def test_urllib3_warns_once_of_a_certificate_that_is_not_checked(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path, address=(127, 0, 0, 1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    config = kubeconfig(tmp_path / "c", server.url.replace("http:", "https:"), {"token": "old"})
    monkeypatch.setenv("KUBECONFIG", str(config))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", urllib3.exceptions.SecurityWarning)
        api = ApiServer(configured(Time()))
        for _ in range(3):
            api.call(LIST)
            api.close()
    assert [warning.category for warning in caught] == [urllib3.exceptions.InsecureRequestWarning]
