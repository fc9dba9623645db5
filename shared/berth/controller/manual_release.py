"""`berth release`: which claims a person means, and which of them may be freed: those whose pods are gone.
A person may override `onLostNode: Hold`, but not the API server: a pod that lives keeps its units."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from berth.api.units import normal
from berth.controller.notices import BY_HAND, SILENT, Subject, Teller
from berth.controller.retention import until_deleted
from berth.errors import BadInputError, RefusedError
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.view import View


class Release(NamedTuple):
    """A claim to free, except its units of the pools in `keep`."""

    claim: Claim
    keep: frozenset[str] = frozenset()

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """Return what is freed."""
        return tuple(holding for holding in self.claim.holdings if holding.pool not in self.keep)


def of_pod(uid: str, view: View) -> list[Release]:
    """Return the pod's claims to free."""
    claims = view.claims_of(uid)
    if not claims:
        raise BadInputError(f"no pod with UID {uid} holds units (see berth claims -o json)")
    return [Release(claim) for claim in claims]


def of_node(node: str, view: View) -> list[Release]:
    """Return the claims to free of all pods that were on the node."""
    return [Release(claim) for claim in view.claims() if claim.node == node and not claim.is_external]


def of_unit(pool: str, unit: str, view: View) -> list[Release]:
    """Return the claim to free of the pod that holds the unit. What it holds of other pools it keeps."""
    unit = normal(unit)
    for claim in view.claims():
        held = {name for holding in claim.holdings if holding.pool == pool for name in holding.units}
        if unit not in held:
            continue
        if held != {unit}:
            others = ", ".join(sorted(held - {unit}))
            raise BadInputError(
                f"pod {claim.label} holds {others} of {pool} as well: free all of it, by its UID {claim.uid}"
            )
        return [Release(claim, frozenset(holding.pool for holding in claim.holdings) - {pool})]
    raise BadInputError(f"nobody holds unit {unit} of {pool} (see berth claims --units)")


def permitted(release: Release, cluster: Cluster, view: View) -> Release:
    """Return the release without what `releaseOn` lets the pod hold still. Raises RefusedError for a pod that
    lives."""
    claim = release.claim
    if claim.is_external:
        raise BadInputError(f"that is use outside the cluster: say berth external {claim.holdings[0].pool} N")
    pod = cluster.pod(claim.namespace, claim.name, uid=claim.uid)
    if pod is None:
        return release
    if not pod.finished:
        raise RefusedError(f"pod {claim.label} lives, says the API server: it keeps its units")
    release = Release(claim, release.keep | until_deleted([claim], view.pools))
    if not release.holdings:
        raise RefusedError(f"pod {claim.label} has finished, and its units are free when it is deleted")
    return release


def free(ledger: Ledger, releases: Iterable[Release], teller: Teller = SILENT) -> list[Holding]:
    """Free these claims, and return what was freed."""
    freed: list[Holding] = []
    for claim, keep in releases:
        as_before: Literal["bound", "lost"] = "lost" if claim.state == "lost" else "bound"
        mine = ledger.release(claim.uid, claim.label, claim.holdings, keep, as_before)
        teller.released(Subject.of_claim(claim), mine, claim.node, BY_HAND)
        freed += mine
    return freed
