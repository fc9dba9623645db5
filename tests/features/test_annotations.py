"""A Pool's annotations through the verbs: what a pod is told of its units, and who is refused for them.
What a template may say is tested with the Pool's rules, what users may change with the admission policies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.controller.annotation import OtherNamesError, pools_annotations
from tests.support.builders.objects import pool
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

IP_KEY, ALL_KEY, RACK_KEY, SAME_KEY = (
    "cni.example/ip",
    "cni.example/all",
    "example.com/rack",
    "example.com/same",
)
RACK = {"scope": "Topology", "topologyKey": "rack"}
POOLS: dict[str, Any] = {
    "ip": {
        "units": {"n1": ["10.0.3.1-10.0.3.3"], "n2": ["10.0.4.1"]},
        "annotations": {IP_KEY: '["{unit}"]', SAME_KEY: "yes"},
    },
    "many": {
        "units": {"x": ["b", "a", "c"]},
        "annotations": {ALL_KEY: "{pool} in {domain}: {units} {units:json} {x y} {}"},
        **RACK,
    },
    "port": {"capacity": {"perDomain": 2}, "annotations": {RACK_KEY: "{domain}", SAME_KEY: "yes"}, **RACK},
    "other-ip": {"units": {"n1": ["fd00::1", "fd00::2"]}, "annotations": {IP_KEY: '["{unit}"]'}},
    "strict": {"units": {"n1": ["s1"]}, "annotations": {"example.com/s": "{unit}"}, "onAnnotated": "Refuse"},
    "late": {
        "units": {"n1": ["l0", "l1"]},
        "reuseAfterSeconds": 30,
        "annotations": {"example.com/late": "{unit}"},
    },
}
CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS, {"n1": {"rack": "x"}, "n2": {"rack": "y"}}) as found:
        yield found


def told(stage: PoolsStage, name: str) -> dict[str, str]:
    """What the pod's annotations say, but for Berth's own."""
    found = dict(stage.get(name).metadata.annotations or {})
    return {key: text for key, text in found.items() if not key.startswith("berth.dev/")}


def units(stage: PoolsStage, name: str) -> list[str]:
    found = (stage.get(name).metadata.annotations or {})["berth.dev/allocated"]
    return [unit for each in json.loads(found) for unit in each["units"]]


def test_a_pod_is_told_its_units_with_its_binding(stage: PoolsStage) -> None:
    call = stage.bound_pod(ip=1, port=1)
    assert told(stage, call.name) == {IP_KEY: '["10.0.3.1"]', RACK_KEY: "x", SAME_KEY: "yes"}
    two = stage.bound_pod(many=2)
    assert told(stage, two.name) == {ALL_KEY: 'many in x: b,a ["b", "a"] {x y} {}'}
    assert told(stage, stage.bound_pod(on="n2", ip=1).name)[IP_KEY] == '["10.0.4.1"]'
    assert told(stage, stage.bound_pod(port=1).name) == {RACK_KEY: "x", SAME_KEY: "yes"}


def test_the_same_bind_again_tells_the_same(stage: PoolsStage) -> None:
    call = stage.bound_pod(ip=1)
    before = stage.get(call.name)
    assert stage.bind(call) == ""
    assert stage.get(call.name) == before


@CHEAP
def test_what_a_pod_brings_is_overwritten_or_the_pod_is_refused_as_the_pool_says(stage: PoolsStage) -> None:
    forger = stage.bound_pod(ip=1, annotations={IP_KEY: '["10.0.3.3"]', "example.com/own": "stays"})
    assert told(stage, forger.name) == {IP_KEY: '["10.0.3.1"]', SAME_KEY: "yes", "example.com/own": "stays"}
    refused = stage.pod(strict=1, annotations={"example.com/s": "s1"})
    text = "strict: the pod has the annotation example.com/s, which berth writes: leave it out"
    assert stage.why(refused, "n1", "n2") == {"n1": text, "n2": text}
    assert stage.bind(refused) == text
    assert stage.claims().keys() == {forger.name}
    assert stage.bind(stage.pod(strict=1, annotations={IP_KEY: "x"})) == ""


@CHEAP
@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"ip": 2}, f"ip: 2 asked, and the annotation {IP_KEY} is for one unit: ask for 1"),
        ({"ip": 1, "other-ip": 1}, f"ip, other-ip: both write the annotation {IP_KEY}: ask for one of them"),
    ],
)
def test_a_pod_that_could_not_be_told_what_it_got_gets_nothing(
    stage: PoolsStage, asked: dict[str, Any], text: str
) -> None:
    call = stage.pod(**asked)
    assert stage.why(call, "n1", "n2") == {"n1": text, "n2": text}
    assert stage.bind(call) == text
    assert stage.claims() == {}


@CHEAP
def test_the_next_pod_of_a_poolclaim_is_told_the_same_address(stage: PoolsStage) -> None:
    stage.claim_object("mine", "ip", count=1)
    stage.bound_pod(ip=1)
    first = stage.bound_pod(ip=1, claims="mine")
    assert told(stage, first.name)[IP_KEY] == '["10.0.3.2"]'
    stage.gone(first)
    stage.bound_pod(ip=1)
    second = stage.pod(ip=1, claims="mine")
    stage.lose_ledger()
    stage.reconcile()
    assert stage.bind(second) == ""
    assert told(stage, second.name)[IP_KEY] == f'["{units(stage, second.name)[0]}"]'


def test_a_freed_unit_is_told_to_nobody_while_it_rests(stage: PoolsStage) -> None:
    first = stage.bound_pod(late=1)
    assert told(stage, first.name) == {"example.com/late": "l0"}
    stage.gone(first)
    assert told(stage, stage.bound_pod(late=1).name) == {"example.com/late": "l1"}
    waiter = stage.pod(late=1)
    assert stage.bind(waiter) == "late: 0 of 2 free, 1 asked"
    assert told(stage, waiter.name) == {}
    stage.time.now += 30
    assert stage.bind(waiter) == ""
    assert told(stage, waiter.name) == {"example.com/late": "l0"}


def test_after_a_loss_nobody_is_told_of_a_unit_that_another_pod_was_told_of(stage: PoolsStage) -> None:
    first, second = stage.bound_pod(ip=1), stage.bound_pod(ip=1)
    stage.lose_ledger()
    stage.note(first.name, {IP_KEY: '["10.0.3.3"]'})  # which proves nothing
    stage.reconcile()
    third = stage.bound_pod(ip=1)
    assert [units(stage, each.name) for each in (first, second, third)] == [
        ["10.0.3.1"], ["10.0.3.2"], ["10.0.3.3"],
    ]  # fmt: skip
    assert told(stage, third.name)[IP_KEY] == '["10.0.3.3"]'


@CHEAP
def test_a_pod_that_would_have_more_annotations_than_kubernetes_takes_is_not_bound(stage: PoolsStage) -> None:
    """A Binding is not judged by that, and then nobody could write the pod's status."""
    call = stage.pod(ip=1, annotations={"example.com/long": "x" * 250 * 1024})
    said = stage.bind(call)
    assert said.endswith("n1: it would have annotations of 250 KiB, and Kubernetes takes 256: ask for fewer "
                         "units, or shorten the annotations of the pod or of its Pools")  # fmt: skip
    assert stage.claims() == {}
    assert stage.bound() == {}


@CHEAP
def test_a_reservation_from_before_the_units_had_names_is_given_back(stage: PoolsStage) -> None:
    """Its pod would be told of no unit, and its CNI plugin would take any address."""
    stage.pools(ip={"capacity": {"perDomain": 2}})
    call = stage.pod(ip=1)
    reserved = stage.ledger().reserve(stage.claim(stage.get(call.name), "n1"))
    assert [holding.units for holding in reserved.holdings] == [()]
    with pytest.raises(OtherNamesError, match="have got or lost names; it will be retried"):
        pools_annotations(reserved, {"ip": pool("ip", **POOLS["ip"], capacity=None)})
    stage.pools(ip=POOLS["ip"])
    assert stage.bind(call) == ""
    assert told(stage, call.name)[IP_KEY] == f'["{units(stage, call.name)[0]}"]'
