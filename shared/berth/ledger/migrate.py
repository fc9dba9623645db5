"""Copy a ledger from one store to another while claims are paused, and let the copy take its place.
It moves no functions: until BERTH_STORE says so, they answer that they should use the new store.

    target          source                          a death after it leaves
    mark, empty                                     a target that is closed
                    pause ── nothing lands after    the source paused: `resume`, or the copy again
    write           read
    read     ══     read again
                    moved                           both closed: the copy again, or reconcile, opens the new
    open

Each mark is written expecting the one before. Whoever lost a store, resumed the source or copies to the same
target meanwhile has written another: then this copy stops, and undoes what is still its own.
"""

import time
import uuid
from collections.abc import Callable, Mapping

import msgspec

from berth.errors import BerthError, MovedError
from berth.ledger.keys import REBUILD
from berth.ledger.model import COPY, Epoch, encode, epoch_of
from berth.ledger.transaction import versions_of
from berth.ledger.view import View
from berth.stores.base import EPOCH, Document, Store, Version
from berth.stores.retrying import RetryingStore

_MARKS = (EPOCH, REBUILD)
_TRIES = 5


class CopyError(BerthError):
    """The ledger was not copied; the text says why, and what is so now."""


class Copied(msgspec.Struct, frozen=True):
    """What was copied; `units` are those that the claims hold."""

    documents: int
    claims: int
    units: int
    bytes: int


class _Source(msgspec.Struct, frozen=True):
    """The source's epoch as it was before the copy."""

    version: Version
    epoch: Epoch


def resume(store: Store, name: str) -> bool:
    """Let claims go on in a ledger whose copy died; False if they were not paused.

    A copy that is still at work stops then. Raises MovedError, and CopyError.
    """
    documents = store.read([EPOCH])
    epoch = epoch_of(documents)
    if epoch is None:
        raise CopyError(f"{name} is not open, so nothing is paused: berth reconcile opens it")
    if epoch.moved:
        raise MovedError(epoch.to)
    if not epoch.paused:
        return False
    resumed = Epoch(uuid.uuid4().hex, epoch.since, held=epoch.held)
    if not store.commit({EPOCH: encode(resumed)}, {EPOCH: documents[EPOCH].version}):
        raise CopyError(f"{name} was changed by another at this moment: try again")
    return True


