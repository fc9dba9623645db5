"""Units that rest or are kept, when lists, Pools, nodes and clocks change meanwhile: nobody waits for what
nobody can get any more, and nobody gets early what still rests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from berth.http.extender_v1 import BindingCall
from berth.kube.types import PodStatus
from berth.ledger import allocation, capacity
from berth.ledger.keys import DOMAIN
from berth.ledger.model import decode_domain
from berth.stores.base import Version
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged, utc
from tests.support.builders.stage import DOWN

HOUR = 3600
YEAR = 365 * 24 * HOUR

POOLS: dict[str, Any] = {
    "ip": {"units": {"n1": ["a1", "a2", "a3"]}, "reuseAfterSeconds": HOUR},
    "seat": {
        "scope": "Cluster",
        "units": {"*": [f"s{number}" for number in range(300)]},
        "reuseAfterSeconds": HOUR,
    },
    "slot": {"capacity": {"perDomain": 2}, "sticky": {"by": "Pod", "forSeconds": 60}},
}
FULL = "ip: 0 of 3 free, 1 asked"

CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # stores only keep documents


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def freed(stage: PoolsStage, **asked: Any) -> tuple[str, ...]:
    """The names of units that a pod had and that rest now."""
    (pool,) = asked
    call = stage.bound_pod(**asked)
    units = stage.of(call, pool)[2]
    stage.gone(call)
    return units


def documents(stage: PoolsStage, pool: str) -> set[str]:
    keys = stage.store.changes(None).documents
    return {key.removeprefix(f"{DOMAIN}{pool}/") for key in keys if key.startswith(f"{DOMAIN}{pool}/")}


def versions(stage: PoolsStage) -> dict[str, Version]:
    """By the key of each domain's document."""
    keys = [key for key in stage.store.changes(None).documents if key.startswith(DOMAIN)]
    return {key: document.version for key, document in stage.store.read(keys).items()}


@CHEAP
def test_names_that_are_new_do_not_wait_for_those_that_rest_and_are_listed_no_more(stage: PoolsStage) -> None:
    freed(stage, ip=3)
    waiter = stage.pod(ip=1)
    assert stage.why(waiter, "n1") == {"n1": FULL}
    stage.pools(ip={**POOLS["ip"], "units": {"n1": ["b1", "b2", "b3"]}})
    assert (stage.free("ip", "n1"), stage.why(waiter, "n1")) == ((3, 3), {})
    assert waiter.name in stage.woken()
    assert stage.bind(waiter) == ""
    assert stage.of(waiter, "ip")[2] == ("b1",)
    stage.check_well()


@CHEAP
def test_new_names_of_a_large_pool_do_not_wait_either(stage: PoolsStage) -> None:
    freed(stage, seat=300)
    waiter = stage.pod(seat=200)
    assert stage.why(waiter, "n1") == {"n1": "seat: 0 of 300 free, 200 asked"}
    stage.pools(seat={**POOLS["seat"], "units": {"*": [f"t{number}" for number in range(300)]}})
    assert stage.free("seat", "*") == (300, 300)
    assert stage.bind(waiter) == ""
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("told", [True, False])
def test_a_rest_ends_when_the_pool_asks_for_none_any_more(stage: PoolsStage, told: bool) -> None:
    """At the Pool's event, or with the next reconcile where the Pools are in a file."""
    freed(stage, ip=3)
    spec = {**POOLS["ip"], "reuseAfterSeconds": 0}
    if told:
        stage.pools(ip=spec)
    else:
        stage.write_pools(ip=spec)
        stage.reconcile()
    waiter = stage.pod(ip=3)
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({}, "")


@CHEAP
def test_a_rest_is_cut_down_to_what_the_pool_says_now_and_that_once(stage: PoolsStage) -> None:
    freed(stage, ip=3)
    waiter = stage.pod(ip=1)
    stage.pools(ip={**POOLS["ip"], "reuseAfterSeconds": 60})
    stage.time.now += 59
    stage.reconcile()
    assert stage.bind(waiter) == FULL
    stage.time.now += 1
    assert stage.bind(waiter) == ""


