"""Pod events by Knative's own ApiServerSource, through its Broker and straight to the function.

Room is used at once, and what is lost on the way the tick mends. The figures are in docs/reliability.md.
"""

import statistics
import time
from functools import partial

import pytest

from tests.knative.overlay import Overlay
from tests.support.cluster import wait
from tests.support.neighbours import MEASURED

OVERLAYS = ("per-verb", "direct")
UNITS = 500
ROUNDS = 20
AT_ONCE = 1.0  # promise 6
SINK_DOWN_SECONDS = 20.0
PODS = "/api/v1/namespaces/default/pods"
POOL = "/apis/berth.dev/v1alpha1/pools/underlay-ip"


def tell(overlay: Overlay, what: str, text: str) -> None:
    print(f"{MEASURED}{overlay.name}: {what}: {text}")


def fill(overlay: Overlay, pods: int) -> list[str]:
    """So many pods, bound; the events of all of them are handled."""
    names = [f"pod-{number:03}" for number in range(pods)]
    overlay.cluster.create_pods(*names)
    overlay.cluster.wait_bound(*names, seconds=180)
    overlay.wait_quiet()
    assert overlay.free() == UNITS - pods
    return names


def delete_all(overlay: Overlay) -> None:
    overlay.cluster.call("DELETE", f"{PODS}?gracePeriodSeconds=0")


def test_each_event_is_handled_once_and_answered_with_nothing(overlay: Overlay) -> None:
    since = overlay.names.count()
    overlay.cluster.create_pod("pod")
    overlay.cluster.wait_bound("pod")
    overlay.cluster.delete_pod("pod")
    overlay.wait_free(UNITS, 30)
    overlay.wait_quiet()
    calls = [each for each in overlay.calls("release", since) if each.subject.endswith("/pod")]
    assert [each.change for each in calls].count("delete") == 1
    assert {each.status for each in calls} == {204}
    events = {each.event for each in calls}
    assert len(events) == len(calls)
    if overlay.through_broker:
        asked = [each.status for each in overlay.filter_calls(since) if each.event in events]
        # The filter answers 200 where the event is none of the Trigger's.
        assert [each for each in asked if each != 200] == [204] * len(events)


def test_a_waiter_is_bound_within_a_second_of_a_delete(overlay: Overlay) -> None:
    fill(overlay, UNITS)
    times = []
    with overlay.cluster.watch_pods() as seen:
        for number in range(ROUNDS):
            name = f"waiter-{number}"
            overlay.cluster.create_pod(name)
            wait(partial(overlay.is_refused, name), 30, f"{name} is refused")
            overlay.wait_quiet()
            began = time.monotonic()
            overlay.cluster.delete_pod(f"pod-{number:03}")
            wait(partial(seen.bound_at.get, name), 30, f"{name} is bound", every=0.005)
            times.append(seen.bound_at[name] - began)
    said = f"median {statistics.median(times):.2f} s, slowest {max(times):.2f} s"
    tell(overlay, f"a waiter after a delete, {ROUNDS} times", said)
    assert overlay.free() == 0
    assert max(times) < AT_ONCE, times


def test_500_pods_deleted_at_once_are_all_freed(overlay: Overlay) -> None:
    fill(overlay, UNITS)
    since = overlay.names.count()
    began = time.monotonic()
    delete_all(overlay)
    overlay.wait_free(UNITS, 180)
    took = time.monotonic() - began
    tell(overlay, f"{UNITS} pods deleted at once", f"all freed after {took:.1f} s")
    overlay.wait_quiet()
    assert {each.status for each in overlay.calls("release", since)} == {204}
    assert overlay.tick()["released"] == 0


@pytest.mark.nightly
def test_with_a_sink_down_for_20_seconds_every_unit_is_freed(overlay: Overlay) -> None:
    """Through the Broker without a tick, for it tries for longer; what the source drops, the tick frees."""
    names = fill(overlay, 60)
    overlay.stop_function("release")
    for name in names:
        overlay.cluster.delete_pod(name)
    overlay.stays_free(UNITS - 60, SINK_DOWN_SECONDS)
    overlay.start_functions("release")
    began = time.monotonic()
    overlay.wait_quiet()
    took, lost = time.monotonic() - began, UNITS - overlay.free()
    said = f"{60 - lost} freed within {took:.1f} s of its return, {lost} by the next tick"
    tell(overlay, f"60 deletes, release down for {SINK_DOWN_SECONDS:g} s", said)
    assert not (overlay.through_broker and lost)
    assert overlay.tick()["released"] == lost
    assert overlay.free() == UNITS


@pytest.mark.nightly
def test_with_an_adapter_killed_in_the_middle_of_deletes_the_tick_frees_the_rest(overlay: Overlay) -> None:
    fill(overlay, 200)
    since = overlay.names.count()
    delete_all(overlay)
    wait(lambda: len(overlay.calls("release", since)) > 20, 60, "some events are handled", every=0.01)
    overlay.restart_adapter("berth-pods")
    overlay.wait_quiet()
    lost = UNITS - overlay.free()
    assert overlay.tick()["released"] == lost
    assert overlay.free() == UNITS
    tell(
        overlay, "the adapter killed in 200 deletes", f"{200 - lost} freed by events, {lost} by the next tick"
    )


def restart(overlay: Overlay, function: str) -> None:
    """Kill the function between two events."""
    overlay.stop_function(function)
    overlay.start_functions(function)


def test_release_killed_between_events_misses_none_of_the_next(overlay: Overlay) -> None:
    fill(overlay, 20)
    restart(overlay, "release")
    delete_all(overlay)
    overlay.wait_free(UNITS, 60)


def test_inventory_killed_between_events_misses_none_of_the_next(overlay: Overlay) -> None:
    restart(overlay, "inventory")
    try:
        set_capacity(overlay, "node-1", 90)
        overlay.wait_free(UNITS - 10, 60)
    finally:
        set_capacity(overlay, "node-1", 100)
    overlay.wait_free(UNITS, 60)


def set_capacity(overlay: Overlay, node: str, units: int) -> None:
    """Of the Pool on this node."""
    overlay.cluster.patch(POOL, {"spec": {"capacity": {"domains": {node: units}}}})
