"""Why a connection failed, as the operating system said it, found beneath the errors of libraries.
The same cause has the same words: no address, number or time is in them."""

import ssl
from collections.abc import Iterator

LATE = "no answer in time"


def reason(error: BaseException | None, late: str = LATE) -> str:
    """Such as "connection refused"; `late` for a time-out."""
    found = beneath(error)
    if isinstance(found, ssl.SSLError):
        return _of_tls(found)
    if isinstance(found, TimeoutError) and not found.strerror:
        return late
    return _small(found.strerror) if found is not None and found.strerror else "the connection was closed"


def beneath(error: BaseException | None) -> OSError | None:
    """The system's own error, at or under this one."""
    return next((each for each in _chain(error) if isinstance(each, OSError)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        # botocore's and urllib3's errors have attributes for what was beneath.
        hidden = (getattr(error, "kwargs", {}).get("error"), getattr(error, "reason", None))
        inner = next((each for each in hidden if isinstance(each, BaseException)), None)
        error = inner or error.__cause__ or error.__context__


def _of_tls(error: ssl.SSLError) -> str:
    said = getattr(error, "verify_message", None) or (getattr(error, "reason", None) or "").lower().replace(
        "_", " "
    )
    return _small(said or error.strerror or "TLS failed")


def _small(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
