"""Pools and their domains as a View has them, counted: for `berth status`, the live view and a Pool's status.
Pure: it asks no store and no cluster, and is as far behind them as the View it is given."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from berth.api.pool import EVERYWHERE, Pool
from berth.ledger.free import Free
from berth.ledger.keys import PoolDomain, domain_of, namespace_quota, parse_domain
from berth.ledger.model import Domain, Rank
from berth.ledger.readings import ReadingState, head_key, noted, reading_state, told
from berth.ledger.view import View

_TROUBLES = 3  # that a headline tells of
_FEW = 3  # names in a note

_NUMBER = re.compile(r"([0-9]+)")


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    pass


class LimitRow(_Row, frozen=True, kw_only=True):
    """What the pods of one namespace may hold of a pool. `used` is what counts against the limit, with units
    that they left and that rest or are kept; None for `*`, which is any other namespace."""

    namespace: str
    used: int | None
    limit: int


class DomainRow(_Row, frozen=True, kw_only=True):
    """One domain. `capacity` None: the pool has no share here any more, but pods still hold units;
    `binding` units are among those used, their pods not bound yet (`reserved` says the same).

    Nobody gets the `resting` units yet, the `kept` ones only their last pods, and those `held_in_line` only
    the pod `first_in_line` (namespace/name); none of them are free. `lost` units are used by pods that are
    gone. Of the free ones `priority_only` are for pods of some priority.
    """

    name: str
    capacity: int | None
    used: int
    free: int
    reserved: int
    binding: int
    suspended: bool = False
    resting: int = 0
    kept: int = 0
    lost: int = 0
    priority_only: int = 0
    held_in_line: int = 0
    first_in_line: str = ""

    @property
    def over(self) -> int:
        """Return units used beyond the capacity."""
        return max(0, self.used - (self.capacity or 0))

    @property
    def given(self) -> int:
        """Return the free units that some pod may have."""
        return 0 if self.suspended else self.free


class PoolRow(_Row, frozen=True, kw_only=True):
    """A pool in all, and its domains, of which it has the sums. `waiting` None: nobody could say how many
    pods wait for it.

    Nothing is given of a pool that is `suspended` or `held_back`. `external` units are used outside the
    cluster. Where that is read, `external_state` is what the last reading is worth (fresh, ignored, stale or
    never: with the last two nothing is given), `external_age` how many seconds old it is, and `external_note`
    says what is wrong with it. Pods of `priority_at_least` may have the units that are `priority_only`.
    """

    name: str
    capacity: int
    used: int
    free: int
    reserved: int
    binding: int
    waiting: int | None
    over_committed: int
    suspended: bool = False
    suspended_domains: tuple[str, ...] = ()
    held_back: bool = False
    lost: int = 0
    resting: int = 0
    kept: int = 0
    held_in_line: int = 0
    first_in_line: str = ""
    external: int = 0
    external_state: str = ""
    external_age: float | None = None
    external_note: str = ""
    priority_only: int = 0
    priority_at_least: int | None = None
    preemption: str = "None"
    limits: tuple[LimitRow, ...] = ()
    domains: tuple[DomainRow, ...]

    @property
    def unread(self) -> bool:
        """Whether nothing is given for want of a reading of what others use."""
        return self.external_state in ("stale", "never")

    @property
    def given(self) -> int:
        """Return the free units that some pod may have."""
        return 0 if self.held_back or self.unread else sum(row.given for row in self.domains)


def names(view: View) -> list[str]:
    """Return the pools that the ledger knows, and those taken away of which pods still hold units."""
    held = {pool for pool in view.domains if view.names(pool)}
    return sorted({*view.pools, *held}, key=natural)


def pool_rows(
    view: View, waiting: Mapping[str, int] | None = None, only: str | None = None, now: float | None = None
) -> list[PoolRow]:
    """Return pools by name with their domains; `waiting` is the number of pods by pool, None if it is not
    known. What rests or is kept at the time `now` (Unix seconds), and what a reading is worth then, is told
    only if that is given."""
    lost = _lost(view)
    return [
        _pool_row(name, view, None if waiting is None else waiting.get(name, 0), lost, now)
        for name in names(view)
        if only in (None, name)
    ]


def headline(rows: Sequence[PoolRow], waiting: int | None) -> str:
    """Return in a line how the pools are: what is free that some pod may have, who waits, and what is wrong;
    `waiting` pods wait for any of them, None if that is not known."""
    if not rows:
        return "no pools yet: berth apply -f FILE makes some"
    pools = counted(len(rows), "pool")
    free = f"{sum(row.given for row in rows)} of {counted(sum(row.capacity for row in rows), 'unit')} free"
    waits = f"{waiting} pod{' waits' if waiting == 1 else 's wait'}"
    calm = ", ".join([pools, free, "who waits is not known" if waiting is None else waits])
    troubles = [f"{row.name} {trouble}" for row in rows for trouble in _troubles(row)]
    more = [f"and {len(troubles) - _TROUBLES} more"] if len(troubles) > _TROUBLES else []
    return "; ".join(filter(None, [calm, ", ".join([*troubles[:_TROUBLES], *more])]))


def pool_notes(pool: PoolRow) -> list[str]:
    """Return what a pool's numbers don't say, above all why free units are not given."""
    held = "held back since the ledger was lost: berth reconcile" if pool.held_back else ""
    places = "" if pool.suspended else _few(pool.suspended_domains)
    preempts = pool.preemption == "Native" and pool.free and pool.waiting
    return [
        *filter(None, [held, places and f"suspended: {places}"]),
        *_notes(pool, pool.over_committed, pool.priority_at_least),
        *([f"{pool.external} used outside the cluster"] if pool.external else []),
        *([pool.external_note] if pool.external_note else []),
        *(["what is free may be for a pod that preempts"] if preempts else []),
        *([f"limits: {_limit_notes(pool.limits)}"] if pool.limits else []),
    ]


def domain_notes(row: DomainRow) -> list[str]:
    """Return what a domain's numbers don't say."""
    return _notes(row, row.over, None)


def _notes(row: PoolRow | DomainRow, over: int, priority: int | None) -> list[str]:
    """Return what is to be said of a pool as of a domain; only a pool's row knows the priority."""
    least = "a priority" if priority is None else f"priority >= {priority}"
    lost = "a lost pod" if row.lost == 1 else "lost pods"
    notes = {
        "suspended": row.suspended,
        f"over-committed by {over}": over,
        f"{row.lost} held for {lost}: berth release": row.lost,
        f"{row.priority_only} reserved for {least}": row.priority_only,
        f"{row.resting} resting": row.resting,
        f"{row.kept} kept for their last pods": row.kept,
        f"{row.held_in_line} held for {row.first_in_line}, first in line": row.held_in_line,
    }
    return [text for text, there in notes.items() if there]


