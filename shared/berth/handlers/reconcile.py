"""reconcile: make the ledger equal to the cluster, whatever was lost, doubled or late (promises 3 and 8).
It never takes units from a pod that runs, and it alone opens a ledger that has no epoch.

The order is the point. Claims are read first, then pods are listed: a claim whose pod is not in the later
list is a claim of a pod that is gone. For a lost ledger, all waiting pods are fenced before the list: a bind
that reserved in the ledger that was lost can't land its Binding after it.
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial

import msgspec
from msgspec.structs import asdict, replace

from berth.api.gang import gang_label
from berth.api.pod_group import pod_group_of
from berth.api.pool import Pool
from berth.coalesce import Coalesced
from berth.controller.adopt import adopt
from berth.controller.alarm import Alarm, alarm_of
from berth.controller.capacity_sync import prepare_domains, problems, sync_all, withdraw
from berth.controller.clocks import SeatTimes, clock_problems
from berth.controller.external_use import take_external
from berth.controller.fencing import FENCE_SECONDS, fence_waiting, pods_to_fence, to_hold
from berth.controller.gang import (
    COMPLETE,
    all_revised,
    drop_notes,
    is_over,
    let_rest,
    note_waiting,
    tell_given_back,
)
from berth.controller.licence_reading import LicenceReader
from berth.controller.line import has_seat
from berth.controller.line_hold import LineHolds
from berth.controller.node_status import publish_native
from berth.controller.notices import FINISHED, SILENT, Subject, Teller
from berth.controller.overruns import note_overruns
from berth.controller.pod_groups import all_sized
from berth.controller.pool_source import take_pools
from berth.controller.pool_status import publish
from berth.controller.poolclaims import admit, publish_claims, read_claims, take_claims
from berth.controller.requeue import free_in, wake, wake_these
from berth.controller.retention import claim_told, release_ended
from berth.controller.settle import BIND_SECONDS, settle
from berth.controller.usage import keep_journal
from berth.deadline import NO_DEADLINE, Deadline
from berth.errors import BerthError, RetryableError, StoreFailedError, UnfinishedError, first_of
from berth.handlers.wiring import ledger_and_cluster, teller
from berth.http.endpoint import Endpoint
from berth.kube.cluster import Cluster
from berth.kube.types import Node, Pod
from berth.kube.writes import PodWrites
from berth.ledger.capacity import CapacityChange
from berth.ledger.keys import CLAIMS_LOOK
from berth.ledger.last_reconcile import LastReconcile, LineNotes
from berth.ledger.ledger import Ledger
from berth.ledger.model import NOTHING_HELD_BACK, Claim, HeldBack
from berth.ledger.transaction import LostAgainError, OutdatedError
from berth.metrics import UNCOUNTED, Metrics
from berth.scheduling.demand import Terms, might_ask, terms_of, unnamed
from berth.scheduling.preemption import in_vain
from berth.settings import Settings
from berth.stores import caution
from berth.stores.base import Version
from berth.telemetry import calls

log = logging.getLogger("berth.claims")

REBUILD_SECONDS = 540.0
"""A rebuild ends by itself after so long, before its caller gives up, and goes on in the next tick: Knative
and `berth up` wait for 600 s, and `berth up` then replaces the function, which knows whom it has fenced."""

_DELAY_SECONDS = 0.3
_LOOKS = 3
_MOST_NOMINATED = 100  # pods that are woken because nothing came of their nominations
_LINES = 20  # mistakes in Pools that a report has
_OVERTAKEN = "the Pools kept changing while they were looked at; the later looks take them over"


class Report(msgspec.Struct, kw_only=True):
    """What one reconcile mended, counted in claims, domains and pods; all 0 when all was well."""

    rebuilt: bool = False
    released: int = 0
    settled: int = 0
    adopted: int = 0
    capacities: int = 0
    pools: list[str] = []
    woken: int = 0
    problems: list[str] = []

    def noted(self, at: float, seconds: float, line: LineNotes) -> LastReconcile:
        """Return it as the ledger keeps it: counts by kind, what could not be mended, and the line."""
        kinds = ("rebuilt", "released", "settled", "adopted", "capacities", "woken")
        mended = {kind: int(getattr(self, kind)) for kind in kinds} | {"pools": len(self.pools)}
        problems = tuple(self.problems)
        return LastReconcile(at=at, seconds=seconds, mended=mended, problems=problems, line=line)


class Reconcile:
    """The reconcile function on one ledger (opened `while_closed`) and cluster, for one call at a time.

    It keeps in mind how far a rebuild has come that took longer than `rebuild_seconds`. That may be lost:
    then it begins anew, and finds in the ledger what was adopted.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        rebuild_seconds: float = REBUILD_SECONDS,
        teller: Teller = SILENT,
        licences: LicenceReader | None = None,
        ahead: Callable[[], float | None] = lambda: None,
        alarm: Alarm | None = None,
    ) -> None:
        """`licences` reads what others use of pools; without it nothing is read, as in a rehearsal. `ahead`
        tells how far this machine's clock is ahead of the API server's; None: nobody knows. `alarm` wakes
        pods until the next reconcile, too."""
        self._alarm = alarm
        self._ledger, self._cluster, self._settings = ledger, cluster, settings
        self._clock, self._monotonic, self._new_id = clock, monotonic, new_id
        self._rebuild_seconds, self._teller, self._licences = rebuild_seconds, teller, licences
        self._ahead, self._seats = ahead, SeatTimes()
        self._mark: Version | None = None  # of the rebuild that goes on
        # In that rebuild: no Binding of before the loss can land on these.
        self._fenced: set[str] = set()
        self._deadline = NO_DEADLINE
        self._report, self._writes = Report(), PodWrites(cluster, monotonic)  # of this run
        self._looked, self._pods = 0.0, list[Pod]()  # when its last look began, and the pods that it saw
        self._given_back: list[Claim] = []  # seats of gangs whose pods did not come
        self._unsized: set[str] = set()  # gangs of which nobody knows how many pods they have
        self._complete: list[Pod] = []  # pods of gangs that may be had now, whoever of these came or went

    def run(self) -> Report:
        """Make the ledger equal to the cluster. Return what was mended. Raises store and cluster
        errors; what was done until then stands."""
        began = self._monotonic()
        self._ledger.record_cluster()
        self._deadline = Deadline.after(self._rebuild_seconds, self._monotonic)
        report = self._report = Report()
        self._writes = PodWrites(self._cluster, self._monotonic)
        self._given_back, self._complete = [], []
        last = self._ledger.last_reconcile()
        self._seats = SeatTimes.after(last)
        poolclaims = False
        nodes: Sequence[Node] | None = None
        for left in reversed(range(_LOOKS)):
            report.problems.clear()
            try:
                poolclaims, nodes = self._look()
                break
            except OutdatedError:
                # A later look knows the Pools better. It may be an event's, which mends less: look again.
                if not left:
                    report.problems.append(_OVERTAKEN)
        self._end_seats()
        if nodes is not None:
            self._note_overruns()
        line = self._hold_in_line(nodes, LineNotes() if last is None else last.line)
        report.woken = self._wake(nodes or (), self._ledger.view().free)
        report.woken += self._read_licences(nodes or ())
        schedulers, months = self._settings.scheduler_names, self._settings.usage_months
        report.problems += keep_journal(self._ledger, self._pods, schedulers, self._looked, months)
        self._pods = []
        report.problems += self._writes.problems
        self._publish(poolclaims=poolclaims)
        for problem in clock_problems(self._ahead(), self._ledger.view(), self._clock()):
            log.warning("%s", problem)
            report.problems.append(problem)
        noted = report.noted(self._clock(), self._monotonic() - began, line)
        self._ledger.note_reconcile(replace(noted, seats=self._seats.noted, ahead=self._ahead()))
        if self._alarm is not None:
            self._alarm.arm(self._ledger.view())
        return report

    def _look(self) -> tuple[bool, Sequence[Node]]:
        """Take over what there is as it is now. Return whether there are PoolClaims, right or wrong, and the
        nodes. Raises OutdatedError."""
        self._looked = self._clock()
        looking, claiming = self._ledger.look(), self._ledger.look(CLAIMS_LOOK)
        pools, problems = self._read_pools(), self._report.problems
        wrong: list[str] = []
        named = read_claims(self._cluster, wrong)
        problems += wrong
        admission = admit(named, pools, self._settings.poolclaims_per_namespace)
        mark, back = self._begin()
        unfenced = self._fence(None if mark is not None else back.uids)
        try:
            withdrawn = withdraw(looking, pools)
            before = looking.view().pools
            read_by = Terms(pools, {}, admission.by_name(), before)
            terms = self._terms(looking, read_by, mark is not None)
            pods = self._pods = self._count(looking, terms, unfenced)
            take_claims(claiming, admission, problems)
            nodes = self._give(looking, pools, pods, withdrawn)
        except OutdatedError:
            if mark is not None:
                raise LostAgainError from None
            raise
        after = to_hold(pods, unfenced, back.epoch)
        if mark is not None:
            self._ledger.open(self._new_id(), mark, after)
        elif after != back:
            self._ledger.hold_back(after, back)
        self._report.rebuilt = mark is not None
        return bool(named or wrong), nodes

    def _begin(self) -> tuple[Version | None, HeldBack]:
        """Return the mark of a rebuild, which begins if the ledger is lost; and what is held back."""
        view = self._ledger.view()
        if view.open:
            self._mark, self._fenced = None, set()
            return None, self._ledger.held_back() if view.held else NOTHING_HELD_BACK
        if self._mark is None or not self._ledger.is_rebuilding(self._mark):
            self._mark, self._fenced = self._ledger.begin_rebuild(self._new_id()), set()
        return self._mark, NOTHING_HELD_BACK

    def _in_time(self) -> None:
        """Raise UnfinishedError in a rebuild whose time is over."""
        if self._mark is not None and self._deadline.left() <= 0:
            raise UnfinishedError(len(self._fenced))

    def _fence(self, suspects: Collection[str] | None) -> set[str]:
        """Fence the suspects (None: all pods that wait). Return the UIDs of those that were not fenced."""
        if suspects is not None and not suspects:
            return set()
        now = self._clock()
        pods = pods_to_fence(self._cluster, self._settings.scheduler_names, suspects, now)
        for pod in pods:
            if pod.metadata.uid not in self._fenced:
                self._in_time()
                if fence_waiting(self._cluster, self._writes, pod, now):
                    self._fenced.add(pod.metadata.uid)
        return ({pod.metadata.uid for pod in pods} if suspects is None else set(suspects)) - self._fenced

    def _terms(self, ledger: Ledger, terms: Terms, anew: bool) -> Terms:
        """Return these terms with nodes' domains, looked up only if the ledger can't know them yet."""
        places = dict(ledger.view().places)
        elsewhere = {name: pool for name, pool in terms.pools.items() if pool.spec.scope != "Node"}
        if elsewhere and (anew or any(terms.before.get(name) != pool for name, pool in elsewhere.items())):
            places |= prepare_domains(ledger, elsewhere, self._cluster.nodes())
        return terms._replace(places=places)

    def _count(self, ledger: Ledger, terms: Terms, unfenced: Collection[str]) -> list[Pod]:
        """Bring claims to what pods hold, and units in use elsewhere too. Return the pods that matter: who
        might ask for units, is of a gang, has a claim or is unfenced."""
        claims = [claim for claim in ledger.view().claims() if not claim.is_external]
        uids = {*unfenced, *(claim.uid for claim in claims)}
        pods = self._cluster.pods(
            lambda pod: pod.metadata.uid in uids or might_ask(pod) or self._is_in_gang(pod)
        )
        pods, self._unsized = all_sized(self._cluster, pods, self._report.problems)
        self._mend(claims, pods, terms)
        settled, adopted = adopt(ledger, self._cluster, pods, terms, self._clock(), self._in_time)
        self._report.settled += settled
        self._report.adopted += len(adopted)
        self._teller.adopted_all(adopted, pods, terms)
        take_external(ledger, terms.pools, self._clock())
        return pods

    def _is_in_gang(self, pod: Pod) -> bool:
        """Whether it is of a gang that Berth may have to do with: PodGroups are others' as well."""
        is_ours = not pod_group_of(pod) or pod.spec.scheduler_name in self._settings.scheduler_names
        return is_ours and bool(gang_label(pod))

    def _give(
        self,
        ledger: Ledger,
        pools: Mapping[str, Pool],
        pods: Iterable[Pod],
        withdrawn: Iterable[CapacityChange],
    ) -> list[Node]:
        """Take over Pools and capacities, after what running pods hold of a new Pool. Return the nodes."""
        report = self._report
        report.pools = sorted({*report.pools, *ledger.apply_pools(pools)})
        changes, nodes = sync_all(ledger, pools, self._cluster.nodes)
        report.capacities += len({change.which for change in (*withdrawn, *changes)})
        report.problems += problems(pools.values(), nodes)
        ledger.cap_retention()
        ledger.drop_limits({pod.namespace for pod in pods if might_ask(pod)})
        report.problems += publish_native(ledger, self._cluster, nodes)
        return nodes

    def _publish(self, *, poolclaims: bool) -> None:
        problems, view = self._report.problems, self._ledger.view()
        pods = [claim for claim in view.claims() if not claim.is_external]
        for claim, line in unnamed(pods, view.pools):
            problems.append(f"pod {claim.label} {line}")
            if claim.state != "lost":
                self._teller.failed(Subject.of_claim(claim), line)
        if self._settings.pools is None:
            problems += publish(self._ledger, self._cluster, self._settings.scheduler_names, self._clock)
        if poolclaims:
            most = self._settings.poolclaims_per_namespace
            problems += publish_claims(self._ledger, self._cluster, most, self._monotonic, self._clock)

    def _note_overruns(self) -> None:
        try:
            note_overruns(self._ledger, self._pods, self._looked, self._teller)
        except BerthError as error:
            self._report.problems.append(f"who runs longer than they said was not noted: {error}")

    def _end_seats(self) -> None:
        """Tell of gangs' seats that were given back, let these gangs rest, and forget those that are gone."""
        try:
            tell_given_back(self._given_back, self._ledger.view(), self._teller)
            let_rest(self._ledger, self._given_back, self._clock())
            drop_notes(self._ledger, self._pods, self._clock())
            schedulers, now = self._settings.scheduler_names, self._clock()
            self._complete = all_revised(self._ledger, self._pods, schedulers, now, self._unsized)
            note_waiting(self._ledger, self._pods, schedulers, now, self._unsized)
        except BerthError as error:
            self._report.problems.append(f"gangs that gave back their seats were not noted: {error}")

    def _hold_in_line(self, nodes: Sequence[Node] | None, before: LineNotes) -> LineNotes:
        """Return what is to be remembered of the line. Without `nodes` no look was taken over: all stays."""
        schedulers = self._settings.scheduler_names
        waiting = [pod for pod in self._pods if pod.waiting and pod.spec.scheduler_name in schedulers]
        if nodes is not None and not (waiting or self._ledger.view().line_holds):
            return LineNotes()
        line = before.believed(self._clock())
        if nodes is None:
            return line
        try:
            return LineHolds(self._ledger, self._cluster, nodes, self._clock(), line).give(waiting)
        except BerthError as error:
            self._report.problems.append(f"who is first in line was not looked at: {error}")
            return line

    def _read_licences(self, nodes: Iterable[Node]) -> int:
        """Read what others use, after all else was mended: a licence server may be slow. Return how many
        pods were woken by it."""
        if self._licences is None:
            return 0
        try:
            room = self._licences.run()
        except BerthError as error:
            self._report.problems.append(f"what others use of pools was not read: {error}")
            return 0
        return self._wake(nodes, room)

    def _wake(self, nodes: Iterable[Node], pools: Iterable[str]) -> int:
        view, now = self._ledger.view(), self._clock()
        shut = {node.metadata.name for node in nodes if node.spec.unschedulable}
        seated = [pod for pod in self._pods if pod.waiting and has_seat(pod, view)]
        why = "its gang has its units"
        woken = wake_these(self._cluster, seated, why, now, writes=self._writes)
        stalled = in_vain(self._pods, self._settings.scheduler_names, terms_of(view))[:_MOST_NOMINATED]
        why = "no pod ends on the node that it is nominated for"
        woken += wake_these(self._cluster, stalled, why, now, writes=self._writes)
        complete, self._complete = self._complete, []
        woken += wake_these(self._cluster, complete, COMPLETE, now, writes=self._writes)
        staged = None if self._alarm is None else self._alarm.later(shut, rotate=True)
        return woken + wake(
            self._ledger,
            self._cluster,
            self._settings.scheduler_names,
            free_in(view, pools, now),
            now,
            rotate=True,
            shut=lambda: shut,
            writes=self._writes,
            staged=staged,
        )

    def _read_pools(self) -> Mapping[str, Pool]:
        def known() -> Mapping[str, Pool]:
            return self._ledger.view().pools

        try:
            return take_pools(self._settings.pools, self._cluster, known, self._report.problems)
        except (RetryableError, StoreFailedError):
            raise
        except BerthError as error:
            # A typo in a Pool must not stop claims from being mended: the Pools applied last stay.
            self._report.problems += first_of(error.problems, _LINES)
            return known()

    def _mend(self, claims: Iterable[Claim], pods: Iterable[Pod], terms: Terms) -> None:
        """Mend claims of pods that are gone, that run elsewhere, or whose bind died."""
        by_uid, node = {pod.metadata.uid: pod for pod in pods}, cache(self._cluster.node)
        for claim in claims:
            what = f"the claim of pod {claim.label} was not settled"
            mend = partial(self._mend_one, claim, by_uid.get(claim.uid), terms, node)
            self._writes.attempt(claim.namespace, claim.name, what, mend)

    def _mend_one(
        self, claim: Claim, pod: Pod | None, terms: Terms, node: Callable[[str], Node | None]
    ) -> None:
        if pod is None or pod.finished:
            now, pools = self._clock(), terms.judged_by()
            read = self._cluster.ended_pod
            freed = release_ended(self._ledger, claim, pod, node, read, now, pools=pools)
            self._report.released += bool(freed)
            if pod is not None:
                self._teller.released(Subject.of_pod(pod), freed, claim.node, FINISHED)
        elif pod.spec.node_name:
            return  # adoption brings its claim to what it is to be
        elif claim.is_seat:
            seat = self._seats.by_our_clock(claim, self._clock())
            if is_over(seat, self._clock()) and self._ledger.cancel(claim):
                self._report.released += 1
                self._given_back.append(claim)
        elif self._in_doubt(claim) and not self._writes.spent():
            deadline = Deadline.after(FENCE_SECONDS, self._monotonic)
            settle(self._ledger, self._cluster, claim, self._clock(), deadline)
            self._report.settled += 1
            said = "the claim of pod %s is settled"
            calls.decided(log, "settled", claim_told(claim), said, claim.label)

    def _in_doubt(self, claim: Claim) -> bool:
        """Whether the claim of a pod that is not bound is no bind's that is under way. One that is stamped
        later than now is none either: a wrong clock must not keep it for as long.

        With clocks that are apart a bind may be taken for dead that is under way: its pod is fenced, so it is
        tried again, and nothing is given twice (decision 65)."""
        return claim.state == "bound" or abs(self._clock() - claim.since) > BIND_SECONDS


def endpoint(settings: Settings, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    from berth.http import cloudevents  # `berth reconcile` starts without its library

    ledger, cluster = ledger_and_cluster(settings, metrics.of("reconcile"), while_closed=True)
    if known := caution(settings.store):
        log.info("%s", known)
    told = teller(cluster, settings, "reconcile", metrics)
    # Two at once would do the same work, and anybody may ask for it.
    # Later than release, which wakes for the same rest: by then nothing is left to wake for.
    alarm = alarm_of(ledger, cluster, settings.scheduler_names, clock=cluster.now, delay=_DELAY_SECONDS)
    reconcile = Reconcile(
        ledger,
        cluster,
        settings,
        clock=cluster.now,
        teller=told,
        licences=LicenceReader(ledger, clock=cluster.now),
        ahead=cluster.clock_ahead,
        alarm=alarm,
    )
    reconciled = Coalesced(reconcile.run)

    def handle(_: Mapping[str, str], __: bytes) -> Mapping[str, object]:
        """Reconcile, whatever was sent: a clock's tick, a dead letter, a person's call."""
        return asdict(reconciled())

    return cloudevents.subscriber("reconcile", handle, ledger.check, settings, reads_body=False)
