"""From (method, path, headers, body) to (status, body), always one line of JSON, for every function.
It knows no web framework, and does not promise to notice a client that has gone away."""

import io
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from berth.errors import BadInputError, BerthError, RefusedError, RetryableError
from berth.metrics import UNCOUNTED, Metrics
from berth.telemetry.calls import Call

log = logging.getLogger("berth")

_CHUNK = 1024 * 1024
_TOGETHER = 32  # items of a long list that are joined at a time; a full node has some 10 KB
_JSON = ("application/json", "application/cloudevents+json")
_OUTCOMES = {200: "answered", 204: "answered", 401: "unauthorized", 503: "unavailable"}
_ASK_A_PERSON = {"WWW-Authenticate": 'Basic realm="berth", charset="UTF-8"'}  # a browser asks for it then
PATH, QUERY = ":path", ":query"
"""Headers that no client can send."""

_DIGITS = 20  # of a Content-Length that are read: no limit has as many


R = TypeVar("R", bound="Reply | None")


class BodyRefusedError(Exception):
    """A body is not read to its end, because of a limit of ours; the status and the message say which."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


class Stream(Protocol):
    """A request's body; read(n) returns at most n bytes, and none at its end. It may raise
    BodyRefusedError."""

    def read(self, size: int, /) -> bytes: ...


class Authenticator(Protocol):
    """Who may call an endpoint."""

    def refusal(self, authorization: str) -> str:
        """Return in words what a caller with this header lacks; empty: it may call. May raise a
        BerthError."""

    def knows(self, authorization: str) -> bool:
        """Whether `refusal` need not ask the API server about this header."""


Content = bytes | memoryview
"""A request's whole body; a long one is a view of where it was received."""


class LongList(msgspec.Struct, frozen=True):
    """JSON in which a long list stands: its items are joined a few at a time, so that it is never whole in
    memory."""

    before: bytes
    items: Sequence[msgspec.Raw]
    after: bytes

    def __len__(self) -> int:
        commas = max(0, len(self.items) - 1)
        return len(self.before) + sum(map(len, self.items)) + commas + len(self.after)

    def __iter__(self) -> Iterator[bytes]:
        """Return its bytes in parts, each made when it is asked for."""
        yield self.before
        for start in range(0, len(self.items), _TOGETHER):
            some = b",".join(self.items[start : start + _TOGETHER])
            yield b"," + some if start else some
        yield self.after


