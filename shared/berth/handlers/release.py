"""release: a pod event says that a pod may be gone or finished; if the API server agrees, free its units.
A delete event alone frees nothing: see docs/kubernetes.md#a-delete-event-of-a-pod-that-lives."""

import logging
import time
from collections.abc import Callable, Collection, Mapping

from berth.api.names import is_name
from berth.controller.alarm import Alarm, alarm_of, cordoned
from berth.controller.gang import came_or_went
from berth.controller.notices import FINISHED, SILENT, Subject, Teller
from berth.controller.poolclaims import publish_free
from berth.controller.requeue import SharedWake, room_in, wake
from berth.controller.retention import has_rest, holdings_told, still_held
from berth.errors import BadInputError, BerthError
from berth.handlers.wiring import ledger_and_cluster, teller
from berth.http import cloudevents
from berth.http.cloudevents import Event
from berth.http.endpoint import Endpoint
from berth.kube.cluster import Cluster, list_waiting
from berth.kube.types import Pod
from berth.ledger.freed import NO_WAITERS, Waiters
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.demand import demand_of, might_ask
from berth.settings import Settings
from berth.telemetry import calls

log = logging.getLogger("berth.claims")

_LATEST_SECONDS = 600.0
"""How old an event's time may be that the journal believes: a source that tries again does so for as long."""


