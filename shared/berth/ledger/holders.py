"""Who holds what, and each unit of a named pool with its holder, as a View has it.
Pure: it asks no store and no cluster. Lists are never written out: free addresses are told as ranges."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from berth.api import addresses
from berth.api.units import Units
from berth.ledger.model import Claim, Domain, Holding, by_whole
from berth.ledger.report import names, natural
from berth.ledger.view import View

State = Literal["free", "reserved", "bound", "lost", "withdrawn", "resting", "kept"]


class PodName(msgspec.Struct, frozen=True):
    """A pod's name in a report, as claims have it; a holder that is no pod has no namespace."""

    namespace: str
    pod: str

    def __str__(self) -> str:
        """Return it as a person reads it: namespace/pod."""
        return f"{self.namespace}/{self.pod}" if self.namespace else self.pod


class UnitRow(msgspec.Struct, frozen=True):
    """One unit, or a range of free ones; `count` of them. `unit` is empty where pods hold some whose names
    are not known.

    `withdrawn`: a pod holds it, and its pool does not list it any more. `resting`: nobody gets it yet.
    `kept`: only `holder` gets it now, which is a pod or an owner; else `holder` is the pod that holds it.
    """

    pool: str
    domain: str
    unit: str
    count: int
    state: State
    holder: str = ""
    uid: str = ""
    claim: str = ""
    node: str = ""


class ClaimRow(msgspec.Struct, frozen=True):
    """What one pod holds in one domain; a pod that holds units of two pools has two rows.

    `units` are the names that are known, `claim` is the PoolClaim that gave them.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    pool: str
    domain: str
    count: int
    units: tuple[str, ...]
    claim: str
    state: str
    since: datetime


def claim_rows(view: View, pool: str | None = None, namespace: str | None = None) -> list[ClaimRow]:
    """Return who holds what, sorted by namespace and pod."""
    rows = [
        ClaimRow(
            namespace=claim.namespace,
            pod=claim.name,
            uid=claim.uid,
            node=claim.node,
            pool=holding.pool,
            domain=holding.domain,
            count=holding.count,
            units=holding.units,
            claim=holding.claim,
            state=claim.state,
            since=datetime.fromtimestamp(int(claim.since), UTC),
        )
        for claim in view.claims()
        if namespace in (None, claim.namespace)
        for holding in wholes(claim)
        if pool in (None, holding.pool)
    ]
    return sorted(rows, key=lambda row: (row.namespace, natural(row.pod), row.uid, row.pool, row.domain))


def unit_rows(view: View, now: float, only: str | None = None) -> list[UnitRow]:
    """Return all units of the named pools, or of one of them, at this time (Unix seconds)."""
    all_rows: list[UnitRow] = []
    for pool in names(view):
        for domain in sorted(view.names(pool), key=natural) if only in (None, pool) else ():
            rows = held_rows(view, pool, domain)
            listed = _listed(view, pool, domain)
            if listed is not None:
                rows += _retained_rows(view, pool, domain, listed.without(_units(rows)), now)
                free = listed.without(_units(rows)).entries()
                rows += [UnitRow(pool, domain, unit, Units.of([unit]).size, "free") for unit in free]
            all_rows += sorted(rows, key=_order)
    return all_rows


def held_rows(view: View, pool: str, domain: str) -> list[UnitRow]:
    """Return the units of a domain that pods hold, in order; none where units have no names."""
    listed = _listed(view, pool, domain)
    rows = []
    for claim in _claims(view.parts(pool, domain).values()):
        for holding in wholes(claim):
            if (holding.pool, holding.domain) == (pool, domain):
                rows += _of_holding(claim, holding, listed)
    return sorted(rows, key=_order)


def wholes(claim: Claim) -> list[Holding]:
    """Return the claim's holdings by whole domains, without quotas, with the names of their units."""
    return [holding for holding in by_whole(claim.holdings) if not holding.is_quota]


def holder(claim: Claim) -> str:
    """Return the holder as a person reads it: namespace/pod."""
    return str(pod_name(claim))


def pod_name(claim: Claim) -> PodName:
    """Return the name of the claim's holder."""
    return PodName("" if claim.is_external else claim.namespace, claim.name)


def _of_holding(claim: Claim, holding: Holding, listed: Units | None) -> list[UnitRow]:
    if listed is None and not holding.units:
        return []
    row = UnitRow(
        pool=holding.pool,
        domain=holding.domain,
        unit="",
        count=holding.count - len(holding.units),
        state=claim.state,
        holder=holder(claim),
        uid=claim.uid,
        claim=holding.claim,
        node=claim.node,
    )
    rows = [] if row.count == 0 else [row]
    for unit in holding.units:
        withdrawn = claim.state != "lost" and (listed is None or unit not in listed)
        rows.append(replace(row, unit=unit, count=1, state="withdrawn" if withdrawn else claim.state))
    return rows


def _retained_rows(view: View, pool: str, domain: str, listed: Units, now: float) -> list[UnitRow]:
    """Return those of the listed units that wait for somebody."""
    rows: dict[str, UnitRow] = {}
    parts = view.parts(pool, domain).values()
    standing = (left for part in parts for left in part.retained if left.stands(now))
    for left in sorted(standing, key=lambda left: left.rest_until):
        resting = now < left.rest_until
        for unit in filter(listed.__contains__, left.units):
            state: State = "resting" if resting else "kept"
            rows[unit] = UnitRow(pool, domain, unit, 1, state, "" if resting else left.owner)
    return list(rows.values())


def _units(rows: Iterable[UnitRow]) -> Units:
    return Units.parse({row.unit for row in rows} - {""})


def _listed(view: View, pool: str, domain: str) -> Units | None:
    """Return what the pool lists there; None where its units have no names."""
    size = view.capacity(pool, domain)
    return Units.of(size) if isinstance(size, tuple) else None


def _claims(documents: Iterable[Domain]) -> Iterable[Claim]:
    """Return each claim once: one over several stripes stands in all of them."""
    claims = (claim for domain in documents for claim in domain.claims.values())
    return {(claim.uid, claim.node): claim for claim in claims}.values()


def _order(row: UnitRow) -> tuple[bool, int, object, str]:
    """Sort by name, then by address; what has no name comes last."""
    span = addresses.span_of(row.unit)
    return not row.unit, -1 if span is None else span[0], natural(row.unit), row.uid
