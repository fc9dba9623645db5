"""What the PoolClaims of one namespace can do to everybody's ledger: users make them, and choose the names in
them. One that can't be taken over is a line of reconcile's report and of its own status, and nothing else."""

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from berth.controller.poolclaims import PUBLISH_SECONDS
from berth.errors import StoreFailedError
from berth.stores.base import Version
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import FaultyStore
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.support.fakes.configmapapi import Memory

SHARDS = 32
POOLS: dict[str, Any] = {
    "k80": {"units": {"n1": ["k80-0", "k80-1"], "n2": ["k80-2"]}},
    "seat": {"scope": "Cluster", "units": {"*": [f"seat-{number}" for number in range(200)]}},
    "slot": {"capacity": {"perDomain": 2}},
}
CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)
UNLISTED = "it names units that the Pool does not list"


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


@pytest.fixture
def memory() -> Memory:
    return Memory(SHARDS)


@pytest.fixture
def shards(tmp_path: Path, memory: Memory) -> Iterator[PoolsStage]:
    """On ConfigMaps in memory, as many as there are by default."""
    place = Place("configmap", f"sqlite:///{tmp_path}/unused.db", memory.api.objects.clear)
    with StandIn() as api:
        found = PoolsStage(api, tmp_path, place, POOLS, {"n1": {}, "n2": {}})
        found.store.close()
        found.store = memory.store()
        found.new_ledger()
        yield found
        found.raw.close()


def of_one_shard(count: int) -> list[str]:
    """Names that a hash without a key puts into one shard: anybody can choose such."""
    names = (f"c{number}" for number in range(100_000))
    digests = ((name, hashlib.blake2b(name.encode(), digest_size=4).digest()) for name in names)
    found = (name for name, digest in digests if int.from_bytes(digest, "big") % SHARDS == 7)
    return [name for name, _ in zip(found, range(count), strict=False)]


def noise(count: int) -> list[str]:
    """Units' names that don't get shorter when they are packed."""
    signs, chance = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", random.Random(0)
    return ["".join(chance.choices(signs, k=63)) for _ in range(count)]


