"""PoolClaims: from their objects to the ledger, and from the ledger to their status.
The status is for people: nothing is decided by it. Reconcile writes what could not be written."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from berth.api.pool import Pool
from berth.api.poolclaim import Phase, PoolClaim, PoolClaimStatus, parse, within
from berth.api.units import Units
from berth.controller.conditions import Condition, merged, why_closed
from berth.deadline import Deadline
from berth.errors import BadInputError, BerthError, ClusterRefusedError
from berth.kube.cluster import Cluster
from berth.kube.writes import StatusWrites
from berth.ledger.keys import parse_domain, poolclaim_quota
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Domain, Holding, PoolClaimSpec, Refusal
from berth.ledger.refusals import REFUSALS
from berth.ledger.transaction import OutdatedError
from berth.ledger.view import View
from berth.scheduling.demand import PoolClaims

log = logging.getLogger("berth.poolclaims")

PUBLISH_SECONDS = 20.0
"""How long one call may write PoolClaims' status: an event has 60 s, and the next tick must not wait."""

_LINES = 20
_SECONDS = 2.0

CONDITIONS = ("Ready", "Bound")
"""The types of a PoolClaim's conditions."""


class _Now(NamedTuple):
    """What a PoolClaim's status is to say, and whether a pod has it or can get it."""

    status: PoolClaimStatus
    ready: Condition

    def document(self, standing: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Return the whole status for the PoolClaim of which this document stands there."""
        phase = self.status.phase
        bound = Condition("Bound", "True" if phase == "Bound" else "False", phase)
        conditions = merged([self.ready, bound], CONDITIONS, standing, now)
        return {**self.status.document(), "conditions": conditions}


_AVAILABLE = _Now(PoolClaimStatus("Available"), Condition("Ready", "True", "Available", "a pod can get it"))


class Admission(NamedTuple):
    """What the ledger gets of PoolClaims, and a line for each namespace that has more of them than it may."""

    specs: Mapping[PoolClaim, PoolClaimSpec]
    refusals: list[str]

    def by_name(self) -> PoolClaims:
        """Return the PoolClaims as a pod's demand is read by them."""
        return {(claim.namespace, claim.name): (claim.pool, spec) for claim, spec in self.specs.items()}


def read_claims(cluster: Cluster, problems: list[str]) -> list[PoolClaim]:
    """Return the cluster's PoolClaims. For those that can't be read, lines are added to `problems`."""
    claims, wrong = _parsed(cluster.poolclaims() or ())
    problems += _first([*wrong.values()])
    return claims


def admit(claims: Collection[PoolClaim], pools: Mapping[str, Pool], most: int) -> Admission:
    """Judge PoolClaims by these Pools. Those of a namespace may weigh `most` together; the rest are left out,
    and so are unit names that a PoolClaim's Pool does not list, or does not let its namespace have."""
    taken = within(claims, most)
    beyond = Counter(claim.namespace for claim in {*claims}.difference(taken))
    refusals = [
        f"namespace {namespace}: {count} of its PoolClaims are refused: {_too_many(most)}"
        for namespace, count in sorted(beyond.items())
    ]
    return Admission(_specs(taken, pools), refusals)


def take_claims(ledger: Ledger, admission: Admission, problems: list[str]) -> list[tuple[str, str]]:
    """Set the ledger's PoolClaims to those admitted. Return what is new or has changed, by pool and domain.
    Nothing is set where somebody began later to read PoolClaims, and sets them.

    For the refusals, and for each PoolClaim that the store can't take, a line is added to `problems`.
    """
    specs: dict[tuple[str, str], PoolClaimSpec | None] = {
        (pool, name): None
        for pool, domains in ledger.view().domains.items()
        for name, domain in domains.items()
        if domain.poolclaim is not None
    }
    specs |= {(claim.pool, poolclaim_quota(claim.label)): spec for claim, spec in admission.specs.items()}
    failed: list[str] = []

    def note(which: tuple[str, str], error: BerthError) -> None:
        label = parse_domain(which[1]).label
        failed.append(f"PoolClaim {label}: the ledger did not take it over: {error}")

    try:
        changed = ledger.set_poolclaims(specs, note)
    except OutdatedError:
        return []
    problems += _first(admission.refusals) + _first(failed)
    return [which for which in changed if specs[which] is not None]


def publish_held(
    cluster: Cluster, claim: Claim, deadline: Deadline, clock: Callable[[], float] = time.time
) -> None:
    """Write the status of the PoolClaims that a claim holds, as far as there is time."""
    for which in _held(claim.holdings):
        _write(cluster, which, partial(_of_holder, claim), deadline, clock)


def publish_free(
    ledger: Ledger,
    cluster: Cluster,
    freed: Iterable[Holding],
    deadline: Deadline | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Write what freed PoolClaims are now into their status, as far as there is time."""
    held = _held(freed)
    if not held:
        return
    try:
        view = ledger.view()  # their Pool may be gone by now, or list their units no more
    except BerthError as error:
        log.warning("the status of freed PoolClaims waits for reconcile: %s", error)
        return
    for which in held:
        _write(cluster, which, partial(_now, view=view, beyond=None), deadline, clock)


def publish_claims(
    ledger: Ledger,
    cluster: Cluster,
    most: int,
    monotonic: Callable[[], float] = time.monotonic,
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """Write each PoolClaim's status where it differs. Return the problems, a line each.

    `most` is as for `admit`. Users may make PoolClaims faster than their status is written. So this stops
    after PUBLISH_SECONDS, and the next call goes on; those that are in the ledger come first. Raises store
    errors, and cluster errors where the PoolClaims can't be read.
    """
    documents = cluster.poolclaims() or ()  # first: what is counted then is newer than what stands there
    view = ledger.view()
    writes, now = StatusWrites("PoolClaims", monotonic, PUBLISH_SECONDS), clock()
    beyond = _refusals(documents, most)
    for document in sorted(documents, key=lambda document: _label(document) in beyond):
        label = _label(document)
        status = _now(document, view, beyond.get(label)).document(document, now)
        what = f"the status of PoolClaim {label} was not written"
        if document.get("status") != status:
            writes.attempt(what, partial(cluster.set_pool_claim_status, document, status, _SECONDS))
    return writes.problems


def _first(lines: list[str]) -> list[str]:
    """Return the first of these lines, and how many more there are: users could make thousands."""
    more = len(lines) - _LINES
    return [*lines[:_LINES], f"and {more} more PoolClaims, or namespaces, like these"] if more > 0 else lines


def _specs(claims: Iterable[PoolClaim], pools: Mapping[str, Pool]) -> dict[PoolClaim, PoolClaimSpec]:
    listed = cache(lambda pool: pools[pool].all_units if pool in pools else Units())
    allowed = cache(lambda pool, namespace: pools[pool].claimable_by(namespace))

    def spec(claim: PoolClaim) -> PoolClaimSpec:
        refused: Refusal = ""
        if any(unit not in listed(claim.pool) for unit in claim.units):
            refused = "unlisted"
        elif claim.units and (mine := allowed(claim.pool, claim.namespace)) is not None:
            refused = "" if all(unit in mine for unit in claim.units) else "forbidden"
        return PoolClaimSpec(claim.count, () if refused else claim.units, refused=refused)

    return {claim: spec(claim) for claim in claims}


def _too_many(most: int) -> str:
    return (
        f"those of a namespace may weigh {most} together, as many as they name units, or 1 each "
        "(BERTH_POOLCLAIMS_PER_NAMESPACE)"
    )


class _Refused(NamedTuple):
    """Why no pod can get a PoolClaim: a word in CamelCase, and a text for a person."""

    reason: str
    message: str

    def now(self) -> _Now:
        ready = Condition("Ready", "False", self.reason, self.message)
        return _Now(PoolClaimStatus("Refused", message=self.message), ready)


def _refusals(documents: Iterable[Mapping[str, Any]], most: int) -> dict[str, _Refused]:
    """Return why PoolClaims are not in the ledger, by namespace and name."""
    claims, wrong = _parsed(documents)
    taken, too_many = {*within(claims, most)}, _Refused("TooMany", _too_many(most))
    refused = {label: _Refused("Invalid", why) for label, why in wrong.items()}
    return refused | {claim.label: too_many for claim in claims if claim not in taken}


def _parsed(documents: Iterable[Mapping[str, Any]]) -> tuple[list[PoolClaim], dict[str, str]]:
    """Return the PoolClaims, and what is wrong with the others by namespace and name."""
    claims, wrong = [], {}
    for document in documents:
        try:
            claims.append(parse(document))
        except BadInputError as error:
            wrong[_label(document)] = str(error)
    return claims, wrong


def _label(document: Mapping[str, Any]) -> str:
    return f"{document['metadata']['namespace']}/{document['metadata']['name']}"


def _now(document: Mapping[str, Any], view: View, beyond: _Refused | None) -> _Now:
    """Return the status of this PoolClaim; `beyond`: why the ledger has none of it."""
    name, pool = document["metadata"]["name"], (document.get("spec") or {}).get("pool", "")
    domain = view.document(pool, poolclaim_quota(_label(document)))
    holder = next(iter(domain.claims.values()), None)
    if holder is not None:
        return _status(holder, name)
    if beyond is not None:
        return beyond.now()
    if domain.poolclaim is not None and domain.poolclaim.refused:
        refused = domain.poolclaim.refused
        return _Refused(refused.capitalize(), REFUSALS[refused]).now()
    missing = _missing(pool, domain, view)
    ready = _AVAILABLE.ready if missing is None else Condition("Ready", "False", *missing)
    return _AVAILABLE._replace(ready=ready)


def _missing(pool: str, domain: Domain, view: View) -> _Refused | None:
    """Return what a PoolClaim with this document, which nobody refuses, still lacks for a pod to get it."""
    if (closed := why_closed(view)) is not None:
        return _Refused("LedgerClosed", closed)
    if pool not in view.pools:
        return _Refused("NoPool", f"the ledger has no Pool {pool}; it may come later")
    if domain.poolclaim is None:
        return _Refused("NotTaken", "the ledger does not have it yet: reconcile takes it over")
    return None


def _held(holdings: Iterable[Holding]) -> list[tuple[str, str]]:
    """Return the PoolClaims from which these are, by namespace and name."""
    names = (holding.name for holding in holdings)
    return [(name.namespace, name.poolclaim) for name in names if name.kind == "poolclaim"]


def _of_holder(claim: Claim, document: Mapping[str, Any]) -> _Now:
    return _status(claim, document["metadata"]["name"])


def _status(claim: Claim, name: str) -> _Now:
    held = [holding for holding in claim.holdings if holding.claim == name]
    units = [unit for holding in held for unit in holding.units]
    phase: Phase = "Reserved" if claim.state == "reserved" else "Bound"
    place = held[0].whole if held else ""
    verb = "is being bound with it" if phase == "Reserved" else "holds it"
    ready = Condition("Ready", "True", phase, f"pod {claim.name} {verb}")
    return _Now(PoolClaimStatus(phase, claim.node, place, units, claim.name, claim.uid), ready)


def _write(
    cluster: Cluster,
    which: tuple[str, str],
    what: Callable[[Mapping[str, Any]], _Now],
    deadline: Deadline | None,
    clock: Callable[[], float],
) -> None:
    """Write one PoolClaim's status. Each request has the time that is left; _SECONDS without a deadline."""

    def left() -> float:
        return _SECONDS if deadline is None else deadline.left()

    if (seconds := left()) <= 0:
        return
    try:
        document = cluster.pool_claim(*which, seconds)
        if document is None:
            return
        status = what(document).document(document, clock())
        if document.get("status") != status and (seconds := left()) > 0:
            cluster.set_pool_claim_status(document, status, seconds)
    except BerthError as error:
        if isinstance(error, ClusterRefusedError) and error.status in (404, 409):
            return  # gone, or written by somebody else meanwhile: reconcile writes it
        log.warning("the status of PoolClaim %s/%s waits for reconcile: %s", *which, error)
