"""filter and prioritize over a ledger in a SQLite file: who is refused and why, and nodes' scores."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from berth.api.pool import Pool, Sticky
from berth.errors import RebuildingError
from berth.handlers import bind, prioritize
from berth.handlers import filter as filter_verb
from berth.http.endpoint import Reply, respond
from berth.kube.types import Container, Quantity
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.settings import Settings
from berth.stores.base import EPOCH
from berth.stores.sqlite import SqliteStore
from tests.support.builders.ledgers import resize
from tests.support.builders.objects import (
    EVENTS,
    IP,
    SEAT,
    candidates,
    container,
    filter_call,
    pool,
    sidecar,
)

NODES = ["n1", "n2", "n3"]
REBUILDING = (
    "berth's ledger is being rebuilt from the pods "
    "(if this lasts over two minutes, check that berth's reconcile function runs)"
)

RETRIED = f"{REBUILDING}; the pod will be retried"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    found = SqliteStore(path)
    yield found
    found.close()


def opened(store: SqliteStore, capacities: Mapping[tuple[str, str], int], *pools: Pool) -> Ledger:
    """A ledger as reconcile leaves it: Pools, capacities, and the epoch that lets verbs use it."""
    rebuilding = Ledger(store, while_closed=True)
    mark = rebuilding.begin_rebuild("r1")
    rebuilding.apply_pools({found.name: found for found in pools or (pool(),)})
    resize(rebuilding, dict(capacities))
    rebuilding.open("e1", mark)
    return Ledger(store)


def ips(*counts: int) -> dict[tuple[str, str], int]:
    return {("underlay-ip", f"n{number}"): count for number, count in enumerate(counts, start=1)}


def hold(ledger: Ledger, node: str, count: int, name: str = "holder") -> None:
    holding = Holding("underlay-ip", node, count)
    ledger.reserve(
        Claim(uid=f"uid-of-{name}", namespace="default", name=name, node=node, holdings=(holding,))
    )


def ask(verb: Any, path: Path, body: bytes) -> Reply:
    endpoint = verb.endpoint(Settings(store=f"sqlite:///{path}"))
    return respond(endpoint, "POST", "/", {}, BytesIO(body))


def filtered(path: Path, requests: Mapping[str, Quantity], names: list[str] = NODES) -> dict[str, Any]:
    reply = ask(filter_verb, path, filter_call(names, requests))
    assert reply.status == 200
    answer: dict[str, Any] = json.loads(reply.body)
    return answer


def test_refused_nodes_stand_only_where_preemption_is_not_tried(store: SqliteStore, path: Path) -> None:
    hold(opened(store, ips(10, 10)), "n1", 10)
    assert filtered(path, {IP: 1}) == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {
            "n1": "underlay-ip: 0 of 10 free, 1 asked",
            "n3": "underlay-ip: none on this node",
        },
        "Error": "",
    }


def test_a_node_below_what_it_gave_out_has_none_free(store: SqliteStore, path: Path) -> None:
    ledger = opened(store, ips(10))
    hold(ledger, "n1", 8)
    resize(ledger, {("underlay-ip", "n1"): 5})
    refused = filtered(path, {IP: 1}, ["n1"])["FailedAndUnresolvableNodes"]
    assert refused == {"n1": "underlay-ip: 0 of 5 free, 1 asked"}


def test_a_refusal_names_the_containers_where_several_ask_of_one_pool(store: SqliteStore) -> None:
    """As where a webhook adds a sidecar that asks, too."""
    seats = {("matlab-licence", f"n{number}"): 1 for number in (1, 2)}
    ledger = opened(store, {**ips(1, 1), **seats}, pool(), pool("matlab-licence"))
    call = candidates(["n1", "n2", "n3"], {IP: 1, SEAT: 1})
    asked = replace(container({IP: 1, SEAT: 1}), name="main")
    proxy = replace(sidecar({IP: 1}), name="proxy")

    def refusals(**spec: Sequence[Container]) -> set[str]:
        asking = replace(call, pod=replace(call.pod, spec=replace(call.pod.spec, **spec)))
        return set(filter_verb.run(ledger.view, asking).reasons.values())

    more = "underlay-ip is asked for by the containers proxy (1), main (1)"
    assert refusals(containers=[asked], init_containers=[proxy]) == {
        f"underlay-ip: 1 of 1 free, 2 asked; {more}",
        f"matlab-licence: none on this node; underlay-ip: none on this node; {more}",
    }
    many = [replace(proxy, name=f"p{number}") for number in range(6)]
    (said, _) = sorted(refusals(containers=[asked], init_containers=many))
    assert said.endswith("the containers p0 (1), p1 (1), p2 (1), p3 (1) and 3 more")
    hold(ledger, "n1", 1)
    assert "underlay-ip: 0 of 1 free, 1 asked" in refusals(containers=[asked], init_containers=[])


def test_a_warm_filter_sees_what_was_reserved_and_released_meanwhile(store: SqliteStore) -> None:
    ledger, warm = opened(store, ips(1)), Ledger(store)
    call = candidates(["n1"], {IP: 1})
    assert filter_verb.run(warm.view, call).reasons == {}
    hold(ledger, "n1", 1)
    assert filter_verb.run(warm.view, call).reasons == {"n1": "underlay-ip: 0 of 1 free, 1 asked"}
    ledger.release("uid-of-holder")
    assert filter_verb.run(warm.view, call).reasons == {}


@pytest.mark.parametrize("verb", [filter_verb, prioritize])
def test_what_is_answered_at_once_is_what_is_answered_else(verb: Any, store: SqliteStore, path: Path) -> None:
    ledger, endpoint = opened(store, ips(1, 1)), verb.endpoint(Settings(store=f"sqlite:///{path}"))
    bodies = [filter_call(NODES, requests) for requests in ({IP: 1}, {})]
    assert endpoint.at_once({}, bodies[0]) is None  # its first look takes in all there is
    for node in ("n1", "n2"):
        there = [endpoint.answer({}, body) for body in bodies]
        assert [endpoint.at_once({}, body) for body in bodies] == there
        hold(ledger, node, 1, f"holder-{node}")
        assert endpoint.at_once({}, bodies[0]) == endpoint.answer({}, bodies[0]) != there[0]


@pytest.mark.parametrize("verb", [filter_verb, prioritize])
def test_while_the_ledger_can_not_be_used_nothing_is_answered_at_once(
    verb: Any, store: SqliteStore, path: Path
) -> None:
    """So those whose pods ask for nothing are answered, and all others told why, as ever."""
    opened(store, ips(1))
    endpoint, body = verb.endpoint(Settings(store=f"sqlite:///{path}")), filter_call(NODES, {IP: 1})
    endpoint.answer({}, body)
    assert endpoint.at_once({}, body) is not None
    store.commit({EPOCH: None}, {})
    assert endpoint.at_once({}, body) is None
    with pytest.raises(RebuildingError):
        endpoint.answer({}, body)


def test_filter_advises_and_reserves_nothing(store: SqliteStore) -> None:
    ledger = opened(store, ips(1))
    for _ in range(3):
        assert filter_verb.run(ledger.view, candidates(["n1"], {IP: 1})).reasons == {}
    assert ledger.view().claims() == []


def test_a_pod_needs_all_its_pools_on_one_node(store: SqliteStore) -> None:
    capacities = {**ips(4, 4), ("matlab-licence", "n2"): 1, ("matlab-licence", "n3"): 1}
    ledger = opened(store, capacities, pool(), pool("matlab-licence"))
    assert filter_verb.run(ledger.view, candidates(NODES, {IP: 1, SEAT: 1})).reasons == {
        "n1": "matlab-licence: none on this node",
        "n3": "underlay-ip: none on this node",
    }


def offered(names: list[str], nominated: str = "n2") -> bytes:
    call = json.loads(filter_call(names, {IP: 1}))
    call["Pod"]["status"] = {"nominatedNodeName": nominated}
    return json.dumps(call).encode()


@pytest.fixture
def passes(store: SqliteStore, path: Path) -> Callable[..., list[str]]:
    """Which nodes pass, in calls to one endpoint for a pod that has a unit kept for it on n1."""
    pod = candidates(NODES, {IP: 1}).pod
    ledger = opened(
        store, ips(1, 1, 1), replace(pool(), spec=replace(pool().spec, sticky=Sticky("Pod", 600)))
    )
    hold(ledger, "n1", 1, pod.metadata.name)
    ledger.release(f"uid-of-{pod.metadata.name}")
    endpoint = filter_verb.endpoint(Settings(store=f"sqlite:///{path}"))

    def ask_once(names: list[str], nominated: str = "n2") -> list[str]:
        reply = respond(endpoint, "POST", "/", {}, BytesIO(offered(names, nominated)))
        found: list[str] = json.loads(reply.body)["NodeNames"]
        return found

    return ask_once


def test_a_nominated_node_that_comes_alone_is_refused_once_while_units_are_kept_elsewhere(
    passes: Callable[..., list[str]],
) -> None:
    """kube-scheduler offers all nodes next, and then the pod keeps to its units."""
    assert passes(["n2"]) == []
    assert passes(NODES) == ["n1"]
    assert passes(["n2"]) == []


def test_a_nominated_node_that_comes_alone_again_is_the_only_one_there_is(
    passes: Callable[..., list[str]],
) -> None:
    for _ in range(2):
        assert passes(["n2"]) == []
        assert passes(["n2"]) == ["n2"]
    assert passes(["n2"]) == []
    assert passes(["n2", "n3"]) == ["n2", "n3"]


def test_a_call_in_which_no_node_can_take_the_pod_leaves_it_refused_on_its_nominated_node(
    store: SqliteStore, passes: Callable[..., list[str]]
) -> None:
    ledger = Ledger(store)
    kept = ledger.view().pools["underlay-ip"]
    assert passes(["n2"]) == []
    ledger.apply_pools({"underlay-ip": replace(kept, spec=replace(kept.spec, suspended=True))})
    assert passes(NODES) == []
    ledger.apply_pools({"underlay-ip": kept})
    assert passes(["n2"]) == ["n2"]


def test_a_node_that_is_not_nominated_comes_alone_when_no_other_is_to_be_had(
    passes: Callable[..., list[str]],
) -> None:
    assert passes(["n2"], nominated="") == ["n2"]
    assert passes(["n2"], nominated="n3") == ["n2"]
    assert passes(["n1"], nominated="n1") == ["n1"]


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({IP: "500m"}, f"{IP}: '500m' is not a whole number of units; ask for a whole number"),
        ({"berth.dev/ip": 1}, f"berth.dev/ip: no Pool has this resource; there are: {IP}"),
    ],
)
def test_a_demand_that_none_can_meet_is_refused_on_all_nodes_alike(
    store: SqliteStore, path: Path, requests: dict[str, Quantity], words: str
) -> None:
    opened(store, ips(10, 10, 10))
    answer = filtered(path, requests)
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(NODES, words)
    assert (answer["NodeNames"], answer["FailedNodes"], answer["Error"]) == ([], {}, "")


@pytest.mark.parametrize("requests", [{"cpu": "2", "memory": "1Gi"}, {}], ids=str)
def test_a_pod_without_extended_resources_passes_even_when_the_store_is_broken(
    path: Path, requests: dict[str, Quantity]
) -> None:
    path.write_text("not a database, and long enough for SQLite to say so " * 10)
    answer = filtered(path, requests)
    assert (answer["NodeNames"], answer["Error"]) == (NODES, "")
    scores = json.loads(ask(prioritize, path, filter_call(NODES, requests)).body)
    assert scores == [{"Host": name, "Score": 0} for name in NODES]


def test_a_ledger_without_an_epoch_says_that_it_is_being_rebuilt(path: Path) -> None:
    answer = filtered(path, {IP: 1})
    assert answer["Error"] == RETRIED
    assert (answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) == (None, {})
    reply = ask(prioritize, path, filter_call(NODES, {IP: 1}))
    assert (reply.status, json.loads(reply.body)) == (503, {"error": REBUILDING})


def test_a_ledger_that_was_thrown_away_says_so_to_a_warm_filter_too(store: SqliteStore, path: Path) -> None:
    opened(store, ips(10))
    endpoint = filter_verb.endpoint(Settings(store=f"sqlite:///{path}"))
    body = filter_call(["n1"], {IP: 1})
    assert json.loads(respond(endpoint, "POST", "/", {}, BytesIO(body)).body)["Error"] == ""
    path.unlink()
    said = json.loads(respond(endpoint, "POST", "/", {}, BytesIO(body)).body)["Error"]
    assert said == RETRIED


def test_a_broken_store_is_an_error_in_the_answer_and_not_healthy(path: Path) -> None:
    path.write_text("not a database, and long enough for SQLite to say so " * 10)
    answer = filtered(path, {IP: 1})
    assert answer["Error"] == (
        f"berth's ledger can't be used (sqlite:///{path}, it is not a berth ledger); point BERTH_STORE at "
        "another file"
    )
    assert ask(prioritize, path, filter_call(NODES, {IP: 1})).status == 503
    for verb in (filter_verb, prioritize):
        endpoint = verb.endpoint(Settings(store=f"sqlite:///{path}"))
        assert respond(endpoint, "GET", "/healthz", {}, BytesIO()).status == 503


def failing(*_: object, **__: object) -> None:
    raise RuntimeError("hunter2 in /home/someone")


INTERNAL = "internal error (RuntimeError); see the log of "


def test_an_internal_failure_of_filter_reaches_the_pods_event_without_foreign_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_verb, "run", failing)
    assert filtered(path, {IP: 1}) == {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": f"{INTERNAL}filter",
    }


def test_an_internal_failure_of_prioritize_is_503(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prioritize, "run", failing)
    reply = ask(prioritize, path, filter_call(NODES, {IP: 1}))
    assert (reply.status, json.loads(reply.body)) == (503, {"error": f"{INTERNAL}prioritize"})


def test_an_internal_failure_of_bind_reaches_the_pods_event_without_foreign_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.kube.cluster.connect", mock.Mock)
    monkeypatch.setattr(bind.Bind, "run", failing)
    reply = ask(bind, path, (EVENTS / "extender/bind.json").read_bytes())
    assert reply.status == 200
    assert json.loads(reply.body) == {"Error": f"{INTERNAL}bind"}


@pytest.mark.parametrize("verb", [filter_verb, prioritize])
def test_bad_input_is_400_whatever_the_store(path: Path, verb: Any) -> None:
    reply = ask(verb, path, b"<html>")
    assert reply.status == 400
    assert json.loads(reply.body)["error"].startswith("not a call that kube-scheduler makes: ")


def recorded(name: str) -> bytes:
    """A recorded call, its pod without the PoolClaim that it names."""
    call = json.loads((EVENTS / f"extender/{name}.json").read_bytes())
    del call["Pod"]["metadata"]["annotations"]
    return json.dumps(call).encode()


@pytest.mark.parametrize("name", ["names", "full"])
def test_the_recorded_calls_are_answered(store: SqliteStore, path: Path, name: str) -> None:
    hold(opened(store, {("underlay-ip", f"n{number}"): 10 for number in range(3)}), "n1", 10)
    answer = json.loads(ask(filter_verb, path, recorded(f"filter-{name}")).body)
    assert answer["FailedAndUnresolvableNodes"] == {"n1": "underlay-ip: 0 of 10 free, 1 asked"}
    passed = answer["NodeNames"] or [node["metadata"]["name"] for node in answer["Nodes"]["items"]]
    assert sorted(passed) == ["n0", "n2"]
    scores = json.loads(ask(prioritize, path, recorded(f"prioritize-{name}")).body)
    assert {found["Host"]: found["Score"] for found in scores} == {"n0": 10, "n1": 0, "n2": 10}


def test_a_pod_that_names_a_pool_claim_that_does_not_exist_waits_and_says_so(
    store: SqliteStore, path: Path
) -> None:
    opened(store, {("underlay-ip", f"n{number}"): 10 for number in range(3)})
    answer = json.loads(ask(filter_verb, path, (EVENTS / "extender/filter-names.json").read_bytes()).body)
    text = "there is no PoolClaim k80-erc in the pod's namespace"
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(["n0", "n1", "n2"], text)


def test_prioritize_keeps_the_order_offered_and_prefers_most_free(store: SqliteStore, path: Path) -> None:
    ledger = opened(store, ips(10, 10, 10))
    hold(ledger, "n1", 5)
    hold(ledger, "n3", 9, "another")
    reply = ask(prioritize, path, filter_call(["n3", "n1", "n2", "n9"], {IP: 1}))
    assert reply == Reply(
        200,
        b'[{"Host":"n3","Score":1},{"Host":"n1","Score":5},{"Host":"n2","Score":10},{"Host":"n9","Score":0}]',
    )


def test_prioritize_refuses_nothing(store: SqliteStore) -> None:
    ledger = opened(store, ips(10))
    for requests in ({IP: "500m"}, {"berth.dev/typo": 1}):
        assert prioritize.run(ledger.view, candidates(["n1"], requests)) == [b'{"Host":"n1","Score":0}']
