"""How many pods wait for each pool: from any pods, or from the API server's list.
It looks at pods only; whether a waiter could be served now is not its question."""

from collections.abc import Iterable, Mapping

from berth.api.pool import Pool
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.scheduling.demand import demand_of

_SECONDS = 5.0  # for each list: somebody sits there and waits


def asking(pods: Iterable[Pod], resources: Mapping[str, Pool]) -> dict[str, int]:
    """How many of these pods wait for each pool, by its name; `resources` are the Pools by resource."""
    found: dict[str, int] = {}
    for pod in pods:
        for pool in demand_of(pod, resources).units if pod.waiting else ():
            found[pool] = found.get(pool, 0) + 1
    return found


def listed(cluster: Cluster, schedulers: Iterable[str], resources: Mapping[str, Pool]) -> dict[str, int]:
    """The same for all our pods, as the API server has them now. Raises its errors."""
    return asking((pod for name in schedulers for pod in cluster.unbound_pods(name, _SECONDS)), resources)
