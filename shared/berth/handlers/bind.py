"""bind: reserve the pod's units on the node, make the Binding, confirm (promise 5).
When it can't tell how a Binding ended, it fences the pod, looks, and only then confirms or cancels.

    GET pod ─► reserve ─► POST Binding ─┬─ 201 ─► confirm ─► success
       ▲          ▲                     ├─ 409 ─► GET pod again; of two calls with reservations one goes on
       └──────────┴─────────────────────┤
                                        └─ else ─► fence: PATCH the pod (else GET it), look at its node
                                                     ├─ on this node ─► confirm ─► success
                                                     └─ not ─► cancel, wake ─► Error
"""

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.gang import Gang, gang_of, sized
from berth.controller.adopt import claim_due, stands, told
from berth.controller.annotation import OtherNamesError
from berth.controller.capacity_sync import follow_node
from berth.controller.gang import GangBinding, GangRefusedError, came_or_went, note_refusal
from berth.controller.notices import SILENT, Subject, Teller
from berth.controller.pod_groups import PodGroups
from berth.controller.poolclaims import publish_free, publish_held
from berth.controller.requeue import room_in, wake, wake_these
from berth.controller.retention import holdings_told, release_ended, still_held
from berth.controller.settle import BIND_SECONDS, allocated, claim_of, settle
from berth.deadline import Deadline
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError, RefusedError
from berth.handlers import wiring
from berth.handlers.wiring import ledger_and_cluster
from berth.http import extender_v1
from berth.http.endpoint import Content, Endpoint
from berth.kube.cluster import Cluster
from berth.kube.types import EndedPod, Node, Pod, PodToBind
from berth.kube.woken import woken_at
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.transitions import ElsewhereError, MissingClaimError, SupersededError
from berth.ledger.view import View
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.demand import Terms, might_ask, rank_of, terms_of
from berth.settings import Settings
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.bind")

_WAKE_SECONDS = 0.8  # on top of BIND_SECONDS, and still below what kube-scheduler waits
_TELL_SECONDS = 0.5  # for PoolClaims' status, which is for people
_SETTLE_SECONDS = 1.8  # kept back from the Binding's time, so that its outcome can be settled
# Bytes: what apimachinery takes (TotalAnnotationSizeLimitB, 256 KiB), less what others add to a bound pod.
_MOST_ANNOTATIONS = 250 * 1024
_LOST = "is bound, and berth's ledger was lost meanwhile: its units count again after the next reconcile"


class Bind(NamedTuple):
    """The bind verb on one ledger and cluster; safe for many calls at once, also for one pod."""

    ledger: Ledger
    cluster: Cluster
    schedulers: tuple[str, ...]
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    new_attempt: Callable[[], str] = lambda: uuid.uuid4().hex[:12]
    teller: Teller = SILENT
    pod_groups: PodGroups | None = None  # None: a call reads them anew

    def run(self, call: extender_v1.BindingCall) -> None:
        """Return when the pod is bound to the node and its claim stands; else raise a BerthError that says
        why it is not. No Error is raised after a Binding succeeded."""
        label = f"{call.namespace}/{call.name}"
        calls.about(pod=label, uid=call.uid, node=call.node)
        attempt = BindAttempt(self, call)
        try:
            attempt.run()
        except BerthError as error:
            attempt.tell_if_late(error)
            if isinstance(error, RefusedError):
                calls.decided(log, "refused", {}, "pod %s is refused on %s: %s", label, call.node, error)
            raise
        calls.decided(log, "bound", attempt.told(), "pod %s is bound to %s", label, call.node)


