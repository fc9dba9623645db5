"""Why a pod waits, or where it is, by what the ledger says: facts for a person, a program or a web page.
Nothing is decided here anew: who is refused where, and in which words, is filter's own code."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median_low
from typing import Literal

import msgspec

from berth.api.names import is_ours
from berth.api.pool import EVERYWHERE, Pool
from berth.api.poolclaim import named
from berth.api.run_time import RUNS_FOR, mistake_in
from berth.errors import RebuildingError
from berth.kube.types import Node, Pod, unix_seconds
from berth.ledger.forecast import obtainable
from berth.ledger.free import Free
from berth.ledger.holders import PodName, pod_name, wholes
from berth.ledger.keys import domain_of, parse_domain, poolclaim_quota
from berth.ledger.model import FIRST, Claim, LineHold, PoolClaimSpec
from berth.ledger.refusals import KEPT, Requirement, elsewhere
from berth.ledger.report import natural, reading_told, turn_told, withheld
from berth.ledger.view import View
from berth.scheduling.demand import (
    Demand,
    asking_containers,
    disbelieved_until,
    owner_of,
    owners_of,
    rank_of,
    resources,
    terms_of,
)
from berth.scheduling.fit import Fit, Obstacle, evaluate
from berth.scheduling.remedy import Remedy, remedies
from berth.scheduling.trial import slack

_UNCHANGEABLE = "what a pod asks can't be changed: to ask otherwise, delete it and make it anew"
_MOST_HOLDERS = 100  # who are listed; the rest are counted

Verdict = Literal[
    "waits",
    "fits",
    "reserved",
    "bound",
    "finished",
    "ending",
    "gated",
    "notOurs",
    "nothingAsked",
    "rebuilding",
    "paused",
]

Rule = Literal["", "exhausted", "suspended", "limit", "reserved", "resting", "kept", "held", "poolClaim"]


_RULES: Mapping[Rule, str] = {
    "": "{} could",
    "exhausted": "{} with too few free",
    "suspended": "{} suspended",
    "limit": "{} beyond the namespace's limit",
    "reserved": "{} with too few that are not reserved",
    "resting": "{} where units rest",
    "kept": "{} where units are kept for others",
    "held": "{} where units are held for the first in line",
    "poolClaim": "{} without the PoolClaim's units",
}


class _Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Asked(_Row, frozen=True):
    """So many units of a pool, and of them those that each container asks for."""

    pool: str
    units: int
    containers: Mapping[str, int]


class Held(_Row, frozen=True):
    """What the pod holds in one domain of a pool; `units` are the names that are known."""

    pool: str
    domain: str
    count: int
    units: tuple[str, ...]
    pool_claim: str
    since: datetime


class Holder(PodName, frozen=True, kw_only=True, rename="camel"):
    """Who holds units of a pool: a pod, or without a namespace, a use outside the cluster."""

    node: str
    domain: str
    count: int
    units: tuple[str, ...]
    state: str
    since: datetime


class DomainState(_Row, frozen=True):
    """A domain, and what it lacks for this pod. `refusal` is filter's own text, `rule` what kind of rule that
    comes from; both are empty where it can give what is asked.

    `free` is what this pod may have there, `resting` and `kept` what nobody, or only others, may have yet;
    `over` is in use beyond what there is; `nodes` are so many nodes that could be offered.
    """

    name: str
    free: int
    capacity: int
    missing: int
    over: int
    resting: int
    kept: int
    nodes: int
    rule: Rule
    refusal: str


class Retained(_Row, frozen=True):
    """Units that a pod left: nobody's until `rests_until`, then only for `owner` until `kept_until`."""

    domain: str
    count: int
    units: tuple[str, ...]
    owner: str
    rests_until: datetime | None
    kept_until: datetime | None


class PoolClaimState(_Row, frozen=True):
    """A PoolClaim that the pod names."""

    name: str
    state: Literal["free", "held", "refused", "unknown"]
    pool: str = ""
    count: int = 0
    units: tuple[str, ...] = ()
    holder: Holder | None = None


