"""Leave units that have just come free to the pods that are woken for them, for a moment.
It takes nothing from bind: who is told of units there has them, whoever they were left to.

When a pod goes kube-scheduler tries all pods that wait, in an order of its own, while release frees the
units. Without this whoever is tried next gets them, and several are told of one unit (docs/decisions/0063).
"""

from collections.abc import Collection, Iterator, Mapping

from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.freed import moment
from berth.ledger.keys import parse_domain
from berth.ledger.view import View
from berth.scheduling.demand import terms_of

_RECENT_SECONDS = 3.0
_LATE_SECONDS = 1.0  # a pod may be woken for units that came free a little before the last ones


def left_to_others(
    pod: Pod, names: Collection[str], view: View, woken: float | None, now: float
) -> Mapping[str, str]:
    """Return the nodes of these that have too few units but for those that came free just now, where others
    wait for them, in a refusal's words.

    A pod that was `woken` just now (Unix seconds) may have them, and so may one for which room was made on
    its nominated node.
    """
    if (
        now - view.last_freed > _RECENT_SECONDS
        or pod.status.nominated_node_name
        or view.keys_of(pod.metadata.uid)
    ):
        return {}
    reasons: dict[str, str] = {}
    for pool, asked in terms_of(view).demand(pod).units.items():
        domains = dict(_lacking(pool, asked, view, woken, now))
        is_node = view.pools[pool].spec.scope == "Node"
        places = view.places.get(pool, {})
        for name in names if domains else ():
            text = domains.get(name if is_node else places.get(name, ""))
            if text is not None:
                reasons.setdefault(name, text)
    return reasons


def _lacking(pool: str, asked: int, view: View, woken: float | None, now: float) -> Iterator[tuple[str, str]]:
    """Yield the domains that would have too few units had none come free just now, in a refusal's words."""
    fresh: dict[str, int] = {}
    for name, freed in view.freed(pool, now).items():
        if woken is None or now - woken > moment(freed.waiting) + _LATE_SECONDS:
            whole = parse_domain(name).whole
            fresh[whole] = fresh.get(whole, 0) + freed.count
    for domain, count in fresh.items():
        if pool in view.free and domain in view.free[pool]:
            free, capacity = view.free[pool][domain]
            if free - count < asked:
                yield domain, refusals.lacking(pool, (max(0, free - count), capacity), asked)
