"""`berth release`: which claims a person means, and which of them may be freed: those whose pods are gone.
A person's word goes over `onLostNode: Hold`, not over the API server's: a pod that lives keeps its units."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from berth.api.units import normal
from berth.controller.retention import until_deleted
from berth.errors import BadInputError, RefusedError
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.view import View


class Release(NamedTuple):
    """A claim to free, but for its units of the pools in `keep`."""

    claim: Claim
    keep: frozenset[str] = frozenset()

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """What is freed."""
        return tuple(each for each in self.claim.holdings if each.pool not in self.keep)


def of_pod(uid: str, view: View) -> list[Release]:
    found = view.claims_of(uid)
    if not found:
        raise BadInputError(f"no pod with UID {uid} holds units (see berth claims -o json)")
    return [Release(claim) for claim in found]


def of_node(node: str, view: View) -> list[Release]:
    """Those of all pods that were on the node."""
    return [Release(claim) for claim in view.claims() if claim.node == node and not claim.is_external]


def of_unit(pool: str, unit: str, view: View) -> list[Release]:
    """That of the pod which holds the unit. What it holds of other pools it keeps."""
    unit = normal(unit)
    for claim in view.claims():
        held = {name for each in claim.holdings if each.pool == pool for name in each.units}
        if unit not in held:
            continue
        if held != {unit}:
            others = ", ".join(sorted(held - {unit}))
            raise BadInputError(
                f"pod {claim.label} holds {others} of {pool} as well: free all of it, by its UID {claim.uid}"
            )
        return [Release(claim, frozenset(each.pool for each in claim.holdings) - {pool})]
    raise BadInputError(f"nobody holds unit {unit} of {pool} (see berth claims --units)")


def judged(wanted: Release, cluster: Cluster, view: View) -> Release:
    """The same, less what the pod may still have by `releaseOn`. Raises RefusedError for a pod that lives."""
    claim = wanted.claim
    if claim.is_external:
        raise BadInputError(f"that is use outside the cluster: say berth external {claim.holdings[0].pool} N")
    pod = cluster.pod(claim.namespace, claim.name)
    if pod is None or pod.metadata.uid != claim.uid:
        return wanted
    if not pod.finished:
        raise RefusedError(f"pod {claim.label} lives, says the API server: it keeps its units")
    keep = wanted.keep | until_deleted([claim], view.pools)
    left = Release(claim, keep)
    if not left.holdings:
        raise RefusedError(f"pod {claim.label} has finished, and its units are free when it is deleted")
    return left


def free(ledger: Ledger, wanted: Iterable[Release]) -> list[Holding]:
    """Free them; what was freed."""
    freed: list[Holding] = []
    for each in wanted:
        claim = each.claim
        as_before: Literal["bound", "lost"] = "lost" if claim.state == "lost" else "bound"
        freed += ledger.release(claim.uid, claim.label, claim.holdings, each.keep, as_before)
    return freed
