"""Would these pods fit, where, and what is short: tried on a copy of the ledger, by the ledger's own code.
It takes pods one by one, as kube-scheduler does; nobody is evicted, and nothing but the copy is written."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from berth.api.pool import EVERYWHERE, Capacity, Pool
from berth.api.units import MOST
from berth.controller.adopt import held_by
from berth.controller.capacity_sync import supply_of, sync_all, withdraw
from berth.controller.external_use import assume_read, take_external
from berth.controller.line import in_line
from berth.controller.settle import claim_of
from berth.errors import BadInputError, RefusedError, alternatives
from berth.kube.types import Node, Pod, PodInFull
from berth.ledger.free import Free
from berth.ledger.keys import PoolDomain, parse_domain
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.ledger.view import View
from berth.scheduling.demand import might_ask, rank_of, terms_of
from berth.scheduling.fit import Fit, evaluate
from berth.scheduling.node_fit import STEP, Nodes
from berth.scheduling.score import scores
from berth.stores.base import Store
from berth.stores.memory import MemoryStore

_GATED = "has scheduling gates"
_MOST_REASONS = 6  # that are told of one pod; the rest are counted
_BERTH_SCALE = 10 * STEP  # kube-scheduler's scores are 0 to 100, an extender's 0 to 10


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Units(_Report, frozen=True):
    """What a pod got of one pool; `units` are their names, in a named pool."""

    pool: str
    domain: str
    count: int
    units: tuple[str, ...] = ()


class Placed(_Report, frozen=True):
    """A pod that fits, and where."""

    namespace: str
    pod: str
    node: str
    units: tuple[Units, ...] = ()


class Refused(_Report, frozen=True):
    """A pod that does not fit: `reasons` say of how many nodes each is true, `why` says it as kube-scheduler
    would; `short` are the pools of which nodes that could have it lack units, with what it asks of them."""

    namespace: str
    pod: str
    why: str
    reasons: Mapping[str, int]
    short: Mapping[str, int]


class Shortage(_Report, frozen=True):
    """A pool that is short of units for pods that do not fit.

    `per_domain` says whether capacities are those of each domain, or of the whole cluster. With `enough` in
    place of `capacity` all would fit that are short of units alone; None: no such number is known.
    """

    pool: str
    units: int
    pods: int
    per_domain: bool
    capacity: int | None
    enough: int | None


class Outcome(_Report, frozen=True):
    """What became of the pods, in the order in which they were taken."""

    placed: tuple[Placed, ...]
    refused: tuple[Refused, ...]


class Changed(_Report, frozen=True):
    """A capacity that is other on the copy than in the ledger: of one domain; where `per_domain`, of each."""

    pool: str
    domain: str
    before: int | None
    after: int
    per_domain: bool


class Attempt(msgspec.Struct, frozen=True):
    """What is tried: Pools and nodes, and the pods that run on these; `now` in Unix seconds."""

    pools: Mapping[str, Pool]
    nodes: Sequence[Node]
    running: Sequence[Pod]
    now: float


def copy_of(store: Store) -> MemoryStore:
    """Return a copy of the ledger in this store, which is only read."""
    return MemoryStore(store.changes(None).documents)


def empty_ledger() -> MemoryStore:
    """Return a new ledger in memory that is open and has nothing in it."""
    store = MemoryStore()
    ledger = Ledger(store, while_closed=True)
    ledger.open(uuid.uuid4().hex, ledger.begin_rebuild(uuid.uuid4().hex))
    return store


def in_queue(pods: Iterable[PodInFull], waiting: Iterable[PodInFull] = ()) -> list[PodInFull]:
    """Return the pods in the order in which kube-scheduler takes them: by priority; those that wait already
    are older. One that is in both is taken once. New pods get UIDs of their own."""
    new = [_with_uid(pod, f"simulated-{number}") for number, pod in enumerate(pods)]
    names = {pod.label for pod in new}
    old = [pod for pod in in_line(waiting) if pod.label not in names]
    return sorted([*old, *new], key=lambda pod: -(pod.spec.priority or 0))


def known_apart(pods: Iterable[PodInFull]) -> list[PodInFull]:
    """Return the pods with UIDs for those that have none: the ledger knows a pod by its UID alone."""
    return [
        pod if pod.metadata.uid else _with_uid(pod, f"running-{number}") for number, pod in enumerate(pods)
    ]


def _with_uid(pod: PodInFull, uid: str) -> PodInFull:
    return replace(pod, metadata=replace(pod.metadata, uid=uid))


def with_capacities(
    pools: Mapping[str, Pool], nodes: Iterable[Node], wanted: Mapping[PoolDomain, int]
) -> tuple[dict[str, Pool], list[Changed]]:
    """Return the Pools with these capacities, by pool and domain ("": each domain that has no other by
    itself), and what is changed by that. Raises BadInputError."""
    known = supply_of(pools, nodes).capacities
    changed, changes = dict(pools), []
    for (name, domain), units in wanted.items():
        pool = changed.get(name)
        if pool is None:
            raise BadInputError(f"there is no pool {name}; {alternatives(name, sorted(pools))}")
        if pool.named:
            raise BadInputError(f"Pool {name} has units with names: its capacity follows from their lists")
        if domain and (name, domain) not in known:
            places = sorted(place for of, place in known if of == name and not parse_domain(place).is_quota)
            raise BadInputError(f"Pool {name} has no domain {domain}; {alternatives(domain, places)}")
        now = pools[name]
        before = now.capacity_of(domain) if domain else _capacity(now)
        changed[name] = _with_domain(pool, domain, units) if domain else with_capacity(pool, units)
        per_domain = not domain and pool.spec.scope != "Cluster"
        changes.append(Changed(name, domain, before, units, per_domain))
    return changed, changes


def with_capacity(pool: Pool, units: int) -> Pool:
    """Return the Pool with so many units in each domain, or in the whole cluster if that is its scope."""
    old = pool.spec.capacities
    domains = {} if pool.spec.scope == "Cluster" else old.domains
    capacity = Capacity(per_domain=units, domains=domains, node_annotation=old.node_annotation)
    return _with(pool, capacity)


def _with_domain(pool: Pool, domain: str, units: int) -> Pool:
    old = pool.spec.capacities
    return _with(pool, replace(old, domains={**old.domains, domain: units}))


def _with(pool: Pool, capacity: Capacity) -> Pool:
    """Return the Pool with this capacity, also where it is read elsewhere."""
    spec = replace(pool.spec, capacity=capacity)
    if pool.external_from is not None:
        spec = replace(spec, external_from=replace(pool.external_from, capacity="Pool"))
    return replace(pool, spec=spec)


def _capacity(pool: Pool) -> int | None:
    """Return what `with_capacity` changes; None where there is no such number."""
    if pool.named or pool.capacity_is_read:
        return None
    return pool.capacity_of(EVERYWHERE) if pool.spec.scope == "Cluster" else pool.spec.capacities.per_domain


class Simulation:
    """One attempt on a copy of a ledger. `advance` is called after each pod."""

    def __init__(
        self,
        store: MemoryStore,
        attempt: Attempt,
        nodes: Nodes | None = None,
        advance: Callable[[], object] = lambda: None,
    ) -> None:
        """Bring the copy to the attempt's Pools and nodes. Raises BadInputError, and what Ledger.view raises
        of a ledger that nothing may be claimed in."""
        self._store, self._attempt, self._advance = store, attempt, advance
        self._ledger = Ledger(store, clock=lambda: attempt.now)
        self._unplaced: list[tuple[PodInFull, Refused]] = []
        ignored = {pool.resource for pool in attempt.pools.values()}
        self._nodes = Nodes(attempt.nodes, ignored, attempt.running) if nodes is None else nodes
        self._take_over()

    def run(self, pods: Iterable[PodInFull]) -> Outcome:
        """Try to place these pods one after another, and return what became of them."""
        placed, self._unplaced = [], []
        for pod in pods:
            ended = self._try(pod)
            if isinstance(ended, Placed):
                placed.append(ended)
            else:
                self._unplaced.append((pod, ended))
            self._advance()
        return Outcome(tuple(placed), tuple(refused for _, refused in self._unplaced))

    def shortages(self) -> list[Shortage]:
        """Return what is short for those that were not placed."""
        asked = Counter[str]()
        asking = Counter[str]()
        for _, refused in self._unplaced:
            asked.update(refused.short)
            asking.update(refused.short.keys())
        enough = self._enough(asked)
        return [self._shortage(name, asked[name], asking[name], enough.get(name)) for name in sorted(asked)]

    def _shortage(self, name: str, asked: int, asking: int, enough: int | None) -> Shortage:
        pool = self._attempt.pools[name]
        capacity, per_domain = _capacity(pool), pool.spec.scope != "Cluster"
        if not per_domain and None not in (capacity, enough):
            asked = (enough or 0) - (capacity or 0)  # some of it may be free, and too little for any of them
        return Shortage(name, asked, asking, per_domain, capacity, enough)

    # Placing

    def _take_over(self) -> None:
        ledger, (pools, nodes) = self._ledger, (self._attempt.pools, self._attempt.nodes)
        view = ledger.view()
        if pools != view.pools:
            _require_same_kind(view, pools)
            withdraw(ledger, pools)
            ledger.apply_pools(pools)
            take_external(ledger, pools, self._attempt.now)
        sync_all(ledger, pools, lambda: list(nodes))
        assume_read(ledger, pools, self._attempt.now)
        view = ledger.view()
        terms = terms_of(view)
        asking = (
            pod for pod in self._attempt.running if might_ask(pod) and not view.keys_of(pod.metadata.uid)
        )
        due = [claim for pod in asking if (claim := held_by(pod, terms, self._attempt.now)) is not None]
        if due:
            ledger.adopt_all(due)

    def _try(self, pod: PodInFull) -> Placed | Refused:
        if pod.spec.scheduling_gates:
            return Refused(pod.namespace, pod.metadata.name, _GATED, {}, {})
        room, view, now = self._nodes.room(pod), self._ledger.view(), self._attempt.now
        names = list(room)
        asks = might_ask(pod)
        reasons = dict(evaluate(pod, names, view, now).reasons) if asks else {}
        offered = [name for name in names if name not in reasons] if reasons else names
        ranked = dict(zip(offered, self._ranks(pod, offered, view, room), strict=True))
        while ranked:
            node = max(ranked, key=ranked.__getitem__)
            try:
                claim = self._claimed(pod, node, view) if asks else None
            except RefusedError as error:
                # Where kube-scheduler would try the pod again.
                reasons[node] = str(error)
                del ranked[node]
            else:
                self._nodes.place(pod, node)
                return Placed(pod.namespace, pod.metadata.name, node, _units(claim))
        return self._refused(pod, names, reasons, view)

    def _ranks(self, pod: Pod, names: Sequence[str], view: View, room: Mapping[str, int]) -> Iterable[int]:
        own = map(room.__getitem__, names)
        if not might_ask(pod):
            return own
        pools = Fit(pod, terms_of(view).demand(pod), view, self._attempt.now).scored()
        return (score * _BERTH_SCALE + other for score, other in zip(scores(names, pools), own, strict=True))

    def _claimed(self, pod: Pod, node: str, view: View) -> Claim | None:
        """Return the pod's claim, confirmed; None where it asks for nothing. Raises RefusedError."""
        terms = terms_of(view)
        demand = terms.demand(pod)
        if not demand.units:
            return None
        now = self._attempt.now
        wanted = claim_of(pod, node, terms, demand, "simulated", now)
        claim = self._ledger.reserve(wanted, view=view, rank=rank_of(pod, view, now))
        self._ledger.confirm(claim)
        return claim

    def _refused(
        self, pod: PodInFull, names: Sequence[str], reasons: Mapping[str, str], view: View
    ) -> Refused:
        counts = Counter(reasons.values()) + self._nodes.refusals(pod)
        short = self._short(pod, names, view) if names else {}
        total = len(self._nodes)
        return Refused(
            pod.namespace, pod.metadata.name, why(counts, total), dict(counts.most_common()), short
        )

    def _short(self, pod: Pod, names: Sequence[str], view: View) -> dict[str, int]:
        """Return what the pod asks of pools that lack units for it on some of these nodes."""
        demand = terms_of(view).demand(pod)
        fit = Fit(pod, demand, view, self._attempt.now)
        if demand.refusal is not None or fit.nowhere():
            return {}
        lacking = (one.pool for one in fit.requirements() if any(True for _ in one.short(names)))
        return {pool: demand.units[pool] for pool in lacking}

    # What would be enough

    def _enough(self, asked: Mapping[str, int]) -> dict[str, int]:
        """Return the least capacity of each pool with which all pods fit that lack its units; each while
        there is plenty of the others. Those that were placed stay. None of a pool whose capacity is no
        number, nor of one that a pod lacks beside such a pool."""
        known = {name: _capacity(self._attempt.pools[name]) for name in asked}
        sizes = {name: capacity for name, capacity in known.items() if capacity is not None}
        lacking = [(pod, one.short.keys()) for pod, one in self._unplaced if one.short]
        pods = [pod for pod, short in lacking if short <= sizes.keys()]
        plenty = {name: min(MOST, size + asked[name]) for name, size in sizes.items()}
        if not pods or not self._suffices(pods, plenty):
            return {}
        beside = {name for _, short in lacking if not short <= sizes.keys() for name in short}
        names = sorted(sizes.keys() - beside)
        return {name: self._least(pods, plenty, name, sizes[name], asked[name]) for name in names}

    def _least(
        self, pods: Sequence[PodInFull], plenty: Mapping[str, int], name: str, size: int, asked: int
    ) -> int:
        """Return the least capacity of this pool that is enough; `plenty` is, and no less than `size`."""
        low, high = size, plenty[name]
        free = self._ledger.view().free.get(name, Free())
        missing = asked - sum(units for units, _ in free.values())
        guess = size + max(1, -(-missing // max(1, len(free))))  # as a rule it is that, and no less
        guesses = iter((guess, guess - 1))
        while low < high:
            middle = next((one for one in guesses if low <= one < high), (low + high) // 2)
            if self._suffices(pods, {**plenty, name: middle}):
                high = middle
            else:
                low = middle + 1
        return high

    def _suffices(self, pods: Iterable[PodInFull], capacities: Mapping[str, int]) -> bool:
        pools = dict(self._attempt.pools)
        pools |= {name: with_capacity(pools[name], units) for name, units in capacities.items()}
        attempt = replace(self._attempt, pools=pools)
        other = Simulation(MemoryStore(self._store.bodies()), attempt, self._nodes.copy())
        return all(isinstance(other._try(pod), Placed) for pod in pods)


def why(reasons: Mapping[str, int], nodes: int) -> str:
    """Return the reasons in one line, as kube-scheduler puts them into a pod's event."""
    if not nodes:
        return "there are no nodes"
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {reason}" for reason, count in ordered[:_MOST_REASONS]]
    parts += [f"{len(ordered) - _MOST_REASONS} more reasons"] if len(ordered) > _MOST_REASONS else []
    return f"0/{nodes} nodes are available: {', '.join(parts)}"


def _units(claim: Claim | None) -> tuple[Units, ...]:
    holdings = claim.holdings if claim is not None else ()
    by_domain: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
    for holding in (holding for holding in holdings if not holding.is_quota):
        where = (holding.pool, holding.whole)
        count, units = by_domain.get(where, (0, ()))
        by_domain[where] = count + holding.count, (*units, *holding.units)
    return tuple(Units(*where, count, units) for where, (count, units) in by_domain.items())


def _require_same_kind(view: View, pools: Mapping[str, Pool]) -> None:
    """Raise BadInputError where pods hold units that these Pools would count otherwise, or not at all."""
    held = {holding.pool for claim in view.claims() for holding in claim.holdings}
    for name in sorted(held & view.pools.keys()):
        if name not in pools:
            raise BadInputError(
                f"pods hold units of Pool {name}, which is not among the Pools given: name a file with all "
                "Pools, or use --capacity"
            )
        if pools[name].shape != view.pools[name].shape:
            raise BadInputError(
                f"pods hold units of Pool {name}: its resource, scope, topologyKey, and whether its units "
                "have names, must stay as they are; simulate counts nothing anew"
            )
