"""Pool documents: what is refused and in which words; a node's share of a pool."""

from typing import Any

import pytest

from berth.api.pool import Pool, parse
from berth.errors import BadInputError
from tests.support.builders.objects import node, pool, pool_document, units_at

NO_POOL = "each document should be an object with apiVersion: berth.dev/v1alpha1 and kind: Pool"
WRONG_SPECS: list[tuple[dict[str, Any], str]] = [
    ({"flavour": 1}, "spec: unknown field flavour: the fields are capacity, resource, scope,"),
    ({"capacity": {"perNode": 1}}, "spec.capacity: unknown field perNode: the fields are perDomain, domains"),
    ({"capacity": {"perDomain": -1}}, "perDomain: -1 is not a number of units from 0 to 2147483647"),
    ({"capacity": {"perDomain": 2**31}}, "perDomain: 2147483648 is not a number of units"),
    ({"capacity": {"domains": {"n7": -4}}}, "n7: -4 is not a number of units from 0 to 2147483647"),
    ({"capacity": {}}, "spec.capacity: it needs perDomain, domains or nodeAnnotation"),
    ({"capacity": None}, "spec needs capacity or units"),
    ({"scope": "Planet"}, "spec.scope 'Planet' should be one of Node, Topology, Cluster"),
    ({"score": "Random"}, "spec.score 'Random' should be one of Spread, Pack, Names, None"),
    ({"nodeSelector": {"network": "underlay"}}, "spec.nodeSelector: unknown field network: the fields are"),
]
WRONG_EXPRESSIONS: list[tuple[dict[str, Any], str]] = [
    ({"operator": "Exists"}, "[0].key is missing: it should be text"),
    ({"key": "a", "operator": "Gt", "values": ["1"]}, "[0].operator 'Gt' should be one of In, NotIn, Exists"),
    ({"key": "a", "operator": "In"}, "operator In needs values"),
    ({"key": "a", "operator": "NotIn", "values": []}, "operator NotIn needs values"),
    ({"key": "a", "operator": "Exists", "values": ["x"]}, "operator Exists takes no values"),
    ({"key": "a", "operator": "DoesNotExist", "values": ["x"]}, "operator DoesNotExist takes no values"),
    ({"key": "a", "operator": "In", "values": [1]}, "[0].values[0] must be text, not 1: put it in quotation"),
]


