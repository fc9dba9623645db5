"""What `berth status` and `berth top` show: pools, who waits for them, and whether the ledger is in order.
It only reads, and needs rights to read only: nothing is repaired, woken or begun."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import NamedTuple

import msgspec

from berth.cli import tables
from berth.cli.output import show
from berth.cli.shared_options import existing_ledger
from berth.errors import (
    BadInputError,
    BerthError,
    NoClusterError,
    OtherClusterError,
    PausedError,
    SettingsError,
    alternatives,
)
from berth.kube.cluster import Cluster, connect
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from berth.ledger.report import PoolRow, headline, names, pool_rows
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import redacted
from berth.stores.base import Store

_LIST_SECONDS = 5.0  # for the list of waiting pods: a person waits for it


class LedgerState(msgspec.Struct, frozen=True):
    """`open`: this cluster's pods are given units out of it; if not, `why`."""

    store: str
    open: bool
    why: str


class Status(msgspec.Struct, frozen=True):
    """The report; its headline is how all is, or why nothing is given out of the ledger. `remarks` are about
    pods that Berth will never place."""

    ledger: LedgerState
    headline: str
    pools: Sequence[PoolRow] = ()
    remarks: Sequence[str] = ()


class Look(NamedTuple):
    """One look: the report, and why it is not known who waits (empty: it is). `looked`: pools are shown; not
    where the ledger is elsewhere now, or another cluster's."""

    report: Status
    unknown: str = ""
    looked: bool = True


class WaitingPods(NamedTuple):
    """Pods that wait, `others` under another schedulerName; None and `why` where nobody could say."""

    pods: Sequence[Pod] | None
    why: str = ""
    others: Sequence[Pod] = ()


class Source:
    """A ledger and its cluster, which stay open from one look at them to the next."""

    def __init__(
        self, store: Store, config: Settings, pool: str | None, clock: Callable[[], float] = time.time
    ) -> None:
        """`pool`: only this one is looked at (None: all)."""
        self.config, self.pool = config, pool
        self._store, self._clock = store, clock
        self._ledger = Ledger(store, while_closed=True)

    def view(self) -> View:
        return self._ledger.view()

    def state(self, view: View) -> LedgerState:
        """Return whether this is the ledger that counts, as far as it says itself."""
        return ledger_state(self.config.store, view)

    def look(self) -> Look:
        """Look at both. Raises the store's errors, and BadInputError where there is no such pool."""
        view = self.view()
        state = self.state(view)
        if is_moved(view):
            return Look(Status(state, state.why), looked=False)
        require_pool(self.pool, view)
        try:
            waiting = self.waiting()
        except OtherClusterError as error:
            state = msgspec.structs.replace(state, open=False, why=str(error))
            return Look(Status(state, state.why), looked=False)
        headline, rows = self._pools(view, state, waiting)
        return Look(Status(state, headline, rows, self._remarks(view, waiting)), waiting.why)

    def _remarks(self, view: View, waiting: WaitingPods) -> list[str]:
        from berth.controller.waiting import of_other_schedulers

        names = self.config.scheduler_names
        return [str(stray) for stray in of_other_schedulers(waiting.others, view, names, pool=self.pool)]

    def waiting(self) -> WaitingPods:
        """Return the pods that wait for units. Raises OtherClusterError where the ledger is another's, and
        SettingsError where a cluster is named that can't be had."""
        try:
            self.require_cluster()
            waiting = [pod for pod in self.cluster.pending_pods(_LIST_SECONDS) if pod.waiting]
            ours = [pod for pod in waiting if pod.spec.scheduler_name in self.config.scheduler_names]
            others = [pod for pod in waiting if pod.spec.scheduler_name not in self.config.scheduler_names]
            return WaitingPods(ours, others=others)
        except BerthError as error:
            if isinstance(error, SettingsError) and not isinstance(error, NoClusterError):
                raise  # the ledger is another cluster's, or the one that is named can't be had
            return WaitingPods(None, f"who waits is not known: {error}")

    def require_cluster(self) -> None:
        """Raise OtherClusterError where the ledger is another cluster's, and the cluster's errors."""
        from berth.handlers.wiring import ledger_of

        ledger = ledger_of(self.cluster, self.config, self._store, while_closed=True)
        with suppress(PausedError):
            ledger.require_cluster()

    @cached_property
    def cluster(self) -> Cluster:
        return connect()

    def _pools(self, view: View, state: LedgerState, waiting: WaitingPods) -> tuple[str, list[PoolRow]]:
        from berth.controller.pool_status import waiting_in_all, waiting_pods

        by_pool = in_all = None
        if waiting.pods is not None:
            by_pool = waiting_pods(waiting.pods, view.resources)
            every = waiting_in_all(waiting.pods, view.resources)
            in_all = every if self.pool is None else by_pool.get(self.pool, 0)
        rows = pool_rows(view, by_pool, self.pool, self._clock())
        return state.why or headline(rows, in_all), rows


@contextmanager
def opened(config: Settings, pool: str | None, clock: Callable[[], float] = time.time) -> Iterator[Source]:
    """Open the ledger for looks at it. Raises SettingsError where there is none."""
    with ExitStack() as stack:
        yield Source(stack.enter_context(existing_ledger(config.store, reads_only=True)), config, pool, clock)


def ledger_state(store: str, view: View) -> LedgerState:
    """Return whether claims are given out of the ledger with this URL, or why not."""
    why = ""
    if view.being_copied:
        why = "this is part of a copy that has not ended: repeat berth store copy"
    elif view.epoch is None:
        why = "the ledger is new or being rebuilt: this is what it has so far (see berth reconcile)"
    elif (trouble := view.epoch.trouble()) is not None:
        why = str(trouble)
    return LedgerState(redacted(store), not why, why)


def is_moved(view: View) -> bool:
    """Whether another store has the ledger now: what this one holds is of the past."""
    return view.epoch is not None and view.epoch.moved


def require_pool(pool: str | None, view: View) -> None:
    """Raise BadInputError where the ledger knows no pool of this name."""
    known = names(view)
    if pool is not None and pool not in known:
        raise BadInputError(f"there is no pool {pool} in the ledger; {alternatives(pool, known)}")


def show_status(report: Status, output: str) -> None:
    """Print the report, for a person as a headline and a table."""
    if output != "table":
        show(report, output)
    else:
        print("\n".join(status_lines(report)))


def status_lines(report: Status) -> list[str]:
    """Return the report's lines for a person: the headline, and below it the pools if there are any."""
    return [tables.printable(report.headline), *(tables.pool_lines(report.pools) if report.pools else [])]
