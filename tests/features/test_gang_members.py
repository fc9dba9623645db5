"""Which pods are one gang: by its name and the controller that made them, of one size (promise 12).
Who is missing, who failed for good and who asks for nothing keeps nobody waiting for ever."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.http.extender_v1 import BindingCall
from berth.ledger.gang_note import BELIEVED_SECONDS
from berth.testing.api_server import StandIn
from tests.features.test_gangs import GANG_SECONDS, NODES, POOLS, Gangs
from tests.support.builders.places import Place

pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_SET, JOB_NAME = "jobset.sigs.k8s.io/jobset-uid", "training.kubeflow.org/job-name"
HASH, TEMPLATE = "controller-revision-hash", "pod-template-hash"


class Members(Gangs):
    """With pods that controllers made."""

    def member(
        self,
        name: str,
        size: int = 4,
        *,
        gang: str = "train",
        owner: tuple[str, str] | None = ("Job", "run"),
        labels: Mapping[str, str] | None = None,
        noted: Mapping[str, str] | None = None,
        **asked: int,
    ) -> BindingCall:
        """A waiting pod of a gang, made by this controller (its kind and UID)."""
        limits = {f"berth.dev/{pool}": str(units) for pool, units in (asked or {"seat": 1}).items() if units}
        meta: dict[str, Any] = {
            "name": name,
            "annotations": {GANG: gang, GANG_SIZE: str(size), **(noted or {})},
            "labels": dict(labels or {}),
        }
        if owner is not None:
            kind, uid = owner
            meta["ownerReferences"] = [{"kind": kind, "name": uid, "uid": uid, "controller": True}]
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        spec = {"schedulerName": "berth", "containers": containers}
        self.cluster.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
        return BindingCall(name, "default", self.get(name).metadata.uid, "n1")

    def members(self, name: str, count: int = 4, size: int = 4, **how: Any) -> list[BindingCall]:
        return [self.member(f"{name}-{number}", size, **how) for number in range(count)]

    def fail(self, call: BindingCall) -> None:
        self.raw.finish_pod(call.name, phase="Failed")
        self.event_of(self.get(call.name), "update")

    def came(self, call: BindingCall) -> dict[str, object]:
        """What release answers to the event of the pod's creation."""
        return self.event_of(self.get(call.name), "add")

    def bind_all(self, pods: list[BindingCall]) -> list[str]:
        return [self.bind(pod) for pod in pods]


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Members]:
    made: list[Members] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Members(api, tmp_path, place, {**POOLS, "seat": seats(4)}, NODES))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def seats(count: int, **spec: Any) -> dict[str, Any]:
    return {"scope": "Cluster", "capacity": {"perDomain": count}, **spec}


# Who belongs together


def test_pods_of_a_run_before_are_not_of_the_next_run_s_gang(stage: Members) -> None:
    """Both have the name that the CronJob's template gives them."""
    first = stage.members("first", owner=("Job", "run-1"))
    assert stage.bind_all(first) == [""] * 4
    for pod in first:
        stage.finished(pod)
    stage.bound_pod("single", seat=1)
    second = stage.members("second", owner=("Job", "run-2"))
    assert stage.bind(second[0]).startswith("gang train: no room for 4 pods of it at once")
    assert stage.states() == {"single": "bound"}


def test_runs_that_overlap_are_each_served_whole(stage: Members) -> None:
    stage.pools(seat=seats(6))
    first, second = (stage.members(run, owner=("Job", run)) for run in ("run-1", "run-2"))
    assert stage.bind_all(first[:2]) == ["", ""]
    assert stage.bind(second[0]).startswith("gang train: no room for 4 pods of it at once")
    assert stage.bind_all(first[2:]) == ["", ""]
    for pod in first[:2]:
        stage.gone(pod)
    assert stage.bind_all(second) == [""] * 4
    stage.check_well()


