"""inventory: a node or Pool event says that capacity may have changed; take it from the cluster as it is.
The event's own object is not believed; it only says where to look."""

import logging
import time
from collections.abc import Callable, Mapping

from berth import events, wire
from berth.cluster import Cluster
from berth.decisions import CapacityChange
from berth.errors import BadInputError
from berth.events import Event
from berth.http import Endpoint, Reply
from berth.ledger import Ledger
from berth.objects import Node
from berth.policy.pools import by_resource
from berth.settings import Settings
from berth.steps.adopt import adopt
from berth.steps.ours import ledger_and_cluster
from berth.steps.publish import publish
from berth.steps.stock import read_pools, take_stock, take_stock_of
from berth.steps.wake import room_in, wake

log = logging.getLogger("berth.inventory")


def run(
    ledger: Ledger, cluster: Cluster, settings: Settings, event: Event, clock: Callable[[], float] = time.time
) -> dict[str, object]:
    """How many domains' capacity changed, and how many pods were woken by it."""
    kind = event.kind()
    ledger.require_ours()
    if kind == "Node":
        changes = _node(ledger, cluster, event)
    elif kind == "Pool":
        pools = read_pools(settings.pools, cluster)
        if pools == ledger.view().pools:
            # Most often its status was written, by us, and a look at all nodes for that is dear. What one
            # that was killed after apply_pools left undone, reconcile does.
            return {"changed": 0, "woken": 0}
        adopt(ledger, cluster, cluster.pods(), by_resource(pools), clock())
        ledger.apply_pools(pools)
        changes = take_stock(ledger, cluster.nodes)
    else:
        raise BadInputError(f"inventory takes events of Nodes and Pools, and this is about a {kind}")
    woken = wake(ledger, cluster, settings.scheduler_names, room_in(changes), clock())
    if settings.pools is None and (changes or kind == "Pool"):
        for problem in publish(ledger, cluster, settings.scheduler_names):
            log.warning("%s", problem)
    return {"changed": len(changes), "woken": woken}


def _node(ledger: Ledger, cluster: Cluster, event: Event) -> list[CapacityChange]:
    name: str = event.about(Node).metadata.name
    if not name:
        raise BadInputError("the event's Node has no name")
    return take_stock_of(ledger, name, lambda: cluster.node(name))


def endpoint(settings: Settings) -> Endpoint:
    ledger, cluster = ledger_and_cluster(settings)

    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        return Reply(200, wire.encode(run(ledger, cluster, settings, events.decode(headers, body))))

    return Endpoint(
        name="inventory",
        answer=answer,
        failed=events.failed,
        health=ledger.check,
        body_limit=settings.body_limit,
    )
