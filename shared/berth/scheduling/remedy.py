"""What change would let a waiting pod in: each is tried on a copy of the ledger with filter's own code.
It knows pools alone: kube-scheduler may still refuse a node for its CPU, its taints and the like."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from berth.api.pool import EVERYWHERE, Pool, Selector
from berth.api.poolclaim import named
from berth.api.units import Units
from berth.errors import few
from berth.kube.types import Node, Pod
from berth.ledger.holders import PodName, holder, pod_name
from berth.ledger.keys import namespace_quota, poolclaim_quota, unreserved_quota
from berth.ledger.model import Claim, PoolClaimSpec
from berth.ledger.refusals import Requirement, unreserved
from berth.ledger.report import natural
from berth.ledger.view import View
from berth.scheduling.demand import Demand, is_unreserved, owners_of, rank_of, terms_of
from berth.scheduling.fit import Fit, Obstacle
from berth.scheduling.trial import Draft, Trial, slack

_MOST = 3  # places that are told where the pod could go
_ANY = "VALUE"  # stands for a label's value that a person chooses
_SEEN = "; inventory or reconcile must see it first"
_MOST_PODS = 100  # holders that a step has for a program, the oldest
_MOST_NAMED = 3  # pods that are named in one step

Kind = Literal[
    "units",
    "capacity",
    "resume",
    "limit",
    "giveBack",
    "priority",
    "label",
    "join",
    "uncordon",
    "freePoolClaim",
    "createPoolClaim",
    "allowPoolClaim",
    "freeUnits",
    "leave",
    "reconcile",
    "read",
    "wait",
]


class Step(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One change. `text` says it in words, `command` is what does it where one command can.

    `units` is how many more, the limit or the priority that is needed; `until` when time alone does it.
    """

    kind: Kind
    text: str
    pool: str = ""
    domain: str = ""
    node: str = ""
    namespace: str = ""
    pool_claim: str = ""
    units: int = 0
    pods: tuple[PodName, ...] = ()
    command: str = ""
    until: datetime | None = None


class Remedy(msgspec.Struct, frozen=True, rename="camel"):
    """Steps that, all together, would let the pod in by what the ledger says now: that was tried."""

    steps: tuple[Step, ...]


class _Change(NamedTuple):
    step: Step
    edit: Callable[[Draft], None]
    cost: float = 1.0


def remedies(
    pod: Pod, view: View, nodes: Mapping[str, Node], cordoned: Sequence[str], now: float
) -> tuple[Remedy, ...]:
    """Return changes that would let the pod go to one of these nodes, the smallest first; each alone is
    enough. The `cordoned` nodes, none of `nodes`, could take it as it is, but take no pods now."""
    case = _Case(pod, terms_of(view).demand(pod), view, now)
    search = _Search(case, nodes)
    if case.demand.refusal is not None:
        tried = search.worked(search.new_poolclaims())
    else:
        uncordoned = [[_uncordon(node)] for node in cordoned[:1]]
        tried = search.worked([*search.in_time(), *search.sets(), *uncordoned])
    sets = dict.fromkeys(tried)
    least = [steps for steps in sets if not any(set(other) < set(steps) for other in sets)]
    return tuple(map(Remedy, least))


