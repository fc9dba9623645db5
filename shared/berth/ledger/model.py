"""What the ledger keeps in its store: the epoch, Pools, nodes' places, and domains with the claims on them.
Counts are derived here from claims, each time a document is read; none is ever stored."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.units import Units
from berth.errors import MovedError, PausedError, StoreFailedError
from berth.ledger.keys import POOL, UNFENCED, DomainName, domain_key, owner_of_kept, parse_domain
from berth.stores.base import EPOCH, Document

T = TypeVar("T")

COPY = "copy "  # begins the body of REBUILD where a copy fills the ledger
EXTERNAL = "external:"  # begins the holder's name where it is no pod: no pod's UID looks so
EXTERNAL_NAME = "external use"  # the name of such a claim, for people

# Without gc: there are tens of thousands, they hold no cycles, and Python's collector would go through all of
# them every few calls (26 ms for 25,000 claims, ten times what a filter call costs).


class Holding(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Units of one pool in one domain, or in one stripe of it (`zone-a#3`).

    `units` are their names in a named pool; `claim` is the PoolClaim that gave them.
    """

    pool: str
    domain: str
    count: int
    units: tuple[str, ...] = ()
    claim: str = ""

    @property
    def key(self) -> str:
        return domain_key(self.pool, self.domain)

    @property
    def name(self) -> DomainName:
        return parse_domain(self.domain)

    @property
    def whole(self) -> str:
        """Return the domain, of which `domain` may be a stripe."""
        return parse_domain(self.domain).whole

    @property
    def is_quota(self) -> bool:
        """Whether it is of no place but of a quota: a namespace's limit, a PoolClaim and the like."""
        return parse_domain(self.domain).is_quota


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """What one pod holds, all or nothing; it stands in every domain it draws from, naming all.

    `attempt` names the bind call that reserved it last, `since` when (Unix seconds). `owner` is who made the
    pod, for pools whose units are kept for its next one. A `lost` claim's pod is gone, but its node may still
    use the units. `grace` is the time, in seconds, that the pod has to end once it is told to. `made` is when
    the pod was created, `began` when it was bound, where no bind of ours knows: the journal counts by them.
    `gang` names the pods of its namespace with which it gets its units together; `seat_until` is until when
    (Unix seconds) they wait for it, where it was reserved by the bind of another of these; `seated` is when
    it got what it holds, once a bind of its own has taken that.
    `ends` is when the pod is gone at the latest, by what it declares; 0: it does not say. `priority` is the
    pod's, where pods may be evicted for the units that it holds; None: nobody knows.
    """

    uid: str
    namespace: str
    name: str
    node: str
    holdings: tuple[Holding, ...]
    state: Literal["reserved", "bound", "lost"] = "reserved"
    attempt: str = ""
    since: float = 0.0
    owner: str = ""
    grace: int = 30
    made: float = 0.0
    began: float = 0.0
    gang: str = ""
    seat_until: float = 0.0
    seated: float = 0.0
    ends: float = 0.0
    priority: int | None = None

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def gang_label(self) -> str:
        """Return its gang as namespace/name; empty where it is of none."""
        return f"{self.namespace}/{self.gang}" if self.gang else ""

    @property
    def is_seat(self) -> bool:
        """Whether it is a seat: reserved with the rest of its gang, and no bind of its pod has taken it."""
        return self.state == "reserved" and not self.attempt and bool(self.gang)

    @property
    def held_since(self) -> float:
        """Return when what it holds was reserved, also where another attempt has taken that over."""
        return self.seated or self.since

    @property
    def is_awaited(self) -> bool:
        """Whether it is a seat that the others of its gang wait with, and not a claim of a pod that runs."""
        return self.is_seat and self.seat_until > 0.0

    @property
    def debtor(self) -> str:
        """Return who answers for what the pod declares: its owner, or itself where it has none."""
        return self.owner or self.label

    @property
    def is_external(self) -> bool:
        """Whether it stands for use outside the cluster, and no pod holds it."""
        return self.uid.startswith(EXTERNAL)

    @property
    def units(self) -> frozenset[tuple[str, str]]:
        """Return the names of its units, each with its pool: units of two pools may have one name."""
        return frozenset((holding.pool, unit) for holding in self.holdings for unit in holding.units)

    def at_places(self, pool: str) -> list[Holding]:
        """Return what it holds of the pool, without quotas."""
        return [holding for holding in self.holdings if holding.pool == pool and not holding.is_quota]

    def logical(self) -> tuple[Holding, ...]:
        """Return its holdings by whole domains, without units' names: what was asked for it."""
        return tuple(replace(holding, units=()) for holding in by_whole(self.holdings))

    def is_for(self, wanted: "Claim", pools: Collection[str]) -> bool:
        """Whether it holds what is wanted, and of these Pools nothing else. What it holds of Pools that are
        gone it keeps."""
        held = (holding for holding in self.logical() if holding.pool in pools)
        return tuple(held) == wanted.logical()


