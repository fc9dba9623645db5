"""PoolClaims: from their objects to the ledger, and from the ledger to their status.
The status is for people: nothing is decided by it, and what could not be written reconcile writes."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from berth.cluster import Cluster
from berth.commits import OutdatedError
from berth.documents import POOL_CLAIM, Claim, Holding, Wants
from berth.errors import BadInputError, BerthError, ClusterRefusedError
from berth.ledger import Ledger
from berth.policy.poolclaims import Phase, PoolClaim, parse, status_of
from berth.steps.terms import Named
from berth.steps.writes import StatusWrites
from berth.view import View

log = logging.getLogger("berth.poolclaims")

_SECONDS = 2.0
_AVAILABLE = status_of("Available")


def read_claims(cluster: Cluster, problems: list[str]) -> list[PoolClaim]:
    """The cluster's PoolClaims; of those that can't be read, a line is added to `problems`."""
    found = []
    for document in cluster.poolclaims() or ():
        try:
            found.append(parse(document))
        except BadInputError as error:
            problems.append(str(error))
    return found


def named(claims: Iterable[PoolClaim]) -> Named:
    """As a pod's demand is read by them."""
    return {(each.namespace, each.name): (each.pool, Wants(each.count, each.units)) for each in claims}


def take_claims(ledger: Ledger, claims: Iterable[PoolClaim]) -> list[tuple[str, str]]:
    """Make the ledger's PoolClaims these; those that are new or want something else, by pool and domain. None
    where a look at PoolClaims began later than the ledger's, which then makes them what it found."""
    wanted: dict[tuple[str, str], Wants | None] = dict.fromkeys(_known(ledger.view()))
    for each in claims:
        wanted[(each.pool, f"{POOL_CLAIM}{each.label}")] = Wants(each.count, each.units)
    try:
        changed = ledger.set_wants(wanted)
    except OutdatedError:
        return []
    return [which for which in changed if wanted[which] is not None]


def tell(cluster: Cluster, claim: Claim, left: Callable[[], float]) -> None:
    """Write the status of the PoolClaims that a claim holds, if there are any and there is time: `left` is
    asked before each request for the seconds that it may take."""
    for namespace, name in _held(claim.holdings):
        _write(cluster, namespace, name, _status(claim, name), left)


def told_free(
    cluster: Cluster, freed: Iterable[Holding], left: Callable[[], float] = lambda: _SECONDS
) -> None:
    """Write into the status of PoolClaims that they are free again; `left` as in `tell`."""
    for namespace, name in _held(freed):
        _write(cluster, namespace, name, _AVAILABLE, left)


def publish_claims(ledger: Ledger, cluster: Cluster) -> list[str]:
    """Write each PoolClaim's status where it differs; problems, a line each.

    Raises store errors, and cluster errors where the PoolClaims can't be read.
    """
    documents = cluster.poolclaims() or ()  # first: what is counted then is newer than what stands there
    view = ledger.view()
    writes = StatusWrites("PoolClaims")
    for document in documents:
        meta = document["metadata"]
        pool = (document.get("spec") or {}).get("pool", "")
        domain = view.domains.get(pool, {}).get(f"{POOL_CLAIM}{meta['namespace']}/{meta['name']}")
        holder = next(iter(domain.claims.values()), None) if domain is not None else None
        status = _AVAILABLE if holder is None else _status(holder, meta["name"])
        what = f"the status of PoolClaim {meta['namespace']}/{meta['name']} was not written"
        writes.attempt(what, partial(_set, cluster, document, status))
    return writes.problems


def _known(view: View) -> list[tuple[str, str]]:
    return [
        (pool, name)
        for pool, domains in view.domains.items()
        for name, domain in domains.items()
        if name.startswith(POOL_CLAIM) and domain.wants is not None
    ]


def _held(holdings: Iterable[Holding]) -> list[tuple[str, str]]:
    """PoolClaims by namespace and name."""
    bounds = (each.domain.removeprefix(POOL_CLAIM) for each in holdings if each.domain.startswith(POOL_CLAIM))
    return [(namespace, name) for namespace, _, name in (each.partition("/") for each in bounds)]


def _status(claim: Claim, name: str) -> Mapping[str, Any]:
    held = [each for each in claim.holdings if each.claim == name]
    units = [unit for each in held for unit in each.units]
    phase: Phase = "Reserved" if claim.state == "reserved" else "Bound"
    return status_of(phase, claim.node, held[0].place if held else "", units, claim.name, claim.uid)


def _write(
    cluster: Cluster, namespace: str, name: str, status: Mapping[str, Any], left: Callable[[], float]
) -> None:
    if (seconds := left()) <= 0:
        return
    try:
        document = cluster.pool_claim(namespace, name, seconds)
        if document is not None and (seconds := left()) > 0:
            _set(cluster, document, status, seconds)
    except BerthError as error:
        log.warning("the status of PoolClaim %s/%s waits for reconcile: %s", namespace, name, error)


def _set(
    cluster: Cluster, document: Mapping[str, Any], status: Mapping[str, Any], seconds: float = _SECONDS
) -> None:
    if document.get("status") == status:
        return
    try:
        cluster.set_pool_claim_status(document, status, seconds)
    except ClusterRefusedError as error:
        if error.status not in (404, 409):  # gone; or another has written since: the next look mends it
            raise
