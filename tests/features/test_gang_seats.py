"""Seats of a gang whose Pools change while they wait: they stay whole, or are given back whole and told."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.testing.api_server import StandIn
from tests.features.test_gang_members import Members, seats
from tests.features.test_gangs import GANG_SECONDS, NODES, POOLS
from tests.support.builders.places import Place

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Members]:
    made: list[Members] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Members(api, tmp_path, place, {**POOLS, "seat": seats(4)}, NODES))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


CHANGES: dict[str, dict[str, Any]] = {
    "renamed": {"seat": None, "chair": seats(4, resource="berth.dev/seat")},
    "renamed and lowered": {"seat": None, "chair": seats(1, resource="berth.dev/seat")},
    "suspended": {"seat": seats(4, suspended=True)},
    "one domain suspended": {"seat": seats(4, suspended=["*"])},
    "lowered": {"seat": seats(1)},
    "limited": {"seat": seats(4, limits={"default": 1})},
    "reserved": {"seat": seats(4, reserved={"priorityAtLeast": 10, "units": 3})},
    "striped": {"seat": seats(400)},
    "named": {"seat": {"scope": "Cluster", "units": {"*": ["a", "b", "c", "d"]}}},
}


@pytest.mark.parametrize("reconciled", [True, False])
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.long
def test_seats_stay_whole_whatever_becomes_of_their_pool(stage: Members, how: str, reconciled: bool) -> None:
    pods = stage.members("train")
    assert stage.bind(pods[0]) == ""
    stage.pools(**CHANGES[how])
    if reconciled:
        stage.reconcile()
    rival = stage.pod("rival", seat=1)
    if how != "striped":
        assert stage.why(rival, "n1")
        assert stage.bind(rival) != "", "they are nobody else's"
    assert stage.whys(pods[1:]) == [{}] * 3
    assert stage.bind_all(pods[1:]) == [""] * 3
    assert {pod.name: state for pod in pods for state in [stage.states()[pod.name]]} == dict.fromkeys(
        (pod.name for pod in pods), "bound"
    )


def test_seats_on_nodes_stay_where_they_are_though_these_are_suspended(stage: Members) -> None:
    pods = stage.members("train", gpu=1)
    assert stage.bind(pods[0], "n1") == ""
    stage.pools(gpu={**POOLS["gpu"], "suspended": ["n1", "n2"]})
    for pod in pods[1:]:
        node = stage.seats()[pod.name]
        assert stage.why(pod, "n1", "n2").keys() == {"n1", "n2"} - {node}
        assert stage.bind(pod, node) == ""


def test_seats_of_a_pool_that_is_gone_are_given_back_whole_and_told(stage: Members) -> None:
    pods = stage.members("train")
    assert stage.bind(pods[0]) == ""
    stage.pools(seat=None)
    stage.events()
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert not stage.seats()
    assert {pod for pod, reason, _ in stage.events() if reason == "FailedClaim"} >= {p.name for p in pods[1:]}


def test_units_that_a_pod_of_the_gang_left_are_kept_while_another_s_seat_waits(stage: Members) -> None:
    """The seat has units of its own, and its pod takes none of those that are kept once it is bound."""
    stage.pools(seat=seats(4, sticky={"by": "Owner", "forSeconds": 60}))
    pods = stage.members("train", 3, 3)
    assert stage.bind_all(pods[:2]) == ["", ""]
    stage.time.now += 1
    stage.gone(pods[1])
    assert stage.bind(stage.pod("rival-0", seat=1)) == ""
    rival = stage.pod("rival-1", seat=1)
    full = "seat: 0 of 4 free, 1 asked"
    assert (stage.why(rival, "n1"), stage.bind(rival)) == ({"n1": full}, full)
    stage.time.now += 1
    assert stage.bind(pods[2]) == ""
    assert stage.bind(rival) == full
    assert stage.bind(stage.member("train-again", 3)) == ""
    stage.check_well()
