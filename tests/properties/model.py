"""All that the promises are measured against: who should hold what, as the API server has the pods.
It knows no claims, events, epochs, processes or crashes; those are how berth comes to it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from berth.api.names import GROUP
from berth.ledger import refusals
from berth.ledger.model import Rank
from berth.testing.api_server.rules import Json
from tests.properties.api import bound_node, finished
from tests.properties.pools import (
    CLAIM,
    CLAIMED,
    LIMIT,
    SPACES,
    UNRESERVED,
    Domain,
    NodeIs,
    Spec,
    capacities,
    frame,
    limit,
    resource_of,
)
from tests.properties.wish import Wish

Share = tuple[int, int] | None
"""Units free and capacity; None: there is no such domain."""


class Ledger(Protocol):
    """What the ledger says, to one pod that asks."""

    @property
    def pools(self) -> Mapping[str, Spec]: ...

    @property
    def held_back(self) -> Collection[str]: ...

    @property
    def refused(self) -> str: ...

    def share(self, where: Domain) -> Share: ...

    def place(self, pool: str, node: str) -> str: ...

    def suspends(self, where: Domain) -> bool: ...

    def gives(self, where: Domain) -> bool: ...

    def leaving(self, pool: str) -> bool: ...

    def held_texts(self, where: Domain) -> Collection[str]: ...


@dataclass
class Model:
    """What pods ask for, when they were made, and namespace/name, by UID; Pools by name as they are, and by
    resource all that they have been since the last rest (None: there was none); and the largest capacity of
    each domain that berth may know of."""

    wishes: dict[str, Wish] = field(default_factory=dict)
    made: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    pools: dict[str, Spec] = field(default_factory=dict)
    past: dict[str, list[tuple[str, Spec] | None]] = field(default_factory=dict)
    most: dict[Domain, int] = field(default_factory=dict)
    claimed: bool = True  # whether the PoolClaim and its Pool were there all the time

    # Pools

    def set_pool(self, name: str, spec: Spec | None) -> None:
        """The Pool of a resource, in the place of one that may have another name; None: there is none."""
        self.pools = {
            other: it for other, it in self.pools.items() if resource_of(other) != resource_of(name)
        }
        if spec is not None:
            self.pools[name] = spec
        self.past.setdefault(resource_of(name), []).append(None if spec is None else (name, spec))
        self.claimed &= CLAIMED[0] in self.pools or resource_of(name) != CLAIMED[0]

    def grow(self, nodes: Mapping[str, NodeIs]) -> None:
        """Take in what there is of each domain now."""
        for where, units in self.there(nodes).items():
            self.most[where] = max(units, self.most.get(where, 0))

    def rested(self, nodes: Mapping[str, NodeIs]) -> None:
        """All berth knows is what there is now."""
        self.most = self.there(nodes)
        self.past = {resource: specs[-1:] for resource, specs in self.past.items()}

    def there(self, nodes: Mapping[str, NodeIs]) -> dict[Domain, int]:
        found = {**capacities(self.pools, nodes), CLAIMED: 1}
        for name, spec in self.pools.items():
            most = limit(spec)
            if most is not None:
                found |= {(name, f"{LIMIT}{space}"): most for space in SPACES.values()}
        return found

    def most_of(self, where: Domain) -> int:
        """Return the most units there, by a resource in place of a Pool's name."""
        resource, domain = where
        found = (
            units for (name, at), units in self.most.items() if resource_of(name) == resource and at == domain
        )
        return max(found, default=0)

    def always(self, resource: str, so: Callable[[Spec], bool]) -> bool:
        """Whether there was a Pool of it, and one like this, ever since the last rest."""
        past = self.past.get(resource, [])
        return bool(past) and all(each is not None and so(each[1]) for each in past)

    def steady(self, resource: str, *fields: str) -> bool:
        """Whether claims on its Pool have looked the same since then; or as far as these fields go, whatever
        the Pool's name."""
        past = self.past.get(resource, [])
        known = [(each[0], frame(each[1])) for each in past if each is not None]
        if fields:
            known = [("", {field: like.get(field) for field in fields}) for _, like in known]
        return len(known) == len(past) > 0 and all(each == known[0] for each in known)

    # Pods

    def rank(self, uid: str) -> Rank:
        """Its place in line."""
        return Rank(uid, self.wishes[uid].priority, self.made[uid], label=self.labels[uid])

    def are_mates(self, uid: str, other: str) -> bool:
        """Whether both are of one gang."""
        if not (uid in self.wishes and other in self.wishes and self.wishes[uid].together):
            return False
        return self.wishes[uid].mates == self.wishes[other].mates

    def units(
        self, uid: str, place: Callable[[str], str], pools: Mapping[str, Spec] | None = None
    ) -> dict[Domain, int]:
        """What it is to hold; of a resource that has no Pool nothing."""
        wish, pools = self.wishes[uid], self.pools if pools is None else pools
        found = {CLAIMED: 1} if wish.claim and CLAIMED[0] in pools else {}
        for name, spec in pools.items():
            units = wish.units.get(resource_of(name))
            if units is None:
                continue
            domain = place(name)
            found[name, domain] = units
            if limit(spec) is not None:
                found[name, f"{LIMIT}{wish.space}"] = units
            if "reserved" in spec and wish.priority < spec["reserved"]["priorityAtLeast"]:
                found[name, domain + UNRESERVED] = units
        return found

    def holds(self, uid: str, pod: Json, *, sure: bool = False) -> frozenset[str]:
        """The resources of which it holds units, if it is bound; of others than those that have a Pool nobody
        counts them. `sure`: by all that their Pools have been since the last rest."""
        if not bound_node(pod):
            return frozenset()
        now = {resource_of(name): spec for name, spec in self.pools.items()}
        held = self.wishes[uid].units.keys() & now.keys()
        if sure:
            held = {resource for resource in held if self.always(resource, lambda _: True)}
        if not finished(pod):
            return frozenset(held)
        if sure:  # while a Pool comes in the place of another one, what finished pods hold is counted anew
            stays = {each for each in held if self.steady(each, "resource") and self.steady(each)}
            return frozenset(each for each in stays if self.always(each, _until_deleted))
        return frozenset(resource for resource in held if _until_deleted(now[resource]))

    def holders(self, pods: Mapping[str, Json], *, sure: bool = False) -> dict[str, str]:
        return {uid: bound_node(pod) for uid, pod in pods.items() if self.holds(uid, pod, sure=sure)}

    def waiters(self, pods: Mapping[str, Json]) -> set[str]:
        alive = {uid: pod for uid, pod in pods.items() if "deletionTimestamp" not in pod["metadata"]}
        return {uid for uid, pod in alive.items() if not (bound_node(pod) or finished(pod))}

    def refusal(self, uid: str, node: str, ledger: Ledger) -> set[str]:
        """All that may be said of why it can't be had there; nothing if it can."""
        said: set[str] = set()
        wish, known = self.wishes[uid], {resource_of(name): name for name in ledger.pools}
        missing = sorted(wish.units.keys() - known.keys())
        if missing:
            there = ", ".join(f"{GROUP}/{resource}" for resource in sorted(known)) or "none yet"
            return {f"{GROUP}/{missing[0]}: no Pool has this resource", f"there are: {there}"}
        if wish.claim and (CLAIMED[0] not in ledger.pools or ledger.share(CLAIMED) is None):
            return {refusals.no_claim(CLAIM)}
        said |= {
            refusals.leaving(known[resource]) for resource in wish.units if ledger.leaving(known[resource])
        }
        said |= {
            refusals.held_back(known[resource]) for resource in wish.units if resource in ledger.held_back
        }
        asked_of = self.units(uid, lambda pool: ledger.place(pool, node), ledger.pools)
        for where, asked in asked_of.items():
            share = ledger.share(where)
            if where == CLAIMED and ledger.refused:
                said.add(refusals.claimed(where[0], CLAIM, share, ledger.refused))
            elif share is None or share[0] < asked:
                said |= {*told(where, share, asked), *ledger.held_texts(where)}
                if share and wish.claim and where[0] == CLAIMED[0]:  # in two parts, or one
                    less = max(0, share[0] - 1), share[1]
                    said |= (
                        {refusals.elsewhere(where[0], CLAIM)}
                        | told(where, share, 1)
                        | told(where, less, 1)
                        | told(where, less, asked - 1)
                    )
            if ledger.suspends(where):
                said.add(refusals.suspended(where[0]))
            if where[0] == CLAIMED[0] and wish.claim and not ledger.gives(where):
                said.add(refusals.elsewhere(where[0], CLAIM))
        return said


def told(where: Domain, share: Share, asked: int) -> set[str]:
    """What may be said of a domain that is short."""
    pool, domain = where
    if domain.startswith(LIMIT):
        return {refusals.limited(pool, domain.removeprefix(LIMIT), share, asked)}
    if where == CLAIMED:
        return {refusals.claimed(pool, CLAIM, share)}
    words = refusals.unreserved if domain.endswith(UNRESERVED) else refusals.lacking
    return (
        {words(pool, share, asked)} if share else {refusals.absent(pool), refusals.unlabelled(pool, "zone")}
    )


def _until_deleted(spec: Spec) -> bool:
    return spec.get("releaseOn") == "Deleted"
