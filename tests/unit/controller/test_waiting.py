"""Who waits, why, and where in line: rows from pods and a View made by hand.

`berth waiting` itself: tests/cli/test_waiting.py; beside a real kube-scheduler: tests/e2e/test_waiting.py.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from berth.api.poolclaim import CLAIMS
from berth.controller.waiting import Seen, Waiting, WaitingRow, waiting
from berth.kube.types import PodInFull
from berth.ledger.keys import domain_key, poolclaim_quota
from berth.ledger.model import Domain, PoolClaimSpec, RetainedUnits, encode
from berth.ledger.view import View
from tests.support.builders.objects import pool
from tests.unit.cli.test_tables import claim, view_of
from tests.unit.ledger.test_report import domain
from tests.unit.ledger.test_report import view_of as one_pool

NOW = 1_767_226_200.0  # 2026-01-01T00:10:00Z
ASKS = "ip: 0 of 2 free, 1 asked"
SAID = "0/3 nodes are available: 3 Insufficient cpu."
TRIED = f"kube-scheduler, which said last: {SAID}"


def pod(
    name: str, *, minute: int = 8, second: int = 30, said: str | None = SAID, ip: int | None = 1, **spec: Any
) -> PodInFull:
    """A pod that asks for units of `ip`, made in that minute; `said` is what kube-scheduler says of it."""
    asked = {"berth.dev/ip": str(ip)} if ip else {}
    asked |= {f"berth.dev/{pool}": str(count) for pool, count in spec.pop("more", {}).items()}
    condition = {"type": "PodScheduled", "status": "False", "message": said}
    document = {
        "metadata": {
            "name": name,
            "namespace": spec.pop("namespace", "d"),
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:{minute:02}:{second:02}Z",
        },
        "spec": {"schedulerName": "berth", "containers": [{"resources": {"requests": asked}}], **spec},
        "status": {"phase": "Pending", "conditions": [condition] if said is not None else None},
    }
    return msgspec.convert(document, PodInFull)


def full() -> View:
    """Two units of `ip` on n1, both held; three of `seat`, all free."""
    return view_of({("ip", "n1"): 2, ("seat", "n1"): 3}, claim("holder", ip=2))


def free(units: int = 1) -> View:
    return view_of({("ip", "n1"): units, ("seat", "n1"): 3})


def seen(*pods: PodInFull, view: View, cordoned: tuple[str, ...] = (), **only: Any) -> Waiting:
    return waiting(Seen(pods, view, NOW, cordoned), ("berth",), **only)


def told(found: Waiting) -> list[tuple[int | None, str, str, str, str]]:
    return [(row.place, row.pod, row.pool, row.state, row.why) for row in found.pods]


def row(found: Waiting, name: str) -> WaitingRow:
    return next(row for row in found.pods if row.pod == name)


def test_pods_stand_in_line_by_priority_then_by_age_each_with_what_filter_says() -> None:
    found = seen(pod("b", second=2), pod("a", second=1), pod("first", priority=7), view=full())
    assert told(found) == [
        (1, "first", "ip", "waiting", ASKS),
        (2, "a", "ip", "waiting", ASKS),
        (3, "b", "ip", "waiting", ASKS),
    ]
    assert str(found.summary) == "3 pods wait for 1 pool; none could be placed now"
    assert [(reason.text, reason.pods) for reason in found.reasons] == [(ASKS, 3)]
    assert (found.problems, found.remarks) == ((), ())


def test_a_pod_that_asks_for_two_pools_has_a_row_and_a_place_in_each() -> None:
    found = seen(pod("a", more={"seat": 2}), pod("b", ip=None, more={"seat": 1}, priority=1), view=full())
    assert told(found) == [
        (1, "a", "ip", "waiting", ASKS),
        (
            1,
            "b",
            "seat",
            "placeable",
            f"could be placed now; it waits for {TRIED}",
        ),
        (2, "a", "seat", "waiting", ASKS),
    ]
    assert str(found.summary) == "2 pods wait for 2 pools; 1 could be placed now"


def test_where_units_are_free_kube_scheduler_s_own_words_say_why_without_those_on_preemption() -> None:
    found = seen(pod("a", said=f"{SAID} preemption: 0/3 nodes are available."), view=free())
    why = f"could be placed now; it waits for kube-scheduler, which said last: {SAID}"
    assert told(found) == [(1, "a", "ip", "placeable", why)]
    assert seen(pod("a", said=None), view=free()).pods[0].why == (
        "could be placed now; it waits for kube-scheduler to try it"
    )


def test_of_more_pods_than_there_are_units_those_behind_wait_for_those_before() -> None:
    found = seen(pod("b", second=2), pod("a", second=1), pod("c", second=3), view=free(2))
    assert [(row.pod, row.state) for row in found.pods] == [
        ("a", "placeable"),
        ("b", "placeable"),
        ("c", "waiting"),
    ]
    assert row(found, "c").why == "ip: what is free is for the pods before it in line"


def placeable(view: View, *pods: PodInFull) -> list[str]:
    return [row.pod for row in seen(*pods, view=view).pods if row.state == "placeable"]


def test_a_namespace_s_limit_lets_no_more_be_placed_than_filter_does() -> None:
    pods = pod("a", second=1), pod("b", second=2), pod("c", namespace="e")
    view = one_pool(pool("ip", limits={"d": 1}), n1=domain(3))
    assert placeable(view, *pods) == ["a", "c"]
    why = "ip: what is free is for the pods before it in line"
    assert row(seen(*pods, view=view), "b").why == why


def test_units_that_are_kept_can_be_placed_with_whom_they_are_kept_for() -> None:
    left = (RetainedUnits(1, owner="d/web-0", kept_until=NOW + 9),)
    sticky = pool("ip", sticky={"by": "Pod", "forSeconds": 9})
    pods = pod("a", second=1), pod("b", second=2), pod("web-0", second=3)
    assert placeable(one_pool(sticky, n1=domain(2, left=left)), *pods) == ["a", "web-0"]


def test_a_poolclaim_is_for_one_of_the_pods_that_name_it() -> None:
    view = one_pool(pool("ip"), n1=domain(3))
    view.update({domain_key("ip", poolclaim_quota("d/x")): encode(Domain(1, poolclaim=PoolClaimSpec(1)))})
    pods = [
        msgspec.structs.replace(
            each, metadata=msgspec.structs.replace(each.metadata, annotations={CLAIMS: "x"})
        )
        for each in (pod("a", second=1), pod("b", second=2))
    ]
    assert placeable(view, *pods, pod("c")) == ["a", "c"]


def test_units_on_two_nodes_are_no_room_for_one_pod() -> None:
    view = one_pool(pool("ip"), n1=domain(3), n2=domain(3))
    assert placeable(view, *(pod(name, second=second, ip=2) for second, name in enumerate("abc"))) == [
        "a",
        "b",
    ]


def test_what_is_free_on_cordoned_nodes_alone_can_place_nobody_but_who_goes_there() -> None:
    tolerates = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    found = seen(pod("a"), pod("b", second=59, tolerations=tolerates), view=free(), cordoned=("n1",))
    assert (row(found, "a").state, row(found, "a").why) == (
        "waiting",
        "ip: what is free is on cordoned nodes",
    )
    assert row(found, "b").state == "placeable"


def test_reasons_that_differ_from_node_to_node_are_told_with_the_number_of_nodes() -> None:
    view = view_of(
        {("ip", "n1"): 1, ("ip", "n2"): 1, ("ip", "n3"): 0}, claim("x", ip=1), claim("y", node="n2", ip=1)
    )
    assert seen(pod("a", ip=2), view=view).pods[0].why == (
        "ip: 0 of 1 free, 2 asked (2 nodes); ip: 0 of 0 free, 2 asked (1 node)"
    )


def test_a_pool_that_no_node_has_is_told_once() -> None:
    assert seen(pod("a"), view=view_of({})).pods[0].why == "ip: none on any node"


def test_a_closed_ledger_is_why_everybody_waits() -> None:
    found = waiting(Seen([pod("a")], free(), NOW, closed="the ledger is being copied"), ("berth",))
    assert told(found) == [(1, "a", "ip", "waiting", "the ledger is being copied")]


def test_a_pod_that_is_being_bound_is_in_no_line() -> None:
    view = view_of({("ip", "n1"): 2}, claim("a", "reserved", ip=1), pools=("ip",))
    found = seen(pod("a", said=None), pod("b"), view=view)
    assert told(found)[1] == (None, "a", "ip", "reserved", "its units are reserved on n1: it is being bound")
    assert (row(found, "b").place, row(found, "b").state) == (1, "placeable")


def test_a_pod_with_a_seat_is_told_so() -> None:
    seat = replace(claim("a", "reserved", ip=1), attempt="", gang="train")
    found = seen(pod("a", said=None), view=view_of({("ip", "n1"): 2}, seat, pools=("ip",)))
    why = "its units are reserved on n1: it has a seat with its gang"
    assert told(found) == [(None, "a", "ip", "reserved", why)]


@pytest.mark.parametrize(
    ("odd", "state", "why"),
    [
        (
            pod("odd", ip=None),
            "noPool",
            f"asks for no pool: why has it the schedulerName berth? it waits for {TRIED}",
        ),
        (
            pod("odd", schedulingGates=[{"name": "example.com/later"}]),
            "gated",
            "has scheduling gates (example.com/later): it is in no scheduler's queue",
        ),
        (
            pod("odd", ip=None, more={"typo": 1}),
            "refused",
            "berth.dev/typo: no Pool has this resource; there are: berth.dev/ip, berth.dev/seat",
        ),
    ],
)
def test_who_waits_for_something_else_is_told_apart_and_has_no_place(
    odd: PodInFull, state: str, why: str
) -> None:
    found = seen(odd, pod("a", second=59), view=full())
    assert (row(found, "odd").place, row(found, "odd").state, row(found, "odd").why) == (None, state, why)
    assert row(found, "a").place == 1
    others = "; 1 more in no pool's line (scheduling gates, or they ask for no pool)"
    assert str(found.summary).endswith(others) == (state != "refused")


@pytest.mark.parametrize("over", [{"nodeName": "n1"}, {"schedulerName": "other"}])
def test_pods_that_are_bound_or_another_scheduler_s_have_no_row(over: Mapping[str, Any]) -> None:
    assert seen(pod("a", **over), view=full()).pods == ()


def test_pods_that_ask_for_a_pool_under_another_schedulers_name_are_remarked_on() -> None:
    others = [pod(name, schedulerName="default-scheduler") for name in ("b", "a")]
    found = seen(
        *others,
        pod("c", ip=None, more={"nil": 1}, schedulerName="x"),
        pod("d", ip=None, schedulerName="x"),
        view=full(),
    )
    why = "not berth: Berth never counts nor places it"
    assert found.remarks == (
        f"d/a and 1 more: asks for ip, but its schedulerName is default-scheduler, {why}",
        f"d/c: asks for berth.dev/nil, but its schedulerName is x, {why}",
    )
    assert seen(*others, view=full(), namespace="elsewhere").remarks == ()
    assert seen(*others, view=full(), pool="seat").remarks == ()


def test_one_namespace_or_pool_keeps_the_places_among_all() -> None:
    pods = [pod("a", second=1), pod("b", second=2, namespace="e"), pod("c", ip=None, more={"seat": 1})]
    assert told(seen(*pods, view=full(), namespace="e")) == [(2, "b", "ip", "waiting", ASKS)]
    found = seen(*pods, view=full(), pool="seat")
    assert [(row.pod, row.pool) for row in found.pods] == [("c", "seat")]
    assert str(found.summary) == "1 pod waits for 1 pool; 1 could be placed now"


def test_a_scheduler_that_has_tried_nobody_for_two_minutes_is_a_problem() -> None:
    pods = [pod("late", minute=8, second=0, said=None), pod("a", minute=6, second=59, said=None)]
    found = seen(*pods, pod("early", minute=5), view=full())
    (problem,) = found.problems
    assert problem == (
        "no scheduler named berth has tried pod d/a (nor 1 more) for 3 min since it was made: is "
        "kube-scheduler running with this schedulerName?"
    )
    assert [row.tried for row in found.pods] == [True, False, False]


@pytest.mark.parametrize(
    "pods",
    [
        [pod("a", minute=8, second=1, said=None)],
        [pod("a", minute=5, said=None), pod("later", minute=6)],
        [pod("a", minute=5, said=None, schedulingGates=[{"name": "g"}])],
    ],
    ids=["it is younger", "one that came later was tried: the queue is long", "it is in no queue"],
)
def test_a_scheduler_that_may_be_at_work_is_no_problem(pods: list[PodInFull]) -> None:
    assert seen(*pods, view=full()).problems == ()


def test_nobody_who_waits_is_told_so() -> None:
    assert str(seen(view=full()).summary) == "no pod waits for a pool"
