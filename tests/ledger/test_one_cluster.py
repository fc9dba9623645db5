"""A ledger belongs to one cluster: whatever acts for another one is refused, and changes nothing in it.
Two stand-in API servers and one ledger, on every store."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from berth.api.pool import Capacity, Pool, PoolSpec
from berth.cli import main, up
from berth.errors import OtherClusterError, RebuildingError
from berth.handlers import bind, inventory, reconcile, release, wiring
from berth.http.endpoint import Endpoint
from berth.ledger.keys import CLUSTER
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim
from berth.settings import Settings
from berth.stores import open_store
from berth.stores.base import Store
from tests.support.builders.ledgers import FaultyStore, Time, claim, held, ledger_on, two_pools
from tests.support.builders.places import Place
from tests.support.builders.stage import RESOURCE, Stage, staged
from tests.support.fixtures import PLACES

POOL = Pool("ip", "berth.dev/ip", PoolSpec(capacity=Capacity(per_domain=1)))
HINT = "give each cluster its own ledger (BERTH_STORE), or delete this one if its cluster is no more"


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    (tmp_path / "one").mkdir()
    with staged(tmp_path / "one", place) as found:
        yield found


@pytest.fixture
def other(tmp_path: Path, place: Place, stage: Stage) -> Iterator[Stage]:
    """Another cluster with the same names in it, and by mistake the same ledger."""
    assert stage.bind(stage.add_pod()) == ""
    (tmp_path / "other").mkdir()
    with staged(tmp_path / "other", place, fresh=False) as found:
        yield found


def everything(store: Store) -> dict[str, bytes | None]:
    return dict(store.changes(None).documents)


def test_reconcile_of_another_cluster_says_whose_the_ledger_is(
    stage: Stage, other: Stage, place: Place
) -> None:
    with pytest.raises(OtherClusterError) as raised:
        other.reconcile()
    theirs, mine = stage.cluster.identity(), other.cluster.identity()
    whose = f"(its kube-system namespace has UID {theirs}, this one's is {mine})"
    assert str(raised.value) == f"berth's ledger {place.url} belongs to another cluster {whose}: {HINT}"


def test_reconcile_of_another_cluster_releases_and_changes_nothing(stage: Stage, other: Stage) -> None:
    before, waiting = everything(stage.store), other.add_pod()
    version = other.raw.get_pod(waiting.name)["metadata"]["resourceVersion"]
    with pytest.raises(OtherClusterError):
        other.reconcile()
    assert everything(stage.store) == before
    assert other.raw.get_pod(waiting.name)["metadata"]["resourceVersion"] == version
    report = stage.reconcile()
    assert (report.released, report.adopted, report.rebuilt) == (0, 0, False)


def test_another_cluster_is_refused_also_where_nothing_would_have_to_be_changed(
    stage: Stage, other: Stage
) -> None:
    for pod in stage.cluster.pods():
        stage.cluster.delete(f"/api/v1/namespaces/default/pods/{pod.metadata.name}")
    assert stage.reconcile().released == 1
    with pytest.raises(OtherClusterError):
        other.reconcile()
    with pytest.raises(OtherClusterError):
        other.inventory("n1")


def test_a_bind_in_another_cluster_reserves_nothing_and_binds_nothing(stage: Stage, other: Stage) -> None:
    before = everything(stage.store)
    assert "belongs to another cluster" in other.bind(other.add_pod(), "n2")
    assert other.bound() == {}
    assert everything(stage.store) == before


def test_release_and_inventory_of_another_cluster_change_nothing(stage: Stage, other: Stage) -> None:
    """The event names a pod that the other cluster does not have, by its very UID."""
    before = everything(stage.store)
    with pytest.raises(OtherClusterError):
        other.release(stage.cluster.pods()[0])
    other.cluster.delete("/api/v1/nodes/n1")
    with pytest.raises(OtherClusterError):
        other.inventory("n1")
    assert everything(stage.store) == before


def test_a_ledger_that_came_back_without_its_epoch_is_still_the_cluster_s(stage: Stage, other: Stage) -> None:
    """As Redis' own data after a restart: another cluster's reconcile may not rebuild it either."""
    found = stage.store.read(["epoch"])
    assert stage.store.commit({"epoch": None}, {"epoch": found["epoch"].version})
    with pytest.raises(OtherClusterError):
        other.reconcile()
    assert stage.reconcile().rebuilt


def test_a_ledger_that_was_lost_is_whose_reconcile_comes_first(stage: Stage, other: Stage) -> None:
    stage.lose_ledger()
    assert other.reconcile().rebuilt
    with pytest.raises(OtherClusterError):
        stage.reconcile()


def test_the_functions_act_for_the_cluster_of_their_kubeconfig(
    other: Stage, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "other/kubeconfig"))
    monkeypatch.setattr(wiring, "open_store", lambda _: other.store)
    settings = Settings(store=place.url, pools=other.settings.pools)
    waiting = other.add_pod()
    meta = {"name": "n1", "namespace": "default", "uid": "u"}
    about = {"ce-id": "1", "ce-source": "/", "ce-specversion": "1.0", "content-type": "application/json"}
    about["ce-type"] = "dev.knative.apiserver.resource.delete"
    asks = {"containers": [{"resources": {"requests": {RESOURCE: "1"}}}], "nodeName": "n1"}
    call = {"PodName": waiting.name, "PodNamespace": "default", "PodUID": waiting.uid, "Node": "n1"}
    events = inventory.router(settings).default
    assert events is not None
    asked: list[tuple[Endpoint, object]] = [
        (bind.endpoint(settings), call),
        (release.endpoint(settings), {"kind": "Pod", "metadata": meta, "spec": asks}),
        (events, {"kind": "Node", "metadata": meta}),
        (reconcile.endpoint(settings), {}),
    ]
    for endpoint, body in asked:
        with pytest.raises(OtherClusterError, match=re.escape(f"berth's ledger {place.url} belongs")):
            endpoint.answer(about, json.dumps(body).encode())


# A ledger in ConfigMaps is in the cluster of its KUBECONFIG, and so can't be another's by mistake.
@pytest.mark.parametrize("place", sorted(PLACES.keys() - {"configmap"}), indirect=True)
@pytest.mark.parametrize("command", [["up", "--json"], ["reconcile"]])
def test_the_commands_end_with_one_line_that_says_so(
    other: Stage, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    started = mock.patch.object(up, "Functions", side_effect=AssertionError("functions were started"))
    with started, mock.patch.dict(os.environ):  # the command turns its options into variables
        options = ["--kubeconfig", str(tmp_path / "other/kubeconfig"), "--store", place.url]
        assert main([*command, *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"berth: berth's ledger {place.url} belongs to another cluster (")
    assert said.err.count("\n") == 1
    assert other.bound() == {}


# A ledger that was made before clusters were told apart


@pytest.fixture
def store(place: Place) -> Iterator[FaultyStore]:
    with closing(two_pools(place.url)) as made:
        yield FaultyStore(made)


def of(name: str, store: Store, *, while_closed: bool = False) -> Ledger:
    time = Time()  # a busy machine must not use up the ledger's patience
    return Ledger(
        store, clock=time, monotonic=time, sleep=time.advance, cluster=lambda: name, while_closed=while_closed
    )


def test_a_ledger_of_no_cluster_serves_until_a_reconcile_makes_it_one_s(store: FaultyStore) -> None:
    of("A", store).reserve(claim("a"))
    of("B", store).require_cluster()
    for _ in range(2):
        of("A", store, while_closed=True).record_cluster()
    assert store.read([CLUSTER])[CLUSTER].body == b"A"
    with pytest.raises(OtherClusterError):
        of("B", store, while_closed=True).record_cluster()
    assert held(of("A", store)) == {"a": ("reserved", "n1")}


@pytest.mark.long
def test_a_reconcile_that_mends_nothing_makes_it_its_cluster_s(stage: Stage) -> None:
    assert stage.store.commit({CLUSTER: None}, {})
    stage.reconcile()
    assert stage.store.read([CLUSTER])[CLUSTER].body.decode() == stage.cluster.identity()


def test_a_rebuild_names_its_cluster_in_the_commit_that_begins_it(place: Place) -> None:
    """The mark that opens the ledger is then one of a ledger with a name, lost in between or not."""
    with closing(open_store(place.url)) as store:
        of("A", store, while_closed=True).begin_rebuild("r")
        assert store.read([CLUSTER])[CLUSTER].body == b"A"


def test_of_two_clusters_that_find_a_ledger_of_none_only_one_gets_it(store: FaultyStore) -> None:
    second = of("B", store, while_closed=True)
    store.meanwhile = iter([second.record_cluster])
    with pytest.raises(OtherClusterError):
        of("A", store, while_closed=True).record_cluster()
    assert store.read([CLUSTER])[CLUSTER].body == b"B"


def test_making_it_ours_again_writes_nothing(store: FaultyStore) -> None:
    mine = of("A", store, while_closed=True)
    mine.record_cluster()
    store.faults = ["before"]
    mine.record_cluster()
    assert store.faults == ["before"]


WRITES: dict[str, Callable[[Ledger, Claim], object]] = {
    "reserve": lambda ledger, _: ledger.reserve(claim("b", "n2")),
    "confirm": lambda ledger, held: ledger.confirm(held),
    "cancel": lambda ledger, held: ledger.cancel(held),
    "release": lambda ledger, held: ledger.release(held.uid),
    "adopt": lambda ledger, _: ledger.adopt(claim("b")),
    "apply_pools": lambda ledger, _: ledger.apply_pools({"ip": POOL}),
    "set_capacities": lambda ledger, _: ledger.set_capacities({("ip", "n1"): 9}, {("ip", "n1"): 2}),
    "begin_rebuild": lambda ledger, _: ledger.begin_rebuild("r"),
}


@pytest.mark.parametrize("call", WRITES)
def test_a_ledger_that_becomes_another_cluster_s_within_a_call_is_not_changed_by_it(
    store: FaultyStore, call: str
) -> None:
    """It was nobody's when the call read it: the commit expects that."""
    mine = of("A", store).reserve(claim("a"))
    theirs = of("B", store, while_closed=True)
    seen: list[dict[str, bytes | None]] = []

    def taken() -> None:
        theirs.record_cluster()
        seen.append(everything(store))

    store.meanwhile = iter([taken])
    with pytest.raises(OtherClusterError):
        WRITES[call](of("A", store, while_closed=True), mine)
    assert [everything(store)] == seen


def test_who_knows_no_cluster_is_not_asked_for_one(store: FaultyStore) -> None:
    """As filter and prioritize are: they only look."""
    of("A", store, while_closed=True).record_cluster()
    assert ledger_on(store).view().open


def test_a_lost_ledger_says_that_it_is_rebuilt_and_not_whose_it_was(store: FaultyStore, place: Place) -> None:
    of("A", store, while_closed=True).record_cluster()
    place.lose()
    with closing(open_store(place.url)) as again, pytest.raises(RebuildingError):
        of("B", again).reserve(claim("b"))
