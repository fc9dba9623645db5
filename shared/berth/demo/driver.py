"""Plays kube-scheduler in the demo: filter, prioritize, an asynchronous bind, back-off, waiting, waking.
It is not kube-scheduler: no plugins, no preemption, no assumed resources; tests/e2e runs the real one."""

import http.client
import json
import random
import select
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from berth.cluster import Cluster
from berth.errors import BerthError
from berth.objects import Meta, Pod

Json = dict[str, Any]

_BACKOFF_SECONDS = (
    1.0,
    10.0,
)  # kube-scheduler's first and longest (podInitialBackoffSeconds, podMaxBackoffSeconds)
_CALL_SECONDS = 5.0


class Driver:
    """Schedules the pods of one schedulerName on an API server, calling the functions at `urls`.

    As with the real one, a pod that no node took is tried again when a pod is deleted, when a node comes or
    changes, or when the pod itself is changed; otherwise only after five minutes, which the demo never waits.
    """

    def __init__(self, cluster: Cluster, urls: Mapping[str, str], scheduler: str, rng: random.Random) -> None:
        self._cluster, self._urls, self._scheduler, self._rng = cluster, urls, scheduler, rng
        self._changed = threading.Condition()
        self._pods: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._due: dict[str, float] = {}  # pods to be tried, by the time from which they may be
        self._failures: dict[str, int] = {}
        self._binding: set[str] = set()
        self._stop = threading.Event()
        self._binders = ThreadPoolExecutor(4, thread_name_prefix="bind")
        self._local = threading.local()

    def start(self) -> None:
        """Begin to watch and to schedule, in threads of its own."""
        query = {"fieldSelector": f"spec.schedulerName={self._scheduler}"}
        for work, arguments in (
            (self._follow, ("/api/v1/pods", query)),
            (self._follow, ("/api/v1/nodes", {})),
            (self._schedule, ()),
        ):
            threading.Thread(target=work, args=arguments, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._binders.shutdown(cancel_futures=True)

    def _follow(self, path: str, query: Mapping[str, str]) -> None:
        while not self._stop.is_set():
            try:
                items, version = self._cluster.snapshot(path, query)
                for item in items:
                    self._note(path, "ADDED", item)
                for kind, item in self._cluster.watch(path, query, version, self._stop):
                    self._note(path, kind, item)
            except BerthError:
                self._stop.wait(0.2)

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
            self._try_all()
            return
        self._pods[uid] = item
        if item["spec"].get("nodeName"):
            self._due.pop(uid, None)
        elif before is None or _others(before) != _others(item):
            self._due.setdefault(uid, time.monotonic())

    def _try_all(self) -> None:
        for uid, pod in self._pods.items():
            if not pod["spec"].get("nodeName") and uid not in self._binding:
                self._due.setdefault(uid, time.monotonic())

    def _schedule(self) -> None:
        while not self._stop.is_set():
            with self._changed:
                now = time.monotonic()
                ready = [uid for uid, at in self._due.items() if at <= now and uid not in self._binding]
                if not ready:
                    self._changed.wait(min([0.2, *(max(0.001, at - now) for at in self._due.values())]))
                    continue
                pod, nodes = self._pods[ready[0]], sorted(self._nodes)
                del self._due[ready[0]]
            self._attempt(pod, nodes)

    def _attempt(self, pod: Json, nodes: list[str]) -> None:
        arguments = {"Pod": pod, "Nodes": None, "NodeNames": nodes}
        found = self._call("filter", arguments)
        if found is None or found["Error"]:
            self._retry(pod, "the filter function did not answer" if found is None else found["Error"])
            return
        if not found["NodeNames"]:
            self._refused(pod, len(nodes), found["FailedAndUnresolvableNodes"])
            return
        scores = self._call("prioritize", {**arguments, "NodeNames": found["NodeNames"]}) or []
        best = {score["Host"]: score["Score"] for score in scores}
        top = max(best.get(name, 0) for name in found["NodeNames"])
        node = self._rng.choice([name for name in found["NodeNames"] if best.get(name, 0) == top])
        with self._changed:
            self._binding.add(pod["metadata"]["uid"])
        self._binders.submit(self._bind, pod, node)

    def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        answer = self._call(
            "bind",
            {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node},
        )
        with self._changed:
            self._binding.discard(meta["uid"])
        if answer is None or answer["Error"]:
            self._retry(pod, "the bind function did not answer" if answer is None else answer["Error"])

    def _refused(self, pod: Json, count: int, reasons: Mapping[str, str]) -> None:
        tally: dict[str, int] = {}
        for reason in reasons.values():
            tally[reason] = tally.get(reason, 0) + 1
        said = ", ".join(f"{many} {reason}" for reason, many in sorted(tally.items()))
        self._say(pod, f"0/{count} nodes are available: {said}.")

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
        found = Pod(Meta(name=meta["name"], namespace=meta["namespace"], uid=meta["uid"]))
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        try:
            self._cluster.set_condition(found, condition)
        except BerthError:
            return  # only what a person sees; the next attempt says it again

    def _call(self, verb: str, body: Json) -> Any:
        """One call on this thread's kept-alive connection; None where it failed."""
        content = json.dumps(body).encode()
        try:
            return self._post(verb, content)
        except (OSError, http.client.HTTPException, ValueError):
            self._local.__dict__.pop(verb).close()
            return None

    def _post(self, verb: str, content: bytes) -> Any:
        connections = self._local.__dict__
        if verb not in connections:
            host = urlsplit(self._urls[verb]).netloc
            connections[verb] = http.client.HTTPConnection(host, timeout=_CALL_SECONDS)
        connection: http.client.HTTPConnection = connections[verb]
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # the server ended it while idle; Go's client notices that, too
        connection.request("POST", f"/{verb}", content, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        return json.loads(answer) if reply.status == 200 else None


def _others(pod: Json) -> object:
    """The pod without what the scheduler writes itself: its own patch must not wake it."""
    conditions = [found for found in pod["status"].get("conditions", []) if found["type"] != "PodScheduled"]
    meta = {
        key: value
        for key, value in pod["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    return meta, pod["spec"], conditions
