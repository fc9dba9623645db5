"""In place of Knative Eventing on one machine: list, watch, and send functions the same CloudEvents.
Its clock calls reconcile as a person does, so that `berth up` can print the problems that the answer names.
Like Knative's source it loses events (a broken watch, a function that is away); reconcile repairs that."""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3

from berth.errors import BerthError, ClusterRefusedError, beneath
from berth.kube.cluster import POOL_CLAIMS, POOLS, Cluster
from berth.kube.types import FINISHED
from berth.local.processes import ANSWER_SECONDS, Say

_TYPES = {"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # between a delivery's tries: five retries in 3.1 s, as Knative's source
_RETRIED = (404, 413, 425, 429, 502, 503, 504)
_EVERY_SECONDS = 60.0
_WATCH_PAUSE = 4.0  # longest pause after a watch that failed
_OWN_PAUSE = 30.0  # the same for our own kinds, which a cluster may not serve at all
_FILE_SECONDS = 0.2
_SELECTOR = "spec.schedulerName="
_CONNECTIONS = 8  # to one function: more than there are watches
# No CloudEvent: the answer to one holds no report.
_TICK = {"Content-Type": "application/json", "User-Agent": "berth-up"}

Observe = Callable[[str, Mapping[str, Any]], None]
"""Called about our pods by watching threads: LISTED with {"schedulerName": …, "items": all its pods}, then
ADDED, MODIFIED or DELETED with one pod. What it raises is logged once, and ends no watch."""

Hung = Callable[[str, str, float], None]
"""Called with a function that left an event unanswered, why, and since which monotonic second."""

log = logging.getLogger("berth.relay")


class EventRelay:
    """Watches one cluster and feeds the functions at `urls`, one event at a time for each kind of object."""

    def __init__(
        self,
        cluster: Cluster,
        urls: Mapping[str, str],
        schedulers: Iterable[str],
        pools: Path | None,
        say: Say,
        *,
        observe: Observe | None = None,
        hung: Hung = lambda *_: None,
        seconds: Mapping[str, float] = ANSWER_SECONDS,
        every_change: bool = False,
    ) -> None:
        """`seconds` is how long each function may take for an event. With `every_change` release is told also
        of changes that free nothing, as by Knative's source."""
        self._hung, self._seconds, self._every_change = hung, seconds, every_change
        self._cluster, self._urls, self._say, self._pools = cluster, urls, say, pools
        self._schedulers = tuple(schedulers)
        self._observe, self._observer_failed = observe, False
        self._stop, self._reconcile_now, self._first_done = (threading.Event() for _ in range(3))
        self._awaited: list[threading.Event] = []  # set for each watch once it stands
        self._http = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=False)

    def start(self) -> None:
        """Begin to watch and to tick; the first tick is sent at once."""
        for name in self._schedulers:
            self._watch("/api/v1/pods", {"fieldSelector": f"{_SELECTOR}{name}"}, "release")
        self._watch("/api/v1/nodes", {}, "inventory")
        if self._pools is not None:
            _begin(self._follow_file, self._pools)
        own = (POOLS, POOL_CLAIMS) if self._pools is None else (POOL_CLAIMS,)
        for path in own:
            # Nobody waits for these: the cluster may not serve them.
            _begin(self._follow, path, {}, "inventory", threading.Event(), _OWN_PAUSE)
        _begin(self._tick)

    def wait_first_reconcile(self, stop: threading.Event) -> bool:
        """Wait until a reconcile went through with all watches standing; False if stopped before."""
        while not self._first_done.wait(0.05):
            if stop.is_set():
                return False
        return True

    def stop(self) -> None:
        self._stop.set()
        self._reconcile_now.set()
        self._http.clear()

    def _watch(self, path: str, query: Mapping[str, str], function: str) -> None:
        standing = threading.Event()
        self._awaited.append(standing)
        _begin(self._follow, path, query, function, standing, _WATCH_PAUSE)

    def _follow(
        self, path: str, query: Mapping[str, str], function: str, standing: threading.Event, longest: float
    ) -> None:
        """List, then watch on from there, until stopped."""
        pause, reported = 1.0, ""
        scheduler = query.get("fieldSelector", "").removeprefix(_SELECTOR)
        while not self._stop.is_set():
            try:
                items, version = self._cluster.snapshot(path, query)
                standing.set()
                self._reconcile_now.set()  # what happened before this list was not seen by any watch
                pause, reported = 1.0, ""
                if scheduler:
                    self._show("LISTED", {"schedulerName": scheduler, "items": items})
                for kind, item in self._cluster.watch(path, query, version, self._stop):
                    if scheduler:
                        self._show(kind, item)
                    headers = _event(self._cluster.host, _TYPES[kind], item)
                    if not scheduler or self._every_change or _may_free(kind, item):
                        self._send(function, headers, item)
            except (BerthError, KeyError, TypeError, AttributeError) as error:
                why = str(error) if isinstance(error, BerthError) else f"an object can't be read: {error!r}"
                # A cluster need not have our kinds; reconcile reports it if they are missing.
                if why != reported and not (isinstance(error, ClusterRefusedError) and error.status == 404):
                    reported = why
                    self._say({"watch": path, "state": "failed", "why": why})
                self._stop.wait(pause)
                pause = min(2 * pause, longest)

    def _show(self, kind: str, item: Mapping[str, Any]) -> None:
        if self._observe is None:
            return
        try:
            self._observe(kind, item)
        except Exception:
            # An observer must not end a watch.
            if not self._observer_failed:
                log.exception("a pod that was %s can't be shown", kind)
            self._observer_failed = True

    def _follow_file(self, path: Path) -> None:
        """Reconcile at once when the file of Pools has changed, as with a changed Pool object."""
        before = _stamp(path)
        while not self._stop.wait(_FILE_SECONDS):
            if (now := _stamp(path)) != before:
                before = now
                self._reconcile_now.set()

    def _tick(self) -> None:
        while not self._stop.is_set():
            self._reconcile_now.clear()
            standing = all(watch.is_set() for watch in self._awaited)
            report = self._send("reconcile", _TICK, {"action": "reconcile"})
            if report is None:
                self._stop.wait(1.0)
                continue
            for problem in json.loads(report).get("problems", ()):
                self._say({"state": "problem", "why": problem})
            if standing:
                self._first_done.set()
            self._reconcile_now.wait(_EVERY_SECONDS)

    def _send(self, function: str, headers: Mapping[str, str], data: Any) -> str | None:
        """Deliver one event, with the source's retries; return the answer, or None if the event was lost."""
        body, answer = json.dumps(data, separators=(",", ":")).encode(), ""
        for pause in (*_PAUSES, None):
            began = time.monotonic()
            try:
                status, answer = self._post(function, headers, body)
            except TimeoutError:
                # No retry: it would hold up the events behind this one for as long.
                answer = f"no answer within {self._seconds[function]:g} s"
                self._hung(function, f"an event got {answer}", began)
                break
            if status in (200, 204):
                return answer
            if pause is None or (status and status not in _RETRIED):
                break
            self._stop.wait(pause)
        if not self._stop.is_set():
            what = headers.get("Ce-Type", "tick")
            self._say({"event": what, "to": function, "state": "lost", "why": answer[:500]})
        return None

    def _post(self, function: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Return status and answer; 0 where the function is not there. Raises TimeoutError."""
        url, timeout = self._urls[function], self._seconds[function]
        try:
            reply = self._http.request("POST", url, body=body, headers=headers, timeout=timeout)
        except urllib3.exceptions.HTTPError as error:
            cause = beneath(error) or error  # to urllib3 a refused connection is late, too
            if isinstance(cause, TimeoutError):
                raise cause from error
            return 0, f"{url}: {type(cause).__name__}"
        return reply.status, reply.data.decode(errors="replace")


def _begin(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


def _may_free(change: str, pod: Mapping[str, Any]) -> bool:
    """Whether release would look at this change of a pod: of all others it knows that they free nothing."""
    return change == "DELETED" or (pod.get("status") or {}).get("phase") in FINISHED


def _event(host: str, change: str, item: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that Knative's ApiServerSource sends in mode Resource (recorded in events/)."""
    meta = item["metadata"]
    namespace = meta.get("namespace", "")
    root = "/apis" if "/" in item["apiVersion"] else "/api"
    within = f"/namespaces/{namespace}" if namespace else ""
    return {
        "Content-Type": "application/json",
        "Ce-Specversion": "1.0",
        "Ce-Id": str(uuid.uuid4()),
        "Ce-Source": host,
        "Ce-Type": f"dev.knative.apiserver.resource.{change}",
        "Ce-Time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "Ce-Subject": f"{root}/{item['apiVersion']}{within}/{item['kind'].lower()}s/{meta['name']}",
        "Ce-Apiversion": item["apiVersion"],
        "Ce-Kind": item["kind"],
        "Ce-Name": meta["name"],
        "Ce-Namespace": namespace,
    }


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
