"""Promise 3: what is so at rest, when nothing is under way and one reconcile has come by undisturbed.
The ledger is held against the API server's pods, nodes and Pools by the model, domain by domain."""

from collections.abc import Callable, Collection, Iterable, Mapping

from berth.ledger.keys import domain_of
from berth.ledger.model import Claim
from berth.testing.api_server.rules import Json
from tests.properties import pools
from tests.properties.api import Api
from tests.properties.kept import Kept
from tests.properties.model import Model
from tests.properties.pools import CLAIM, CLAIMED, LIMIT, NOWHERE, Domain, NodeIs
from tests.properties.seen import kinds


class Rest:
    """`told` are the units that pods were told of, by UID and resource; `spared` are pods that nobody can
    write to, of which nothing is known; `keep` takes whether a thing is so."""

    def __init__(
        self,
        api: Api,
        model: Model,
        told: Mapping[str, Mapping[str, set[str]]],
        spared: Collection[str],
        keep: Callable[[bool, str], None],
    ) -> None:
        self._api, self._model, self._told, self._spared, self._keep = api, model, told, spared, keep

    def look(self, ledger: Kept, now: float, late: float) -> None:
        """Look at what there is. `late` is by how many seconds a seat may wait beyond what its stamp says."""
        pods, nodes = self._api.pods(), self._api.nodes()
        holders = self._model.holders(pods)
        lost = {
            uid
            for uid, found in ledger.claims.items()
            if uid not in holders
            and resources_of(found, None) <= held_for_the_node(found[0], self._model, nodes)
        }
        beside = (
            lost | {*self._spared} | self._uncounted(pods, ledger) | self._seats(pods, ledger, now - late)
        )
        held = {
            uid: {(claim.node, claim.state) for claim in found}
            for uid, found in ledger.claims.items()
            if uid not in beside
        }
        wanted = {uid: {(node, "bound")} for uid, node in holders.items() if uid not in beside}
        self._keep(held == wanted, f"the ledger has {held}, and the pods {wanted}")
        for uid in held.keys() & wanted.keys():
            one = len(set(ledger.claims[uid])) == 1
            self._keep(one, f"{uid} has more than one claim: {ledger.claims[uid]}")
            self._holds_what_it_should(uid, ledger.claims[uid][0], self._model.holds(uid, pods[uid]))
        self._capacities(ledger, pools.capacities(self._model.pools, nodes))
        self._the_claim_is_judged(ledger)
        self._nothing_of_what_is_gone(ledger, now)
        self._held_for_who_waits(ledger, pods)

    def _held_for_who_waits(self, ledger: Kept, pods: Mapping[str, Json]) -> None:
        """Units are held for pods that wait alone, and for one of them in a Pool."""
        waiters = self._model.waiters(pods)
        first: dict[str, set[str]] = {}
        for key, part in ledger.domains.items():
            if part.line_hold is not None and not part.empty:
                first.setdefault(domain_of(key)[0], set()).add(part.line_hold.uid)
        for pool, uids in first.items():
            self._keep(uids <= waiters, f"units of {pool} are held for {uids - waiters}, which wait no more")
            self._keep(len(uids) == 1, f"units of {pool} are held for several: {uids}")

    def _seats(self, pods: Mapping[str, Json], ledger: Kept, now: float) -> set[str]:
        """Pods that wait with what is reserved for their gang, and for as long as it waits for them: where
        the clock was wrong that said how long, reconcile counts from its first look.
        `World.all_rest_is_over` looks whether it ends."""
        reserved = {
            uid for uid, claims in ledger.claims.items() if all(claim.state == "reserved" for claim in claims)
        }
        waits = reserved & self._model.waiters(pods)
        return {uid for uid in waits if now < ledger.claims[uid][0].seat_until}

    def _uncounted(self, pods: Mapping[str, Json], ledger: Kept) -> set[str]:
        """Pods that run, and hold units of no Pool that there is: what they held is kept, or forgotten."""
        holders = self._model.holders(pods)
        return {
            uid
            for uid, found in ledger.claims.items()
            if uid in pods and uid not in holders and not pools_of(found, None) & self._model.pools.keys()
        }

    def _holds_what_it_should(self, uid: str, claim: Claim, of: Collection[str]) -> None:
        """In its node's domain, where that has one; the units it was told, as long as they are listed."""
        nodes, known = self._api.nodes(), self._model.pools
        node, lost = nodes.get(claim.node), held_for_the_node(claim, self._model, nodes)
        places = {pool: pools.place(spec, claim.node, node) for pool, spec in known.items()}
        fixed = {pool for pool, place in places.items() if place != NOWHERE and not pools.named(known[pool])}

        def place(pool: str) -> str:
            return places[pool] if pool in fixed else ""

        wanted = {
            where: count
            for where, count in self._model.units(uid, place).items()
            if pools.resource_of(where[0]) in of
        }
        found: dict[Domain, int] = {}
        for each in claim.holdings:
            if each.pool not in known:
                continue
            if pools.resource_of(each.pool) in of or pools.resource_of(each.pool) not in lost:
                where = (
                    (each.pool, each.whole) if each.pool in fixed else kinds((each.pool, each.whole), 0)[0]
                )
                found[where] = found.get(where, 0) + each.count
        if not self._model.claimed:
            found.pop(CLAIMED, None), wanted.pop(CLAIMED, None)
        self._keep(found == wanted, f"{uid} holds {found}, and it should hold {wanted}: {claim}")
        for pool in (pool for pool in known if pools.resource_of(pool) in of):
            told = self._told.get(uid, {}).get(pools.resource_of(pool), set())
            listed = {unit for units in known[pool].get("units", {}).values() for unit in units}
            mine = {unit for each in claim.holdings for unit in each.units if each.pool == pool}
            self._keep(told & listed <= mine, f"{uid} was told {told} of {pool}, and holds {mine}")

    def _capacities(self, ledger: Kept, there: Mapping[Domain, int]) -> None:
        found = {where: ledger.size(where) for where in ledger.wholes if where[1][0] not in "@!"}
        for where in found.keys() | there.keys():
            right = found.get(where) == right_size(where, ledger, self._model, there)
            self._keep(right, f"the ledger has {found.get(where)} units of {where}, and there are {there}")

    def _the_claim_is_judged(self, ledger: Kept) -> None:
        """The PoolClaim is for the units that it names, or refused where its Pool does not list them all."""
        document, head = self._api.claimed(), ledger.head(CLAIMED)
        wants = None if head is None else head.poolclaim
        if document is None or CLAIMED[0] not in self._model.pools or wants is None:
            return
        lists = self._model.pools[CLAIMED[0]].get("units", {})
        named = {*document["spec"].get("units", ())}
        unlisted = not named <= {unit for units in lists.values() for unit in units}
        wanted = ("unlisted", set()) if unlisted else ("", named)
        found = (wants.refused, {*wants.units})
        self._keep(found == wanted, f"PoolClaim {CLAIM} is {found} in the ledger, and should be {wanted}")

    def _nothing_of_what_is_gone(self, ledger: Kept, now: float) -> None:
        """No document of a Pool that is no more, but for what pods of it that run hold, or what rests."""
        spaces = {pod["metadata"]["namespace"] for pod in self._api.pods().values()}
        for where, parts in ledger.wholes.items():
            resting = any(left.stands(now) for part in parts.values() for left in part.retained)
            held = any(part.claims for part in parts.values())
            gives = any(part.capacity is not None for part in parts.values())
            if where[1].startswith(LIMIT):
                lives = where[1].removeprefix(LIMIT) in spaces
                self._keep(lives or held, f"the limit {where} stays, and its namespace has no pods")
            there = where[0] in self._model.pools or where[1][0] == "!"
            self._keep(there or held or resting or not gives, f"{where} stays, and nobody uses it")


