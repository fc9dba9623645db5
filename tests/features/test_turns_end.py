"""No ask keeps units from others for longer than its Pool says, and they are held where they come free."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from berth.controller import line_budget
from berth.http.extender_v1 import BindingCall
from berth.kube.types import Pod
from berth.ledger.forecast import SETTLED_SECONDS
from berth.ledger.keys import domain_of
from berth.ledger.model import FIRST
from berth.scheduling.explanation import explain
from berth.testing.api_server import StandIn
from berth.testing.api_server.rules import Key, timestamp
from tests.support.builders.line_stage import LineStage
from tests.support.builders.places import Place

TICK = 60
IDLE = 600
"""Seconds that units may be idle, if the Pool does not say."""

CLUSTER = {"scope": "Cluster"}
POOLS: dict[str, Any] = {
    "seat": {**CLUSTER, "capacity": {"perDomain": 4}},
    "desk": {**CLUSTER, "capacity": {"perDomain": 1}},
    "ip": {"capacity": {"perDomain": 2}},
    "many": {**CLUSTER, "capacity": {"perDomain": 300}},
}
CHEAP = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
STORES = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


class Line(LineStage):
    """With how long units are idle in it."""

    def idle(self, minutes: int, each_minute: Callable[[int], object] = lambda _: None) -> list[bool]:
        """Return of so many minutes whether units were free and held at their ends."""
        seen = []
        for minute in range(minutes):
            each_minute(minute)
            self.ticks(TICK)
            seen.append(self.is_idle())
        return seen

    def turns(self, minutes: int) -> set[str]:
        """Return the pods that have a turn at the end of any of so many minutes."""
        seen: set[str] = set()
        for _ in range(minutes):
            self.ticks(TICK)
            seen |= {label for label, _ in self.holds().values()}
        return seen

    def is_idle(self, pool: str = "") -> bool:
        view, now = self.view(), self.time.now
        return any(
            view.at(key).room(*domain_of(key), (), now, rank=FIRST)
            > view.at(key).room(*domain_of(key), (), now)
            for key in view.line_holds
            if pool in ("", domain_of(key)[0])
        )

    def notes(self, call: BindingCall) -> str:
        return " ".join(explain(self.full_pod(call), self.view(), self.cluster.nodes(), self.time.now).notes)

    def begin_end(self, call: BindingCall) -> None:
        """The pod is deleted, and a finalizer keeps it: the stand-in API server knows none."""
        memory, key = self.api.memory, Key("pods", call.namespace, call.name)
        with memory._changed:
            old = memory._objects[key]
            mark = {"deletionTimestamp": timestamp(self.time.now), "deletionGracePeriodSeconds": 0}
            memory._write(key, {**old, "metadata": {**old["metadata"], **mark}})

    def renamed(self, pod: Pod, name: str) -> Pod:
        return replace(pod, metadata=replace(pod.metadata, name=name))


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Line]:
    made: list[Line] = []
    with StandIn(clock=lambda: made[0].time() if made else 0.0) as api:
        made.append(Line(api, tmp_path, place, POOLS, {"n1": {}, "n2": {}}))
        with closing(made[0].store), closing(made[0].raw):
            yield made[0]


def longest(seen: list[bool]) -> int:
    """Return for how many minutes in a row units were idle at most."""
    runs = "".join("x" if idle else " " for idle in seen).split()
    return max(map(len, runs), default=0)


# What can't come true has no turn


@STORES
@pytest.mark.long
def test_an_ask_for_more_than_is_not_used_outside_the_cluster_has_no_turn(stage: Line) -> None:
    stage.pools(seat={**POOLS["seat"], "external": 1})
    big, new = stage.pod("big", seat=4), stage.pod("new", seat=1)
    assert not any(stage.idle(600))
    assert (stage.holds(), stage.why(new, "n1")) == ({}, {})
    assert "nothing is held for it: 3 of 4 units of seat in * can come free" in stage.notes(big)
    stage.pools(seat=POOLS["seat"])
    stage.ticks(TICK)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}


@CHEAP
def test_an_ask_for_units_that_are_lost_with_a_node_has_no_turn(stage: Line) -> None:
    stage.pools(ip={"capacity": {"perDomain": 2}, "onLostNode": "Hold"})
    lost = stage.bound_pod("lost", on="n1", ip=1)
    for number in range(2):
        stage.bound_pod(f"n2-{number}", on="n2", owner="web", owner_kind="Deployment", ip=1)
    stage.write_node("n1", ready=False)
    stage.gone(lost)
    assert stage.states()["lost"] == "lost"
    big = stage.pod("big", ip=2)
    stage.time.now += 2 * SETTLED_SECONDS
    stage.ticks(TICK)
    assert not stage.holds()
    assert "nothing is held for it" in stage.notes(big)


@CHEAP
def test_an_ask_for_units_that_services_have_had_for_long_has_no_turn(stage: Line) -> None:
    """They end by nobody's word; a service that was just rolled out may be rolled out again."""
    for number in range(2):
        stage.bound_pod(f"web-{number}", owner="web", owner_kind="Deployment", seat=1)
    big = stage.pod("big", seat=3)
    stage.ticks(TICK)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 3)}
    stage.ticks(SETTLED_SECONDS)
    stage.ticks(TICK)
    assert not stage.holds()
    assert not any(stage.idle(60))
    assert "can come free" in stage.notes(big)