class _Case(NamedTuple):
    """A pod that waits, what it demands, and what the ledger says at this time (Unix seconds)."""

    pod: Pod
    demand: Demand
    view: View
    now: float

    @property
    def pools(self) -> set[str]:
        return {*self.demand.units, *(pool for _, pool, _ in self.demand.claims)}

    def slack(self, pool: str, domain: str) -> int:
        """Return what is free of a domain, or quota; below 0 where more is in use than there is."""
        rank = rank_of(self.pod, self.view, self.now)
        return slack(self.view, pool, domain, owners_of(self.pod), self.now, rank)

    def held(self, pool: str, domain: str) -> str:
        """Return in words who has the units of a domain, or quota."""
        claims = self.claims(pool, domain)
        units = sum(
            holding.count
            for claim in claims
            for holding in claim.holdings
            if (holding.pool, holding.whole) == (pool, domain)
        )
        left = any(
            unit.stands(self.now)
            for part in self.view.parts(pool, domain).values()
            for unit in part.retained_here
        )
        told = [f"{_count(len(claims), 'holder has', 'holders have')} {units}"] if claims else []
        told += ["some rest or are kept"] if left else []
        parts = self.view.parts(pool, domain)
        waiting = {part.line_hold.label for part in parts.values() if part.line_hold is not None}
        told += [f"some are held for {label}, first in line" for label in waiting - {self.pod.label}]
        rest = self.view.pools[pool].spec.reuse_after_seconds
        told += [f"what they free rests {rest} s first"] if claims and rest else []
        return ", ".join(told) or "nobody holds any"

    def claims(self, pool: str, domain: str) -> list[Claim]:
        """Return the claims in a domain, or quota, the oldest first."""
        parts = self.view.parts(pool, domain).values()
        claims = {claim.uid: claim for part in parts for claim in part.claims.values()}
        return sorted(claims.values(), key=lambda claim: (claim.since, claim.label))

    def free(self, draft: Draft, claims: Iterable[Claim]) -> None:
        for claim in claims:
            draft.free(self.pools, claim)


