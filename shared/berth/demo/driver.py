"""Stands in for kube-scheduler in the demo: filter, prioritize, bind, back-off, waiting, waking.
It has no plugins, no preemption and no resources of nodes; `berth demo --real` runs kube-scheduler itself."""

import http.client
import json
import select
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

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
        self._failures: dict[str, int] = {}
        self._trying: str | None = None
        self._assumed: set[str] = set()  # bound, whether the watch has shown it or not
        self._attempts = 0
        self._stop = threading.Event()
        self._connections: dict[str, http.client.HTTPConnection] = {}
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Begin to watch and to schedule, in threads of its own."""
        query = {"fieldSelector": f"spec.schedulerName={self._scheduler}"}
        for path, selector in (("/api/v1/pods", query), ("/api/v1/nodes", {})):
            threading.Thread(target=self._follow, args=(path, selector), daemon=True).start()
        self._thread.start()

    def stop(self) -> None:
        """End its calls; its watches end with the API server."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

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

    def _follow(self, path: str, query: Mapping[str, str]) -> None:
        while not self._stop.is_set():
            try:
                items, version = self._cluster.snapshot(path, query)
                self._start_over(path, items)
                for kind, item in self._cluster.watch(path, query, version, self._stop):
                    self._note(path, kind, item)
            except BerthError:
                self._stop.wait(0.2)

    def _start_over(self, path: str, items: Iterable[Json]) -> None:
        with self._changed:
            (self._nodes if path.endswith("/nodes") else self._pods).clear()
            for item in items:
                self._note(path, "ADDED", item)

    def _note(self, path: str, kind: str, item: Json) -> None:
        with self._changed:
            if path.endswith("/nodes"):
                self._note_node(kind, item)
            else:
                self._note_pod(kind, item)
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

    def _run(self) -> None:
        try:
            self._schedule()
        finally:
            for connection in self._connections.values():
                connection.close()

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
        if answer is None or answer.get("Error"):
            self._retry(pod, "the extender did not answer filter" if answer is None else answer["Error"])
            return
        if not answer["NodeNames"]:
            refused = {
                **(answer.get("FailedNodes") or {}),
                **(answer.get("FailedAndUnresolvableNodes") or {}),
            }
            self._refused(pod, len(nodes), refused)
            return
        scores = self._call("prioritize", {**arguments, "NodeNames": answer["NodeNames"]}) or []
        best = {score["Host"]: score["Score"] for score in scores}
        self._bind(pod, min(answer["NodeNames"], key=lambda name: (-best.get(name, 0), name)))

    def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        answer = self._call(
            "bind",
            {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node},
        )
        if answer is None or answer["Error"]:
            self._retry(pod, "the extender did not answer bind" if answer is None else answer["Error"])
            with self._changed:
                self._try_all()  # what the pod was assumed to use is free again
            return
        with self._changed:
            self._assumed.add(meta["uid"])
            self._due.pop(meta["uid"], None)

    def _refused(self, pod: Json, count: int, reasons: Mapping[str, str]) -> None:
        tally: dict[str, int] = {}
        for reason in reasons.values():
            tally[reason] = tally.get(reason, 0) + 1
        listed = ", ".join(f"{many} {reason}" for reason, many in sorted(tally.items()))
        self._say(pod, f"0/{count} nodes are available: {listed}.")

    def _retry(self, pod: Json, why: str) -> None:
        uid = pod["metadata"]["uid"]
        failures = self._failures[uid] = self._failures.get(uid, -1) + 1
        with self._changed:
            if uid in self._pods:
                self._due[uid] = time.monotonic() + min(
                    _BACKOFF_SECONDS[0] * 2**failures, _BACKOFF_SECONDS[1]
                )
            self._changed.notify_all()
        self._say(pod, why)

    def _say(self, pod: Json, message: str) -> None:
        meta = pod["metadata"]
        target = Pod(Meta(name=meta["name"], namespace=meta["namespace"], uid=meta["uid"]))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        try:
            self._cluster.set_condition(target, condition)
        except BerthError:
            return  # only what a person sees; the next attempt says it again

    def _call(self, verb: str, body: Json) -> Any:
        """Make one call on this verb's own connection; return None where it failed."""
        content = json.dumps(body).encode()
        try:
            return self._post(verb, content)
        except (OSError, http.client.HTTPException, ValueError):
            self._connections.pop(verb).close()
            return None

    def _post(self, verb: str, content: bytes) -> Any:
        if verb not in self._connections:
            host = urlsplit(self._extender).netloc
            self._connections[verb] = http.client.HTTPConnection(host, timeout=_CALL_SECONDS)
        connection = self._connections[verb]
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # the server ended it while idle; Go's client notices that, too
        connection.request("POST", f"/{verb}", content, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        return json.loads(answer) if reply.status == 200 else None


def _others(pod: Json) -> object:
    """Return the pod without what the scheduler writes itself: its own patch must not wake it."""
    conditions = pod["status"].get("conditions", [])
    others = [condition for condition in conditions if condition["type"] != "PodScheduled"]
    meta = {
        key: value
        for key, value in pod["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    return meta, pod["spec"], others