def refusal(*documents: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        parse(documents, "pools.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_pool_needs_only_a_name_and_a_capacity() -> None:
    found = parse([pool_document("underlay-ip")], "pools.yaml")["underlay-ip"]
    assert (found.name, found.resource) == ("underlay-ip", "berth.dev/underlay-ip")
    assert (found.spec.scope, found.spec.score, found.spec.include_control_plane) == ("Node", "Spread", False)
    assert units_at(found, node()) == 10


def test_a_pool_as_the_api_server_returns_it_is_taken() -> None:
    document = pool_document(scope="Node", score="Pack") | {"status": {"capacity": 120}}
    document["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    assert parse([document], "the cluster")["underlay-ip"].spec.score == "Pack"


def test_empty_documents_between_the_others_are_skipped() -> None:
    assert parse([None, pool_document(), None], "pools.yaml").keys() == {"underlay-ip"}


@pytest.mark.parametrize(("spec", "words"), WRONG_SPECS, ids=str)
def test_a_wrong_spec_is_refused_naming_source_pool_and_field(spec: dict[str, Any], words: str) -> None:
    said = refusal(pool_document(**spec))
    assert said.startswith("pools.yaml: Pool underlay-ip: ")
    assert words in said


@pytest.mark.parametrize(("expression", "words"), WRONG_EXPRESSIONS, ids=str)
def test_a_wrong_selector_is_refused_naming_the_expression(expression: dict[str, Any], words: str) -> None:
    said = refusal(pool_document(nodeSelector={"matchExpressions": [expression]}))
    assert words in said
    assert "spec.nodeSelector.matchExpressions[0]" in said


@pytest.mark.parametrize("spec", [[], {}, None, "ten", 10, [1]], ids=repr)
def test_a_pool_without_a_proper_spec_is_refused(spec: object) -> None:
    said = refusal(pool_document() | {"spec": spec})
    assert said.startswith("pools.yaml: Pool underlay-ip: ")
    assert ("spec needs capacity or units" if spec in ({}, None) else "spec must be an object, not ") in said


def test_a_field_beside_spec_is_refused_and_not_ignored() -> None:
    said = refusal(pool_document() | {"capacity": {"perDomain": 4}})
    assert said == "pools.yaml: Pool underlay-ip: unknown field 'capacity'; fields of a Pool go under spec"


@pytest.mark.parametrize(
    "document",
    [7, "pool", [pool_document()], {}, pool_document() | {"kind": "Pod"}]
    + [pool_document() | {"apiVersion": version} for version in ("v1", "berth.dev/v1", None)],
    ids=str,
)
def test_what_is_no_pool_document_is_refused(document: object) -> None:
    said = refusal(document)
    assert said.startswith(f"pools.yaml: {NO_POOL}")
    assert ("; this one has " in said) == isinstance(document, dict)


@pytest.mark.parametrize(
    "metadata",
    [None, {}, [], "underlay-ip", *({"name": name} for name in (5, "", "A", "a_b", "-a", "a/b", "a" * 64))],
    ids=str,
)
def test_a_pool_without_a_proper_name_is_refused(metadata: object) -> None:
    said = refusal(pool_document() | {"metadata": metadata})
    assert said.startswith("pools.yaml: metadata.name ")
    assert said.endswith("should be a name of lower-case letters, digits, - and .")


def test_all_that_is_wrong_in_all_documents_is_said_and_nothing_twice() -> None:
    documents = [
        pool_document("a", score="spread", capacty={"perDomain": 3}),
        pool_document("b"),
        pool_document("c", capacity={"perDomain": "four"}, scope="node"),
        pool_document("d", topologyKey="Upper.example/zone", external=3),
        {"kind": "Pool"},
    ]
    with pytest.raises(BadInputError) as caught:
        parse(documents, "pools.yaml")
    assert [text.removeprefix("pools.yaml: ") for text in caught.value.problems] == [
        "Pool a: spec.score 'spread' should be one of Spread, Pack, Names, None: did you mean Spread?",
        "Pool a: spec: unknown field capacty: did you mean capacity?",
        "Pool c: spec.capacity.perDomain must be a whole number, not the text 'four'",
        "Pool c: spec.scope 'node' should be one of Node, Topology, Cluster: did you mean Node?",
        "Pool d: spec.topologyKey goes with scope Topology only",
        "Pool d: spec.topologyKey should be a label's key, such as topology.kubernetes.io/zone",
        "Pool d: spec.external goes with scope Cluster only",
        f"{NO_POOL}; this one has kind: Pool",
    ]
    assert str(caught.value) == "; ".join(caught.value.problems)


@pytest.mark.parametrize("field", ["sepc", "Spec", "specs"])
def test_a_misspelt_spec_is_one_mistake_and_not_a_missing_one_as_well(field: str) -> None:
    document = pool_document()
    document[field] = document.pop("spec")
    assert refusal(document) == f"pools.yaml: Pool underlay-ip: unknown field {field}: did you mean spec?"


def test_two_pools_of_one_name_are_refused() -> None:
    said = refusal(pool_document("k80"), pool_document("k80", resource="example.com/k80"))
    assert said == "pools.yaml: Pool k80 is there twice"


def test_two_pools_of_one_resource_are_refused() -> None:
    said = refusal(pool_document("k80"), pool_document("tesla", resource="berth.dev/k80"))
    assert said == "pools.yaml: Pools k80 and tesla both have resource berth.dev/k80"


@pytest.mark.parametrize(
    "resource",
    [
        *("cpu", "kubernetes.io/x", "node.kubernetes.io/x", "mykubernetes.io/x", "requests.berth.dev/x"),
        *(
            "a/b/c",
            "/x",
            "x/",
            "Example.com/x",
            "a b/c",
            "a..b/c",
            "a.-b/c",
            f"a/{'x' * 64}",
            f"{'a' * 245}/x",
        ),
    ],
)
def test_a_resource_that_no_pod_could_ask_for_is_refused(resource: str) -> None:
    said = refusal(pool_document(resource=resource))
    assert said == (
        f"pools.yaml: Pool underlay-ip: spec.resource {resource!r} should be an extended resource, "
        "such as berth.dev/underlay-ip"
    )


@pytest.mark.parametrize("role", ["control-plane", "master"])
def test_the_control_plane_has_no_share_unless_it_is_asked_for(role: str) -> None:
    head = node(labels={f"node-role.kubernetes.io/{role}": ""})
    assert units_at(pool(), head) is None
    assert units_at(pool(nodeSelector={}, capacity={"domains": {"n1": 4}}), head) is None
    assert units_at(pool(includeControlPlane=True), head) == 10


def selecting(*expressions: dict[str, Any], **labels: str) -> Pool:
    return pool(nodeSelector={"matchLabels": labels, "matchExpressions": list(expressions)})


ZONE_IN = {"key": "zone", "operator": "In", "values": ["a", "b"]}


@pytest.mark.parametrize(
    ("expression", "zones"),
    [
        (ZONE_IN, {"a", "b"}),
        ({**ZONE_IN, "operator": "NotIn"}, {"c", "", None}),
        ({"key": "zone", "operator": "Exists"}, {"a", "b", "c", ""}),
        ({"key": "zone", "operator": "DoesNotExist"}, {None}),
    ],
    ids=lambda value: value["operator"] if isinstance(value, dict) else None,
)
def test_each_operator_selects_as_kubernetes_does(expression: dict[str, Any], zones: set[str | None]) -> None:
    found = selecting(expression)
    nodes = {zone: node(labels={} if zone is None else {"zone": zone}) for zone in ("a", "b", "c", "", None)}
    assert {zone for zone, each in nodes.items() if units_at(found, each) is not None} == zones


def test_all_labels_and_expressions_of_a_selector_must_hold() -> None:
    found = selecting(ZONE_IN, network="underlay")
    assert units_at(found, node(labels={"network": "underlay", "zone": "a"})) == 10
    assert units_at(found, node(labels={"network": "underlay", "zone": "c"})) is None
    assert units_at(found, node(labels={"network": "overlay", "zone": "a"})) is None
    assert units_at(found, node(labels={"zone": "a"})) is None


def test_an_exception_by_domain_comes_before_the_annotation_and_that_before_per_domain() -> None:
    found = pool(capacity={"perDomain": 10, "domains": {"n1": 4, "n2": 0}, "nodeAnnotation": "ips"})
    annotations = {"ips": "7"}
    assert units_at(found, node("n1", annotations=annotations)) == 4
    assert units_at(found, node("n2", annotations=annotations)) == 0
    assert units_at(found, node("n3", annotations=annotations)) == 7
    assert units_at(found, node("n3")) == 10


def test_a_selected_node_without_any_number_has_no_units_but_is_in_the_pool() -> None:
    assert units_at(pool(capacity={"nodeAnnotation": "ips"}), node()) == 0
    assert units_at(pool(capacity={"domains": {"n1": 4}}), node("n2")) == 0


def test_an_annotation_is_a_quantity_like_any_other() -> None:
    found = pool(capacity={"nodeAnnotation": "ips"})
    assert units_at(found, node(annotations={"ips": "1k"})) == 1000
    assert found.annotation_problem(node(annotations={"ips": "1k"})) is None
    assert found.annotation_problem(node()) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ten", "is not a quantity"),
        ("-1", "is negative"),
        ("2.5", "is not a whole number of units"),
        ("", "is"),
    ],
)
def test_a_bad_annotation_counts_as_nothing_and_is_reported(text: str, why: str) -> None:
    found = pool(capacity={"perDomain": 10, "nodeAnnotation": "ips"})
    bad = node(annotations={"ips": text})
    assert units_at(found, bad) == 0
    said = found.annotation_problem(bad) or ""
    assert said.startswith(f"underlay-ip: node n1: annotation ips is {text!r}, which {why}")
    assert said.endswith("; counted as 0")


def test_a_bad_annotation_that_does_not_count_is_no_problem() -> None:
    found = pool(capacity={"domains": {"n1": 4}, "nodeAnnotation": "ips"})
    assert found.annotation_problem(node(annotations={"ips": "ten"})) is None