class _Search:
    """Looks for the changes by which one pod would find a node."""

    def __init__(self, case: _Case, nodes: Mapping[str, Node]) -> None:
        self._case, self._nodes = case, nodes
        self._pod, self._demand, self._view, self._now = case
        self._trial = Trial(self._view, case.pools, self._pod, nodes, self._now)

    def worked(self, sets: Iterable[Sequence[_Change]]) -> list[tuple[Step, ...]]:
        """Return the steps of those sets of changes with which filter would name a node."""
        return [tuple(change.step for change in changes) for changes in sets if self._works(changes)]

    def _works(self, changes: Sequence[_Change]) -> bool:
        return bool(changes) and self._trial.admits(self._drafted(changes))

    def _drafted(self, changes: Iterable[_Change]) -> Draft:
        draft = self._trial.draft()
        for change in changes:
            change.edit(draft)
        return draft

    def sets(self) -> list[list[_Change]]:
        """Return sets of changes, each of which may be enough: what is in the way on all nodes, and what is
        in the way besides on one of the nodes where that is least."""
        fit = Fit(self._pod, self._demand, self._view, self._now)
        obstacles = fit.obstacles()
        always = [change for obstacle in obstacles for change in self._against(obstacle)]
        cleared = self._case._replace(view=self._trial.view(self._drafted(always)))
        places = _Places(cleared, self._nodes).least()
        sets = [[*always, *place] for place in places[:_MOST]] or [always]
        limits = [obstacle.pool for obstacle in obstacles if obstacle.rule == "limit"]
        if limits:
            others = [change for change in always if change.step.kind != "limit"]
            sets.append([*map(self._give_back, limits), *others, *(places[0] if places else ())])
        return [*sets, *self._important(fit.requirements(), always)]

    def _against(self, obstacle: Obstacle) -> list[_Change]:
        """Return what clears something that is in the way on all nodes."""
        pool = obstacle.pool
        match obstacle.rule:
            case "suspended":
                return [_resume(pool, None)]
            case "heldBack":
                text = f"the pods are written to, or gone, for which {pool} is held back"
                step = Step(kind="reconcile", text=text, pool=pool, command="berth reconcile")
                resource = self._view.pools[pool].resource
                return [_Change(step, lambda draft: _give_out(draft, resource))]
            case "unread":
                step = Step(kind="read", text=f"what others use of {pool} is read again", pool=pool)
                return [_Change(step, lambda draft: draft.read(pool))]
            case "limit":
                return [self._raise_limit(pool)]
            case "leaving":
                claims = [
                    claim
                    for claim in self._view.named(self._pod.label, pool)
                    if claim.uid != self._pod.metadata.uid and claim.state != "lost"
                ]
                step = Step(kind="leave", text=f"the last pod of this name frees its {pool}", pool=pool)
                return [_Change(step, lambda draft: self._case.free(draft, claims))]
            case "poolClaim":
                return self._free_poolclaim(pool, obstacle.poolclaim)
            case "gang":
                return []  # what its other pods lack is told of those

    def _raise_limit(self, pool: str) -> _Change:
        namespace, limit = self._pod.namespace, self._view.pools[pool].limit(self._pod.namespace) or 0
        least = limit + self._beyond_limit(pool)
        text = f"limit of namespace {namespace} in Pool {pool} at {least} (now {limit})"
        step = Step(kind="limit", text=text, pool=pool, namespace=namespace, units=least)
        return _Change(step, lambda draft: draft.limit(pool, namespace, least))

    def _give_back(self, pool: str) -> _Change:
        namespace, units = self._pod.namespace, self._beyond_limit(pool)
        quota = namespace_quota(namespace)
        held = self._case.held(pool, quota)
        text = f"{_count(units, 'unit', 'units')} of {pool} given back in namespace {namespace} ({held})"
        step = Step(kind="giveBack", text=text, pool=pool, namespace=namespace, units=units)
        return _Change(step, lambda draft: draft.add(pool, quota, units))

    def _beyond_limit(self, pool: str) -> int:
        """Return how many units the pod asks beyond its namespace's limit."""
        limit = self._view.pools[pool].limit(self._pod.namespace) or 0
        quota = namespace_quota(self._pod.namespace)
        known = self._view.document(pool, quota).capacity is not None
        return self._demand.units[pool] - (self._case.slack(pool, quota) if known else limit)

    def _free_poolclaim(self, pool: str, claim: str) -> list[_Change]:
        holders = self._case.claims(pool, poolclaim_quota(f"{self._pod.namespace}/{claim}"))
        text = f"PoolClaim {claim} is freed by pod {_labels(holders)}"
        pods = tuple(map(pod_name, holders))
        step = Step(kind="freePoolClaim", text=text, pool=pool, pool_claim=claim, pods=pods)
        if holders:
            return [_Change(step, lambda draft: self._case.free(draft, holders))]
        spec = next(spec for name, _, spec in self._demand.claims if name == claim)
        return [self._allow_poolclaim(pool, claim, spec)] if spec.refused else []

    def _allow_poolclaim(self, pool: str, claim: str, spec: PoolClaimSpec) -> _Change:
        namespace = self._pod.namespace
        texts = {
            "unlisted": f"PoolClaim {claim} made anew, with units that Pool {pool} lists",
            "forbidden": f"claimableBy of Pool {pool} lets namespace {namespace} claim those units",
        }
        text = texts.get(spec.refused, "")
        step = Step(kind="allowPoolClaim", text=text, pool=pool, pool_claim=claim, namespace=namespace)
        return _Change(step, lambda draft: draft.claim(pool, namespace, claim, spec.count))

    # Other ways

    def in_time(self) -> list[list[_Change]]:
        """Return the first moment from which on the pod would fit because units have rested, or are kept for
        nobody any more."""
        times = sorted(
            {
                time
                for pool in self._case.pools
                for domain in self._view.domains.get(pool, {}).values()
                for left in domain.retained
                for time in (left.rest_until, left.kept_until)
                if time > self._now
            }
        )
        if not times or not self._works([_later(times[-1])]):
            return []
        low, high = 0, len(times) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._works([_later(times[middle])]) else (middle + 1, high)
        return [[_later(times[low])]]

    def _important(
        self, requirements: Iterable[Requirement], always: Sequence[_Change]
    ) -> list[list[_Change]]:
        """Return the priority with which the pod would get units that are reserved."""
        reserved = [
            (pool.name, pool.spec.reserved)
            for pool in map(self._view.pools.__getitem__, self._demand.units)
            if pool.spec.reserved is not None and is_unreserved(pool, self._pod)
        ]
        if not reserved or all(each.words is not unreserved or each.enough() for each in requirements):
            return []
        least, now = max(rule.priority_at_least for _, rule in reserved), self._pod.spec.priority or 0
        of = " and ".join(f"{rule.units} units of {pool} in each domain" for pool, rule in reserved)
        text = f"a priority of at least {least} (now {now}): {of} are reserved for such pods"
        step = Step(kind="priority", text=text, pool=reserved[0][0], units=least)
        return [[*always, _Change(step, lambda draft: _promote(draft, least))]]

    def new_poolclaims(self) -> list[list[_Change]]:
        """Return the PoolClaims that the pod names and that are not there, once for each pool it asks of."""
        terms, namespace = terms_of(self._view), self._pod.namespace
        try:
            missing = [name for name in named(self._pod) if terms.poolclaim(namespace, name) is None]
        except ValueError:
            return []
        return [[self._new_poolclaim(pool, name) for name in missing] for pool in self._demand.units]

    def _new_poolclaim(self, pool: str, name: str) -> _Change:
        namespace = self._pod.namespace
        text = f"a PoolClaim {name} of pool {pool} in namespace {namespace}"
        step = Step(kind="createPoolClaim", text=text, pool=pool, pool_claim=name, namespace=namespace)
        return _Change(step, lambda draft: draft.claim(pool, namespace, name, 1))