def right_size(
    where: Domain, ledger: Kept, model: Model, there: Mapping[Domain, int]
) -> int | frozenset[str] | None:
    """What the ledger should have there: of units with names none that a pod uses in another domain."""
    spec = model.pools.get(where[0], {})
    if where not in there or not pools.named(spec) or where[1][-1] == "<" or where[1][0] in "@!":
        return there.get(where)
    elsewhere = {unit for other in ledger.wholes if other[0] == where[0] for unit in ledger.units(other)}
    return frozenset({*spec["units"].get(where[1], ())} - (elsewhere - ledger.units(where)))


def held_for_the_node(
    claim: Claim, model: Model, nodes: Mapping[str, NodeIs], *, sure: bool = False
) -> frozenset[str]:
    """The resources whose units stay held because the node of a pod that has ended may use them. `sure`: by
    all that their Pools have been since the last rest."""
    node = nodes.get(claim.node)
    if claim.state == "reserved" or (node is not None and node.ready):
        return frozenset()
    held = {pools.resource_of(name): spec for name, spec in model.pools.items() if pools.holds_lost(spec)}
    return frozenset(resource for resource in held if not sure or model.always(resource, pools.holds_lost))


def resources_of(claims: Collection[Claim], node: str | None) -> set[str]:
    """What these claims hold units of, on one node or on any."""
    return {pools.resource_of(pool) for pool in pools_of(claims, node)}


def pools_of(claims: Collection[Claim], node: str | None) -> set[str]:
    """The pools of which these claims hold units, on one node or on any."""
    return {each.pool for claim in claims if node in (None, claim.node) for each in claim.holdings}


def summed(found: Iterable[tuple[Domain, int]]) -> dict[Domain, int]:
    total: dict[Domain, int] = {}
    for where, count in found:
        total[where] = total.get(where, 0) + count
    return total
