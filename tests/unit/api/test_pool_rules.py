"""How the fields of a Pool go together: what is refused and in which words; domains and what they have."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.api.pool import Pool, PoolSpec, parse
from berth.errors import BadInputError
from tests.support.builders.objects import node, units_at
from tests.support.builders.pool_specs import (
    CAPACITY,
    CLUSTER,
    NAMED,
    RIGHT_SPECS,
    TOPOLOGY,
    WRONG_FOR_BERTH,
    WRONG_SPECS,
    Spec,
)

WRONG = [(spec, words) for spec, words, _ in WRONG_SPECS] + WRONG_FOR_BERTH
ROOT = Path(__file__).resolve().parents[3]
ZONE = "topology.kubernetes.io/zone"


def document(spec: Spec) -> Spec:
    return {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "ip"}, "spec": spec}


def pool(**spec: Any) -> Pool:
    return parse([document(spec)], "a test")["ip"]


@pytest.mark.parametrize("spec", RIGHT_SPECS, ids=str)
def test_a_right_spec_is_taken_and_is_the_same_after_a_turn_in_the_ledger(spec: Spec) -> None:
    found = pool(**spec)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Pool) == found


@pytest.mark.parametrize(("spec", "words"), WRONG, ids=lambda value: str(value)[:60])
def test_a_wrong_spec_is_refused_in_words_that_say_what_is_right(spec: Spec, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse([document(spec)], "pools.yaml")
    said = str(caught.value)
    assert said.startswith("pools.yaml: Pool ip: ")
    assert words in said
    assert "\n" not in said


def test_lists_of_thousands_of_nodes_are_taken() -> None:
    found = pool(
        units={
            f"n{number}": [f"k80-{number}", f"10.{number >> 8}.{number & 255}.0/30"]
            for number in range(5_000)
        }
    )
    assert found.capacity_of("n4999") == 3


def test_what_is_not_written_is_what_design_says() -> None:
    spec = pool(**CAPACITY).spec
    assert (spec.release_on, spec.preemption, spec.reuse_after_seconds, spec.external) == (
        "Finished",
        "None",
        0,
        0,
    )
    assert (spec.sticky, spec.reserved, spec.adopt_from, spec.suspended) == (None, None, None, False)


def test_the_resource_of_a_pool_with_native_preemption_is_one_that_kube_scheduler_counts() -> None:
    assert pool(**CAPACITY, preemption="Native").resource == "native.berth.dev/ip"
    assert pool(**CAPACITY, preemption="None").resource == "berth.dev/ip"


def test_the_reference_explains_every_field_of_a_pool_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "pool.md").read_text()
    told = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert sorted(told) == sorted(field.encode_name for field in msgspec.structs.fields(PoolSpec))


# Domains


def test_a_nodes_domain_is_itself_in_scope_node() -> None:
    assert pool(**CAPACITY).domain_of(node("n1", {ZONE: "a"})) == "n1"


def test_a_nodes_domain_is_its_labels_value_in_scope_topology_and_empty_without_one() -> None:
    zones = pool(**CAPACITY, **TOPOLOGY)
    assert zones.domain_of(node(labels={ZONE: "a"})) == "a"
    assert zones.domain_of(node(labels={})) == zones.domain_of(node(labels={ZONE: ""})) == ""
    assert units_at(zones, node(labels={ZONE: "a"})) == 3
    assert units_at(zones, node(labels={})) is None


def test_all_nodes_are_in_one_domain_in_scope_cluster() -> None:
    seats = pool(**CLUSTER, capacity={"domains": {"*": 5}})
    assert {seats.domain_of(node(name)) for name in ("n1", "n2")} == {"*"}
    assert units_at(seats, node("n1")) == 5


@pytest.mark.parametrize("scope", [{}, TOPOLOGY, CLUSTER], ids=str)
def test_a_node_that_is_not_selected_has_no_domain_in_any_scope(scope: Spec) -> None:
    found = pool(**CAPACITY, **scope, nodeSelector={"matchLabels": {"network": "underlay"}})
    labels = {ZONE: "a", "network": "underlay"}
    assert found.domain_of(node(labels={ZONE: "a"})) is None
    assert found.domain_of(node(labels={**labels, "node-role.kubernetes.io/control-plane": ""})) is None
    assert found.domain_of(node(labels=labels)) is not None


def test_domains_that_are_there_without_a_node_are_those_that_the_pool_names() -> None:
    assert pool(capacity={"domains": {"n1": 1}}).domains_without_nodes() == ()
    assert pool(**CAPACITY, **CLUSTER).domains_without_nodes() == ("*",)
    assert pool(**CAPACITY, **TOPOLOGY).domains_without_nodes() == ()
    assert pool(
        **TOPOLOGY, capacity={"perDomain": 1, "domains": {"b": 2, "a": 0}}
    ).domains_without_nodes() == ("a", "b")
    assert pool(**TOPOLOGY, units={"b": ["x"], "a": []}).domains_without_nodes() == ("a", "b")


# Capacity


def test_a_domain_has_as_many_units_as_its_list_and_one_without_a_list_has_none() -> None:
    found = pool(units={"node-1": ["k80-0", "k80-1"], "node-2": ["10.0.3.0/28"], "node-3": []})
    assert [found.capacity_of(f"node-{number}") for number in (1, 2, 3, 4)] == [2, 14, 0, 0]
    assert units_at(found, node("node-4")) == 0


def test_a_list_longer_than_any_count_counts_as_the_highest_one() -> None:
    assert pool(units={"n1": ["fd00::/64"]}).capacity_of("n1") == 2**31 - 1


def test_a_domain_is_counted_without_a_node_but_for_its_annotation() -> None:
    found = pool(capacity={"perDomain": 10, "domains": {"n2": 4}, "nodeAnnotation": "ips"})
    assert found.capacity_of("n1", node("n1", annotations={"ips": "7"})) == 7
    assert found.capacity_of("n1") == 10
    assert found.capacity_of("n2") == 4


def test_what_is_in_use_outside_the_cluster_does_not_lower_the_capacity() -> None:
    assert pool(**CLUSTER, capacity={"perDomain": 10}, external=3).capacity_of("*") == 10


@pytest.mark.parametrize(("scope", "domain"), [({}, "*"), (TOPOLOGY, ""), (TOPOLOGY, "*"), (CLUSTER, "n1")])
def test_what_can_be_no_domain_of_the_scope_has_no_capacity(scope: Spec, domain: str) -> None:
    assert pool(**CAPACITY, **scope).capacity_of(domain) is None


# Who may have how much, and when


def test_a_namespace_has_its_own_limit_else_that_of_all_else_none() -> None:
    limits = {"team-a": 4, "team-b": 0}
    assert [pool(**CAPACITY, limits=limits).limit(name) for name in ("team-a", "team-b", "c")] == [4, 0, None]
    assert pool(**CAPACITY, limits={**limits, "*": 10}).limit("c") == 10
    assert pool(**CAPACITY).limit("team-a") is None


def test_a_pool_is_suspended_as_a_whole_or_by_domain() -> None:
    assert pool(**CAPACITY, suspended=True).suspends("n1")
    assert not pool(**CAPACITY, suspended=False).suspends("n1")
    some = pool(**CAPACITY, suspended=["n1"])
    assert some.suspends("n1")
    assert not some.suspends("n2")
    assert not pool(**CAPACITY, suspended=[]).suspends("n1")


def test_units_with_names_are_held_on_a_lost_node_and_counted_ones_released_unless_it_is_said() -> None:
    assert pool(**NAMED).holds_lost
    assert not pool(**CAPACITY).holds_lost
    assert not pool(**NAMED, onLostNode="Release").holds_lost
    assert pool(**CAPACITY, onLostNode="Hold").holds_lost
    assert (pool(**NAMED).named, pool(**CAPACITY).named) == (True, False)
