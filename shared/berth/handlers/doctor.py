"""Examine a ledger: rehearse reconcile on a copy of it in memory, and tell what that changes; or let
reconcile do it. Without `fix` nothing is written, to the store or to the cluster.

What a bind or a release under way has not done yet is told apart by looking again: a difference counts if it
is there at each look, for longer than a bind may take."""

import logging
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from berth.api.pool import Pool
from berth.controller.checkouts import checkout_findings, may_be_other, readings_of
from berth.controller.drift import Finding, Ledgers, differences, finding, of_unreadable, remaining, statuses
from berth.controller.pool_source import read_pools
from berth.controller.waiting import of_other_schedulers
from berth.errors import (
    BadInputError,
    BerthError,
    ContentionError,
    OtherClusterError,
    RetryableError,
    StoreFailedError,
    alternatives,
)
from berth.handlers.reconcile import Reconcile, Report
from berth.kube.cluster import Cluster
from berth.kube.rehearsal import Rehearsal
from berth.ledger.keys import REBUILD
from berth.ledger.ledger import Ledger
from berth.ledger.model import COPY, decode_epoch
from berth.ledger.unreadable import Unreadable, forget, unreadable
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import redacted
from berth.stores.base import EPOCH, Store
from berth.stores.memory import MemoryStore

log = logging.getLogger("berth.doctor")

PAUSES = (1.0, 4.0)
"""Seconds before the second and the third look: together longer than bind's deadline. Most of what is under
way is done by the second."""


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and how much was compared."""

    findings: list[Finding]
    claims: int = 0
    pods: int = 0
    pools: int = 0

    @property
    def blocked(self) -> bool:
        """Whether nothing can be repaired before a person has acted."""
        return any(seen.kind in _BLOCKING and not seen.repairs for seen in self.findings)


_BLOCKING = ("unreadable", "copying", "moved", "other-cluster")


class Repair(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `fix` did: documents that were thrown away, and reconcile's report; None: another reconcile was at
    it."""

    forgotten: list[str]
    report: Report | None


