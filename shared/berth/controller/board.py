"""One look at the ledger and at who waits, shared by all who watch: for functions/status.
It only reads. What it shows may be FRESH_SECONDS old, and who waits WAITING_SECONDS."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from berth.coalesce import Coalesced
from berth.controller.conditions import why_closed
from berth.controller.usage import notes_of
from berth.controller.waiting import Seen, Waiting, waiting
from berth.errors import BerthError, ClusterRefusedError, PausedError
from berth.kube.cluster import Cluster
from berth.ledger.last_reconcile import LastReconcile
from berth.ledger.ledger import Ledger
from berth.ledger.releases import Release
from berth.ledger.report import PoolRow, headline, pool_rows
from berth.ledger.showback import Pages
from berth.ledger.view import View

T = TypeVar("T")

FRESH_SECONDS = 1.0
"""A look is shown for so long to all who ask, so that many of them are no load."""

WAITING_SECONDS = 2.0
"""How long a list of waiting pods is used: the API server sends thousands of them at once."""

CORDONED_SECONDS = 30.0
"""How long a list of nodes is used, of which only those count that are cordoned."""

USAGE_SECONDS = 10.0
"""How long the journal's pages are used: reconcile counts once a minute."""


class Snapshot(NamedTuple):
    """What was seen at the time `at` (Unix seconds): the ledger and its pools, and who waits.

    `closed`: why nothing is given out of the ledger; empty: it is open. `waiting` None: nobody could say who
    waits, and `unknown` says why. `last` None: nobody has reconciled yet. `releases` are the latest ones.
    """

    at: float
    view: View
    pools: tuple[PoolRow, ...]
    headline: str
    closed: str
    waiting: Waiting | None
    unknown: str
    last: LastReconcile | None
    releases: tuple[Release, ...]


class _Kept(Generic[T]):
    """What was read, for all who ask within so many seconds; they share one read, and its error."""

    def __init__(self, read: Callable[[], T], seconds: float, monotonic: Callable[[], float]) -> None:
        self._read, self._seconds, self._monotonic = read, seconds, monotonic
        self._anew = Coalesced(self._read_anew)
        self._last: tuple[float, T] | None = None

    def __call__(self) -> T:
        last = self._last
        return last[1] if last is not None and self._monotonic() < last[0] else self._anew()

    def _read_anew(self) -> T:
        if self._last is None or self._monotonic() >= self._last[0]:  # else: made while this caller waited
            result = self._read()
            self._last = self._monotonic() + self._seconds, result
        return self._last[1]


class Board:
    """Looks at one ledger (opened `while_closed`) and its cluster, for many callers at once."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        schedulers: Collection[str],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._cluster, self._schedulers = ledger, cluster, schedulers
        self._clock, self._monotonic = clock, monotonic
        self._look = _Kept(self._looked, FRESH_SECONDS, monotonic)
        self._usage = _Kept(lambda: ledger.journal().pages(), USAGE_SECONDS, monotonic)
        self._cordoned = _Kept(self._cordoned_nodes, CORDONED_SECONDS, monotonic)
        self._waiting: tuple[Waiting | None, str] = (None, "")
        self._waiting_until = float("-inf")

    def look(self) -> Snapshot:
        """Return how all is, FRESH_SECONDS ago at most. Raises the store's errors, and OtherClusterError."""
        return self._look()

    def usage(self) -> Pages:
        """Return the journal's pages, USAGE_SECONDS old at most. Raises the store's errors."""
        return self._usage()

    def _looked(self) -> Snapshot:
        view, now = self._ledger.view(), self._clock()
        closed = why_closed(view) or ""
        waits, unknown = self._who_waits(view, now, closed)
        rows = tuple(pool_rows(view, None if waits is None else _by_pool(waits), now=now))
        in_all = None if waits is None else waits.summary.waiting
        return Snapshot(
            at=now,
            view=view,
            pools=rows,
            headline=closed or headline(rows, in_all),
            closed=closed,
            waiting=waits,
            unknown=unknown,
            last=self._ledger.last_reconcile(),
            releases=self._ledger.journal().releases(notes_of(view)),
        )

    def _who_waits(self, view: View, now: float, closed: str) -> tuple[Waiting | None, str]:
        if self._monotonic() >= self._waiting_until:
            try:
                with suppress(PausedError):
                    self._ledger.require_cluster()
                pods = self._cluster.pending_pods()
                seen = Seen(pods, view, now, self._cordoned(), closed)
                self._waiting = waiting(seen, self._schedulers), ""
            except BerthError as error:
                self._waiting = None, f"who waits is not known: {error}"
            self._waiting_until = self._monotonic() + WAITING_SECONDS
        return self._waiting

    def _cordoned_nodes(self) -> frozenset[str]:
        """Return the nodes that take no pods; none where we may not read nodes."""
        try:
            nodes = self._cluster.nodes()
        except ClusterRefusedError:
            return frozenset()
        return frozenset(node.metadata.name for node in nodes if node.spec.unschedulable)


def _by_pool(waits: Waiting) -> dict[str, int]:
    """Return how many pods wait for each pool."""
    counts: dict[str, int] = {}
    for row in waits.pods:
        if row.pool and row.state != "gated":
            counts[row.pool] = counts.get(row.pool, 0) + 1
    return counts