@CHEAP
@pytest.mark.parametrize("pool", ["ip", "slot"])
def test_what_was_left_under_a_clock_that_was_ahead_waits_no_longer_than_the_pool_says(
    stage: PoolsStage, pool: str
) -> None:
    seconds, units = {"ip": (HOUR, 3), "slot": (60, 2)}[pool]
    one: Any = {pool: 1}
    stage.time.now += YEAR
    freed(stage, **{pool: units})
    stage.time.now -= YEAR
    waiter, full = stage.pod(**one), f"{pool}: 0 of {units} free, 1 asked"
    stage.reconcile()
    stage.time.now += seconds - 1
    stage.reconcile()
    assert stage.bind(waiter) == full
    stage.time.now += 1
    assert (stage.why(waiter, "n1"), stage.bind(waiter)) == ({}, "")


@CHEAP
@pytest.mark.parametrize("seconds", [10, HOUR])
def test_what_is_believed_is_written_only_where_it_differs(stage: PoolsStage, seconds: int) -> None:
    """Nor is a rest taken out of a document, once it is over, before that is written for another reason."""
    freed(stage, ip=3)
    stage.count_use()
    stage.time.now += seconds
    before = versions(stage)
    stage.reconcile()
    assert versions(stage) == before


@CHEAP
def test_a_reservation_of_a_bind_that_died_under_a_clock_that_was_ahead_is_settled(stage: PoolsStage) -> None:
    call = stage.pod(ip=1)
    stage.time.now += HOUR
    stage._ledger(stage.store).reserve(stage.claim(stage.get(call.name), "n1"))
    stage.time.now -= HOUR
    assert stage.reconcile().settled == 1
    assert stage.claims() == {}


@CHEAP
def test_a_reservation_that_a_clock_a_little_ahead_made_is_left_to_its_bind(stage: PoolsStage) -> None:
    call = stage.pod(ip=1)
    stage.time.now += 4
    stage._ledger(stage.store).reserve(stage.claim(stage.get(call.name), "n1"))
    stage.time.now -= 4
    assert stage.reconcile().settled == 0
    assert set(stage.claims()) == {call.name}


@CHEAP
@pytest.mark.parametrize("tell", [PoolsStage.inventory, lambda stage, _: stage.reconcile()])
def test_a_unit_rests_on_when_its_node_is_registered_anew(
    stage: PoolsStage, tell: Callable[[PoolsStage, str], object]
) -> None:
    units = freed(stage, ip=1)
    stage.cluster.delete("/api/v1/nodes/n1")
    tell(stage, "n1")
    assert documents(stage, "ip") == {"n1", "n2"}
    stage.add_node("n1")
    tell(stage, "n1")
    others = stage.bound_pod(ip=2)
    assert not {*units} & {*stage.of(others, "ip")[2]}
    waiter = stage.pod(ip=1)
    stage.time.now += HOUR - 1
    assert stage.bind(waiter) == FULL
    stage.time.now += 1
    assert stage.bind(waiter) == ""
    assert stage.of(waiter, "ip")[2] == units
    stage.check_well()


@CHEAP
@pytest.mark.parametrize("pool", ["ip", "seat"])
def test_a_document_that_only_tells_of_a_rest_goes_when_that_is_over(stage: PoolsStage, pool: str) -> None:
    freed(stage, **{pool: 3})
    stage.pools(**{pool: None})
    assert documents(stage, pool)
    stage.time.now += HOUR - 1
    stage.reconcile()
    assert documents(stage, pool)
    stage.time.now += 1
    stage.reconcile()
    assert documents(stage, pool) == set()
    stage.check_well()


@CHEAP
def test_nothing_is_left_of_a_large_domain_when_its_pool_and_its_last_pod_are_gone(stage: PoolsStage) -> None:
    holder = stage.bound_pod(seat=1)
    stage.pools(seat={**POOLS["seat"], "reuseAfterSeconds": 0})
    stage.pools(seat=None)
    stage.gone(holder)
    stage.count_use()
    assert documents(stage, "seat") == set()


