"""What the functions count, in Prometheus' form, and right for all processes of a function together.
It keeps no history: whoever scrapes does. Nothing that a pod says is a label.

Each process counts in a file of its own in one folder (PROMETHEUS_MULTIPROC_DIR), and a scrape of any of them
adds up the files. A process takes the first place that is free in the folder, by a lock that its death frees:
so its successor goes on with its file, and neither loses nor doubles what the dead one had counted.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.metrics_core import Metric as Family

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder; the library reads it, too."""

CALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300)
"""Bounds of call durations: kube-scheduler gives a call 5 s, and Knative a reconcile 600 s."""

WAKE_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Bounds of the time from a wake to the Binding; promise 6 says within a second."""

MOST_PENDING = 1000
"""Counts that wait for the library to be imported; it is, when the first call has been answered."""


class Metric(NamedTuple):
    """One metric of the functions: its kind, labels and what it tells."""

    kind: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


METRICS: Mapping[str, Metric] = {
    "berth_call_duration_seconds": Metric(
        "histogram",
        ("function", "outcome"),
        "Time from a request's last byte to its answer, and how it ended",
        CALL_SECONDS,
    ),
    "berth_refused_pods": Metric(
        "counter",
        ("pool", "rule"),
        "Calls of filter that refused a pod on all nodes offered, by pool and rule",
    ),
    "berth_ledger_commits": Metric(
        "counter",
        ("store", "outcome"),
        "Commits of the ledger: committed, conflict (decided again), failed (the store's error)",
    ),
    "berth_changes": Metric(
        "counter",
        ("function", "change"),
        "Changes that were made: claims reserved, confirmed, cancelled, released, adopted; pods woken",
    ),
    "berth_pod_events": Metric(
        "counter",
        ("reason", "outcome"),
        "Kubernetes Events about pods: sent, aggregated into one of before, dropped by the rate, failed",
    ),
    "berth_licence_readings": Metric(
        "counter",
        ("pool", "outcome"),
        "Readings of what others use of a pool: read, outdated (a later one stood), failed",
    ),
    "berth_wake_to_binding_seconds": Metric(
        "histogram", (), "Time from a pod's last wake to its Binding", WAKE_SECONDS
    ),
}
"""All metrics of the functions, by name; a counter's gets _total."""


class Metrics:
    """Counts for one function, or for none if its `folder` is None: then nothing is counted.

    Safe for many threads. `of` names the function, `store` the kind of store.
    """

    def __init__(self, folder: Path | None = None, function: str = "", store: str = "") -> None:
        self._function, self._store = function, store
        self._counts = None if folder is None else _Counts(folder)

    def of(self, function: str, store: str = "") -> "Metrics":
        """Return these metrics for a function, with its store's kind."""
        named = Metrics(None, function or self._function, store or self._store)
        named._counts = self._counts
        return named

    @property
    def ready(self) -> bool:
        """Whether counting takes microseconds: the library is there, or nothing is counted."""
        return self._counts is None or self._counts.ready

    def called(self, function: str, outcome: str, seconds: float) -> None:
        """Count one answered request; it imports the library if nobody has."""
        if self._counts is not None:
            self._counts.load()
            self._counts.add("berth_call_duration_seconds", (function, outcome), seconds)

    def refused(self, pool: str, rule: str) -> None:
        """Count a pod that was refused on all nodes by a pool's rule."""
        self._add("berth_refused_pods", (pool, rule))

    def committed(self, outcome: str) -> None:
        """Count one commit of the ledger."""
        self._add("berth_ledger_commits", (self._store, outcome))

    def changed(self, change: str, times: int = 1) -> None:
        """Count changes that were made."""
        if times:
            self._add("berth_changes", (self._function, change), times)

    def told(self, reason: str, outcome: str) -> None:
        """Count what became of a Kubernetes Event about a pod."""
        self._add("berth_pod_events", (reason, outcome))

    def licences_read(self, pool: str, outcome: str) -> None:
        """Count one reading of what others use of a pool."""
        self._add("berth_licence_readings", (pool, outcome))

    def bound_after(self, seconds: float) -> None:
        """Count the Binding of a pod that was woken so many seconds before."""
        self._add("berth_wake_to_binding_seconds", (), seconds)

    def page(self) -> tuple[str, bytes]:
        """Return the content type and the body of a scrape: what all processes of the folder have counted."""
        return ("text/plain; version=0.0.4", b"") if self._counts is None else self._counts.page()

    def _add(self, name: str, labels: tuple[str, ...], amount: float = 1) -> None:
        if self._counts is not None:
            self._counts.add(name, labels, amount)


