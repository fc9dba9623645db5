"""In place of Knative Eventing on one machine: list, watch, and send functions the same CloudEvents.
Its clock calls reconcile as a person does, so that `berth up` can print the problems that the answer names.
Like Knative's source it loses events (a broken watch, a function that is away); reconcile repairs that."""

import json
import logging
import queue
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3

from berth.api.gang import GANG
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError, beneath
from berth.kube.cluster import POOL_CLAIMS, POOLS, Cluster
from berth.kube.types import FINISHED
from berth.local.processes import ANSWER_SECONDS, Say
from berth.telemetry import calls

_TYPES = {"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # between a delivery's tries: five retries in 3.1 s, as Knative's source
_RETRIED = (404, 413, 425, 429, 502, 503, 504)
_EVERY_SECONDS = 60.0
_FIRST_PAUSE = 1.0  # after a watch that failed; it doubles
_WATCH_PAUSE = 4.0  # longest pause after a watch that failed
_OWN_PAUSE = 30.0  # the same for our own kinds, which a cluster may not serve at all
_FILE_SECONDS = 0.2
_SELECTOR = "spec.schedulerName="
_CONNECTIONS = 8  # to one function: more than there are watches and lanes
LANES = 4  # in which events of pods are sent
_LANE_EVENTS = 256  # that wait in a lane; then its watch is read no further
# No CloudEvent: the answer to one holds no report.
_TICK = {"Content-Type": "application/json", "User-Agent": "berth-up"}

Observe = Callable[[str, Mapping[str, Any]], None]
"""Called about our pods by watching threads: LISTED with {"schedulerName": …, "items": all its pods}, then
ADDED, MODIFIED or DELETED with one pod. What it raises is logged once, and ends no watch."""

Hung = Callable[[str, str, float], None]
"""Called with a function that left an event unanswered, why, and since which monotonic second."""

log = logging.getLogger("berth.relay")


class EventRelay:
    """Watches one cluster and feeds the functions at `urls`: with events of pods a few at a time, as a Broker
    does, and one by one with those of other objects."""

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
        clock: Callable[[], float] = time.time,
        lanes: int = LANES,
    ) -> None:
        """`seconds` is how long each function may take for an event. With `every_change` release is told also
        of changes that free nothing, as by Knative's source. Events of pods are sent in so many `lanes`."""
        self._hung, self._seconds, self._every_change = hung, seconds, every_change
        self._cluster, self._urls, self._say, self._pools = cluster, urls, say, pools
        self._schedulers = tuple(schedulers)
        self._outage, self._problems = _Outage(cluster.host, say, clock), list[str]()
        self._last_loss = ""  # of a tick
        self._observe, self._observer_failed, self._lanes = observe, False, lanes
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
        pause, reported = _FIRST_PAUSE, ""
        scheduler = query.get("fieldSelector", "").removeprefix(_SELECTOR)
        send = _Lanes(self._lanes, self._send, self._stop).put if scheduler else self._send
        while not self._stop.is_set():
            began, listed = time.monotonic(), False
            try:
                items, version = self._cluster.snapshot(path, query)
                standing.set()
                self._outage.answered(path)
                listed = True
                self._reconcile_now.set()  # what happened before this list was not seen by any watch
                pause, reported = _FIRST_PAUSE, ""
                if scheduler:
                    self._show("LISTED", {"schedulerName": scheduler, "items": items})
                for kind, item in self._changes(path, query, version):
                    if scheduler:
                        self._show(kind, item)
                    headers = _event(self._cluster.host, _TYPES[kind], item)
                    if not scheduler or self._every_change or _may_free(kind, item):
                        send(function, headers, item)
            except ClusterUnavailableError as error:
                if not listed:  # a watch that breaks off proves nothing
                    self._outage.failed(path, str(error), began)
                self._stop.wait(pause)
                pause = min(2 * pause, longest)
            except (BerthError, KeyError, TypeError, AttributeError) as error:
                why = str(error) if isinstance(error, BerthError) else f"an object can't be read: {error!r}"
                # A cluster need not have our kinds; reconcile reports it if they are missing.
                if why != reported and not (isinstance(error, ClusterRefusedError) and error.status == 404):
                    reported = why
                    self._say({"watch": path, "state": "failed", "why": why})
                self._stop.wait(pause)
                pause = min(2 * pause, longest)

    def _changes(
        self, path: str, query: Mapping[str, str], version: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the changes since the version. A watch that the API server ends, as it does where its
        changes are read slowly, goes on from the last of them: a list tells of no pod that went.

        It ends where a watch brought nothing, or its version is too old."""
        before = ""
        while version != before and not self._stop.is_set():
            before = version
            for kind, item in self._cluster.watch(path, query, version, self._stop):
                version = item["metadata"].get("resourceVersion") or version
                yield kind, item

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
            if self._outage.lasts:
                # Each try would be a line in reconcile's log. A list that succeeds ends the wait.
                self._reconcile_now.wait(_EVERY_SECONDS)
                if self._stop.is_set():
                    return
            standing = all(watch.is_set() for watch in self._awaited)
            report = self._send("reconcile", _TICK, {"action": "reconcile"})
            if report is None:
                self._stop.wait(1.0)
                continue
            self._report(json.loads(report).get("problems", ()))
            if standing:
                self._first_done.set()
            self._reconcile_now.wait(_EVERY_SECONDS)

    def _report(self, problems: Sequence[str]) -> None:
        """Say which problems are new, and which are no more."""
        for problem in self._problems:
            if problem not in problems:
                self._say({"state": "mended", "why": problem})
        for problem in problems:
            if problem not in self._problems:
                self._say({"state": "problem", "why": problem})
        self._problems, self._last_loss = list(problems), ""

    def _send(self, function: str, headers: Mapping[str, str], data: Any) -> str | None:
        """Deliver one event, with the source's retries; return the answer, or None if the event was lost."""
        with calls.producing(f"send {function}") as span:
            answer = self._delivered(function, headers, _traced(headers, calls.outgoing(span)), data)
            span.set({"outcome": "failed" if answer is None else "answered"})
            return answer

    def _delivered(
        self, function: str, headers: Mapping[str, str], more: Mapping[str, str], data: Any
    ) -> str | None:
        body, answer = json.dumps(data, separators=(",", ":")).encode(), ""
        for pause in (*_PAUSES, None):
            began = time.monotonic()
            try:
                status, answer = self._post(function, {**headers, **more}, body)
            except TimeoutError:
                # No retry: it would hold up the events behind this one for as long.
                answer = f"no answer within {self._seconds[function]:g} s"
                self._hung(function, f"an event got {answer}", began)
                break
            if status in (200, 204):
                return answer
            if pause is None or (status and status not in _RETRIED):
                break
            if headers is _TICK and self._outage.lasts:
                break
            self._stop.wait(pause)
        if not self._stop.is_set() and not (headers is _TICK and self._said_before(answer)):
            what = headers.get("Ce-Type", "tick")
            self._say({"event": what, "to": function, "state": "lost", "why": answer[:500]})
        return None

    def _said_before(self, why: str) -> bool:
        """Whether a tick that was lost is no news: the last one was for the same reason, or the API server is
        away, which was said."""
        before, self._last_loss = self._last_loss, why
        return why == before or self._outage.lasts

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


class _Lanes:
    """Sends events of many objects at once, and those of one object one after another: a hundred pods may go
    together, and the last of them should not wait for a hundred answers."""

    def __init__(
        self, count: int, send: Callable[[str, Mapping[str, str], Any], object], stop: threading.Event
    ) -> None:
        self._send, self._stop = send, stop
        self._lanes = [queue.Queue[tuple[str, Mapping[str, str], Any]](_LANE_EVENTS) for _ in range(count)]
        for lane in self._lanes:
            _begin(self._drive, lane)

    def put(self, function: str, headers: Mapping[str, str], item: Any) -> None:
        """Have it sent; wait while its lane is full, until stopped."""
        lane = self._lanes[lane_of(item["metadata"]["uid"], len(self._lanes))]
        put = False
        while not put and not self._stop.is_set():
            with suppress(queue.Full):
                lane.put((function, headers, item), timeout=_FIRST_PAUSE)
                put = True

    def _drive(self, lane: queue.Queue[tuple[str, Mapping[str, str], Any]]) -> None:
        while not self._stop.is_set():
            try:
                event = lane.get(timeout=_FIRST_PAUSE)
            except queue.Empty:
                continue
            try:
                self._send(*event)
            except Exception:
                # The events behind it must be sent all the same.
                log.exception("an event of a pod was not sent")


def lane_of(uid: str, lanes: int = LANES) -> int:
    """Return the number of the lane in which events of the object with this UID are sent."""
    return zlib.crc32(uid.encode()) % lanes


class _Outage:
    """Says once that the API server does not answer, and once that it does again, whoever sees that first."""

    def __init__(self, host: str, say: Say, clock: Callable[[], float]) -> None:
        self._host, self._say, self._clock = host, say, clock
        self._lock = threading.Lock()
        self._failed = set[str]()  # the paths that were not answered since it is away
        self._since, self._answered = 0.0, 0.0  # the latter in monotonic seconds

    @property
    def lasts(self) -> bool:
        return bool(self._failed)

    def failed(self, path: str, why: str, began: float) -> None:
        """Note that there was no answer to a request of then."""
        with self._lock:
            if began < self._answered:
                return  # it is back since
            news = not self._failed
            self._failed.add(path)
            if news:
                self._since = self._clock()
                self._say({"cluster": self._host, "state": "away", "time": _time(self._since), "why": why})

    def answered(self, path: str) -> None:
        """Note an answer for this path. Where only some paths are not answered, others prove nothing."""
        with self._lock:
            self._answered = time.monotonic()
            if path in self._failed:
                self._failed.clear()
                now = self._clock()
                after = round(now - self._since)
                self._say({"cluster": self._host, "state": "back", "time": _time(now), "seconds": after})


def _traced(headers: Mapping[str, str], traceparent: str) -> dict[str, str]:
    """Return the headers by which an event, or a tick, is a part of a trace. An event has the extension, too,
    as Knative's have."""
    if not traceparent:
        return {}
    return {"Traceparent": traceparent} | ({} if headers is _TICK else {"Ce-Traceparent": traceparent})


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _begin(target: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()


def _may_free(change: str, pod: Mapping[str, Any]) -> bool:
    """Whether release would look at this change of a pod: of all others it knows that they free nothing, and
    that no gang waits for them."""
    meta = pod["metadata"]
    finished = (pod.get("status") or {}).get("phase") in FINISHED
    never_runs = "deletionTimestamp" in meta and not pod["spec"].get("nodeName")
    return change == "DELETED" or finished or never_runs or GANG in (meta.get("annotations") or {})


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
