"""The connection to DynamoDB: boto3's client, what is tried again, and its errors as ours, here alone.
A request whose answer did not come may have been carried out: it is repeated as the same one, or not."""

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import boto3
import tenacity
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
)

from berth.errors import BerthError
from berth.stores.dynamodb.clock import ServerClock
from berth.stores.dynamodb.errors import LASTING, MISSING, Reason, explained, foreign
from berth.stores.dynamodb.url import Location

Request = dict[str, Any]

_BUSY = frozenset({
    "ContinuousBackupsUnavailableException",  # of a table that was made a moment ago
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
})  # fmt: skip
_UNKNOWN = frozenset({
    "InternalFailure",
    "InternalServerError",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "TransactionInProgressException",
})  # fmt: skip
_UNMET = "ConditionalCheckFailed"


class UnmetError(Exception):
    """A clause of the transaction did not hold: nothing was changed."""


class MissingTableError(Exception):
    """There is no such table, or no such index."""


class _AgainError(Exception):
    """It may work at once. With `known` nothing was done; else it may have been."""

    def __init__(self, *, known: bool) -> None:
        super().__init__()
        self.known = known


class Link:
    """Safe to use from many threads; boto3's client holds their connections. It is made by the first call."""

    def __init__(
        self,
        location: Location,
        seconds: float,
        clock: ServerClock,
        sleep: Callable[[float], None] = time.sleep,
        clients: "Clients | None" = None,
    ) -> None:
        self._location, self._seconds, self._clock, self._sleep = location, seconds, clock, sleep
        self._clients = clients or _CLIENTS
        self._client: Any = None
        self._lock = threading.Lock()

    def call(
        self, operation: str, request: Callable[[], Request] | Request, names: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """The answer to the operation (by boto3's name for it), tried again while `seconds` last.

        A request that is made by a call is made anew where the one before is known to have changed nothing.
        `names` are the documents of a transaction's items, for the text. Raises UnmetError,
        MissingTableError, StoreUnavailableError and StoreFailedError.
        """
        give_up_at = self._clock.local() + self._seconds
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_AgainError),
            wait=tenacity.wait_random_exponential(multiplier=0.01, max=0.2),
            stop=lambda _: self._clock.local() >= give_up_at,
            sleep=self._sleep,
            reraise=True,
        )
        attempt = _Attempts(request)
        try:
            return attempts(self._once, operation, attempt)
        except _AgainError as error:
            raise self.explained(error.__cause__, operation, names) from error.__cause__
        except ClientError as error:
            if (code := _code(error)) in MISSING:
                raise MissingTableError from error
            if any(each.code == _UNMET for each in reasons(error)) or code == f"{_UNMET}Exception":
                raise UnmetError from error
            raise self.explained(error, operation, names) from error
        except BotoCoreError as error:
            raise self.explained(error, operation, names) from error

    def explained(self, error: BaseException | None, operation: str, names: Sequence[str] = ()) -> BerthError:
        found = reasons(error) if isinstance(error, ClientError) else ()
        return explained(error, self._location, self._seconds, operation, found, names)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            self._clients.give_back(client)

    def _once(self, operation: str, attempt: "_Attempts") -> Mapping[str, Any]:
        client = self._client or self._connected()
        sent = self._clock.local()
        try:
            answer: Mapping[str, Any] = getattr(client, operation)(**attempt.request())
        except ClientError as error:
            self._learn(error.response, sent)
            codes = {_code(error), *(each.code for each in reasons(error))}
            if codes & _UNKNOWN:
                raise _AgainError(known=False) from error
            if codes & _BUSY and not codes & {_UNMET, *LASTING}:
                attempt.refused()
                raise _AgainError(known=True) from error
            raise
        except ConnectionClosedError as error:
            raise _AgainError(known=False) from error
        self._learn(answer, sent)
        if operation == "describe_table" and "Table" not in answer:
            raise foreign(self._location, operation, "its answer names no table")
        return answer

    def _learn(self, answer: Mapping[str, Any], sent: float) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self._clock.learn(headers.get("date"), sent, self._clock.local())

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._clients.take(self._location, self._seconds)
            return self._client


class Clients:
    """boto3's clients of a process, one for each place: to make one takes as long as ten calls. The session
    behind them reads credentials, and boto3's descriptions of AWS, only once."""

    def __init__(self, session: Callable[[], Any] = boto3.session.Session) -> None:
        self._session = functools.cache(session)
        self._made: dict[tuple[str | None, str | None, float], Any] = {}
        self._users: Counter[int] = Counter()
        self._lock = threading.Lock()  # boto3's sessions must not be used by two threads at once

    def take(self, location: Location, seconds: float) -> Any:
        which = (location.region, location.endpoint, seconds)
        with self._lock:
            if which not in self._made:
                self._made[which] = self._make(location, seconds)
            self._users[id(self._made[which])] += 1
            return self._made[which]

    def give_back(self, client: Any) -> None:
        """Its connections are closed when nobody uses it; it opens others if somebody does again."""
        with self._lock:
            self._users[id(client)] -= 1
            if not self._users[id(client)]:
                client.close()

    def _make(self, location: Location, seconds: float) -> Any:
        return self._session().client(
            "dynamodb",
            region_name=location.region,
            endpoint_url=location.endpoint,
            config=Config(
                connect_timeout=seconds,
                read_timeout=seconds,
                retries={"total_max_attempts": 1},
                max_pool_connections=64,
                tcp_keepalive=True,
                parameter_validation=False,  # our requests are all of one shape, and it takes a tenth
            ),
        )


_CLIENTS = Clients()


class _Attempts:
    """The request to send: the same again until the one before is known to have changed nothing."""

    def __init__(self, request: Callable[[], Request] | Request) -> None:
        self._made: Request | None = None
        self._make = request if callable(request) else lambda: request

    def request(self) -> Request:
        if self._made is None:
            self._made = self._make()
        return self._made

    def refused(self) -> None:
        self._made = None


def reasons(error: ClientError) -> list[Reason]:
    """Why a transaction was cancelled, one for each of its items; empty for other errors."""
    found = error.response.get("CancellationReasons") or []
    return [Reason(str(each.get("Code", "None")), str(each.get("Message") or "")) for each in found]


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
