"""All that the promises are measured against: who should hold what, as the API server has the pods.
It knows no claims, events, epochs, processes or crashes; those are how berth comes to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from berth.demo.rules import Json
from tests.contract.properties.api import bound_node, finished

Domain = tuple[str, str]
"""A pool and a node."""
Shares = Mapping[Domain, tuple[int, int]]
"""Units free and capacity."""


@dataclass
class Model:
    """What pods ask for, by UID, and the largest capacity of each domain that berth may know of."""

    asks: dict[str, dict[str, int]] = field(default_factory=dict)
    most: dict[Domain, int] = field(default_factory=dict)

    def units(self, uid: str, node: str) -> dict[Domain, int]:
        return {(pool, node): units for pool, units in self.asks[uid].items()}

    def holders(self, pods: Mapping[str, Json]) -> dict[str, str]:
        bound = {uid: bound_node(pod) for uid, pod in pods.items() if self.asks[uid] and not finished(pod)}
        return {uid: node for uid, node in bound.items() if node}

    def used(self, holders: Mapping[str, str]) -> dict[Domain, int]:
        held = [self.units(uid, node) for uid, node in holders.items()]
        return {domain: sum(each.get(domain, 0) for each in held) for domain in set().union(*held)}

    def waiters(self, pods: Mapping[str, Json]) -> set[str]:
        alive = {uid: pod for uid, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}
        return {uid for uid, pod in alive.items() if not (bound_node(pod) or finished(pod))}

    def refusal(self, uid: str, node: str, shares: Shares) -> str:
        asked = {domain: (shares.get(domain), units) for domain, units in self.units(uid, node).items()}
        short = {domain: each for domain, each in asked.items() if each[0] is None or each[0][0] < each[1]}
        return "; ".join(told(domain[0], *each) for domain, each in sorted(short.items()))


def told(pool: str, share: tuple[int, int] | None, asked: int) -> str:
    return f"{pool}: {share[0]} of {share[1]} free, {asked} asked" if share else f"{pool}: none on this node"
