"""What preempt keeps and what adoption believes, in random small ledgers in memory; on real stores they are
in test_preemption.py and test_named.py."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from berth.controller.adopt import held_by
from berth.errors import RefusedError
from berth.handlers.preempt import Preempt
from berth.http.extender_v1 import PreemptionCall, Victims
from berth.kube.types import Container, Meta, Pod, PodSpec, Resources
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.scheduling.demand import Terms
from tests.properties.memory import MemoryStore
from tests.support.builders.ledgers import Time, ledger_on, reopen
from tests.support.builders.objects import pool

NODES = ("n1", "n2")
USED_IP = "example.com/ip"
LISTS = {"n1": ("a", "b"), "n2": ("c",)}

Held = Sequence[tuple[str, int]]
Said = tuple[str, int, list[str]]
"""A running pod: its node, how many units it asks for, and which ones it says that it uses."""

nodes = st.sampled_from(NODES)
held = st.lists(st.tuples(nodes, st.integers(1, 2)), max_size=5)
said = st.lists(
    st.tuples(nodes, st.integers(1, 2), st.lists(st.sampled_from(["a", "b", "c", "x"]), max_size=2)),
    max_size=5,
)


def a_pod(
    name: str, resource: str, count: int, node: str | None = None, uses: str = "", priority: int = 0
) -> Pod:
    containers = [Container(Resources(requests={resource: str(count)}))]
    spec = PodSpec(containers=containers, node_name=node, priority=priority)
    return Pod(Meta(name=name, namespace="d", uid=name, annotations={USED_IP: uses}), spec)


def a_claim(uid: str, node: str, count: int, priority: int | None = None) -> Claim:
    holdings = (Holding("k80", node, count),)
    return Claim(
        uid=uid, namespace="d", name=uid, node=node, holdings=holdings, attempt="a", priority=priority
    )


def reserved(ledger: Ledger, uid: str, node: str, count: int, priority: int | None = None) -> bool:
    try:
        ledger.confirm(ledger.reserve(a_claim(uid, node, count, priority)))
    except RefusedError:
        return False
    return True


def ledger_of(capacity: int, holders: Held, priorities: Sequence[int | None] = (None,) * 5) -> Ledger:
    """Native units on two nodes, held by as many of these pods as fit."""
    store = MemoryStore()
    reopen(store, {("k80", node): capacity for node in NODES})
    ledger = ledger_on(store)
    ledger.apply_pools({"k80": pool(name="k80", preemption="Native", capacity={"perDomain": capacity})})
    for number, (node, count) in enumerate(holders):
        reserved(ledger, f"low-{number}", node, count, priorities[number])
    return ledger


def chosen(holders: Held, evicted: set[int], node: str) -> list[str]:
    """The pods of this node among those to be evicted."""
    there = [number for number, (where, _) in enumerate(holders) if where == node]
    return [f"low-{number}" for number in there if number in evicted]


@given(st.integers(1, 3), held, st.sets(st.integers(0, 4)), st.integers(1, 3))
def test_preempt_keeps_whole_just_those_candidates_whose_victims_make_room(
    capacity: int, holders: Held, evicted: set[int], asked: int
) -> None:
    victims = {node: Victims(uids) for node in NODES if (uids := tuple(chosen(holders, evicted, node)))}
    fitting = {}
    for node, some in victims.items():
        after = ledger_of(capacity, holders)
        for uid in some.uids:
            after.release(uid)
        if reserved(after, "high", node, asked):
            fitting[node] = some
    call = PreemptionCall(a_pod("high", "native.berth.dev/k80", asked), victims)
    assert dict(Preempt(ledger_of(capacity, holders), Time()).run(call)) == fitting


@given(said)
def test_what_running_pods_say_they_use_is_believed_only_where_it_is_listed_and_free(
    pods: list[Said],
) -> None:
    store = MemoryStore()
    reopen(store, {})
    ledger = ledger_on(store)
    ledger.set_capacities({("ip", node): units for node, units in LISTS.items()}, {})
    found = pool(name="ip", adoptFrom=USED_IP, capacity=None, units={**LISTS})
    terms = Terms({"ip": found}, {}, {})
    free = {unit for units in LISTS.values() for unit in units}
    for number, (node, count, uses) in enumerate(pods):
        pod = a_pod(f"p{number}", "berth.dev/ip", count, node, ",".join(uses))
        claim = held_by(pod, terms, 1.0)
        assert claim is not None
        before = {each.uid: each for each in ledger.view().claims()}
        ledger.adopt_all([claim])
        after = {each.uid: each for each in ledger.view().claims()}
        mine = after.pop(pod.metadata.uid)
        assert after == before
        assert sum(each.count for each in mine.holdings) == count
        named = {unit for _, unit in mine.units}
        assert named <= free & {*uses}
        free -= named


@given(st.integers(1, 4), held, st.lists(st.integers(0, 3), min_size=5, max_size=5), st.integers(1, 4))
def test_chosen_victims_make_room_are_less_important_and_none_is_too_many(
    capacity: int, holders: Held, priorities: list[int], asked: int
) -> None:
    ledger = ledger_of(capacity, holders, priorities)
    held_by_uid = {claim.uid: claim for claim in ledger.view().claims()}
    high = a_pod("high", "native.berth.dev/k80", asked, priority=2)
    answer = Preempt(ledger, Time()).run(PreemptionCall(high, {"n1": Victims(())}))
    there = [claim for claim in held_by_uid.values() if claim.node == "n1"]
    free = capacity - sum(claim.holdings[0].count for claim in there)
    sizes = {claim.uid: claim.holdings[0].count for claim in there if (claim.priority or 0) < 2}
    if free >= asked or free + sum(sizes.values()) < asked:
        assert answer == {}
        return
    victims = set(answer["n1"].uids)
    assert victims <= sizes.keys()
    assert free + sum(sizes[uid] for uid in victims) >= asked
    for uid in victims:
        assert free + sum(sizes[other] for other in victims - {uid}) < asked, f"{uid} is too many"
    lowest = {uid for uid in sizes if (held_by_uid[uid].priority or 0) == 0}
    if free + sum(sizes[uid] for uid in lowest) >= asked:
        assert victims <= lowest
        fewest = next(
            number
            for number in range(1, 6)
            if free + sum(sorted((sizes[uid] for uid in lowest), reverse=True)[:number]) >= asked
        )
        assert len(victims) == fewest
