"""reconcile: make the ledger equal to the cluster, whatever was lost, doubled or late (promises 3 and 8).
It never takes units from a pod that runs, and it alone opens a ledger that has no epoch.

The order is the point. Claims are read first, then pods are listed: a claim whose pod is not in the later
list is a claim of a pod that is gone. For a lost ledger, all waiting pods are fenced before the list: a bind
that reserved in the ledger that was lost can't land its Binding after it.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping

import msgspec

from berth import wire
from berth.cluster import Cluster
from berth.decisions import agrees
from berth.documents import Claim
from berth.errors import BerthError, ClusterRefusedError, RetryableError, StoreFailedError
from berth.events import failed
from berth.http import Endpoint, Reply
from berth.ledger import Ledger
from berth.objects import Node, Pod
from berth.policy.demand import demand, might_ask
from berth.policy.pools import Pool, by_resource
from berth.settings import Settings
from berth.steps.adopt import adopt
from berth.steps.claims import BIND_SECONDS, claim_of, fence, settle
from berth.steps.ours import ledger_and_cluster
from berth.steps.publish import publish
from berth.steps.stock import problems, read_pools, take_stock
from berth.steps.wake import wake

_FENCE_SECONDS = 5.0


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


class Reconcile:
    """One reconcile over one ledger (opened `while_closed`) and cluster."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._ledger, self._cluster, self._settings = ledger, cluster, settings
        self._clock, self._new_id = clock, new_id

    def run(self) -> Report:
        """Mend all there is. Raises store and cluster errors; what was done until then stands."""
        self._ledger.make_ours()
        report = Report()
        pools = self._read_pools(report)
        resources = by_resource(pools)
        mark = None
        if not self._ledger.view().open:
            mark = self._ledger.begin_rebuild(self._new_id())
            self._fence_waiting()
        claims = self._ledger.view().claims()
        pods = self._cluster.pods()
        self._mend(report, claims, pods, resources)
        known = {claim.uid for claim in claims}
        report.adopted = adopt(self._ledger, self._cluster, pods, resources, self._clock(), known)
        # Only now: what running pods hold of a new Pool is in the ledger before its capacity is.
        report.pools = self._ledger.apply_pools(pools)
        self._stock(report)
        if mark is not None:
            self._ledger.open(self._new_id(), mark)
            report.rebuilt = True
        report.woken = self._wake()
        if self._settings.pools is None:
            report.problems += publish(self._ledger, self._cluster, self._settings.scheduler_names)
        return report

    def _wake(self) -> int:
        free = {
            pool: sum(units for units, _ in domains.values())
            for pool, domains in self._ledger.view().free.items()
        }
        room = {pool: units for pool, units in free.items() if units}
        schedulers = self._settings.scheduler_names
        return wake(self._ledger, self._cluster, schedulers, room, self._clock(), everyone=True)

    def _read_pools(self, report: Report) -> Mapping[str, Pool]:
        try:
            return read_pools(self._settings.pools, self._cluster)
        except (RetryableError, StoreFailedError):
            raise
        except BerthError as error:
            # A typo in a Pool must not stop claims from being mended: the Pools applied last stay.
            report.problems.append(str(error))
            return self._ledger.view().pools

    def _fence_waiting(self) -> None:
        """Every waiting pod that may hold a reservation, also of a Pool that is not known now."""
        for scheduler in self._settings.scheduler_names:
            for pod in self._cluster.unbound_pods(scheduler):
                if pod.waiting and might_ask(pod):
                    fence(self._cluster, pod, self._clock(), _FENCE_SECONDS)

    def _stock(self, report: Report) -> None:
        nodes: list[Node] = []

        def asked() -> list[Node]:
            nodes.extend(self._cluster.nodes())
            return nodes

        report.capacities = len(take_stock(self._ledger, asked))
        report.problems += problems(self._ledger.view().pools.values(), nodes)

    def _mend(
        self, report: Report, claims: Iterable[Claim], pods: Iterable[Pod], resources: Mapping[str, Pool]
    ) -> None:
        """Claims of pods that are gone, that run elsewhere, or whose bind died."""
        by_uid = {pod.metadata.uid: pod for pod in pods}
        for claim in claims:
            try:
                self._mend_one(report, claim, by_uid.get(claim.uid), resources)
            except ClusterRefusedError as error:
                # A webhook that refuses one pod's fence must not keep the rest from being mended.
                report.problems.append(f"the claim of pod {claim.label} was not settled: {error}")

    def _mend_one(self, report: Report, claim: Claim, pod: Pod | None, resources: Mapping[str, Pool]) -> None:
        if pod is None or pod.finished:
            report.released += bool(self._ledger.release(claim.uid))
        elif pod.spec.node_name:
            report.settled += self._agree(claim, pod, resources)
        elif claim.state == "bound" or self._clock() - claim.since > BIND_SECONDS:
            settle(self._ledger, self._cluster, claim, self._clock(), _FENCE_SECONDS)
            report.settled += 1

    def _agree(self, claim: Claim, pod: Pod, resources: Mapping[str, Pool]) -> bool:
        """The claim of a running pod says what the pod asks for, on its node."""
        asked = demand(pod, resources)
        if asked.refusal is not None or any(holding.pool not in asked.units for holding in claim.holdings):
            return False  # its Pool was taken away or counts another resource now: the pod holds what it has
        agreed = claim_of(pod, pod.spec.node_name or "", asked.units, claim.attempt, claim.since)
        return not agrees(claim, agreed) and self._ledger.adopt(agreed, anew=False) is not None


def endpoint(settings: Settings) -> Endpoint:
    ledger, cluster = ledger_and_cluster(settings, while_closed=True)
    verb = Reconcile(ledger, cluster, settings)

    def answer(_: Mapping[str, str], __: bytes) -> Reply:
        return Reply(200, wire.encode(verb.run()))

    return Endpoint(
        name="reconcile",
        answer=answer,
        failed=failed,
        health=ledger.check,
        body_limit=settings.body_limit,
    )