def test_pods_of_an_earlier_run_that_succeeded_let_none_be_bound_by_half_without_controllers(
    stage: Members,
) -> None:
    first = stage.members("first", 3, 3, owner=None)
    assert stage.bind_all(first) == [""] * 3
    for pod in first:
        stage.finished(pod)
    late = stage.member("second-0", 3, owner=None)
    why = (
        "gang train: 1 of its 3 pods is there; pods without a controller that had succeeded before may be of"
        " an earlier run, and do not count"
    )
    assert stage.bind(late) == why
    assert stage.why(late, "n1") == {"n1": why}
    others = [stage.member(f"second-{number}", 3, owner=None) for number in (1, 2)]
    assert stage.bind(others[0]) == ""
    assert stage.seats().keys() == {"second-0", "second-2"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"owner": ("Job", "a"), "labels": {JOB_SET: "set"}},
            {"owner": ("Job", "b"), "labels": {JOB_SET: "set"}},
        ),
        (
            {"owner": ("Job", "launcher"), "labels": {JOB_NAME: "mpi"}},
            {"owner": ("MPIJob", "mpi"), "labels": {JOB_NAME: "mpi"}},
        ),
        (
            {"owner": ("ReplicaSet", "web-1"), "labels": {TEMPLATE: "1"}},
            {"owner": ("ReplicaSet", "web-2"), "labels": {TEMPLATE: "2"}},
        ),
        (
            {"owner": ("StatefulSet", "set"), "labels": {HASH: "1"}},
            {"owner": ("StatefulSet", "set"), "labels": {HASH: "2"}},
        ),
    ],
)
def test_a_workload_s_pods_are_one_gang_whichever_controller_made_them(
    stage: Members, one: dict[str, Any], other: dict[str, Any]
) -> None:
    pods = [stage.member("one-0", 2, **one), stage.member("other-0", 2, **other)]
    assert stage.bind(pods[0]) == ""
    assert stage.seats().keys() == {"other-0"}


def test_pods_of_one_name_and_different_controllers_are_told_so(stage: Members) -> None:
    launcher = stage.member("launcher", 3, owner=("Job", "launcher"))
    stage.members("worker", 2, 3, owner=("Job", "workers"))
    assert stage.bind(launcher) == (
        "gang train: 1 of its 3 pods is there; pods that another controller made are another gang, though"
        " they have its name"
    )


@pytest.mark.parametrize("owner", [None, ("Job", "run")])
@pytest.mark.parametrize("size", [1, 3])
def test_pods_that_say_different_sizes_are_all_refused_by_one_lasting_text(
    stage: Members, owner: tuple[str, str] | None, size: int
) -> None:
    pods = stage.members("train", 4, owner=owner)
    odd = stage.member("odd", size, owner=owner)
    why = (
        f"gang train: its pods say different sizes ({size} and 4): give all of them the same"
        " berth.dev/gang-size, or those that are not of it another berth.dev/gang"
    )
    assert stage.bind(odd) == why
    assert [stage.why(pod, "n1") for pod in (*pods, odd)] == [{"n1": why}] * 5
    assert stage.bind(pods[2]) == why
    assert [stage.why(pod, "n1") for pod in (*pods, odd)] == [{"n1": why}] * 5
    assert stage.states() == {}
    stage.gone(odd)
    assert stage.woken() == {pod.name for pod in pods}
    assert stage.bind_all(pods) == [""] * 4
    stage.check_well()


def test_a_size_that_is_corrected_is_looked_at_at_once(stage: Members) -> None:
    pods = stage.members("train", 3, 4, owner=None)
    odd = stage.member("odd", 5, owner=None)
    assert "different sizes (4 and 5)" in stage.bind(pods[0])
    stage.note("odd", {GANG_SIZE: "4"})
    assert stage.why(odd, "n1") == {}
    assert stage.bind(odd) == ""
    assert stage.woken() >= {pod.name for pod in pods}
    assert stage.bind_all(pods) == [""] * 3


def test_a_pod_that_says_another_size_is_given_nothing_that_is_held_for_the_gang(stage: Members) -> None:
    small = [stage.bound_pod(f"small-{number}", seat=1) for number in range(4)]
    pods = stage.members("train")
    assert stage.bind(pods[0]).startswith("gang train: no room for 4 pods of it at once")
    stage.time.now += 60
    stage.reconcile()
    stage.gone(small[0])
    odd = stage.member("odd", 1)
    assert "different sizes (1 and 4)" in stage.bind(odd)
    assert stage.ledger().view().line_holds


