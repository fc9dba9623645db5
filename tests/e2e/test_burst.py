"""A thousand pods at once on the real kube-scheduler, over each store: exactly what fits is bound.

It reports how long that took and how many binds were refused on the way, and asserts neither.
"""

import time

import pytest

from tests.e2e.bursts import (
    PATIENCE,
    attempts_failed,
    in_the_end,
    names,
    refusal_of,
    tell,
    unbound,
    wait_all_that_fits,
)
from tests.e2e.conftest import Systems
from tests.e2e.harness import pool
from tests.support.builders.places import Place
from tests.support.cluster import wait

NODES, UNITS, PODS = 100, 10, 1050
REASON = f"underlay-ip: 0 of {UNITS} free, 1 asked"


@pytest.mark.long
def test_of_1050_pods_at_once_exactly_1000_are_bound_and_50_wait_with_a_reason(
    system_of: Systems, place: Place
) -> None:
    system = system_of(NODES, pools=[pool(units=UNITS)], store=place.url)
    with system.cluster.watch_pods() as seen:
        began = time.monotonic()
        system.cluster.create_pods(*names(PODS))
        created = time.monotonic() - began
        wait_all_that_fits(system, seen, NODES * UNITS)
        took = max(seen.bound_at.values()) - began

        def without_reason() -> list[str]:
            return [refusal_of(pod) for pod in unbound(system) if REASON not in refusal_of(pod)]

        wait(
            lambda: not without_reason(), PATIENCE, f"a reason of each waiter: {without_reason()}", every=0.5
        )
        refused, others = attempts_failed(system.plane, REASON)
        in_the_end(system, seen, NODES, UNITS)
    assert len(seen.bound_at) == NODES * UNITS
    assert len(unbound(system)) == PODS - NODES * UNITS
    tell(
        f"{place.name}: {PODS} pods created in {created:.1f} s, {NODES * UNITS} bound {took:.1f} s after the "
        f"first was created; {refused} binds refused, {others} attempts failed for other reasons",
    )