class _Places:
    """What is in the way of a pod on single nodes, by the same requirements that filter judges them by."""

    def __init__(self, case: _Case, nodes: Mapping[str, Node]) -> None:
        self._case, self._demand, self._view = case, case.demand, case.view
        self._nodes = nodes
        self._fit = Fit(*case)
        self._requirements = self._fit.requirements()

    def least(self) -> list[list[_Change]]:
        """Return what is in the way on nodes, where that is least first; equal nodes are one."""
        by_domains: dict[tuple[Hashable, ...], str] = {}
        for name in sorted(self._nodes, key=natural):
            by_domains.setdefault(tuple(self._where(each, name) for each in self._requirements), name)
        places = [changes for name in by_domains.values() if (changes := self._at(name)) is not None]
        return sorted(places, key=lambda changes: sum(change.cost for change in changes))

    def _where(self, requirement: Requirement, node: str) -> Hashable:
        """Return the node's domain, or what puts it into which one, which is equal for nodes on their own."""
        domain = requirement.domain(node)
        if domain and domain in requirement.free:
            return domain
        there, entered = self._into(requirement, node, domain) or ("", [])
        alone = self._view.pools[requirement.pool].spec.scope == "Node"
        return "" if alone else there, tuple((each.step.kind, each.cost) for each in entered)

    def _at(self, node: str) -> list[_Change] | None:
        """Return what is in the way on this node; None where no change that is known would help."""
        changes: list[_Change] = []
        for name in self._demand.units:
            requirements = [each for each in self._requirements if each.pool == name]
            domain = requirements[0].domain(node)
            if not domain or domain not in requirements[0].free:
                into = self._into(requirements[0], node, domain)
                if into is None:
                    return None
                domain, entered = into
                changes += entered
            if domain in self._view.pools[name].spec.suspended_domains:
                changes.append(_resume(name, domain))
            if domain in requirements[0].free:
                changes += self._more(requirements, domain)
            for claim, pool, spec in self._demand.claims:
                if pool == name and spec.units and not self._fit.has(pool, domain, spec.units):
                    freed = self._free_units(pool, domain, claim, spec)
                    if freed is None:
                        return None
                    changes.append(freed)
        return changes

    def _more(self, requirements: Sequence[Requirement], domain: str) -> list[_Change]:
        """Return the units that are missing in a domain: of all, and of those that are not reserved."""
        pool, adds = requirements[0].pool, []
        for requirement in requirements:
            quota = unreserved_quota(domain) if requirement.words is unreserved else domain
            free, _ = requirement.free.get(domain, (0, 0))
            if free < requirement.asked:
                least = free or min(0, self._case.slack(pool, quota))
                adds.append((quota, requirement.asked - least))
        if not adds:
            return []
        units = max(count for _, count in adds)
        step = self._units_step(self._view.pools[pool], domain, units, reserved=adds[0][0] != domain)

        def edit(draft: Draft) -> None:
            for name, count in adds:
                draft.add(pool, name, count)

        return [_Change(step, edit, 1.0 + units / 1000)]

    def _units_step(self, pool: Pool, domain: str, units: int, *, reserved: bool) -> Step:
        asked, where = self._demand.units[pool.name], "" if domain == EVERYWHERE else f" in {domain}"
        capacity = self._view.document(pool.name, domain).capacity or 0
        held = self._case.held(pool.name, domain)
        if capacity < asked and not reserved:
            text = f"a capacity of {pool.name}{where} of at least {capacity + units} (now {capacity})"
            return Step(kind="capacity", text=text, pool=pool.name, domain=domain, units=units)
        what = f" that {'is' if units == 1 else 'are'} not reserved" if reserved else ""
        claims = self._case.claims(pool.name, domain)
        pods = tuple(pod_name(claim) for claim in claims if not claim.is_external)[:_MOST_PODS]
        text = f"{units} more {'unit' if units == 1 else 'units'} of {pool.name} free{where}{what} ({held})"
        return Step(kind="units", text=text, pool=pool.name, domain=domain, units=units, pods=pods)

    def _into(
        self, requirement: Requirement, node: str, domain: str | None
    ) -> tuple[str, list[_Change]] | None:
        """Return a domain in which a node could be, and what puts it there; None where none is known."""
        pool, it = self._view.pools[requirement.pool], self._nodes[node]
        unknown = it.metadata.labels is None  # who explains may not list nodes
        if unknown and domain != "":
            return None
        standing, joined = domain if unknown else pool.domain_of(it), _as_selected(pool, it)
        there, steps = _for_all(pool).domain_of(joined) or "", []
        if not there:
            labelled = self._labelled(requirement, it)
            if labelled is None:
                return None
            there, step = labelled
            steps.append(step)
        new, units = there not in requirement.free, pool.capacity_of(there, joined) or 0
        if standing:
            steps.append(_counted_step(pool, node))
        elif standing is None:
            least = self._least(pool) if new else 0
            steps.insert(0, _join_step(pool, it, joined, least, units))
            units = max(units, least)

        def put(draft: Draft) -> None:
            if new:
                draft.establish(pool.name, there, units)
            if pool.spec.scope != "Node":
                draft.place(pool.name, node, there)

        costs = {"reconcile": 1.0, "label": 2.0 + new, "join": 4.0}
        return there, [
            _Change(step, put if number == 0 else _nothing, costs[step.kind] + (not step.command))
            for number, step in enumerate(steps)
        ]

    def _least(self, pool: Pool) -> int:
        """Return with how many units a new domain has enough for the pod."""
        reserved, asked = pool.spec.reserved, self._demand.units[pool.name]
        return asked + (reserved.units if reserved is not None and is_unreserved(pool, self._case.pod) else 0)

    def _labelled(self, requirement: Requirement, node: Node) -> tuple[str, Step] | None:
        """Return a value for the label that a node lacks, and the step: of a domain that has enough, or while
        there is no domain, any. None where neither would do."""
        pool, enough = self._view.pools[requirement.pool], requirement.enough()
        if enough:
            best = min(enough, key=lambda name: (-requirement.free[name][0], natural(name)))
            free, capacity = requirement.free[best]
            return best, _label_step(pool, node, best, f"{best} has {free} of {capacity} {pool.name} free")
        units = pool.capacity_of(_ANY) or 0
        if requirement.free or units < self._least(pool):
            return None
        what = f"with any value, which has {units} {pool.name} then"
        return _ANY, _label_step(pool, node, _ANY, what)

    def _free_units(self, pool: str, domain: str, claim: str, spec: PoolClaimSpec) -> _Change | None:
        """Return whose end frees the units that a PoolClaim names; None where they are not in the domain, or
        nobody holds them."""
        parts = self._view.parts(pool, domain).values()
        listed = Units().joined(Units.of(tuple(entry for part in parts for entry in part.units or ())))
        units = {(pool, unit) for unit in spec.units}
        holders = [other for other in self._case.claims(pool, domain) if units & other.units]
        if not holders or not all(unit in listed for unit in spec.units):
            return None
        text = f"the units of PoolClaim {claim} are freed by pod {_labels(holders)}"
        pods = tuple(map(pod_name, holders))
        step = Step(kind="freeUnits", text=text, pool=pool, domain=domain, pool_claim=claim, pods=pods)
        return _Change(step, lambda draft: self._case.free(draft, holders))


