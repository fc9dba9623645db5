"""preempt over a ledger in a SQLite file: which candidates stay, and how long it waits for what was freed.
That kube-scheduler then evicts the right pods is shown by tests/e2e/test_evictions.py."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.api.pool import Capacity, Pool, PoolSpec, Reserved, Sticky
from berth.handlers import preempt
from berth.handlers.filter import run as filtered
from berth.handlers.preempt import Preempt
from berth.http.endpoint import Reply, respond
from berth.http.extender_v1 import Candidates, PreemptionCall, Victims
from berth.kube.types import Container, Meta, Pod, PodSpec, PodStatus, Resources
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.settings import Settings
from berth.stores.sqlite import SqliteStore
from tests.support.builders.ledgers import Time, ledger_on, resize
from tests.support.builders.objects import EVENTS

K80 = "native.berth.dev/k80"
IP = "berth.dev/ip"


def k80(**spec: Any) -> Pool:
    return Pool("k80", K80, PoolSpec(capacity=Capacity(per_domain=2), preemption="Native", **spec))


def ip(**spec: Any) -> Pool:
    return Pool("ip", IP, PoolSpec(capacity=Capacity(per_domain=2), **spec))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


class Scene:
    """n1 and n2 with two units each of k80 (preemption Native) and ip, or as told; UIDs are names."""

    def __init__(self, store: SqliteStore, *pools: Pool, sizes: Mapping[tuple[str, str], int] | None = None):
        self.time = Time()
        keeper = ledger_on(store, while_closed=True, time=self.time)
        mark = keeper.begin_rebuild("r1")
        every = pools or (k80(), ip())
        keeper.apply_pools({pool.name: pool for pool in every})
        plain = {(pool.name, node): 2 for pool in every for node in ("n1", "n2")}
        resize(keeper, {**plain, **(sizes or {})})
        keeper.open("e1", mark)
        self.ledger = ledger_on(store, time=self.time)
        self.verb = Preempt(self.ledger, self.time)

    def hold(
        self, name: str, node: str = "n1", owner: str = "", priority: int | None = None, **pools: int
    ) -> None:
        """A pod that is bound; its claim is as of an older version unless it has a priority."""
        holdings = tuple(Holding(pool, node, count) for pool, count in sorted((pools or {"k80": 1}).items()))
        claim = Claim(
            uid=name,
            namespace="team-a",
            name=name,
            node=node,
            holdings=holdings,
            owner=owner,
            priority=priority,
        )
        self.ledger.confirm(self.ledger.reserve(claim))

    def kept(self, requester: Pod, **victims: Sequence[str]) -> list[str]:
        call = PreemptionCall(requester, {node: Victims(tuple(uids)) for node, uids in victims.items()})
        found = self.verb.run(call)
        assert all(found[node] == call.victims[node] for node in found), "victims came back otherwise"
        return sorted(found)


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    found = SqliteStore(path)
    yield found
    found.close()


def pod(nominated: str | None = None, namespace: str = "team-a", priority: int = 0, **asked: int) -> Pod:
    names = {"k80": K80, "ip": IP, "gpu": "example.com/gpu"}
    requests = {names[name]: str(count) for name, count in (asked or {"k80": 1}).items()}
    spec = PodSpec(containers=[Container(Resources(requests=dict(requests)))], priority=priority)
    return Pod(Meta(name="high", namespace=namespace, uid="high"), spec, PodStatus("Pending", nominated))


def test_a_candidate_stays_where_its_victims_free_enough_and_is_dropped_where_they_do_not(
    store: SqliteStore,
) -> None:
    scene = Scene(store)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        scene.hold(name, node)
    assert scene.kept(pod(), n1=["a"], n2=["x"]) == ["n1"]
    assert scene.kept(pod(k80=2), n1=["a"], n2=["c", "d"]) == ["n2"]
    assert scene.kept(pod(k80=3), n1=["a", "b"]) == []


def test_victims_are_neither_trimmed_nor_added_to(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", k80=2)
    assert scene.kept(pod(), n1=["a", "b", "c"]) == ["n1"]


def test_a_candidate_whose_victims_hold_nothing_stays_if_the_pod_fits_as_it_is(store: SqliteStore) -> None:
    """It is CPU that is short there."""
    scene = Scene(store)
    scene.hold("a", "n1", k80=2)
    assert scene.kept(pod(), n1=["x"], n2=["x"]) == ["n2"]


def test_every_pool_that_the_pod_asks_counts(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, ip=1)
    scene.hold("b", "n2", k80=2)
    scene.hold("c", "n1", ip=1)
    scene.hold("d", "n2", ip=2)
    assert scene.kept(pod(k80=1, ip=1), n1=["a"], n2=["b"]) == ["n1"]


def test_a_node_where_more_is_used_than_there_is_stays_only_if_enough_would_be_left(
    store: SqliteStore,
) -> None:
    scene = Scene(store)
    scene.hold("a", k80=1)
    scene.hold("b", k80=1)
    resize(scene.ledger, {("k80", "n1"): 1})
    assert scene.kept(pod(), n1=["a"]) == []
    assert scene.kept(pod(), n1=["a", "b"]) == ["n1"]


def test_a_pod_that_asks_nothing_of_us_keeps_every_candidate_even_without_a_ledger(path: Path) -> None:
    with_nothing = Pod(Meta(name="z", uid="z"))
    call = PreemptionCall(with_nothing, {"n1": Victims(("a",))})
    with closing(SqliteStore(path)) as empty:
        assert Preempt(Ledger(empty)).run(call) == call.victims


def test_a_pod_that_asks_for_another_extended_resource_keeps_every_candidate(store: SqliteStore) -> None:
    assert Scene(store).kept(pod(gpu=1), n1=["a"], n9=["b"]) == ["n1", "n9"]


def test_nobody_is_evicted_for_a_pod_that_no_node_can_take(store: SqliteStore) -> None:
    scene = Scene(store, k80())
    assert scene.kept(pod(k80=1, ip=1), n1=["a"]) == []  # no Pool has berth.dev/ip


def test_a_suspended_domain_and_a_node_without_the_pool_are_dropped(store: SqliteStore) -> None:
    scene = Scene(store, k80(suspended=("n1",)))
    assert scene.kept(pod(), n1=["a"], n2=["b"], n9=["c"]) == ["n2"]
    scene.ledger.apply_pools({"k80": k80(suspended=True)})
    assert scene.kept(pod(), n1=["a"], n2=["b"]) == []


def test_a_namespace_s_limit_counts_and_the_victims_of_that_namespace_make_room_in_it(
    store: SqliteStore,
) -> None:
    scene = Scene(store, k80(limits={"team-a": 1, "*": 0}), sizes={("k80", "@team-a"): 1})
    both = (Holding("k80", "@team-a", 1), Holding("k80", "n1", 1))
    scene.ledger.reserve(Claim(uid="a", namespace="team-a", name="a", node="n1", holdings=both))
    assert scene.kept(pod(), n1=["a"], n2=["x"]) == ["n1"]
    assert scene.kept(pod(namespace="other"), n1=["a"], n2=["x"]) == []


def test_a_namespace_that_never_held_a_unit_may_have_its_limit(store: SqliteStore) -> None:
    scene = Scene(store, k80(limits={"*": 1}))
    assert scene.kept(pod(), n1=["x"]) == ["n1"]
    assert scene.kept(pod(k80=2), n1=["x"]) == []


def test_what_is_reserved_for_the_important_is_not_given_to_others(store: SqliteStore) -> None:
    reserved = Reserved(priority_at_least=1000, units=1)
    scene = Scene(store, k80(reserved=reserved), sizes={("k80", "n1<"): 1, ("k80", "n2<"): 1})
    both = (Holding("k80", "n1", 1), Holding("k80", "n1<", 1))
    scene.ledger.reserve(Claim(uid="a", namespace="team-a", name="a", node="n1", holdings=both))
    assert scene.kept(pod(priority=10), n1=["x"]) == []
    assert scene.kept(pod(priority=10), n1=["a"]) == ["n1"]
    assert scene.kept(pod(priority=1000), n1=["x"]) == ["n1"]


def test_nobody_is_evicted_whose_units_would_be_kept_for_its_own_successor(store: SqliteStore) -> None:
    scene = Scene(store, k80(sticky=Sticky(by="Pod", for_seconds=600)))
    scene.hold("web-0", k80=2)
    assert scene.kept(pod(), n1=["web-0"]) == []
    scene.ledger.apply_pools({"k80": k80(sticky=Sticky(by="Owner", for_seconds=600))})
    assert scene.kept(pod(), n1=["web-0"]) == ["n1"]  # it has no owner


def test_nobody_is_evicted_for_a_limit_that_counts_what_is_kept_for_its_successor(store: SqliteStore) -> None:
    sticky = Sticky(by="Owner", for_seconds=600)
    scene = Scene(store, k80(limits={"*": 1}, sticky=sticky), sizes={("k80", "@team-a"): 1})
    both = (Holding("k80", "@team-a", 1), Holding("k80", "n1", 1))
    scene.ledger.reserve(Claim(uid="a", namespace="team-a", name="a", node="n1", holdings=both, owner="web"))
    assert scene.kept(pod(), n1=["a"], n2=["a"]) == []
    scene.ledger.release("a")
    assert scene.kept(pod(), n1=["x"], n2=["x"]) == []


def test_while_the_nominated_node_has_claims_to_settle_nobody_else_is_evicted(store: SqliteStore) -> None:
    scene = Scene(store)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        scene.hold(name, node)
    waiting = pod(nominated="n1")
    assert scene.kept(waiting, n2=["c"]) == []
    scene.time.now += 60
    assert scene.kept(waiting, n2=["c"]) == []


def test_room_made_since_filter_looked_is_given_a_moment_too(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("c", "n2", k80=2)
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []


def test_a_nominated_node_that_stays_closed_to_the_pod_is_given_up_in_time(store: SqliteStore) -> None:
    """It was cordoned, or a more important pod took what was freed."""
    scene = Scene(store)
    scene.hold("c", "n2", k80=2)
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []
    scene.time.now += 5
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == ["n2"]
    scene.hold("more-important", "n1", k80=2)
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []
    scene.time.now += 89.9
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []
    scene.time.now += 0.1
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == ["n2"]


def test_units_that_rest_are_waited_for_as_long_as_they_rest(store: SqliteStore) -> None:
    scene = Scene(store, k80(reuse_after_seconds=300))
    scene.hold("a", "n1", k80=2)
    assert scene.kept(pod(), n1=["a"]) == ["n1"]
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []
    scene.time.now += 389
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []
    scene.time.now += 1
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == ["n2"]


def test_a_nominated_node_that_is_a_candidate_or_has_no_such_units_is_no_reason_to_wait(
    store: SqliteStore,
) -> None:
    scene = Scene(store, sizes={("k80", "n3"): 2})
    scene.hold("a", "n1", k80=2)
    scene.hold("c", "n2", k80=2)
    assert scene.kept(pod(nominated="n1"), n1=["a"], n2=["c"]) == ["n1", "n2"]
    scene.verb = Preempt(scene.ledger, scene.time)  # else a may have been evicted
    assert scene.kept(pod(nominated="gone"), n2=["c"]) == ["n2"]


def test_a_nomination_that_an_error_took_away_is_kept_in_mind(store: SqliteStore) -> None:
    """It was: one more victim, on another node, each time that filter failed in such a moment."""
    scene = Scene(store)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        scene.hold(name, node)
    assert scene.kept(pod(nominated="n1"), n2=["c"]) == []
    assert scene.kept(pod(), n2=["c"]) == []
    assert scene.kept(pod(), n1=["b"], n2=["c"]) == ["n1", "n2"]  # others took what was freed there


def test_so_is_where_pods_may_have_been_evicted_before_the_nomination_was_seen(store: SqliteStore) -> None:
    scene = Scene(store)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        scene.hold(name, node)
    assert scene.kept(pod(), n1=["a"], n2=["c"]) == ["n1", "n2"]
    assert scene.kept(pod(), n1=["a"], n2=["c"]) == ["n1", "n2"]  # nobody was evicted yet
    assert scene.kept(pod(), n2=["c"]) == []
    scene.ledger.release("a")
    assert scene.kept(pod(), n2=["c"]) == []  # room since filter looked
    scene.hold("more-important", "n1")
    assert scene.kept(pod(), n2=["c"]) == ["n2"]


def test_where_others_are_evicted_by_others_is_no_reason_to_wait(store: SqliteStore) -> None:
    scene = Scene(store)
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")):
        scene.hold(name, node)
    assert scene.kept(pod(), n1=["a"], n2=["c"]) == ["n1", "n2"]
    scene.ledger.release("a")
    scene.hold("more-important", "n1")
    assert scene.kept(pod(), n2=["c"]) == ["n2"]
    scene.ledger.release("c")
    scene.hold("as-important", "n2")
    assert scene.kept(pod(), n1=["b"]) == ["n1"]


def test_each_pod_waits_for_itself_and_so_do_many_in_bounded_memory(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2)
    scene.hold("c", "n2", k80=2)
    for number in range(1500):
        other = msgspec.structs.replace(pod(nominated="n1"), metadata=Meta(name="p", uid=f"p-{number}"))
        assert scene.kept(other, n2=["c"]) == []
        assert scene.kept(msgspec.structs.replace(other, status=PodStatus("Pending")), n1=["a"]) == ["n1"]
    assert len(scene.verb._since) <= 1000
    assert len(scene.verb._made) <= 1000


def test_a_nomination_to_a_node_of_more_important_pods_is_no_reason_to_wait(store: SqliteStore) -> None:
    """Others than kube-scheduler may nominate a pod for a node, which evicts nobody there."""
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, priority=2000)
    scene.hold("c", "n2", k80=2, priority=10)
    assert scene.kept(pod(nominated="n1", priority=1000), n2=["c"]) == ["n2"]


@pytest.mark.parametrize("priority", [1000, 1001])
def test_so_is_one_to_a_node_where_the_less_important_hold_too_little(
    store: SqliteStore, priority: int
) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=1, priority=priority)
    scene.hold("b", "n1", k80=1, priority=10)
    scene.hold("c", "n2", k80=2, priority=10)
    assert scene.kept(pod(nominated="n1", k80=2, priority=1000), n2=["c"]) == ["n2"]
    assert scene.kept(pod(nominated="n1", k80=1, priority=1000), n2=["c"]) == []  # b may have been evicted


def test_a_process_that_remembers_nothing_waits_where_less_important_pods_claims_would_make_room(
    store: SqliteStore,
) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, priority=10)
    scene.hold("c", "n2", k80=2, priority=10)
    waiting = pod(nominated="n1", priority=1000)
    assert scene.kept(waiting, n2=["c"]) == []
    scene.time.now += 89
    assert scene.kept(waiting, n2=["c"]) == []
    scene.time.now += 1
    assert scene.kept(waiting, n2=["c"]) == ["n2"]


def test_a_claim_that_is_lost_with_its_node_is_no_eviction_under_way(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, priority=10)
    scene.ledger.release("a", hold={"k80"})
    scene.hold("c", "n2", k80=2, priority=10)
    assert scene.kept(pod(nominated="n1", priority=1000), n2=["c"]) == ["n2"]


def test_a_nomination_for_one_node_takes_no_eviction_on_another_from_memory(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, priority=10)
    scene.hold("c", "n2", k80=2, priority=10)
    assert scene.kept(pod(priority=1000), n1=["a"]) == ["n1"]
    for nominated in ("gone", "n2", "gone", None):
        assert scene.kept(pod(nominated=nominated, priority=1000), n2=["c"]) == []


def test_victims_that_end_slowly_are_waited_for_after_an_error_took_the_nomination_away(
    store: SqliteStore,
) -> None:
    """With the nomination kube-scheduler waits by itself; claims have 30 s of grace unless they say more."""
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, priority=10)
    scene.hold("c", "n2", k80=2, priority=10)
    assert scene.kept(pod(priority=1000), n1=["a"]) == ["n1"]
    assert scene.kept(pod(priority=1000), n2=["c"]) == []
    scene.time.now += 119
    assert scene.kept(pod(priority=1000), n2=["c"]) == []
    scene.time.now += 1
    assert scene.kept(pod(priority=1000), n2=["c"]) == ["n2"]


def test_each_answer_is_waited_for_anew(store: SqliteStore) -> None:
    """It was not: what was evicted on a node for the second time was not waited for."""
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, priority=10)
    scene.hold("c", "n2", k80=2, priority=10)
    for _ in range(3):
        assert scene.kept(pod(priority=1000), n1=["a"]) == ["n1"]
        assert scene.kept(pod(nominated="n1", priority=1000), n2=["c"]) == []
        scene.time.now += 90


def test_a_clock_that_is_set_makes_nobody_wait_longer(store: SqliteStore) -> None:
    scene, steady = Scene(store), Time()
    scene.verb = Preempt(scene.ledger, scene.time, steady)
    scene.hold("a", "n1", k80=2, priority=10)
    waiting = pod(nominated="n1", priority=1000)
    for hours in (1, -2, 1):
        assert scene.kept(waiting, n2=["c"]) == []
        scene.time.now += hours * 3600
    steady.now += 90
    scene.hold("c", "n2", k80=2, priority=10)
    assert scene.kept(waiting, n2=["c"]) == ["n2"]


def chosen(scene: Scene, requester: Pod, *nodes: str, **victims: Sequence[str]) -> dict[str, set[str]]:
    """What is evicted, by node, where nodes are offered without victims."""
    offered = {**dict.fromkeys(nodes, ()), **victims}
    call = PreemptionCall(requester, {node: Victims(tuple(uids)) for node, uids in offered.items()})
    return {node: set(found.uids) for node, found in scene.verb.run(call).items()}


@pytest.mark.parametrize(
    ("units", "priority", "victims"),
    [
        (1, 1000, {"b"}),
        (2, 1000, {"c"}),
        (3, 1000, {"b", "c"}),
        (4, 1000, {"a", "b", "c"}),
        (5, 1000, set()),
        (1, 10, {"b"}),
        (4, 10, set()),
        (1, 5, set()),
    ],
)
def test_where_no_victims_are_offered_the_fewest_and_least_important_are_chosen(
    store: SqliteStore, units: int, priority: int, victims: set[str]
) -> None:
    """kube-scheduler 1.38 offers such nodes; 1.37 and older never do, and take no answer without a victim."""
    scene = Scene(store, sizes={("k80", "n1"): 4})
    for name, importance, held in (("a", 10, 1), ("b", 5, 1), ("c", 5, 2)):
        scene.hold(name, "n1", k80=held, priority=importance)
    expected = {"n1": victims} if victims else {}
    assert chosen(scene, pod(k80=units, priority=priority), "n1") == expected


def test_nobody_is_chosen_whose_importance_is_not_known_or_whom_the_scheduler_may_not_know(
    store: SqliteStore,
) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2)
    scene.ledger.reserve(
        Claim(
            uid="b",
            namespace="d",
            name="b",
            node="n2",
            holdings=(Holding("k80", "n2", 2),),
            attempt="x",
            priority=10,
        )
    )
    assert chosen(scene, pod(priority=1000), "n1", "n2") == {}
    scene.ledger.confirm(scene.ledger.view().claims_of("b")[0])
    assert chosen(scene, pod(priority=1000), "n1", "n2") == {"n2": {"b"}}
    scene.verb = Preempt(scene.ledger, scene.time)
    scene.ledger.apply_pools({"k80": k80(release_on="Deleted")})  # b may have finished
    assert chosen(scene, pod(priority=1000), "n2") == {}


def test_nobody_is_chosen_for_units_that_nobody_may_be_evicted_for(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=2, ip=2, priority=10)
    assert chosen(scene, pod(ip=1, priority=1000), "n1") == {}
    assert chosen(scene, pod(k80=1, ip=1, priority=1000), "n1") == {}
    assert chosen(scene, pod(k80=1, priority=1000), "n1") == {"n1": {"a"}}


def test_where_room_was_made_since_filter_looked_nobody_is_chosen(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("c", "n2", k80=2, priority=10)
    assert chosen(scene, pod(priority=1000), "n1", n2=["c"]) == {}
    scene.time.now += 5
    assert chosen(scene, pod(priority=1000), "n1", n2=["c"]) == {"n2": {"c"}}


def test_of_those_chosen_no_second_ones_are_chosen_until_their_claims_are_settled(store: SqliteStore) -> None:
    scene = Scene(store)
    scene.hold("a", "n1", k80=1, priority=10)
    scene.hold("b", "n1", k80=1, priority=20)
    scene.hold("c", "n2", k80=2, priority=10)
    assert chosen(scene, pod(priority=1000), "n1") == {"n1": {"a"}}
    for nominated in ("n1", None):
        assert chosen(scene, pod(nominated=nominated, priority=1000), "n1", n2=["c"]) == {}
    scene.ledger.release("a")
    assert chosen(scene, pod(priority=1000), "n1", n2=["c"]) == {}
    scene.hold("d", "n1", k80=1, priority=2000)
    assert chosen(scene, pod(priority=1000), "n1") == {"n1": {"b"}}


@pytest.mark.parametrize(
    ("node", "asked", "mendable"),
    [
        ("n1", {"k80": 1}, {"n1"}),
        ("n1", {"k80": 1, "ip": 1}, {"n1"}),
        ("n2", {"k80": 1, "ip": 1}, set()),  # ip is short as well, and nobody is evicted for that
        ("n1", {"ip": 3}, set()),
        ("n3", {"k80": 1, "ip": 1}, set()),  # it has no ip
        ("n9", {"k80": 1}, set()),  # it has none of either
        (None, {"k80": 1}, set()),
    ],
)
def test_only_the_nominated_node_and_only_if_it_lacks_units_to_evict_for_may_be_preempted_on(
    store: SqliteStore, node: str | None, asked: dict[str, int], mendable: set[str]
) -> None:
    scene = Scene(store, sizes={("k80", "n3"): 2})
    for name in ("n1", "n2"):
        scene.hold(f"k-{name}", name, k80=2)
    scene.hold("ip", "n2", ip=2)
    offered = Candidates(pod(node, "team-a", 0, **asked), ["n1", "n2", "n3", "n9"], True, None)
    found = filtered(scene.ledger.view, offered, scene.time)
    assert found.reasons
    assert set(found.resolvable) == mendable


def ask(path: Path, body: bytes) -> Reply:
    endpoint = preempt.endpoint(Settings(store=f"sqlite:///{path}"))
    return respond(endpoint, "POST", "/", {}, BytesIO(body))


@pytest.mark.parametrize("name", ["names", "full"])
def test_a_recorded_call_is_answered(store: SqliteStore, path: Path, name: str) -> None:
    underlay = Pool("underlay-ip", "berth.dev/underlay-ip", PoolSpec(capacity=Capacity(per_domain=1)))
    scene = Scene(store, underlay, sizes={("underlay-ip", f"n{number}"): 1 for number in range(3)})
    document = json.loads((EVENTS / f"extender/preempt-{name}.json").read_bytes())
    del document["Pod"]["metadata"]["annotations"]  # it names a PoolClaim
    scene.hold("another", "n1", "", **{"underlay-ip": 1})
    reply = ask(path, json.dumps(document).encode())
    assert reply.status == 200
    assert sorted(json.loads(reply.body)["NodeNameToMetaVictims"]) == ["n0", "n2"]


@pytest.mark.parametrize("pods", [[], None])
@pytest.mark.parametrize("field", ["NodeNameToMetaVictims", "NodeNameToVictims"])
def test_a_call_without_victims_is_answered_with_uids(
    store: SqliteStore, path: Path, field: str, pods: list[object] | None
) -> None:
    """As kube-scheduler 1.38 makes it, with and without nodeCacheCapable (source: its extender.go)."""
    scene = Scene(store, sizes={("k80", "n3"): 2})
    scene.hold("a", "n1", k80=2, priority=10)
    scene.hold("b", "n2", k80=2, priority=1000)
    on_node = {"Pods": pods, "NumPDBViolations": 0}
    document = {"Pod": msgspec.to_builtins(pod(priority=1000)), field: {"n1": on_node, "n2": on_node}}
    reply = ask(path, json.dumps(document).encode())
    victims = {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}
    assert (reply.status, json.loads(reply.body)) == (200, {"NodeNameToMetaVictims": victims})


def test_without_a_ledger_the_answer_is_an_error_by_which_kube_scheduler_evicts_nobody(path: Path) -> None:
    body = json.dumps({"Pod": msgspec.to_builtins(pod()), "NodeNameToMetaVictims": {}}).encode()
    with closing(SqliteStore(path)):
        reply = ask(path, body)
    assert (reply.status, json.loads(reply.body)["error"][:33]) == (503, "berth's ledger is being rebuilt f")
    assert ask(path, b"<html>").status == 400