class RetainedUnits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Units that a pod has left: nobody's until `rest_until`, and only `owner`'s until `kept_until`.

    The quotas of their holder, such as its namespace's limit, count them as long, for others could have had
    them: there `owner` is `kept_at`. `left` is when the pod left them; 0: an earlier version of Berth did not
    note it.
    """

    count: int
    units: tuple[str, ...] = ()
    owner: str = ""
    rest_until: float = msgspec.field(default=0.0, name="rest")
    kept_until: float = msgspec.field(default=0.0, name="kept")
    left: float = 0.0

    @property
    def until(self) -> float:
        return max(self.rest_until, self.kept_until)

    def stands(self, now: float) -> bool:
        return now < self.until

    def only(self, wanted: Callable[[str], bool]) -> "RetainedUnits | None":
        """Return what is left without the named units that are not wanted; None if that is nothing."""
        units = tuple(filter(wanted, self.units))
        if len(units) == len(self.units):
            return self
        count = self.count - len(self.units) + len(units)
        return replace(self, count=count, units=units) if count else None

    def bars(self, owners: Collection[str], now: float) -> bool:
        return now < self.rest_until or (now < self.kept_until and self.owner not in owners)

    def may_be_of(self, claim: Claim) -> bool:
        """Whether the claim may have units of these: they are kept for its pod, and their rest was over when
        it was reserved. A gang's seats were often reserved before they were left: they have others."""
        if not self.owner or self.rest_until > claim.since:
            return False
        if claim.seat_until and self.left > claim.held_since:
            return False
        if self.owner in (claim.label, claim.owner):
            return True
        owner, where = owner_of_kept(self.owner)
        mine = bool(owner) and owner in (claim.label, claim.owner)
        return mine and any(where == (holding.pool, holding.whole) for holding in claim.holdings)


def _is_between(after: float, left: RetainedUnits, now: float) -> bool:
    return any(after <= time <= now for time in (left.rest_until, left.kept_until))


class EndedUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod held until it ended, noted for the journal until reconcile has counted it; times in Unix
    seconds, `made` (when the pod was created) 0 where nobody knows."""

    namespace: str
    count: int
    made: float
    start: float
    end: float
    pod: str = ""
    node: str = ""


class Rank(NamedTuple):
    """Who asks for units: a pod's UID, its priority, and when it was made (Unix seconds; inf: nobody knows).
    By these it is before or behind in line.

    `ends` is when it would be gone at the latest if it had them now; 0: it does not say, inf: it is not
    believed. `gang` is the gang that it is of, `label` the pod itself, as namespace/name.
    """

    uid: str = ""
    priority: int = -(2**31)
    made: float = inf
    ends: float = 0.0
    gang: str = ""
    label: str = ""


def place_in_line(priority: int, made: float, label: str) -> tuple[int, float, str]:
    """Return what orders pods in line, the first in line first: by priority, then by age, then by
    namespace/name, for Kubernetes knows the age of a pod in whole seconds."""
    return -priority, made, label


LAST = Rank()
"""Every line hold stands in its way: what is free for this one is free for everybody."""

FIRST = Rank(priority=2**31)
"""No line hold stands in its way: no pod has so high a priority."""


class LineHold(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Units that are kept for a pod that waits, the first in line, until they are as many as it asks for.

    The pod's own claims count as part of it. `label` is its namespace/name; `made` is when the pod was
    created, `since` when this was placed (Unix seconds). So many seconds after a pod is gone its units are
    free here: they rest (`rests`); None: none are lent to others meanwhile. With a `gang` (namespace/name)
    they are for all of its pods together.
    """

    uid: str
    label: str
    count: int
    priority: int = 0
    made: float = 0.0
    since: float = 0.0
    rests: int | None = None
    gang: str = ""

    def is_for(self, uid: str, gang: str) -> bool:
        """Whether they are for the pod with this UID, which is of this gang (empty: of none)."""
        return uid == self.uid or (bool(gang) and gang == self.gang)

    def bars(self, rank: Rank, whole_by: Callable[[], float | None]) -> bool:
        """Whether these units are not for a pod of this rank: it is another, not before this one, and not
        sure to be gone before all of them are there. `whole_by` tells when that is; None: nobody knows."""
        place = place_in_line(rank.priority, rank.made, rank.label)
        if place < place_in_line(self.priority, self.made, self.label) or self.is_for(rank.uid, rank.gang):
            return False
        by = whole_by() if 0.0 < rank.ends < inf else None
        return by is None or rank.ends + (self.rests or 0) > by


