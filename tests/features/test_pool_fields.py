"""Pools in a real cluster, where operators and a licence poller change one field of them, and their status.

Pools in a file: tests/cli/test_suspend_and_external.py; rights and what a pod sees of it: tests/e2e.
"""

import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.cli import main
from berth.controller import pool_source
from berth.controller.pool_status import publish
from berth.errors import ClusterRefusedError
from berth.handlers import external, inventory
from berth.handlers.inventory import Inventory
from berth.handlers.reconcile import Reconcile
from berth.http.endpoint import Reply, respond
from berth.kube.cluster import Cluster, connect
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.transaction import OutdatedError
from berth.settings import Access, Settings
from berth.stores import open_store
from tests.support import cluster as raw
from tests.support.builders.ledgers import Time
from tests.support.builders.manifests import serve_pools
from tests.support.builders.objects import event, pool_document
from tests.support.cluster import Object
from tests.support.servers.configmaps import ConfigMapServer

POOLS = "/apis/berth.dev/v1alpha1/pools"
TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def admin(configmap_server: ConfigMapServer) -> Iterator[raw.Cluster]:
    """Node n1; `k80` with two named units there, and 10 seats for the whole cluster."""
    api = configmap_server.admin
    serve_pools(api)
    api.create_node("n1")
    k80 = pool_document("k80") | {"spec": {"units": {"n1": ["k80-0", "k80-1"]}}}
    seat = pool_document("seat", scope="Cluster", capacity={"domains": {"*": 10}})
    for each in (k80, seat):
        api.call("POST", POOLS, each)
    yield api
    for pod in api.list_pods():
        api.delete_pod(pod["metadata"]["name"])
    api.call("DELETE", POOLS)
    api.delete_node("n1")