class Reply(msgspec.Struct, frozen=True):
    """The answer: a status and a body of some kind, and the seconds after which a retry may help.

    `outcome` is how it is counted where the status does not say that; `more` are headers of its own.
    """

    status: int
    content: bytes | LongList
    retry_after: int | None = None
    outcome: str = ""
    kind: str = "application/json"
    more: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """The whole body."""
        return joined(self.content)

    @property
    def counted_as(self) -> str:
        """The word by which metrics tell how it ended."""
        return self.outcome or _OUTCOMES.get(self.status, "invalid" if self.status < 500 else "failed")

    def headers(self) -> dict[str, str]:
        """Return the answer's headers, but for its length and what is the connection's."""
        headers = {"Content-Type": self.kind}
        if self.status == 405:
            headers["Allow"] = "POST"
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="berth"'
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        return {**headers, **self.more}


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One function that answers requests.

    `answer` takes the lower-case headers and the whole body; `failed` makes the reply for an error's text
    and whether a retry may help; `health` raises when the store does not answer; without an `authenticator`
    anyone may call. With a `body_limit` of 0 no body is read, and `answer` gets an empty one. `at_once` does
    what `answer` does where that takes no wait, and returns None where it takes one. `scrape` answers
    GET /metrics. `metrics` count each reply to a call. One that only `reads` takes GET in place of POST, with
    no body, and gets what is asked for as the headers PATH and QUERY, and so does one that is `queried`,
    which takes POST. `traceparent` tells which trace a call
    is a part of, where the header of that name does not.
    """

    name: str
    answer: Callable[[Mapping[str, str], Content], Reply]
    failed: Callable[[str, bool], Reply]
    health: Callable[[], None]
    body_limit: int
    limited_by: str = "BERTH_BODY_LIMIT"
    authenticator: Authenticator | None = None
    at_once: Callable[[Mapping[str, str], Content], Reply | None] | None = None
    scrape: "Endpoint | None" = None
    metrics: Metrics = UNCOUNTED
    reads: bool = False
    queried: bool = False
    traceparent: Callable[[Mapping[str, str], Content], str] | None = None


class Router(msgspec.Struct, frozen=True, kw_only=True):
    """One function that serves several endpoints, chosen by the last part of the path, which is
    case-sensitive.

    `default` answers on all other paths; without one they are 404.
    """

    name: str
    endpoints: Mapping[str, Endpoint]
    health: Callable[[], None]
    default: Endpoint | None = None
    scrape: Endpoint | None = None

    @property
    def body_limit(self) -> int:
        """The largest body that any endpoint takes."""
        others = [] if self.default is None else [self.default]
        return max(endpoint.body_limit for endpoint in (*self.endpoints.values(), *others))

    def at(self, path: str) -> Endpoint | None:
        return self.endpoints.get(path.rstrip("/").rpartition("/")[2], self.default)

    @property
    def paths(self) -> str:
        return ", ".join(f"/{name}" for name in sorted(self.endpoints))


def joined(content: bytes | LongList) -> bytes:
    """Return the whole of it."""
    return content if isinstance(content, bytes) else b"".join(content)


def error_reply(status: int, message: str, retry_after: int | None = None) -> Reply:
    """Return an answer other than 200: one line of JSON."""
    return Reply(status, msgspec.json.encode({"error": message}), retry_after)


def event_message(message: str, retryable: bool) -> str:
    """Return an error's text for a pod's event; kube-scheduler retries the pod by itself."""
    return f"{message}; the pod will be retried" if retryable else message


def respond(
    target: Endpoint | Router,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Stream,
    hosts: Collection[str] | None = None,
    query: str = "",
) -> Reply:
    """Return the reply to one request; an Endpoint answers on any path. Raises nothing: errors are in the
    reply and in the log. `hosts` as for `admit`."""
    headers = {**{name.lower(): value for name, value in headers.items()}, PATH: path, QUERY: query}
    admitted = admit(target, method, path, headers, hosts)
    if admitted is None:
        return health(target)
    if isinstance(admitted, Reply):
        return admitted
    began = time.monotonic()
    reply = refusal(admitted, headers) or _take(admitted, headers, body)
    note(admitted, reply, time.monotonic() - began)
    return reply


def admit(
    target: Endpoint | Router,
    method: str,
    path: str,
    headers: Mapping[str, str],
    hosts: Collection[str] | None = None,
) -> Endpoint | Reply | None:
    """Return the endpoint that is asked, or the reply to who may ask none; None: it asks for `health`.

    The headers have lower-case names. With `hosts`, which are names of this machine, requests of web pages
    are refused: those of other sites, and those that reach this machine by another name (DNS rebinding).
    """
    if hosts is not None and (refused := _from_a_page(headers, hosts)) is not None:
        return refused
    if path.rstrip("/") == "/healthz" and method in ("GET", "HEAD"):
        return None
    if method == "GET" and target.scrape is not None and path.rstrip("/") == "/metrics":
        return target.scrape
    if isinstance(target, Endpoint) and target.reads:
        return target if method in ("GET", "HEAD") else _reads_only(target, method)
    if method != "POST":
        return error_reply(405, f"{target.name} takes POST, and GET /healthz; this was {method} {path}")
    if not isinstance(target, Router):
        return target
    return target.at(path) or error_reply(
        404, f"{target.name} has no {path or '/'}: it takes POST {target.paths}, and GET /healthz"
    )


def _reads_only(target: Endpoint, method: str) -> Reply:
    reply = error_reply(405, f"{target.name} only reads: it takes GET, and this was {method}")
    return replace(reply, more={"Allow": "GET, HEAD"})


def note(endpoint: Endpoint, reply: Reply, seconds: float) -> None:
    """Count a reply. Raises nothing."""
    try:
        endpoint.metrics.called(endpoint.name, reply.counted_as, seconds)
    except Exception:
        log.exception("%s could not count a call", endpoint.name)


def refusal(endpoint: Endpoint, headers: Mapping[str, str]) -> Reply | None:
    """Return the reply to who may not call, or announces too large a body; None: its body may be read."""
    if endpoint.authenticator is not None:
        try:
            lacking = endpoint.authenticator.refusal(headers.get("authorization", ""))
        except BerthError as error:
            return _failed(endpoint, error)
        if lacking:
            reply = error_reply(401, f"{endpoint.name} {lacking}")
            return replace(reply, more=_ASK_A_PERSON) if endpoint.reads else reply
    return too_large(endpoint) if declared(headers) > endpoint.body_limit > 0 else None


def call(endpoint: Endpoint, headers: Mapping[str, str], content: Content) -> Reply:
    """Return the endpoint's reply to a whole body. Raises nothing, as `respond`."""
    with _begun(endpoint, headers, content) as begun:
        reply = _reply(endpoint, lambda: endpoint.answer(headers, content))
        begun.outcome = reply.counted_as
        return reply