class Copy:
    """One copy; `tell` is given a line whenever something is done."""

    def __init__(
        self,
        source: tuple[Store, str],
        target: tuple[Store, str],
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Each store comes with its URL as it may be shown."""
        self._source = RetryingStore(*source, monotonic=monotonic, sleep=sleep)
        self._target = RetryingStore(*target, monotonic=monotonic, sleep=sleep)
        self._tell, self._clock = tell, clock
        self._id = uuid.uuid4().hex

    def run(self) -> Copied:
        """What was copied; the target is the ledger then. A copy that died when it had moved the source is
        finished. Raises CopyError, MovedError for a source that was moved elsewhere, the stores' errors."""
        source = self._look_at_source()
        if source.epoch.moved:
            return self._finish(source)
        mark = self._take_target()
        try:
            bodies = self._move(source, mark)
        except BaseException as error:
            now = self._undo(source, mark)
            if now is not None and isinstance(error, BerthError):
                raise CopyError(f"nothing was moved: {error}. {now}") from error
            if now is not None:
                self._tell(f"nothing was moved. {now}")
                raise
            bodies = _all(self._target, {REBUILD: mark})
        return self._open(Epoch(self._id, self._clock(), held=source.epoch.held), mark, bodies)

    def _move(self, source: _Source, mark: Version) -> Mapping[str, bytes]:
        """Return the documents, once they are in the target and the source is marked as moved."""
        pause = msgspec.structs.replace(source.epoch, id=self._id, to=self._target.name)
        paused = _put(self._source, EPOCH, encode(pause), {EPOCH: source.version})
        self._tell(f"claims in {self._source.name} are paused")
        bodies = _all(self._source, {EPOCH: paused})
        self._fill(bodies, mark)
        _require_same(bodies, _all(self._source, {EPOCH: paused}), self._source.name)
        self._tell(f"verified: {self._target.name} holds the same, document by document")
        _put(self._source, EPOCH, encode(msgspec.structs.replace(pause, moved=True)), {EPOCH: paused})
        return bodies

    def _look_at_source(self) -> _Source:
        documents = self._source.read([EPOCH])
        epoch = epoch_of(documents)
        if epoch is None:
            raise CopyError(f"{self._source.name} is not open: let berth reconcile open it, then copy it")
        return _Source(documents[EPOCH].version, epoch)

    # The target's mark: where a rebuild would leave its own, so that whichever comes later stops the other

    def _take_target(self) -> Version:
        """Make sure that the target may be used, put our mark there, and empty it; the mark's version."""
        documents = self._target.read(_MARKS)
        epoch = epoch_of(documents)
        if epoch is not None and not epoch.moved:
            raise CopyError(f"{self._target.name} is a ledger in use: name an empty store to copy to")
        left = REBUILD in documents and documents[REBUILD].body.startswith(_mark(""))
        if epoch is None and not left and (REBUILD in documents or _keys(self._target)):
            raise CopyError(
                f"{self._target.name} holds documents that no copy left there: name an empty store to copy to"
            )
        expected = versions_of(documents, _MARKS)
        mark = _put(self._target, REBUILD, _mark(self._id), expected, {EPOCH: None})
        self._empty(mark)
        return mark

    def _open(self, epoch: Epoch, mark: Version, bodies: Mapping[str, bytes]) -> Copied:
        """Let verbs use the target; its epoch bears the copy's id, by which the copy made again knows it."""
        try:
            self._target.commit({EPOCH: encode(epoch), REBUILD: None}, {EPOCH: None, REBUILD: mark})
            there = epoch_of(self._target.read([EPOCH]))
            if there is None or there.id != epoch.id:
                raise _changed(self._target)
        except BerthError as error:
            raise CopyError(
                f"{self._source.name} was moved to {self._target.name}, but that is not open yet ({error}): "
                "repeat the copy, or set BERTH_STORE to it and let berth reconcile open it"
            ) from error
        self._tell(f"moved: set BERTH_STORE to {self._target.name} wherever berth's functions run")
        return copied(bodies)

    def _finish(self, source: _Source) -> Copied:
        """The source was moved; open the target if that is what is left to do. It may have lost documents
        meanwhile, by a fail-over, and still have the mark: then it is filled again."""
        epoch, documents = source.epoch, self._target.read(_MARKS)
        there = epoch_of(documents)
        if there is not None and there.id == epoch.id and not there.moved:
            self._tell(f"{self._source.name} was moved to {self._target.name} before: nothing is left to do")
            return copied(_all(self._target, {EPOCH: documents[EPOCH].version}))
        if REBUILD not in documents or documents[REBUILD].body != _mark(epoch.id):
            raise MovedError(epoch.to)
        mark = documents[REBUILD].version
        bodies = _all(self._source, {EPOCH: source.version})
        if bodies != _all(self._target, {REBUILD: mark}):
            self._tell(f"{self._target.name} has lost some of what was copied")
            self._empty(mark)
            self._fill(bodies, mark)
        return self._open(Epoch(epoch.id, self._clock(), held=epoch.held), mark, bodies)

    # Undoing

    def _undo(self, source: _Source, mark: Version) -> str | None:
        """Let claims go on in the source and empty the target, as far as both are still this copy's; what is
        so now. None if the source was moved after all: only the answer was lost."""
        try:
            now = self._resume(source)
        except BerthError as error:
            return f"Claims in {self._source.name} may stay paused ({error}): berth store resume ends that"
        if now is not None:
            try:
                self._empty(mark)
                self._target.commit({REBUILD: None}, {EPOCH: None, REBUILD: mark})
            except BerthError:
                now += f"; {self._target.name} may hold part of the copy, which the next copy removes"
        return now

    def _resume(self, source: _Source) -> str | None:
        for _ in range(_TRIES):
            documents = self._source.read([EPOCH])
            epoch = epoch_of(documents)
            if epoch is None:
                return f"{self._source.name} was lost, and berth reconcile rebuilds it"
            if epoch.id == self._id and epoch.moved:
                return None
            if epoch.id != self._id and documents[EPOCH].version != source.version:
                # Nor can anything of ours land any more: it expects a version that is gone.
                other = f"Another copy has paused or moved {self._source.name}, to {epoch.to}"
                return other if epoch.to else f"Claims go on in {self._source.name}"
            body = encode(msgspec.structs.replace(source.epoch, to=""))
            self._source.commit({EPOCH: body}, {EPOCH: documents[EPOCH].version})
        raise CopyError("it changes all the time")

    # Documents

    def _fill(self, bodies: Mapping[str, bytes], mark: Version) -> None:
        """Write them to the target, and see that it holds the same."""
        for batch in self._target.batches(bodies):
            self._write({key: bodies[key] for key in batch}, mark)
        total = copied(bodies)
        self._tell(
            f"copied {total.documents} documents ({total.bytes} bytes): {total.claims} claims that hold "
            f"{total.units} units"
        )
        _require_same(bodies, _all(self._target, {REBUILD: mark}), self._target.name)

    def _write(self, writes: Mapping[str, bytes | None], mark: Version) -> None:
        if not self._target.commit(writes, {EPOCH: None, REBUILD: mark}):
            raise _changed(self._target)

    def _empty(self, mark: Version) -> None:
        for batch in self._target.batches(_keys(self._target)):
            self._write(dict.fromkeys(batch), mark)


def copied(bodies: Mapping[str, bytes]) -> Copied:
    """Count what was copied, from the documents themselves."""
    view = View()
    view.update(bodies)
    claims = view.claims()
    units = sum(holding.count for claim in claims for holding in claim.holdings)
    return Copied(len(bodies), len(claims), units, sum(len(body) for body in bodies.values()))


def _mark(copy_id: str) -> bytes:
    return f"{COPY}{copy_id}".encode()


def _put(
    store: RetryingStore,
    key: str,
    body: bytes,
    expected: Mapping[str, Version | None],
    also: Mapping[str, bytes | None] | None = None,
) -> Version:
    """Write a mark; its version. An answer may get lost: what is there then is what counts."""
    store.commit({key: body, **(also or {})}, expected)
    document = store.read([key]).get(key)
    if document is None or document.body != body:
        raise _changed(store)
    return document.version


def _keys(store: RetryingStore) -> list[str]:
    return [key for key, body in store.everything().items() if body is not None and key not in _MARKS]


def _all(store: RetryingStore, mark: Mapping[str, Version]) -> dict[str, bytes]:
    """Return all documents but the marks, each read while the mark was as it is."""
    bodies: dict[str, bytes] = {}
    for batch in [(), *store.batches(_keys(store))]:
        documents: Mapping[str, Document] = store.read([*mark, *batch])
        if versions_of(documents, mark) != mark:
            raise _changed(store)
        bodies |= {key: documents[key].body for key in batch if key in documents}
    return bodies


def _require_same(bodies: Mapping[str, bytes], others: Mapping[str, bytes], name: str) -> None:
    if bodies != others:
        differ = sum(bodies.get(key) != others.get(key) for key in {*bodies, *others})
        raise CopyError(
            f"{name} does not hold what was copied: {len(others)} documents in place of {len(bodies)}, "
            f"{differ} are not the same"
        )


def _changed(store: RetryingStore) -> CopyError:
    return CopyError(f"{store.name} was lost, or changed by another, meanwhile")
