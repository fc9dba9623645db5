"""What kube-scheduler gets from the HAProxy beside it, whatever becomes of a function: always an answer that
a pod's event can show."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from berth.errors import SettingsError
from berth.local.ports import free_port
from berth.scheduler_config.haproxy import Proxy, haproxy
from tests.support.builders.certificates import self_signed
from tests.support.cluster import wait
from tests.support.fakes.nameserver import NameServer
from tests.support.fakes.replicas import Handler, Replica
from tests.support.fakes.terminator import Terminator
from tests.support.servers.haproxy import HAProxy

VERBS = ("filter", "prioritize", "preempt", "bind")
NOBODY: dict[str, Any] = {"prioritize": [], "preempt": {"NodeNameToMetaVictims": {}}}
RETRIED = "; the pod will be retried"


class Stage:
    """A proxy and a server that plays all four functions."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        path: str = "",
        ca: Path | None = None,
        url: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        self.replica = Replica(free_port())
        url = url or f"http://{host}:{self.replica.port}{path}"
        self.function_url = url
        self.proxy = HAProxy(binary, folder, dict.fromkeys(VERBS, url), ca)
        self.proxy.token.write_text("first.token-1\n")

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.proxy.url.removeprefix("http://"), timeout=30)

    def end_connections(self) -> None:
        """Of the function; what is at rest is ended, as its server does after a while."""
        for rested in self.replica.connections:
            with suppress(OSError):
                rested.shutdown(socket.SHUT_RDWR)
        self.replica.connections.clear()

    def answering(self, status: int, body: bytes = b"words of the function") -> None:
        def act(handler: Handler) -> bool:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return False

        self.replica.act = act


def post(
    connection: http.client.HTTPConnection, verb: str, body: bytes = b"{}", **headers: str
) -> tuple[int, Any]:
    connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    content = reply.read()
    assert reply.headers["Content-Length"] == str(len(content)), (
        "without it Go opens a connection for each call"
    )
    return reply.status, json.loads(content)


@pytest.fixture
def stage(haproxy_program: Path, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(haproxy_program, tmp_path)
    with made.proxy:
        yield made
    made.replica.stop()


def test_the_token_s_file_is_read_for_each_call_and_stands_in_place_of_what_the_caller_sent(
    stage: Stage,
) -> None:
    stage.answering(200, b"{}")
    with closing(stage.connection()) as connection:
        assert post(connection, "bind", Authorization="Basic YmVydGg6eA==") == (200, {})
        stage.proxy.token.write_text("second_token~2/+=")
        assert post(connection, "filter") == (200, {})
    sent = [(each.path, each.headers["authorization"]) for each in stage.replica.got]
    assert sent == [("/bind", "Bearer first.token-1"), ("/filter", "Bearer second_token~2/+=")]
    assert stage.replica.got[0].headers["host"] == f"127.0.0.1:{stage.replica.port}"


@pytest.mark.parametrize("size", [2, 64_000, 65_536, 1_000_000])
def test_a_token_of_a_pod_goes_with_calls_of_any_size(stage: Stage, size: int) -> None:
    """A pod's token has 1,000 bytes and more, and a call larger than HAProxy's buffer has filled it."""
    stage.answering(200, b"{}")
    stage.proxy.token.write_text("t" * 8192)
    with closing(stage.connection()) as connection:
        assert post(connection, "filter", b"x" * size) == (200, {})
    assert [each.headers["authorization"] for each in stage.replica.got] == [f"Bearer {'t' * 8192}"]


@pytest.mark.parametrize("text", [None, "", "\n", "two words", "a\r\nX-Other: b", "t" * 200_000])
@pytest.mark.parametrize("verb", VERBS)
def test_without_a_token_to_read_nothing_is_sent(stage: Stage, verb: str, text: str | None) -> None:
    stage.proxy.token.unlink() if text is None else stage.proxy.token.write_text(text)
    said = (
        f"berth's function {verb} can't be called, for the proxy beside kube-scheduler has no token{RETRIED}"
    )
    with closing(stage.connection()) as connection:
        reply = post(connection, verb, Authorization="Bearer of-the-caller")
    assert reply == (200, NOBODY.get(verb, {"Error": said}))
    assert stage.replica.got == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "does not take the token of the proxy beside kube-scheduler (401)"),
        (404, "is not there (404)"),
        (503, "takes no calls at the moment (503): it is busy, or being started or replaced"),
        (400, "answered 400; its log says why"),
        (500, "answered 500; its log says why"),
        (502, "answered 502; its log says why"),
        (204, "answered 204; its log says why"),
        (302, "answered 302; its log says why"),
    ],
)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.long
def test_whatever_a_function_or_a_gateway_answers_kube_scheduler_gets_200(
    stage: Stage, verb: str, status: int, said: str
) -> None:
    stage.answering(status, b"" if status == 204 else b"http://berth:S3CRET@filter")
    expected = NOBODY.get(verb, {"Error": f"berth's function {verb} {said}{RETRIED}"})
    with closing(stage.connection()) as connection:
        for _ in range(2):  # on the same connection
            assert post(connection, verb) == (200, expected)
    wait(lambda: stage.proxy.log().count(f"{verb}/{verb}") == 2, 5, "the log tells it, too")
    assert f" {status} " in stage.proxy.log()