@CHEAP
def test_a_unit_rests_on_when_its_name_moves_to_another_node(stage: PoolsStage) -> None:
    (unit,) = freed(stage, ip=1)
    others = [name for name in ("a1", "a2", "a3") if name != unit]
    stage.pools(ip={**POOLS["ip"], "units": {"n1": others, "n2": [unit]}})
    waiter, full = stage.pod(ip=1), "ip: 0 of 1 free, 1 asked"
    assert (stage.why(waiter, "n2"), stage.bind(waiter, "n2")) == ({"n2": full}, full)
    assert stage.free("ip", "n1") == (2, 2)
    stage.time.now += HOUR - 1
    stage.reconcile()
    assert stage.bind(waiter, "n2") == full
    stage.time.now += 1
    assert stage.bind(waiter, "n2") == ""
    stage.check_well()


@CHEAP
def test_a_unit_is_kept_for_its_pod_when_its_name_moves_to_another_node(stage: PoolsStage) -> None:
    spec = {"units": {"n1": ["a1", "a2"], "n2": ["b1"]}, "sticky": {"by": "Pod", "forSeconds": 60}}
    stage.pools(ip=spec)
    stage.gone(stage.bound_pod("web-0", ip=1))
    stage.pools(ip={**spec, "units": {"n1": ["a2"], "n2": ["b1", "a1"]}})
    other = stage.bound_pod(on="n2", ip=1)
    assert stage.of(other, "ip")[2] == ("b1",)
    again = stage.pod("web-0", ip=1)
    assert stage.passes(again, "n1", "n2") == {"n2"}
    assert stage.bind(again, "n2") == ""
    assert stage.of(again, "ip")[2] == ("a1",)


@CHEAP
def test_a_unit_rests_on_when_its_name_goes_and_comes_back_in_another_stripe(stage: PoolsStage) -> None:
    units = {*freed(stage, seat=3)}
    listed = POOLS["seat"]["units"]["*"]
    away = [name for name in listed if name not in units]
    new = [f"t{number}" for number in range(300)]
    for names in (away, [*away, *new], [*new, *listed]):  # so that other stripes have room first
        stage.pools(seat={**POOLS["seat"], "units": {"*": names}})
        assert stage.free("seat", "*") == (len(names) - len(units & {*names}), len(names))
    everything = stage.bound_pod(seat=597)
    assert not units & {*stage.of(everything, "seat")[2]}
    assert stage.bind(stage.pod(seat=1)) == "seat: 0 of 600 free, 1 asked"
    stage.time.now += HOUR
    assert stage.bind(stage.pod(seat=3)) == ""
    stage.check_well()


@pytest.fixture
def unnamed(stage: PoolsStage, monkeypatch: pytest.MonkeyPatch) -> BindingCall:
    """A pod whose 8 units have no names, though all of the pool's 9 have some by now; its stripe lists one,
    and the other stripe, which lists 8, has given one of them."""
    for module in (allocation, capacity):
        monkeypatch.setattr(module, "STRIPE", 8)
    waits = {"reuseAfterSeconds": HOUR, "sticky": {"by": "Pod", "forSeconds": 2 * HOUR}}
    stage.pools(slot={"scope": "Cluster", "capacity": {"perDomain": 9}, **waits})
    before = stage.bound_pod("web-0", slot=8)
    stage.pools(slot={"scope": "Cluster", "units": {"*": [f"s{number}" for number in range(9)]}, **waits})
    stage.bound_pod(slot=1)
    return before


@CHEAP
def test_units_without_names_rest_on_where_the_room_for_them_goes(
    stage: PoolsStage, unnamed: BindingCall
) -> None:
    """The names that may be given for them are another stripe's."""
    stage.gone(unnamed)
    assert stage.free("slot", "*") == (0, 9)
    waiter = stage.pod(slot=1)
    assert stage.bind(waiter) == "slot: 0 of 9 free, 1 asked"
    stage.time.now += HOUR
    assert stage.bind(waiter) == "slot: 0 of 9 free, 1 asked"  # kept for web-0
    stage.time.now += HOUR
    assert stage.bind(waiter) == ""
    assert stage.bind(stage.pod(slot=7)) == ""
    stage.check_well()