def test_seats_are_taken_though_a_pod_of_another_size_came(stage: Members) -> None:
    pods = stage.members("train")
    assert stage.bind(pods[0]) == ""
    odd = stage.member("odd", 1)
    assert "different sizes (1 and 4)" in stage.bind(odd)
    assert stage.bind_all(pods[1:]) == [""] * 3


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (
            {"owner": ("StatefulSet", "set"), "labels": {HASH: "1"}},
            {"owner": ("StatefulSet", "set"), "labels": {HASH: "2"}},
        ),
        (
            {"owner": ("ReplicaSet", "web-1"), "labels": {TEMPLATE: "1"}},
            {"owner": ("ReplicaSet", "web-2"), "labels": {TEMPLATE: "2"}},
        ),
    ],
)
def test_an_update_to_another_size_is_a_new_gang_and_says_what_to_do(
    stage: Members, before: dict[str, Any], now: dict[str, Any]
) -> None:
    stage.pools(seat=seats(10))
    old = stage.members("old", 4, 4, **before)
    assert stage.bind_all(old) == [""] * 4
    stage.gone(old[3])
    new = stage.member("new-3", 6, **now)
    why = (
        "gang train: 1 of its 6 pods is there; its controller has pods of gang size 4 as well, and replaces"
        " them one by one: scale it down to 0 and up again"
    )
    assert stage.bind(new) == why
    for pod in old[:3]:
        stage.gone(pod)
    others = [stage.member(f"new-{number}", 6, **now) for number in (0, 1, 2, 4, 5)]
    assert stage.why(others[4], "n1") == {}
    assert stage.bind(others[4]) == ""
    assert stage.bind_all([new, *others[:4]]) == [""] * 5
    stage.check_well()


def test_an_update_of_the_same_size_replaces_pods_one_by_one(stage: Members) -> None:
    owner = ("StatefulSet", "set")
    pods = stage.members("set", owner=owner, labels={HASH: "1"})
    assert stage.bind_all(pods) == [""] * 4
    for number in (3, 2, 1, 0):
        stage.gone(pods[number])
        again = stage.member(f"set-{number}", owner=owner, labels={HASH: "2"})
        assert stage.bind(again) == ""


