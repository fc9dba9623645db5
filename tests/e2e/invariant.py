"""The ledger beside the pods: where they differ, and where more is given than there is.

It looks at what it is handed, and asks nobody; who holds what at which moment is the pod watch's to say.
"""

from collections import Counter
from collections.abc import Iterable

from berth.ledger.view import View
from tests.support.cluster import Object, is_finished


def difference(view: View, listed: Iterable[Object]) -> Object:
    """(claim, pod) by UID, each as (node, state, units by pool) or None, of those that are not the same. The
    seats of gangs are held for pods that wait, and are left out as long as these are there."""
    listed = list(listed)
    there = {pod["metadata"]["uid"] for pod in listed if not is_finished(pod)}
    claims = {
        # Of a Pool that was taken away a claim may say what it likes.
        # One Pool's units may stand in two domains: a unit stays its pod's when it moves to another list.
        # What counts for a limit or a reservation is the same units once more.
        claim.uid: (claim.node, claim.state, _summed((each.pool, each.count) for each in held))
        for claim in view.claims()
        if claim.namespace  # use outside the cluster has no pod
        and not (claim.state == "reserved" and claim.seat_until and claim.uid in there)
        and (held := [each for each in claim.holdings if each.pool in view.pools and not each.is_quota])
    }
    pods = {
        pod["metadata"]["uid"]: (pod["spec"]["nodeName"], "bound", units)
        for pod in listed
        if pod["spec"].get("nodeName") and not is_finished(pod) and (units := _asked(pod, view))
    }
    differ = {uid: (claims.get(uid), pods.get(uid)) for uid in claims.keys() | pods.keys()}
    return {uid: pair for uid, pair in differ.items() if pair[0] != pair[1]}


def _asked(pod: Object, view: View) -> dict[str, int]:
    """For pods of plain containers and an overhead, as the tests make them; Berth's own rule is not asked."""
    limits = [container.get("resources", {}).get("limits", {}) for container in pod["spec"]["containers"]]
    return _summed(
        (view.resources[resource].name, int(amount))
        for amounts in (*limits, pod["spec"].get("overhead", {}))
        for resource, amount in amounts.items()
        if resource in view.resources and int(amount)
    )


def _summed(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, amount in amounts:
        total[name] += amount
    return dict(total)


def more_than_there_is(view: View) -> list[tuple[str, str, int, int | None]]:
    """(pool, domain, units held, capacity) of the domains that are over-committed."""
    return [
        (pool, name, domain.used(pool, name), domain.capacity)
        for pool, domains in view.domains.items()
        for name, domain in domains.items()
        if pool in view.pools and domain.used(pool, name) > (domain.capacity or 0)
    ]
