"""What tests/chaos takes for struck, and for right, without a cluster: what met nothing does not pass."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, Self

import pytest

from berth.ledger.keys import namespace_quota
from berth.ledger.model import Claim, Holding
from tests.chaos import evictions, kills
from tests.chaos.evictions import NODES, URGENT, Evictions
from tests.chaos.judge import check_binds
from tests.chaos.world import Step
from tests.e2e.invariant import difference
from tests.support.cluster import wait


@pytest.mark.parametrize(("killed", "struck"), [([], False), ([999_999_999], True)])
def test_a_kill_that_met_no_process_is_none(
    monkeypatch: pytest.MonkeyPatch, killed: list[int], struck: bool
) -> None:
    monkeypatch.setattr(kills, "ordered", lambda *_: {"reached": True, "killed": killed})
    world: Any = None
    if struck:
        assert kills.carry_out(world, Step("", "reserve: commit"), [999_999_999])
    else:
        with pytest.raises(AssertionError, match="were to die"):
            kills.carry_out(world, Step("", "reserve: commit"), [999_999_999])


@pytest.mark.parametrize(
    ("bound", "gaps", "wrong"),
    [
        (("pod-1", "pod-2", "late-1"), (), None),
        (("pod-1", "pod-2", "pod-3"), (), "bound, and gone: {'pod-3'}"),
        (("pod-1",), (), "never seen to be bound: {'pod-2'}"),
        (("pod-1",), ("a gap",), None),
        (("pod-2",), ("a gap",), "bound now, and never seen to be: {'pod-1'}"),
    ],
)
def test_each_pod_seen_bound_is_there_or_was_replaced(
    bound: tuple[str, ...], gaps: tuple[str, ...], wrong: str | None
) -> None:
    there = {"pod-1": "node-1", "late-1": "node-1"}
    world: Any = SimpleNamespace(cluster=SimpleNamespace(bound=lambda: there))
    churn: Any = SimpleNamespace(has=lambda name: name.startswith("pod-"), replaced={"pod-2"})
    seen: Any = SimpleNamespace(bound_at=dict.fromkeys(bound, 1.0), gaps=gaps)
    if wrong is None:
        check_binds(world, seen, churn)
    else:
        with pytest.raises(AssertionError) as error:
            check_binds(world, seen, churn)
        assert wrong in str(error.value)


@pytest.mark.parametrize(("asked", "differs"), [(2, False), (1, True), (3, True)])
def test_a_claims_units_of_one_pool_are_summed_over_their_domains(asked: int, differs: bool) -> None:
    """A unit that moves to another list stays with its pod; a limit counts the same units once more."""
    holdings = (Holding("nic", "n1", 1), Holding("nic", "n2", 1), Holding("nic", namespace_quota("d"), 2))
    claim = Claim(uid="u", namespace="d", name="a", node="n1", state="bound", since=0.0, holdings=holdings)
    nic = SimpleNamespace(name="nic")
    view: Any = SimpleNamespace(claims=lambda: [claim], pools={"nic"}, resources={"berth.dev/nic": nic})
    containers = [{"resources": {"limits": {"berth.dev/nic": str(asked)}}}]
    pod = {"metadata": {"uid": "u"}, "spec": {"nodeName": "n1", "containers": containers}, "status": {}}
    assert bool(difference(view, [pod])) is differs


class Evicting:
    """A cluster in which `victims` holders go as soon as an urgent pod comes, and it is bound; its watch has
    seen `lost` nominations go. `said` is what events say of each urgent pod."""

    def __init__(self, victims: int, lost: int = 0) -> None:
        self._victims = victims
        self.pods: list[str] = []
        self.unnominated = Counter({URGENT: lost})
        self.said = list[str]()

    def watch_pods(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def create_pod(self, name: str, *_: object, **__: object) -> None:
        if name.startswith(URGENT):
            del self.pods[: self._victims]
        self.pods.append(name)

    def delete_pod(self, name: str, _: str) -> None:
        self.pods.remove(name)

    def bound(self, _: str) -> dict[str, str]:
        return dict.fromkeys(self.pods[:], "node-1")

    def list_pods(self, _: str) -> list[Any]:
        return [{"metadata": {"name": name}} for name in self.pods[:]]

    def events_of(self, *_: str) -> list[str]:
        return self.said


def test_each_urgent_pod_costs_one_victim() -> None:
    cluster: Any = Evicting(1)
    with Evictions(cluster) as evicting:
        pass
    evicting.check()
    assert evicting.victims >= 1
    assert len(cluster.pods) == NODES


@pytest.mark.parametrize(("victims", "lost"), [(0, 0), (0, 1), (2, 0), (3, 1)])
def test_a_pod_that_cost_two_victims_or_none_is_told(victims: int, lost: int) -> None:
    cluster: Any = Evicting(victims, lost)
    with Evictions(cluster) as evicting:
        pass
    with pytest.raises(AssertionError, match="pods were evicted for 1"):
        evicting.check()


def test_a_nomination_that_was_lost_may_cost_one_more() -> None:
    cluster: Any = Evicting(victims=2, lost=1)
    with Evictions(cluster) as evicting:
        pass
    evicting.check()
    assert (evicting.victims, evicting.lost) == (2, 1)


def test_a_victim_too_many_is_told_with_the_calls_that_failed() -> None:
    cluster: Any = Evicting(victims=2)
    cluster.said = ["0/3 nodes are available", "filter did not answer; the pod will be retried"]
    with Evictions(cluster) as evicting:
        pass
    with pytest.raises(AssertionError, match=r"calls that failed: \['filter did not answer"):
        evicting.check()


class EvictingLate(Evicting):
    """Urgent pods, each of which is bound only when the next one comes, and evicts nobody of its rank."""

    def __init__(self) -> None:
        super().__init__(victims=1)
        self.newest, self.evicted = "", 0

    def create_pod(self, name: str, *_: object, **__: object) -> None:
        if name.startswith(URGENT):
            victim = next((pod for pod in self.pods if not pod.startswith(URGENT)), None)
            if victim is None:
                return  # it waits for a unit that nobody of a lower rank holds
            self.pods.remove(victim)
            self.newest, self.evicted = name, self.evicted + 1
        self.pods.append(name)

    def bound(self, namespace: str) -> dict[str, str]:
        return {name: node for name, node in super().bound(namespace).items() if name != self.newest}


def test_urgent_pods_that_are_bound_late_go_as_well_so_that_others_can_evict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evictions, "_TURN_SECONDS", 0.0)
    cluster: Any = EvictingLate()
    with Evictions(cluster):
        wait(lambda: cluster.evicted > 2 * NODES, 10, "pods are evicted after the first of each node")
