"""Records Kubernetes Events about pods (events.k8s.io/v1), from a thread and a connection of their own.
An event is for people: one that can't be sent is dropped, and no call waits for it or fails by it."""

import atexit
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.event_queue import Entry, EventQueue, Outcome, PodEvent

log = logging.getLogger("berth.pod-events")

CONTROLLER = "berth.dev/"
"""How the name of what reports our events begins; the function's name follows."""

Told = Callable[[str, str], None]
"""Is told an event's reason, and what became of it: sent, aggregated, dropped or failed."""

CLOSE_SECONDS = 1.0
_LOG_SECONDS = 60.0
_LONGEST_NOTE = 1024  # bytes, says the API server
_LONGEST_NAME = 253
_LONGEST_INSTANCE = 128


class EventSender(Protocol):
    """Writes Event objects. Raises as Cluster does."""

    def create_event(self, namespace: str, document: Mapping[str, Any]) -> None:
        """Create the Event object."""

    def repeat_event(self, namespace: str, name: str, series: Mapping[str, Any]) -> None:
        """Write how often the event came."""


class EventRecorder:
    """The events of one process, as `function` reports them. Safe to use from many threads, and after a fork.

    Its thread begins with the first event. `close` sends what waits, as far as the rate lets it.
    """

    def __init__(
        self,
        sender: EventSender,
        function: str,
        told: Told = lambda _reason, _outcome: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender, self._told = sender, told
        self._clock, self._monotonic = clock, monotonic
        self._controller = f"{CONTROLLER}{function}"
        self._instance = (socket.gethostname() or "berth")[:_LONGEST_INSTANCE]
        self._changed = threading.Condition()
        self._queue = EventQueue(monotonic())
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lost, self._log_from = 0, float("-inf")

    def record(self, event: PodEvent) -> None:
        """Take an event to be sent. It returns at once, and raises nothing."""
        try:
            with self._changed:
                outcome = "dropped" if self._closed else self._add(event)
            if outcome != "queued":
                self._told(event.reason, outcome)
        except Exception:  # an event must not fail the call that it tells of
            log.exception("an event about pod %s/%s was not recorded", event.namespace, event.pod)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Take no more, and wait so long at most until what waits is sent; the rest is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(seconds)
        with self._changed:
            dropped = self._queue.drop()
        for event in dropped:
            self._told(event.reason, "dropped")

    def _add(self, event: PodEvent) -> Outcome:
        outcome = self._queue.add(event, self._monotonic(), self._clock())
        if outcome == "dropped":
            self._lost += 1
        elif self._queue.new == 1 or len(self._queue) == 1:
            self._changed.notify()  # where more wait, it is the rate that they wait for
        # One that began before a fork is no thread of this process.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="pod-events", daemon=True)
            self._thread.start()
        return outcome

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            error, name = None, ""
            count, last = entry.count, entry.last
            try:
                name = self._send(entry, count, last)
            except Exception as raised:  # noqa: BLE001 - a fault of ours must not end the thread either
                error = raised
            self._note(entry, name, count, error)

    def _next(self) -> Entry | None:
        """Return the next event once it may be sent; None at the end."""
        with self._changed:
            while True:
                due = self._queue.next(self._monotonic(), last=self._closed)
                if isinstance(due, Entry):
                    return due
                if self._closed and not len(self._queue):
                    return None
                self._changed.wait(min(due, threading.TIMEOUT_MAX))

    def _send(self, entry: Entry, count: int, last: float) -> str:
        """Write the event, or how often it came. Return the object's name."""
        event = entry.event
        if entry.name:
            try:
                self._sender.repeat_event(event.namespace, entry.name, _series(count, last))
            except ClusterRefusedError as error:
                if error.status != 404:  # the API server forgets events after an hour
                    raise
            else:
                return entry.name
        name = _name(event.pod, last if entry.name else entry.first)
        try:
            self._sender.create_event(event.namespace, self._document(entry, name, count, last))
        except ClusterRefusedError as error:
            if error.status != 409 or not entry.tries:  # the first try's answer was lost
                raise
        return name

    def _note(self, entry: Entry, name: str, count: int, error: Exception | None) -> None:
        """Remember what became of it, and say so."""
        reason, now = entry.event.reason, self._monotonic()
        with self._changed:
            if error is None:
                self._queue.sent(entry, name, count)
                outcome, lost = "sent", self._lost
            else:
                again = isinstance(error, ClusterUnavailableError)
                outcome = "failed" if self._queue.failed(entry, now, again=again) else ""
                self._lost += outcome == "failed"
                lost = self._lost
            tell = lost > 0 and now >= self._log_from
            if tell:
                self._lost, self._log_from = 0, now + _LOG_SECONDS
        if outcome:
            self._told(reason, outcome)
        if tell:
            why = "more came than may be sent" if error is None else str(error) or type(error).__name__
            log.warning("%d events about pods were not sent: %s", lost, why)

    def _document(self, entry: Entry, name: str, count: int, last: float) -> dict[str, Any]:
        event = entry.event
        regarding = {"kind": "Pod", "apiVersion": "v1", "namespace": event.namespace, "name": event.pod}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": event.namespace},
            "eventTime": _time(entry.first),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "regarding": {**regarding, "uid": event.uid},
            "note": _cut(event.note, _LONGEST_NOTE),
            "type": "Warning" if event.warning else "Normal",
            **({"series": _series(count, last)} if count > 1 else {}),
        }


def recorder_until_exit(recorder: EventRecorder) -> EventRecorder:
    """Return the recorder, which is closed at the end of the process."""
    atexit.register(recorder.close)
    return recorder


def _series(count: int, last: float) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": _time(last)}


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _name(pod: str, at: float) -> str:
    """Return the object's name, as client-go makes it: the pod's, and the time in nanoseconds."""
    end = f".{int(at * 1e9):x}"
    return f"{pod[: _LONGEST_NAME - len(end)].rstrip('.-')}{end}"


def _cut(text: str, most: int) -> str:
    """Return the text in at most so many bytes of UTF-8."""
    raw = text.encode()
    return text if len(raw) <= most else f"{raw[: most - 3].decode(errors='ignore')}…"
