"""The HTTP edge: what every function answers to good calls, bad ones, and its own failures."""

import io
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import NoReturn

import pytest
from flask import Request
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from werkzeug.test import EnvironBuilder

from berth.errors import BadInputError, MovedError, RefusedError, StoreUnavailableError
from berth.http.authentication import authenticator
from berth.http.endpoint import (
    BodyRefusedError,
    Content,
    Endpoint,
    Reply,
    Stream,
    call,
    call_at_once,
    error_reply,
    respond,
)
from berth.http.function import Response, serve
from berth.settings import Access, Settings

TOKEN = "s3cret"
LIMIT = 3 * 1024 * 1024


def echo(_: Mapping[str, str], body: Content) -> Reply:
    return Reply(200, bytes(body))


def endpoint(
    answer: Callable[[Mapping[str, str], Content], Reply] = echo,
    *,
    health: Callable[[], None] = lambda: None,
    limit: int = LIMIT,
    token: str | None = None,
) -> Endpoint:
    def failed(message: str, retryable: bool) -> Reply:
        return Reply(200, json.dumps({"Error": message, "retryable": retryable}).encode())

    found = authenticator(Access(token=token))
    return Endpoint(
        name="filter", answer=answer, failed=failed, health=health, body_limit=limit, authenticator=found
    )


def ask(
    found: Endpoint,
    method: str = "POST",
    path: str = "/",
    headers: Mapping[str, str] | None = None,
    body: Stream | bytes = b"{}",
) -> Reply:
    return respond(found, method, path, headers or {}, io.BytesIO(body) if isinstance(body, bytes) else body)


def test_an_error_is_one_line() -> None:
    assert error_reply(503, "what\nhappened") == Reply(503, b'{"error":"what\\nhappened"}')


def raising(error: Exception) -> Callable[..., NoReturn]:
    def answer(*_: object) -> NoReturn:
        raise error

    return answer


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


class Endless:
    """A body that never ends, in chunks of at most what it is asked for; it counts what was taken."""

    def __init__(self) -> None:
        self.taken = 0

    def read(self, size: int, /) -> bytes:
        self.taken += size
        return b"x" * size


class Trickle:
    """A body that comes a few bytes at a time."""

    def __init__(self, body: bytes) -> None:
        self._body = io.BytesIO(body)

    def read(self, size: int, /) -> bytes:
        return self._body.read(min(size, 7))


@pytest.mark.parametrize("path", ["/", "/filter", "/predicates", "/any/path/at/all"])
def test_any_path_is_answered(path: str) -> None:
    assert ask(endpoint(), path=path, body=b'{"a":1}') == Reply(200, b'{"a":1}')


def test_headers_reach_the_verb_in_lower_case() -> None:
    seen = endpoint(lambda headers, _: Reply(200, headers["ce-type"].encode()))
    assert ask(seen, headers={"Ce-Type": "dev.knative.sources.ping"}).body == b"dev.knative.sources.ping"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_another_method_is_405_and_says_what_is_taken(method: str) -> None:
    reply = ask(endpoint(), method, "/filter")
    assert reply.status == 405
    message = f"filter takes POST, and GET /healthz; this was {method} /filter"
    assert json.loads(reply.body) == {"error": message}


def test_bad_input_is_400_with_its_reason() -> None:
    reply = ask(endpoint(raising(BadInputError('not a call: "x"'))))
    assert reply == Reply(400, b'{"error":"not a call: \\"x\\""}')


def test_a_failure_on_purpose_is_answered_and_logged_in_its_own_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reply = ask(endpoint(raising(StoreUnavailableError("the ledger is busy"))))
    assert json.loads(reply.body) == {"Error": "the ledger is busy", "retryable": True}
    assert "filter: the ledger is busy" in caplog.text
    assert "Traceback" not in caplog.text


