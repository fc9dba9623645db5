"""The errors Berth raises on purpose, each message written for its reader; and why a connection failed.
It does not promise that a library raises nothing else: `http` turns the rest into one plain line."""

import ssl
from collections.abc import Collection, Iterable, Iterator, Sequence

_MOST_NAMES = 20  # that an error lists


def first_of(problems: Sequence[str], most: int) -> list[str]:
    """Return the first of these, and how many more there are: one Pool may have a thousand mistakes."""
    more = len(problems) - most
    return [*problems[:most], *([f"and {more} more mistakes like these"] if more > 0 else [])]


def few(names: Iterable[str], most: int) -> str:
    """Return the first of these names in a line, and how many more there are."""
    known = list(names)
    more = len(known) - most
    return ", ".join(known[:most]) + (f" and {more} more" if more > 0 else "")


class BerthError(Exception):
    """Its text says what happened, to which pod, pool, node or URL, and what to do about it, in one line."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, one text for each mistake; most errors are about one."""
        return (str(self),)


class BadInputError(BerthError):
    """The caller sent something that can't be understood; nothing was changed.

    Its text has all `problems` in one line. A problem may have lines of its own, such as a place in a file.
    """

    def __init__(self, *problems: str) -> None:
        lines = (" ".join(text.split()) if "\n" in text else text for text in problems)
        super().__init__("; ".join(lines))
        self._problems = problems

    @property
    def problems(self) -> tuple[str, ...]:
        return self._problems


class UsageError(BerthError):
    """Arguments of the command line that do not go together; nothing was done."""


class RefusedError(BerthError):
    """The pod can't be served as asked now; the text goes to the pod's event."""


class SettingsError(BerthError):
    """An environment variable, a flag or a Pool document is wrong; nothing was started."""


class NoClusterError(SettingsError):
    """Nobody names a cluster, neither a kubeconfig nor a pod's account. What can do without may go on."""


class OtherClusterError(SettingsError):
    """The ledger is another cluster's: BERTH_STORE or KUBECONFIG is wrong; nothing was changed."""


class RetryableError(BerthError):
    """A retry may succeed a moment later without anyone doing anything."""


class RebuildingError(RetryableError):
    """The ledger has no epoch: it is new or was lost, and reconcile has not opened it yet."""

    def __init__(self) -> None:
        super().__init__(
            "berth's ledger is being rebuilt from the pods "
            "(if this lasts over two minutes, check that berth's reconcile function runs)"
        )


class UnfinishedError(RetryableError):
    """A rebuild took as long as its caller waits; what it has done is kept."""

    def __init__(self, fenced: int) -> None:
        super().__init__(
            f"berth's ledger is not rebuilt yet ({fenced} waiting pods are fenced so far); "
            "the next reconcile goes on from there"
        )


class PausedError(RetryableError):
    """`berth store copy` runs; nothing is claimed, freed or repaired meanwhile."""

    def __init__(self, to: str) -> None:
        super().__init__(
            f"berth's ledger is being copied to {to}; claims are paused until that is done "
            "(if the copy died: berth store resume, with this ledger's URL)"
        )


class MovedError(SettingsError):
    """This ledger's claims are in another store now; nothing was changed."""

    def __init__(self, to: str) -> None:
        super().__init__(f"berth's ledger was moved to {to}; set BERTH_STORE to it")


class ContentionError(RetryableError):
    """Other writers changed the same documents until the deadline passed; this call changed nothing."""


class StoreUnavailableError(RetryableError):
    """The store did not answer; a retry may help."""


class StoreFailedError(BerthError):
    """The store answered that it can't; only a person can repair that (disk, rights, schema)."""


class ClusterUnavailableError(RetryableError):
    """The API server could not be reached, or answered 429 or 5xx; a request may have been carried out."""


class ClusterRefusedError(BerthError):
    """The API server answered 4xx: it did nothing, and will answer the same when asked again."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return ": did you mean NAME?" for the known name that is nearest to what was given; else nothing."""
    import difflib  # functions start without it

    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), by_lower, n=1)
    return f": did you mean {by_lower[near[0]]}?" if near else ""


LATE = "no answer in time"


def reason(error: BaseException | None, late: str = LATE) -> str:
    """Return why a connection failed, such as "connection refused"; `late` for a time-out.

    Equal causes have equal words: there is no address, number or time in them.
    """
    cause = beneath(error)
    if isinstance(cause, ssl.SSLError):
        return _of_tls(cause)
    if isinstance(cause, TimeoutError) and not cause.strerror:
        return late
    return _lower(cause.strerror) if cause is not None and cause.strerror else "the connection was closed"


def beneath(error: BaseException | None) -> OSError | None:
    """Return the operating system's own error, which is this one or caused it."""
    return next((cause for cause in _chain(error) if isinstance(cause, OSError)), None)


def alternatives(name: str, known: Collection[str]) -> str:
    """Return what there is in place of a name that there is not, for the end of an error's text: the names in
    their order, not more than a person reads, and the one that was probably meant."""
    import difflib  # only where something went wrong

    text = f"there are: {few(known, _MOST_NAMES) or 'none'}"
    near = difflib.get_close_matches(name, list(known), 1)
    return f"{text} (did you mean {near[0]}?)" if near else text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        # botocore's and urllib3's errors have attributes for the error that caused them.
        hidden = (getattr(error, "kwargs", {}).get("error"), getattr(error, "reason", None))
        inner = next((cause for cause in hidden if isinstance(cause, BaseException)), None)
        error = inner or error.__cause__ or error.__context__


def _of_tls(error: ssl.SSLError) -> str:
    code = (getattr(error, "reason", None) or "").lower().replace("_", " ")
    return _lower(getattr(error, "verify_message", None) or code or error.strerror or "TLS failed")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