def _uncordon(node: str) -> _Change:
    text, command = f"node {node} takes pods again (it is cordoned)", f"kubectl uncordon {node}"
    step = Step(kind="uncordon", text=text, node=node, command=command)
    return _Change(step, lambda draft: draft.names.add(node))


def _resume(pool: str, domain: str | None) -> _Change:
    where = f" in {domain}" if domain else ""
    step = Step(
        kind="resume",
        text=f"{pool} gives out units again{where}",
        pool=pool,
        domain=domain or "",
        command=" ".join(filter(None, ("berth suspend", pool, domain, "--resume"))),
    )
    return _Change(step, lambda draft: draft.resume(pool, domain))


def _as_selected(pool: Pool, node: Node) -> Node:
    """Return the node with the labels that the Pool's nodeSelector wants."""
    labels = {**(node.metadata.labels or {}), **pool.spec.node_selector.match_labels}
    return replace(node, metadata=replace(node.metadata, labels=labels))


def _for_all(pool: Pool) -> Pool:
    """Return the Pool as it would be if it took all nodes."""
    return replace(pool, spec=replace(pool.spec, node_selector=Selector(), include_control_plane=True))


def _join_step(pool: Pool, node: Node, joined: Node, least: int, units: int) -> Step:
    """Return what takes a node into a pool that leaves it out; `joined` is the node with the labels for that.
    Its domain should have `least` units, and will have `units`; `least` is 0 where it is known already."""
    name, labels = node.metadata.name, node.metadata.labels or {}
    selector, wanted = pool.spec.node_selector, joined.metadata.labels or {}
    shut = replace(pool, spec=replace(pool.spec, node_selector=Selector())).domain_of(node) is None
    told = [f"node {name} in Pool {pool.name}"]
    told += [] if selector.selects(labels) else [f"whose nodeSelector wants {_selected(selector)}"]
    told += ["with includeControlPlane: true"] if shut else []
    told += [f"and at least {least} there (now {units})"] if units < least else []
    simple = selector.selects(wanted) and not shut and units >= least
    return Step(
        kind="join",
        text=", ".join(told) + _SEEN,
        pool=pool.name,
        node=name,
        units=least,
        command=_label_command(node, wanted) if simple else "",
    )