def _limit_notes(limits: Sequence[LimitRow]) -> str:
    """Return the limits, those that leave nothing first; the last is that of all other namespaces."""
    named = sorted(
        (row for row in limits if row.used is not None), key=lambda row: (row.used or 0) < row.limit
    )
    others = [f"* {row.limit}" for row in limits if row.used is None]
    return _few([f"{row.namespace} {row.used}/{row.limit}" for row in named], others)


def _few(texts: Sequence[str], always: Sequence[str] = ()) -> str:
    more = [f"{len(texts) - _FEW} more"] if len(texts) > _FEW else []
    return ", ".join([*texts[:_FEW], *more, *always])


def _troubles(row: PoolRow) -> list[str]:
    """Return what a person should know at once about a pool."""
    idle = f" ({counted(row.free, 'free unit')} not given)" if row.free else ""
    places = f"in {row.suspended_domains[0]}" if len(row.suspended_domains) == 1 else "in part"
    troubles = {
        f"is suspended{idle}": row.suspended,
        f"is suspended {places}": row.suspended_domains,
        f"is over-committed by {row.over_committed}": row.over_committed,
        f"is held back{idle}": row.held_back,
        f"gives nothing new: what others use is not read{idle}": row.unread,
        f"has {counted(row.lost, 'unit')} held for lost pods": row.lost,
    }
    return [text for text, there in troubles.items() if there]


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lost(view: View) -> Counter[PoolDomain]:
    """Return the units that pods hold which are gone, by pool and domain."""
    counts = Counter[PoolDomain]()
    for holding in (holding for claim in view.lost() for holding in claim.holdings):
        counts[holding.pool, holding.whole] += holding.count
    return counts


def _pool_row(
    name: str, view: View, waiting: int | None, lost: Mapping[PoolDomain, int], now: float | None
) -> PoolRow:
    pool = view.pools.get(name)
    state = None if pool is None or now is None else reading_state(pool, view.at(head_key(name)), now)
    rows = tuple(_domain_row(name, place, view, lost, now) for place in sorted(view.names(name), key=natural))
    return PoolRow(
        name=name,
        capacity=sum(row.capacity or 0 for row in rows),
        used=sum(row.used for row in rows),
        free=sum(row.free for row in rows),
        reserved=sum(row.reserved for row in rows),
        binding=sum(row.binding for row in rows),
        waiting=waiting,
        over_committed=sum(row.over for row in rows),
        suspended=pool is not None and pool.spec.suspended is True,
        suspended_domains=() if pool is None else pool.spec.suspended_domains,
        held_back=pool is not None and pool.resource in view.held,
        lost=sum(row.lost for row in rows),
        resting=sum(row.resting for row in rows),
        kept=sum(row.kept for row in rows),
        held_in_line=sum(row.held_in_line for row in rows),
        first_in_line=next(filter(None, (row.first_in_line for row in rows)), ""),
        external=0 if pool is None else external_units(pool, view),
        external_state="" if state is None else state.state,
        external_age=None if state is None else state.age,
        external_note=_reading_note(pool, state),
        priority_only=sum(row.priority_only for row in rows),
        priority_at_least=pool.spec.reserved.priority_at_least if pool and pool.spec.reserved else None,
        preemption="None" if pool is None else pool.spec.preemption,
        limits=() if pool is None else tuple(_limits(pool, view)),
        domains=rows,
    )


