"""How the ledger decides: read documents, decide on them, commit expecting what was read; on a conflict
decide again. It promises no order among those who want the same documents."""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Never, TypeVar

from berth.deadline import Deadline
from berth.errors import ContentionError, RebuildingError, RefusedError
from berth.ledger import refusals
from berth.ledger.keys import CLUSTER
from berth.ledger.model import Domain, decode_domain, encode, epoch_of
from berth.ledger.transitions import Domains, require_cluster
from berth.retry import retry
from berth.stores.base import EPOCH, LIMIT, Document, Store, Version

PATIENCE_SECONDS = 1.0

MOST_KEYS = LIMIT - 2
"""Documents that one decision can be about, beside the epoch and the cluster, which it expects as well."""

T = TypeVar("T")
Bodies = Mapping[str, bytes | None]
"""Documents as they are stored; None: there is none."""

Fence = Mapping[str, Version | None]
"""Documents that must still have these versions (None: not be there), or nothing is written."""

Drawn = Mapping[str, str]
"""Pools from which units are given, by the resource that they count."""

Writes = Mapping[str, Domain | bytes | None]
"""What a decision changes: domains, and other documents as their bytes (None: it goes)."""

NOTHING: Mapping[str, Never] = MappingProxyType({})
"""No fence, and nothing that is drawn or written."""


class _ConflictError(Exception):
    """Another writer was first: decide again."""


class BusyError(ContentionError):
    """Others were first for as long as one may wait."""

    def __init__(self) -> None:
        super().__init__(f"berth's ledger was too busy for {PATIENCE_SECONDS:g} s")


class OvertakenError(ContentionError):
    """A document of the fence has changed: another caller has taken over."""


class OutdatedError(ContentionError):
    """A later look at the Pools has begun, which knows more: what this one read is not to be written."""

    def __init__(self) -> None:
        super().__init__("berth's Pools are being looked at again by a later call; try again")


class LostAgainError(ContentionError):
    """The ledger was lost while this caller rebuilt it, or another caller rebuilds it now."""

    def __init__(self) -> None:
        super().__init__("berth's ledger was lost again or is being rebuilt by another reconcile; try again")


class Commits(NamedTuple):
    """The commits of one ledger. Each expects the epoch and the ledger's cluster as they were read.

    Each raises OutdatedError where a document of `fence` has changed. The other fields are as in Ledger.
    """

    store: Store
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    while_closed: bool
    cluster: Callable[[], str] | None
    name: str
    fence: Fence = NOTHING

    @property
    def most_keys(self) -> int:
        """Return documents that one decision can be about, beside what each expects."""
        return MOST_KEYS - len(self.fence)

    def owner(self) -> Writes:
        """Return the document that says that the ledger is this cluster's."""
        return {} if self.cluster is None else {CLUSTER: self.cluster().encode()}

    def run(
        self,
        keys: Collection[str],
        decide: Callable[[Domains], tuple[T, Writes]],
        fence: Fence = NOTHING,
        drawn: Drawn = NOTHING,
    ) -> T:
        """Return what was decided of these domains, once it is committed; it gives units of `drawn`.

        Raises RefusedError where one of these is held back, ContentionError when PATIENCE_SECONDS are over,
        OvertakenError, what `decide` raises, the store's errors, OtherClusterError, PausedError and
        MovedError, and RebuildingError while the ledger has no epoch (but for `while_closed`).
        """

        def decide_bodies(bodies: Bodies) -> tuple[T, Writes]:
            return decide({key: decode_domain(body) for key, body in bodies.items()})

        return self.run_bodies(keys, decide_bodies, fence, drawn)

    def run_bodies(
        self,
        keys: Collection[str],
        decide: Callable[[Bodies], tuple[T, Writes]],
        fence: Fence = NOTHING,
        drawn: Drawn = NOTHING,
    ) -> T:
        """Return what was decided of any documents, once it is committed; errors as for `run`."""
        try:
            return self.again(lambda: self._try(keys, decide, fence, drawn), _ConflictError, (0.002, 0.1))
        except _ConflictError as error:
            raise BusyError from error

    def again(self, call: Callable[[], T], on: type[Exception], pauses: tuple[float, float]) -> T:
        """Return what `call` returns, called again for PATIENCE_SECONDS while it raises `on`."""
        return retry(call, on, deadline=self.deadline(), pauses=pauses, sleep=self.sleep)

    def deadline(self) -> Deadline:
        """Return until when a decision that begins now is made again."""
        return Deadline.after(PATIENCE_SECONDS, self.monotonic)

    def write(self, writes: Writes) -> None:
        """Write these documents, whatever was in them; with none, only see that the ledger may be written."""
        self.run((), lambda _: (None, writes))

    def write_mark(self, key: str, also: Writes = NOTHING, mark: str | None = None) -> Version | None:
        """Write that it is our turn, which the document `key` tells, and `also` others. Return the version
        that stands as long as the turn lasts; None: another caller has taken it already."""
        body = (mark or uuid.uuid4().hex).encode()
        self.write({key: body, **also})
        document = self.store.read([key]).get(key)
        return document.version if document is not None and document.body == body else None

    def _try(
        self,
        keys: Collection[str],
        decide: Callable[[Bodies], tuple[T, Writes]],
        fence: Fence,
        drawn: Drawn,
    ) -> T:
        ours = None if self.cluster is None else self.cluster()
        documents = self.store.read({EPOCH, CLUSTER, *self.fence, *fence, *keys})
        if ours is not None and CLUSTER in documents:
            require_cluster(documents[CLUSTER].body, ours, self.name)
        epoch = epoch_of(documents)
        if epoch is None and not self.while_closed:
            raise RebuildingError
        if epoch is not None and (trouble := epoch.trouble()) is not None:
            raise trouble
        if versions_of(documents, self.fence) != self.fence:
            raise OutdatedError
        if epoch is not None and (held := [drawn[resource] for resource in epoch.held if resource in drawn]):
            raise RefusedError("; ".join(map(refusals.held_back, sorted(held))))
        result, writes = decide({key: documents[key].body if key in documents else None for key in keys})
        if versions_of(documents, fence) != fence:
            raise OvertakenError(
                "another caller has changed this part of berth's ledger meanwhile; try again"
            )
        # Every document read is expected as it was, the epoch too: a lost ledger takes no commit.
        expected = {**versions_of(documents, {EPOCH, CLUSTER, *keys}), **self.fence, **fence}
        if writes and not self.store.commit(
            {key: _body(document) for key, document in writes.items()}, expected
        ):
            raise _ConflictError
        return result


def versions_of(documents: Mapping[str, Document], keys: Iterable[str]) -> Fence:
    """Return the versions that documents with these keys have among those."""
    return {key: documents[key].version if key in documents else None for key in keys}


def _body(written: Domain | bytes | None) -> bytes | None:
    """Return what is stored: a domain that says nothing is gone."""
    if isinstance(written, Domain):
        return None if written.empty else encode(written)
    return written