@CHEAP
def test_a_service_that_says_when_it_ends_is_waited_for(stage: Line) -> None:
    for number in range(2):
        how: dict[str, Any] = {"owner": "web", "owner_kind": "Deployment", "runs_for": "3h"}
        stage.bound_pod(f"web-{number}", seat=1, **how)
    stage.time.now += 2 * SETTLED_SECONDS
    stage.pod("big", seat=3)
    stage.ticks(TICK)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 3)}


# A turn ends, whatever is missing


@STORES
@pytest.mark.long
def test_units_of_one_pool_idle_no_longer_than_it_says_for_want_of_another_pool_s(stage: Line) -> None:
    """The only unit of desk is held by a pod that never ends, and nobody knows that."""
    stage.bound_pod("service", desk=1)
    stage.pod("both", desk=1, seat=1)
    seen = stage.idle(600)
    assert 0 < longest(seen) <= IDLE / TICK + 1
    assert sum(seen) <= len(seen) / 4, "each time in vain has a longer pause"


@CHEAP
def test_a_pool_says_for_how_long_its_units_may_be_idle(stage: Line) -> None:
    stage.pools(seat={**POOLS["seat"], "line": {"idleSeconds": 120}})
    stage.bound_pod("service", desk=1)
    stage.pod("both", desk=1, seat=1)
    assert 0 < longest(stage.idle(120)) <= 120 / TICK + 1


@CHEAP
@pytest.mark.long
def test_who_asks_for_all_of_a_pool_that_one_pod_holds_for_ever_idles_it_for_its_bound(stage: Line) -> None:
    stage.bound_pod("service", seat=1)
    stage.pod("big", seat=4)
    seen = stage.idle(600)
    assert 0 < longest(seen) <= IDLE / TICK + 1
    assert sum(seen) <= len(seen) / 4


@CHEAP
@pytest.mark.long
def test_pods_that_come_again_and_again_idle_units_for_half_of_the_time_at_most(stage: Line) -> None:
    """Whoever deletes a pod shortly before its turn ends, and makes another one, gains nothing by it."""
    stage.bound_pod("service", seat=1)
    pods = [stage.pod("big-0", seat=4)]

    def come_again(minute: int) -> None:
        if minute % 8 == 7:
            stage.gone(pods[-1])
            pods.append(stage.pod(f"big-{len(pods)}", seat=4))

    seen = stage.idle(600, come_again)
    assert 0 < sum(seen) <= (len(seen) + longest(seen)) / 2, "it begins with a turn"


@STORES
@pytest.mark.long
def test_a_turn_that_is_interrupted_now_and_then_is_no_new_turn(stage: Line) -> None:
    """big lacks CPU, and pods of a higher priority take one of its units now and then."""
    stage.pod("big", seat=4)
    running: list[BindingCall] = []

    def interrupt(minute: int) -> None:
        if minute % 3 == 1:
            running.append(stage.pod(f"high-{minute}", priority=5, seat=1))
            stage.bind(running[-1])
        elif running:
            stage.gone(running.pop())

    seen = stage.idle(240, interrupt)
    assert sum(seen) <= len(seen) / 4