def make(stage: PoolsStage, name: str, pool: str, namespace: str = "default", **spec: Any) -> None:
    """A PoolClaim that nobody has heard of."""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    document = {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": meta}
    stage.objects.put({**document, "spec": {"pool": pool, **spec}})


def lots(stage: PoolsStage, names: int) -> None:
    for name in of_one_shard(24):
        make(stage, name, "k80", "mallory", units=noise(names))


def sizes(memory: Memory) -> list[int]:
    """Of the ledger's ConfigMaps, in bytes as base64."""
    return sorted(len(msgspec.json.encode(found["binaryData"])) for found in memory.api.objects.values())


@pytest.mark.parametrize("names", [128, 1024])
def test_one_namespace_s_poolclaims_neither_fill_a_shard_nor_stop_reconcile_also_after_a_loss(
    shards: PoolsStage, memory: Memory, names: int
) -> None:
    """24 PoolClaims of 1,024 names of 63 characters, all in one of 32 ConfigMaps, were 1.1 MB: more than
    Kubernetes takes. No reconcile came to its end any more, and after a loss the ledger stayed closed."""
    small = sizes(memory)[-1]
    lots(shards, names)
    shards.claim_object("mine", "k80", units=["k80-2"])
    assert shards.reconcile().problems
    assert sizes(memory)[-1] < small + 4096
    holder = shards.bound_pod(on="n2", claims="mine", k80=1)
    shards.lose_ledger()
    report = shards.reconcile()
    assert (report.rebuilt, report.adopted) == (True, 1)
    assert shards.of(holder, "k80") == ("n2", 1, ("k80-2",))
    shards.bound_pod(k80=1, slot=1)


def test_names_that_users_choose_are_spread_over_all_shards(shards: PoolsStage, memory: Memory) -> None:
    names = of_one_shard(200)
    for name in names:
        make(shards, name, "slot")
    shards.reconcile()
    held = [
        sum(key.startswith("domain/slot/!") for key in content.documents)
        for content in memory.api.contents().values()
    ]
    assert sum(held) == len(names)
    assert max(held) < 25


def test_a_ledger_whose_places_have_no_key_goes_on_as_it_is(shards: PoolsStage, memory: Memory) -> None:
    """It was made before there was one. A loss gives it a key, and who knows of none says so and stops."""
    shards.lose_ledger()
    shards.store = memory.store(key="")
    shards.reconcile()
    holder = shards.bound_pod(claims="", k80=1, slot=1)
    before = memory.api.contents()
    shards.store = memory.store()
    shards.check_well()
    shards.claim_object("erc", "slot")
    again = shards.bound_pod(claims="erc", slot=1)
    assert memory.api.contents().keys() == before.keys()
    assert {*memory.api.objects["ledger"]["binaryData"]} == {"ledger-v1"}
    assert set(shards.held()) == {holder.name, again.name}
    shards.check_survives_a_loss()
    assert {*memory.api.objects["ledger"]["binaryData"]} == {"ledger-v2"}
    assert {*memory.api.objects[sorted(memory.api.objects)[1]]["binaryData"]} == {"ledger-v1"}


@CHEAP
def test_units_that_the_pool_does_not_list_are_named_in_no_ledger(stage: PoolsStage) -> None:
    stage.claim_object("typo", "k80", units=["k80-0", "k80-9"])
    stage.claim_object("early", "later", units=["x"])
    body = b"".join(filter(None, stage.store.changes(None).documents.values()))
    assert b"k80-9" not in body
    for name in ("typo", "early"):
        assert stage.status(name) == {"phase": "Refused", "message": UNLISTED}
        assert stage.conditions(name) == {
            "Ready": ("False", "Unlisted", UNLISTED),
            "Bound": ("False", "Refused", ""),
        }
    text = f"k80: PoolClaim typo is refused: {UNLISTED}"
    pod = stage.pod(claims="typo", k80=2)
    assert (stage.why(pod, "n1"), stage.bind(pod)) == ({"n1": text}, text)
    stage.check_well()
    stage.pools(k80={"units": {"n1": ["k80-0", "k80-9"]}}, later={"units": {"n2": ["x", "y"]}})
    assert [stage.status(name)["phase"] for name in ("typo", "early")] == ["Available", "Available"]
    assert pod.name in stage.woken()
    assert stage.bind(pod) == ""
    assert stage.of(pod, "k80") == ("n1", 2, ("k80-0", "k80-9"))
    assert stage.conditions("typo") == {
        "Ready": ("True", "Bound", f"pod {pod.name} holds it"),
        "Bound": ("True", "Bound", ""),
    }
    stage.check_well()
    # A holder keeps what it has, as with every change of what its PoolClaim is for.
    stage.pools(k80={"units": {"n1": ["k80-0"]}})
    assert stage.status("typo")["phase"] == "Bound"
    stage.reconcile()
    assert stage.of(pod, "k80") == ("n1", 2, ("k80-0", "k80-9"))
    stage.gone(pod)
    stage.reconcile()
    assert stage.status("typo") == {"phase": "Refused", "message": UNLISTED}


@CHEAP
def test_a_namespace_s_poolclaims_are_so_many_and_the_oldest_stay(stage: PoolsStage) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, poolclaims_per_namespace=4)
    stage.claim_object("first", "slot")
    stage.claim_object("large", "seat", units=["seat-1", "seat-2"])
    stage.claim_object("other", "slot", "team-b")
    stage.check_well()
    for name in ("a", "b", "c"):
        stage.claim_object(name, "slot")
    bound = (
        "those of a namespace may weigh 4 together, as many as they name units, or 1 each "
        "(BERTH_POOLCLAIMS_PER_NAMESPACE)"
    )
    problem = f"namespace default: 2 of its PoolClaims are refused: {bound}"
    stage.check_well(problem)
    phases = {name: stage.status(name).get("phase") for name in ("first", "large", "a", "b", "c")}
    assert phases == dict.fromkeys(("first", "large", "a"), "Available") | dict.fromkeys("bc", "Refused")
    assert stage.status("b")["message"] == bound
    assert stage.conditions("b")["Ready"] == ("False", "TooMany", bound)
    holder = stage.bound_pod(claims="first", slot=1)
    stage.check_well(problem)
    stage.lose_ledger()
    assert stage.reconcile().rebuilt
    assert stage.of(holder, "slot")[1] == 1
    del stage.objects.documents[("default", "large")]
    stage.inventory_of_claim("large")
    stage.check_well()
    assert stage.status("c") == {"phase": "Available"}
    # Fewer than are used: who holds one of the others keeps it.
    late = stage.bound_pod(claims="c", slot=1, on="n2")
    stage.settings = msgspec.structs.replace(stage.settings, poolclaims_per_namespace=1)
    stage.reconcile()
    stage.check_well(problem.replace("2 of", "3 of").replace("weigh 4", "weigh 1"))
    stage.pools(slot={"capacity": {"perDomain": 3}})
    stage.check_well(problem.replace("2 of", "3 of").replace("weigh 4", "weigh 1"))
    assert stage.of(late, "slot") == ("n2", 1, ())
    assert stage.status("c")["phase"] == "Bound"
    stage.gone(late)
    stage.reconcile()
    assert stage.status("c")["phase"] == "Refused"


