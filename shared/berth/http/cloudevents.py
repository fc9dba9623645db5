"""CloudEvents as Knative sends them: decoded with the SDK in binary and structured mode, and answered.
An event is a hint that something may have changed, never a proof; nothing here trusts one."""

import base64
import binascii
import logging
import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
from cloudevents.exceptions import GenericException
from cloudevents.http import from_http

from berth.errors import BadInputError
from berth.http import authentication
from berth.http.endpoint import Authenticator, Content, Endpoint, Reply, error_reply
from berth.settings import Settings
from berth.telemetry import calls
from berth.telemetry.traces import Facts

T = TypeVar("T")

log = logging.getLogger("berth.events")

Handle = Callable[[Mapping[str, str], bytes], Mapping[str, object]]
"""Takes lower-case headers and a body, and returns what was done. Raises BadInputError, store errors and
cluster errors."""

_RESOURCE = "dev.knative.apiserver.resource."
_REFERENCE = "dev.knative.apiserver.ref."
_BATCH = "application/cloudevents-batch"
_EVENTS = "application/cloudevents"  # structured mode, and batches
_NEEDED = ("ce-id", "ce-source", "ce-specversion", "ce-type")
_READ = (*_NEEDED, "ce-time", "content-type")  # what the SDK looks at: it copies all that it gets four times
_LONGEST = 300  # characters of a text from outside, in an answer or a line of the log
PAST = {"release": "released", "inventory": "changed", "reconcile": "reconciled"}
"""What a function that events call has decided where it changed something."""
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

LARGEST_EVENT = 3 * 1024 * 1024
"""Bytes of an event's body. The API server's store takes no object of more than 1.5 MiB."""

LOG_SECONDS = 60.0
"""The least time between two lines of the log about a refused sender: anyone can cause them."""


class _Kind(msgspec.Struct, frozen=True):
    kind: str


class _Envelope(msgspec.Struct, frozen=True):
    """The parts of an event in structured mode that are read, in JSON as it came."""

    specversion: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()
    type: msgspec.Raw = msgspec.Raw()
    time: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    data_base64: str | None = None

    def attributes(self) -> bytes:
        """Return the attributes that every event must have, which the SDK checks."""
        given = {"specversion": self.specversion, "id": self.id, "source": self.source, "type": self.type}
        return msgspec.json.encode({name: value for name, value in given.items() if bytes(value)})

    def content(self) -> msgspec.Raw:
        return self.data if self.data_base64 is None else msgspec.Raw(base64.b64decode(self.data_base64))


class Event(msgspec.Struct, frozen=True):
    """An event's type (such as dev.knative.sources.ping) and its content: JSON as it came. Decoded into
    whatever it is, it would take up to 30 times as much memory. `time` is when its sender says that it
    happened (Unix seconds)."""

    event_type: str
    content: msgspec.Raw
    time: float | None = None

    @property
    def deletion(self) -> bool:
        """Whether it is of type delete, which is only a hint:
        docs/kubernetes.md#a-delete-event-of-a-pod-that-lives."""
        return self.event_type == f"{_RESOURCE}delete"

    def kind(self) -> str:
        """Return the kind of the event's object. Raises BadInputError where there is no object."""
        if self.event_type.startswith(_REFERENCE):
            raise BadInputError(
                "the source sends mode Reference, which has no UID: set spec.mode: Resource in it"
            )
        if not self.event_type.startswith(_RESOURCE):
            raise BadInputError(
                f"event type {self.event_type} with no object: this takes {_RESOURCE}add, update and delete"
            )
        try:
            return msgspec.json.decode(self.content, type=_Kind).kind
        except _UNDECODABLE:
            raise BadInputError(
                f"event type {self.event_type}: its body is no JSON object with a kind; mode Resource sends "
                "the whole object"
            ) from None

    def object_as(self, shape: type[T]) -> T:
        """Return the fields of the event's object that `shape` has. Raises BadInputError."""
        try:
            return msgspec.json.decode(self.content, type=shape)
        except _UNDECODABLE as error:
            raise BadInputError(
                f"event type {self.event_type}: its object is not what it should be: {_line(str(error))}"
            ) from error