@pytest.fixture
def settings(
    admin: raw.Cluster,  # noqa: ARG001 - its Pools are to be there
    configmap_server: ConfigMapServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Settings:
    """What functions and commands are told; no ledger is there yet."""
    store = f"sqlite:///{tmp_path}/ledger.db"
    for name, value in (("KUBECONFIG", str(configmap_server.kubeconfig)), ("BERTH_STORE", store)):
        monkeypatch.setenv(name, value)
    return Settings(store=store, external=Access(prefix="BERTH_EXTERNAL", token=TOKEN))


@pytest.fixture
def cluster(settings: Settings) -> Cluster:  # noqa: ARG001 - they name it
    return connect()


@pytest.fixture
def ledger(settings: Settings, cluster: Cluster) -> Iterator[Ledger]:
    """Reconciled; everything is decided and told there."""
    with closing(open_store(settings.store)) as store:
        time = Time()
        found = Ledger(store, clock=time, monotonic=time, sleep=time.advance, while_closed=True)
        assert Reconcile(found, cluster, settings).run().problems == []
        yield found


def pool(admin: raw.Cluster, name: str) -> Object:
    found: Object = admin.get(f"{POOLS}/{name}")
    return found


def call(settings: Settings, body: object, headers: dict[str, str], path: str = "/external") -> Reply:
    """One call of inventory."""
    sent = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    return respond(inventory.router(settings), "POST", path, headers, sent)


@pytest.mark.usefixtures("settings")
def test_a_suspension_is_one_field_of_the_pool_object_and_its_end_takes_it_away(
    admin: raw.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = pool(admin, "k80")["spec"]
    assert main(["suspend", "k80", "n1"]) == 0
    assert capsys.readouterr().out.endswith("written to the cluster\n")
    assert pool(admin, "k80")["spec"] == {**before, "suspended": ["n1"]}
    assert main(["suspend", "k80"]) == 0
    assert pool(admin, "k80")["spec"] == {**before, "suspended": True}
    assert "berth" in {each["manager"] for each in pool(admin, "k80")["metadata"]["managedFields"]}
    assert main(["suspend", "k80", "--resume"]) == 0
    assert pool(admin, "k80")["spec"] == before
    capsys.readouterr()
    assert main(["suspend", "gpu"]) == 1
    assert capsys.readouterr().err == "berth: the cluster has no Pool gpu; there are: k80, seat\n"


def test_a_pool_that_was_written_meanwhile_is_looked_at_again(
    admin: raw.Cluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another has suspended since stays suspended."""
    real, meanwhile = cluster.pools, iter([{"spec": {"suspended": ["n1"]}}])

    def pools() -> list[dict[str, Any]] | None:
        found = real()
        for body in meanwhile:
            admin.patch(f"{POOLS}/k80", body)
        return found

    monkeypatch.setattr(cluster, "pools", pools)
    pool_source.amend(None, lambda: cluster, "k80", _also_n2)
    assert pool(admin, "k80")["spec"]["suspended"] == ["n1", "n2"]


def test_a_pool_that_is_always_written_meanwhile_is_left_with_the_reason(
    admin: raw.Cluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ClusterRefusedError("the object has been modified", 409)
    monkeypatch.setattr(cluster, "patch_pool", mock.Mock(side_effect=refused))
    with pytest.raises(ClusterRefusedError, match="has been modified"):
        pool_source.amend(None, lambda: cluster, "k80", _also_n2)
    assert "suspended" not in pool(admin, "k80")["spec"]


def _also_n2(found: Any) -> dict[str, object]:
    return {"suspended": [*(found.spec.suspended or ()), "n2"]}


def test_a_call_with_the_token_sets_external_use_and_is_taken_over_at_once(
    admin: raw.Cluster, settings: Settings, ledger: Ledger
) -> None:
    admin.create_pod("a", {"berth.dev/seat": 8}, node_name="n1")
    reply = call(settings, {"pool": "seat", "external": 1}, BEARER)
    assert (reply.status, json.loads(reply.body)) == (
        200,
        {"pool": "seat", "external": 1, "overCommitted": 0},
    )
    assert pool(admin, "seat")["spec"]["external"] == 1
    assert ledger.view().free["seat"]["*"] == (1, 10)
    assert pool(admin, "seat")["status"]["free"] == 1
    # The same number again costs no look at nodes and pods, and writes nothing.
    written = pool(admin, "seat")["metadata"]["resourceVersion"]
    with mock.patch.object(Inventory, "take_pools", side_effect=AssertionError("a look at all")):
        assert call(settings, {"pool": "seat", "external": 1}, BEARER).status == 200
    assert pool(admin, "seat")["metadata"]["resourceVersion"] == written
    reply = call(settings, {"pool": "seat", "external": 5}, BEARER, "/any/where/external")
    assert json.loads(reply.body)["overCommitted"] == 3
    assert ledger.view().free["seat"]["*"] == (0, 10)


def test_a_call_whose_own_event_was_faster_writes_the_status_all_the_same(
    settings: Settings, admin: raw.Cluster, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write of the Pool is an event too; who handles that may have come as far as the ledger."""
    assert ledger.view().open
    real = pool_source.amend

    def and_its_event(*args: Any) -> Any:
        done = real(*args)
        with mock.patch.object(inventory, "publish", return_value=[]):  # that is its next step
            Inventory(ledger, connect(), settings).take_pools()
        return done

    monkeypatch.setattr(external, "amend", and_its_event)
    assert call(settings, {"pool": "seat", "external": 3}, BEARER).status == 200
    assert pool(admin, "seat")["status"]["free"] == 7


def test_a_call_that_a_later_look_overtakes_answers_by_what_it_told(
    settings: Settings, admin: raw.Cluster, ledger: Ledger
) -> None:
    admin.create_pod("a", {"berth.dev/seat": 8}, node_name="n1")
    assert ledger.view().open
    real, looks = Inventory.take_pools, iter(["overtaken"])

    def take(*args: Any) -> object:
        return next(looks, None) or real(*args)

    with mock.patch.object(Inventory, "take_pools", take):
        reply = call(settings, {"pool": "seat", "external": 5}, BEARER)
    assert json.loads(reply.body) == {"pool": "seat", "external": 5, "overCommitted": 3}


def test_a_call_for_a_pool_that_a_later_look_takes_over_is_to_come_again(
    admin: raw.Cluster, settings: Settings, ledger: Ledger
) -> None:
    assert ledger.view().open
    admin.call("POST", POOLS, pool_document("desk", scope="Cluster", capacity={"domains": {"*": 10}}))
    with mock.patch.object(Inventory, "take_pools"):  # as one that was overtaken
        reply = call(settings, {"pool": "desk", "external": 1}, BEARER)
    assert (reply.status, json.loads(reply.body)) == (503, {"error": str(OutdatedError())})
    reply = call(settings, {"pool": "desk", "external": 1}, BEARER)
    assert json.loads(reply.body) == {"pool": "desk", "external": 1, "overCommitted": 0}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"pool": "seats", "external": 1}, "the cluster has no Pool seats; there are: k80, seat"),
        (
            {"pool": "k80", "external": 1},
            "Pool k80 has scope Node: external use goes with scope Cluster only",
        ),
        ({"pool": "seat", "external": -1}, "Expected `int` >= 0"),
        ({"pool": "seat", "external": "3"}, "Expected `int`, got `str`"),
        ({"pool": "seat", "external": 1, "for": "me"}, "unknown field `for`"),
        ({"pool": "seat"}, "missing required field `external`"),
        (b"seat=1", 'not a call such as {"pool": "licence", "external": 3}'),
    ],
)
def test_a_wrong_call_changes_nothing_and_says_what_is_right(
    admin: raw.Cluster, settings: Settings, ledger: Ledger, body: object, why: str
) -> None:
    assert ledger.view().open
    reply = call(settings, body, BEARER)
    assert reply.status == 400
    assert why in json.loads(reply.body)["error"]
    assert "external" not in pool(admin, "seat")["spec"]


