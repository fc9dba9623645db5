"""CloudEvents as Knative sends them, decoded with the SDK in binary and structured mode.
An event is a hint that something may have changed, never a proof; nothing here trusts one."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from cloudevents.exceptions import GenericException
from cloudevents.http import from_http

from berth import wire
from berth.errors import BadInputError
from berth.http import Reply

T = TypeVar("T")

_RESOURCE = "dev.knative.apiserver.resource."
_REFERENCE = "dev.knative.apiserver.ref."
_BATCH = "application/cloudevents-batch"


class Event(msgspec.Struct, frozen=True):
    """An event's type (such as dev.knative.sources.ping) and its decoded data."""

    event_type: str
    data: object

    @property
    def deletion(self) -> bool:
        """Says `delete`; that may also mean that a label was removed (facts, 7)."""
        return self.event_type == f"{_RESOURCE}delete"

    def kind(self) -> str:
        """The kind of the object it is about. Raises BadInputError where it carries none."""
        if self.event_type.startswith(_REFERENCE):
            raise BadInputError(
                "the source sends mode Reference, which has no UID: set spec.mode: Resource in it"
            )
        kind = self.data.get("kind") if isinstance(self.data, dict) else None
        if not self.event_type.startswith(_RESOURCE) or not isinstance(kind, str):
            raise BadInputError(
                f"event type {self.event_type} with no object: this takes {_RESOURCE}add, update and delete"
            )
        return kind

    def about(self, shape: type[T]) -> T:
        """The object, as far as `shape` wants it. Raises BadInputError."""
        try:
            return msgspec.convert(self.data, shape)
        except msgspec.ValidationError as error:
            raise BadInputError(
                f"event type {self.event_type}: its object is not what it should be: {error}"
            ) from error


def decode(headers: Mapping[str, str], body: bytes) -> Event:
    """The CloudEvent in an HTTP request. Raises BadInputError."""
    kinds = (value for name, value in headers.items() if name.lower() == "content-type")
    if any(kind.strip().lower().startswith(_BATCH) for kind in kinds):
        raise BadInputError(
            "this is a batch of CloudEvents: send each in a request of its own, in binary or structured mode"
        )
    try:
        event = from_http(dict(headers), body)
    except (GenericException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise BadInputError(f"not a CloudEvent: {said[:300]}") from error
    if event is None:
        raise BadInputError("not a CloudEvent: the body is null")
    if not isinstance(event["type"], str):
        raise BadInputError("not a CloudEvent: its type is no string")
    return Event(event["type"], event.data)


def failed(message: str, retryable: bool) -> Reply:
    """An event function's failure: 503 where the source's retry may help, else 500, which it drops or,
    through a Broker, keeps as a dead letter (facts, 7)."""
    return Reply(503 if retryable else 500, wire.error_answer(message))