def test_calls_that_go_well_and_probes_are_not_in_the_log(stage: Stage) -> None:
    stage.answering(200, b"{}")
    with closing(stage.connection()) as connection:
        for verb in VERBS:
            assert post(connection, verb) == (200, {})
        stage.proxy.token.unlink()
        post(connection, "preempt")
    wait(lambda: "preempt/" in stage.proxy.log(), 5, "the one that failed is there")
    assert stage.proxy.log().count(" scheduler ") == 1
    assert "healthz" not in stage.proxy.log()


def hangs(handler: Handler) -> bool:
    handler.rfile.read(1)
    return False


def hangs_up(handler: Handler) -> bool:
    handler.close_connection = True
    return False


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_that_a_function_hangs_up_on_is_sent_once_more_and_then_told(stage: Stage, verb: str) -> None:
    stage.replica.act = hangs_up
    expected = NOBODY.get(verb, {"Error": f"berth's function {verb} broke off its answer{RETRIED}"})
    with closing(stage.connection()) as connection:
        assert post(connection, verb) == (200, expected)
        assert len(stage.replica.got) == 2
        stage.answering(200, b"{}")
        assert post(connection, verb) == (200, {})


def test_a_function_that_hangs_is_told_before_kube_scheduler_gives_up(stage: Stage) -> None:
    stage.replica.act = hangs
    with closing(stage.connection()) as connection:
        began = time.monotonic()
        said = f"berth's function bind did not answer within 4.9 s{RETRIED}"
        assert post(connection, "bind") == (200, {"Error": said})
        assert 4.8 < time.monotonic() - began < 5
    assert len(stage.replica.got) == 1  # it may be at work: only kube-scheduler tries again


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_that_is_not_there_is_told_by_its_url(stage: Stage, verb: str) -> None:
    stage.replica.stop()
    said = f"berth's function {verb} can't be reached at {stage.function_url}{RETRIED}"
    with closing(stage.connection()) as connection:
        assert post(connection, verb) == (200, NOBODY.get(verb, {"Error": said}))


def test_a_connection_that_the_function_ended_while_it_rested_costs_no_call(stage: Stage) -> None:
    """As functions-framework's server does after 2 s, and any that is replaced."""
    stage.answering(200, b"{}")
    with closing(stage.connection()) as connection:
        for _ in range(50):
            assert post(connection, "filter", b"x" * 100_000) == (200, {})
            stage.end_connections()


def test_a_call_with_full_nodes_gets_through(stage: Stage) -> None:
    stage.answering(200, b"{}")
    body = b"x" * 50_000_000
    with closing(stage.connection()) as connection:
        assert post(connection, "filter", body) == (200, {})
        assert stage.replica.got[-1].body == body


def test_it_answers_a_probe_and_nothing_else_there(stage: Stage) -> None:
    health = http.client.HTTPConnection(stage.proxy.probe, timeout=30)
    with closing(health):
        for method, path, status in (("GET", "/healthz", 200), ("POST", "/bind", 404), ("GET", "/", 404)):
            health.request(method, path)
            reply = health.getresponse()
            reply.read()
            assert reply.status == status
    assert stage.replica.got == []


@pytest.mark.parametrize("origin", ["http://example.com", "null"])
def test_no_web_page_gets_the_token_added(stage: Stage, origin: str) -> None:
    """A browser beside it sends a form or text to 127.0.0.1 for any page, and says from where that came."""
    stage.answering(200, b"{}")
    with closing(stage.connection()) as connection:
        headers = {"Content-Type": "text/plain", "Origin": origin}
        connection.request("POST", "/bind", b"{}", headers)
        reply = connection.getresponse()
        reply.read()
    assert (reply.status, stage.replica.got) == (403, [])


def test_strangers_at_the_probe_s_port_keep_kube_scheduler_from_nothing(stage: Stage) -> None:
    """The port is open to each pod of the cluster, the scheduler's is not."""
    stage.answering(200, b"{}")
    host, port = stage.proxy.probe.split(":")
    with ExitStack() as stack:
        for _ in range(1100):  # more than HAProxy takes
            stranger = stack.enter_context(closing(socket.socket()))
            stranger.setblocking(False)
            stranger.connect_ex((host, int(port)))
        connection = stack.enter_context(closing(stage.connection()))
        connection.timeout = 3
        assert post(connection, "bind") == (200, {})


