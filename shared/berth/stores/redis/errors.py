"""redis-py's errors as the store's: retryable or final, which server, what to do about it.
It quotes what a server answered, never what was sent; it does not know whether a call was carried out."""

import ssl

import redis
from redis import exceptions as theirs

from berth.errors import LATE, BerthError, StoreFailedError, StoreUnavailableError, beneath, reason
from berth.stores.redis.url import RedisUrl

_PASSING = ("NOREPLICAS", "BUSY ", "UNKILLABLE")
_FOREIGN = ("WRONGTYPE", "BERTHFORMAT")
_RIGHTS = ("permission", "user executing the script")  # what Redis 7.0 says of a right that a script lacks
_UNREACHABLE = "berth's ledger is unreachable"
_LOGIN = " refused the user or the password; check those in BERTH_STORE"


def store_error(error: redis.RedisError, url: RedisUrl, seconds: float) -> BerthError:
    """Return the StoreUnavailableError or StoreFailedError for this error of the server at `url`."""
    ledger = f"berth's ledger in Redis {url}"
    if isinstance(error, theirs.ResponseError):
        return _refused(error, ledger)
    if isinstance(error, theirs.AuthenticationError | theirs.AuthorizationError):
        return StoreFailedError(f"{ledger}{_LOGIN}")
    if isinstance(error, theirs.BusyLoadingError):
        return StoreUnavailableError(f"{ledger} is loading its data; it can be used when it has done so")
    if isinstance(error, redis.TimeoutError):
        port = "the port (does it speak TLS?)" if url.tls else "the server"
        return StoreUnavailableError(
            f"{_UNREACHABLE} ({url.printable}, no answer within {seconds:g} s); if this lasts, check {port} "
            "and the network"
        )
    return _unreached(error, ledger, url)


def too_few(written: int, needed: int, url: RedisUrl) -> StoreUnavailableError:
    """Return the error of a commit that was made, but that a fail-over may lose."""
    return StoreUnavailableError(
        f"berth's ledger in Redis {url} was written, but {written} of {needed} replicas have it, and a "
        "fail-over may lose it; if this lasts, check its replicas, or ?wait= in BERTH_STORE"
    )


def alone(url: RedisUrl) -> StoreFailedError:
    """Return the error of several hosts that are no Cluster: processes would use different ledgers."""
    return StoreFailedError(
        f"berth's ledger in Redis {url}: several hosts are for a Redis Cluster, and this is not part of "
        "one; name a single server in BERTH_STORE, or Sentinels with ?sentinel=NAME"
    )


def unnamed(url: RedisUrl) -> StoreFailedError:
    return StoreFailedError(
        f"berth's ledger in Redis {url}: the Sentinels know no primary named {url.sentinel!r}; "
        "check ?sentinel= in BERTH_STORE"
    )


def unsentinelled(error: redis.RedisError, url: RedisUrl) -> BerthError:
    """Return the error of a Sentinel that refused to answer, or of all that did not answer."""
    sentinels = f"berth's ledger in Redis {url}: its Sentinels"
    if isinstance(error, theirs.AuthenticationError):
        return StoreFailedError(
            f"{sentinels} refused the user or the password; they should be those in BERTH_STORE, or none"
        )
    if isinstance(error, theirs.ResponseError):
        return StoreFailedError(
            f"{sentinels} refused ({_said(error)}); check that the hosts in BERTH_STORE are Sentinels"
        )
    return StoreUnavailableError(
        f"{_UNREACHABLE} ({url.printable}, of its Sentinels: {_reason(error)}); if this lasts, check them "
        "and BERTH_STORE"
    )


def _unreached(error: redis.RedisError, ledger: str, url: RedisUrl) -> BerthError:
    cause = beneath(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return StoreFailedError(
            f"{ledger}: its certificate is not trusted ({cause.verify_message}); name the authority's "
            "file with ?ssl_ca_certs=/PATH in BERTH_STORE, and the host as in the certificate"
        )
    if isinstance(cause, ssl.SSLError):
        return StoreFailedError(
            f"{ledger} does not speak TLS as expected ({cause.reason}); "
            "check the port, or use redis:// in BERTH_STORE for a server without TLS"
        )
    return StoreUnavailableError(
        f"{_UNREACHABLE} ({url.printable}, {_reason(error)}); if this lasts, check the server and "
        "BERTH_STORE (redis://, or rediss:// for a port that speaks TLS)"
    )


def _refused(error: theirs.ResponseError, ledger: str) -> BerthError:
    said = _said(error)
    if passing := _passing(error, said):
        return StoreUnavailableError(f"{ledger}{passing}")
    return StoreFailedError(f"{ledger}{_lasting(error, said)}")


def _passing(error: theirs.ResponseError, said: str) -> str:
    """Return what a refusal means that may end by itself; empty for any other."""
    if isinstance(error, theirs.ReadOnlyError):
        return (
            " is a replica, which takes no writes; if this lasts, name the primary in BERTH_STORE, or see "
            "why none was elected"
        )
    if isinstance(error, theirs.MovedError):
        return (
            f": the Cluster's nodes name each other for its keys ({said}); if this lasts, look at CLUSTER "
            "NODES on each"
        )
    if isinstance(error, theirs.AskError | theirs.TryAgainError):
        return f": its keys are being moved to another node ({said}); if this lasts, finish that"
    if isinstance(error, theirs.ClusterDownError) or said.startswith(_PASSING):
        return f" can't be used now ({said}); if this lasts, see to that"
    return ""


def _lasting(error: theirs.ResponseError, said: str) -> str:
    """Return what a refusal means that a person has to see to."""
    if isinstance(error, theirs.OutOfMemoryError):
        return " is full; give it more memory (maxmemory) or drop other data"
    if "unauthenticated" in said:
        return _LOGIN
    if isinstance(error, theirs.NoPermissionError) or any(word in said for word in _RIGHTS):
        return f": its user lacks rights ({said}); docs/stores/redis.md lists those that berth needs"
    if "cluster mode" in said:
        return (
            ": a Redis Cluster has no database but 0; leave out the number in BERTH_STORE, and set ledgers "
            "apart with ?prefix=NAME"
        )
    if any(word in said for word in _FOREIGN):
        return (
            ": the keys are not a ledger that this berth knows; run one version of berth, or set berth's "
            "keys apart with ?prefix=NAME in BERTH_STORE"
        )
    if "BERTHSERVER" in said:
        return ": INFO tells no run_id and master_replid; berth needs Redis 7 or Valkey"
    return f" refused: {said}; check the server and its log"


def _said(error: theirs.ResponseError) -> str:
    """Return what the server said, in one line, without the script's name and line."""
    code = getattr(error, "status_code", None)
    text = " ".join(str(error).split()).split(" script: ")[0]
    return f"{code} {text}" if code and not text.startswith(code) else text


def _reason(error: redis.RedisError) -> str:
    return LATE if isinstance(error, redis.TimeoutError) else reason(error)
