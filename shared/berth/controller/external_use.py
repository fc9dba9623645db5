"""Units in use outside the cluster: a holder without a pod, as large as the Pool's `external` says.
It asks for no room: what is used there is used, and more than there is shows as over-committed."""

from collections.abc import Mapping

from berth.api.pool import EVERYWHERE, Pool
from berth.errors import BadInputError
from berth.ledger.ledger import Ledger
from berth.ledger.model import EXTERNAL, Claim, Holding


def only_cluster(units: int, pool: Pool) -> dict[str, int]:
    """The field of the Pool's spec. Raises BadInputError for a pool that is not one for the whole cluster."""
    if pool.spec.scope != "Cluster":
        raise BadInputError(
            f"Pool {pool.name} has scope {pool.spec.scope}: external use goes with scope Cluster only"
        )
    return {"external": units}


def take_external(ledger: Ledger, pools: Mapping[str, Pool], now: float) -> None:
    """Make the claims for external use what these Pools say."""
    before = {claim.uid for claim in ledger.view().claims() if claim.is_external}
    wanted = {f"{EXTERNAL}{pool.name}": pool for pool in pools.values() if pool.spec.external}
    for uid in before - wanted.keys():
        ledger.release(uid)
    for uid, pool in wanted.items():
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