@CHEAP
def test_a_reconcile_ends_in_time_however_many_poolclaims_have_a_status_to_be_written(
    stage: PoolsStage,
) -> None:
    """Who makes them faster than they are written held up the next tick for as long as they liked. Those that
    are in the ledger come first, and the next tick goes on with the others."""
    stage.settings = msgspec.structs.replace(stage.settings, poolclaims_per_namespace=2)
    for number in range(12):
        make(stage, f"c{number}", "slot", "mallory")
    make(stage, "mine", "slot", "zone-9")
    write, began = stage.objects.set_pool_claim_status, stage.time.now

    def slow(*asked: Any) -> None:
        stage.time.advance(PUBLISH_SECONDS / 5)
        write(*asked)

    def phases() -> Counter[str]:
        return Counter(each.get("status", {}).get("phase") for each in stage.objects.poolclaims())

    with mock.patch.object(stage.objects, "set_pool_claim_status", slow):
        problems = stage.reconcile().problems
        assert stage.time.now - began == PUBLISH_SECONDS
        assert "8 PoolClaims were not tried: others took too long" in problems
        assert stage.status("mine", "zone-9") == {"phase": "Available"}
        assert phases() == {"Available": 3, "Refused": 2, None: 8}
        stage.reconcile()
        stage.reconcile()
    assert phases() == {"Available": 3, "Refused": 10}


class Picky(FaultyStore):
    """Takes no document whose key ends so."""

    ending = "/bad"

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if any(key.endswith(self.ending) and body is not None for key, body in writes.items()):
            raise StoreFailedError("a part of the ledger is full")
        return super().commit(writes, expected)


@CHEAP
def test_a_poolclaim_that_the_store_can_t_take_is_a_problem_and_not_the_end_of_a_reconcile(
    stage: PoolsStage,
) -> None:
    whole, stage.store = stage.store, Picky(stage.store)
    for name in ("a", "bad", "z"):
        make(stage, name, "slot")
    said = "PoolClaim default/bad: the ledger did not take it over: a part of the ledger is full"
    assert stage.reconcile().problems == [said]
    call = stage.bound_pod(claims="a,z", slot=2)
    stage.lose_ledger()
    report = stage.reconcile()
    assert (report.rebuilt, report.problems) == (True, [said])
    assert stage.of(call, "slot")[1] == 2
    missing = "there is no PoolClaim bad in the pod's namespace"
    assert stage.bind(stage.pod(claims="bad", slot=1), "n2") == missing
    stage.store = whole
    stage.check_well()
    assert stage.bind(stage.pod(claims="bad", slot=1), "n2") == ""