def test_more_pods_than_a_note_takes_are_all_refused_by_it(
    stage: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.controller.gang.LARGEST_GANG", 4)
    stage.bound_pod("first", seat=3)
    pods = stage.members("train", 9, 2)
    why = "seat: 1 free, 2 asked by 2 pods of gang train together"
    assert stage.bind(pods[8]).startswith("gang train: no room for 2 pods of it at once")
    assert [stage.why(pod, "n1") for pod in pods] == [{"n1": why}] * 9


def test_a_gang_s_claims_of_before_the_upgrade_are_understood(
    stage: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They name the gang without its workload, and so does the note that says where its seats are."""
    with monkeypatch.context() as earlier:
        earlier.setattr("berth.api.gang._workload_of", lambda _: "")
        pods = stage.members("train")
        assert stage.bind_all(pods[:2]) == ["", ""]
    assert stage.seats().keys() == {"train-2", "train-3"}
    assert stage.bind(pods[2]) == ""
    stage.time.now += GANG_SECONDS
    assert stage.reconcile().released == 1
    assert stage.bind(pods[3]) == ""
    assert len(stage.ledger().view().claims()) == 4
    stage.check_well()


# A member that failed for good


@pytest.mark.parametrize("noted", [{}, {"batch.kubernetes.io/job-index-failure-count": "0"}])
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_one_that_failed_for_good_keeps_no_successor_of_another_waiting(
    stage: Members, noted: dict[str, str], indexed: bool, lost: bool
) -> None:
    def labels(number: int) -> dict[str, str]:
        return {INDEX: str(number)} if indexed else {}

    pods = [stage.member(f"train-{number}", labels=labels(number), noted=noted) for number in range(4)]
    assert stage.bind_all(pods) == [""] * 4
    stage.fail(pods[1])
    stage.fail(pods[2])
    if lost:
        stage.lose_ledger()
        stage.reconcile()
    again = stage.member("train-2-again", labels=labels(2), noted=noted)
    assert stage.why(again, "n1") == {}
    assert stage.bind(again) == ""


def test_the_last_of_a_gang_is_replaced_though_the_others_succeeded_or_failed(stage: Members) -> None:
    pods = [stage.member(f"train-{number}", labels={INDEX: str(number)}) for number in range(4)]
    assert stage.bind_all(pods) == [""] * 4
    stage.finished(pods[0])
    for pod in pods[1:]:
        stage.fail(pod)
    assert stage.bind(stage.member("train-3-again", labels={INDEX: "3"})) == ""


def test_a_gang_that_failed_whole_begins_anew_as_a_whole(stage: Members) -> None:
    pods = stage.members("train")
    assert stage.bind_all(pods) == [""] * 4
    for pod in pods:
        stage.fail(pod)
    stage.bound_pod("single", seat=1)
    again = stage.members("again")
    assert stage.bind(again[0]).startswith("gang train: no room for 4 pods of it at once")


def test_one_that_failed_before_the_gang_was_whole_does_not_count(stage: Members) -> None:
    pods = stage.members("train")
    assert stage.bind_all(pods[:2]) == ["", ""]
    stage.fail(pods[1])
    stage.time.now += GANG_SECONDS
    stage.reconcile()
    stage.bound_pod("filling", seat=1)
    again = stage.member("train-1-again")
    stage.time.now += GANG_SECONDS
    assert stage.bind(again).startswith("gang train: no room for 3 pods of it at once")


# One that asks for nothing


@pytest.mark.parametrize("by", ["event", "bind", "reconcile"])
def test_one_that_asks_for_nothing_and_comes_last_wakes_the_rest(stage: Members, by: str) -> None:
    workers = stage.members("worker", 3)
    why = "gang train: 3 of its 4 pods are there"
    assert stage.bind(workers[0]) == why
    launcher = stage.member("launcher", seat=0)
    if by == "event":
        stage.came(launcher)
    elif by == "bind":
        assert stage.bind(launcher) == ""
    else:
        stage.reconcile()
    assert stage.woken() == {pod.name for pod in workers}
    assert stage.whys(workers) == [{}] * 3
    assert stage.bind_all(workers) == [""] * 3


def test_one_that_asks_for_what_no_pool_has_wakes_the_rest_with_its_bind(stage: Members) -> None:
    workers = stage.members("worker", 3)
    assert stage.bind(workers[0]) == "gang train: 3 of its 4 pods are there"
    limits = {"example.com/gpu": "1"}
    body = {
        "metadata": {
            "name": "launcher",
            "annotations": {GANG: "train", GANG_SIZE: "4"},
            "ownerReferences": [{"kind": "Job", "name": "run", "uid": "run", "controller": True}],
        },
        "spec": {"schedulerName": "berth", "containers": [{"name": "a", "resources": {"requests": limits}}]},
    }
    stage.cluster.create("/api/v1/namespaces/default/pods", body)
    call = BindingCall("launcher", "default", stage.get("launcher").metadata.uid, "n1")
    assert stage.why(call, "n1") == {}
    assert stage.bind(call) == ""
    assert stage.woken() == {pod.name for pod in workers}


def test_one_that_asks_for_nothing_wakes_nobody_while_others_are_missing(stage: Members) -> None:
    workers = stage.members("worker", 2)
    assert stage.bind(workers[0]) == "gang train: 2 of its 4 pods are there"
    stage.came(stage.member("launcher", seat=0))
    assert stage.woken() == set()
    why = "gang train: 3 of its 4 pods are there"
    assert stage.whys(workers) == [{"n1": why, "n2": why}] * 2
    assert stage.bind(stage.member("worker-2")) == ""


# StatefulSets


def test_a_statefulset_that_makes_its_pods_one_by_one_is_told_how_to_make_all(stage: Members) -> None:
    first = stage.member("set-0", 3, owner=("StatefulSet", "set"), labels={HASH: "1"})
    assert stage.bind(first) == (
        "gang train: 1 of its 3 pods is there; a StatefulSet makes its pods one by one unless its"
        " podManagementPolicy is Parallel"
    )
    others = [
        stage.member(f"set-{number}", 3, owner=("StatefulSet", "set"), labels={HASH: "1"})
        for number in (1, 2)
    ]
    assert stage.bind_all([*others, first]) == [""] * 3


# Where seats are


def test_who_lags_knows_where_a_seat_has_moved(stage: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = stage.members("train", 2, 2, gpu=1)
    assert stage.bind(pods[0]) == ""
    lagging = stage.ledger()
    seen = lagging.view()
    assert stage.seats() == {"train-1": "n1"}
    assert stage.bind(pods[1], "n2") == ""
    monkeypatch.setattr(lagging, "view", lambda: seen)
    label = next(iter(stage.ledger().view().gangs))
    assert lagging.gang(label).claims[pods[1].uid].node == "n2"


def test_a_seat_of_a_pod_that_is_gone_is_not_held_as_lost_with_its_node(stage: Members) -> None:
    stage.pools(gpu={**POOLS["gpu"], "onLostNode": "Hold"})
    pods = stage.members("train", 3, 3, gpu=1)
    assert stage.bind(pods[0]) == ""
    node = stage.seats()["train-2"]
    stage.write_node(node, ready=False)
    stage.gone(pods[2])
    assert "train-2" not in stage.states()


def test_a_refusal_of_which_pods_there_are_is_not_believed_for_ever(stage: Members) -> None:
    pods = stage.members("train", 3)
    assert stage.bind(pods[0]) == "gang train: 3 of its 4 pods are there"
    stage.time.now += BELIEVED_SECONDS
    assert stage.whys(pods) == [{}] * 3