def test_what_goes_wrong_at_once_is_answered_as_ever() -> None:
    for error in (StoreUnavailableError("the ledger is busy"), BadInputError("no call"), RuntimeError("x")):
        failing = endpoint(raising(error))
        assert call_at_once(failing, {}, b"") is None
        assert call_at_once(replace(failing, at_once=raising(error)), {}, b"") == call(failing, {}, b"")


def test_a_refusal_is_answered_and_is_no_trouble_to_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reply = ask(endpoint(raising(RefusedError("k80: 0 of 1 free, 1 asked"))))
    assert json.loads(reply.body) == {"Error": "k80: 0 of 1 free, 1 asked", "retryable": False}
    assert caplog.text == ""


def test_a_foreign_error_is_told_by_its_type_alone_and_logged_in_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reply = ask(endpoint(raising(RuntimeError("password hunter2 in <b>/home/someone</b>"))))
    message = "internal error (RuntimeError); see the log of filter"
    assert json.loads(reply.body) == {"Error": message, "retryable": False}
    assert b"hunter2" not in reply.body
    assert "hunter2" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    "header",
    [
        *(basic(f"{user}:{TOKEN}") for user in ("berth", "", "anyone at all", "ü")),
        f"Bearer {TOKEN}",
        f"bearer  {TOKEN} ",
        "b" + basic(f"berth:{TOKEN}")[1:],
    ],
)
def test_the_token_is_taken_as_basic_with_any_user_or_as_bearer(header: str) -> None:
    assert ask(endpoint(token=TOKEN), headers={"authorization": header}).status == 200


@pytest.mark.parametrize(
    "header",
    [
        *(
            None,
            "",
            TOKEN,
            "Basic",
            "Bearer",
            "Bearer ",
            "Bearer wrong",
            f"Bearer {TOKEN}x",
            f"Digest {TOKEN}",
        ),
        *(basic(text) for text in ("berth:wrong", f"{TOKEN}:", TOKEN, f"berth:{TOKEN}:x", "berth:", "")),
        *(
            f"Basic {TOKEN}",
            "Basic not base64!",
            "Basic YmVyd",
            "Basic \xff",
            "Bearer \xfc",
            f"Basic {TOKEN}=",
        ),
    ],
)
def test_a_missing_or_wrong_token_is_401_before_the_body_is_read(header: str | None) -> None:
    body = Endless()
    reply = ask(endpoint(token=TOKEN), headers={} if header is None else {"Authorization": header}, body=body)
    assert reply.status == 401
    assert json.loads(reply.body) == {
        "error": "filter needs the token of BERTH_AUTH_TOKEN, as Basic or Bearer authorization"
    }
    assert body.taken == 0


def test_a_token_may_hold_colons() -> None:
    assert ask(endpoint(token="a:b:c"), headers={"Authorization": basic("berth:a:b:c")}).status == 200


def test_without_a_token_set_none_is_asked_for() -> None:
    assert ask(endpoint(), headers={"Authorization": "Bearer whatever"}).status == 200


@pytest.mark.parametrize("limit", [1, 10, 1024 * 1024, LIMIT])
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(limit: int) -> None:
    assert ask(endpoint(limit=limit), body=b"x" * limit) == Reply(200, b"x" * limit)
    reply = ask(endpoint(limit=limit), body=b"x" * (limit + 1))
    message = f"the body is larger than {limit} bytes (BERTH_BODY_LIMIT)"
    assert (reply.status, json.loads(reply.body)) == (413, {"error": message})


@pytest.mark.parametrize("said", ["0", "2", "nonsense"])
def test_the_body_is_counted_and_content_length_not_believed(said: str) -> None:
    body = Endless()
    assert ask(endpoint(), headers={"Content-Length": said}, body=body).status == 413
    assert body.taken == LIMIT + 1


@pytest.mark.parametrize("said", [str(LIMIT + 1), "9" * 400, "0" * 5000 + str(LIMIT + 1), str(10**20)])
def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_is_read(said: str) -> None:
    body = Endless()
    assert ask(endpoint(), headers={"Content-Length": said}, body=body).status == 413
    assert body.taken == 0