class PoolState(_Row, frozen=True):
    """A pool that the pod asks of. `refusals` are what no node can help; `lacks`: no node has what is asked.

    `domains` with least missing first; `unlabelled` nodes lack the label `topology_key`; `outside` are nodes
    that are not in the pool. `holders` are the oldest of `holder_count`, with those times of all of them:
    of the whole pool, or where a namespace's limit refuses, of that namespace, `holders_of`.
    """

    name: str
    asked: int
    scope: str
    topology_key: str
    lacks: bool
    refusals: tuple[str, ...]
    domains: tuple[DomainState, ...]
    unlabelled: tuple[str, ...]
    outside: tuple[str, ...]
    retained: tuple[Retained, ...]
    holders: tuple[Holder, ...]
    holders_of: str
    holder_count: int
    oldest_since: datetime | None
    median_since: datetime | None


class Refused(_Row, frozen=True):
    """Filter's text for these nodes."""

    text: str
    nodes: tuple[str, ...]


class Line(_Row, frozen=True):
    """The pod's place among those that wait for a pool, and the first of those who are before it."""

    pool: str
    place: int
    length: int
    before: tuple[PodName, ...]


class SchedulerWord(_Row, frozen=True):
    """What kube-scheduler says in the pod's condition PodScheduled."""

    status: str
    reason: str
    message: str
    since: datetime | None


