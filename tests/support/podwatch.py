"""Counts from the API server's own pod watch how many units each node's pods held at every moment.

It sees what the API server shows, in its order; it cannot see more, and a watch it cannot resume is an error.
"""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import urllib3

SETTLE_SECONDS = 10.0
RETRY_SECONDS = 0.05


class Held(NamedTuple):
    node: str
    units: int


class Moment(NamedTuple):
    at: float
    pod: str
    node: str
    held: int


class PodWatch:
    """`peak` is the most ever held by a node, `held` the last, `history` each change, `bound_at` when a pod's
    binding was first seen (time.monotonic(), by pod name)."""

    def __init__(self, http: urllib3.PoolManager, url: str, token: str, resource: str) -> None:
        self.peak: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.history: list[Moment] = []
        self.bound_at: dict[str, float] = {}
        self._http, self._url, self._resource = http, f"{url}/api/v1/pods", resource
        self._headers = {"Authorization": f"Bearer {token}"}
        self._holders: dict[str, Held] = {}
        self._versions: dict[str, str] = {}
        self._cursor = ""
        self._lost: str | None = None
        self._stopping = threading.Event()
        self._stream: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._follow, name="pod-watch", daemon=True)

    def __enter__(self) -> Self:
        listed = self._list()
        for pod in listed["items"]:
            self._take("ADDED", pod)
        self._cursor = listed["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.settle()
        finally:
            self._stop()

    def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Returns when everything that a list shows now has been counted."""
        deadline = time.monotonic() + seconds
        while not self._has_seen(self._list()["items"]):
            if self._lost or time.monotonic() > deadline:
                raise AssertionError(self._lost or f"the pod watch is more than {seconds:g} s behind")
            time.sleep(0.02)

    def _has_seen(self, pods: list[dict[str, Any]]) -> bool:
        return dict(self._versions) == {
            pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"] for pod in pods
        }

    def _list(self) -> Any:
        return self._http.request("GET", self._url, headers=self._headers, timeout=30).json()

    def _stop(self) -> None:
        self._stopping.set()
        # ValueError: the stream has ended by itself.
        with contextlib.suppress(ValueError, OSError):
            if self._stream is not None:
                self._stream.shutdown()
        self._thread.join(5)

    def _follow(self) -> None:
        while not self._stopping.is_set() and self._lost is None:
            try:
                self._read_stream()
            except urllib3.exceptions.HTTPError:
                # The API server is away or cut the stream; the cursor says where to go on.
                self._stopping.wait(RETRY_SECONDS)

    def _read_stream(self) -> None:
        query = {"watch": "1", "resourceVersion": self._cursor}
        timeout = urllib3.Timeout(connect=2, read=None)
        self._stream = self._http.request(
            "GET", self._url, fields=query, headers=self._headers, timeout=timeout, preload_content=False
        )
        try:
            if self._stream.status == 200:
                self._read_events(self._stream)
            elif self._stream.status == 410:
                self._lost = f"the pod watch cannot go on from {self._cursor}: that is too long ago"
            else:
                self._stopping.wait(RETRY_SECONDS)
        finally:
            self._stream.close()

    def _read_events(self, stream: Iterable[bytes]) -> None:
        for line in stream:
            if self._stopping.is_set() or self._lost:
                return
            self._read_event(json.loads(line))

    def _read_event(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            self._lost = f"the pod watch cannot go on: {event}"
        else:
            self._take(event["type"], event["object"])

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        before, after = self._holders.pop(uid, None), None if kind == "DELETED" else self._holds(pod)
        if after is not None:
            self._holders[uid] = after
            self.bound_at.setdefault(name, time.monotonic())
        if before != after:
            self._count(name, before, -1)
            self._count(name, after, 1)
        self._remember(kind, uid, metadata["resourceVersion"])

    def _remember(self, kind: str, uid: str, version: str) -> None:
        # Last: once settle() sees the version, everything else has been counted.
        if kind == "DELETED":
            self._versions.pop(uid, None)
        else:
            self._versions[uid] = version
        self._cursor = version

    def _holds(self, pod: dict[str, Any]) -> Held | None:
        node = pod["spec"].get("nodeName")
        if not node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return None
        limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
        return Held(node, sum(int(each.get(self._resource, 0)) for each in limits))

    def _count(self, pod: str, held: Held | None, sign: int) -> None:
        if held is None:
            return
        self.held[held.node] += sign * held.units
        self.peak[held.node] = max(self.peak[held.node], self.held[held.node])
        self.history.append(Moment(time.monotonic(), pod, held.node, self.held[held.node]))