def decode(headers: Mapping[str, str], body: bytes) -> Event:
    """Return the CloudEvent in an HTTP request. Raises BadInputError."""
    headers = {name.lower(): value for name, value in headers.items()}
    if headers.get("content-type", "").strip().lower().startswith(_BATCH):
        raise BadInputError(
            "this is a batch of CloudEvents: send each in a request of its own, in binary or structured mode"
        )
    try:
        # The SDK gets no data: it would decode all of it, twice over.
        if all(name in headers for name in _NEEDED):
            attributes, content = b"", msgspec.Raw(body)
            time_stamp = headers.get("ce-time", "")
        else:
            envelope = msgspec.json.decode(body, type=_Envelope)
            attributes, content = envelope.attributes(), envelope.content()
            time_stamp = bytes(envelope.time).decode().strip('"')
        event = from_http({name: headers[name] for name in _READ if name in headers}, attributes)
    except (GenericException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = _missing(headers) or _line(str(error)) or type(error).__name__
        raise BadInputError(f"not a CloudEvent: {said}") from error
    if not isinstance(event["type"], str):
        raise BadInputError("not a CloudEvent: its type is no string")
    return Event(event["type"], content, _happened(time_stamp))


def _happened(time_stamp: str) -> float | None:
    """Return an event's time in Unix seconds; None where it has none, or one without a zone."""
    try:
        happened = datetime.fromisoformat(time_stamp)
    except ValueError:
        return None
    return happened.timestamp() if happened.tzinfo is not None else None


def _missing(headers: Mapping[str, str]) -> str:
    """Return what an event in binary mode lacks: the SDK takes it for structured mode, and names something
    else. Empty for structured mode, where the SDK names what is missing."""
    absent = [name for name in _NEEDED if name not in headers]
    if len(absent) < len(_NEEDED):
        return f"it has no header {', '.join(absent)}" if absent else ""
    if _in_body(headers):
        return ""
    needed = f"{', '.join(_NEEDED[:-1])} and {_NEEDED[-1]}"
    return f"it has neither the headers {needed} nor the content type {_EVENTS}+json"


def subscriber(
    name: str, handle: Handle, health: Callable[[], None], settings: Settings, *, reads_body: bool = True
) -> Endpoint:
    """Return the endpoint of a function that Knative sends CloudEvents to, and that people may call as well.

    A person's call is answered with what was done, as JSON. A CloudEvent is answered with 204 and no body: to
    Knative's Broker a body that is no CloudEvent is a failure (decision 0022). The log says what was done. No
    body larger than LARGEST_EVENT is read; `reads_body` False: none at all.
    """

    def answer(headers: Mapping[str, str], content: Content) -> Reply:
        body = bytes(content)
        if not _is_event(headers):
            done = handle(headers, body)
            _log(name, None, done)
            return Reply(200, msgspec.json.encode(done))
        attributes = _attributes(headers, body)
        if attributes.knativeerrordest:
            log.warning("%s: dead letter: %s", name, attributes.refusal)
        try:
            done = handle(headers, body)
        except BadInputError as error:
            # Nobody reads the answer to an event.
            log.warning("%s: %s: %s", name, attributes, _line(str(error)))
            raise
        _log(name, attributes, done)
        return Reply(204, b"")

    authenticator = authentication.authenticator(settings.events)
    limit = min(settings.body_limit, LARGEST_EVENT)
    return Endpoint(
        name=name,
        answer=answer,
        failed=failed,
        health=health,
        body_limit=limit if reads_body else 0,
        limited_by="BERTH_BODY_LIMIT" if limit == settings.body_limit else "the largest event that is taken",
        authenticator=None if authenticator is None else LoggingAuthenticator(name, authenticator),
        traceparent=_traceparent,
    )


class LoggingAuthenticator:
    """An authenticator whose refusals are logged now and then. Nobody reads the answer to an event, and where
    accounts are named wrongly all events are refused, ticks too."""

    def __init__(
        self, name: str, authenticator: Authenticator, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name, self._authenticator, self._clock = name, authenticator, clock
        self._silent_until = -math.inf

    def refusal(self, authorization: str) -> str:
        why = self._authenticator.refusal(authorization)
        if why and self._clock() >= self._silent_until:
            self._silent_until = self._clock() + LOG_SECONDS
            log.warning("%s: refused an event or a call: it %s", self._name, why)
        return why

    def knows(self, authorization: str) -> bool:
        return self._authenticator.knows(authorization)


def failed(message: str, retryable: bool) -> Reply:
    """Return the reply to an event that failed: 503 where a retry may help, else 422.

    The Broker repeats whatever is 500 or above, and holds up the source's other events meanwhile; after 422
    it makes a dead letter of the event at once, with this body in it.
    """
    return error_reply(503 if retryable else 422, message)


class _Attributes(msgspec.Struct, frozen=True):
    """The attributes of an event that are logged; the last three are of a dead letter."""

    type: str = ""
    subject: str = ""
    knativeerrordest: str = ""
    knativeerrorcode: str | int = ""
    knativeerrordata: str = ""

    def __str__(self) -> str:
        return _line(f"{self.type} {self.subject}")

    @property
    def refusal(self) -> str:
        """Return who did not take the event, and why: its last answer, which Knative cuts and writes in
        base64."""
        data = self.knativeerrordata
        try:
            why = base64.b64decode(data[: len(data) // 4 * 4], validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            why = data
        return _line(f"{self} was not taken by {self.knativeerrordest} ({self.knativeerrorcode}): {why}")


class _Traced(msgspec.Struct, frozen=True):
    traceparent: str = ""


def _traceparent(headers: Mapping[str, str], content: Content) -> str:
    """Return the event's extension traceparent; empty: it has none."""
    if not _in_body(headers):
        return headers.get("ce-traceparent", "")
    try:
        return msgspec.json.decode(content, type=_Traced).traceparent
    except _UNDECODABLE:
        return ""


def _is_event(headers: Mapping[str, str]) -> bool:
    """Whether a request is meant as a CloudEvent, in any mode; it need not be a valid one."""
    return _in_body(headers) or any(name.startswith("ce-") for name in headers)


def _in_body(headers: Mapping[str, str]) -> bool:
    """Whether the attributes of an event are in the body."""
    return headers.get("content-type", "").strip().lower().startswith(_EVENTS)


def _attributes(headers: Mapping[str, str], body: bytes) -> _Attributes:
    """Return what is logged of an event; empty for one that can't be decoded."""
    try:
        if _in_body(headers):
            return msgspec.json.decode(body, type=_Attributes)
        named = {name.removeprefix("ce-"): value for name, value in headers.items()}
        return msgspec.convert(named, _Attributes)
    except _UNDECODABLE:
        return _Attributes()


def _log(name: str, attributes: _Attributes | None, done: Mapping[str, object]) -> None:
    """Log what was done for an event, or for a person (None), at a level by its importance. Most events
    change nothing, and a person gets to know of problems by the answer."""
    changed = {key: value for key, value in done.items() if value and not isinstance(value, str)}
    if done.get("problems") and attributes is not None:
        level = logging.WARNING
    elif changed.keys() - {"problems"}:
        level = logging.INFO
    else:
        level = logging.DEBUG
    if calls.tells(log) or log.isEnabledFor(level):
        what, told = "a call" if attributes is None else attributes, msgspec.json.encode(done).decode()
        facts: Facts = {key: value for key, value in changed.items() if isinstance(value, bool | int)}
        decision = PAST.get(name, name) if changed else "nothing"
        calls.decided(log, decision, facts, "%s: %s: %s", name, what, told, level=level)


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