class BindAttempt:
    """One call of bind: its deadline, and the reservation that it has made so far."""

    def __init__(self, verb: Bind, call: extender_v1.BindingCall) -> None:
        self._ledger, self._cluster, self._schedulers = verb.ledger, verb.cluster, verb.schedulers
        self._clock, self._new_attempt, self._teller = verb.clock, verb.new_attempt, verb.teller
        self._call, self._deadline = call, Deadline.after(BIND_SECONDS, verb.monotonic)
        self._pod_groups = verb.pod_groups or PodGroups(verb.cluster, verb.monotonic)
        self._claim: Claim | None = None
        self._annotations: dict[str, str] = {}  # that the Binding writes
        self._seated: Sequence[Pod] = ()  # of its gang, that have seats since its reservation

    def run(self) -> None:
        try:
            self._bind()
        except GangRefusedError as error:
            self._wake_for(error.wanted.holdings)
            self._wake_gang_pods(error.others, "its gang is refused")
            raise
        finally:
            self._wake_gang_pods(self._seated, "its gang has its units")

    def _bind(self) -> None:
        while (pod := self._unbound()) is not None:
            try:
                self._claim = self._reserve(pod)
            except (ElsewhereError, OtherNamesError) as error:
                self._time_left()
                self._settle(error.claim)
            except SupersededError as error:
                self._go_on(error)
            else:
                if self._bound(pod):
                    return

    def _go_on(self, error: SupersededError) -> None:
        """Go on although another call has a reservation for the pod, after our Binding was refused because
        the pod had changed. Raises the error, and leaves no reservation of ours, where the other goes on.

        Its Binding may have been refused for the same change: of two calls exactly one gives up.
        """
        mine, other = self._claim, error.by
        if mine is not None and other is not None and other.node == mine.node:
            self._claim = other  # to be taken over again, unless the pod is bound by now
        elif mine is not None and other is not None and _order(other) < _order(mine):
            self._time_left()
            self._settle(other)
        else:
            self._cancel()
            raise error

    def tell_if_late(self, error: BerthError) -> None:
        """Tell of a failure that comes so late that kube-scheduler, which would, may wait no longer."""
        call = self._call
        if self._deadline.left() <= 0:
            why = f"was not bound to {call.node} in time: {error}"
            self._teller.failed(Subject(call.namespace, call.name, call.uid), why)

    def told(self) -> Facts:
        """Return what the log tells of the claim."""
        return {} if self._claim is None else holdings_told(self._claim.holdings)

    def _unbound(self) -> PodToBind | None:
        """Return the pod, to be bound; None if it is on this node already. Raises, and leaves no reservation,
        if it can't be bound to it."""
        call, pod = self._call, self._pod()
        if pod is None:
            self._release_gone()
            raise RefusedError(f"pod {call.namespace}/{call.name} with UID {call.uid} is gone")
        if pod.spec.node_name:
            self._adopt(pod)
            if pod.spec.node_name == call.node:
                return None
            raise RefusedError(f"pod {pod.label} is bound to node {pod.spec.node_name} already")
        why = self._not_ours(pod)
        if why is not None:
            self._cancel()
            raise RefusedError(f"pod {pod.label} {why}")
        return pod

    def _release_gone(self) -> None:
        """Release what the pod of this name and UID holds, except what stays held."""
        call, view = self._call, self._ledger.view()
        mine = [] if self._claim is None else [self._claim]
        held = still_held([*mine, *view.claims_of(call.uid)], None, view.pools, self._node, self._clock())
        label = f"{call.namespace}/{call.name}"
        freed = self._ledger.release(
            call.uid, label, self._held(), held.pools, held.state, elsewhere=held.elsewhere
        )
        if freed:
            calls.decided(
                log, "released", holdings_told(freed), "pod %s is gone, and its units are free", label
            )
        self._free(freed)

    def _not_ours(self, pod: Pod) -> str | None:
        """Return why this pod may not be bound by us; while it is so, no Binding of it can land either."""
        if pod.spec.scheduler_name not in self._schedulers:
            return f"has schedulerName {pod.spec.scheduler_name}, which is not in BERTH_SCHEDULER_NAMES"
        if pod.metadata.deletion_timestamp is not None or pod.finished:
            return "is being deleted or has finished"
        return "has scheduling gates" if pod.spec.scheduling_gates else None

    def _reserve(self, pod: Pod) -> Claim | None:
        """Return the pod's reservation, None if it asks for nothing. Raises RefusedError; ElsewhereError or
        OtherNamesError where a claim is to be settled first."""
        self._annotations = {}
        if not might_ask(pod):
            return None
        view = self._ledger.view()
        terms = terms_of(view)  # once: another thread may be updating the view
        now = self._clock()
        demanded = self._demanded(pod, terms, now)
        if demanded is None:
            return None
        claim = self._claimed(pod, demanded, view, now)
        self._annotations = allocated(claim, terms.pools)
        tell = self._deadline.later(-_SETTLE_SECONDS).within(_TELL_SECONDS)
        publish_held(self._cluster, claim, tell, self._clock)
        return claim

    def _claimed(self, pod: Pod, wanted: Claim, view: View, now: float) -> Claim:
        """Return the claim for what is wanted: for a pod of a gang with what the rest of that asks for."""
        after = None if self._claim is None else self._claim.attempt
        gang = gang_of(pod)
        if gang is None:
            return self._ledger.reserve(wanted, after=after, view=view, rank=rank_of(pod, view, now))
        deadline, gang = self._deadline.later(-_SETTLE_SECONDS), self._with_size(pod, gang, view)
        binding = GangBinding(self._ledger, self._cluster, self._schedulers, self._clock, deadline)
        claim, others = binding.reserve(sized(pod, gang.size), gang, wanted, after)
        self._seated = others or self._seated  # of an attempt before, whose Binding met a change of the pod
        return claim

    def _with_size(self, pod: Pod, gang: Gang, view: View) -> Gang:
        """Return the gang as its PodGroup says it. Raises RefusedError, and has filter say the same to all
        of its pods, where that is not known; not to one that has its units or its seat already."""
        try:
            return self._pod_groups.gang(pod, gang, self._deadline.later(-_SETTLE_SECONDS).timeout())
        except RefusedError as error:
            if view.keys_of(pod.metadata.uid):
                return gang
            note_refusal(self._ledger, gang, str(error), self._clock())
            raise

    def _demanded(self, pod: Pod, terms: Terms, now: float) -> Claim | None:
        """Return what the pod is to hold there, None if it asks for nothing. Raises RefusedError."""
        demand = terms.demand(pod)
        if demand.refusal is not None:
            raise RefusedError(demand.refusal)
        if not demand.units:
            return None
        return claim_of(pod, self._call.node, terms, demand, self._new_attempt(), now)

    def _bound(self, pod: PodToBind) -> bool:
        """Make the Binding. Return whether the pod is bound; if not, it has changed and is to be read again.
        Raises where the Binding was refused."""
        self._time_left()
        if (long := self._too_long(pod)) is not None:
            return self._settled(long)
        try:
            self._cluster.bind(
                pod, self._call.node, self._annotations, self._deadline.later(-_SETTLE_SECONDS).timeout()
            )
        except ClusterRefusedError as error:
            if error.status == 409 and self._changed(pod):
                return False
            return self._settled(error)
        except ClusterUnavailableError as error:
            return self._settled(error)
        if self._claim is not None:
            self._count_wake(pod)
            self._confirm(self._claim)
            self._end_turn(self._claim)
        else:
            self._wake_gang(pod)
        return True

    def _too_long(self, pod: Pod) -> RefusedError | None:
        """Return what to say where the pod would have more annotations than Kubernetes takes. No Binding is
        judged by that, but nobody could write the pod's status then."""
        there = {**(pod.metadata.annotations or {}), **self._annotations}
        size = sum(len(key) + len(text.encode()) for key, text in there.items())
        if size <= _MOST_ANNOTATIONS:
            return None
        return RefusedError(
            f"it would have annotations of {size // 1024} KiB, and Kubernetes takes 256: "
            "ask for fewer units, or shorten the annotations of the pod or of its Pools"
        )

    def _count_wake(self, pod: PodToBind) -> None:
        if (since := woken_at(pod)) is not None:
            self._ledger.metrics.bound_after(max(0.0, self._clock() - since))

    def _changed(self, pod: Pod) -> bool:
        """Whether the pod was written since we read it: if not, trying again would meet the same refusal."""
        now = self._pod()
        return now is None or now.metadata.resource_version != pod.metadata.resource_version

    def _settled(self, error: BerthError) -> bool:
        """Return True if the pod is on the node after all, after a Binding with an unknown or bad outcome;
        else raise. That is looked at even if no time is left."""
        call = self._call
        if self._claim is None:
            pod = self._cluster.pod(call.namespace, call.name, self._deadline.timeout(), uid=call.uid)
        else:
            pod = self._settle(self._claim)
        if pod is not None and pod.spec.node_name == call.node:
            if self._claim is not None:
                self._teller.allocated(self._claim)
            return True
        raise RefusedError(
            f"pod {call.namespace}/{call.name} was not bound to {call.node}: {error}"
        ) from error

    def _settle(self, claim: Claim) -> Pod | None:
        pod, freed = settle(self._ledger, self._cluster, claim, self._clock(), self._deadline)
        self._free(freed)
        return pod

    def _confirm(self, claim: Claim) -> None:
        try:
            self._ledger.confirm(claim)
            self._teller.allocated(claim)
            tell = self._deadline.within(_TELL_SECONDS)
            publish_held(self._cluster, replace(claim, state="bound"), tell, self._clock)
            self._free(follow_node(self._ledger, claim.uid))
        except MissingClaimError as error:
            log.warning("%s", error)
            self._teller.failed(Subject.of_claim(claim), _LOST)
        except BerthError as error:
            log.warning("pod %s is bound, and its claim waits for reconcile: %s", claim.label, error)
        except Exception:  # an Error would have the bound pod tried again
            log.exception("pod %s is bound, and its claim waits for reconcile", claim.label)

    def _end_turn(self, claim: Claim) -> None:
        """Hold nothing for the pod any more where it was bound to another node than units were held on."""
        try:
            self._free(self._ledger.drop_line_hold(claim.uid, {holding.key for holding in claim.holdings}))
        except BerthError as error:
            log.warning(
                "what is held for pod %s, which is bound, waits for reconcile: %s", claim.label, error
            )

    def _adopt(self, pod: Pod) -> None:
        """Bring the claim of a pod that is bound to its node, whoever bound it, as reconcile would."""
        held = self._held()
        try:
            ledger = self._ledger.beside_looks()
            view = ledger.view()
            standing = view.claims_of(pod.metadata.uid)
            claim = None if pod.finished else claim_due(pod, standing, terms_of(view), self._clock())
            # What stands is left alone: the View may lag behind a look that has brought it to other Pools. It
            # does not stand alone where the View lags behind what this bind has reserved.
            known = view.keys_of(pod.metadata.uid).issuperset(holding.key for holding in held)
            if claim is None or (known and stands(claim, view)):
                return
            freed = ledger.adopt(claim, also=held)
            if freed is not None:
                if not standing:
                    self._teller.adopted(claim)
                told(claim, "settled" if standing else "adopted")
                self._release_if_gone(pod, claim)
                self._free(freed)
        except BerthError as error:
            log.warning(
                "pod %s is bound to %s, and its claim waits for reconcile: %s",
                pod.label,
                pod.spec.node_name,
                error,
            )

    def _release_if_gone(self, pod: Pod, claim: Claim) -> None:
        """Release what was adopted if the pod, and its event, went before the adoption."""
        meta, timeout = pod.metadata, self._deadline.later(_WAKE_SECONDS).timeout(_WAKE_SECONDS)
        there = self._cluster.pod(pod.namespace, meta.name, timeout, uid=meta.uid)
        if there is None or there.finished:
            freed = release_ended(
                self._ledger, claim, there, self._node, self._ended_pod, self._clock(), also=claim.holdings
            )
            self._free(freed)

    def _held(self) -> tuple[Holding, ...]:
        return () if self._claim is None else self._claim.holdings

    def _cancel(self) -> None:
        if self._claim is not None:
            self._free(self._ledger.cancel(self._claim))

    def _free(self, freed: tuple[Holding, ...]) -> None:
        """Tell of what was freed, and wake who could use it, for a while beyond bind's deadline at most."""
        publish_free(self._ledger, self._cluster, freed, self._deadline.later(_WAKE_SECONDS), self._clock)
        self._wake_for(freed)

    def _wake_for(self, units: Sequence[Holding]) -> None:
        """Wake who could use these units, as far as they are free."""
        deadline = self._deadline.later(_WAKE_SECONDS)
        try:
            wake(
                self._ledger,
                self._cluster,
                self._schedulers,
                room_in(units),
                self._clock(),
                deadline=deadline,
            )
        except BerthError as error:
            log.warning("waiting pods were not woken, reconcile will: %s", error)

    def _wake_gang_pods(self, pods: Sequence[Pod], why: str) -> None:
        """Have pods of its gang tried: those that have seats with this one, or what keeps this one from its
        units keeps them, too. Nothing else tells them."""
        if pods:
            deadline = self._deadline.later(_WAKE_SECONDS)
            try:
                woken = wake_these(self._cluster, pods, why, self._clock(), deadline)
                self._ledger.metrics.changed("woken", woken)
            except BerthError as error:
                log.warning("the pods of a gang were not woken, reconcile will: %s", error)

    def _ended_pod(self, pod: Pod) -> EndedPod | None:
        return self._cluster.ended_pod(pod, self._deadline.timeout())

    def _wake_gang(self, pod: Pod) -> None:
        """Wake the pod's gang where it waited for this one, which asks for nothing."""
        deadline = self._deadline.later(_WAKE_SECONDS)
        try:
            woken = came_or_went(
                self._ledger, self._cluster, pod, self._schedulers, self._clock(), deadline=deadline
            )
            self._ledger.metrics.changed("woken", woken)
        except BerthError as error:
            log.warning("the gang of pod %s was not woken, reconcile will: %s", pod.label, error)

    def _node(self, name: str) -> Node | None:
        return self._cluster.node(name, self._deadline.timeout())

    def _pod(self) -> PodToBind | None:
        """Return the pod as it is now, None if it is gone. Raises RefusedError once the deadline is over."""
        call = self._call
        return self._cluster.pod_to_bind(call.namespace, call.name, self._time_left(), uid=call.uid)

    def _time_left(self) -> float:
        """Return the seconds until the deadline. Raises RefusedError once it is over."""
        left, call = self._deadline.left(), self._call
        if left <= 0:
            what = f"pod {call.namespace}/{call.name} could not be bound to {call.node}"
            raise RefusedError(f"{what} within {BIND_SECONDS:g} s; it will be retried")
        return left


def _order(claim: Claim) -> tuple[float, str]:
    """Return what sorts the reservations that two calls have for one pod at once: the newest is the last."""
    return claim.since, claim.attempt


def endpoint(settings: Settings, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    return on(*ledger_and_cluster(settings, metrics.of("bind")), settings)


def on(ledger: Ledger, cluster: Cluster, settings: Settings) -> Endpoint:
    """Return the endpoint on a ledger and a cluster that others may use too."""
    told = wiring.teller(cluster, settings, "bind", ledger.metrics)
    groups = PodGroups(cluster)
    bind = Bind(ledger, cluster, settings.scheduler_names, cluster.now, teller=told, pod_groups=groups)

    def answer(body: Content) -> bytes:
        bind.run(extender_v1.binding(body))
        return extender_v1.bind_answer()

    return wiring.verb("bind", ledger, settings, answer, extender_v1.bind_answer)
