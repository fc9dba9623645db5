"""Requests to DynamoDB by boto3's client, tried again where that may help; only here boto3's errors become
ours. A request whose answer did not come may have been carried out: it is sent again unchanged, or not at
all."""

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError

from berth.deadline import Deadline
from berth.retry import retry
from berth.server_clock import ServerClock
from berth.stores.dynamodb.errors import LASTING, MISSING, code_of, foreign, reasons, store_error
from berth.stores.dynamodb.url import DynamoDbUrl

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
    """The table, or the index, does not exist."""


class _AgainError(Exception):
    """Another try may help. With `unchanged` nothing was done; else it may have been."""

    def __init__(self, *, unchanged: bool) -> None:
        super().__init__()
        self.unchanged = unchanged


class Client:
    """Safe to use from many threads; boto3's client holds their connections. It is made by the first call."""

    def __init__(
        self,
        url: DynamoDbUrl,
        seconds: float,
        clock: ServerClock,
        sleep: Callable[[float], None] = time.sleep,
        clients: "Boto3Clients | None" = None,
    ) -> None:
        self.url, self.clock, self.sleep, self._seconds = url, clock, sleep, seconds
        self._clients = clients or _BOTO3_CLIENTS
        self._boto3: Any = None
        self._lock = threading.Lock()

    def call(
        self, operation: str, request: Callable[[], Request] | Request, names: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """Return the answer to the operation (by boto3's name for it), tried again while `seconds` last.

        A callable `request` is called for another one where the one before is known to have changed nothing.
        `names` are the documents of a transaction's items, for the error's text. Raises UnmetError,
        MissingTableError, StoreUnavailableError and StoreFailedError.
        """
        made: Request | None = None

        def once() -> Mapping[str, Any]:
            nonlocal made
            made = made or (request() if callable(request) else request)
            try:
                return self._once(operation, made)
            except _AgainError as error:
                made = None if error.unchanged else made
                raise

        try:
            deadline = Deadline.after(self._seconds, self.clock.local)
            return retry(once, _AgainError, deadline=deadline, pauses=(0.01, 0.2), sleep=self.sleep)
        except (_AgainError, ClientError, BotoCoreError) as error:
            cause = error.__cause__ if isinstance(error, _AgainError) else error
            if isinstance(error, ClientError):
                if (code := code_of(error)) in MISSING:
                    raise MissingTableError from error
                if any(reason.code == _UNMET for reason in reasons(error)) or code == f"{_UNMET}Exception":
                    raise UnmetError from error
            raise store_error(cause, self.url, self._seconds, operation, names) from cause

    def close(self) -> None:
        with self._lock:
            boto3_client, self._boto3 = self._boto3, None
        if boto3_client is not None:
            self._clients.give_back(boto3_client)

    def _once(self, operation: str, request: Request) -> Mapping[str, Any]:
        boto3_client = self._boto3 or self._connected()
        sent = self.clock.local()
        try:
            answer: Mapping[str, Any] = getattr(boto3_client, operation)(**request)
        except ClientError as error:
            self._learn(error.response, sent)
            codes = {code_of(error), *(reason.code for reason in reasons(error))}
            if codes & _UNKNOWN:
                raise _AgainError(unchanged=False) from error
            if codes & _BUSY and not codes & {_UNMET, *LASTING}:
                raise _AgainError(unchanged=True) from error
            raise
        except ConnectionClosedError as error:
            raise _AgainError(unchanged=False) from error
        self._learn(answer, sent)
        if operation == "describe_table" and "Table" not in answer:
            raise foreign(self.url, operation, "its answer names no table")
        return answer

    def _learn(self, answer: Mapping[str, Any], sent: float) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.clock.learn(headers.get("date"), sent, self.clock.local())

    def _connected(self) -> Any:
        with self._lock:
            if self._boto3 is None:
                self._boto3 = self._clients.take(self.url, self._seconds)
            return self._boto3


class Boto3Clients:
    """boto3's clients of a process, one for each region and endpoint: to make one takes as long as ten calls.
    The session behind them reads credentials, and boto3's descriptions of AWS, only once."""

    def __init__(self, session: Callable[[], Any] = boto3.session.Session) -> None:
        self._session = functools.cache(session)
        self._made: dict[tuple[str | None, str | None, float], Any] = {}
        self._users: Counter[int] = Counter()
        self._lock = threading.Lock()  # boto3's sessions must not be used by two threads at once

    def take(self, url: DynamoDbUrl, seconds: float) -> Any:
        which = (url.region, url.endpoint, seconds)
        with self._lock:
            if which not in self._made:
                config = Config(
                    connect_timeout=seconds,
                    read_timeout=seconds,
                    retries={"total_max_attempts": 1},
                    max_pool_connections=64,
                    tcp_keepalive=True,
                    parameter_validation=False,  # our requests are all of one shape, and it takes a tenth
                )
                self._made[which] = self._session().client(
                    "dynamodb", region_name=url.region, endpoint_url=url.endpoint, config=config
                )
            self._users[id(self._made[which])] += 1
            return self._made[which]

    def give_back(self, boto3_client: Any) -> None:
        """Close its connections when nobody uses it any more; it opens new ones if somebody does again."""
        with self._lock:
            self._users[id(boto3_client)] -= 1
            if not self._users[id(boto3_client)]:
                boto3_client.close()


_BOTO3_CLIENTS = Boto3Clients()
