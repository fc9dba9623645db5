"""Counts from the API server's own pod watch how many units each node's pods held at every moment.

It sees what the API server shows, in its order; what happened while the API server could not go on from where
the watch was, it does not see: it lists anew and says so in `gaps`.
"""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import urllib3

SETTLE_SECONDS = 60.0
RETRY_SECONDS = 0.05
GONE = 410


class Held(NamedTuple):
    node: str
    units: int


class Moment(NamedTuple):
    at: float
    pod: str
    node: str
    held: int


class Gap(NamedTuple):
    """Between the two resourceVersions nothing was seen but its end; `changed` pods differed by then."""

    since: str
    until: str
    changed: int


class _GoneError(Exception):
    """The API server does not remember what came after the cursor."""


class PodWatch:
    """`peak` is the most ever held by a node, `held` the last, `history` each change, `bound_at` when a pod's
    binding was first seen (time.monotonic(), by pod name), `unnominated` how often a pod that was not bound
    lost its nominated node (by pod name), `gaps` where the watch could not go on."""

    def __init__(self, http: urllib3.PoolManager, url: str, token: str, resource: str) -> None:
        self.peak: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self.history: list[Moment] = []
        self.bound_at: dict[str, float] = {}
        self.unnominated: Counter[str] = Counter()
        self.gaps: list[Gap] = []
        self._http, self._url, self._resource = http, f"{url}/api/v1/pods", resource
        self._headers = {"Authorization": f"Bearer {token}"}
        self._holders: dict[str, Held] = {}
        self._names: dict[str, str] = {}
        self._nominated: set[str] = set()
        self._versions: dict[str, str] = {}
        self._gone: set[str] = set()
        self._cursor = ""
        self._lost: str | None = None
        self._stopping = threading.Event()
        self._stream: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._follow, name="pod-watch", daemon=True)

    def __enter__(self) -> Self:
        self._take_list(self._list())
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.settle()
        finally:
            self._stop()

    @property
    def total(self) -> int:
        """Units held by all pods now, as far as it has seen."""
        return sum(list(self.held.values()))

    def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Returns when everything that a list shows now has been counted."""
        listed = self._list()
        versions = {
            pod["metadata"]["uid"]: int(pod["metadata"]["resourceVersion"]) for pod in listed["items"]
        }
        until = int(listed["metadata"]["resourceVersion"])
        deadline = time.monotonic() + seconds
        while self._is_behind(versions, until):
            if self._lost or time.monotonic() > deadline:
                raise AssertionError(self._lost or f"the pod watch is more than {seconds:g} s behind")
            time.sleep(0.02)

    def _is_behind(self, versions: dict[str, int], until: int) -> bool:
        """Against a list; pods may have moved on since it was made."""
        seen = {uid: int(version) for uid, version in self._versions.copy().items()}
        late = (uid for uid, version in versions.items() if seen.get(uid, 0) < version)
        return any(uid not in self._gone for uid in late) or any(
            version <= until for uid, version in seen.items() if uid not in versions
        )

    def _list(self) -> Any:
        answer = self._http.request("GET", self._url, headers=self._headers, timeout=120)
        if answer.status != 200:
            raise urllib3.exceptions.HTTPError(f"the list of pods was answered with {answer.status}")
        return answer.json()

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
            except (urllib3.exceptions.HTTPError, json.JSONDecodeError):
                # The API server is away or cut the stream; the cursor says where to go on.
                self._stopping.wait(RETRY_SECONDS)
            except _GoneError:
                self._list_anew()

    def _read_stream(self) -> None:
        query = {"watch": "1", "resourceVersion": self._cursor}
        timeout = urllib3.Timeout(connect=30, read=None)
        self._stream = self._http.request(
            "GET", self._url, fields=query, headers=self._headers, timeout=timeout, preload_content=False
        )
        try:
            if self._stream.status == 200:
                self._read_events(self._stream)
            elif self._stream.status == GONE:
                raise _GoneError
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
        if event["type"] != "ERROR":
            self._take(event["type"], event["object"])
            self._cursor = event["object"]["metadata"]["resourceVersion"]
        elif event["object"].get("code") == GONE:
            raise _GoneError
        elif event["object"].get("code", 0) < 500:
            self._lost = f"the pod watch cannot go on: {event}"
        else:
            raise urllib3.exceptions.HTTPError(f"the pod watch was ended: {event}")

    def _list_anew(self) -> None:
        try:
            listed = self._list()
        except urllib3.exceptions.HTTPError:
            self._stopping.wait(RETRY_SECONDS)  # the next watch from the same cursor leads here again
            return
        since, before = self._cursor, self._versions.copy()
        self._take_list(listed)
        changed = sum(
            before.get(uid) != self._versions.get(uid) for uid in before.keys() | self._versions.keys()
        )
        self.gaps.append(Gap(since, self._cursor, changed))

    def _take_list(self, listed: dict[str, Any]) -> None:
        """One moment, whose pods do not come one after the other: first what gave units back."""
        pods = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        for uid in self._versions.keys() - pods.keys():
            self._move(uid, self._names[uid], None)
            self._remember(uid, None)
        for pod in sorted(pods.values(), key=lambda pod: self._holds(pod) is not None):
            self._take("ADDED", pod)
        self._cursor = listed["metadata"]["resourceVersion"]

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        self._move(uid, metadata["name"], None if kind == "DELETED" else self._holds(pod))
        self._nominate(uid, pod, gone=kind == "DELETED")
        self._names[uid] = metadata["name"]
        self._remember(uid, None if kind == "DELETED" else metadata["resourceVersion"])

    def _move(self, uid: str, name: str, after: Held | None) -> None:
        before = self._holders.pop(uid, None)
        if after is not None:
            self._holders[uid] = after
            self.bound_at.setdefault(name, time.monotonic())
        if before != after:
            self._count(name, before, -1)
            self._count(name, after, 1)

    def _nominate(self, uid: str, pod: dict[str, Any], *, gone: bool) -> None:
        if pod["status"].get("nominatedNodeName"):
            self._nominated.add(uid)
        elif uid in self._nominated:
            self._nominated.discard(uid)
            if not gone and not pod["spec"].get("nodeName"):
                self.unnominated[pod["metadata"]["name"]] += 1

    def _remember(self, uid: str, version: str | None) -> None:
        # Last: once settle() sees the version, everything else has been counted.
        if version is None:
            self._gone.add(uid)
            self._versions.pop(uid, None)
        else:
            self._versions[uid] = version

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