@CHEAP
def test_units_without_names_are_kept_where_the_room_for_them_goes(
    stage: PoolsStage, unnamed: BindingCall
) -> None:
    stage.gone(unnamed)
    stage.time.now += HOUR
    again = stage.pod("web-0", slot=8)
    assert stage.bind(again) == ""
    assert len(stage.of(again, "slot")[2]) == 8
    stage.check_well()


@CHEAP
def test_a_unit_that_was_reserved_by_whom_it_was_kept_for_waits_once(stage: PoolsStage) -> None:
    """A pod that goes before its Binding leaves what was kept for it, and no unit more."""
    stage.pools(ip={"units": {"n1": ["a1", "a2"]}, "sticky": {"by": "Pod", "forSeconds": 60}})
    stage.gone(stage.bound_pod("web-0", ip=1))
    again = stage.pod("web-0", ip=1)
    stage._ledger(stage.store).reserve(stage.claim(stage.get(again.name), "n1"))
    stage.gone(again)
    assert stage.free("ip", "n1") == (1, 2)
    left = decode_domain(stage.store.changes(None).documents[f"{DOMAIN}ip/n1"]).retained
    assert [each.units for each in left] == [("a1",)]


REJECTED = {"phase": "Failed", "reason": "OutOfcpu", "startTime": "2026-01-01T00:00:05Z"}
"""What a kubelet writes that refuses a pod; it writes when it saw the pod first too."""

