"""Stands in for kube-scheduler in the demo: filter, prioritize, bind, back-off, waiting, waking.
It has no plugins, no preemption and no resources of nodes; `berth demo --real` runs kube-scheduler itself."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import urllib3

from berth.demo.observer import follow
from berth.errors import BerthError
from berth.kube.cluster import Cluster
from berth.kube.types import Meta, Pod

Json = dict[str, Any]

# kube-scheduler's first and longest (podInitialBackoffSeconds, podMaxBackoffSeconds).
_BACKOFF_SECONDS = (1.0, 10.0)
_CALL_SECONDS = 5.0


class Driver:
    """Schedules the pods of one schedulerName on an API server, calling the extender at a URL.

    As with the real one, a pod that no node took is tried again when a pod is deleted, when a bind fails,
    when a node comes or changes, or when the pod itself is changed; otherwise only after five minutes, which
    the demo never waits. Two things differ, so that two worlds stay comparable: a pod is bound before the
    next one is filtered, which is kinder to a counter, and among equal nodes the first is taken.
    """

    def __init__(self, cluster: Cluster, extender: str, scheduler: str) -> None:
        self._cluster, self._extender, self._scheduler = cluster, extender, scheduler
        self._changed = threading.Condition()  # with a lock that its holder may take again
        self._pods: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._due: dict[str, float] = {}  # pods to be tried, by the time from which they may be
        self._failures = Counter[str]()
        self._trying: str | None = None
        self._assumed: set[str] = set()  # bound, whether the watch has shown it or not
        self._attempts = 0
        self._stop = threading.Event()
        # As with Go's client: a connection is used again, unless the server ended it while it was idle.
        self._http = urllib3.PoolManager(timeout=_CALL_SECONDS, retries=False)
        self._thread = threading.Thread(target=self._schedule, name="driver", daemon=True)

    def start(self) -> None:
        """Begin to watch and to schedule, in threads of its own."""
        ours = {"fieldSelector": f"spec.schedulerName={self._scheduler}"}
        for watched in (
            ("/api/v1/pods", ours, self._pods, self._note_pod),
            ("/api/v1/nodes", {}, self._nodes, self._note_node),
        ):
            threading.Thread(target=self._follow, args=watched, daemon=True).start()
        self._thread.start()

    def stop(self) -> None:
        """End its calls; its watches end with the API server."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._http.clear()

    def attempts(self) -> int:
        """Return how many times it has tried a pod."""
        with self._changed:
            return self._attempts

    def idle(self, pods: Iterable[Json]) -> bool:
        """Whether it has seen these pods as they are, and has none of them to try."""
        now = {pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in pods}
        with self._changed:
            seen = {uid: pod["metadata"]["resourceVersion"] for uid, pod in self._pods.items()}
            return seen == now and not self._due and self._trying is None

    def _follow(
        self, path: str, query: Mapping[str, str], known: dict[str, Json], note: Callable[[str, Json], None]
    ) -> None:
        for kind, items in follow(self._cluster, path, query, self._stop):
            with self._changed:
                if kind == "LISTED":
                    known.clear()
                for item in items:
                    note(kind, item)
                self._changed.notify_all()

    def _note_node(self, kind: str, item: Json) -> None:
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = item
        self._try_all()

    def _note_pod(self, kind: str, item: Json) -> None:
        uid, before = item["metadata"]["uid"], self._pods.get(item["metadata"]["uid"])
        if kind == "DELETED":
            self._pods.pop(uid, None)
            self._due.pop(uid, None)
            self._assumed.discard(uid)
            self._try_all()
            return
        self._pods[uid] = item
        if item["spec"].get("nodeName"):
            self._due.pop(uid, None)
        elif uid not in self._assumed and (before is None or _others(before) != _others(item)):
            self._due.setdefault(uid, time.monotonic())

    def _try_all(self) -> None:
        for uid, pod in self._pods.items():
            if not pod["spec"].get("nodeName") and uid not in self._assumed:
                self._due.setdefault(uid, time.monotonic())

    def _schedule(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                now = time.monotonic()
                ready = [uid for uid, at in self._due.items() if at <= now]
                if not ready:
                    self._changed.wait(min([0.2, *(max(0.001, at - now) for at in self._due.values())]))
                    continue
                pod, nodes = self._pods[ready[0]], sorted(self._nodes)
                del self._due[ready[0]]
                self._trying, self._attempts = ready[0], self._attempts + 1
            self._attempt(pod, nodes)
            with self._changed:
                self._trying = None

    def _attempt(self, pod: Json, nodes: list[str]) -> None:
        arguments = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        answer = self._call("filter", arguments)
        if answer.get("Error"):
            self._retry(pod, answer["Error"])
            return
        if not answer["NodeNames"]:
            unresolvable = answer.get("FailedAndUnresolvableNodes") or {}
            reasons = Counter({**(answer.get("FailedNodes") or {}), **unresolvable}.values())
            listed = ", ".join(f"{many} {reason}" for reason, many in sorted(reasons.items()))
            self._say(pod, f"0/{len(nodes)} nodes are available: {listed}.")
            return
        scores = self._call("prioritize", {**arguments, "NodeNames": answer["NodeNames"]})
        best = {score["Host"]: score["Score"] for score in scores} if isinstance(scores, list) else {}
        self._bind(pod, min(answer["NodeNames"], key=lambda name: (-best.get(name, 0), name)))

    def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        answer = self._call(
            "bind",
            {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node},
        )
        if answer["Error"]:
            self._retry(pod, answer["Error"])
            with self._changed:
                self._try_all()  # what the pod was assumed to use is free again
            return
        with self._changed:
            self._assumed.add(meta["uid"])
            self._due.pop(meta["uid"], None)

    def _retry(self, pod: Json, why: str) -> None:
        uid = pod["metadata"]["uid"]
        first, longest = _BACKOFF_SECONDS
        with self._changed:
            if uid in self._pods:
                self._due[uid] = time.monotonic() + min(first * 2 ** self._failures[uid], longest)
            self._failures[uid] += 1
            self._changed.notify_all()
        self._say(pod, why)

    def _say(self, pod: Json, message: str) -> None:
        meta = pod["metadata"]
        target = Pod(Meta(name=meta["name"], namespace=meta["namespace"], uid=meta["uid"]))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        with suppress(BerthError):  # only what a person sees; the next attempt says it again
            self._cluster.set_condition(target, condition)

    def _call(self, verb: str, body: Json) -> Any:
        """Return the extender's answer; one with an Error where it gave none."""
        with suppress(urllib3.exceptions.HTTPError, ValueError):
            reply = self._http.request("POST", f"{self._extender}/{verb}", json=body)
            if reply.status == 200:
                return reply.json()
        return {"Error": f"the extender did not answer {verb}"}


def _others(pod: Json) -> object:
    """Return the pod without what the scheduler writes itself: its own patch must not wake it."""
    own = ("resourceVersion", "managedFields")
    meta = {key: value for key, value in pod["metadata"].items() if key not in own}
    conditions = pod["status"].get("conditions", [])
    return meta, pod["spec"], [condition for condition in conditions if condition["type"] != "PodScheduled"]
