"""Who waits for which pool, since when, why, and the place in line, for a person who looks.
Pure: it is as old as the pods and the View it is given, and knows what Berth counts, no CPU and no taints."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Set
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

import msgspec

from berth.api.names import is_ours
from berth.controller.line import in_line, lines, own_claim
from berth.controller.settle import claim_of
from berth.errors import RefusedError
from berth.kube.types import Pod, PodInFull, unix_seconds
from berth.ledger.ledger import Ledger
from berth.ledger.model import encode
from berth.ledger.refusals import absent
from berth.ledger.report import turn_told
from berth.ledger.view import View
from berth.scheduling.demand import Demand, rank_of, resources, terms_of
from berth.scheduling.fit import Fit, evaluate, kind_of, known_nodes
from berth.scheduling.trial import documents_of
from berth.stores.base import EPOCH
from berth.stores.memory import MemoryStore

PATIENCE_SECONDS = 120.0
"""How long a pod may be there before its scheduler's silence is worth a word: a start takes as long."""

_PREEMPTION = " preemption: "  # kube-scheduler goes on with this; it says nothing of our pools


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Reason(_Struct, frozen=True):
    """One text for which so many pods wait, with the times of the first and of the last of them."""

    text: str
    pods: int
    since: datetime
    last: datetime


class WaitingRow(_Struct, frozen=True, kw_only=True):
    """What one pod waits for of one pool; a pod that asks for two pools has two rows.

    `state`: `waiting` for units; `placeable`, as far as Berth counts; `reserved`, its Binding is being made;
    `refused` wherever units are free; `gated`; `noPool`, it asks for none. The last four have no place in
    line. A pool is empty where none is known.
    """

    place: int | None
    namespace: str
    pod: str
    uid: str
    pool: str
    asked: int | None
    priority: int
    since: datetime | None
    state: str
    tried: bool
    why: str


class Summary(_Struct, frozen=True):
    """How many pods wait, for how many pools; `placeable` are those of them that could be placed now, `other`
    those that wait for no pool: gated ones, and those that ask for none."""

    waiting: int
    pools: int
    placeable: int
    other: int

    def __str__(self) -> str:
        """Return it in one line, for a person."""
        others = f"{self.other} more in no pool's line (scheduling gates, or they ask for no pool)"
        more = f"; {others}" if self.other else ""
        if not self.waiting:
            return f"no pod waits for a pool{more}"
        who = "1 pod waits" if self.waiting == 1 else f"{self.waiting} pods wait"
        pools = f" for {self.pools} pool{'s' * (self.pools > 1)}" if self.pools else ""
        return f"{who}{pools}; {self.placeable or 'none'} could be placed now{more}"