def _domain_row(
    pool: str, name: str, view: View, lost: Mapping[PoolDomain, int], now: float | None
) -> DomainRow:
    parts, spec = view.parts(pool, name), view.pools.get(pool)
    share = view.free.get(pool, Free()).get(name)
    free = 0 if share is None else share[0]
    binding = sum(_binding(pool, part, domain) for part, domain in parts.items())
    resting, kept = (0, 0) if now is None else withheld(view, pool, name, now)
    return DomainRow(
        name=name,
        capacity=None if share is None else share[1],
        used=sum(domain.used(pool, part) for part, domain in parts.items()),
        free=free,
        reserved=binding,
        binding=binding,
        suspended=spec is not None and spec.suspends(name),
        resting=resting,
        kept=kept,
        held_in_line=sum(view.held_at(pool, part, 0.0 if now is None else now) for part in parts),
        first_in_line=next((hold.label for part in parts.values() if (hold := part.line_hold)), ""),
        lost=lost.get((pool, name), 0),
        priority_only=_priority_only(pool, name, view, free),
    )


def _binding(pool: str, name: str, domain: Domain) -> int:
    reserved = {uid: claim for uid, claim in domain.claims.items() if claim.state == "reserved"}
    return Domain(claims=reserved).used(pool, name) if reserved else 0


def withheld(view: View, pool: str, domain: str, now: float, owners: Collection[str] = ()) -> tuple[int, int]:
    """Return how many of a domain's units that nobody uses rest, and how many are kept for others than these
    owners; none where more is used than there is."""
    parts = {} if view.document(pool, domain).closed else view.parts(pool, domain)
    resting = kept = 0
    for name, part in parts.items():
        if part.retained:
            everybody = {*owners, *(left.owner for left in part.retained)}
            mine = part.room(pool, name, owners, now)
            somebody = part.room(pool, name, everybody, now)
            later = part.room(pool, name, (), float("inf"))
            kept, resting = kept + somebody - mine, resting + later - somebody
    return resting, kept


def turn_told(view: View, uid: str, now: float) -> str:
    """Return in words what is held for this pod, the first in line, so far; empty where it is not that."""
    turns: dict[PoolDomain, tuple[int, int]] = {}
    for key, hold in view.line_holds.items():
        pool, name = domain_of(key)
        parsed = parse_domain(name)
        if hold.uid == uid and not parsed.is_quota:
            room = view.document(pool, name).room(pool, name, (), now, rank=Rank(uid))
            had, of = turns.get((pool, parsed.whole), (0, 0))
            turns[pool, parsed.whole] = had + min(room, hold.count), of + hold.count
    told = [f"{had} of {of} of {pool} in {domain}" for (pool, domain), (had, of) in sorted(turns.items())]
    return f"it is first in line: what comes free is held for it, so far {', '.join(told)}" if told else ""


def _reading_note(pool: Pool | None, state: ReadingState | None) -> str:
    source = None if pool is None else pool.external_from
    return "" if source is None or state is None else noted(state, source.stale_after_seconds)


def reading_told(view: View, pool: str, now: float) -> str:
    """Return in words when it was read last what others use of the pool; empty where nothing is read."""
    there = view.pools.get(pool)
    state = None if there is None else reading_state(there, view.at(head_key(pool)), now)
    if there is None or state is None or there.external_from is None:
        return ""
    return told(state, there.external_from.stale_after_seconds)


def _priority_only(pool: str, name: str, view: View, free: int) -> int:
    share = view.unreserved.get(pool, Free()).get(name)
    return 0 if share is None else max(0, free - share[0])


def external_units(pool: Pool, view: View) -> int:
    """Return how many units are used outside the cluster, as the ledger has it."""
    if pool.spec.scope != "Cluster":
        return 0
    claims = (claim for part in view.parts(pool.name, EVERYWHERE).values() for claim in part.claims.values())
    held = (holding for claim in claims if claim.is_external for holding in claim.at_places(pool.name))
    return sum(holding.count for holding in held)


def _limits(pool: Pool, view: View) -> list[LimitRow]:
    """Return the limits of namespaces that the Pool names, and of those that hold units; `*` is the last."""
    limits, quotas = pool.spec.limits, view.quotas.get(pool.name, Free())
    if not limits:
        return []
    parsed = [parse_domain(name) for name in quotas]
    holding = {name.namespace for name in parsed if name.kind == "namespace"}
    rows = []
    for namespace in sorted({*limits, *holding} - {"*"}, key=natural):
        limit, used = pool.limit(namespace), _used_of_limit(pool.name, namespace, view)
        if limit is not None and (used or namespace in limits):
            rows.append(LimitRow(namespace=namespace, used=used, limit=limit))
    others = [LimitRow(namespace="*", used=None, limit=limits["*"])] if "*" in limits else []
    return rows + others


def _used_of_limit(pool: str, namespace: str, view: View) -> int:
    quota = namespace_quota(namespace)
    share = view.quotas.get(pool, Free()).get(quota)
    used = sum(part.used(pool, name) for name, part in view.parts(pool, quota).items())
    return used if share is None else max(used, share[1] - share[0])


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts node-2 before node-10."""
    parts = _NUMBER.split(name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)], name
