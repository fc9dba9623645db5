"""The errors Berth raises on purpose; each message is written for the person who will read it.
It does not promise that a library raises nothing else: `http` turns the rest into one plain line."""


class BerthError(Exception):
    """What happened, to which pod, pool, node or URL, and what to do about it, in one line."""


class BadInputError(BerthError):
    """The caller sent something that can't be understood; nothing was changed."""


class RefusedError(BerthError):
    """The pod can't be served as asked now; the text goes to the pod's event."""


class SettingsError(BerthError):
    """An environment variable, a flag or a Pool document is wrong; nothing was started."""


class OtherClusterError(SettingsError):
    """The ledger is another cluster's: BERTH_STORE or KUBECONFIG is wrong; nothing was changed."""


class RetryableError(BerthError):
    """It may well work a moment later without anyone doing anything."""


class RebuildingError(RetryableError):
    """The ledger has no epoch: it is new or was lost, and reconcile has not opened it yet."""

    def __init__(self) -> None:
        super().__init__(
            "berth's ledger is being rebuilt from the pods "
            "(if this lasts over two minutes, check that berth's reconcile function runs)"
        )


class UnfinishedError(RetryableError):
    """A rebuild took as long as its caller waits; what it has done stands."""

    def __init__(self, fenced: int) -> None:
        super().__init__(
            f"berth's ledger is not rebuilt yet ({fenced} waiting pods are fenced so far); "
            "the next reconcile goes on from there"
        )


class PausedError(RetryableError):
    """`berth store copy` is at work; nothing is claimed, freed or mended meanwhile."""

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
    """Too many writers wanted the same documents until the deadline passed; nothing was changed."""


class StoreUnavailableError(RetryableError):
    """The store did not answer; a retry may help."""


class StoreFailedError(BerthError):
    """The store answered that it can't; only a person can mend it (disk, rights, schema)."""


class ClusterUnavailableError(RetryableError):
    """The API server could not be reached, or answered 429 or 5xx; a request may have been carried out."""


class ClusterRefusedError(BerthError):
    """The API server answered 4xx: it did not do it, and will not do it if asked again."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