class Reading(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When it was read last what others use of a pool (Unix seconds; 0: never), and by which source (the
    mark of api.pool.ExternalFrom). `failed` says why a later try came to nothing."""

    at: float = 0.0
    mark: str = ""
    failed: str = ""


MOST_ENDED = 256
"""Notes that one document takes until reconcile has counted them; of more the oldest are forgotten."""


class Freed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Units that came free `at` that time (Unix seconds) while so many pods were `waiting` for units of the
    pool: for a moment filter leaves them to the pods that are woken for them. It is passed over later."""

    at: float
    count: int
    waiting: int


Refusal = Literal["", "unlisted", "forbidden"]


class PoolClaimSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a PoolClaim is for, and what its last holder had (`domain` and `had`).

    One that is `refused` gives nobody anything: its Pool does not list all units that it names, or lets its
    namespace not claim them. They are not kept here, since users choose these names.
    """

    count: int
    units: tuple[str, ...] = ()
    domain: str = ""
    had: tuple[str, ...] = ()
    refused: Refusal = ""


class Domain(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A domain's capacity (None: the pool has no share here any more) and its claims by pod UID.

    `units` are the names of its units in a named pool (as `Units.entries` has them), `retained` those that
    rest, or are kept for somebody. With `stripes` the claims stand in so many documents `DOMAIN#0` and on,
    each with a part of the capacity; while it is `closed`, more is used than there is, and nothing new is
    given. `poolclaim` is there where it is a PoolClaim's document. `ended` is what the journal has to count.
    `line_hold` is for the first in line. `reading` is there where what others use is read; where there are
    stripes it stands in the head. `freed` came free last, while pods waited.
    """

    capacity: int | None = None
    claims: dict[str, Claim] = {}
    units: tuple[str, ...] | None = None
    retained: tuple[RetainedUnits, ...] = msgspec.field(default=(), name="left")
    stripes: int = 0
    closed: bool = False
    poolclaim: PoolClaimSpec | None = msgspec.field(default=None, name="wants")
    ended: tuple[EndedUse, ...] = ()
    line_hold: LineHold | None = msgspec.field(default=None, name="hold")
    reading: Reading | None = msgspec.field(default=None, name="read")
    freed: Freed | None = None

    def used(self, pool: str, domain: str) -> int:
        return sum(holding.count for _, holding in self._holdings(pool, domain))

    def held(self, pool: str, domain: str) -> set[str]:
        """Return the names of units that pods hold."""
        return {unit for _, holding in self._holdings(pool, domain) for unit in holding.units}

    def room(
        self,
        pool: str,
        domain: str,
        owners: Collection[str] = (),
        now: float = 0.0,
        own: int = 0,
        rank: Rank = LAST,
    ) -> int:
        """Return how many units a pod of these owners may have, with the `own` that it holds here already.

        What it holds is not held for another, whoever is first in line by now."""
        with_own = self.slack(pool, domain, owners, now, FIRST) + own
        if self.line_hold is None:
            return max(0, with_own)
        return max(0, min(with_own, max(own, with_own - self._held_in_line(pool, domain, rank, now))))

    def slack(
        self, pool: str, domain: str, owners: Collection[str] = (), now: float = 0.0, rank: Rank = LAST
    ) -> int:
        """Return what these owners may have more; below 0 where more is in use, or held for the first in
        line, than there is."""
        left = (self.capacity or 0) - self.used(pool, domain) - self._barred(pool, domain, owners, now)
        return left if self.line_hold is None else left - self._held_in_line(pool, domain, rank, now)

    @property
    def size(self) -> int | tuple[str, ...] | None:
        """Return its capacity; in a named pool its units' names."""
        return self.capacity if self.units is None else self.units

    @property
    def empty(self) -> bool:
        """Whether the document says nothing. Retained units are remembered while their node is away."""
        return self.capacity is None and not (self.claims or self.stripes or self.retained or self.ended)

    @property
    def retained_here(self) -> tuple[RetainedUnits, ...]:
        """Return the retained units without those that are listed here no more: nobody gets those here."""
        if self.units is None or not self.retained:
            return self.retained
        there = Units.of(self.units)
        listed = (units.only(there.__contains__) for units in self.retained)
        return tuple(units for units in listed if units is not None)

    def barred(self, owners: Collection[str], now: float) -> set[str]:
        """Return the names of retained units that these owners may not have."""
        return {unit for left in self.retained if left.bars(owners, now) for unit in left.units}

    def next_change(self, now: float) -> float | None:
        """Return when more of the retained units may be given, at the earliest; None: never by time alone."""
        if not self.retained:
            return None
        times = (time for left in self.retained for time in (left.rest_until, left.kept_until) if time > now)
        return min(times, default=None)

    def came_free(self, after: float, now: float) -> int:
        """Return how many retained units rest no more, or are kept for nobody any more, since then."""
        ended = (left for left in self.retained if _is_between(after, left, now))
        return sum(left.count for left in ended)

    def _barred(self, pool: str, domain: str, owners: Collection[str], now: float) -> int:
        """Return how many retained units these owners may not have, and no pod holds."""
        if not self.retained:
            return 0
        nameless = sum(self.nameless(pool, domain, owners, now))
        barring = (
            [left for left in self.retained_here if left.bars(owners, now)] if self.units is not None else []
        )
        names = {unit for left in barring for unit in left.units}
        return nameless + (len(names - self.held(pool, domain)) if names else 0)

    def nameless(self, pool: str, domain: str, owners: Collection[str], now: float) -> list[int]:
        """Return, for each of `retained`, how many units without names these owners may not have.

        Those that whom they are kept for has reserved are counted as used; once it is bound, they are kept
        no more. What was reserved while they rested is none of them.
        """
        named = self.units is not None
        counts = [left.count - len(left.units) if named else left.count for left in self.retained]
        counts = [n if left.bars(owners, now) else 0 for n, left in zip(counts, self.retained, strict=True)]
        kept = [number for number, left in enumerate(self.retained) if left.owner and left.rest_until <= now]
        for claim, holding in self._holdings(pool, domain) if any(counts[number] for number in kept) else ():
            if claim.state != "reserved":
                continue
            mine = holding.count - len(holding.units) if named else holding.count
            for number in (number for number in kept if self.retained[number].may_be_of(claim)):
                had = min(mine, counts[number])
                counts[number], mine = counts[number] - had, mine - had
        return counts

    def bars(self, pool: str, domain: str, rank: Rank, now: float) -> bool:
        """Whether something is held here for the first in line that is not for a pod of this rank."""
        hold = self.line_hold
        return hold is not None and hold.bars(rank, lambda: self.whole_by(pool, domain, now))

    def lends(self, pool: str, domain: str, rank: Rank, now: float) -> bool:
        """Whether a pod of this rank could have what is held here for another by declaring a time that is
        short enough: not where nobody knows what would be, nor if it is not believed."""
        by = None if rank.ends == inf else self.whole_by(pool, domain, now)
        return by is not None and by > now

    def whole_by(self, pool: str, domain: str, now: float) -> float | None:
        """Return when all that is held here for the first in line has come free at the latest, by what the
        pods that hold it declare: now, if it has; None: nobody knows.

        What is lent until then does not change it: the loan is back by then.
        """
        hold = self.line_hold
        if hold is None:
            return None
        lacks = self._lacked(hold, pool, domain) - self.slack(pool, domain, (), now, FIRST)
        if lacks <= 0 or hold.rests is None:
            return None if lacks > 0 else now
        barred = self._barred(pool, domain, (), now)
        comes = [
            (claim.ends + hold.rests, holding.count)
            for claim, holding in self._holdings(pool, domain)
            if claim.ends > now and claim.uid != hold.uid and claim.state != "lost"
        ]
        comes += [(left.until, 0) for left in self.retained if left.bars((), now)] if barred else []
        came = 0
        for time, count in sorted(comes):
            came += count
            rested = barred - self._barred(pool, domain, (), time) if barred else 0
            if came + rested >= lacks:
                return time
        return None

    def _held_in_line(self, pool: str, domain: str, rank: Rank, now: float) -> int:
        """Return how many units are held for another pod, the first in line, and not its own already."""
        hold = self.line_hold
        if hold is None or not self.bars(pool, domain, rank, now):
            return 0
        return self._lacked(hold, pool, domain)

    def _lacked(self, hold: LineHold, pool: str, domain: str) -> int:
        """Return how many units the first in line has not yet of what is for it here. A gang has none of it:
        its next claim ends the hold (`transitions.with_claim`), and those before were not asked for again."""
        if hold.gang or hold.uid not in self.claims:
            return hold.count
        holdings = self.claims[hold.uid].holdings
        had = sum(one.count for one in holdings if (one.pool, one.domain) == (pool, domain))
        return max(0, hold.count - had)

    def _holdings(self, pool: str, domain: str) -> Iterator[tuple[Claim, Holding]]:
        for claim in self.claims.values():
            for holding in claim.holdings:
                if holding.pool == pool and holding.domain == domain:
                    yield claim, holding


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mark that the ledger may be trusted; `since` in Unix seconds.

    `to` names the store that a copy of the ledger goes to, as it may be shown: claims are paused meanwhile.
    `moved` means that the copy is what counts now. Every commit expects the epoch as it was: what was decided
    before is refused. Of the resources in `held` nothing is given: see UNFENCED and decision 0026.
    """

    id: str
    since: float
    to: str = ""
    moved: bool = False
    held: tuple[str, ...] = ()

    @property
    def paused(self) -> bool:
        return bool(self.to) and not self.moved

    def trouble(self) -> PausedError | MovedError | None:
        """Return why nothing may be claimed or freed here."""
        if self.moved:
            return MovedError(self.to)
        return PausedError(self.to) if self.paused else None


class HeldBack(NamedTuple):
    """Resources of which nothing is given, because pods with these UIDs may be bound by a Binding from before
    the ledger was lost (decision 0026); and the epoch in which that is so."""

    uids: frozenset[str] = frozenset()
    resources: tuple[str, ...] = ()
    epoch: str = ""

    @property
    def body(self) -> bytes | None:
        return _encoder.encode(sorted(self.uids)) if self.uids else None


NOTHING_HELD_BACK = HeldBack()
HELD_BACK_KEYS = (EPOCH, UNFENCED)

Documents = Mapping[str, Mapping[str, Domain]]
"""Domains' documents by pool and name."""

Places = Mapping[str, str]
"""A node's domain in each pool whose domains are not nodes; "" where its label is missing."""

_epoch = msgspec.json.Decoder(Epoch)
_domain = msgspec.json.Decoder(Domain)
_pool = msgspec.json.Decoder(Pool)
_places = msgspec.json.Decoder(dict[str, str])
_uids = msgspec.json.Decoder(frozenset[str])
_encoder = msgspec.json.Encoder()


def in_order(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    """Return a claim's holdings in the order that all claims have them in, so that they can be compared."""
    return tuple(sorted(holdings, key=lambda one: (one.pool, one.domain, one.claim)))


def listed_in(domains: Iterable[Domain]) -> Units:
    """Return the units that any of these domains lists."""
    # Joined at once: there may be thousands of lists.
    return Units().joined(Units.of(unit for domain in domains for unit in domain.units or ()))


def by_whole(holdings: Iterable[Holding]) -> list[Holding]:
    """Return these holdings by whole domains, in order: those in stripes of one domain are one."""
    sums: dict[tuple[str, str, str], tuple[int, tuple[str, ...]]] = {}
    for holding in holdings:
        where = (holding.pool, holding.whole, holding.claim)
        count, units = sums.get(where, (0, ()))
        sums[where] = count + holding.count, units + holding.units
    return [
        Holding(pool, whole, count, units, claim)
        for (pool, whole, claim), (count, units) in sorted(sums.items())
    ]


def encode(document: Domain | Pool | Epoch | Places) -> bytes:
    return _encoder.encode(document)


def decode_domain(body: bytes | None, key: str = "a domain") -> Domain:
    return Domain() if body is None else _decode(_domain, body, key)


def decode_epoch(body: bytes | None) -> Epoch | None:
    return None if body is None else _decode(_epoch, body, EPOCH)


def decode_pool(name: str, body: bytes) -> Pool:
    return _decode(_pool, body, f"{POOL}{name}")


def decode_places(body: bytes | None, key: str = "a node's place") -> dict[str, str]:
    return {} if body is None else _decode(_places, body, key)


def decode_uids(body: bytes) -> frozenset[str]:
    return _decode(_uids, body, UNFENCED)


def epoch_of(documents: Mapping[str, Document]) -> Epoch | None:
    """Return the epoch among these documents."""
    return _decode(_epoch, documents[EPOCH].body, EPOCH) if EPOCH in documents else None


def held_back_of(documents: Mapping[str, Document]) -> HeldBack:
    """Return what is held back by the documents of HELD_BACK_KEYS."""
    epoch = epoch_of(documents)
    if epoch is None or not epoch.held:
        return NOTHING_HELD_BACK
    uids = frozenset[str]()
    if UNFENCED in documents:
        uids = decode_uids(documents[UNFENCED].body)
    return HeldBack(uids, epoch.held, epoch.id)


def _decode(decoder: msgspec.json.Decoder[T], body: bytes, key: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreFailedError(
            f"berth's ledger holds {key} as another version wrote it, or damaged ({error}): run one version; "
            "else berth doctor says what can be done (--fix throws it away where that is safe)"
        ) from error
