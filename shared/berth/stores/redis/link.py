"""Connections to one Redis and the scripts that run there; redis-py's errors become ours here, and only here.
A script whose answer did not come may have run: only what changes nothing is sent a second time."""

import hashlib
import ssl
from collections.abc import Iterator
from typing import Any, Protocol

import redis
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.stores.redis.location import Location

_PASSING = ("NOREPLICAS", "BUSY ", "UNKILLABLE")
_FOREIGN = ("WRONGTYPE", "BERTHFORMAT")
_RIGHTS = ("permission", "user executing the script")  # what Redis 7.0 says of a right that a script lacks
_LOGIN = "{ledger} refused the user or the password; check those in BERTH_STORE"


class _Connection(Protocol):
    """What of redis-py's connections is used; they have no types themselves."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def send_command(self, *words: str | bytes | int) -> None: ...
    def read_response(self) -> Any: ...


class Script:
    """One Lua script, which a server knows by its hash once it has run it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Link:
    """Safe to use from many threads: each call has a connection to itself, taken from those that are idle."""

    def __init__(self, location: Location, seconds: float) -> None:
        self._location, self._seconds = location, seconds
        self._idle: list[_Connection] = []
        self._closed = False

    def run(self, script: Script, arguments: list[Any], *, again: bool) -> list[Any]:
        """The script's answer. With `again`, a second try where an idle connection proves dead in use.

        Raises StoreUnavailableError and StoreFailedError.
        """
        try:
            while (connection := self._take_idle()) is not None:
                try:
                    return self._run_on(connection, script, arguments)
                except redis.ConnectionError:
                    if not again:
                        raise
            return self._run_on(self._opened(), script, arguments)
        except redis.RedisError as error:
            raise explained(error, self._location, self._seconds) from error

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _run_on(self, connection: _Connection, script: Script, arguments: list[Any]) -> list[Any]:
        try:
            try:
                connection.send_command("EVALSHA", script.sha, *arguments)
                answer: list[Any] = connection.read_response()
            except NoScriptError:
                connection.send_command("EVAL", script.text, *arguments)
                answer = connection.read_response()
        except (ReadOnlyError, redis.TimeoutError):
            # After a fail-over the primary's name leads elsewhere, and a host that is gone says nothing: what
            # is kept would lead there, at a failed call each.
            connection.disconnect()
            self._drop_idle()
            raise
        except ResponseError:
            self._give_back(connection)
            raise
        except BaseException:
            connection.disconnect()
            raise
        self._give_back(connection)
        return answer

    def _take_idle(self) -> _Connection | None:
        """One that the server has not closed meanwhile: then nothing was sent yet, and a new one will do."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            try:
                if not connection.can_read(0):
                    return connection
            except redis.RedisError:
                pass
            connection.disconnect()

    def _drop_idle(self) -> None:
        while (connection := self._take_idle()) is not None:
            connection.disconnect()

    def _give_back(self, connection: _Connection) -> None:
        self._idle.append(connection)
        if self._closed:
            self.close()

    def _opened(self) -> _Connection:
        at = self._location
        options: dict[str, Any] = {
            "host": at.host,
            "port": at.port,
            "db": at.database,
            "username": at.user,
            "password": at.password,
            "socket_timeout": self._seconds,
            "socket_connect_timeout": self._seconds,
            "protocol": 2,
            "driver_info": None,  # one round trip less, and one right less that the user needs
        }
        kind: Any = redis.Connection
        if at.tls:
            kind = redis.SSLConnection
            options |= {
                "ssl_cert_reqs": "required",
                "ssl_check_hostname": True,
                "ssl_ca_certs": at.ca_certs,
            }
        connection: _Connection = kind(**options)
        connection.connect()
        return connection


def explained(error: redis.RedisError, location: Location, seconds: float) -> BerthError:
    """The error as a person needs it; what the server said is quoted, what we sent never."""
    ledger = f"berth's ledger in Redis {location}"
    if isinstance(error, ResponseError):
        return _refused(error, ledger)
    if isinstance(error, AuthenticationError | AuthorizationError):
        return StoreFailedError(_LOGIN.format(ledger=ledger))
    if isinstance(error, BusyLoadingError):
        return StoreUnavailableError(f"{ledger} is loading its data; it can be used when it has done so")
    if isinstance(error, redis.TimeoutError):
        port = "the port (does it speak TLS?)" if location.tls else "the server"
        return StoreUnavailableError(
            f"{ledger} did not answer within {seconds:g} s; if this lasts, check {port} and the network"
        )
    return _unreached(error, ledger)


def _unreached(error: redis.RedisError, ledger: str) -> BerthError:
    beneath = next((each for each in _chain(error) if isinstance(each, OSError)), None)
    if isinstance(beneath, ssl.SSLCertVerificationError):
        return StoreFailedError(
            f"{ledger}: its certificate is not trusted ({beneath.verify_message}); name the authority's "
            "file with ?ssl_ca_certs=/PATH in BERTH_STORE, and the host as in the certificate"
        )
    if isinstance(beneath, ssl.SSLError):
        return StoreFailedError(
            f"{ledger} does not speak TLS as expected ({beneath.reason}); "
            "check the port, or use redis:// in BERTH_STORE for a server without TLS"
        )
    reason = beneath.strerror if beneath is not None and beneath.strerror else "the connection was closed"
    return StoreUnavailableError(
        f"{ledger} can't be reached ({reason}); if this lasts, check the server and BERTH_STORE "
        "(redis://, or rediss:// for a port that speaks TLS)"
    )


def _refused(error: ResponseError, ledger: str) -> BerthError:
    said = _said(error)
    if isinstance(error, ReadOnlyError):
        return StoreUnavailableError(
            f"{ledger} is a replica, which takes no writes; if this lasts, name the primary in BERTH_STORE"
        )
    if isinstance(error, ClusterDownError | TryAgainError) or said.startswith(_PASSING):
        return StoreUnavailableError(f"{ledger} can't be used now ({said}); if this lasts, see to that")
    if isinstance(error, OutOfMemoryError):
        return StoreFailedError(f"{ledger} is full; give it more memory (maxmemory) or drop other data")
    if "unauthenticated" in said:
        return StoreFailedError(_LOGIN.format(ledger=ledger))
    if isinstance(error, NoPermissionError) or any(each in said for each in _RIGHTS):
        return StoreFailedError(
            f"{ledger}: its user lacks rights ({said}); docs/operations.md lists those that berth needs"
        )
    if isinstance(error, MovedError | ClusterCrossSlotError):
        return StoreFailedError(f"{ledger} is part of a Redis Cluster, which berth can't use; name another")
    if any(each in said for each in _FOREIGN):
        return StoreFailedError(
            f"{ledger}: the keys are not a ledger that this berth knows; run one version of berth, or set "
            "berth's keys apart with ?prefix=NAME in BERTH_STORE"
        )
    if "BERTHSERVER" in said:
        return StoreFailedError(
            f"{ledger}: INFO tells no run_id and master_replid; berth needs Redis 7 or Valkey"
        )
    return StoreFailedError(f"{ledger} refused: {said}; check the server and its log")


def _said(error: ResponseError) -> str:
    """What the server said, in one line, without the script's name and line."""
    code = getattr(error, "status_code", None)
    text = " ".join(str(error).split()).split(" script: ")[0]
    return f"{code} {text}" if code and not text.startswith(code) else text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
