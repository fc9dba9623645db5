"""How the ledger decides: read documents, decide on them, commit expecting what was read; on a conflict
decide again. Threads that want the same documents decide one after another, and commit together. Among
processes it promises no order."""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Never, TypeVar

from berth.coalesce import Grouped
from berth.deadline import Deadline
from berth.errors import BerthError, ContentionError, RebuildingError, RefusedError, StoreFailedError
from berth.ledger import refusals
from berth.ledger.keys import CLUSTER
from berth.ledger.model import Domain, decode_domain, encode, epoch_of
from berth.ledger.transitions import Domains, require_cluster
from berth.metrics import UNCOUNTED, Metrics
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


class _State:
    """Documents as they were read, and as decisions change them one after the other."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        self._domains: dict[str, Domain] = {}
        self.writes: dict[str, Domain | bytes | None] = {}

    def body(self, key: str) -> bytes | None:
        if key in self.writes:
            return _body(self.writes[key])
        return self._documents[key].body if key in self._documents else None

    def domain(self, key: str) -> Domain:
        if key not in self._domains:
            self._domains[key] = decode_domain(self.body(key), key)
        return self._domains[key]

    def change(self, writes: Writes) -> None:
        for key, written in writes.items():
            self.writes[key] = written
            self._domains.pop(key, None)
            if isinstance(written, Domain) and not written.empty:
                self._domains[key] = written


class _Decision(Generic[T]):
    """What a caller decides of its documents, and what became of it: a result or an error."""

    def __init__(
        self,
        wanted: frozenset[str],
        keys: frozenset[str],
        decide: Callable[[_State], tuple[T, Writes]],
        drawn: Drawn,
        deadline: Deadline,
    ) -> None:
        """`wanted` are the documents that it may change, `keys` all that it is decided by; it is made again
        until the deadline."""
        self.wanted, self.keys, self._decide, self._drawn = wanted, keys, decide, drawn
        self.deadline = deadline
        self.result: list[T] = []
        self.error: Exception | None = None

    def make(self, state: _State, held: Collection[str]) -> None:
        """Decide by the documents as they are now, and change them; `held` resources are not given."""
        self.result, self.error = [], None
        try:
            self._refuse(held)
            result, writes = self._decide(state)
        except Exception as error:  # noqa: BLE001 - its caller raises it, and nobody else of its group
            self.error = error
        else:
            self.result = [result]
            state.change(writes)

    def outcome(self) -> T:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result[0]

    def _refuse(self, held: Collection[str]) -> None:
        if refused := [self._drawn[resource] for resource in held if resource in self._drawn]:
            raise RefusedError("; ".join(map(refusals.held_back, sorted(refused))))


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

    Each raises OutdatedError where a document of `fence` has changed. `together` has those wait for each
    other that want the same documents (see `shared`). The other fields are as in Ledger.
    """

    store: Store
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    while_closed: bool
    cluster: Callable[[], str] | None
    name: str
    fence: Fence = NOTHING
    together: Grouped[_Decision[Any]] | None = None
    metrics: Metrics = UNCOUNTED

    def shared(self) -> "Commits":
        """Return these commits for threads that may want the same documents: such threads don't meet as
        conflicts, but decide one after another, on what the one before has decided, in one commit."""
        return self._replace(together=Grouped(self._decided_together, MOST_KEYS))

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
        beside: Collection[str] = (),
    ) -> T:
        """Return what was decided of these domains, once it is committed; it gives units of `drawn`. It is
        decided by the domains `beside` as well, and does not change those as a rule.

        Raises RefusedError where one of these is held back, ContentionError when PATIENCE_SECONDS are over,
        OvertakenError, what `decide` raises, the store's errors, OtherClusterError, PausedError and
        MovedError, and RebuildingError while the ledger has no epoch (but for `while_closed`).
        """
        wanted, everything = frozenset(keys), frozenset(keys).union(beside)

        def decide_state(state: _State) -> tuple[T, Writes]:
            return decide({key: state.domain(key) for key in everything})

        return self._run(_Decision(wanted, everything, decide_state, drawn, self.deadline()), fence)

    def run_bodies(self, keys: Collection[str], decide: Callable[[Bodies], tuple[T, Writes]]) -> T:
        """Return what was decided of any documents, once it is committed; errors as for `run`."""
        wanted = frozenset(keys)

        def decide_state(state: _State) -> tuple[T, Writes]:
            return decide({key: state.body(key) for key in wanted})

        return self._run(_Decision(wanted, wanted, decide_state, NOTHING, self.deadline()), NOTHING)

    def _run(self, decision: _Decision[T], fence: Fence) -> T:
        if self.together is None or self.fence or fence:
            self._decided([decision], fence)
        else:
            # A group is as patient as its oldest decision: the others go on without that one.
            in_turn = partial(self._decided_in_turn, self.together, decision)
            retry(in_turn, BusyError, deadline=decision.deadline, sleep=self.sleep)
        return decision.outcome()

    def _decided_in_turn(self, together: Grouped[_Decision[Any]], decision: _Decision[Any]) -> None:
        try:
            together.do(decision, max(0.0, decision.deadline.left()), decision.wanted, decision.keys)
        except TimeoutError as error:
            raise BusyError from error

    def _decided_together(self, decisions: Sequence[_Decision[Any]]) -> None:
        """Make these decisions in one commit, or each by itself where the store can't take them together."""
        try:
            self._decided(decisions, NOTHING)
        except StoreFailedError:
            if len(decisions) == 1:
                raise
            for decision in decisions:
                try:
                    if decision is not decisions[0] and decision.deadline.left() <= 0:
                        raise BusyError  # those before it took so long
                    self._decided([decision], NOTHING)
                except BerthError as error:
                    decision.error = error

    def _decided(self, decisions: Sequence[_Decision[Any]], fence: Fence) -> None:
        oldest = min((decision.deadline for decision in decisions), key=lambda deadline: deadline.at)
        attempt = partial(self._try, decisions, fence)
        try:
            retry(attempt, _ConflictError, deadline=oldest, pauses=(0.002, 0.1), sleep=self.sleep)
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

    def _try(self, decisions: Sequence[_Decision[Any]], fence: Fence) -> None:
        ours = None if self.cluster is None else self.cluster()
        keys = frozenset[str]().union(*(decision.keys for decision in decisions))
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
        state = _State(documents)
        for decision in decisions:
            decision.make(state, () if epoch is None else epoch.held)
        if versions_of(documents, fence) != fence and any(decision.error is None for decision in decisions):
            raise OvertakenError(
                "another caller has changed this part of berth's ledger meanwhile; try again"
            )
        # Every document read is expected as it was, the epoch too: a lost ledger takes no commit.
        expected = {**versions_of(documents, {EPOCH, CLUSTER, *keys}), **self.fence, **fence}
        writes = {key: _body(document) for key, document in state.writes.items()}
        if writes:
            self._commit(writes, expected)

    def _commit(self, writes: Bodies, expected: Fence) -> None:
        """Commit, and count how that went. Raises _ConflictError, and the store's errors."""
        try:
            done = self.store.commit(writes, expected)
        except BerthError:
            self.metrics.committed("failed")
            raise
        self.metrics.committed("committed" if done else "conflict")
        if not done:
            raise _ConflictError


def versions_of(documents: Mapping[str, Document], keys: Iterable[str]) -> Fence:
    """Return the versions that documents with these keys have among those."""
    return {key: documents[key].version if key in documents else None for key in keys}


def _body(written: Domain | bytes | None) -> bytes | None:
    """Return what is stored: a domain that says nothing is gone."""
    if isinstance(written, Domain):
        return None if written.empty else encode(written)
    return written
