"""Which nodes can take a pod, as far as the ledger's View knows, and why the others can't.
It advises: near the last unit several pods are told yes, and bind's reservation decides."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Literal, NamedTuple

from berth.api.pool import Pool
from berth.api.units import Units
from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.keys import domain_of, namespace_quota, parse_domain, poolclaim_quota
from berth.ledger.model import FIRST, Domain
from berth.ledger.readings import head_key, why_held
from berth.ledger.refusals import KEPT, Requirement
from berth.ledger.view import Shares, View
from berth.scheduling.demand import Demand, is_unreserved, owners_of, rank_of, several_ask, terms_of
from berth.scheduling.gang import gang_kind, gang_obstacle, seated_on
from berth.scheduling.preemption import resolvable
from berth.scheduling.score import ScoredPool


class Evaluation(NamedTuple):
    """Why nodes can't take a pod (`reasons`, by name), and which of them might if pods there were evicted.

    `kept_elsewhere`: all these nodes can take the pod, and units are kept for it on others.
    `nowhere`: no node can take it, whatever it has. `rules` are the pools and rules by which all these nodes
    are refused, for metrics; a pool whose units are too few is `short` on the first one. `asked` are units by
    pool, where a node may take the pod.
    """

    reasons: Mapping[str, str]
    resolvable: Collection[str] = ()
    kept_elsewhere: bool = False
    nowhere: bool = False
    rules: Sequence[tuple[str, str]] = ()
    asked: Mapping[str, int] = MappingProxyType({})


def evaluate(pod: Pod, nodes: Collection[str], view: View, now: float) -> Evaluation:
    """Return which of these nodes can take the pod at this time (Unix seconds): those too where its seat is,
    whatever became of its Pools meanwhile."""
    terms = terms_of(view)
    demand = terms.demand(pod)
    if demand.refusal is not None:
        return Evaluation(dict.fromkeys(nodes, demand.refusal), nowhere=True, rules=[("", "demand")])
    evaluation = _evaluated(pod, demand, nodes, view, now)
    if not evaluation.reasons or not (seated := seated_on(pod, demand, terms, nodes, view)):
        return evaluation
    reasons = {node: text for node, text in evaluation.reasons.items() if node not in seated}
    return Evaluation(reasons, evaluation.resolvable, asked=demand.units)


def _with_containers(reasons: dict[str, str], pod: Pod, demand: Demand, view: View) -> dict[str, str]:
    """Return the reasons, and with each which containers ask where that is more than one."""
    if not reasons or not (more := several_ask(pod, map(view.pools.__getitem__, demand.units))):
        return reasons
    texts = {text: f"{text}; {more}" for text in set(reasons.values()) if text != KEPT}
    return {node: texts.get(text, text) for node, text in reasons.items()}


def _evaluated(pod: Pod, demand: Demand, nodes: Collection[str], view: View, now: float) -> Evaluation:
    fit = Fit(pod, demand, view, now)
    if obstacles := fit.obstacles():
        text = "; ".join(obstacle.text for obstacle in obstacles)
        return Evaluation(
            _with_containers(dict.fromkeys(nodes, text), pod, demand, view),
            nowhere=True,
            rules=[(obstacle.pool, obstacle.rule) for obstacle in obstacles],
        )
    requirements = fit.requirements()
    reasons = refusals.refusals(nodes, requirements)
    kept = fit.keeps_to(name for name in nodes if name not in reasons)
    if kept is not None:
        reasons = {name: reasons.get(name, KEPT) for name in nodes if name not in kept}
    # Only the nominated node: for it the pod keeps its nomination. Others are free by kube-scheduler's own
    # count, so it finds nobody to evict there, says so in an order that varies, and tries without end
    # (docs/decisions/0016).
    nominated = pod.status.nominated_node_name or ""
    short = reasons.get(nominated, KEPT) != KEPT
    mendable = resolvable({nominated}, requirements, view.pools) if short else frozenset[str]()
    rules = _short(requirements, next(iter(nodes), "")) if len(reasons) == len(nodes) else ()
    elsewhere = not reasons and fit.kept_elsewhere(nodes)
    reasons = _with_containers(reasons, pod, demand, view)
    return Evaluation(reasons, mendable, elsewhere, rules=rules, asked=demand.units)


def _short(requirements: Iterable[Requirement], node: str) -> list[tuple[str, str]]:
    """Return the pools that are short on this node, each with that rule."""
    return [(one.pool, "short") for one in requirements if any(one.short([node]))]


def _missing(node: str, requirements: Iterable[Requirement]) -> dict[tuple[str, str], int] | None:
    missing: dict[tuple[str, str], int] = {}
    for each in requirements:
        domain = each.domain(node)
        if not domain or domain not in each.free or domain in each.not_here:
            return None
        free, capacity = each.free[domain]
        if capacity < each.asked:
            return None
        where = (each.pool, domain)
        missing[where] = max(0, each.asked - free, missing.get(where, 0))
    return missing


class Obstacle(NamedTuple):
    """Why a pod can be served on no node, whatever that has; `poolclaim` names the one that it is about."""

    rule: Literal["suspended", "heldBack", "unread", "limit", "leaving", "poolClaim", "gang"]
    pool: str
    text: str
    poolclaim: str = ""


def known_nodes(view: View, pools: Iterable[str]) -> set[str]:
    """Return the nodes that the ledger knows to have a domain in any of these pools."""
    nodes: set[str] = set()
    for name in pools:
        is_node = view.pools[name].spec.scope == "Node"
        nodes.update(view.free.get(name, ()) if is_node else view.places.get(name, ()))
    return nodes


def kind_of(pod: Pod, demand: Demand, view: View, now: float) -> Hashable:
    """Return a value that is equal for pods to which the same nodes are open, and the others closed for the
    same reasons."""
    pools = [view.pools[pool] for pool in demand.units]
    whose = owners_of(pod) if any(pool.spec.sticky for pool in pools) else ()
    unreserved = tuple(is_unreserved(pool, pod) for pool in pools)
    claims = tuple(name for name, *_ in demand.claims)
    mine = pod.metadata.uid if view.keys_of(pod.metadata.uid) else ""
    asks = tuple(demand.units.items()), claims, demand.refusal, several_ask(pod, pools)
    rank = rank_of(pod, view, now)
    passes = view.keys_passed(rank, now) if view.line_holds else frozenset[str]()
    believed, gang = rank.ends < inf, gang_kind(pod, view)
    whole = pod.metadata.namespace, asks, whose, mine, unreserved, pod.goes_to_unschedulable
    return *whole, passes, believed, gang


class _Limited(NamedTuple):
    """Why a namespace's limit gives a pod nothing but in the domains `there`, where units are kept for it."""

    text: str
    there: frozenset[str]