@CHEAP
def test_after_a_turn_in_vain_others_wait_as_long_as_its_units_were_idle(stage: Line) -> None:
    """Not as long as it waited for them: big has its turn for a day before anything comes free."""
    small = stage.full()
    stage.pod("big", seat=4)
    for _ in range(24):
        stage.ticks(3600)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}
    for pod in small:
        stage.gone(pod)
    stage.ticks()
    stage.ticks(30)
    assert not stage.holds(), "nothing came of it in 30 s"
    stage.pod("other", seat=2)
    stage.full("seat", 3)
    stage.ticks(61)
    assert stage.holds() == {"domain/seat/*#0": ("default/other", 2)}


# Where units are held


@CHEAP
def test_units_are_held_where_they_come_free_and_not_where_a_pod_has_them_for_ever(stage: Line) -> None:
    """On n1 one unit is missing, which never comes; on n2 two, and pods come and go there."""
    stage.bound_pod("service", on="n1", ip=1)
    running = [stage.bound_pod(f"n2-{number}", on="n2", ip=1) for number in range(2)]
    stage.time.now += 1
    big = stage.pod("big", ip=2)

    def churn(minute: int) -> None:
        # First of all, so that it is there before any small one.
        if stage.passes(big, "n1", "n2"):
            assert stage.bind(big, "n2") == ""
            pytest.fail("bound")
        stage.gone(running.pop(0))
        small = stage.pod(f"small-{minute}", ip=1)
        if stage.bind(small, "n2") == "":
            running.append(small)
        else:
            assert stage.holds() == {"domain/ip/n2": ("default/big", 2)}

    with pytest.raises(pytest.fail.Exception, match="bound"):
        stage.idle(60, churn)
    assert stage.states()["big"] == "bound"


@CHEAP
def test_a_turn_moves_when_what_is_missing_does_not_come(stage: Line) -> None:
    """When big gets its turn nobody knows yet who stays: all have come a moment ago."""
    stage.bound_pod("n1-stays", on="n1", ip=1)
    running = [stage.bound_pod(f"n2-{number}", on="n2", ip=1) for number in range(2)]
    stage.pools(ip={"capacity": {"perDomain": 2}, "line": {"holdAfterSeconds": 0}})
    stage.pod("big", ip=2)
    stage.ticks()
    assert stage.holds() == {"domain/ip/n1": ("default/big", 2)}, "the fewest are missing there"

    def churn(minute: int) -> None:
        stage.gone(running.pop(0))
        small = stage.pod(f"small-{minute}", ip=1)
        if stage.bind(small, "n2") == "":
            running.append(small)
        else:
            assert stage.holds() == {"domain/ip/n2": ("default/big", 2)}
            pytest.fail("moved")

    with pytest.raises(pytest.fail.Exception, match="moved"):
        stage.idle(9, churn)


