"""Which units a running pod says that it uses: by our annotation, or by that of a Pool's `adoptFrom`.
Users can write both: what is noted here is believed only where the unit is of the pool, and free."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from berth.documents import ORDINARY, Claim, Holding
from berth.objects import Pod
from berth.policy.pools import Pool
from berth.policy.units import Units, normal

ALLOCATED = "berth.dev/allocated"

_MOST = 1024  # units of a pod that are looked at


class _Noted(msgspec.Struct):
    pool: str
    units: list[str] = []
    claim: str = ""


_noted = msgspec.json.Decoder(list[_Noted])


def with_notes(claim: Claim, pod: Pod, pools: Mapping[str, Pool]) -> Claim:
    """The claim with the names of units that the pod says it uses, each in the domain that lists it."""
    holdings = []
    known = {each.claim for each in claim.holdings}
    for each in claim.holdings:
        pool = pools.get(each.pool)
        if pool is None or not pool.named or each.bound:
            holdings.append(each)
            continue
        domain, units = _listed(pool, _units(pod, pool, each.claim, known), each.domain)
        holdings.append(replace(each, domain=domain, units=units[: each.count]))
    return replace(claim, holdings=_beside(claim, tuple(holdings)))


def _beside(claim: Claim, holdings: tuple[Holding, ...]) -> tuple[Holding, ...]:
    """What is not reserved for important pods is a share of the domain where the units are."""
    moved = {
        (before.pool, f"{before.domain}{ORDINARY}"): f"{after.domain}{ORDINARY}"
        for before, after in zip(claim.holdings, holdings, strict=True)
    }
    found = (replace(each, domain=moved.get((each.pool, each.domain), each.domain)) for each in holdings)
    return tuple(sorted(found, key=lambda each: (each.pool, each.domain, each.claim)))


def _units(pod: Pod, pool: Pool, claim: str, known: Collection[str]) -> list[str]:
    """What a PoolClaim gave that is no more the pod uses still."""
    annotations = pod.metadata.annotations or {}
    found = [
        unit
        for each in _read(annotations.get(ALLOCATED))
        if (each.pool, each.claim if each.claim in known else "") == (pool.name, claim)
        for unit in each.units
    ]
    if not found and pool.spec.adopt_from and not claim:
        found = annotations.get(pool.spec.adopt_from, "").replace(",", " ").split()
    return list(dict.fromkeys(map(normal, found[:_MOST])))


def _read(text: str | None) -> list[_Noted]:
    try:
        return [] if text is None else _noted.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []


def _listed(pool: Pool, units: list[str], place: str) -> tuple[str, tuple[str, ...]]:
    """Those of the units that one domain lists: the node's own, or else whichever has the first of them."""
    order = sorted(pool.spec.units, key=lambda domain: domain != place)
    for domain in order if units else ():
        there = Units.parse(pool.spec.units[domain])
        found = tuple(unit for unit in units if unit in there)
        if found:
            return domain, found
    return place, ()
