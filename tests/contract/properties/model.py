"""All that the promises are measured against: who should hold what, as the API server has the pods.
It knows no claims, events, epochs, processes or crashes; those are how berth comes to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from berth.demo.rules import Json
from berth.policy import fit
from tests.contract.properties.api import bound_node, finished
from tests.contract.properties.pools import CLAIM, CLAIMED, LIMITED, NAMESPACE, ORDINARY, Domain, Spec

Share = tuple[int, int] | None
"""Units free and capacity; None: there is no such domain."""


class Ledger(Protocol):
    """What the ledger says, to one pod that asks."""

    def share(self, where: Domain) -> Share: ...

    def place(self, pool: str, node: str) -> str: ...

    def suspends(self, where: Domain) -> bool: ...

    def gives(self, where: Domain) -> bool: ...

    def leaving(self, pool: str) -> bool: ...


class Wish(NamedTuple):
    """What a pod asks for; with `claim` one unit of `ip` by the PoolClaim."""

    units: Mapping[str, int]
    claim: bool = False
    priority: int = 0


@dataclass
class Model:
    """What pods ask for, by UID, and the largest capacity of each domain that berth may know of."""

    wishes: dict[str, Wish] = field(default_factory=dict)
    pools: dict[str, Spec] = field(default_factory=dict)
    most: dict[Domain, int] = field(default_factory=dict)
    claimed: bool = True  # whether the PoolClaim was there all the time

    def units(self, uid: str, place: Callable[[str], str]) -> dict[Domain, int]:
        wish = self.wishes[uid]
        found = {CLAIMED: 1} if wish.claim else {}
        for pool, units in wish.units.items():
            spec, domain = self.pools[pool], place(pool)
            found[pool, domain] = units
            if "limits" in spec:
                found[pool, LIMITED] = units
            if "reserved" in spec and wish.priority < spec["reserved"]["priorityAtLeast"]:
                found[pool, domain + ORDINARY] = units
        return found

    def holds(self, uid: str, pod: Json) -> frozenset[str]:
        """The pools of which it holds units, if it is bound."""
        kept = {pool for pool, spec in self.pools.items() if spec.get("releaseOn") == "Deleted"}
        pools = self.wishes[uid].units.keys()
        return frozenset((pools & kept if finished(pod) else pools) if bound_node(pod) else ())

    def holders(self, pods: Mapping[str, Json]) -> dict[str, str]:
        return {uid: bound_node(pod) for uid, pod in pods.items() if self.holds(uid, pod)}

    def waiters(self, pods: Mapping[str, Json]) -> set[str]:
        alive = {uid: pod for uid, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}
        return {uid for uid, pod in alive.items() if not (bound_node(pod) or finished(pod))}

    def refusal(self, uid: str, node: str, ledger: Ledger) -> set[str]:
        """All that may be said of why it can't be had there; nothing if it can."""
        said: set[str] = set()
        if self.wishes[uid].claim and ledger.share(CLAIMED) is None:
            return {fit.no_claim(CLAIM)}
        said |= {fit.leaving(pool) for pool in self.wishes[uid].units if ledger.leaving(pool)}
        for where, asked in self.units(uid, lambda pool: ledger.place(pool, node)).items():
            share = ledger.share(where)
            if share is None or share[0] < asked:
                said |= told(where, share, asked)
                if share and self.wishes[uid].claim and where[0] == CLAIMED[0]:  # in two parts, or one
                    less = max(0, share[0] - 1), share[1]
                    said |= (
                        {fit.elsewhere(where[0], CLAIM)}
                        | told(where, share, 1)
                        | told(where, less, 1)
                        | told(where, less, asked - 1)
                    )
            if ledger.suspends(where):
                said.add(fit.suspended(where[0]))
            if where[0] == CLAIMED[0] and self.wishes[uid].claim and not ledger.gives(where):
                said.add(fit.elsewhere(where[0], CLAIM))
        return said


def told(where: Domain, share: Share, asked: int) -> set[str]:
    """What may be said of a domain that is short."""
    pool, domain = where
    if domain == LIMITED:
        return {fit.limited(pool, NAMESPACE, share, asked)}
    if where == CLAIMED:
        return {fit.claimed(pool, CLAIM, share)}
    words = fit.ordinary if domain.endswith(ORDINARY) else fit.told
    return {words(pool, share, asked)} if share else {fit.absent(pool), fit.unlabelled(pool, "zone")}
