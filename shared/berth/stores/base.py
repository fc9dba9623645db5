"""The store contract: versioned documents, three calls, nothing else.
A store does not know what a claim is; it promises only what is written on `Store`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from berth.errors import StoreFailedError

Version = str
"""Opaque. No two writes of a key have the same, not even across a loss of the store: a store that was emptied
and filled again must not accept a commit that was decided on what it held before."""

Cursor = str
"""Opaque: how far a reader of `changes` has read."""

EPOCH = "epoch"
"""The one document that a store knows by name. A store that may have come back older than it was deletes it
and begins a new generation: versions and cursors of the one before are worthless."""

LIMIT = 100
"""The most keys of one call: of `read`, or of `commit` in `writes` and `expected` together."""

_ROOM = 4  # left in a batch for documents that every commit expects: the epoch and the like


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
"""What a store that is opened for reading returns of a ledger that is not there, or not whole."""


class Store(Protocol):
    """Where a ledger lives. Every call may raise StoreUnavailableError (retry) or StoreFailedError (final).

    Implementations are safe to use from many threads and processes. A store that is opened for reading makes
    and begins nothing: to it a ledger that is new, lost or older than it was is empty, until a process that
    writes has begun a new generation.
    """

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        """Return those documents of `keys` (at most LIMIT) that exist, as of one moment during the call."""
        ...

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        """Write all documents (None deletes) and return True, or write none and return False.

        True where every key of `expected` had that version (None: did not exist). Keys may be only expected,
        or only written; at most LIMIT. It is durable when it returns. When it raises StoreUnavailableError it
        may have been done all the same.
        """
        ...

    def changes(self, since: Cursor | None) -> Changes:
        """Return the changes since a cursor; a snapshot for None, or for a cursor that is too old to serve.

        A snapshot is complete as of the call, though not of one moment. Changes may lag behind `read` by the
        bound that the store states, and may repeat; for one key neither ever goes back. A call that returns a
        new epoch returns everything that was committed before it, too.
        """
        ...

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        """Return the keys of documents that need not change together, in parts that cost least to commit.

        Documents that are stored together are in one part. A part leaves room for a few more documents, which
        are only expected."""
        ...

    def close(self) -> None:
        """Close connections and files; the store may not be used afterwards."""
        ...


@runtime_checkable
class Prompt(Protocol):
    """A store that can be asked for changes by who must not wait, such as an event loop."""

    def changes_at_once(self, since: Cursor) -> Changes | None:
        """Return what `changes` returns if that takes next to no time, else None: then `changes`, which may
        wait, is to be asked. Each store states how long it takes at most."""
        ...


@runtime_checkable
class Local(Protocol):
    """A store that makes its ledger by itself, and can tell whether there is one without making it."""

    def is_there(self) -> bool:
        """Whether a call has made the ledger before. Raises as Store does."""
        ...


@runtime_checkable
class Makeable(Protocol):
    """A store of which something must be made before its first use."""

    def make(self, *, protect: bool) -> Iterator[str]:
        """Make it, or bring it to what it should be; yield a line for each thing done. `protect` protects it
        from being deleted. Raises as Store does, and the next call goes on from there.
        """
        ...


class ServerFacts(NamedTuple):
    """What a store's server says of how it is run; None or empty: it has no such thing, or did not say.

    `eviction` is what it drops where its memory is full, `persistent` whether its data outlives a restart,
    `clock` its time in Unix seconds, `recovery` whether it can be put back to any moment. `unknown` are
    sentences on what it did not say, and why.
    """

    version: str = ""
    eviction: str = ""
    persistent: bool | None = None
    clock: float | None = None
    recovery: bool | None = None
    unknown: tuple[str, ...] = ()


@runtime_checkable
class Described(Protocol):
    """A store whose server can be asked how it is run."""

    def facts(self) -> ServerFacts:
        """Ask it. Raises as Store does; what the user may not ask is named in `unknown`."""
        ...


def only_read() -> StoreFailedError:
    """Return the error for a commit to a store that is opened for reading."""
    return StoreFailedError("berth's ledger is opened for reading here, and nothing was written to it")


def as_expected(
    documents: Mapping[str, tuple[Version, bytes]], expected: Mapping[str, Version | None]
) -> bool:
    """Whether each key has the version that is expected; None: it does not exist."""
    return all(documents.get(key, (None,))[0] == version for key, version in expected.items())


def chunks(keys: Collection[str]) -> Iterator[Sequence[str]]:
    """Return the `batches` of a store where no documents are stored together."""
    ordered, size = list(keys), LIMIT - _ROOM
    return (ordered[start : start + size] for start in range(0, len(ordered), size))