class Release:
    """The release function on one ledger and cluster; safe for many events at once."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        schedulers: tuple[str, ...],
        clock: Callable[[], float] = time.time,
        teller: Teller = SILENT,
        alarm: Alarm | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`alarm` wakes pods later, too; without it nobody does but the next event and reconcile. `wall` is
        this machine's own clock, as filter goes by it."""
        self._wall = wall
        self._teller, self._alarm = teller, alarm
        self._ledger, self._cluster, self._schedulers, self._clock = ledger, cluster, schedulers, clock
        self._shared_wake = SharedWake(self._wake)

    def run(self, event: Event) -> dict[str, object]:
        """Return what came of the event: units released, pods woken. Raises BadInputError, store and cluster
        errors."""
        if event.kind() != "Pod":
            raise BadInputError(f"release takes events of Pods, and this is about a {event.kind()}")
        pod: Pod = event.object_as(Pod)
        if not pod.metadata.uid or not pod.metadata.name:
            raise BadInputError("the event's Pod has no UID or no name")
        calls.about(pod=pod.label, uid=pod.metadata.uid, node=pod.spec.node_name or "")
        ended = event.deletion or pod.finished or pod.never_runs
        came = self._wake_gang(pod, went=ended) if ended or not might_ask(pod) else 0
        woke = {"woken": came} if came else {}
        if not ended:
            return {"released": 0, **woke, "why": "the pod is neither deleted nor finished"}
        if not might_ask(pod):
            # Where the source can't select by label (before Kubernetes 1.36), most events are of such pods.
            why = "the pod asks for no extended resource, so it holds no unit"
            return {"released": 0, **woke, "why": why}
        if self._held_nothing(pod):
            return self._went_while_it_waited(pod)
        there = self._cluster.pod(pod.namespace, pod.metadata.name, uid=pod.metadata.uid)
        if there is not None and not (there.finished or there.never_runs):
            return {"released": 0, "why": f"the API server says that pod {pod.label} lives"}
        return self._end(pod, there, event.time if there is None else there.finished_at)

    def _held_nothing(self, pod: Pod) -> bool:
        """Whether the pod was never bound, and has neither a claim nor units that are held in line.

        A bind that has read the pod before it went gives back by itself what it reserves after."""
        if pod.spec.node_name:
            return False
        uid, view = pod.metadata.uid, self._ledger.view()
        held_in_line = any(hold.uid == uid for hold in view.line_holds.values())
        return not (view.keys_of(uid) or held_in_line)

    def _went_while_it_waited(self, pod: Pod) -> dict[str, object]:
        """Free nothing. Of a hundred pods that go at once most may have waited: the API server is not asked
        about each of them."""
        view = self._ledger.view()
        room = demand_of(pod, view.resources).units
        free = self._left_to_who_went(pod, room, view)
        woken = self._shared_wake.freed(free, "") if free else self._wake_again(room, "")
        return {"released": 0, "woken": woken, "why": "the pod was on no node, and held no unit"}

    def _left_to_who_went(self, pod: Pod, pools: Collection[str], view: View) -> dict[str, int]:
        """Return the units, by pool, that were left to this pod and others that went, and are left to nobody
        now: there are enough for all who still wait."""
        now = self._wall()
        recent = {pool: freed for pool in pools if (freed := view.freed(pool, now))}
        if not recent or self._alarm is None:
            return {}
        self._alarm.known.went(pod.metadata.uid)
        waiting = self._waiting(view).pods
        enough = [
            pool
            for pool, freed in recent.items()
            if sum(each.count for each in freed.values()) >= waiting.get(pool, 0)
        ]
        return {pool: units for pool in enough if (units := self._ledger.leave_to_all(pool, now))}

    def _end(self, pod: Pod, there: Pod | None, ended: float | None) -> dict[str, object]:
        """Free what the pod holds, which is `there` or gone (None), and wake who can use it. `ended` is when
        its use ended, as far as that is known."""
        uid, view = pod.metadata.uid, self._ledger.view()
        claims = view.claims_of(uid)
        ran = claims if there is None or there.finished else ()
        held = still_held(ran, there, view.pools, self._cluster.node, self._clock())
        freed = self._ledger.release(
            uid,
            pod.label,
            hold=held.pools,
            hold_as=held.state,
            elsewhere=held.elsewhere,
            view=view,
            ended=self._believed(ended),
            bound=bool(pod.spec.node_name),
            rests=has_rest(claims, there, view.pools, self._cluster.ended_pod),
            waiting=self._waiting(view) if view.keys_of(uid) else NO_WAITERS,
        )
        calls.about(**holdings_told(freed))
        turn = self._ledger.drop_line_hold(uid, label=pod.label)
        if there is not None and there.finished:
            self._teller.released(Subject.of_pod(there), freed, there.spec.node_name or "", FINISHED)
        publish_free(self._ledger, self._cluster, freed, clock=self._clock)
        demand = demand_of(pod, view.resources).units
        retaining = {name for name, pool in view.pools.items() if pool.retains}
        demanded = {pool: units for pool, units in demand.items() if pool not in held.pools}
        room = room_in((*freed, *turn)) or demanded
        if held.state == "lost":
            # Units that are lost with their node are no longer what the next pod of that name waits for.
            room = {**dict.fromkeys(held.pools, 1), **room}
        node = pod.spec.node_name or ""
        left = node if is_name(node) else ""  # a forged one would be asked for again and again
        # A repeated event frees nothing, but the first may have failed before it woke anyone.
        woken = self._shared_wake.freed(room, left) if freed or turn else self._wake_again(room, left)
        if self._alarm is not None and not retaining.isdisjoint(room):
            self._alarm.arm(self._ledger.view())
        return {
            "released": sum(holding.count for holding in freed if not holding.is_quota),
            "woken": woken,
            **({"held": sorted(held.pools)} if held.pools else {}),
        }

    def _wake_gang(self, pod: Pod, *, went: bool) -> int:
        """Return how many pods were woken that waited for this one to come or to go. What asks for units is
        tried by kube-scheduler when it comes, and its bind reserves for all."""
        now = self._clock()
        woken = came_or_went(self._ledger, self._cluster, pod, self._schedulers, now, went=went)
        if woken:
            self._ledger.metrics.changed("woken", woken)
        return woken

    def _waiting(self, view: View) -> Waiters:
        """Return how many pods wait for units, where there is an alarm; none where they can't be listed."""
        if self._alarm is None:
            return NO_WAITERS
        try:
            waiting = self._alarm.known.counts(lambda: list_waiting(self._cluster, self._schedulers), view)
        except BerthError as error:
            log.warning("who waits is not known: %s", error)
            return NO_WAITERS
        return Waiters(self._wall(), waiting)

    def _believed(self, ended: float | None) -> float | None:
        """Return the time that an event tells, if it may be so: anybody may send an old one."""
        return ended if ended is not None and self._clock() - ended <= _LATEST_SECONDS else None

    def _wake_again(self, room: Mapping[str, int], left: str) -> int:
        """Return how many were woken for an event that freed nothing."""
        if self._alarm is not None and self._alarm.rings_soon(room):
            return 0
        return self._shared_wake.again(room, left)

    def _wake(self, room: Mapping[str, int], left: Collection[str]) -> int:
        """Return how many were woken for this room; no node that was `left` has any if it takes no pods."""
        alarm = self._alarm

        def shut() -> Collection[str]:
            return cordoned(self._cluster, left)

        return wake(
            self._ledger,
            self._cluster,
            self._schedulers,
            room,
            self._clock(),
            shut=shut if alarm is None else lambda: alarm.known.closed(left, shut),
            staged=None if alarm is None else alarm.later(left, a_pod_went=True),
        )


def endpoint(settings: Settings, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    ledger, cluster = ledger_and_cluster(settings, metrics.of("release"))
    told = teller(cluster, settings, "release", metrics)
    alarm = alarm_of(ledger, cluster, settings.scheduler_names, clock=cluster.now)
    release = Release(ledger, cluster, settings.scheduler_names, cluster.now, told, alarm)

    def handle(headers: Mapping[str, str], body: bytes) -> Mapping[str, object]:
        return release.run(cloudevents.decode(headers, body))

    return cloudevents.subscriber("release", handle, ledger.check, settings)