def test_where_no_body_is_taken_none_is_read() -> None:
    body = Endless()
    assert ask(endpoint(limit=0), headers={"Content-Length": str(10**20)}, body=body) == Reply(200, b"")
    assert body.taken == 0


def test_a_body_that_the_server_refuses_is_told_with_its_status_and_when_to_come_again() -> None:
    class Refused:
        def read(self, _: int, /) -> bytes:
            raise BodyRefusedError(503, "too many", 1)

    assert ask(endpoint(), body=Refused()) == Reply(503, b'{"error":"too many"}', 1)
    _, status, headers = served(endpoint(lambda *_: Reply(503, b"{}", 7)), "POST", "/")
    assert (status, headers["Retry-After"]) == (503, "7")


def test_a_body_that_comes_in_small_parts_is_put_together() -> None:
    whole = bytes(range(256)) * 10
    assert ask(endpoint(), body=Trickle(whole)).body == whole
    assert ask(endpoint(limit=2559), body=Trickle(whole)).status == 413


def test_an_empty_body_is_the_verbs_to_judge() -> None:
    assert ask(endpoint(), body=b"") == Reply(200, b"")


def test_a_client_that_hangs_up_is_400() -> None:
    class Torn:
        def read(self, _: int, /) -> bytes:
            raise ConnectionResetError("secret")

    reply = ask(endpoint(), body=Torn())
    message = "the body could not be read to its end (ConnectionResetError)"
    assert (reply.status, json.loads(reply.body)) == (400, {"error": message})


@pytest.mark.parametrize("path", ["/healthz", "/healthz/"])
def test_healthz_is_200_when_the_store_answers_and_needs_no_token(path: str) -> None:
    reply = ask(endpoint(token=TOKEN), "GET", path)
    assert (reply.status, json.loads(reply.body)) == (200, {"status": "ok", "function": "filter"})
    assert ask(endpoint(token=TOKEN), "HEAD", path).status == 200


def test_healthz_is_503_when_the_store_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    for error, said in (
        (StoreUnavailableError("no answer (redis://store.example:6379)"), "does not answer"),
        (MovedError("redis://store.example:6379"), "can't be used"),
    ):
        reply = ask(endpoint(health=raising(error)), "GET", "/healthz")
        told = {"error": f"the store of filter {said}; its log says why"}  # no host: anybody may ask
        assert (reply.status, json.loads(reply.body)) == (503, told)
        assert f"filter is not healthy: {error}" in caplog.text
    reply = ask(endpoint(health=raising(OSError("/secret/path"))), "GET", "/healthz")
    assert reply.status == 503
    assert json.loads(reply.body) == {"error": "internal error (OSError); see the log of filter"}
    assert "/secret/path" in caplog.text


