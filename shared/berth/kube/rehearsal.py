"""A cluster for a rehearsal: what reads, asks the API server; what would write, is noted and not done.
It does not know what the API server would have answered to a write: each seems to succeed."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from berth.kube.cluster import Cluster
from berth.kube.types import Pod

_WRITES = ("set_", "apply_", "patch_", "bind", "create", "delete")
"""How the names of those methods of Cluster begin that write."""


class Rehearsal:
    """Stands in for `cluster`. `pods` are those that were listed, by UID; `writes` are the calls that were
    not made: the method's name and its arguments."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.listed: dict[str, Pod] = {}
        self.writes: list[tuple[str, tuple[Any, ...]]] = []

    @property
    def as_cluster(self) -> Cluster:
        """Return this for whoever takes a cluster."""
        return cast(Cluster, self)

    def pods(self, wanted: Callable[[Pod], bool] | None = None) -> list[Pod]:
        """Return all pods that are wanted, as Cluster does, and keep them."""
        pods = self._cluster.pods(wanted)
        self.listed = {pod.metadata.uid: pod for pod in pods}
        return pods

    def set_condition(self, pod: Pod, condition: Mapping[str, str], *timeout: float) -> Pod | None:
        """Return the pod as it is, None if it is gone: nothing is written. One that was just read is not
        read again."""
        self.writes.append(("set_condition", (pod, condition)))
        if pod.metadata.resource_version is not None:
            return pod
        return self._cluster.pod(pod.namespace, pod.metadata.name, *timeout, uid=pod.metadata.uid)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        if not name.startswith(_WRITES):
            return method

        def note(*arguments: Any, **_: Any) -> None:
            self.writes.append((name, arguments))

        return note