def test_a_url_may_have_a_path(haproxy_program: Path, tmp_path: Path) -> None:
    stage = Stage(haproxy_program, tmp_path, path="/berth/v1")
    stage.answering(200, b"{}")
    with stage.proxy, closing(stage.connection()) as connection:
        assert post(connection, "bind") == (200, {})
    assert stage.replica.got[0].path == "/berth/v1/bind"


@pytest.mark.long
def test_names_are_looked_up_while_it_runs_and_their_changes_are_followed(
    haproxy_program: Path, tmp_path: Path
) -> None:
    """As in a cluster, where the scheduler may be there before the Services and before its DNS."""
    with NameServer() as names:
        stage = Stage(haproxy_program, tmp_path, host="bind.berth.svc.cluster.invalid")
        stage.answering(200, b"{}")
        text = stage.proxy.config.read_text()
        here = f"nameserver test 127.0.0.1:{names.port}"
        stage.proxy.config.write_text(text.replace("parse-resolv-conf", here))
        with stage.proxy, closing(stage.connection()) as connection:

            def answered() -> bool:
                stage.end_connections()  # one that is kept leads to the old address for as long as it lives
                return post(connection, "bind") == (200, {})

            assert not answered()
            names.address = "127.0.0.1"
            wait(answered, 60, "127.0.0.1 is called", every=0.2)
            names.address = "127.0.0.2"
            wait(lambda: not answered(), 60, "127.0.0.2 is called, where nobody is", every=0.2)
            names.address = "127.0.0.1"
            wait(answered, 60, "127.0.0.1 is called again", every=0.2)
            assert "could not resolve" not in stage.proxy.log()  # its start waited for no answer
    stage.replica.stop()


def test_over_https_the_function_s_certificate_is_checked(haproxy_program: Path, tmp_path: Path) -> None:
    ours, others = (self_signed(tmp_path / name, host="localhost") for name in ("ours", "others"))
    plain = Replica(free_port())
    with ExitStack() as stack:
        port = stack.enter_context(Terminator(plain.port, *ours)).url.rpartition(":")[2]
        url = f"https://localhost:{port}"
        for name, (authority, _), good in (("trusting", ours, True), ("untrusting", others, False)):
            (tmp_path / f"at-{name}").mkdir()
            stage = Stage(haproxy_program, tmp_path / f"at-{name}", ca=authority, url=url)
            with stage.proxy, closing(stage.connection()) as connection:
                status, answer = post(connection, "filter")
            said = {"Error": f"berth's function filter can't be reached at {url}{RETRIED}"}
            assert (status, answer) == (200, plain.port if good else said)
    assert len(plain.got) == 1
    plain.stop()


def test_nothing_that_it_writes_or_shows_holds_the_token(stage: Stage) -> None:
    for act in (hangs_up, lambda _: True):
        stage.replica.act = act
        with closing(stage.connection()) as connection:
            connection.request("POST", "/filter", b"{}")
            connection.getresponse().read()
    stage.replica.stop()
    with closing(stage.connection()) as connection:
        post(connection, "filter")
    shown = [Path(f"/proc/{stage.proxy.pid}/{name}").read_text() for name in ("cmdline", "environ")]
    assert "filter/filter" in stage.proxy.log()
    assert "first.token-1" not in "".join([stage.proxy.log(), stage.proxy.config.read_text(), *shown])


@pytest.mark.parametrize(
    "path", ["token", "", "/a b", "/a'b", '/a"b', "/a\\b", "/a\nb", "/$HOME", "/a,b", "/a#b"]
)
def test_a_path_that_haproxy_would_take_otherwise_is_refused(path: str) -> None:
    with pytest.raises(SettingsError, match="should be an absolute path"):
        haproxy(Proxy(token=path), dict.fromkeys(VERBS, "http://f"), None, 5)


@pytest.mark.parametrize("url", ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_for_this_machine_no_dns_is_asked(url: str) -> None:
    assert "resolvers" not in haproxy(Proxy(), dict.fromkeys(VERBS, url), None, 5)


@pytest.mark.parametrize("url", ["https://10.0.0.1", "https://[fd00::1]:8443/berth"])
def test_an_address_by_https_is_refused_for_haproxy_finds_it_in_no_certificate(url: str) -> None:
    """Each call was told as "can't be reached", with a certificate for that very address."""
    with pytest.raises(SettingsError, match="has an address, and HAProxy finds names alone"):
        haproxy(Proxy(), dict.fromkeys(VERBS, url), None, 5)
