"""DynamoDB's errors as the store's: retryable or final, which table, what to do about it.
It quotes what AWS answered, never what was sent, nor credentials."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from botocore import exceptions as theirs

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.errors import reason as of_the_system
from berth.stores.dynamodb.url import DynamoDbUrl

_LOG = logging.getLogger("berth.stores.dynamodb")

MISSING = ("ResourceNotFoundException", "TableNotFoundException")
_LOGIN = (
    theirs.NoCredentialsError,
    theirs.PartialCredentialsError,
    theirs.CredentialRetrievalError,
    theirs.ProfileNotFound,
    theirs.TokenRetrievalError,
)
LASTING = ("ValidationError", "ItemCollectionSizeLimitExceeded")
_REFUSED_LOGIN = (
    "UnrecognizedClientException",
    "IncompleteSignatureException",
    "MissingAuthenticationTokenException",
    "InvalidClientTokenId",
    "ExpiredTokenException",
    "ExpiredToken",
)
_REFUSED_SIGNATURE = (
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "RequestExpired",
    "RequestTimeTooSkewed",
)
_DENIED = ("AccessDeniedException", "AccessDenied", "KMSAccessDeniedException")
_SLOW = ("Throttl", "ProvisionedThroughputExceeded", "RequestLimitExceeded")
MOST = 400 * 1024 - 4096  # an item's limit without its key and marks
MOST_AT_ONCE = 4 * 1024 * 1024 - 100 * 1024  # a transaction's
_CREDENTIALS = "give them by AWS' own rules (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role)"
_ACTION = re.compile(r"(?:perform: )(dynamodb:\w+)")


class UnknownOperationError(StoreFailedError):
    """The endpoint has no such operation: DynamoDB Local, for example, has no backups."""


class Reason(NamedTuple):
    """Why a transaction was cancelled, according to one of its items; "None" where that was not the cause."""

    code: str
    message: str


def ledger(url: DynamoDbUrl) -> str:
    return f"berth's ledger in DynamoDB table {url}"


def store_error(
    error: BaseException | None,
    url: DynamoDbUrl,
    seconds: float,
    operation: str,
    names: Sequence[str],
) -> BerthError:
    """Return the StoreUnavailableError or StoreFailedError for this error; `names` are of the documents."""
    if isinstance(error, theirs.ClientError):
        return _answered(error, url, operation, names)
    if isinstance(error, theirs.NoRegionError):
        return StoreFailedError(f"{ledger(url)}: no region is known; name it with ?region= in BERTH_STORE")
    if isinstance(error, _LOGIN):
        return StoreFailedError(f"{ledger(url)}: no AWS credentials were found; {_CREDENTIALS}")
    return _unreached(error, url, seconds)


def _unreached(error: BaseException | None, url: DynamoDbUrl, seconds: float) -> BerthError:
    if isinstance(error, theirs.SSLError):
        return StoreFailedError(
            f"{ledger(url)}: TLS failed ({of_the_system(error)}); check endpoint= in BERTH_STORE, and "
            "its certificate"
        )
    if isinstance(error, theirs.ReadTimeoutError | theirs.ConnectTimeoutError):
        why = f"no answer within {seconds:g} s"
    elif isinstance(error, theirs.EndpointConnectionError | theirs.HTTPClientError):
        why = of_the_system(error)
    else:
        return StoreFailedError(f"{ledger(url)} can't be used: {_line(error)}")
    return StoreUnavailableError(
        f"berth's ledger is unreachable ({url.printable}, {why}); if this lasts, check the network, AWS' "
        "status, and the region and endpoint= in BERTH_STORE"
    )


def reasons(error: theirs.ClientError) -> list[Reason]:
    """Return why a transaction was cancelled, a reason for each of its items; empty for other errors."""
    given = error.response.get("CancellationReasons") or []
    return [Reason(str(reason.get("Code", "None")), str(reason.get("Message") or "")) for reason in given]


def code_of(error: theirs.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _answered(
    error: theirs.ClientError, url: DynamoDbUrl, operation: str, names: Sequence[str]
) -> BerthError:
    where = ledger(url)
    code, said = code_of(error), _line(error.response["Error"].get("Message"))
    codes = {reason.code for reason in reasons(error)} - {"None"}
    slow = sorted(name for name in codes or {code} if name.startswith(_SLOW))
    if slow and not codes & set(LASTING):
        return StoreUnavailableError(
            f"{where} is asked for more than it serves ({slow[0]}); if this lasts, raise the table's limits, "
            "or use on-demand billing"
        )
    if code.startswith("TransactionConflict") or codes == {"TransactionConflict"}:
        return StoreUnavailableError(f"{where} is busy (too many writers of the same documents)")
    if codes:
        return _cancelled(where, reasons(error), names)
    if code in _REFUSED_LOGIN:
        return StoreFailedError(f"{where}: AWS refused the credentials ({code}); {_CREDENTIALS}")
    if code in _REFUSED_SIGNATURE:
        return StoreFailedError(
            f"{where}: AWS refused the signature ({code}); check the secret key, and this machine's clock, "
            "which may be wrong by five minutes at most"
        )
    if code in _DENIED:
        action = _ACTION.search(said)
        right = action[1] if action else f"what {operation} needs"
        return StoreFailedError(
            f"{where}: its account may not do {right}; infra/dynamodb/ has the policies that berth needs"
        )
    if code == "UnknownOperationException":
        return UnknownOperationError(
            f"{where}: its endpoint knows no {operation}; check endpoint= in BERTH_STORE"
        )
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500:
        return StoreUnavailableError(f"{where} failed to answer ({code}); if this lasts, check AWS' status")
    if not said or code.isdecimal():  # an answer of something else
        return foreign(url, operation, code)
    return StoreFailedError(f"{where} refused {operation}: {code}: {said}")


def foreign(url: DynamoDbUrl, operation: str, what: str) -> BerthError:
    """Return the error of an answer that is not DynamoDB's."""
    return StoreFailedError(
        f"{ledger(url)} refused {operation}: {what}; check region= and endpoint= in BERTH_STORE"
    )


