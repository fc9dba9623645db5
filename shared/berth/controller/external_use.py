"""Units in use outside the cluster: a claim without a pod, for as many units as the Pool's `external` says.
It is never refused: those units are in use, and more than there are show as over-committed."""

from collections.abc import Mapping

from berth.api.pool import EVERYWHERE, Pool
from berth.errors import BadInputError
from berth.ledger.last_reading import LastReading
from berth.ledger.ledger import Ledger
from berth.ledger.model import EXTERNAL, EXTERNAL_NAME, Claim, Holding, Reading
from berth.ledger.readings import head_key
from berth.ledger.report import external_units


def require_cluster_scope(pool: Pool) -> None:
    """Raise BadInputError for a Pool that has not scope Cluster."""
    if pool.spec.scope != "Cluster":
        raise BadInputError(
            f"Pool {pool.name} has scope {pool.spec.scope}: external use goes with scope Cluster only"
        )


def only_cluster(units: int, pool: Pool) -> dict[str, int]:
    """Return the field for a Pool's spec. Raises BadInputError for a Pool that has not scope Cluster, or of
    which it is read what others use."""
    require_cluster_scope(pool)
    if pool.external_from is not None:
        raise BadInputError(
            f"Pool {pool.name} has externalFrom: what others use is read, and not said by hand"
            f" (POST the licence server's text to inventory's path /licences?pool={pool.name})"
        )
    return {"external": units}


def take_external(ledger: Ledger, pools: Mapping[str, Pool], now: float) -> None:
    """Set the claims for external use to what these Pools say. Where that is read, the last reading stays."""
    view = ledger.view()
    if over := [
        name
        for name in view.domains
        if view.at(head_key(name)).reading is not None
        and (name not in pools or pools[name].external_from is None)
    ]:
        ledger.forget_readings(over)
    read = {f"{EXTERNAL}{pool.name}" for pool in pools.values() if pool.external_from is not None}
    before = {claim.uid for claim in view.claims() if claim.is_external} - read
    using = {f"{EXTERNAL}{pool.name}": pool for pool in pools.values() if pool.spec.external}
    for uid in before - using.keys():
        ledger.release(uid)
    for uid, pool in using.items():
        claim = Claim(
            uid=uid,
            namespace="",
            name=EXTERNAL_NAME,
            node="",
            holdings=(Holding(pool.name, EVERYWHERE, pool.spec.external),),
            state="bound",
            since=now,
        )
        ledger.adopt(claim)


def assume_read(ledger: Ledger, pools: Mapping[str, Pool], now: float) -> None:
    """Take what others use of these Pools for as much as was read last, as if that were now: for a trial."""
    view = ledger.view()
    for pool in pools.values():
        if (source := pool.external_from) is not None:
            outside = external_units(pool, view)
            reading, last = Reading(now, source.mark), LastReading(at=now, outside=outside)
            ledger.take_reading(pool.name, outside, reading, last)
