"""bind: reserve the pod's units on the node, make the Binding, confirm (promise 5).
When it can't tell how a Binding ended, it fences the pod, looks, and only then confirms or cancels.

    GET pod ─► reserve ─► POST Binding ─┬─ 201 ─► confirm ─► success
       ▲          ▲                     ├─ 409 ─► GET pod again, the reservation must still be ours
       └──────────┴─────────────────────┤
                                        └─ else ─► fence: PATCH the pod (else GET it), look at its node
                                                     ├─ on this node ─► confirm ─► success
                                                     └─ not ─► cancel, wake ─► Error
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from berth.controller.adopt import stands, wanted_by
from berth.controller.poolclaims import tell, told_free
from berth.controller.requeue import room_in, wake
from berth.controller.retention import release_ended
from berth.controller.settle import BIND_SECONDS, allocated, claim_of, settle
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError, RefusedError
from berth.handlers.wiring import ledger_and_cluster
from berth.http import authentication, extender_v1
from berth.http.endpoint import Endpoint, Reply, for_the_event
from berth.kube.cluster import LEAST_SECONDS, Cluster
from berth.kube.types import Node, Pod
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.transitions import ElsewhereError, MissingClaimError, SupersededError
from berth.scheduling.demand import might_ask, terms_of
from berth.settings import Settings

log = logging.getLogger("berth.bind")

_WAKE_SECONDS = 0.8  # on top of BIND_SECONDS, and still below what kube-scheduler waits
_TELL_SECONDS = 0.5  # for PoolClaims' status, which is for people
_SETTLE_SECONDS = 1.8  # kept back from the Binding's time, so that its outcome can be settled


class Bind:
    """The bind verb on one ledger and cluster; safe for many calls at once, also for one pod."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        schedulers: tuple[str, ...],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        new_attempt: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
    ) -> None:
        self._ledger, self._cluster, self._schedulers = ledger, cluster, schedulers
        self._clock, self._monotonic, self._new_attempt = clock, monotonic, new_attempt

    def run(self, call: extender_v1.BindingCall) -> None:
        """Return when the pod is bound to the node and its claim stands; else raise a BerthError that says
        why it is not. No Error is raised after a Binding succeeded."""
        until = self._monotonic() + BIND_SECONDS
        claim = None
        while True:
            pod = self._unbound(call, claim, until)
            if pod is None:
                return
            try:
                claim = self._reserve(pod, call.node, claim, until)
            except ElsewhereError as error:
                self._left(until, call)
                left = self._before(until)
                settled = settle(self._ledger, self._cluster, error.claim, self._clock(), left)
                self._free(settled.freed, until)
                continue
            if self._bound(call, pod, claim, until):
                return

    def _unbound(self, call: extender_v1.BindingCall, claim: Claim | None, until: float) -> Pod | None:
        """The pod, to be bound; None if it is on this node already. Raises, and leaves no reservation, if it
        can't be bound to it."""
        pod = self._cluster.pod(call.namespace, call.name, self._left(until, call))
        held, mine = (() if claim is None else claim.holdings), ([] if claim is None else [claim])
        if pod is None or pod.metadata.uid != call.uid:
            label = f"{call.namespace}/{call.name}"
            look = self._look_at_node(until)
            ended = self._ledger, look, mine, call.uid, None, self._clock(), label, held
            self._free(release_ended(*ended), until)
            raise RefusedError(f"pod {call.namespace}/{call.name} with UID {call.uid} is gone")
        if pod.spec.node_name:
            self._adopt(pod, held, until)
            if pod.spec.node_name == call.node:
                return None
            raise RefusedError(f"pod {pod.label} is bound to node {pod.spec.node_name} already")
        why = self._not_ours(pod)
        if why is not None:
            if claim is not None:
                self._free(self._ledger.cancel(claim), until)
            raise RefusedError(f"pod {pod.label} {why}")
        return pod

    def _not_ours(self, pod: Pod) -> str | None:
        """Why this pod may not be bound by us; while it is so, no Binding of it can land either."""
        if pod.spec.scheduler_name not in self._schedulers:
            return f"has schedulerName {pod.spec.scheduler_name}, which is not in BERTH_SCHEDULER_NAMES"
        if pod.metadata.deletion_timestamp is not None or pod.finished:
            return "is being deleted or has finished"
        return "has scheduling gates" if pod.spec.scheduling_gates else None

    def _reserve(self, pod: Pod, node: str, mine: Claim | None, until: float) -> Claim | None:
        """The pod's reservation, None if it asks for nothing. Raises RefusedError, ElsewhereError."""
        wanted = self._claim(pod, node, self._new_attempt())
        if wanted is None:
            return None
        try:
            claim = self._ledger.reserve(wanted, after=None if mine is None else mine.attempt)
        except SupersededError:
            if mine is not None:
                # Its Binding was refused, or we would not try again.
                self._free(self._ledger.cancel(mine), until)
            raise
        told_by = min(until - _SETTLE_SECONDS, self._monotonic() + _TELL_SECONDS)
        tell(self._cluster, claim, self._before(told_by))
        return claim

    def _bound(self, call: extender_v1.BindingCall, pod: Pod, claim: Claim | None, until: float) -> bool:
        """Make the Binding. True: done; False: the pod has changed, look again; raises if it was refused."""
        notes = {} if claim is None else allocated(claim)
        try:
            self._cluster.bind(
                pod, call.node, notes, max(LEAST_SECONDS, self._left(until, call) - _SETTLE_SECONDS)
            )
        except ClusterRefusedError as error:
            if error.status == 409 and self._changed(call, pod, until):
                return False
            return self._settled(call, claim, until, error)
        except ClusterUnavailableError as error:
            return self._settled(call, claim, until, error)
        if claim is not None:
            self._confirm(claim, until)
        return True

    def _changed(self, call: extender_v1.BindingCall, pod: Pod, until: float) -> bool:
        """Whether the pod was written since we read it: if not, trying again would meet the same refusal."""
        now = self._cluster.pod(call.namespace, call.name, self._left(until, call))
        return now is None or now.metadata.resource_version != pod.metadata.resource_version

    def _settled(
        self, call: extender_v1.BindingCall, claim: Claim | None, until: float, error: BerthError
    ) -> bool:
        """After a Binding with an unknown or bad outcome: True if the pod is on the node after all. That is
        looked at even if no time is left."""
        left = self._before(until)
        if claim is None:
            pod = self._cluster.pod(call.namespace, call.name, max(LEAST_SECONDS, left()))
        else:
            pod, freed = settle(self._ledger, self._cluster, claim, self._clock(), left)
            self._free(freed, until)
        if pod is not None and pod.metadata.uid == call.uid and pod.spec.node_name == call.node:
            return True
        raise RefusedError(
            f"pod {call.namespace}/{call.name} was not bound to {call.node}: {error}"
        ) from error

    def _confirm(self, claim: Claim, until: float) -> None:
        try:
            self._ledger.confirm(claim)
            told_by = min(until, self._monotonic() + _TELL_SECONDS)
            tell(self._cluster, replace(claim, state="bound"), self._before(told_by))
        except MissingClaimError as error:
            log.warning("%s", error)
        except BerthError as error:
            log.warning(
                "pod %s is bound, and its claim stays reserved until reconcile: %s", claim.label, error
            )

    def _adopt(self, pod: Pod, held: Collection[Holding], until: float) -> None:
        """The pod is bound: its claim belongs on its node, whoever bound it, as reconcile would have it."""
        node = pod.spec.node_name or ""
        try:
            ledger = self._ledger.beside_looks()
            view = ledger.view()
            standing = view.claims_of(pod.metadata.uid)
            claim = None if pod.finished else wanted_by(pod, standing, terms_of(view), self._clock())
            # What stands is left alone: the View may lag behind a look that has brought it to other Pools. It
            # does not stand alone where the View lags behind what this bind has reserved.
            known = view.keys_of(pod.metadata.uid).issuperset(each.key for each in held)
            if claim is None or (known and stands(claim, view)):
                return
            freed = ledger.adopt(claim, also=held)
            if freed is not None:
                self._look_again(pod, claim, until)
                self._free(freed, until)
        except BerthError as error:
            log.warning(
                "pod %s is bound to %s, and its claim waits for reconcile: %s", pod.label, node, error
            )

    def _look_again(self, pod: Pod, claim: Claim, until: float) -> None:
        """The pod may have gone, with its event, between the look and the adoption."""
        meta = pod.metadata
        left = min(_WAKE_SECONDS, until + _WAKE_SECONDS - self._monotonic())
        now = self._cluster.pod(meta.namespace or "default", meta.name, max(LEAST_SECONDS, left))
        there = None if now is None or now.metadata.uid != meta.uid else now
        if there is None or there.finished:
            ended = self._ledger, self._look_at_node(until), [claim], meta.uid, there, self._clock()
            self._free(release_ended(*ended, also=claim.holdings), until)

    def _claim(self, pod: Pod, node: str, attempt: str = "") -> Claim | None:
        """What the pod is to hold there, None if it asks for nothing. Raises RefusedError."""
        if not might_ask(pod):
            return None
        terms = terms_of(self._ledger.view())
        asked = terms.demand(pod)
        if asked.refusal is not None:
            raise RefusedError(asked.refusal)
        return claim_of(pod, node, terms, asked, attempt, self._clock()) if asked.units else None

    def _free(self, freed: tuple[Holding, ...], until: float) -> None:
        """Wake who could use what was freed, for a while beyond bind's deadline at most."""
        left = self._before(until + _WAKE_SECONDS)
        try:
            told_free(self._cluster, freed, left)
            wake(self._ledger, self._cluster, self._schedulers, room_in(freed), self._clock(), left=left)
        except BerthError as error:
            log.warning("waiting pods were not woken, reconcile will: %s", error)

    def _look_at_node(self, until: float) -> Callable[[str], Node | None]:
        """What looks at a node, within bind's deadline."""
        return lambda name: self._cluster.node(name, max(LEAST_SECONDS, until - self._monotonic()))

    def _before(self, until: float) -> Callable[[], float]:
        """What tells the seconds that are left until then."""
        return lambda: until - self._monotonic()

    def _left(self, until: float, call: extender_v1.BindingCall) -> float:
        left = until - self._monotonic()
        if left <= 0:
            what = f"pod {call.namespace}/{call.name} could not be bound to {call.node}"
            raise RefusedError(f"{what} within {BIND_SECONDS:g} s; it will be retried")
        return left


def endpoint(settings: Settings) -> Endpoint:
    return on(*ledger_and_cluster(settings), settings)


def on(ledger: Ledger, cluster: Cluster, settings: Settings) -> Endpoint:
    """The endpoint on a ledger and a cluster that others may use too."""
    verb = Bind(ledger, cluster, settings.scheduler_names)

    def answer(_: Mapping[str, str], body: bytes) -> Reply:
        verb.run(extender_v1.binding(body))
        return Reply(200, extender_v1.bind_answer())

    return Endpoint(
        name="bind",
        answer=answer,
        failed=lambda *error: Reply(200, extender_v1.bind_answer(for_the_event(*error))),
        health=ledger.check,
        body_limit=settings.body_limit,
        door=authentication.door(settings.admission),
    )