@CHEAP
def test_units_are_held_in_those_parts_of_a_pool_in_which_they_come_free(stage: Line) -> None:
    """99 units are in use for ever, in two of its three parts; in the third pods come and go."""
    for number in range(3):
        stage.bound_pod(f"service-{number}", many=33)
    stage.time.now += 100_000
    rest = 300 - 99
    churn = [stage.bound_pod(f"churn-{number}", many=10) for number in range(rest // 10)]
    stage.pod("big", many=150)
    stage.ticks(TICK)
    view = stage.view()
    for key, (_, count) in stage.holds().items():
        pool, name = domain_of(key)
        part = view.document(pool, name)
        forever = sum(
            one.count
            for claim in part.claims.values()
            if claim.name.startswith("service")
            for one in claim.holdings
            if one.key == key
        )
        assert count <= (part.capacity or 0) - forever, "this many never come free there"
    assert sum(count for _, count in stage.holds().values()) == 150
    for pod in churn:
        stage.gone(pod)
    assert stage.is_idle("many")


# Many that can go nowhere


@CHEAP
def test_pods_that_may_go_nowhere_keep_nobody_of_another_pool_from_a_turn(stage: Line) -> None:
    for number in range(2 * line_budget.MOST_READ):
        stage.pod(f"nowhere-{number}", seat=2, selects={"no": "node"})
    stage.full("desk", 1)
    stage.pools(desk={**CLUSTER, "capacity": {"perDomain": 2}})
    stage.time.now += 1
    stage.pod("big", desk=2)
    stage.ticks(TICK)
    assert ("default/big", 2) in stage.holds().values()


@CHEAP
def test_pods_that_may_go_nowhere_do_not_keep_one_behind_them_from_a_turn(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more of them than are read before the first may be read again."""
    monkeypatch.setattr(line_budget, "MOST_READ", 4)
    stage.full(count=3)
    for number in range(40):
        stage.pod(f"nowhere-{number}", seat=2, selects={"no": "node"})
    stage.time.now += 1
    stage.pod("big", seat=2)
    assert stage.turns(40) == {"default/big"}


@CHEAP
def test_one_that_may_go_somewhere_now_is_seen_among_many_that_may_not(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_budget, "MOST_READ", 4)
    stage.full(count=3)
    for number in range(20):
        stage.pod(f"nowhere-{number}", seat=2, selects={"new": f"node-{number}"})
    assert stage.turns(10) == set()
    stage.write_node("n2", new="node-7")
    assert stage.turns(20) == {"default/nowhere-7"}


@CHEAP
def test_few_pods_of_one_owner_are_read_where_they_may_go_nowhere(
    stage: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_budget, "MOST_READ", 10)
    stage.full(count=3)
    for number in range(20):
        stage.pod(f"job-{number}", seat=2, selects={"no": "node"}, owner="job", owner_kind="Job")
    stage.time.now += 1
    stage.pod("big", seat=2)
    stage.ticks(TICK)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 2)}


# A limit of its own namespace


@STORES
def test_units_are_held_within_the_limit_of_the_pod_s_namespace(stage: Line) -> None:
    stage.pools(seat={**CLUSTER, "capacity": {"perDomain": 8}, "limits": {"lab": 4}})
    small = [stage.bound_pod(f"small-{number}", seat=1, namespace="lab") for number in range(4)]
    big = stage.pod("big", seat=4, namespace="lab")
    stage.ticks(TICK)
    assert {key.partition("#")[0]: held for key, held in stage.holds().items()} == {
        "domain/seat/*": ("lab/big", 4),
        "domain/seat/@lab": ("lab/big", 4),
    }
    for number, pod in enumerate(small):
        assert stage.gone(pod)["released"] == 1
        refused = stage.bind(stage.pod(f"late-{number}", seat=1, namespace="lab"))
        assert f"{number + 1} more {'is' if not number else 'are'} held for lab/big, first in line" in refused
    other = stage.pod("other", seat=4, namespace="desk")
    assert (stage.bind(other), stage.bind(big), stage.holds()) == ("", "", {})
    stage.check_well()


@CHEAP
def test_an_ask_for_more_than_its_namespace_may_ever_hold_has_no_turn(stage: Line) -> None:
    stage.pools(seat={**CLUSTER, "capacity": {"perDomain": 8}, "limits": {"lab": 3}})
    stage.full(count=6)
    stage.pod("big", seat=4, namespace="lab")
    stage.ticks(TICK)
    assert not stage.holds()


@CHEAP
def test_a_namespace_that_holds_nothing_yet_has_its_limit_held_too(stage: Line) -> None:
    stage.pools(seat={**CLUSTER, "capacity": {"perDomain": 4}, "limits": {"*": 3}})
    small = stage.full(count=3)
    stage.pod("big", seat=3, namespace="lab")
    stage.ticks(TICK)
    assert stage.holds()["domain/seat/@lab"] == ("lab/big", 3)
    stage.gone(small[0])
    assert "held for lab/big" in stage.bind(stage.pod("late", seat=1, namespace="lab"))


# The first in line goes


@STORES
def test_the_hold_of_a_pod_that_a_finalizer_keeps_goes_with_the_event_of_its_deletion(stage: Line) -> None:
    small = stage.full()
    big, new = stage.pod("big", seat=4), stage.pod("new", seat=1)
    stage.ticks(TICK)
    stage.gone(small[0])
    stage.begin_end(big)
    assert stage.event_of(stage.get("big"), "update")["woken"] == 1
    assert (stage.holds(), stage.woken(), stage.bind(new)) == ({}, {"new"}, "")


@CHEAP
def test_an_event_of_another_pod_ends_nobody_s_turn(stage: Line) -> None:
    """It is forged: it pairs the name of a pod that is gone with the UID of the first in line."""
    stage.full()
    stage.pod("big", seat=4)
    gone = stage.pod("gone", seat=1)
    stage.ticks(TICK)
    forged = stage.renamed(stage.get("big"), gone.name)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{gone.name}")
    stage.event_of(forged)
    assert stage.holds() == {"domain/seat/*#0": ("default/big", 4)}