def test_post_healthz_is_a_call_like_any_other() -> None:
    assert ask(endpoint(token=TOKEN), "POST", "/healthz").status == 401
    assert ask(endpoint(), "POST", "/healthz", body=b"[]") == Reply(200, b"[]")
    assert ask(endpoint(), "DELETE", "/healthz").status == 405


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text()), st.binary(max_size=50))
def test_whatever_comes_is_answered_in_one_line_of_json(
    method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    found = endpoint(lambda *_: Reply(200, b"{}"), token=TOKEN, limit=20)
    reply = ask(found, method, path, headers, body)
    assert reply.status in (200, 401, 405, 413)
    assert isinstance(json.loads(reply.body), dict)
    assert b"\n" not in reply.body


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_no_header_but_the_right_one_opens(header: str) -> None:
    assert ask(endpoint(token=TOKEN * 3), headers={"Authorization": header}).status == 401


LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""What `berth up` says are this machine's names."""


def ask_here(headers: Mapping[str, str], method: str = "POST") -> Reply:
    return respond(endpoint(), method, "/bind", headers, io.BytesIO(b"{}"), LOCAL)


JSON = {"Host": "127.0.0.1:8083", "Content-Type": "application/json", "Content-Length": "2"}


@pytest.mark.parametrize("host", ["127.0.0.1:8083", "localhost:8083", "LOCALHOST", "[::1]:8083", "[::1]", ""])
@pytest.mark.parametrize("kind", ["application/json", "application/cloudevents+json; charset=utf-8"])
def test_kube_scheduler_and_event_sources_are_answered_on_this_machine(host: str, kind: str) -> None:
    assert ask_here({**JSON, "Host": host, "Content-Type": kind}).status == 200


@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
@pytest.mark.parametrize("host", ["evil.example:8083", "evil.example", "127.0.0.1.evil.example:8083", "::1"])
def test_a_name_that_somebody_lets_lead_here_is_none_of_this_machine_s(host: str, method: str) -> None:
    reply = ask_here({**JSON, "Host": host}, method)
    said = {"error": "this is none of 127.0.0.1, [::1], localhost (BERTH_HOSTS)"}
    assert (reply.status, json.loads(reply.body)) == (421, said)


@pytest.mark.parametrize(
    "kind", ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data", "application/jsonp", ""]
)
def test_what_a_web_page_may_send_to_another_site_unasked_is_not_read(kind: str) -> None:
    for more in ({}, {"Transfer-Encoding": "chunked", "Content-Length": "0"}):
        assert ask_here({**JSON, "Content-Type": kind, **more}).status == 415


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:8083"])
def test_whatever_comes_from_a_web_page_is_refused(origin: str) -> None:
    reply = ask_here({**JSON, "Origin": origin})
    said = {"error": "web pages may not call berth's functions"}
    assert (reply.status, json.loads(reply.body)) == (403, said)


def test_somebody_who_posts_nothing_needs_no_type() -> None:
    """As `curl -X POST` does, to reconcile."""
    assert ask_here({"Host": "127.0.0.1:8086"}).status == 200
    assert ask_here({"Host": "127.0.0.1:8086", "Content-Length": "0"}).status == 200


def test_elsewhere_calls_name_any_host_and_any_type() -> None:
    assert ask(endpoint(), headers={"Host": "filter.berth", "Content-Type": "text/plain"}).status == 200


def served(found: Endpoint, method: str, path: str, body: bytes = b"") -> Response:
    def built(_: Settings, **__: object) -> Endpoint:
        return found

    return serve(built)(Request(EnvironBuilder(path=path, method=method, data=body).get_environ()))


@pytest.mark.parametrize(
    ("method", "status", "header"),
    [
        ("GET", 405, ("Allow", "POST")),
        ("POST", 401, ("WWW-Authenticate", 'Bearer realm="berth"')),
    ],
)
def test_served_to_the_web_a_refusal_is_json_with_the_header_that_belongs_to_it(
    method: str, status: int, header: tuple[str, str]
) -> None:
    body, found, headers = served(endpoint(token=TOKEN), method, "/filter")
    assert found == status
    assert headers == dict([("Content-Type", "application/json"), header])
    assert json.loads(body)["error"]


def test_served_to_the_web_no_answer_is_ever_html(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    broken = endpoint(raising(ZeroDivisionError("<html>")), health=raising(KeyError("<html>")))
    for method, path in (("POST", "/"), ("GET", "/healthz"), ("GET", "/"), ("POST", "/favicon.ico")):
        body, _, headers = served(broken, method, path, b"x")
        assert headers["Content-Type"] == "application/json"
        assert b"<" not in body


def test_wrong_settings_end_the_process_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_BODY_LIMIT", "lots")
    with pytest.raises(SystemExit) as caught:
        serve(lambda _, **__: endpoint())
    assert str(caught.value).startswith("berth can't start: BERTH_BODY_LIMIT is 'lots'")
    assert "\n" not in str(caught.value)
