"""The ledger as one pod sees it at one time, for the model to say what it may have."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from berth.ledger.model import Rank
from tests.properties import pools
from tests.properties.kept import Kept
from tests.properties.lefts import Lefts
from tests.properties.model import Model
from tests.properties.pools import CLAIMED, LIMIT, UNRESERVED, Domain, Spec


@dataclass
class Seen:
    ledger: Kept
    model: Model
    lefts: Lefts
    now: float
    uid: str
    name: str
    rank: Rank
    sure: bool = True
    filters: bool = True
    holds: bool = True
    """Whether what is held for the first in line is not its own."""
    over: int = 0
    """So many of the units that may be left are free again all the same."""

    @property
    def held_back(self) -> Collection[str]:
        return self.ledger.held_back

    @property
    def pools(self) -> Mapping[str, Spec]:
        return self.ledger.pools

    def share(self, where: Domain) -> tuple[int, int] | None:
        barred, surely = (
            self.lefts.barred(where, self.uid, self.now, self.ledger, sure=sure)[0]
            for sure in (self.sure, True)
        )
        barred = max(surely, barred - self.over) + self._held_in_line(where)
        found = self.ledger.share(where, self.uid, barred, filters=self.filters)
        if found is None and where[1].startswith(LIMIT):
            most = pools.limit(self.pools[where[0]]) or 0
            return most, most
        return found

    def _held_in_line(self, where: Domain) -> int:
        """Whether a pod that says how long it runs is done in time, is not asked here: what may be lent to it
        is not `sure` to be held from it."""
        if not self.holds:
            return 0
        return self.ledger.held_in_line(where, self.rank, lent=self._is_lent, own=self._is_mate)

    @property
    def _is_lent(self) -> bool:
        return self.sure and bool(self.rank.uid) and bool(self.model.wishes[self.rank.uid].runs_for)

    def held_texts(self, where: Domain) -> Collection[str]:
        """What may be said of units that are held for the first in line, after what is free."""
        parts = self.ledger.wholes.get(where, {}).values()
        holds = [part.line_hold for part in parts if part.line_hold is not None]
        most, more = (
            sum(hold.count for hold in holds),
            ", or a pod that says it is done in time (berth.dev/runs-for)",
        )
        return {
            f"{units} more {'is' if units == 1 else 'are'} held for {hold.label}, first in line{lent}"
            for hold in holds
            for units in range(1, most + 1)
            for lent in ("", more)
        }

    def place(self, pool: str, node: str) -> str:
        return self.ledger.place(pool, self.pools[pool].get("scope", "Node"), node)

    def suspends(self, where: Domain) -> bool:
        return where[1][0] not in "@!" and where[1][-1] != UNRESERVED and self.ledger.suspends(where)

    def leaving(self, pool: str) -> bool:
        """Whether the pod waits for what one of its name is about to leave; bind asks no more."""
        by = self.pools[pool].get("sticky", {}).get("by")
        others = [claims[0] for uid, claims in self.ledger.claims.items() if uid != self.uid]
        standing = [claim for claim in others if claim.name == self.name and claim.state != "lost"]
        held = {each.pool for claim in standing for each in claim.holdings}
        return self.filters and by == "Pod" and pool in held

    @property
    def refused(self) -> str:
        """Why nobody may have the PoolClaim."""
        head = self.ledger.head(CLAIMED)
        return "" if head is None or head.poolclaim is None else head.poolclaim.refused

    def gives(self, where: Domain) -> bool:
        """Whether the domain has the units that the PoolClaim is for."""
        head = self.ledger.head(CLAIMED)
        if head is None or head.poolclaim is None or where[1][0] in "@!" or where[1][-1] == UNRESERVED:
            return True
        _, barred = self.lefts.barred(where, self.uid, self.now, self.ledger, sure=self.sure)
        others, units = self.ledger.units(where, self.uid) | barred, set(head.poolclaim.units)
        return units <= self.ledger.listed(where) - others and self._are_left(where, units)

    def _are_left(self, where: Domain, units: set[str]) -> bool:
        """Whether these units may be had beside what is held for the first in line."""
        return not self.holds or self.ledger.leaves(
            where, units, self.rank, lent=self._is_lent, own=self._is_mate
        )

    def _is_mate(self, other: str) -> bool:
        return self.model.are_mates(self.uid, other)


def kinds(where: Domain, count: int) -> tuple[Domain, int]:
    """A domain whatever place it is: a pool's places are one, their shares that are not reserved another."""
    pool, domain = where
    if domain[:1] in ("@", "!"):
        return where, count
    return (pool, UNRESERVED if domain.endswith(UNRESERVED) else ""), count