class Explanation(PodName, frozen=True, kw_only=True, rename="camel"):
    """The answer, and what it rests on. `summary` is one sentence without the pod's name.

    `fitting` are the nodes that Berth would take, `cordoned` those that it would if they took pods;
    `remedies` are changes each of which would let the pod in, `lines` those of the pools that it lacks.
    `annotations` are those of the pod that its Pools have written.
    """

    uid: str
    verdict: Verdict
    summary: str
    scheduler: str
    priority: int
    created: datetime | None
    waits_since: datetime | None = None
    node: str = ""
    asks: tuple[Asked, ...] = ()
    pool_claims: tuple[PoolClaimState, ...] = ()
    holds: tuple[Held, ...] = ()
    refused: tuple[Refused, ...] = ()
    fitting: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()
    pools: tuple[PoolState, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    lines: tuple[Line, ...] = ()
    scheduler_says: SchedulerWord | None = None
    notes: tuple[str, ...] = ()
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


def without_ledger(pod: Pod, schedulers: Collection[str]) -> Explanation | None:
    """Return the explanation of a pod that waits for something else than pools; None: the ledger must say."""
    ours = ", ".join(schedulers)
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    if pod.spec.node_name or pod.finished:
        return None
    if scheduler not in schedulers:
        serves = f"Berth serves those of {ours} (BERTH_SCHEDULER_NAMES)"
        text = f"is not ours: its schedulerName is {scheduler}, and {serves}"
        told = _about(pod, "notOurs", text)
        asked = sorted(filter(is_ours, resources(pod)))
        notes = tuple(
            f"it asks for {name}, which only a scheduler that calls berth can give" for name in asked
        )
        return msgspec.structs.replace(told, notes=notes)
    if pod.metadata.deletion_timestamp is not None:
        return _about(pod, "ending", "is being deleted, and goes to no node any more")
    if pod.gated:
        text = f"is held back by its scheduling gates, before any scheduler looks at it: {pod.gates}"
        return _about(pod, "gated", text)
    return None


def explain(pod: Pod, view: View, nodes: Sequence[Node], now: float) -> Explanation:
    """Return why the pod waits, or what it holds, at this time (Unix seconds)."""
    if view.epoch is None:
        return _unknown(pod, "rebuilding", str(RebuildingError()))
    if (trouble := view.epoch.trouble()) is not None:
        return _unknown(pod, "paused", str(trouble))
    claims = [claim for claim in view.claims_of(pod.metadata.uid) if claim.state != "lost"]
    if pod.finished or pod.spec.node_name or claims:
        return _placed(pod, view, claims)
    demand = terms_of(view).demand(pod)
    if not demand.units and not demand.claims and demand.refusal is None:
        text = "asks nothing of Berth's pools: what it waits for is kube-scheduler's to say"
        return _about(pod, "nothingAsked", text)
    return _Waiting(pod, demand, view, nodes, now).explanation()


def _about(pod: Pod, verdict: Verdict, summary: str) -> Explanation:
    return Explanation(
        namespace=pod.namespace,
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        verdict=verdict,
        summary=summary,
        scheduler=pod.spec.scheduler_name or "default-scheduler",
        priority=pod.spec.priority or 0,
        created=when(pod.metadata.creation_timestamp),
        node=pod.spec.node_name or "",
    )


def _unknown(pod: Pod, verdict: Verdict, why: str) -> Explanation:
    where = _where(pod) if pod.finished or pod.spec.node_name else "waits"
    text = f"{where}: {why}" if where == "waits" else f"{where}; what it holds is not known now: {why}"
    return _about(pod, verdict, text)


def _where(pod: Pod) -> str:
    if pod.finished:
        return f"has finished ({pod.status.phase})"
    return f"{'runs on' if pod.status.phase == 'Running' else 'is bound to'} {pod.spec.node_name}"


def _placed(pod: Pod, view: View, claims: Sequence[Claim]) -> Explanation:
    """Return what a pod holds that is bound, or finished, or about to be bound."""
    holds = tuple(
        Held(
            pool=holding.pool,
            domain=holding.domain,
            count=holding.count,
            units=holding.units,
            pool_claim=holding.claim,
            since=_moment(claim.since),
        )
        for claim in claims
        for holding in wholes(claim)
    )
    told = ", ".join(f"{held.count} {held.pool}{_names(held.units)}" for held in holds)
    asked = terms_of(view).demand(pod).units
    if not pod.finished and not pod.spec.node_name:
        what = "has a seat with its gang" if claims[0].is_seat else "is being bound to"
        text = f"{what} {'on ' if claims[0].is_seat else ''}{claims[0].node}, with {told} reserved for it"
        about = _about(pod, "reserved", text)
    elif pod.finished:
        more = f"and still holds {told}" if holds else "and holds nothing"
        about = _about(pod, "finished", f"{_where(pod)} {more}")
    elif holds:
        about = _about(pod, "bound", f"{_where(pod)} and holds {told}")
    elif asked:
        asks = ", ".join(f"{count} {pool}" for pool, count in asked.items())
        text = f"asks {asks}, but the ledger has no claim for it: berth reconcile adopts it, or says why not"
        about = _about(pod, "bound", f"{_where(pod)} and {text}")
    else:
        about = _about(pod, "bound", f"{_where(pod)} and asks nothing of Berth's pools")
    asks_of = _asks(pod, asked, view)
    return msgspec.structs.replace(about, holds=holds, asks=asks_of, annotations=_written(pod, view, holds))


def _asks(pod: Pod, asked: Mapping[str, int], view: View) -> tuple[Asked, ...]:
    return tuple(
        Asked(pool=pool, units=count, containers=asking_containers(pod, view.pools[pool]))
        for pool, count in asked.items()
    )


def _written(pod: Pod, view: View, holds: Iterable[Held]) -> dict[str, str]:
    """Return the pod's annotations that the Pools of what it holds have written."""
    pools = (view.pools[held.pool] for held in holds if held.pool in view.pools)
    there = pod.metadata.annotations or {}
    return {key: there[key] for pool in pools for key in pool.annotations if key in there}


class _Waiting:
    """A pod that is on no node, and what filter would say of each node."""

    def __init__(self, pod: Pod, demand: Demand, view: View, nodes: Sequence[Node], now: float) -> None:
        self._pod, self._demand, self._view, self._now = pod, demand, view, now
        self._rank = rank_of(pod, view, now)
        shut = {node.metadata.name for node in nodes if node.spec.unschedulable}
        by_name = {node.metadata.name: node for node in nodes}
        self._cordoned = set() if pod.goes_to_unschedulable else shut
        self._open = {name: node for name, node in by_name.items() if name not in self._cordoned}
        self._names = sorted(self._open, key=natural)
        self._reasons = evaluate(pod, self._names, view, now).reasons
        self._fit = None if demand.refusal is not None else Fit(pod, demand, view, now)
        self._obstacles = [] if self._fit is None else self._fit.obstacles()
        self._requirements = [] if self._fit is None else self._fit.requirements()

    def explanation(self) -> Explanation:
        fitting = tuple(name for name in self._names if name not in self._reasons)
        pools = tuple(self._pool(name) for name in (self._demand.units if self._fit else ()))
        closed = evaluate(self._pod, self._cordoned, self._view, self._now).reasons
        cordoned = tuple(sorted(self._cordoned - closed.keys(), key=natural))
        ways = () if fitting else remedies(self._pod, self._view, self._open, cordoned, self._now)
        return msgspec.structs.replace(
            _about(self._pod, "fits" if fitting else "waits", self._summary(fitting, cordoned, pools)),
            asks=_asks(self._pod, self._demand.units, self._view),
            pool_claims=self._poolclaims(),
            refused=_grouped(self._reasons),
            fitting=fitting,
            cordoned=cordoned,
            pools=pools,
            remedies=ways,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        """Return what is to be known besides: that the pod's demand stays, or to which domains it keeps."""
        if self._demand.refusal is not None:
            return (_UNCHANGEABLE,)
        return self._turn() + self._lent() + self._read() + self._kept()

    def _read(self) -> tuple[str, ...]:
        """Return what is known of others' use of pools of which nothing new is given for want of that."""
        held = [obstacle.pool for obstacle in self._obstacles if obstacle.rule == "unread"]
        notes = ((pool, reading_told(self._view, pool, self._now)) for pool in held)
        return tuple(f"{pool}: {note}" for pool, note in notes)

    def _turn(self) -> tuple[str, ...]:
        """Return what is held for the pod, if it is first in line, and by when all of it is there."""
        uid = self._pod.metadata.uid
        told = turn_told(self._view, uid, self._now)
        if not told:
            return self._no_turn()
        times = [by for hold, _, by in self._held() if hold.uid == uid]
        known = [by for by in times if by is not None and by > self._now]
        last = f", all of it by {_clock(max(known))} if those that hold it end as they say" if known else ""
        return (told + (last if None not in times else ""),)

    def _no_turn(self) -> tuple[str, ...]:
        """Return why nothing is ever held for the pod: on no node can as much come free as it asks for."""
        pools = [self._view.pools[name] for name in self._demand.units]
        if sum(self._demand.units.values()) < 2 or any(pool.line.holds == "None" for pool in pools):
            return ()
        notes = (self._never(pool, self._demand.units[pool.name]) for pool in pools)
        return tuple(note for note in notes if note)

    def _never(self, pool: Pool, count: int) -> str:
        """Return what to say where nowhere so many units of the pool can come free, by what is known."""
        terms = terms_of(self._view)
        shares = self._view.free.get(pool.name) or Free()
        domains = {terms.place(pool.name, name) for name in self._open} & shares.keys()
        if not domains:
            return ""
        best = max(domains, key=lambda domain: obtainable(self._view, pool.name, domain, self._now))
        units, capacity = obtainable(self._view, pool.name, best, self._now), shares[best][1]
        if units >= count or capacity < count:
            return ""
        return (
            f"nothing is held for it: {units} of {capacity} units of {pool.name} in {best} can come free at "
            "most; the others are in use outside the cluster, lost with a node, or held by services, whose "
            "pods do not end"
        )

    def _lent(self) -> tuple[str, ...]:
        """Return to whom is lent, until when, what is held for a pod that is before this one in line."""
        told: list[str] = []
        for hold, key, by in self._held():
            pool, name = domain_of(key)
            if not self._view.at(key).bars(pool, name, self._rank, self._now) or by == self._now:
                continue
            what = f"what is held for {hold.label} of {pool} in {parse_domain(name).whole}"
            if by is not None:
                told.append(
                    f"{what} is lent to who is gone by {_clock(by - (hold.rests or 0))}{self._says()}"
                )
            elif self._rank.ends:
                told.append(f"{what} is lent to nobody: {self._why_not_lent(hold, pool)}")
        return tuple(dict.fromkeys(told))

    def _why_not_lent(self, hold: LineHold, pool: str) -> str:
        if hold.rests is not None:
            return "not all that hold the rest say how long they run"
        if self._view.pools[pool].returns_after is None:
            return "nobody knows when others may have what pods leave of it"
        return "a pod waits that is before that one in line"

    def _says(self) -> str:
        """Return why a pod is not lent what it could have."""
        if until := disbelieved_until(self._pod, self._view, self._now):
            who = owner_of(self._pod) or self._pod.label
            return f"; a pod of {who} ran longer than it said, so none is believed until {_clock(until)}"
        if mistake := mistake_in(self._pod):
            return f"; {mistake}"
        if not self._rank.ends:
            return f"; it does not say how long it runs ({RUNS_FOR}, activeDeadlineSeconds)"
        return f"; it would be gone by {_clock(self._rank.ends)}"

    def _held(self) -> list[tuple[LineHold, str, float | None]]:
        """Return what is held at places of the pools that the pod asks of, with the document's key, and when
        all of that is there at the latest."""
        holds = []
        for key, hold in sorted(self._view.line_holds.items()):
            pool, name = domain_of(key)
            if pool in self._demand.units and not parse_domain(name).is_quota:
                holds.append((hold, key, self._view.at(key).whole_by(pool, name, self._now)))
        return holds

    def _kept(self) -> tuple[str, ...]:
        if KEPT not in self._reasons.values():
            return ()
        owners = owners_of(self._pod)
        kept = {
            domain: left.kept_until
            for pool, domain in self._view.kept_for(owners, self._now)
            for part in self._view.parts(pool, domain).values()
            for left in part.retained_here
            if pool in self._demand.units and left.owner in owners
        }
        if not kept:
            return ("it goes only where units are free that its PoolClaim had before",)
        until, where = _clock(max(kept.values())), ", ".join(kept)
        return (f"units are kept for it in {where}: it goes nowhere else before {until}",)

    def _summary(self, fitting: Sequence[str], cordoned: Sequence[str], pools: Sequence[PoolState]) -> str:
        if fitting:
            more = f" and {len(fitting) - 1} more" if len(fitting) > 1 else ""
            return f"waits, but not for Berth's pools: they would let it in on {fitting[0]}{more}"
        if self._demand.refusal is not None:
            return f"waits: {self._demand.refusal}"
        lacking = [pool for pool in pools if pool.lacks and not pool.refusals]
        if self._obstacles:
            return f"waits: {'; '.join([*map(_told, self._obstacles), *map(_lack, lacking)])}"
        if not self._names and not cordoned:
            return "waits: the cluster has no node that takes pods"
        if cordoned:
            return f"waits: only nodes that are cordoned could take it: {', '.join(cordoned[:3])}"
        if lacking:
            return f"waits: {'; '.join(map(_lack, lacking))}"
        names = " and ".join(pool.name for pool in pools)
        return f"waits: no node has enough of {names} together, though each of them has room on some"

    def _pool(self, name: str) -> PoolState:
        pool = self._view.pools[name]
        requirements = [each for each in self._requirements if each.pool == name]
        refusals = tuple(obstacle.text for obstacle in self._obstacles if obstacle.pool == name)
        placed = {node: requirements[0].domain(node) for node in self._names}
        short = {node for requirement in requirements for node in requirement.short(self._names)}
        only = self._limited_to(name)
        holders = self._holders(pool, only)
        since = sorted(holder.since for holder in holders)
        return PoolState(
            name=name,
            asked=self._demand.units[name],
            scope=pool.spec.scope,
            topology_key=pool.spec.topology_key or "",
            lacks=bool(refusals) or len(short) == len(self._names),
            refusals=refusals,
            domains=self._domains(requirements, list(placed.values())),
            unlabelled=tuple(node for node, domain in placed.items() if domain == ""),
            outside=tuple(node for node, domain in placed.items() if domain is None),
            retained=self._retained(name),
            holders=tuple(holders[:_MOST_HOLDERS]),
            holders_of=only,
            holder_count=len(holders),
            oldest_since=since[0] if since else None,
            median_since=median_low(since) if since else None,
        )

    def _domains(
        self, requirements: Sequence[Requirement], placed: Sequence[str | None]
    ) -> tuple[DomainState, ...]:
        counts, owners, rows = Counter(placed), owners_of(self._pod), []
        plenty = requirements[0]
        for domain, (free, capacity) in plenty.free.items():
            texts = dict.fromkeys(filter(None, (each.refusal(domain) for each in requirements)))
            least = min(each.free[domain][0] if domain in each.free else 0 for each in requirements)
            over = below = 0
            if not free:
                over = max(0, -slack(self._view, plenty.pool, domain, owners, self._now, FIRST))
                below = max(0, -slack(self._view, plenty.pool, domain, owners, self._now, self._rank))
            missing = max(0, plenty.asked - least) + below
            resting, kept = withheld(self._view, plenty.pool, domain, self._now, owners)
            row = DomainState(
                name=domain,
                free=free,
                capacity=capacity,
                missing=missing,
                over=over,
                resting=resting,
                kept=kept,
                nodes=counts[domain],
                rule="",
                refusal="; ".join(texts),
            )
            rows.append(msgspec.structs.replace(row, rule=self._rule(plenty, row)) if texts else row)
        return tuple(sorted(rows, key=lambda row: (row.missing, bool(row.refusal), natural(row.name))))

    def _rule(self, plenty: Requirement, row: DomainState) -> Rule:
        """Return what kind of rule refuses in this domain."""
        if row.name in self._view.pools[plenty.pool].spec.suspended_domains:
            return "suspended"
        if row.name in plenty.not_here:
            claims = {elsewhere(plenty.pool, name) for name, *_ in self._demand.claims}
            return "poolClaim" if plenty.not_here[row.name] in claims else "limit"
        if row.name in plenty.held:
            return "held"
        if row.free >= plenty.asked:
            return "reserved"
        if row.free + row.resting >= plenty.asked:
            return "resting"
        return "kept" if row.free + row.resting + row.kept >= plenty.asked else "exhausted"

    def _retained(self, pool: str) -> tuple[Retained, ...]:
        rows = []
        for domain in sorted(self._view.names(pool), key=natural):
            for part in self._view.parts(pool, domain).values():
                rows += [
                    Retained(
                        domain=domain,
                        count=left.count,
                        units=left.units,
                        owner=left.owner,
                        rests_until=_moment(left.rest_until) if left.rest_until > self._now else None,
                        kept_until=_moment(left.kept_until) if left.kept_until > self._now else None,
                    )
                    for left in part.retained_here
                    if left.bars(owners_of(self._pod), self._now)
                ]
        return tuple(rows)

    def _limited_to(self, pool: str) -> str:
        """Return the namespace whose limit alone refuses the pod; empty: it is not that."""
        rules = {obstacle.rule for obstacle in self._obstacles if obstacle.pool == pool}
        return self._pod.namespace if rules == {"limit"} else ""

    def _holders(self, pool: Pool, only: str) -> list[Holder]:
        """Return who holds units of the pool, the oldest first: of one namespace (empty: of all)."""
        domains = self._view.domains.get(pool.name, {}).values()
        claims = {claim.uid: claim for domain in domains for claim in domain.claims.values()}
        rows = [
            _holder(claim, holding.domain, holding.count, holding.units)
            for claim in claims.values()
            if only in ("", claim.namespace)
            for holding in wholes(claim)
            if holding.pool == pool.name
        ]
        return sorted(rows, key=lambda row: (row.since, natural(str(row)), row.domain))

    def _poolclaims(self) -> tuple[PoolClaimState, ...]:
        rows, terms = [], terms_of(self._view)
        for name in _named(self._pod):
            there = terms.poolclaim(self._pod.namespace, name)
            unknown = PoolClaimState(name=name, state="unknown")
            rows.append(unknown if there is None else self._poolclaim(name, *there))
        return tuple(rows)

    def _poolclaim(self, name: str, pool: str, spec: PoolClaimSpec) -> PoolClaimState:
        quota = poolclaim_quota(f"{self._pod.namespace}/{name}")
        parts = self._view.parts(pool, quota).values()
        holders = [
            _holder(claim, held.domain, held.count, held.units)
            for part in parts
            for claim in part.claims.values()
            if claim.uid != self._pod.metadata.uid
            for held in wholes(claim)
            if (held.pool, held.claim) == (pool, name)
        ]
        return PoolClaimState(
            name=name,
            state="refused" if spec.refused else "held" if holders else "free",
            pool=pool,
            count=spec.count,
            units=spec.units,
            holder=holders[0] if holders else None,
        )


def _told(obstacle: Obstacle) -> str:
    """Return an obstacle in words for a headline."""
    return f"{obstacle.pool} is suspended" if obstacle.rule == "suspended" else obstacle.text


def _lack(pool: PoolState) -> str:
    """Return in words what no domain of a pool has."""
    best = next((domain for domain in pool.domains if domain.nodes), None)
    if best is None:
        why = f": none has the label {pool.topology_key}" if pool.unlabelled and not pool.outside else ""
        return f"no node is in a domain of {pool.name}{why}"
    counts = Counter(domain.rule for domain in pool.domains if domain.nodes)
    if len(counts) > 1:
        told = ", ".join(_RULES[rule].format(count) for rule, count in sorted(counts.items()))
        return f"no domain of {pool.name} can give {pool.asked}: {told}"
    if best.rule in ("suspended", "limit", "reserved", "held", "poolClaim"):
        return best.refusal
    if best.rule in ("resting", "kept"):
        return _waited_for(pool, best)
    domains = [domain for domain in pool.domains if domain.nodes]
    if len(domains) > 1:
        most = max(domains, key=lambda domain: domain.free)
        if not most.free:
            return f"no unit of {pool.name} is free in any of {len(domains)} domains, {pool.asked} asked"
        least = f"{most.name} has the most, {most.free} of {most.capacity}"
        return f"no domain of {pool.name} has {pool.asked} free: {least}"
    more = f", over-committed by {best.over}" if best.over else ""
    if pool.unlabelled:
        others = f" and {len(pool.unlabelled) - 1} more" if len(pool.unlabelled) > 1 else ""
        more += f"; without label {pool.topology_key}: {pool.unlabelled[0]}{others}"
    return f"{pool.name} has {best.free} of {best.capacity} free{_in(best)}, {pool.asked} asked{more}"


def _waited_for(pool: PoolState, domain: DomainState) -> str:
    what = [f"{domain.resting} rest" if domain.resting != 1 else "1 rests"] if domain.resting else []
    kept = f"{domain.kept} are kept" if domain.kept != 1 else "1 is kept"
    what += [f"{kept} for others"] if domain.kept else []
    counts = f"{domain.free} of {domain.capacity} free{_in(domain)}, {pool.asked} asked"
    return f"{pool.name} has {counts}, while {' and '.join(what)}"


def _in(domain: DomainState) -> str:
    return "" if domain.name == EVERYWHERE else f" in {domain.name}"


def _grouped(reasons: Mapping[str, str]) -> tuple[Refused, ...]:
    """Return filter's texts with their nodes, the most frequent first."""
    nodes: dict[str, list[str]] = {}
    for node, text in reasons.items():
        nodes.setdefault(text, []).append(node)
    groups = [Refused(text=text, nodes=tuple(sorted(names, key=natural))) for text, names in nodes.items()]
    return tuple(sorted(groups, key=lambda group: (-len(group.nodes), group.text)))


def _holder(claim: Claim, domain: str, count: int, units: tuple[str, ...]) -> Holder:
    name = pod_name(claim)
    return Holder(
        namespace=name.namespace,
        pod=name.pod,
        node=claim.node,
        domain=domain,
        count=count,
        units=units,
        state=claim.state,
        since=_moment(claim.since),
    )


def _named(pod: Pod) -> tuple[str, ...]:
    try:
        return named(pod)
    except ValueError:
        return ()


def _names(units: Iterable[str]) -> str:
    listed = ", ".join(units)
    return f" ({listed})" if listed else ""


def when(stamp: str | None) -> datetime | None:
    """Return the moment of a time stamp of Kubernetes; None where there is none that can be read."""
    seconds = unix_seconds(stamp)
    return None if seconds is None else _moment(seconds)


def _clock(seconds: float) -> str:
    return f"{_moment(seconds):%Y-%m-%d %H:%M:%S} UTC"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