def test_an_owner_s_name_that_is_none_fills_no_shard(shards: PoolsStage, memory: Memory) -> None:
    """Kubernetes takes any text for it. One of 800 KB stood in the ledger, in each document of the claim."""
    shards.pools(slot={**POOLS["slot"], "sticky": {"by": "Owner", "forSeconds": 60}})
    small = sizes(memory)[-1]
    call = shards.bound_pod(slot=1, owner="".join(noise(13_000)))
    assert sizes(memory)[-1] < small + 4096
    shards.bound_pod(k80=1)
    shards.gone(call)
    shards.bound_pod(slot=1)
    shards.check_well()
    shards.check_survives_a_loss()


def test_what_a_poolclaim_s_last_pod_had_is_remembered_within_the_same_bound(
    shards: PoolsStage, memory: Memory
) -> None:
    """One that names no units weighs 1, and remembered each of the 3,000 addresses that a pod had:
    4 to 10 KB each, for as many PoolClaims as a namespace may have, filled by one pod after the other."""
    shards.pools(net={"units": {"n1": ["10.0.0.0/20"]}})
    shards.reconcile()
    before = sum(sizes(memory))
    for number in range(3):
        shards.claim_object(f"c{number}", "net", count=3000)
        call = shards.bound_pod(claims=f"c{number}", net=3000)
        had = shards.of(call, "net")[2]
        shards.gone(call)
    assert sum(sizes(memory)) - before < 3 * 2048
    again = shards.bound_pod(claims="c2", net=3000)
    assert {*had[:128]} <= {*shards.of(again, "net")[2]}
    shards.check_well()


@CHEAP
def test_a_poolclaim_that_is_edited_is_judged_anew_and_its_holder_keeps_what_it_has(
    stage: PoolsStage,
) -> None:
    stage.claim_object("mine", "k80", units=["k80-9"])
    waiter = stage.pod(claims="mine", k80=1)
    assert stage.bind(waiter) == f"k80: PoolClaim mine is refused: {UNLISTED}"
    stage.claim_object("mine", "k80", units=["k80-1"])
    assert (stage.status("mine"), waiter.name in stage.woken()) == ({"phase": "Available"}, True)
    assert stage.bind(waiter) == ""
    stage.claim_object("mine", "k80", units=["k80-9"])
    assert (stage.status("mine")["phase"], stage.bind(waiter)) == ("Bound", "")
    assert stage.of(waiter, "k80") == ("n1", 1, ("k80-1",))
    stage.check_well()
    stage.check_survives_a_loss()
    stage.gone(waiter)
    stage.reconcile()
    assert stage.status("mine") == {"phase": "Refused", "message": UNLISTED}
    stage.claim_object("mine", "no-such-pool")
    assert stage.status("mine")["phase"] == "Available"
    elsewhere: Any = {"no-such-pool": 1}
    assert "no Pool" in stage.bind(stage.pod(claims="mine", **elsewhere))
    stage.check_well()


@CHEAP
def test_a_poolclaim_that_nobody_can_get_any_more_is_not_called_ready_when_its_pod_goes(
    stage: PoolsStage,
) -> None:
    """`kubectl wait` would end."""
    stage.claim_object("typo", "k80", units=["k80-0"])
    stage.inventory_of_claim("typo")
    holder = stage.bound_pod(k80=1, claims="typo")
    stage.pools(k80={"units": {"n1": ["k80-9"]}})
    stage.gone(holder)
    assert stage.conditions("typo")["Ready"][:2] == ("False", "Unlisted")