def call_at_once(endpoint: Endpoint, headers: Mapping[str, str], content: Content) -> Reply | None:
    """Return what `call` returns, without waiting for anybody; None: it takes a wait."""
    at_once = endpoint.at_once
    if at_once is None:
        return None
    with _begun(endpoint, headers, content) as begun:
        reply = _reply(endpoint, lambda: at_once(headers, content))
        begun.outcome = reply.counted_as if reply is not None else ""  # it will be a call once it is answered
        return reply


def _begun(endpoint: Endpoint, headers: Mapping[str, str], content: Content) -> Call:
    traceparent = headers.get("traceparent")
    if traceparent is None and endpoint.traceparent is not None:
        traceparent = endpoint.traceparent(headers, content)
    return Call(endpoint.name, traceparent, headers.get("tracestate"))


def _reply(endpoint: Endpoint, answer: Callable[[], R]) -> R | Reply:
    try:
        return answer()
    except BadInputError as error:
        return error_reply(400, str(error))
    except BerthError as error:
        return _failed(endpoint, error)
    except Exception as error:
        log.exception("%s failed", endpoint.name)
        # The type alone: the text of a foreign error may hold a secret or a path.
        text = f"internal error ({type(error).__name__}); see the log of {endpoint.name}"
        return replace(endpoint.failed(text, False), outcome="failed")


def _take(endpoint: Endpoint, headers: Mapping[str, str], body: Stream) -> Reply:
    try:
        content = _read(body, endpoint.body_limit) if endpoint.body_limit else b""
    except BodyRefusedError as refused:
        return error_reply(refused.status, refused.message, refused.retry_after)
    except Exception as error:  # noqa: BLE001 - every web framework has its own for a client that hangs up
        return error_reply(400, f"the body could not be read to its end ({type(error).__name__})")
    return too_large(endpoint) if content is None else call(endpoint, headers, content)


def _failed(endpoint: Endpoint, error: BerthError) -> Reply:
    # A refusal is an ordinary answer, which the pod's event shows; other errors are for an operator.
    level = logging.DEBUG if isinstance(error, RefusedError) else logging.WARNING
    log.log(level, "%s: %s", endpoint.name, error)
    if isinstance(error, RefusedError):
        outcome = "refused"
    else:
        outcome = "unavailable" if isinstance(error, RetryableError) else "failed"
    return replace(endpoint.failed(str(error), isinstance(error, RetryableError)), outcome=outcome)


def _from_a_page(headers: Mapping[str, str], hosts: Collection[str]) -> Reply | None:
    """Return the refusal of a request that a browser sends, or may send, for a web page; else None.

    A browser sends JSON to another site only if that site allows it, but bodies of other types without
    asking. It always names the page's origin.
    """
    host = headers.get("host", "").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if host and name not in hosts:
        return error_reply(421, f"this is none of {', '.join(sorted(hosts))} (BERTH_HOSTS)")
    if "origin" in headers:
        return error_reply(403, "web pages may not call berth's functions")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if kind not in _JSON and not empty:
        return error_reply(415, f"a body should be {' or '.join(_JSON)}, and this is {kind or 'of no type'}")
    return None


def health(target: Endpoint | Router) -> Reply:
    """Return whether it can work. The reason is only logged: anyone may ask, and it names the store's
    host."""
    try:
        target.health()
    except BerthError as error:
        log.warning("%s is not healthy: %s", target.name, error)
        what = "does not answer" if isinstance(error, RetryableError) else "can't be used"
        return error_reply(503, f"the store of {target.name} {what}; its log says why")
    except Exception as error:
        log.exception("%s is not healthy", target.name)
        return error_reply(503, f"internal error ({type(error).__name__}); see the log of {target.name}")
    return Reply(200, msgspec.json.encode({"status": "ok", "function": target.name}))


def declared(headers: Mapping[str, str]) -> int:
    """Return the Content-Length, 0 if that is no number; the client may send more or less."""
    said = headers.get("content-length", "").lstrip("0")
    if not (said.isascii() and said.isdecimal()):
        return 0
    return int(said[:_DIGITS])


def too_large(endpoint: Endpoint) -> Reply:
    """Return the reply to a body that is larger than the endpoint takes."""
    return error_reply(413, f"the body is larger than {endpoint.body_limit} bytes ({endpoint.limited_by})")


def _read(body: Stream, limit: int) -> bytes | None:
    """Return the whole body, or None when it is over the limit; counted, because Content-Length can lie."""
    whole, total = io.BytesIO(), 0
    while chunk := body.read(min(_CHUNK, limit + 1 - total)):
        total += len(chunk)
        if total > limit:
            return None
        whole.write(chunk)
    return whole.getvalue()
