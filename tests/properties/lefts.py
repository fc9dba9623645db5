"""Units that pods have left, and that rest or are kept for a next pod, as the API server has the pods.
Counted apart from the ledger, by what its commits drop: it has only a Pool's fields in common with it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from berth.ledger.model import Holding
from tests.properties.kept import Kept
from tests.properties.pools import Domain, Spec

Who = Callable[[str, str], str]
"""By `sticky.by` and a pod's UID, for whom its units are kept."""


@dataclass
class RetainedUnits:
    """`sure`: the pod was bound, and its end was seen by a clock that is right; of others the ledger may do
    as it likes. `terms` are those of the Pool when it was left: by others the ledger may bound it anew."""

    count: int
    units: set[str]
    owner: str
    rest: float
    kept: float
    sure: bool
    terms: Spec

    def bars(self, owner: str, now: float) -> bool:
        return now < self.rest or (now < self.kept and self.owner != owner)

    def lasts_as(self, spec: Spec, now: float) -> bool:
        """Whether it lasts no longer from now than the Pool says."""
        kept = spec["sticky"]["forSeconds"] if "sticky" in spec else 0
        return self.rest - now <= spec.get("reuseAfterSeconds", 0) and self.kept <= max(0, now + kept)


@dataclass
class Lefts:
    who: Who
    found: dict[Domain, list[RetainedUnits]] = field(default_factory=dict)

    def follow(
        self,
        before: Kept,
        after: Kept,
        ended: Callable[[str], bool],
        now: float,
        *,
        sure: bool,
        bounds: bool,
    ) -> None:
        """What one commit drops is left, and what an owner's pod takes is so no more. Not `sure`: the ledger
        may have gone by older Pools or a wrong clock. `bounds`: it may have looked at how long is left.
        `ended` tells of a pod whether it was bound and is no more: the ledger holds as if bound, too, what a
        bind under way reserves while Pools change."""
        self._rewritten(before, after, now, bounds=bounds)
        for where in before.holdings.keys() | after.holdings.keys():
            spec = before.pools.get(where[0], {})
            if not terms_of(spec) or where[1][0] in "@!" or where[1][-1] == "<":
                continue
            had, has = before.holdings.get(where, {}), after.holdings.get(where, {})
            for uid in had.keys() - has.keys():
                was_bound = before.state(uid) in ("bound", "lost") and ended(uid)
                self.found.setdefault(where, []).extend(
                    self._left(spec, uid, each, now, sure and was_bound)
                    for each in had[uid]
                    if "reuseAfterSeconds" in spec or not each.claim  # a PoolClaim's are kept for nobody
                )
            for uid in has.keys() - had.keys():
                self._take(where, uid, has[uid], spec, now)
            if any(
                _count(has[uid]) > _count(had.get(uid, ())) for uid in has if after.state(uid) != "reserved"
            ):
                self._take_unasked(where)

    @property
    def units(self) -> int:
        """How many there may be in all."""
        return sum(left.count for found in self.found.values() for left in found)

    def barred(
        self, where: Domain, uid: str, now: float, ledger: Kept, *, sure: bool
    ) -> tuple[int, set[str]]:
        """How many units, and which, the pod can't have; only those that are `sure`, or all that may be.

        A unit with a name rests where it is listed now, and nowhere once it is listed no more.
        """
        spec = ledger.pools.get(where[0], {})
        owner, terms, named = self._owner(spec, uid), terms_of(spec), ledger.named(where)
        count, units = 0, set[str]()
        for domain, found in self.found.items():
            bars = [each for each in found if each.bars(owner, now)]
            if sure:
                bars = [each for each in bars if each.sure and each.terms == terms]
            if domain == where:
                count += sum(each.count - (len(each.units) if named else 0) for each in bars)
            if domain[0] == where[0]:
                units |= {unit for each in bars for unit in each.units}
        units &= ledger.listed(where) if named else set()
        return count + len(units - ledger.units(where)), units

    def _rewritten(self, before: Kept, after: Kept, now: float, *, bounds: bool) -> None:
        """What a commit writes of, it may drop if it is over by its clock; and one that `bounds` cuts short
        what lasts longer from then than the Pool says. By a wrong clock that is too early, and nobody can
        tell (decision 0029)."""
        for (pool, domain), found in self.found.items():
            had, has = before.left(pool), after.left(pool)
            written = [name for name in had if had[name] != has.get(name)]
            units = {unit for name in written for each in had[name] for unit in each.units}
            here = domain in {name.partition("#")[0] for name in written}
            for left in found:
                if left.units & units or (here and left.count > len(left.units)):
                    stays = not bounds or left.lasts_as(after.pools.get(pool, {}), now)
                    left.sure &= stays and now < max(left.rest, left.kept)

    def _take_unasked(self, where: Domain) -> None:
        """It asks for no room, and may use what rests; of units without names nobody can tell which."""
        for left in self.found.get(where, []):
            left.sure &= bool(left.units)

    def _owner(self, spec: Spec, uid: str) -> str:
        return self.who(spec["sticky"]["by"], uid) if "sticky" in spec else ""

    def _left(self, spec: Spec, uid: str, holding: Holding, now: float, sure: bool) -> RetainedUnits:
        sticky = None if holding.claim else spec.get("sticky")
        owner = self.who(sticky["by"], uid) if sticky else ""
        kept = now + sticky["forSeconds"] if sticky and owner else 0.0
        rest = now + spec["reuseAfterSeconds"] if "reuseAfterSeconds" in spec else 0.0
        return RetainedUnits(holding.count, set(holding.units), owner, rest, kept, sure, terms_of(spec))

    def _take(self, where: Domain, uid: str, holdings: Collection[Holding], spec: Spec, now: float) -> None:
        owner = self._owner(spec, uid)
        wanted = sum(each.count for each in holdings)
        units = {unit for each in holdings for unit in each.units}
        for left in list(self.found.get(where, [])):
            if left.units & units or (
                not left.units and left.owner == owner and left.rest <= now < left.kept
            ):
                less = len(left.units & units) or min(left.count, wanted)
                taken = replace(left, count=less, units=left.units & units, sure=False)
                left.count, left.units = left.count - less, left.units - units
                wanted -= 0 if taken.units else less
                # Its reservation may be cancelled: then they are kept as before.
                self.found[where].append(taken)


def terms_of(spec: Spec) -> Spec:
    """What a Pool says of units that are freed."""
    return {field: spec[field] for field in ("sticky", "reuseAfterSeconds") if field in spec}


def _count(holdings: Collection[Holding]) -> int:
    return sum(each.count for each in holdings)