class Fit:
    """One pod's demand and the shares of its pools that it sees, at one time (Unix seconds)."""

    def __init__(self, pod: Pod, demand: Demand, view: View, now: float) -> None:
        self._pod, self._demand, self._view, self._now = pod, demand, view, now
        self._namespace = pod.metadata.namespace or "default"
        self._owners = owners_of(pod)
        self._rank = rank_of(pod, view, now)
        self._shares: Shares = view.free_for(self._rank, demand.units, self._owners, now)

    def nowhere(self) -> list[str]:
        """Return why no node can take the pod, whatever it has."""
        return [obstacle.text for obstacle in self.obstacles()]

    def obstacles(self) -> list[Obstacle]:
        """Return what keeps the pod from all nodes, whatever they have."""
        gang = gang_obstacle(self._pod, self._view, self._shares, self._now)
        return [*self.own_obstacles(), *([] if gang is None else [Obstacle("gang", *gang)])]

    def own_obstacles(self) -> list[Obstacle]:
        """Return what keeps the pod from all nodes, but for what the rest of its gang lacks."""
        obstacles = []
        for name, count in self._demand.units.items():
            pool = self._view.pools[name]
            if pool.spec.suspended is True:
                obstacles.append(Obstacle("suspended", name, refusals.suspended(name)))
            if pool.resource in self._view.held:
                obstacles.append(Obstacle("heldBack", name, refusals.held_back(name)))
            if (unread := self._unread(pool)) is not None:
                obstacles.append(Obstacle("unread", name, unread))
            limited = self._limited(pool, count)
            if limited is not None and not limited.there:
                obstacles.append(Obstacle("limit", name, limited.text))
            if self._leaving(pool):
                obstacles.append(Obstacle("leaving", name, refusals.leaving(name)))
        for claim, name, spec in self._demand.claims:
            share = self._shares.quotas[name].get(poolclaim_quota(f"{self._namespace}/{claim}"), (0, 0))
            if not share[0]:
                text = refusals.claimed(name, claim, share, spec.refused)
                obstacles.append(Obstacle("poolClaim", name, text, claim))
        return obstacles

    def anywhere(self, shut: Collection[str] = ()) -> bool:
        """Whether any node that the ledger knows can take the pod, but for those that are `shut`."""
        # Where units are kept for the pod, it keeps to some of these: that takes the last one from nobody.
        return not self.nowhere() and bool(self.nodes().difference(shut))

    def nodes(self) -> frozenset[str]:
        """Return the nodes that the ledger knows to have what the pod asks for."""
        return frozenset.intersection(*(requirement.nodes() for requirement in self.requirements()))

    def requirements(self, limits: bool = True) -> list[Requirement]:
        """Return what nodes are judged by; without `limits` as if its namespace had none."""
        requirements = []
        for name, count in self._demand.units.items():
            pool, places = self._view.pools[name], self._places(name)
            label = refusals.unlabelled(name, pool.spec.topology_key or "")
            free, held = self._shares.free[name], self._held_in_line(pool)
            not_here = self._not_here(pool, limits)
            requirements.append(
                Requirement(name, count, free, places, refusals.lacking, label, not_here, held)
            )
            if is_unreserved(pool, self._pod):
                free = self._shares.unreserved[name]
                requirements.append(Requirement(name, count, free, places, refusals.unreserved, label))
        return requirements

    def missing(self, names: Iterable[str]) -> dict[str, dict[tuple[str, str], int]]:
        """Return how many units the pod lacks on these nodes, by (pool, domain), a limit of its namespace
        included; nodes are omitted where it can't get them whoever holds none, and all are where something
        else keeps it from them."""
        limits = self._limits()
        if limits is None or any(obstacle.rule != "limit" for obstacle in self.own_obstacles()):
            return {}
        requirements = self.requirements(limits=False)
        lacks = {name: _missing(name, requirements) for name in names}
        return {name: {**missing, **limits} for name, missing in lacks.items() if missing is not None}

    def _limits(self) -> dict[tuple[str, str], int] | None:
        """Return how many units its namespace lacks, by (pool, quota); None where it may not hold as many."""
        lacks: dict[tuple[str, str], int] = {}
        quota = namespace_quota(self._namespace)
        for name, count in self._demand.units.items():
            limit = self._view.pools[name].limit(self._namespace)
            if limit is None:
                continue
            free, most = self._shares.quotas[name].get(quota, (limit, limit))
            if most < count:
                return None
            lacks[(name, quota)] = max(0, count - free)
        return lacks

    def scored(self) -> list[ScoredPool]:
        """Return the pools that nodes are scored by."""
        return [
            ScoredPool(self._view.pools[pool], self._shares.free[pool], self._places(pool))
            for pool in self._demand.units
        ]

    def keeps_to(self, names: Iterable[str]) -> set[str] | None:
        """Return those of these nodes where units are that the pod, or its PoolClaim, had before and that are
        free, of as many pools as can be; None where there are none: then it may go anywhere."""
        there, offered = None, list(names) if self._before else []
        for domain in self._before:
            there = set(self._in(*domain, offered if there is None else there)) or there
        return there

    def kept_elsewhere(self, names: Collection[str]) -> bool:
        """Whether units that the pod, or its PoolClaim, had before are free on none of these nodes."""
        return not all(any(self._in(*domain, names)) for domain in self._before)

    def _in(self, pool: str, domain: str, names: Collection[str]) -> Iterator[str]:
        """Return those of these nodes that are in the domain."""
        places = self._places(pool)
        return (name for name in names if (name if places is None else places.get(name)) == domain)

    def _places(self, pool: str) -> Mapping[str, str] | None:
        """Return nodes' domains; None where each node is its own."""
        is_node = self._view.pools[pool].spec.scope == "Node"
        return None if is_node else self._view.places.get(pool, {})

    def _unread(self, pool: Pool) -> str | None:
        """Return why nothing new is given for want of a reading of what others use; None if there is one, or
        none is read."""
        if pool.external_from is None:
            return None
        return why_held(pool, self._view.at(head_key(pool.name)), self._now) or None

    def _leaving(self, pool: Pool) -> bool:
        """Whether units that are to be kept for this pod are not free yet: a pod of its name had them, which
        is gone, or this one would not be there."""
        if pool.spec.sticky is None or pool.spec.sticky.by != "Pod":
            return False
        claims = self._view.named(self._pod.label, pool.name)
        return any(claim.uid != self._pod.metadata.uid and claim.state != "lost" for claim in claims)

    def _limited(self, pool: Pool, count: int) -> _Limited | None:
        """Return how the namespace's limit stands in the way of so many units; None if it does not."""
        limit, domain = pool.limit(self._namespace), namespace_quota(self._namespace)
        if limit is None:
            return None
        share = self._shares.quotas[pool.name].get(domain, (limit, limit))
        if share[0] >= count:
            return None
        kept = self._view.kept_of_quota(pool.name, domain, self._owners, self._now)
        there = frozenset(place for place, units in kept.items() if share[0] + units >= count)
        held = self._held_of_limit(pool.name, domain)
        text = refusals.limited(pool.name, self._namespace, share, count, pool.retains, *held)
        return _Limited(text, there)

    def _held_of_limit(self, pool: str, quota: str) -> tuple[int, str]:
        """Return how many units of its namespace's limit are held for the pod that is first in line, and its
        namespace/name."""
        units, first = 0, ""
        for name, part in self._view.parts(pool, quota).items():
            if part.line_hold is not None and part.bars(pool, name, self._rank, self._now):
                all_free = part.room(pool, name, (), self._now, rank=FIRST)
                units += all_free - part.room(pool, name, (), self._now)
                first = part.line_hold.label
        return units, first

    def _not_here(self, pool: Pool, limits: bool) -> dict[str, str]:
        """Return the domains that can't give any unit, and why."""
        free = self._shares.free[pool.name]
        reasons = dict.fromkeys(pool.spec.suspended_domains, refusals.suspended(pool.name))
        limited = self._limited(pool, self._demand.units[pool.name]) if limits else None
        if limited is not None:
            reasons |= dict.fromkeys(free.keys() - limited.there, limited.text)
        for claim, of, spec in self._demand.claims:
            if of == pool.name and spec.units:
                listing = self._listing(of, spec.units)
                here = {domain for domain in listing if self.has(of, domain, spec.units)}
                reasons |= dict.fromkeys(free.keys() - here, refusals.elsewhere(of, claim))
        return reasons

    def _held_in_line(self, pool: Pool) -> dict[str, str]:
        """Return the domains that would give more but for what is held for the first in line, and why."""
        free, asked = self._shares.free[pool.name], self._demand.units[pool.name]
        held: dict[str, int] = {}
        first: dict[str, str] = {}
        lent = set[str]()
        for key, hold in self._view.line_holds.items():
            of, name = domain_of(key)
            domain, part = parse_domain(name).whole, self._view.document(of, name)
            if of != pool.name or domain not in free or free[domain][0] >= asked:
                continue
            if part.bars(of, name, self._rank, self._now):
                held[domain] = held.get(domain, 0) + self._view.held_at(of, name, self._now)
                first[domain] = hold.label
                lent |= {domain} if part.lends(of, name, self._rank, self._now) else set()
        return {
            domain: refusals.held_in_line(
                pool.name, free[domain], asked, units, first[domain], domain in lent
            )
            for domain, units in held.items()
            if units
        }

    def _listing(self, pool: str, units: Iterable[str]) -> set[str]:
        """Return the domains that list any of these units; there may be thousands that do not."""
        named = Units.parse(units)
        return {
            parse_domain(name).whole
            for name, document in self._view.domains.get(pool, {}).items()
            if document.units and named.meets(Units.of(document.units))
        }

    def has(self, pool: str, domain: str, units: Iterable[str]) -> bool:
        """Whether these very units are in the domain, and free for the pod."""
        free: set[str] = set()
        for name, part in self._view.parts(pool, domain).items():
            there = Units.of(part.units or ())
            if listed := {unit for unit in units if unit in there}:
                free |= self._not_held_in_line(pool, name, part, listed - self._held(pool, name, part))
        return free.issuperset(units)

    def _not_held_in_line(self, pool: str, name: str, part: Domain, units: set[str]) -> set[str]:
        """Return these units of a document, or none where it has too few beside those that are held for the
        first in line."""
        if part.line_hold is None:
            return units
        mine = part.claims.get(self._pod.metadata.uid)
        holdings = () if mine is None else mine.holdings
        own = sum(holding.count for holding in holdings if (holding.pool, holding.domain) == (pool, name))
        room = part.room(pool, name, self._owners, self._now, own, self._rank)
        return units if len(units) <= room else set()

    def _held(self, pool: str, name: str, part: Domain) -> set[str]:
        """Return the units of a document that the pod can't have."""
        mine = part.claims.get(self._pod.metadata.uid)
        own = frozenset[tuple[str, str]]() if mine is None else mine.units
        held = {unit for unit in part.held(pool, name) if (pool, unit) not in own}
        return held | part.barred(self._owners, self._now)

    @cached_property
    def _before(self) -> list[tuple[str, str]]:
        """The domains, with their pools, where units are free that the pod, or its PoolClaim, had before."""
        claimed = [
            (pool, spec.domain)
            for _, pool, spec in self._demand.claims
            if spec.domain and not spec.units and self.has(pool, spec.domain, spec.had)
        ]
        kept = self._view.kept_for(self._owners, self._now)
        return claimed + [place for place in kept if place[0] in self._demand.units]