def _counted_step(pool: Pool, node: str) -> Step:
    """Return what lets the ledger know of a node that is in a domain by its labels."""
    text = f"node {node} is counted in Pool {pool.name}, as its labels say"
    return Step(kind="reconcile", text=text, pool=pool.name, node=node, command="berth reconcile")


def _label_command(node: Node, wanted: Mapping[str, str]) -> str:
    labels = node.metadata.labels or {}
    changed = {key: value for key, value in wanted.items() if labels.get(key) != value}
    pairs = " ".join(f"{key}={value}" for key, value in changed.items())
    anew = " --overwrite" if changed.keys() & labels.keys() else ""
    return f"kubectl label node {node.metadata.name} {pairs}{anew}"


def _selected(selector: Selector) -> str:
    """Return what a selector wants, as kubectl writes it."""
    told = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for expression in selector.match_expressions:
        values = f" ({','.join(expression.values)})" if expression.values else ""
        told.append(f"{expression.key} {expression.operator}{values}")
    return ", ".join(told)


def _label_step(pool: Pool, node: Node, value: str, what: str) -> Step:
    key, name = pool.spec.topology_key or "", node.metadata.name
    return Step(
        kind="label",
        text=f"label {key}={value} on node {name} ({what}){_SEEN}",
        pool=pool.name,
        domain=value,
        node=name,
        command=_label_command(node, {key: value}),
    )


def _later(time: float) -> _Change:
    until = datetime.fromtimestamp(time, UTC)
    text = f"nothing but time: units that rest, or are kept, are free from {until:%Y-%m-%d %H:%M:%S} UTC on"
    return _Change(Step(kind="wait", text=text, until=until), lambda draft: _move(draft, time))


def _move(draft: Draft, time: float) -> None:
    draft.now = time


def _promote(draft: Draft, priority: int) -> None:
    draft.pod = replace(draft.pod, spec=replace(draft.pod.spec, priority=priority))


def _nothing(_: Draft) -> None:
    """Change nothing: another step of the same set does."""


def _give_out(draft: Draft, resource: str) -> None:
    draft.held = tuple(other for other in draft.held if other != resource)


def _labels(claims: Sequence[Claim]) -> str:
    return few(map(holder, claims), _MOST_NAMED)


def _count(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
