"""What stands in nodes' status for kube-scheduler to preempt by: written where it differs, and nothing else.
That inventory and reconcile do so on a real API server is shown by tests/e2e/test_evictions.py."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from berth.api.pool import Capacity, Pool, PoolSpec
from berth.controller.node_status import publish_native
from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.kube.types import Meta, Node, NodeStatus, Quantity
from berth.ledger.ledger import Ledger
from berth.stores.sqlite import SqliteStore
from tests.properties.bugs import a_node_shows_its_capacity_though_its_pods_hold_more
from tests.support.builders.ledgers import claim, ledger_on, resize

K80, OLD = "native.berth.dev/k80", "native.berth.dev/old"
NAMED = Pool("gpu", "native.berth.dev/gpu", PoolSpec(units={"n1": ("a", "b", "c")}, preemption="Native"))


class Statuses:
    """Stands in for the cluster: what was written, by node."""

    def __init__(self, fails: Callable[[str], None] = lambda _: None) -> None:
        self.written: dict[str, Any] = {}
        self._fails, self._lock = fails, threading.Lock()

    def set_node_status(self, name: str, status: Mapping[str, Any]) -> None:
        self._fails(name)
        with self._lock:
            assert name not in self.written
            self.written[name] = status


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Of Pools with native preemption k80 has 2 on n1, 1,000 on n2, gpu three names on n1; ip is another."""
    store = SqliteStore(tmp_path / "ledger.db")
    found = ledger_on(store, while_closed=True)
    pools = (
        Pool("k80", K80, PoolSpec(capacity=Capacity(per_domain=2), preemption="Native")),
        Pool("ip", "berth.dev/ip", PoolSpec(capacity=Capacity(per_domain=5))),
    )
    found.apply_pools({pool.name: pool for pool in (*pools, NAMED)})
    resize(found, {("k80", "n1"): 2, ("k80", "n2"): 1000, ("ip", "n1"): 5, ("ip", "n2"): 5})
    found.set_capacities({("gpu", "n1"): ("a", "b", "c")}, {})
    yield found
    store.close()


def node(
    name: str, capacity: Mapping[str, Quantity] | None, allocatable: Mapping[str, Quantity] | None = None
) -> Node:
    given = [None if each is None else dict(each) for each in (capacity, allocatable or capacity)]
    return Node(Meta(name=name), status=NodeStatus(capacity=given[0], allocatable=given[1]))


def published(ledger: Ledger, *nodes: Node) -> dict[str, Any]:
    statuses = Statuses()
    assert publish_native(ledger, statuses, nodes) == []  # type: ignore[arg-type]
    assert all(found["capacity"] == found["allocatable"] for found in statuses.written.values())
    return {name: found["capacity"] for name, found in statuses.written.items()}


def test_a_node_s_status_gets_the_capacity_of_pools_with_native_preemption_and_no_others(
    ledger: Ledger,
) -> None:
    assert published(ledger, node("n1", {"cpu": "4"}), node("n2", None), node("n3", None)) == {
        "n1": {K80: "2", "native.berth.dev/gpu": "3"},
        "n2": {K80: "1000"},
    }


def test_a_status_that_says_so_already_is_not_written_in_whatever_form_it_says_it(ledger: Ledger) -> None:
    right = {K80: "1k", "cpu": "4", "berth.dev/ip": "7"}
    assert published(ledger, node("n2", right), node("n2", {**right, K80: 1000})) == {}


@pytest.mark.parametrize(
    ("capacity", "allocatable"),
    [
        ({K80: "1k"}, {"cpu": "4"}),
        ({"cpu": "4"}, {K80: "1k"}),
        ({K80: "0"}, {K80: "0"}),
        ({K80: "1k"}, {K80: "999"}),
        ({K80: "1k"}, {K80: "many"}),
    ],
)
def test_what_a_kubelet_or_a_person_wrote_over_it_is_mended(
    ledger: Ledger, capacity: Mapping[str, Quantity], allocatable: Mapping[str, Quantity]
) -> None:
    assert published(ledger, node("n2", capacity, allocatable)) == {"n2": {K80: "1000"}}


