"""The store contract: versioned documents, three calls, nothing else.
A store does not know what a claim is; it promises only what is written on `Store`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from berth.errors import StoreFailedError

Version = str
"""Opaque. Never the same for two writes of a key, not even across a loss of the store: a store that was
emptied and filled again must not accept a commit that was decided on what it held before."""

Cursor = str
"""Opaque: how far a reader of `changes` has come."""

EPOCH = "epoch"
"""The one document that a store knows by name. A store that may have come back older than it was deletes it
and begins a new life: versions and cursors of before are worthless."""

LIMIT = 100
"""Keys that one call of `read`, or of `commit` in `writes` and `expected` together, may name at most."""

_ROOM = 4  # left in each batch for documents that every commit expects: the epoch and the like


class Document(NamedTuple):
    """A document as stored: its version and its body."""

    version: Version
    body: bytes


class Changes(NamedTuple):
    """What changed since a cursor: bodies by key, None for what was deleted; `snapshot` means that this
    is everything there is, and what is not in it is gone."""

    documents: Mapping[str, bytes | None]
    cursor: Cursor
    snapshot: bool


NOTHING = Changes({}, "", True)
"""What a store that is opened for reading tells of a ledger that is not there, or not whole."""


class Store(Protocol):
    """Where a ledger lives. Every call may raise StoreUnavailableError (retry) or StoreFailedError (final).

    Implementations are safe to use from many threads, and between processes. One that is opened for reading
    makes and begins nothing: it finds a ledger empty that is new, lost or older than it was, until a process
    that writes has begun a new life of it.
    """

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        """The documents that exist among `keys` (at most LIMIT), as of one moment at or after the call."""
        ...

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        """Write (None deletes) all documents or none.

        True when every key of `expected` had that version (None: did not exist), else False and nothing is
        changed. Keys may be only expected, or only written; at most LIMIT. Durable when it returns. When it
        raises StoreUnavailableError it may have been done all the same.
        """
        ...

    def changes(self, since: Cursor | None) -> Changes:
        """A snapshot for None or for a cursor the store can no longer serve, else the changes since.

        A snapshot is complete as of the call, though not of one moment. Changes may lag behind `read` by the
        bound that the store states, and may repeat; neither ever goes back for a key. Who is told of a new
        epoch is told in the same call of everything that was committed before it.
        """
        ...

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        """The keys of documents that need not change together, in parts that cost least to commit: what lies
        together is in one part. Each leaves room for a few documents more that are only expected."""
        ...

    def close(self) -> None:
        """Let go of connections and files; the store may not be used afterwards."""
        ...


@runtime_checkable
class Local(Protocol):
    """The ability of a store that makes its ledger by itself: to tell whether there is one, and make none."""

    def is_there(self) -> bool:
        """Whether any call of berth's has made the ledger. Raises as Store does."""
        ...


@runtime_checkable
class Makeable(Protocol):
    """The ability of a store that needs something made before its first use."""

    def make(self, *, protect: bool) -> Iterator[str]:
        """Make it, or bring it to what it should be; a line for each thing done, as it is done. `protect`
        protects it from being deleted. Raises as Store does; what was done until then is found the next time.
        """
        ...


def only_read() -> StoreFailedError:
    """For a commit to a store that is opened for reading."""
    return StoreFailedError("berth's ledger is opened for reading here, and nothing was written to it")


def chunks(keys: Collection[str]) -> Iterator[Sequence[str]]:
    """The `batches` of a store where no documents lie together."""
    ordered, size = list(keys), LIMIT - _ROOM
    return (ordered[start : start + size] for start in range(0, len(ordered), size))