UNCOUNTED = Metrics()
"""For who counts nothing: tests, the command line."""


class _Counts:
    """The library's metrics, made when they are needed: to import it takes 60 ms."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._metrics: dict[str, MetricWrapperBase] = {}
        self._records: dict[tuple[str, tuple[str, ...]], Callable[[float], None]] = {}
        self._pending: list[tuple[str, tuple[str, ...], float]] = []
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        return bool(self._metrics)

    def load(self) -> None:
        """Import the library if that was not done, and count what waits for it."""
        if self._metrics:
            return
        with self._lock:
            self._metrics = self._metrics or dict(_made(self._folder))
            pending, self._pending = self._pending, []
        for name, labels, amount in pending:
            self.add(name, labels, amount)

    def add(self, name: str, labels: tuple[str, ...], amount: float) -> None:
        """Count, at once or once the library is there."""
        record = self._records.get((name, labels)) or self._record(name, labels)
        if record is not None:
            record(amount)
            return
        with self._lock:
            if not self._metrics:
                if len(self._pending) < MOST_PENDING:
                    self._pending.append((name, labels, amount))
                return
        self.add(name, labels, amount)

    def _record(self, name: str, labels: tuple[str, ...]) -> Callable[[float], None] | None:
        """Return what counts these labels, kept for the next time; None while the library is not there."""
        if not self._metrics:
            return None
        metric = self._metrics[name]
        child: Any = metric.labels(*labels) if labels else metric
        record: Callable[[float], None]
        record = child.observe if METRICS[name].kind == "histogram" else child.inc
        self._records[name, labels] = record
        return record

    def page(self) -> tuple[str, bytes]:
        from prometheus_client import CollectorRegistry, generate_latest

        self.load()
        registry = CollectorRegistry()
        registry.register(_Files(self._folder))
        return "text/plain; version=0.0.4; charset=utf-8", generate_latest(registry)


class _Files:
    """What all processes have counted, in their files, as the library's own collector has it.

    That one fails at a file that is empty: a process has just made it, or died as it did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> "Iterator[Family]":
        from prometheus_client.multiprocess import MultiProcessCollector

        files = [str(file) for file in self._folder.glob("*.db") if file.stat().st_size]
        yield from MultiProcessCollector.merge(files, accumulate=True)  # type: ignore[no-untyped-call]


def _made(folder: Path) -> "Iterator[tuple[str, MetricWrapperBase]]":
    """Yield the library's metrics by name, each counted in this process's file."""
    os.environ[FOLDER] = str(folder)
    from prometheus_client import Counter, Histogram, values

    # The library's own names files by PID: a crash-looping process would leave more and more of them.
    values.ValueClass = values.MultiProcessValue(_Place(folder))  # type: ignore[no-untyped-call]
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            yield name, Histogram(name, metric.help, metric.labels, buckets=metric.buckets, registry=None)
        else:
            yield name, Counter(name, metric.help, metric.labels, registry=None)


class _Place:
    """The place of this process in the folder; a fork takes another one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid, self._place, self._lock = folder, 0, "", -1

    def __call__(self) -> str:
        if self._pid != os.getpid():
            self._place, self._lock = self._taken()
            self._pid = os.getpid()
        return self._place

    def _taken(self) -> tuple[str, int]:
        """Return the first free place, and the file whose lock says that it is taken."""
        for number in count():
            lock = os.open(self._folder / f"place-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return str(number), lock
        raise AssertionError  # count() does not end


def own_folder() -> Path:
    """Return the folder that PROMETHEUS_MULTIPROC_DIR names, or a new one; it is there then."""
    named = os.environ.get(FOLDER)
    if not named:
        made = Path(tempfile.mkdtemp(prefix="berth-metrics-"))
        atexit.register(_removed, made, os.getpid())
        return made
    folder = Path(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _removed(folder: Path, process: int) -> None:
    """Remove the folder, at the end of the process that made it; its forks come by here, too."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
