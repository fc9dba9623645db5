"""What is said of redis-py's errors, and which of ours each becomes.
Quoted is what a server said, never what was sent to it; whether a call was carried out is not told here."""

import ssl
from collections.abc import Iterator

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
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
_AWAY = "berth's ledger is unreachable"
_LOGIN = "{ledger} refused the user or the password; check those in BERTH_STORE"


def explained(error: redis.RedisError, location: Location, seconds: float) -> BerthError:
    """The error as a person needs it; `location` should name whoever was asked."""
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
            f"{_AWAY} ({location.url}, no answer within {seconds:g} s); if this lasts, check {port} "
            "and the network"
        )
    return _unreached(error, ledger, location)


def too_few(found: int, wanted: int, location: Location) -> StoreUnavailableError:
    """Of a commit that was made, but that a fail-over may lose."""
    return StoreUnavailableError(
        f"berth's ledger in Redis {location} was written, but {found} of {wanted} replicas have it, and a "
        "fail-over may lose it; if this lasts, check its replicas, or ?wait= in BERTH_STORE"
    )


def alone(location: Location) -> StoreFailedError:
    """Of several hosts that are no Cluster: processes would choose different ones, each with a ledger."""
    return StoreFailedError(
        f"berth's ledger in Redis {location}: several hosts are for a Redis Cluster, and this is not part of "
        "one; name a single server in BERTH_STORE, or Sentinels with ?sentinel=NAME"
    )


def unnamed(location: Location) -> StoreFailedError:
    return StoreFailedError(
        f"berth's ledger in Redis {location}: the Sentinels know no primary named {location.sentinel!r}; "
        "check ?sentinel= in BERTH_STORE"
    )


def unsentinelled(error: redis.RedisError, location: Location) -> BerthError:
    """Of a Sentinel that refused to tell, or of all that did not answer."""
    sentinels = f"berth's ledger in Redis {location}: its Sentinels"
    if isinstance(error, AuthenticationError):
        return StoreFailedError(
            f"{sentinels} refused the user or the password; they should be those in BERTH_STORE, or none"
        )
    if isinstance(error, ResponseError):
        return StoreFailedError(
            f"{sentinels} refused ({_said(error)}); check that the hosts in BERTH_STORE are Sentinels"
        )
    return StoreUnavailableError(
        f"{_AWAY} ({location.url}, of its Sentinels: {_reason(error)}); if this lasts, check them "
        "and BERTH_STORE"
    )


def _unreached(error: redis.RedisError, ledger: str, location: Location) -> BerthError:
    beneath = _beneath(error)
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
    return StoreUnavailableError(
        f"{_AWAY} ({location.url}, {_reason(error)}); if this lasts, check the server and BERTH_STORE "
        "(redis://, or rediss:// for a port that speaks TLS)"
    )


def _refused(error: ResponseError, ledger: str) -> BerthError:
    said = _said(error)
    if isinstance(error, ReadOnlyError):
        return StoreUnavailableError(
            f"{ledger} is a replica, which takes no writes; if this lasts, name the primary in BERTH_STORE, "
            "or see why none was elected"
        )
    if isinstance(error, AskError | TryAgainError):
        return StoreUnavailableError(_moving(error, said, ledger))
    if isinstance(error, ClusterDownError) or said.startswith(_PASSING):
        return StoreUnavailableError(f"{ledger} can't be used now ({said}); if this lasts, see to that")
    if isinstance(error, OutOfMemoryError):
        return StoreFailedError(f"{ledger} is full; give it more memory (maxmemory) or drop other data")
    if "unauthenticated" in said:
        return StoreFailedError(_LOGIN.format(ledger=ledger))
    if isinstance(error, NoPermissionError) or any(each in said for each in _RIGHTS):
        return StoreFailedError(
            f"{ledger}: its user lacks rights ({said}); docs/operations.md lists those that berth needs"
        )
    if "cluster mode" in said:
        return StoreFailedError(
            f"{ledger}: a Redis Cluster has no database but 0; leave out the number in BERTH_STORE, and "
            "set ledgers apart with ?prefix=NAME"
        )
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


def _moving(error: ResponseError, said: str, ledger: str) -> str:
    if isinstance(error, MovedError):
        return (
            f"{ledger}: the Cluster's nodes name each other for its keys ({said}); if this lasts, look at "
            "CLUSTER NODES on each"
        )
    return f"{ledger}: its keys are being moved to another node ({said}); if this lasts, finish that"


def _said(error: ResponseError) -> str:
    """What the server said, in one line, without the script's name and line."""
    code = getattr(error, "status_code", None)
    text = " ".join(str(error).split()).split(" script: ")[0]
    return f"{code} {text}" if code and not text.startswith(code) else text


def _reason(error: redis.RedisError) -> str:
    if isinstance(error, redis.TimeoutError):
        return "no answer in time"
    beneath = _beneath(error)
    if beneath is None or not beneath.strerror:
        return "the connection was closed"
    return beneath.strerror[:1].lower() + beneath.strerror[1:]


def _beneath(error: redis.RedisError) -> OSError | None:
    return next((each for each in _chain(error) if isinstance(each, OSError)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
