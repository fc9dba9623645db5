"""Seats of a gang whose Pools change while they wait: they stay whole, or are given back whole and told."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.controller.settle import BIND_SECONDS
from berth.http.extender_v1 import BindingCall
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger
from berth.testing.api_server import StandIn
from tests.features.test_gang_members import Members, seats
from tests.features.test_gangs import GANG_SECONDS, NODES, POOLS
from tests.support.builders.places import Place
from tests.support.builders.stage import KilledError

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


FULL = "seat: 0 of 4 free, 1 asked"
KEPT = seats(4, sticky={"by": "Owner", "forSeconds": 60})


def one_kept_and_one_seat(stage: Members) -> tuple[BindingCall, BindingCall]:
    """Of three pods of a gang one runs, one left a unit that is kept for them, and one has a seat; another
    pod has the fourth unit, and a rival waits. Return the pod with the seat, and the rival."""
    pods = stage.members("train", 3, 3)
    assert stage.bind_all(pods[:2]) == ["", ""]
    stage.time.now += 1
    stage.gone(pods[1])
    assert stage.bind(stage.pod("other", seat=1)) == ""
    rival = stage.pod("rival", seat=1)
    assert (stage.why(rival, "n1"), stage.bind(rival)) == ({"n1": FULL}, FULL)
    stage.time.now += 1
    return pods[2], rival


def test_units_that_a_pod_of_the_gang_left_are_kept_while_another_s_seat_waits(stage: Members) -> None:
    """The seat has units of its own, and its pod takes none of those that are kept once it is bound."""
    stage.pools(seat=KEPT)
    seated, rival = one_kept_and_one_seat(stage)
    assert stage.bind(seated) == ""
    assert stage.bind(rival) == FULL
    assert stage.bind(stage.member("train-again", 3)) == ""
    stage.check_well()


def test_a_bind_that_dies_before_it_confirms_takes_no_unit_that_is_kept(stage: Members) -> None:
    stage.pools(seat=KEPT)
    seated, rival = one_kept_and_one_seat(stage)
    with mock.patch.object(Ledger, "confirm", side_effect=KilledError), pytest.raises(KilledError):
        stage.bind(seated)
    stage.time.now += BIND_SECONDS + 1
    stage.reconcile()
    assert stage.states()[seated.name] == "bound"
    assert stage.bind(rival) == FULL
    assert stage.bind(stage.member("train-again", 3)) == ""


def test_a_second_bind_of_a_seat_s_pod_takes_no_unit_that_is_kept(stage: Members) -> None:
    """The first one took the seat, and died before its Binding."""
    stage.pools(seat=KEPT)
    pods = stage.members("train", 3, 3)
    assert stage.bind_all(pods[:2]) == ["", ""]
    with mock.patch.object(Cluster, "bind", side_effect=KilledError), pytest.raises(KilledError):
        stage.bind(pods[2])
    stage.time.now += 1
    stage.gone(pods[1])
    assert stage.bind(stage.pod("other", seat=1)) == ""
    stage.time.now += 1
    assert stage.bind(pods[2]) == ""
    assert stage.bind(stage.pod("rival", seat=1)) == FULL


def test_a_seat_that_moves_to_a_kept_unit_takes_it(stage: Members) -> None:
    stage.pools(gpu={**POOLS["gpu"], "sticky": {"by": "Owner", "forSeconds": 3600}})
    old = stage.pod("old", gpu=1, owner="run", owner_kind="Job")
    other = stage.pod("other", gpu=1)
    assert [stage.bind(old, "n2"), stage.bind(other, "n2")] == ["", ""]
    pods = stage.members("train", 2, 2, gpu=1)
    assert stage.bind(pods[0], "n1") == ""
    assert stage.seats() == {"train-1": "n1"}
    stage.time.now += 1
    stage.gone(old)
    stage.time.now += 1
    assert stage.bind(pods[1], "n2") == ""
    stage.gone(other)
    assert stage.why(stage.pod("rival", gpu=1), "n2") == {}
