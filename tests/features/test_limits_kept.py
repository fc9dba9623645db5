"""Limits by namespace, and units reserved for the important, where pods leave units that rest or are kept for
a next pod: what they keep from others counts as what they hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.http.extender_v1 import BindingCall
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

KEPT = {"sticky": {"by": "Pod", "forSeconds": 600}}
POOLS: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 10}, "limits": {"team-a": 2}, **KEPT},
    "ip": {"capacity": {"perDomain": 4}, "limits": {"team-a": 2}, **KEPT},
    "line": {"capacity": {"perDomain": 4}, "limits": {"team-a": 2}, "reuseAfterSeconds": 600},
    "dev": {
        "units": {"n1": ["a1", "a2", "a3"], "n2": ["b1", "b2", "b3"]},
        "limits": {"team-a": 2},
        "sticky": {"by": "Owner", "forSeconds": 600},
    },
    "gpu": {"capacity": {"perDomain": 4}, "reserved": {"priorityAtLeast": 1000, "units": 2}, **KEPT},
    "host": {
        "scope": "Cluster",
        "units": {"*": ["10.0.0.1-10.0.1.200"]},
        "reserved": {"priorityAtLeast": 1000, "units": 300},
        "sticky": {"by": "Owner", "forSeconds": 600},
    },
    "many": {"scope": "Cluster", "capacity": {"perDomain": 1000}, "limits": {"team-a": 300}, **KEPT},
}
LEFT = " (what its pods left counts while it rests or is kept)"


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def full(pool: str, asked: int = 1, free: int = 0, limit: int = 2) -> str:
    return f"{pool}: {free} of the {limit} that namespace team-a may hold are free, {asked} asked{LEFT}"


def of_team(stage: PoolsStage, name: str = "", on: str = "n1", **asked: Any) -> BindingCall:
    return stage.bound_pod(name, on=on, namespace="team-a", **asked)


def refused(stage: PoolsStage, text: str, on: str = "n1", **asked: Any) -> None:
    """By filter and by bind, in the same words."""
    pod = stage.pod(namespace="team-a", **asked)
    assert (stage.why(pod, on), stage.bind(pod, on)) == ({on: text}, text)


def test_a_namespace_can_t_keep_all_units_by_making_pods_and_deleting_them(stage: PoolsStage) -> None:
    """It made ten pods one after the other, and each left a unit that was kept for its name."""
    for _ in range(2):
        stage.gone(of_team(stage, seat=1))
    for _ in range(8):
        refused(stage, full("seat"), seat=1)
    for _ in range(8):
        stage.bound_pod(seat=1)
    stage.check_well()
    stage.time.now += 600
    of_team(stage, seat=2)
    stage.check_well()


def test_what_rests_counts_as_well(stage: PoolsStage) -> None:
    for _ in range(2):
        stage.gone(of_team(stage, line=1))
    refused(stage, full("line"), line=1)
    refused(stage, full("line"), on="n2", line=1)
    stage.bound_pod(line=2)
    stage.time.now += 600
    of_team(stage, line=2)
    stage.check_well()


def test_whom_the_units_are_kept_for_has_them_again_at_once_though_the_limit_is_reached(
    stage: PoolsStage,
) -> None:
    """Both pods of a StatefulSet go, and come again at the same time."""
    for call in [of_team(stage, f"web-{number}", seat=1, ip=1) for number in range(2)]:
        stage.gone(call)
    first, second = [stage.pod(f"web-{number}", namespace="team-a", seat=1, ip=1) for number in range(2)]
    assert (stage.why(first, "n1"), stage.why(second, "n1")) == ({}, {})
    meanwhile: list[str] = []

    def step() -> None:
        if not meanwhile and stage.states().get("web-0") == "reserved":
            meanwhile.append(stage.bind(second, "n1"))

    assert (stage.bind(first, "n1", step=step), meanwhile) == ("", [""])
    refused(stage, full("seat"), seat=1)
    stage.check_well()


def test_a_pod_that_goes_elsewhere_takes_more_of_the_limit(stage: PoolsStage) -> None:
    """One pod, deleted and made again on each node in turn, left a kept unit behind on each."""
    stage.add_node("n3")
    stage.inventory_of_pool()
    for node in ("n1", "n2"):
        stage.gone(of_team(stage, "web-0", on=node, ip=1, dev=1, owner="web"))
    again = stage.pod("web-0", namespace="team-a", ip=1)
    assert stage.why(again, "n3") == {"n3": full("ip")}
    assert stage.bind(again, "n3") == full("ip")
    assert stage.passes(again, "n2", "n3") == {"n2"}
    assert stage.bind(again, "n2") == ""
    refused(stage, full("ip"), on="n3", ip=1)
    stage.gone(again)
    other = stage.pod("web-1", namespace="team-a", dev=1, owner="web")
    assert stage.passes(other, "n1") == {"n1"}
    assert stage.passes(other, "n2") == {"n2"}
    assert (stage.bind(other, "n1"), stage.of(other, "dev")[2]) == ("", ("a1",))
    two = stage.pod("web-2", namespace="team-a", dev=2, owner="web")
    assert stage.why(two, "n1") == {"n1": full("dev", 2)}
    stage.check_well()


def test_what_a_pod_that_is_gone_unseen_left_counts_too(stage: PoolsStage) -> None:
    for number in range(2):
        call = of_team(stage, f"p{number}", seat=1)
        stage.cluster.delete(f"/api/v1/namespaces/team-a/pods/{call.name}")
    stage.reconcile()
    refused(stage, full("seat"), seat=1)
    stage.reconcile()
    refused(stage, full("seat"), seat=1)


def test_a_failed_bind_gives_nothing_of_what_is_kept_away(stage: PoolsStage) -> None:
    for number in range(2):
        stage.gone(of_team(stage, f"web-{number}", seat=1))
    fails = stage.pod("web-0", namespace="team-a", seat=1)

    def step() -> None:
        if stage.states().get("web-0") == "reserved":
            refused(stage, full("seat"), seat=1)
            if "web-0" in stage.pods():
                stage.cluster.delete("/api/v1/namespaces/team-a/pods/web-0")

    assert stage.bind(fails, "n1", step=step) != ""
    refused(stage, full("seat"), seat=1)
    assert stage.bind(stage.pod("web-0", namespace="team-a", seat=1), "n1") == ""


def test_a_limit_in_stripes_counts_what_is_kept_as_well(stage: PoolsStage) -> None:
    for number in range(3):
        stage.gone(of_team(stage, f"big-{number}", many=100))
    refused(stage, full("many", limit=300), many=1)
    again = of_team(stage, "big-1", many=100)
    refused(stage, full("many", limit=300), many=1)
    stage.check_well()
    stage.gone(again)
    stage.time.now += 600
    of_team(stage, many=300)
    stage.check_well()


def test_a_lost_ledger_forgets_what_is_kept_and_limits_count_what_pods_hold(stage: PoolsStage) -> None:
    stage.gone(of_team(stage, seat=1))
    of_team(stage, seat=1)
    stage.check_survives_a_loss()
    of_team(stage, seat=1)
    refused(stage, full("seat"), seat=1)


def test_who_waits_for_the_limit_is_woken_when_what_was_kept_is_free(stage: PoolsStage) -> None:
    for _ in range(2):
        stage.gone(of_team(stage, seat=1))
    waiter = stage.pod(namespace="team-a", seat=1)
    stage.reconcile()
    assert stage.woken() == set()
    stage.time.now += 600
    stage.reconcile()
    assert stage.woken() == {waiter.name}


def unreserved(stage: PoolsStage, name: str, of: int, **asked: Any) -> None:
    """A pod of no priority finds no unit free that is not reserved."""
    ((pool, count),) = asked.items()
    text = f"{pool}: 0 of {of} free that are not reserved for a higher priority, {count} asked"
    pod = stage.pod(name, **asked)
    assert (stage.why(pod, "n1"), stage.bind(pod)) == ({"n1": text}, text)


def test_pods_of_no_priority_can_t_keep_what_is_reserved_for_the_important(stage: PoolsStage) -> None:
    """They made four, one after the other; each kept a unit, and the important found none."""
    for number in range(2):
        stage.gone(stage.bound_pod(f"web-{number}", gpu=1))
    unreserved(stage, "late", 2, gpu=1)
    stage.bound_pod("important", gpu=2, priority=1000)
    stage.check_well()
    again = [stage.pod(f"web-{number}", gpu=1) for number in range(2)]
    assert [stage.why(call, "n1") for call in again] == [{}, {}]
    assert [stage.bind(call) for call in again] == ["", ""]
    stage.check_well()
    stage.gone(again[0])
    stage.time.now += 600
    stage.bound_pod(gpu=1)
    stage.check_well()


def test_what_is_reserved_of_many_units_with_names_is_kept_by_nobody_else(stage: PoolsStage) -> None:
    """In stripes, and for an owner's pods."""
    for call in [stage.bound_pod(f"web-{number}", host=78, owner="web") for number in range(2)]:
        stage.gone(call)
    unreserved(stage, "late", 156, host=1)
    stage.bound_pod(host=200, priority=1000)
    stage.check_well()
    again = stage.pod("web-7", host=78, owner="web")
    assert (stage.why(again, "n1"), stage.bind(again)) == ({}, "")
    unreserved(stage, "later", 156, host=1)
    rest = stage.pod("web-8", host=79, owner="web")
    text = "host: 78 of 156 free that are not reserved for a higher priority, 79 asked"
    assert (stage.why(rest, "n1"), stage.bind(rest)) == ({"n1": text}, text)
    stage.check_well()
    stage.check_survives_a_loss()