class Doctor:
    """Examines the ledger in one store beside one cluster. `agreed` are keys of unreadable documents that the
    first `fix` may throw away though that is not known to be safe."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        settings: Settings,
        *,
        agreed: Collection[str] = (),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._cluster, self._settings = store, cluster, settings
        self._agreed, self._name = agreed, redacted(settings.store)
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep

    def examine(self) -> Examination:
        """Return what differs at each of up to three looks. Raises store and cluster errors, and
        BadInputError for a key in `agreed` that is of no unreadable document."""
        seen = self._look()
        for pause in PAUSES:
            if not any(one.may_pass for one in seen.findings):
                break
            self._sleep(pause)
            known, seen = {one.identity for one in seen.findings}, self._look()
            stays = [one for one in seen.findings if not one.may_pass or one.identity in known]
            seen = msgspec.structs.replace(seen, findings=stays)
        return seen

    def fix(self, seen: Examination) -> Repair:
        """Throw away what may go of the unreadable documents, as they are judged now, and reconcile. Raises
        store and cluster errors."""
        wrong: dict[str, bytes] = {}
        if told := {one.key for one in seen.findings if one.kind == "unreadable" and one.repairs}:
            bodies = self._bodies()
            judged = unreadable(bodies, self._pools, self._agreed)
            wrong = {one.key: bodies[one.key] for one in judged if one.key in told and not one.why_kept}
            forget(self._store, wrong, self._cluster.identity, self._name)
        self._agreed = ()  # it was for those
        try:
            report = self._reconcile(self._store, self._cluster).run()
        except ContentionError as error:  # the functions' own reconcile is quicker
            log.info("%s", error)
            report = None
        return Repair(forgotten=sorted(wrong), report=report)

    def _bodies(self) -> dict[str, bytes]:
        documents = self._store.changes(None).documents
        return {key: body for key, body in documents.items() if body is not None}

    def _reconcile(self, store: Store, cluster: Cluster) -> Reconcile:
        ledger = Ledger(
            store,
            clock=self._clock,
            monotonic=self._monotonic,
            sleep=self._sleep,
            while_closed=True,
            cluster=cluster.identity,
            name=self._name,
        )
        return Reconcile(
            ledger,
            cluster,
            self._settings,
            clock=self._clock,
            monotonic=self._monotonic,
            new_id=lambda: uuid.uuid4().hex,
            rebuild_seconds=math.inf,
        )

    def _look(self) -> Examination:
        """Look once: read the ledger, then all else, as reconcile does."""
        bodies = self._bodies()
        wrong = unreadable(bodies, self._pools, self._agreed)
        keys = [document.key for document in wrong]
        for key in self._agreed:
            if key not in keys:
                raise BadInputError(f"there is no unreadable document {key}; {alternatives(key, keys)}")
        seen = list(map(of_unreadable, wrong))
        if not all(one.repairs for one in seen):
            return Examination(findings=seen)
        blocked = list(_elsewhere(bodies, wrong))
        if blocked:
            return Examination(findings=[*seen, *blocked])
        try:
            return self._compared(bodies, wrong, seen)
        except OtherClusterError as error:
            return Examination(findings=[finding("other-cluster", str(error))])

    def _compared(
        self, bodies: Mapping[str, bytes], wrong: Collection[Unreadable], seen: list[Finding]
    ) -> Examination:
        """Rehearse reconcile, and tell what it changes. Where documents are unreadable it is rehearsed
        without them, in a ledger that is closed, as after `fix` has thrown them away."""
        damaged = {document.key for document in wrong}
        readable = {key: body for key, body in bodies.items() if key not in damaged}
        copy = MemoryStore({key: body for key, body in readable.items() if not wrong or key != EPOCH})
        rehearsal = Rehearsal(self._cluster)
        report = self._reconcile(copy, rehearsal.as_cluster).run()
        ledgers = Ledgers(bodies, self._view(readable), self._view(copy.bodies()))
        if ledgers.before.open:
            seen += differences(ledgers, rehearsal.listed, damaged)
            seen += statuses(rehearsal.writes)
        elif EPOCH not in damaged:
            pods = len(ledgers.after.claims())
            seen.append(finding("closed", f"nothing is given; {pods} pods would hold claims after a rebuild"))
        seen += remaining(ledgers, rehearsal.listed, report.problems)
        readings = readings_of(ledgers.after, readable)
        told = any(last.others for _, last in readings.values())
        others = self._cluster.pods(lambda pod: may_be_other(pod, readings)) if told else ()
        seen += checkout_findings(ledgers.after, readings, others)
        schedulers = self._settings.scheduler_names
        for stray in of_other_schedulers(rehearsal.listed.values(), ledgers.after, schedulers):
            about = {"pod": stray.first, "pool": stray.asked, "key": stray.scheduler}
            seen.append(finding("other-scheduler", str(stray), **about))
        return Examination(
            findings=seen,
            claims=len(ledgers.after.claims()),
            pods=len(rehearsal.listed),
            pools=len(ledgers.after.pools),
        )

    def _view(self, bodies: Mapping[str, bytes]) -> View:
        view, now = View(), self._clock()
        view.update(bodies, now)
        view.refresh(now)
        return view

    def _pools(self) -> Mapping[str, Pool]:
        """Return the active source's Pools; none where it can't be read: reconcile tells why."""
        try:
            return read_pools(self._settings.pools, self._cluster)
        except (RetryableError, StoreFailedError):
            raise
        except BerthError:
            return {}


def _elsewhere(bodies: Mapping[str, bytes], wrong: Collection[Unreadable]) -> Iterator[Finding]:
    """Yield why nothing may be done in this ledger."""
    known = EPOCH in bodies and all(document.key != EPOCH for document in wrong)
    epoch = decode_epoch(bodies[EPOCH]) if known else None
    trouble = None if epoch is None else epoch.trouble()
    if trouble is not None:
        yield finding("moved" if epoch is not None and epoch.moved else "copying", str(trouble))
    elif epoch is None and bodies.get(REBUILD, b"").startswith(COPY.encode()):
        yield finding("copying", "this is part of a copy that has not ended")