def test_a_status_says_of_which_generation_it_is_and_names_the_units_held(
    admin: raw.Cluster, settings: Settings, cluster: Cluster, ledger: Ledger
) -> None:
    assert pool(admin, "k80")["status"]["observedGeneration"] == 1
    held = (Holding("k80", "n1", 1, ("k80-1",)),)
    ledger.adopt(Claim(uid="a", namespace="d", name="a", node="n1", holdings=held, state="bound", since=1.0))
    assert publish(ledger, cluster, ("berth",)) == []
    status = pool(admin, "k80")["status"]
    unit = {"name": "k80-1", "state": "bound", "pod": "d/a"}
    assert status["domains"] == [{"name": "n1", "capacity": 2, "used": 1, "free": 1, "units": [unit]}]
    written = pool(admin, "k80")["metadata"]["resourceVersion"]
    assert publish(ledger, cluster, ("berth",)) == []
    assert pool(admin, "k80")["metadata"]["resourceVersion"] == written
    # A spec that the ledger has not taken over yet is not observed.
    admin.patch(f"{POOLS}/k80", {"spec": {"reuseAfterSeconds": 60}})
    ledger.release("a")
    assert publish(ledger, cluster, ("berth",)) == []
    free = {"used": 0, "free": 2, "domains": [{"name": "n1", "capacity": 2, "used": 0, "free": 2}]}
    after = pool(admin, "k80")["status"]
    assert after == {**status, **free, "conditions": after["conditions"]}
    assert [(one["status"], one["reason"], one["observedGeneration"]) for one in after["conditions"]] == [
        ("False", "NotTaken", 2),
        ("False", "NotSuspended", 1),
        ("False", "WithinCapacity", 1),
    ]
    assert tell(settings, cluster, ledger, "update", pool(admin, "k80")) == 1
    assert pool(admin, "k80")["status"]["observedGeneration"] == 2
    assert tell(settings, cluster, ledger, "update", pool(admin, "k80")) == 0


def test_what_is_written_into_the_status_of_a_wrong_pool_is_no_news(
    admin: raw.Cluster, settings: Settings, cluster: Cluster, ledger: Ledger
) -> None:
    admin.patch(f"{POOLS}/k80", {"spec": {"units": {"n1": ["a"], "n2": ["a"]}}})
    assert tell(settings, cluster, ledger, "update", pool(admin, "k80")) == 1
    told = pool(admin, "k80")
    assert told["status"]["conditions"][0]["reason"] == "Invalid"
    assert tell(settings, cluster, ledger, "update", told) == 0
    # Another mistake is news again, and so is the end of it.
    admin.patch(f"{POOLS}/k80", {"spec": {"units": {"n1": ["b"], "n2": ["b"]}}})
    assert tell(settings, cluster, ledger, "update", pool(admin, "k80")) == 1
    admin.patch(f"{POOLS}/k80", {"spec": {"units": {"n1": ["b"], "n2": None}}})
    assert tell(settings, cluster, ledger, "update", pool(admin, "k80")) == 1
    assert pool(admin, "k80")["status"]["conditions"][0]["status"] == "True"


def test_the_event_of_a_pool_that_was_deleted_is_news_though_its_last_status_was_known(
    admin: raw.Cluster, settings: Settings, cluster: Cluster, ledger: Ledger
) -> None:
    last = pool(admin, "seat")
    assert last["status"]["observedGeneration"] == last["metadata"]["generation"]
    admin.call("DELETE", f"{POOLS}/seat")
    assert tell(settings, cluster, ledger, "delete", last) == 1
    assert set(ledger.view().pools) == {"k80"}


def tell(settings: Settings, cluster: Cluster, ledger: Ledger, change: str, item: Object) -> int:
    """Let inventory have an event of the Pool; how often it looked at all nodes and pods."""
    with mock.patch.object(cluster, "pods", wraps=cluster.pods) as looks:
        Inventory(ledger, cluster, settings).run(event(change, {**item, "kind": "Pool"}))
    return looks.call_count
