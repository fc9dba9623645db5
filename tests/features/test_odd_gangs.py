"""Gangs in odd ways: wrong clocks, Pools that change between steps, pods that change their gang.
Whatever comes, no pod has two claims, nobody waits for ever, and nothing is held in vain for long."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from berth.handlers.preempt import Preempt
from berth.http.extender_v1 import BindingCall, PreemptionCall, Victims
from berth.ledger.gang_note import LONGEST_REST
from berth.testing.api_server import StandIn
from tests.features.test_gangs import GANG_SECONDS, NODES, POOLS, Gangs
from tests.support.builders.places import Place

pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Gangs]:
    made: list[Gangs] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Gangs(api, tmp_path, place, POOLS, NODES))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def claims_of(stage: Gangs, pod: BindingCall) -> int:
    return len(stage.ledger().view().claims_of(pod.uid))


def test_nobody_is_evicted_for_a_pod_of_a_gang(stage: Gangs) -> None:
    victims = [stage.bound_pod(f"victim-{number}", on="n1", gpu=1, priority=-1) for number in range(2)]
    pods = stage.gang("train", 3, gpu=2)
    call = PreemptionCall(stage.get(pods[0].name), {"n1": Victims(tuple(pod.uid for pod in victims))})
    assert Preempt(stage.ledger(), stage.time).run(call) == {}


def test_a_rest_that_a_wrong_clock_began_ends(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    stage.time.now += 10_000_000
    stage.reconcile()
    stage.time.now -= 10_000_000 - GANG_SECONDS
    assert stage.states() == {"train-0": "bound"}
    stage.time.now += LONGEST_REST + 1
    assert stage.whys(pods[1:]) == [{}, {}]
    assert stage.bind(pods[1]) == ""


def test_the_line_holds_all_that_the_rest_of_a_gang_asks_for_and_nothing_while_it_rests(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert not stage.ledger().view().line_holds
    small = stage.bound_pod("small", seat=1)
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert [hold.count for hold in stage.ledger().view().line_holds.values()] == [2]
    held = "seat: 0 of 4 free, 1 asked; 2 more are held for default/train-1, first in line"
    assert stage.bind(stage.pod("new", seat=1)) == held
    assert [stage.bind(pod) for pod in pods[1:]] == ["", ""]
    stage.gone(small)
    stage.check_well()
