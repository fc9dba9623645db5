"""Units in use outside the cluster: a claim without a pod, for as many units as the Pool's `external` says.
It is never refused: those units are in use, and more than there are show as over-committed."""

from collections.abc import Mapping

from berth.api.pool import EVERYWHERE, Pool
from berth.errors import BadInputError
from berth.ledger.ledger import Ledger
from berth.ledger.model import EXTERNAL, Claim, Holding


def only_cluster(units: int, pool: Pool) -> dict[str, int]:
    """Return the field for a Pool's spec. Raises BadInputError for a Pool that has not scope Cluster."""
    if pool.spec.scope != "Cluster":
        raise BadInputError(
            f"Pool {pool.name} has scope {pool.spec.scope}: external use goes with scope Cluster only"
        )
    return {"external": units}


def take_external(ledger: Ledger, pools: Mapping[str, Pool], now: float) -> None:
    """Set the claims for external use to what these Pools say."""
    before = {claim.uid for claim in ledger.view().claims() if claim.is_external}
    using = {f"{EXTERNAL}{pool.name}": pool for pool in pools.values() if pool.spec.external}
    for uid in before - using.keys():
        ledger.release(uid)
    for uid, pool in using.items():
        claim = Claim(
            uid=uid,
            namespace="",
            name="external use",
            node="",
            holdings=(Holding(pool.name, EVERYWHERE, pool.spec.external),),
            state="bound",
            since=now,
        )
        ledger.adopt(claim)