class Waiting(_Struct, frozen=True):
    """`problems` are for a person to solve; `remarks` are about pods that Berth will never place."""

    summary: Summary
    reasons: tuple[Reason, ...]
    pods: tuple[WaitingRow, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


class Stray(NamedTuple):
    """So many pods of a scheduler that does not ask Berth, and the first of them by name; `asked` are pools,
    and resources of ours that no Pool has."""

    first: str
    pods: int
    asked: str
    scheduler: str
    ours: str

    def __str__(self) -> str:
        """Return it in one line, for a person."""
        more = f" and {self.pods - 1} more" if self.pods > 1 else ""
        return (
            f"{self.first}{more}: asks for {self.asked}, but its schedulerName is {self.scheduler}, not "
            f"{self.ours}: Berth never counts nor places it"
        )


class Seen(NamedTuple):
    """What was seen at one time (Unix seconds): pods without a node, of any scheduler; the ledger; nodes that
    are cordoned. `closed`: why nothing at all is given out of the ledger; empty: it is open."""

    pods: Collection[PodInFull]
    view: View
    now: float
    cordoned: Collection[str] = ()
    closed: str = ""


class _Waiter(NamedTuple):
    pod: PodInFull
    demand: Demand
    state: str
    why: str


def waiting(
    seen: Seen, schedulers: Collection[str], namespace: str | None = None, pool: str | None = None
) -> Waiting:
    """Return who waits, for one pool or namespace, or (None) all. Places are those among all pods."""
    terms = terms_of(seen.view)
    ours = in_line(pod for pod in seen.pods if pod.spec.scheduler_name in schedulers)
    demands = {pod.metadata.uid: terms.demand(pod) for pod in ours}
    judge = _Judge(seen, demands.values())
    waiters = [judge.waiter(pod, demands[pod.metadata.uid]) for pod in ours if pod.waiting or pod.gated]
    places = {
        (pool, pod.metadata.uid): place
        for pool, line in lines(ours, seen.view).items()
        for place, pod in enumerate(line, 1)
    }
    shown = [
        waiter
        for waiter in waiters
        if namespace in (None, waiter.pod.namespace) and (pool is None or pool in waiter.demand.units)
    ]
    rows = [row for waiter in shown for row in _rows(waiter, places) if pool in (None, row.pool)]
    rows.sort(key=lambda row: (row.place is None, not row.pool, row.pool, row.place or 0))
    return Waiting(
        summary=_summary(shown, rows),
        reasons=tuple(reasons((waiter.why, _made(waiter.pod) or seen.now) for waiter in shown)),
        pods=tuple(rows),
        problems=tuple(_untried(ours, shown, seen.now)),
        remarks=tuple(map(str, of_other_schedulers(seen.pods, seen.view, schedulers, namespace, pool))),
    )


def said_of(pod: PodInFull) -> str:
    """Return why kube-scheduler found no place for the pod, empty if it has not said so."""
    said = pod.unscheduled
    return "" if said is None else (said.message or "").partition(_PREEMPTION)[0]


def _date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def reasons(texts: Iterable[tuple[str, float]]) -> list[Reason]:
    """Return texts, each with since when one pod waits for that, with equal ones as one, the newest first."""
    grouped: dict[str, list[float]] = {}
    for text, since in texts:
        grouped.setdefault(text, []).append(since)
    every = [
        Reason(text, len(since), _date(min(since)), _date(max(since))) for text, since in grouped.items()
    ]
    return sorted(every, key=lambda reason: (-reason.last.timestamp(), reason.text))


class _Copy:
    """A copy of the ledger, in which pods reserve what they would get of these pools."""

    def __init__(self, seen: Seen, pools: Iterable[str]) -> None:
        epoch = {} if seen.view.epoch is None else {EPOCH: encode(seen.view.epoch)}
        store = MemoryStore({**epoch, **documents_of(seen.view, pools)})
        self._ledger, self._now = Ledger(store, clock=lambda: seen.now), seen.now

    def reserve(self, pod: PodInFull, demand: Demand, node: str) -> View:
        """Return what the ledger would say after that. Raises RefusedError."""
        view = self._ledger.view()
        claim = claim_of(pod, node, terms_of(view), demand, "waiting", self._now)
        self._ledger.reserve(claim, view=view, rank=rank_of(pod, view, self._now))
        return self._ledger.view()


class _Judge:
    """Judges pods one by one, in line, by what filter says while those before have what they would get."""

    def __init__(self, seen: Seen, demands: Iterable[Demand]) -> None:
        self._seen, self._view = seen, seen.view
        self._pools = {pool for demand in demands for pool in demand.units}
        # A thousand waiters often ask for the same. Why they can't have it, else the nodes that could give
        # it: what a pod gets makes none of the others give more.
        self._refused: dict[Hashable, str] = {}
        self._nodes: dict[Hashable, list[str]] = {}

    def waiter(self, pod: PodInFull, demand: Demand) -> _Waiter:
        if pod.gated:
            why = f"has scheduling gates ({pod.gates}): it is in no scheduler's queue"
            return _Waiter(pod, demand, "gated", why)
        if demand.refusal is not None:
            return _Waiter(pod, demand, "refused", demand.refusal)
        if not demand.units:
            why = f"asks for no pool: why has it the schedulerName {pod.spec.scheduler_name}? it waits for "
            return _Waiter(pod, demand, "noPool", why + _scheduler(pod))
        if (claim := own_claim(pod, self._seen.view)) is not None:
            what = "it has a seat with its gang" if claim.is_seat else "it is being bound"
            why = f"its units are reserved on {claim.node}: {what}"
            return _Waiter(pod, demand, "reserved", why)
        if why := self._seen.closed or self._refusal(pod, demand):
            why = "; ".join(filter(None, (why, turn_told(self._seen.view, pod.metadata.uid, self._seen.now))))
            return _Waiter(pod, demand, "waiting", why)
        return _Waiter(pod, demand, "placeable", f"could be placed now; it waits for {_scheduler(pod)}")

    @cached_property
    def _copy(self) -> _Copy:
        return _Copy(self._seen, self._pools)

    def _refusal(self, pod: PodInFull, demand: Demand) -> str:
        """Return why the pod gets nothing; empty if it gets what it asks for, and those behind it don't."""
        kind = kind_of(pod, demand, self._seen.view, self._seen.now)
        if kind in self._refused:
            return self._refused[kind]
        nodes = self._nodes.get(kind, [])
        while nodes and evaluate(pod, nodes[-1:], self._view, self._seen.now).reasons:
            nodes.pop()
        if not nodes:
            nodes, why = self._evaluated(pod, demand, self._view)
            if why and self._view is not self._seen.view:
                why = self._evaluated(pod, demand, self._seen.view)[1] or self._taken(pod, demand)
            if why:
                self._refused[kind] = why
                return why
            self._nodes[kind] = nodes
        try:
            self._view = self._copy.reserve(pod, demand, nodes[-1])
        except RefusedError as error:
            return str(error)
        return ""

    def _evaluated(self, pod: PodInFull, demand: Demand, view: View) -> tuple[list[str], str]:
        """Return which of the nodes that the ledger knows can take the pod; where none can, what filter says
        of them."""
        known = known_nodes(view, demand.units)
        evaluation = evaluate(pod, known or {""}, view, self._seen.now)
        if not known and not evaluation.nowhere:
            return [], "; ".join(absent(pool, "any") for pool in demand.units)
        fitting = known - evaluation.reasons.keys()
        if nodes := sorted(fitting - self._shut(pod), reverse=True):
            return nodes, ""
        texts = Counter(evaluation.reasons.values())
        if fitting:
            texts[f"{', '.join(demand.units)}: what is free is on cordoned nodes"] = len(fitting)
        if len(texts) == 1 or evaluation.nowhere:
            return [], next(iter(texts))
        counted = sorted(texts.items(), key=lambda text: (-text[1], text[0]))
        return [], "; ".join(f"{text} ({count} node{'s' * (count > 1)})" for text, count in counted)

    def _taken(self, pod: PodInFull, demand: Demand) -> str:
        """Return of which pools the pods before it leave too little, or of all of them on one node."""
        fit = Fit(pod, demand, self._view, self._seen.now)
        short = [obstacle.pool for obstacle in fit.obstacles()]
        short += [each.pool for each in fit.requirements() if not each.nodes() - self._shut(pod)]
        pools = ", ".join(dict.fromkeys(short or demand.units))
        return f"{pools}: what is free is for the pods before it in line"

    def _shut(self, pod: PodInFull) -> Set[str]:
        return frozenset() if pod.goes_to_unschedulable else frozenset(self._seen.cordoned)


def _scheduler(pod: PodInFull) -> str:
    """Return for what else it waits."""
    said = said_of(pod)
    return f"kube-scheduler, which said last: {said}" if said else "kube-scheduler to try it"


def _rows(waiter: _Waiter, places: Mapping[tuple[str, str], int]) -> Iterable[WaitingRow]:
    pod, since = waiter.pod, _made(waiter.pod)
    asks: Mapping[str, int | None] = waiter.demand.units or {"": None}
    for pool, asked in asks.items():
        yield WaitingRow(
            place=places.get((pool, pod.metadata.uid)),
            namespace=pod.namespace,
            pod=pod.metadata.name,
            uid=pod.metadata.uid,
            pool=pool,
            asked=asked,
            priority=pod.spec.priority or 0,
            since=None if since is None else _date(since),
            state=waiter.state,
            tried=pod.unscheduled is not None,
            why=waiter.why,
        )


def _made(pod: PodInFull) -> float | None:
    return unix_seconds(pod.metadata.creation_timestamp)


def _summary(waiters: Collection[_Waiter], rows: Iterable[WaitingRow]) -> Summary:
    states = Counter(waiter.state for waiter in waiters)
    other = states["gated"] + states["noPool"]
    pools = {row.pool for row in rows if row.pool and row.state != "gated"}
    return Summary(len(waiters) - other, len(pools), states["placeable"], other)


def _untried(ours: Iterable[PodInFull], shown: Iterable[_Waiter], now: float) -> Iterable[str]:
    """Yield a line for each scheduler that has tried neither a pod that waits for long, nor a later one: then
    it is not that others were before it in a long queue."""
    tried: dict[str | None, float] = {}
    for pod in ours:
        if pod.unscheduled is not None and not pod.gated:
            name = pod.spec.scheduler_name
            tried[name] = max(tried.get(name, 0.0), _made(pod) or 0.0)
    silent: dict[str, list[tuple[float, str]]] = {}
    for pod in (waiter.pod for waiter in shown if waiter.state != "gated"):
        made, name = _made(pod), pod.spec.scheduler_name or ""
        if pod.unscheduled is not None or made is None or now - made < PATIENCE_SECONDS:
            continue
        if tried.get(name, 0.0) < made:
            silent.setdefault(name, []).append((made, pod.label))
    for name, pods in sorted(silent.items()):
        made, label = min(pods)
        more = f" (nor {len(pods) - 1} more)" if len(pods) > 1 else ""
        yield (
            f"no scheduler named {name} has tried pod {label}{more} for {int((now - made) / 60)} min since "
            "it was made: is kube-scheduler running with this schedulerName?"
        )


def of_other_schedulers(
    pods: Iterable[Pod],
    view: View,
    schedulers: Collection[str],
    namespace: str | None = None,
    pool: str | None = None,
) -> Iterator[Stray]:
    """Yield the pods that wait for what Berth counts under another schedulerName, grouped by it and by what
    they ask for."""
    asking: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if not pod.waiting or pod.spec.scheduler_name in schedulers:
            continue
        asked = {
            view.resources[name].name if name in view.resources else name
            for name in resources(pod)
            if name in view.resources or is_ours(name)
        }
        if asked and namespace in (None, pod.namespace) and (pool is None or pool in asked):
            asking.setdefault((pod.spec.scheduler_name or "", ", ".join(sorted(asked))), []).append(pod.label)
    ours = " or ".join(sorted(schedulers))
    for (name, asked_of), labels in sorted(asking.items()):
        yield Stray(min(labels), len(labels), asked_of, name, ours)