def _cancelled(where: str, reasons: Sequence[Reason], names: Sequence[str]) -> BerthError:
    """Return the error for a reason that lasts; the transaction's other reasons say nothing more."""
    causes = [(at, reason) for at, reason in enumerate(reasons) if reason.code != "None"]
    at, reason = next((cause for cause in causes if cause[1].code in LASTING), causes[0])
    which = f" of document {names[at]!r}" if at < len(names) else ""
    _LOG.warning("%s refused the change%s: %s: %s", where, which, reason.code, _line(reason.message))
    return StoreFailedError(
        f"{where} refused the change ({reason.code}); the function's log says of which document"
    )


def require_room(url: DynamoDbUrl, sizes: Mapping[str, int]) -> None:
    """Raise StoreFailedError where a document of these sizes, or all together, are too large.

    Its text has neither sizes nor a document's key, which may name a node: those are for the log.
    """
    where = ledger(url)
    for key, size in sizes.items():
        if size > MOST:
            _LOG.warning("%s: document %r would take %d bytes, and DynamoDB takes %d", where, key, size, MOST)
            raise StoreFailedError(
                f"{where}: a domain holds more claims than an item takes (400 KB); use another store for "
                "this pool"
            )
    if (size := sum(sizes.values())) > MOST_AT_ONCE:
        _LOG.warning(
            "%s: %d documents of %d bytes change at once, and DynamoDB takes %d",
            where, len(sizes), size, MOST_AT_ONCE,
        )  # fmt: skip
        raise StoreFailedError(
            f"{where}: more claims change at once than a transaction takes (4 MB); use another store for "
            "these pools"
        )


def not_ready(url: DynamoDbUrl, status: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"{ledger(url)} is not ready ({status}); it can be used once it is ACTIVE")


def missing(url: DynamoDbUrl) -> BerthError:
    return StoreFailedError(
        f"{ledger(url)}: there is no such table; make it with: berth store init '{url.printable}'"
    )


def _line(text: object) -> str:
    return " ".join(str(text or "").split())