def test_what_no_pool_has_any_more_is_removed_from_its_nodes(ledger: Ledger) -> None:
    stale = {K80: "1k", OLD: "5"}
    assert published(ledger, node("n2", stale), node("n3", {OLD: "0"})) == {
        "n2": {OLD: None},
        "n3": {OLD: None},
    }
    ledger.apply_pools({})
    assert published(ledger, node("n2", {K80: "1k"})) == {"n2": {K80: None}}


def held_on(ledger: Ledger, node: str, *uids: str, pool: str = "k80") -> None:
    for uid in uids:
        ledger.adopt(claim(uid, node, **{pool: 1}))


def lowered_below_use(ledger: Ledger) -> dict[str, Any]:
    """What is published of a node where four are held, and two are there now."""
    held_on(ledger, "n2", "a", "b", "c", "d")
    resize(ledger, {("k80", "n2"): 2})
    return published(ledger, node("n2", {K80: "1k"}))


def test_that_less_is_published_than_pods_hold_is_seen(ledger: Ledger) -> None:
    with a_node_shows_its_capacity_though_its_pods_hold_more():
        assert lowered_below_use(ledger) == {"n2": {K80: "2"}}


def test_a_capacity_that_is_lowered_below_use_is_published_as_what_the_pods_hold(ledger: Ledger) -> None:
    assert lowered_below_use(ledger) == {"n2": {K80: "4"}}
    ledger.release("a")
    assert published(ledger, node("n2", {K80: "4"})) == {"n2": {K80: "3"}}
    for uid in ("b", "c"):
        ledger.release(uid)
    assert published(ledger, node("n2", {K80: "3"})) == {"n2": {K80: "2"}}


def test_a_reservation_that_may_be_bound_counts_and_a_lost_claim_does_not(ledger: Ledger) -> None:
    held_on(ledger, "n1", "a", "b")
    ledger.release("b", hold=["k80"], hold_as="lost")
    resize(ledger, {("k80", "n1"): 3})
    reserving = ledger_on(ledger._store, while_closed=True)
    reserving.reserve(claim("c", "n1", k80=1))
    resize(ledger, {("k80", "n1"): 1})
    assert published(ledger, node("n1", None))["n1"][K80] == "2"


@pytest.mark.parametrize("gone", ["the node's share", "the Pool"])
def test_what_pods_hold_of_what_is_there_no_more_stays_published(ledger: Ledger, gone: str) -> None:
    held_on(ledger, "n2", "a", "b")
    resize(ledger, {("k80", "n2"): None})
    if gone == "the Pool":
        ledger.apply_pools({})
    assert published(ledger, node("n2", {K80: "1k"})) == {"n2": {K80: "2"}}
    assert published(ledger, node("n2", {K80: "2"})) == {}
    for uid in ("a", "b"):
        ledger.release(uid)
    assert published(ledger, node("n2", {K80: "2"})) == {"n2": {K80: None}}


def test_a_refusal_is_a_problem_and_keeps_no_other_node_from_its_own(ledger: Ledger) -> None:
    def fails(name: str) -> None:
        if name != "n2":
            raise ClusterRefusedError(f"no writing to {name}", 404 if name == "gone" else 403)

    resize(ledger, {("k80", "gone"): 1})
    statuses = Statuses(fails)
    nodes: Sequence[Node] = [node(name, None) for name in ("n1", "n2", "gone")]
    assert publish_native(ledger, statuses, nodes) == [  # type: ignore[arg-type]
        "node n1: what preemption counts was not written into its status: no writing to n1"
    ]
    assert set(statuses.written) == {"n2"}


def test_a_node_whose_status_a_webhook_keeps_from_being_written_does_not_keep_the_others_from_it(
    ledger: Ledger,
) -> None:
    def fails(name: str) -> None:
        if name == "n1":
            raise ClusterUnavailableError("500: a webhook is down")

    statuses = Statuses(fails)
    nodes: Sequence[Node] = [node(name, None) for name in ("n1", "n2")]
    assert publish_native(ledger, statuses, nodes) == [  # type: ignore[arg-type]
        "node n1: what preemption counts was not written into its status: 500: a webhook is down"
    ]
    assert set(statuses.written) == {"n2"}
