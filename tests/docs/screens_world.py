"""The small cluster of docs/screens.md: Berth's stand-in for the API server, three nodes, two Pools, pods.
These were made and bound nine hours ago, so that the ages that commands print are the same each time."""

import time
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Self

from berth.cli import main
from berth.handlers.bind import Bind
from berth.http.extender_v1 import BindingCall
from berth.kube.cluster import connect
from berth.ledger.ledger import Ledger
from berth.scheduling.fit import evaluate
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.support.cluster import Cluster as TestCluster

NODES = ("node-1", "node-2", "node-3")
AGO = 9.5 * 3600
"""Seconds: kubectl, and Berth, print an age between 9 and 10 hours as 9h."""
POOLS = """\
apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: matlab-seat}
spec:
  scope: Cluster
  units: {"*": [seat-1, seat-2, seat-3, seat-4]}
  limits: {team-b: 1}
---
apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: underlay-ip}
spec:
  capacity: {perDomain: 2}
"""
MORE = """\
apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: underlay-ip}
spec:
  capacity: {perDomain: 3}
  limits: {team-b: 4}
"""
TYPO = """\
apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: underlay-ip}
spec:
  capacty: {perDomain: 3}
  score: spread
"""
WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: more, namespace: team-a}
spec:
  replicas: 5
  template:
    spec:
      schedulerName: berth
      containers:
        - name: main
          resources: {limits: {berth.dev/underlay-ip: "1"}}
"""
MISTAKES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: berth
    pluginConfig:
      - name: NodeResourcesFit
        args: {ignoredResourceGroups: [berth.dev]}
extenders:
  - urlPrefix: https://extender.berth
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    weight: 1
    nodeCacheCapable: true
    httpTimeout: 1s
"""
SEAT, ADDRESS = "berth.dev/matlab-seat", "berth.dev/underlay-ip"
_PODS = (
    ("team-a", "matlab-0", {SEAT: 1}, "node-1"),
    ("team-a", "matlab-1", {SEAT: 2}, "node-2"),
    ("team-b", "matlab-0", {SEAT: 1}, "node-3"),
    ("team-a", "web-0", {ADDRESS: 1}, "node-1"),
    ("team-a", "web-1", {ADDRESS: 1}, "node-2"),
    ("team-a", "matlab-2", {SEAT: 1}, ""),
    ("team-b", "matlab-1", {SEAT: 1}, ""),
)


class World:
    """The cluster, its ledger and the files beside them, in a folder, while it is entered."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count(1)
        self._api = StandIn(clock=self._then, uids=self._uid)
        self.environment = {
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "BERTH_STORE": f"sqlite:///{folder}/ledger.db",
            "BERTH_POOLS": str(folder / "pools.yaml"),
        }

    def __enter__(self) -> Self:
        self._api.start()
        self._api.kubeconfig(self._folder / "kubeconfig")
        (self._folder / "pools.yaml").write_text(POOLS)
        for name, text in (("more", MORE), ("typo", TYPO), ("web", WEB), ("mistakes", MISTAKES)):
            (self._folder / f"{name}.yaml").write_text(text)
        return self

    def __exit__(self, *_: object) -> None:
        self._api.stop()

    def fill(self) -> None:
        """Make nodes and pods, and place them as kube-scheduler would: call it with `environment` set."""
        cluster = TestCluster(self._api.url, "")
        for node in NODES:
            cluster.create_node(node)
        assert main(["reconcile"]) == 0
        for namespace, name, resources, node in _PODS:
            uid = cluster.create_pod(name, resources, namespace)["metadata"]["uid"]
            if node:
                self._bind(BindingCall(name, namespace, uid, node))
            else:
                self._refuse(cluster, namespace, name)
        cluster.close()
        assert main(["reconcile"]) == 0

    def rest(self) -> None:
        """Let nothing happen."""

    def lose_an_event(self) -> None:
        """Delete a pod without a word to any function."""
        cluster = TestCluster(self._api.url, "")
        cluster.delete_pod("web-1", "team-a")
        cluster.close()

    def _bind(self, call: BindingCall) -> None:
        api = connect()
        with closing(open_store(self.environment["BERTH_STORE"])) as store:
            Bind(Ledger(store, cluster=api.identity), api, ("berth",), self._then).run(call)

    def _refuse(self, cluster: TestCluster, namespace: str, name: str) -> None:
        """Write into the pod what kube-scheduler writes of a refusal by filter."""
        pod = connect().pod(namespace, name)
        assert pod is not None
        with closing(open_store(self.environment["BERTH_STORE"])) as store:
            reasons = evaluate(pod, NODES, Ledger(store).view(), self._then()).reasons
        counted = ", ".join(f"{number} {text}" for text, number in Counter(reasons.values()).items())
        message = f"0/{len(NODES)} nodes are available: {counted}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        cluster.patch(path, {"status": {"conditions": [condition]}}, "strategic")

    def _then(self) -> float:
        return time.time() - AGO

    def _uid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._numbers):012}"
