"""Promise 3: what is so at rest, when nothing is under way and one reconcile has come by undisturbed.
The ledger is held against the API server's pods, nodes and Pools by the model, domain by domain."""

from collections.abc import Callable, Collection, Iterable, Mapping

from berth.documents import Claim
from tests.contract.properties import pools
from tests.contract.properties.api import Api
from tests.contract.properties.kept import Kept
from tests.contract.properties.model import Model
from tests.contract.properties.pools import CLAIMED, NOWHERE, Domain, NodeIs
from tests.contract.properties.seen import kinds


class Rest:
    """`told` are the units that pods were told of, by UID and pool; `keep` takes whether a thing is so."""

    def __init__(
        self,
        api: Api,
        model: Model,
        told: Mapping[str, Mapping[str, set[str]]],
        keep: Callable[[bool, str], None],
    ) -> None:
        self._api, self._model, self._told, self._keep = api, model, told, keep

    def look(self, ledger: Kept) -> None:
        pods, nodes = self._api.pods(), self._api.nodes()
        holders = self._model.holders(pods)
        lost = {
            uid
            for uid, found in ledger.claims.items()
            if uid not in holders and pools_of(found, None) <= held_for_the_node(found[0], self._model, nodes)
        }
        held = {
            uid: {(claim.node, claim.state) for claim in found}
            for uid, found in ledger.claims.items()
            if uid not in lost
        }
        wanted = {uid: {(node, "bound")} for uid, node in holders.items()}
        self._keep(held == wanted, f"the ledger has {held}, and the pods {wanted}")
        for uid in held.keys() & wanted.keys():
            self._holds_what_it_should(uid, ledger.claims[uid][0], self._model.holds(uid, pods[uid]))
        there = pools.capacities(self._model.pools, nodes)
        self._capacities(ledger, there)
        self._model.most = (
            there
            | {
                (pool, pools.LIMITED): spec["limits"]["*"]
                for pool, spec in self._model.pools.items()
                if "limits" in spec
            }
            | {CLAIMED: 1}
        )

    def _holds_what_it_should(self, uid: str, claim: Claim, of: Collection[str]) -> None:
        """In its node's domain, where that has one; the units it was told, as long as they are listed."""
        nodes = self._api.nodes()
        node, lost = nodes.get(claim.node), held_for_the_node(claim, self._model, nodes)
        places = {pool: pools.place(spec, claim.node, node) for pool, spec in self._model.pools.items()}
        fixed = {
            pool
            for pool, place in places.items()
            if place != NOWHERE and not pools.named(self._model.pools[pool])
        }

        def place(pool: str) -> str:
            return places[pool] if pool in fixed else ""

        wanted = {where: count for where, count in self._model.units(uid, place).items() if where[0] in of}
        found: dict[Domain, int] = {}
        for each in (each for each in claim.holdings if each.pool in of or each.pool not in lost):
            where = (each.pool, each.place) if each.pool in fixed else kinds((each.pool, each.place), 0)[0]
            found[where] = found.get(where, 0) + each.count
        if not self._model.claimed:
            found.pop(CLAIMED, None), wanted.pop(CLAIMED, None)
        self._keep(found == wanted, f"{uid} holds {found}, and it should hold {wanted}: {claim}")
        for pool in of:
            told = self._told.get(uid, {}).get(pool, set())
            listed = {unit for units in self._model.pools[pool].get("units", {}).values() for unit in units}
            mine = {unit for each in claim.holdings for unit in each.units if each.pool == pool}
            self._keep(told & listed <= mine, f"{uid} was told {told} of {pool}, and holds {mine}")

    def _capacities(self, ledger: Kept, there: Mapping[Domain, int]) -> None:
        found = {
            where: head.capacity
            for where in ledger.wholes
            if where[1][0] not in "@!"
            and (head := ledger.head(where)) is not None
            and head.capacity is not None
        }
        elsewhere = {
            pool: {unit for where in ledger.wholes if where[0] == pool for unit in ledger.units(where)}
            for pool in self._model.pools
        }
        for where in found.keys() | there.keys():
            lists = self._model.pools[where[0]].get("units", {}).get(where[1].removesuffix("<"), ())
            away = len(set(lists) & elsewhere[where[0]] - ledger.units(where)) if where[1][-1] != "<" else 0
            right = found.get(where) == (there[where] - away if where in there else None)
            self._keep(right, f"the ledger has {found.get(where)} units of {where}, and there are {there}")


def held_for_the_node(claim: Claim, model: Model, nodes: Mapping[str, NodeIs]) -> frozenset[str]:
    """The pools whose units stay held because the node of a pod that has ended may use them."""
    node = nodes.get(claim.node)
    if claim.state == "reserved" or (node is not None and node.ready):
        return frozenset()
    return frozenset(pool for pool, spec in model.pools.items() if pools.holds_lost(spec))


def pools_of(claims: Collection[Claim], node: str | None) -> set[str]:
    """The pools of which these claims hold units, on one node or on any."""
    return {each.pool for claim in claims if node in (None, claim.node) for each in claim.holdings}


def summed(found: Iterable[tuple[Domain, int]]) -> dict[Domain, int]:
    total: dict[Domain, int] = {}
    for where, count in found:
        total[where] = total.get(where, 0) + count
    return total
