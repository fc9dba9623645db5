"""What the store took, as it took it: the ledger without asking a store that may be down or lost.
How domains are cut into documents is undone here: the promises are about whole domains."""

from collections.abc import Callable, Mapping
from functools import cached_property

from berth.api.pool import Pool
from berth.ledger.keys import POOL, domain_of, node_key
from berth.ledger.model import (
    Claim,
    Domain,
    Holding,
    LineHold,
    Rank,
    RetainedUnits,
    decode_domain,
    decode_epoch,
    decode_places,
    decode_pool,
)
from berth.stores.base import EPOCH
from tests.properties.pools import EVERYWHERE, NOWHERE, Spec, spec_of
from tests.properties.pools import Domain as Where

_DOMAIN = "domain/"
_EXTERNAL = "external:"


class Kept:
    """One state of the ledger; a commit makes another one."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.domains: dict[str, Domain] = {}  # by key
        self.applied: dict[str, Pool] = {}  # Pools by name, as they are in the ledger

    def after(self, writes: Mapping[str, bytes | None]) -> "Kept":
        later = Kept()
        gone = {key for key, body in writes.items() if body is None}
        there = {key: body for key, body in writes.items() if body is not None}
        later.documents = {key: body for key, body in {**self.documents, **there}.items() if key not in gone}
        changed = {key: decode_domain(body) for key, body in there.items() if key.startswith(_DOMAIN)}
        later.domains = {key: each for key, each in {**self.domains, **changed}.items() if key not in gone}
        later.applied = self.applied
        if any(key.startswith(POOL) for key in writes):
            bodies = {
                key.removeprefix(POOL): body for key, body in later.documents.items() if key.startswith(POOL)
            }
            later.applied = {name: decode_pool(name, body) for name, body in bodies.items()}
        return later

    @cached_property
    def held_back(self) -> frozenset[str]:
        """The resources of which nothing is given since the ledger was lost."""
        epoch = decode_epoch(self.documents.get(EPOCH))
        return frozenset() if epoch is None else frozenset(each.partition("/")[2] for each in epoch.held)

    @property
    def open(self) -> bool:
        return EPOCH in self.documents

    @cached_property
    def pools(self) -> dict[str, Spec]:
        """The Pools that were applied, as an operator would write them."""
        return {name: spec_of(pool) for name, pool in self.applied.items()}

    def external(self, pool: str) -> int:
        """Units in use outside the cluster."""
        held = self.holdings.get((pool, EVERYWHERE), {}).get(f"{_EXTERNAL}{pool}", ())
        return sum(each.count for each in held)

    @cached_property
    def wholes(self) -> dict[Where, dict[str, Domain]]:
        """The documents of each domain, by their names."""
        found: dict[Where, dict[str, Domain]] = {}
        for key, domain in self.domains.items():
            pool, name = domain_of(key)
            found.setdefault((pool, name.partition("#")[0]), {})[name] = domain
        return found

    @cached_property
    def claims(self) -> dict[str, list[Claim]]:
        """By UID, one for each document that they stand in."""
        found: dict[str, list[Claim]] = {}
        for _, domain in sorted(self.domains.items()):
            for uid, claim in domain.claims.items():
                if not uid.startswith(_EXTERNAL):
                    found.setdefault(uid, []).append(claim)
        return found

    def state(self, uid: str) -> str:
        """Of the pod's claim; empty if it has none."""
        return next((claim.state for claim in self.claims.get(uid, ())), "")

    @cached_property
    def holdings(self) -> dict[Where, dict[str, list[Holding]]]:
        """By domain and UID, those too that no pod has."""
        found: dict[Where, dict[str, list[Holding]]] = {}
        for where, documents in self.wholes.items():
            held = found.setdefault(where, {})
            for name, part in documents.items():
                for uid, claim in part.claims.items():
                    there = (each for each in claim.holdings if (each.pool, each.domain) == (where[0], name))
                    held.setdefault(uid, []).extend(there)
        return found

    def used(self, where: Where, but: str = "") -> int:
        held = self.holdings.get(where, {})
        return sum(each.count for uid, found in held.items() if uid != but for each in found)

    def left(self, pool: str) -> dict[str, tuple[RetainedUnits, ...]]:
        """By the names of the pool's documents."""
        parts = (found for where, found in self.wholes.items() if where[0] == pool)
        return {name: part.retained for found in parts for name, part in found.items() if part.retained}

    def units(self, where: Where, but: str = "") -> set[str]:
        """Names of units that are held there, but for those of one pod."""
        held = {uid: found for uid, found in self.holdings.get(where, {}).items() if uid != but}
        return {unit for found in held.values() for each in found for unit in each.units}

    @cached_property
    def nameless(self) -> bool:
        """Whether somebody holds units of a named pool whose names are not known: they may be any."""
        named = {domain_of(key)[0] for key, domain in self.domains.items() if domain.units is not None}
        held = (each for found in self.holdings.values() for every in found.values() for each in every)
        return any(each.pool in named and not each.is_quota and len(each.units) < each.count for each in held)

    def named(self, where: Where) -> bool:
        return any(part.units is not None for part in self.wholes.get(where, {}).values())

    def listed(self, where: Where) -> set[str]:
        """Names of units that may be given there."""
        parts = self.wholes.get(where, {})
        heads = parts.values() if len(parts) == 1 else [part for name, part in parts.items() if "#" in name]
        return {unit for part in heads for entry in part.units or () for unit in spelled(entry)}

    def size(self, where: Where) -> int | frozenset[str] | None:
        """A domain's capacity, by its units' names where they have some."""
        head = self.head(where)
        if head is None or head.units is None:
            return None if head is None else head.capacity
        return frozenset(unit for entry in head.units for unit in spelled(entry))

    def head(self, where: Where) -> Domain | None:
        return self.wholes.get(where, {}).get(where[1])

    def share(
        self, where: Where, uid: str = "", barred: int = 0, *, filters: bool = False
    ) -> tuple[int, int] | None:
        """Units free and capacity: what the pod holds itself does not stand in its way, `barred` units do.

        What a pod holds of a closed domain filter lets it have; bind, for another node, has to free it first.
        """
        head = self.head(where)
        if head is None or head.capacity is None:
            return None
        own = self.used(where) - self.used(where, uid)
        free = max(0, head.capacity - self.used(where, uid) - barred)
        return (min(own, head.capacity) if head.closed and (filters or not own) else free), head.capacity

    def place(self, pool: str, scope: str, node: str) -> str:
        if scope == "Node":
            return node
        found = decode_places(self.documents.get(node_key(node))).get(pool)
        return found or NOWHERE

    def held_in_line(
        self, where: Where, rank: Rank, *, lent: bool = False, own: Callable[[str], bool] = lambda _: False
    ) -> int:
        """Units of the domain that are free, and held for pods that one of this rank has to wait for. `lent`:
        without those that others may have who are done in time. `own` says of a UID whether what is held for
        it is for this pod too."""
        return sum(
            self._held_in_part(where, name, part, rank)
            for name, part in self.wholes.get(where, {}).items()
            if part.line_hold is not None
            and not (lent and part.line_hold.rests is not None)
            and not own(part.line_hold.uid)
        )

    def leaves(
        self, where: Where, units: set[str], rank: Rank, *, lent: bool, own: Callable[[str], bool]
    ) -> bool:
        """Whether the parts that list these units have as many to spare besides what is `held_in_line`."""
        for name, part in self.wholes.get(where, {}).items():
            hold = part.line_hold
            if hold is None or (lent and hold.rests is not None) or own(hold.uid):
                continue
            named = units & {unit for entry in part.units or () for unit in spelled(entry)}
            if len(named) > self.spare(where, name) - self._held_in_part(where, name, part, rank):
                return False
        return True

    def _held_in_part(self, where: Where, name: str, part: Domain, rank: Rank) -> int:
        hold = part.line_hold
        if hold is None or hold.uid == rank.uid:
            return 0
        if is_before(rank, hold):
            return 0
        return min(self.lacks(where, name), self.spare(where, name))

    def lacks(self, where: Where, name: str) -> int:
        """Units that the pod lacks for which some are held in this document."""
        part = self.wholes[where][name]
        hold = part.line_hold
        if hold is None:
            return 0
        return max(0, hold.count - (0 if hold.gang else _count(part.claims.get(hold.uid), where[0], name)))

    def spare(self, where: Where, name: str) -> int:
        """Units of this document that no claim holds."""
        part = self.wholes.get(where, {}).get(name, Domain())
        return max(0, (part.capacity or 0) - sum(_count(one, where[0], name) for one in part.claims.values()))

    def suspends(self, where: Where) -> bool:
        pool = self.applied.get(where[0])
        return pool is not None and pool.suspends(where[1])


def _count(claim: Claim | None, pool: str, domain: str) -> int:
    holdings = () if claim is None else claim.holdings
    return sum(one.count for one in holdings if (one.pool, one.domain) == (pool, domain))


def is_before(rank: Rank, hold: LineHold) -> bool:
    """Whether it is before the pod that something is held for: more important, older, or first by name."""
    mine = -rank.priority, rank.made, rank.label
    return mine < (-hold.priority, hold.made, hold.label)


def spelled(entry: str) -> list[str]:
    """The units of an entry: a name, an address, or a range in one /24."""
    first, dash, last = entry.partition("-")
    if not dash:
        return [entry]
    prefix, _, low = first.rpartition(".")
    return [f"{prefix}.{number}" for number in range(int(low), int(last.rpartition(".")[2]) + 1)]
