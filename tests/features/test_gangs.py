"""A gang's pods get their units together or not at all: the first bind reserves for all, on every store.
What its pods do not take in time is given back whole."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.controller.settle import BIND_SECONDS
from berth.http.extender_v1 import BindingCall
from berth.scheduling.explanation import explain
from berth.testing.api_server import StandIn
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage
from tests.support.builders.stage import KilledError
from tests.support.builders.steps import each_step

POOLS: dict[str, Any] = {
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 4}},
    "gpu": {"capacity": {"perDomain": 2}},
    "rack": {"scope": "Topology", "topologyKey": "rack", "capacity": {"perDomain": 2}},
    "many": {"scope": "Cluster", "capacity": {"perDomain": 300}},
    "desk": {"scope": "Cluster", "units": {"*": ["desk-1", "desk-2", "desk-3", "desk-4"]}},
}
NODES: dict[str, Any] = {"n1": {"rack": "r1"}, "n2": {"rack": "r2"}}
GANG_SECONDS = 120

CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


class Gangs(PoolsStage):
    """With gangs of pods."""

    def gang(self, name: str, size: int, there: int = -1, **how: Any) -> list[BindingCall]:
        """So many pods of a gang (-1: all)."""
        noted = {GANG: name, GANG_SIZE: str(size)}
        count = size if there < 0 else there
        return [self.pod(f"{name}-{number}", annotations=noted, **how) for number in range(count)]

    def seats(self) -> dict[str, str]:
        """The nodes of seats, by pod."""
        view = self.ledger().view()
        return {claim.name: claim.node for claim in view.claims() if claim.is_seat}

    def whys(self, pods: list[BindingCall]) -> list[dict[str, str]]:
        return [self.why(pod, "n1", "n2") for pod in pods]

    def bind_where_it_passes(self, pod: BindingCall) -> str:
        """Bind as kube-scheduler would: where filter lets the pod."""
        nodes = sorted(self.passes(pod, "n1", "n2"))
        return self.bind(pod, nodes[0]) if nodes else "no node"


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Gangs]:
    made: list[Gangs] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Gangs(api, tmp_path, place, POOLS, NODES))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def test_a_gang_that_fits_gets_all_its_seats_with_its_first_bind(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.whys(pods) == [{}, {}, {}]
    assert stage.bind(pods[0]) == ""
    assert stage.states() == {"train-0": "bound", "train-1": "reserved", "train-2": "reserved"}
    assert stage.seats() == {"train-1": "n1", "train-2": "n1"}
    assert stage.woken() == {"train-1", "train-2"}
    assert stage.free("seat", "*") == (1, 4)
    other = stage.pod("other", seat=2)
    assert stage.bind(other) == "seat: 1 of 4 free, 2 asked", "seats are nobody else's"
    stage.check_well()
    assert stage.whys(pods[1:]) == [{}, {}]
    assert stage.bind(pods[1], "n2") == "", "kube-scheduler may choose another node"
    assert stage.bind(pods[2]) == ""
    assert stage.states() == dict.fromkeys(("train-0", "train-1", "train-2"), "bound")
    stage.check_survives_a_loss()
    for pod in pods:
        stage.gone(pod)
    assert stage.free("seat", "*") == (4, 4)


def test_a_gang_that_does_not_fit_gets_nothing_and_all_its_pods_say_why(stage: Gangs) -> None:
    first = stage.bound_pod("first", seat=1)
    pods = stage.gang("train", 4, seat=1)
    why = "seat: 3 free, 4 asked by 4 pods of gang train together"
    assert (
        stage.bind(pods[0])
        == "gang train: no room for 4 pods of it at once (train-3: seat: 0 of 4 free, 1 asked)"
    )
    assert stage.whys(pods) == [{"n1": why, "n2": why}] * 4
    assert stage.states() == {"first": "bound"}
    told = explain(stage.get("train-2"), stage.ledger().view(), stage.cluster.nodes(), stage.time.now)
    assert told.summary == f"waits: {why}"
    stage.gone(first)
    assert stage.woken() == {pod.name for pod in pods}
    assert [stage.bind(pod) for pod in pods] == [""] * 4
    stage.check_well()


def test_of_two_gangs_one_is_served_whole_and_then_the_other(stage: Gangs) -> None:
    one, two = stage.gang("one", 3, seat=1), stage.gang("two", 3, seat=1)
    assert stage.bind(one[0]) == ""
    assert stage.bind(two[0]).startswith("gang two: no room for 3 pods of it at once")
    assert [stage.bind(pod) for pod in one[1:]] == ["", ""]
    for pod in one[:2]:
        stage.gone(pod)
        assert stage.whys(two[:1]) == [] or stage.states()
    stage.gone(one[2])
    assert [stage.bind(pod) for pod in two] == ["", "", ""]
    stage.check_well()


@CHEAP
def test_a_gang_waits_until_all_its_pods_are_there(stage: Gangs) -> None:
    pods = stage.gang("train", 3, there=2, seat=1)
    why = "gang train: 2 of its 3 pods are there"
    assert stage.bind(pods[0]) == why
    assert stage.whys(pods) == [{"n1": why, "n2": why}] * 2
    assert stage.states() == {}
    last = stage.pod("train-9", annotations={GANG: "train", GANG_SIZE: "3"}, seat=1)
    assert stage.whys([last]) == [{}]
    assert stage.bind(last) == ""
    assert stage.seats().keys() == {"train-0", "train-1"} == stage.woken()


@CHEAP
def test_what_a_gang_does_not_take_in_time_is_given_back_and_told(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert stage.bind(pods[0]) == ""
    stage.time.now += GANG_SECONDS - 1
    stage.reconcile()
    assert stage.seats().keys() == {"train-1", "train-2"}
    stage.events()
    stage.time.now += 1
    assert stage.reconcile().released == 2
    assert stage.states() == {"train-0": "bound"}
    why = "gang train: 2 of its pods were not bound in time, and their units are given back; 1 of it is bound"
    assert sorted(stage.events()) == [(f"train-{number}", "FailedClaim", why) for number in range(3)]
    check_rests(stage, pods)
    filling = stage.bound_pod("filling", seat=2)
    stage.time.now += GANG_SECONDS
    assert stage.bind(pods[1]).startswith("gang train: no room for 2 pods of it at once")
    stage.gone(filling)
    assert stage.bind(pods[1]) == ""
    assert stage.seats().keys() == {"train-2"}
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    assert stage.states() == {"train-0": "bound", "train-1": "bound"}
    stage.time.now += 2 * GANG_SECONDS - 1
    assert stage.bind(pods[2]) == "", "one that needs no other waits for nobody"


def check_rests(stage: Gangs, pods: list[BindingCall]) -> None:
    """For as long as it held units in vain it holds none."""
    rests = (
        "gang train: its pods have not taken what was reserved for them; it has to wait before the next try"
    )
    stage.time.now += GANG_SECONDS - 1
    assert stage.bind(pods[1]) == rests
    assert stage.why(pods[1], "n1", "n2") == {"n1": rests, "n2": rests}
    stage.time.now -= GANG_SECONDS - 1


def test_a_gang_has_its_turn_in_the_line_like_one_pod_that_asks_for_all(stage: Gangs) -> None:
    small = [stage.bound_pod(f"small-{number}", seat=1) for number in range(4)]
    pods = stage.gang("train", 4, seat=1)
    assert stage.bind(pods[0]).startswith("gang train: no room for 4 pods of it at once")
    stage.time.now += 60
    stage.reconcile()
    holds = stage.ledger().view().line_holds
    assert [(hold.label, hold.count, hold.gang) for hold in holds.values()] == [
        ("default/train-0", 4, "default/train")
    ]
    stage.check_well()
    stage.gone(small[0])
    new = stage.pod("new", seat=1)
    held = "seat: 0 of 4 free, 1 asked; 1 more is held for default/train-0, first in line"
    assert (stage.bind(new), stage.woken()) == (held, set())
    why = "seat: 1 free, 4 asked by 4 pods of gang train together"
    assert stage.whys(pods) == [{"n1": why, "n2": why}] * 4
    for pod in small[1:]:
        stage.gone(pod)
    assert stage.woken() == {pod.name for pod in pods}
    assert stage.bind(pods[2]) == "", "whichever of them comes first"
    assert not stage.ledger().view().line_holds
    assert [stage.bind(pod) for pod in (pods[0], pods[1], pods[3])] == [""] * 3
    stage.check_well()


@CHEAP
def test_a_gang_that_is_not_there_or_asks_for_nodes_has_no_turn(stage: Gangs) -> None:
    for number in range(3):
        stage.bound_pod(f"small-{number}", seat=1)
    for node in ("n1", "n2"):
        stage.bound_pod(f"on-{node}", on=node, gpu=1)
    stage.gang("absent", 3, there=2, seat=1)
    stage.gang("spread", 2, gpu=2)
    stage.time.now += 60
    stage.reconcile()
    assert not stage.ledger().view().line_holds


@CHEAP
def test_a_gang_of_several_pools_and_scopes_is_served_whole(stage: Gangs) -> None:
    """Two nodes have two gpu each, two racks two units each: four pods, two a node."""
    pods = stage.gang("mixed", 4, seat=1, gpu=1, rack=1)
    assert stage.bind(pods[0]) == ""
    assert stage.seats() == {"mixed-1": "n1", "mixed-2": "n2", "mixed-3": "n2"}
    assert stage.free("gpu", "n1") == stage.free("gpu", "n2") == (0, 2)
    assert [stage.bind_where_it_passes(pod) for pod in pods[1:]] == [""] * 3
    stage.check_well()
    for pod in pods:
        stage.gone(pod)
    stage.bound_pod("one", gpu=1)
    again = stage.gang("again", 4, seat=1, gpu=1, rack=1)
    assert (
        stage.bind(again[0])
        == "gang again: no room for 4 pods of it at once (again-3: rack: 0 of 2 free, 1 asked)"
    )
    assert stage.states() == {"one": "bound"}


@CHEAP
def test_pods_of_a_gang_may_ask_for_different_things(stage: Gangs) -> None:
    noted = {GANG: "mpi", GANG_SIZE: "4"}
    launcher = stage.pod("launcher", annotations=noted, seat=1)
    workers = [stage.pod(f"worker-{n}", annotations=noted, gpu=n) for n in (1, 2)]
    stage.pod("none", annotations=noted)  # it asks for nothing, and is there
    assert stage.bind(launcher) == ""
    assert stage.seats() == {"worker-1": "n1", "worker-2": "n2"} or stage.seats() == {
        "worker-1": "n2",
        "worker-2": "n1",
    }
    assert [stage.bind_where_it_passes(pod) for pod in workers] == ["", ""]
    stage.check_well()


@CHEAP
def test_a_pod_that_takes_the_place_of_another_needs_only_its_own(stage: Gangs) -> None:
    pods = stage.gang("train", 3, seat=1)
    assert [stage.bind(pod) for pod in pods] == ["", "", ""]
    stage.gone(pods[1])
    again = stage.pod("train-again", annotations={GANG: "train", GANG_SIZE: "3"}, seat=1)
    assert stage.bind(again) == ""
    assert stage.states().keys() == {"train-0", "train-2", "train-again"}
    stage.finished(pods[0])
    last = stage.pod("train-last", annotations={GANG: "train", GANG_SIZE: "3"}, seat=1)
    assert stage.bind(last) == "", "one that has succeeded was there"


@CHEAP
def test_named_units_and_large_pools_have_seats_as_well(stage: Gangs) -> None:
    pods = stage.gang("named", 4, desk=1, many=70)
    assert stage.bind(pods[0]) == ""
    assert sorted(stage.of(pod, "desk")[2] for pod in pods) == [(f"desk-{n}",) for n in (1, 2, 3, 4)]
    before = {pod.name: stage.of(pod, "desk") for pod in pods}
    assert [stage.bind(pod) for pod in pods[1:]] == ["", "", ""]
    assert {pod.name: stage.of(pod, "desk") for pod in pods} == before
    assert stage.free("many", "*") == (20, 300)
    stage.check_survives_a_loss()


@CHEAP
@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ({GANG: "train"}, "annotation berth.dev/gang-size: '' is no number of pods"),
        ({GANG: "train", GANG_SIZE: "many"}, "annotation berth.dev/gang-size: 'many' is no number of pods"),
        ({GANG: "train", GANG_SIZE: "0"}, "annotation berth.dev/gang-size: 0 is not from 1 to 512"),
        ({GANG: "train", GANG_SIZE: "513"}, "annotation berth.dev/gang-size: 513 is not from 1 to 512"),
        (
            {GANG_SIZE: "2"},
            (
                "annotation berth.dev/gang: '' can't be the name of a gang, which has lower-case letters,"
                " digits, - and ."
            ),
        ),
    ],
)
def test_what_is_no_gang_is_refused_by_its_annotation(stage: Gangs, noted: dict[str, str], said: str) -> None:
    pod = stage.pod("odd", annotations=noted, seat=1)
    assert stage.why(pod, "n1") == {"n1": said}
    assert stage.bind(pod) == said
    assert stage.states() == {}


@CHEAP
def test_a_gang_of_one_is_any_pod(stage: Gangs) -> None:
    (pod,) = stage.gang("single", 1, seat=1)
    assert stage.bind(pod) == ""


@CHEAP
def test_a_pod_of_a_gang_that_can_not_be_served_keeps_the_others_waiting(stage: Gangs) -> None:
    noted = {GANG: "train", GANG_SIZE: "2"}
    pod = stage.pod("good", annotations=noted, seat=1)
    stage.pod("bad", annotations=noted, seat=1, claims="nothing")
    why = "gang train: its pod bad can't be served: there is no PoolClaim nothing in the pod's namespace"
    assert stage.bind(pod) == why
    assert stage.states() == {}


@pytest.mark.slow
@CHEAP
@pytest.mark.long
def test_a_bind_that_is_killed_leaves_a_whole_gang_or_none(stage: Gangs) -> None:
    def kill() -> None:
        raise KilledError

    for step in each_step():
        stage.clear_pods()
        pods = stage.gang(f"gang-{step.number}", 3, seat=1)
        with suppress(KilledError):
            stage.bind(pods[0], step=step.doing(kill))
        assert len(stage.states()) in (0, 3), f"step {step.number}"
        stage.time.now += BIND_SECONDS + 1
        stage.reconcile()
        if stage.states():
            assert stage.woken() >= {pod.name for pod in pods if pod.name in stage.seats()}
        assert [stage.bind(pod) for pod in pods] == ["", "", ""], f"step {step.number}"
        stage.check_counts()


@pytest.mark.slow
@CHEAP
@pytest.mark.long
def test_whatever_another_of_its_pods_binds_meanwhile_each_has_one_claim(stage: Gangs) -> None:
    for step in each_step():
        stage.clear_pods()
        pods = stage.gang(f"gang-{step.number}", 3, seat=1, gpu=1)
        answer = stage.bind(pods[0], "n1", step.doing(lambda: stage.bind(pods[1], "n2")))  # noqa: B023
        assert answer == "", f"step {step.number}"
        assert stage.free("seat", "*") == (1, 4), f"step {step.number}"
        assert [stage.bind(pod, node) for pod, node in zip(pods, ("n1", "n2", "n2"), strict=True)] == [
            "",
            "",
            "",
        ]
        stage.check_counts()
