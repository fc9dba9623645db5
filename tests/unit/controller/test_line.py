"""The line in which pods wait, and the places in it."""

from berth.controller.line import in_line, places
from berth.kube.types import Meta, Pod, PodSpec
from berth.scheduling.demand import Demand


def pod(name: str, priority: int | None = None, made: str = "2026-01-01T00:00:00Z") -> Pod:
    return Pod(Meta(name=name, uid=name, creation_timestamp=made), PodSpec(priority=priority))


PODS = [
    pod("young", made="2026-01-01T00:00:09Z"),
    pod("old"),
    pod("urgent", 1000, "2026-01-01T00:00:30Z"),
    pod("later", -1),
]


def test_the_most_important_is_first_and_among_equals_the_oldest() -> None:
    assert [pod.metadata.name for pod in in_line(PODS)] == ["urgent", "old", "young", "later"]


def test_each_pool_has_a_line_of_its_own() -> None:
    demands = {"young": {"ip": 1}, "old": {"ip": 2, "seat": 1}, "urgent": {"seat": 1}, "later": {"ip": 1}}
    assert places(PODS, {uid: Demand(units) for uid, units in demands.items()}) == {
        "seat": {"urgent": 1, "old": 2},
        "ip": {"old": 1, "young": 2, "later": 3},
    }


def test_who_can_be_given_nothing_is_in_no_line() -> None:
    demands = {pod.metadata.uid: Demand({"ip": 1}) for pod in PODS}
    demands["urgent"] = Demand({"ip": 1}, refusal="there is no PoolClaim x in the pod's namespace")
    demands["young"] = Demand({})
    assert places(PODS, demands) == {"ip": {"old": 1, "later": 2}}