WAITS: Any = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
NEVER_RAN = [
    REJECTED,
    {**REJECTED, "reason": "UnexpectedAdmissionError", "containerStatuses": []},
    {**REJECTED, "reason": "DeadlineExceeded", "containerStatuses": [WAITS]},
    {**REJECTED, "containerStatuses": [{**WAITS, "restartCount": 0, "started": False, "lastState": {}}]},
    {**REJECTED, "initContainerStatuses": [WAITS], "containerStatuses": [WAITS]},
    {**REJECTED, "podIP": "", "podIPs": []},
]
ENDED = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:09Z"}}
MAY_HAVE_RUN = [
    {**REJECTED, "phase": "Succeeded"},
    {**REJECTED, "containerStatuses": [{"name": "main", "state": ENDED}]},
    {**REJECTED, "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    {**REJECTED, "containerStatuses": [WAITS, {"name": "other", "state": ENDED}]},
    {**REJECTED, "containerStatuses": [{**WAITS, "lastState": ENDED}]},
    {**REJECTED, "containerStatuses": [{**WAITS, "restartCount": 1}]},
    {**REJECTED, "containerStatuses": [{**WAITS, "started": True}]},
    {**REJECTED, "containerStatuses": [{**WAITS, "containerID": "containerd://1"}]},
    {**REJECTED, "initContainerStatuses": [{"name": "init", "state": ENDED}], "containerStatuses": [WAITS]},
    {**REJECTED, "initContainerStatuses": [{"name": "sidecar", "state": {"running": {}}}]},
    {**REJECTED, "ephemeralContainerStatuses": [{"name": "debug", "state": ENDED}]},
    {**REJECTED, "containerStatuses": [WAITS], "podIP": "10.0.3.17"},
    {**REJECTED, "podIPs": [{"ip": "10.0.3.17"}]},
    {**REJECTED, "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]},
]

ENDS: dict[str, Callable[[PoolsStage, BindingCall], object]] = {
    "release": lambda stage, call: stage.event_of(stage.get(call.name), "update"),
    "reconcile": lambda stage, _: stage.reconcile(),
}


def ended(stage: PoolsStage, status: Any, how: str) -> tuple[str, ...]:
    """The units of a pod that was bound and whose status was written then, after the event or a reconcile."""
    call = stage.bound_pod(ip=3)
    units = stage.of(call, "ip")[2]
    stage.status_of(call.name, status)
    ENDS[how](stage, call)
    assert call.name not in stage.held()
    return units


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("status", NEVER_RAN)
def test_units_of_a_pod_of_which_nothing_ran_do_not_rest(stage: PoolsStage, status: Any, how: str) -> None:
    for _ in range(5):  # a kubelet refuses one pod after the other
        assert ended(stage, status, how) == ("a1", "a2", "a3")
    assert stage.free("ip", "n1") == (3, 3)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("status", MAY_HAVE_RUN)
def test_units_of_a_pod_of_which_something_may_have_run_rest(
    stage: PoolsStage, status: Any, how: str
) -> None:
    ended(stage, status, how)
    assert stage.why(stage.pod(ip=1), "n1") == {"n1": FULL}
    stage.time.now += HOUR
    assert stage.free("ip", "n1") == (0, 3) or stage.bind(stage.pod(ip=1)) == ""


def test_what_an_event_says_of_a_pod_that_is_gone_ends_no_rest(stage: PoolsStage) -> None:
    """Anybody may write it who reaches release."""
    call = stage.bound_pod(ip=3)
    stage.status_of(call.name, {**REJECTED})
    pod = stage.get(call.name)
    stage.delete(call)
    stage.event_of(pod, "delete")
    assert stage.why(stage.pod(ip=1), "n1") == {"n1": FULL}


@CHEAP
def test_what_an_event_says_of_a_pod_that_ran_ends_no_rest(stage: PoolsStage) -> None:
    call = stage.bound_pod(ip=3)
    stage.status_of(call.name, {**REJECTED, "podIP": "10.0.3.17"})
    pod = stage.get(call.name)
    stage.event_of(msgspec.structs.replace(pod, status=PodStatus("Failed")), "update")
    assert stage.why(stage.pod(ip=1), "n1") == {"n1": FULL}


@CHEAP
def test_a_kubelet_that_was_restarted_and_refuses_what_ran_before_ends_no_rest(stage: PoolsStage) -> None:
    """It writes the status anew, without containers and addresses: the time of its write is what tells."""
    for seconds, rest in ((3, False), (300, True)):
        call = stage.bound_pod(ip=3)
        bound = stage.time.now
        stage.status_of(call.name, {**REJECTED, "conditions": [scheduled(bound)]}, written=bound + seconds)
        stage.event_of(stage.get(call.name), "update")
        assert (stage.free("ip", "n1") == (3, 3)) is not rest


def scheduled(at: float) -> dict[str, str]:
    return {"type": "PodScheduled", "status": "True", "lastTransitionTime": utc(at)}


@CHEAP
def test_what_is_kept_for_a_pod_that_never_ran_is_kept_for_the_next(stage: PoolsStage) -> None:
    stage.pools(slot={**POOLS["slot"], "reuseAfterSeconds": HOUR})
    call = stage.bound_pod("web-0", slot=2)
    stage.status_of(call.name, REJECTED)
    stage.event_of(stage.get(call.name), "update")
    assert stage.why(stage.pod(slot=1), "n1") == {"n1": "slot: 0 of 2 free, 1 asked"}
    stage.delete(call)
    assert stage.bind(stage.pod("web-0", slot=2)) == ""


@CHEAP
def test_a_pod_that_is_refused_while_it_is_bound_leaves_no_rest(stage: PoolsStage) -> None:
    """The Binding's answer is lost, and the kubelet has refused the pod by the time that bind looks."""
    call, bind = stage.pod(ip=3), stage.cluster.bind

    def lose(*arguments: Any) -> None:
        bind(*arguments)
        stage.status_of(call.name, REJECTED)
        raise DOWN

    with mock.patch.object(stage.cluster._cluster, "bind", lose):
        stage.bind(call)
    assert stage.free("ip", "n1") == (3, 3)
    assert stage.bind(stage.pod(ip=3)) == ""
