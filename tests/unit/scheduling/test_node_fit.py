"""A node takes a pod by its selectors, taints and room, as kube-scheduler's own filters say it."""

from typing import Any

import msgspec
import pytest

from berth.errors import BadInputError
from berth.kube.types import Node, PodInFull
from berth.scheduling.node_fit import STEP, Nodes, keeps_away, unseen, why_not

SELECTOR = "node(s) didn't match Pod's node affinity/selector"


def _node(name: str = "n1", spec: Any = None, labels: Any = None, **amounts: str) -> Node:
    document = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3", **amounts}},
    }
    return msgspec.convert(document, Node)


def _pod(cpu: str = "1", name: str = "a", **spec: Any) -> PodInFull:
    requests = {"cpu": cpu, "berth.dev/ip": "7"}
    containers = [{"resources": {"requests": requests}}]
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}, PodInFull
    )


def _affinity(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def _term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "matches"),
    [
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeSelector": {"rack": ""}}, False),
        (_affinity(_term("zone", "In", "a", "b")), True),
        (_affinity(_term("zone", "In", "b"), _term("zone", "Exists")), True),
        (_affinity(_term("zone", "NotIn", "a")), False),
        (_affinity(_term("rack", "NotIn", "r1")), True),
        (_affinity(_term("rack", "Exists")), False),
        (_affinity(_term("rack", "DoesNotExist")), True),
        (_affinity(_term("size", "Gt", "4")), True),
        (_affinity(_term("size", "Gt", "5")), False),
        (_affinity(_term("size", "Lt", "6")), True),
        (_affinity(_term("zone", "Lt", "6")), False),
        (_affinity(_term("count", "Gt", "1")), False),
        (_affinity(_term("zone", "Near", "a")), False),
        (_affinity({}), False),
        (_affinity(), False),
        (_affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
        (_affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), False),
        ({"nodeSelector": {"zone": "a"}, **_affinity(_term("zone", "In", "b"))}, False),
        ({"affinity": {"nodeAffinity": {}}}, True),
    ],
)
def test_selectors_and_required_affinity(spec: dict[str, Any], matches: bool) -> None:
    node = _node(labels={"zone": "a", "size": "5", "count": "1_000"})
    assert why_not(_pod(**spec), node) == (None if matches else SELECTOR)


@pytest.mark.parametrize(
    ("toleration", "refusal"),
    [
        ({"key": "only", "operator": "Equal", "value": "batch"}, None),
        ({"key": "only", "value": "batch", "effect": "NoSchedule"}, None),
        ({"key": "only", "operator": "Exists"}, None),
        ({"operator": "Exists"}, None),
        ({"key": "only", "value": "web"}, "node(s) had untolerated taint(s) {only: batch}"),
        ({"key": "only", "operator": "Exists", "effect": "NoExecute"}, "{only: batch}"),
    ],
)
def test_hard_taints_want_a_toleration(toleration: dict[str, str], refusal: str | None) -> None:
    soft = {"key": "rather-not", "effect": "PreferNoSchedule"}
    node = _node(spec={"taints": [soft, {"key": "only", "value": "batch", "effect": "NoSchedule"}]})
    said = why_not(_pod(tolerations=[toleration]), node)
    assert said is None if refusal is None else refusal in (said or "")
    assert why_not(_pod(), node) == "node(s) had untolerated taint(s) {only: batch}"
    assert why_not(_pod(nodeSelector={"zone": "b"}), node) == why_not(_pod(), node)


def test_a_cordoned_node_takes_only_who_tolerates_that() -> None:
    node = _node(spec={"unschedulable": True})
    key = "node.kubernetes.io/unschedulable"
    assert why_not(_pod(), node) == "node(s) were unschedulable"
    assert why_not(_pod(tolerations=[{"key": key, "operator": "Exists"}]), node) is None


def test_room_is_used_up_by_pods_that_run_and_by_pods_that_come() -> None:
    running = [_pod("500m", nodeName="n1"), _pod("2", nodeName="elsewhere")]
    nodes = Nodes([_node("n1"), _node("n2", pods="1"), _node("n3", cpu="500m")], (), running)
    assert list(nodes.room(_pod())) == ["n1", "n2"]
    nodes.place(_pod(), "n1")
    assert list(nodes.room(_pod())) == ["n2"]
    assert list(nodes.room(_pod("500m"))) == ["n1", "n2", "n3"]
    nodes.place(_pod(), "n2")
    assert nodes.refusals(_pod()) == {"Insufficient cpu": 2, "Too many pods": 1}
    other = nodes.copy()
    other.place(_pod("500m"), "n1")
    assert list(other.room(_pod("500m"))) == ["n3"]
    assert list(nodes.room(_pod("500m"))) == ["n1", "n3"]


def test_the_emptier_node_has_the_higher_score() -> None:
    nodes = Nodes([_node("n1"), _node("n2", cpu="8")], ())
    before = dict(nodes.room(_pod()))
    assert before["n1"] < before["n2"]
    nodes.place(_pod(), "n2")
    assert nodes.room(_pod())["n2"] < before["n2"]


def test_pods_that_ask_for_no_cpu_count_in_scores_by_their_containers() -> None:
    """As plugin NodeResourcesFit counts them, they do not all go to one node; nor where scores are equal."""
    resting = msgspec.convert({"metadata": {"name": "a"}, "spec": {"containers": [{}, {}]}}, PodInFull)
    nodes = Nodes([_node("n1", memory="4Gi"), _node("n2", memory="4Gi")], ())
    assert dict(nodes.room(resting)) == {"n1": 90 * STEP, "n2": 90 * STEP}
    nodes.place(resting, "n1")
    assert dict(nodes.room(resting)) == {"n1": 80 * STEP - 1, "n2": 90 * STEP}
    busy = Nodes([_node("n1", memory="4Gi")], (), [_pod("400m", nodeName="n1")])
    assert dict(busy.room(resting)) == {"n1": (70 + 85) // 2 * STEP - 1}


def test_what_berth_counts_is_left_to_it_and_other_resources_are_not() -> None:
    asking = {"requests": {"berth.dev/ip": "7", "native.berth.dev/k80": "1", "example.com/seat": "1"}}
    pod = msgspec.convert(
        {"metadata": {"name": "a"}, "spec": {"containers": [{"resources": asking}]}}, PodInFull
    )
    assert Nodes([_node()], ()).refusals(pod) == {"Insufficient example.com/seat": 1}
    assert list(Nodes([_node()], {"example.com/seat"}).room(pod)) == ["n1"]


def test_a_quantity_that_is_none_is_named() -> None:
    with pytest.raises(BadInputError, match="node n1: cpu: 'lots' is not a quantity"):
        Nodes([_node(cpu="lots")], ())
    with pytest.raises(BadInputError, match="pod default/a: cpu: 'some' is not a quantity"):
        Nodes([_node()], ()).room(_pod("some"))


HOST_PORT = [{"ports": [{"containerPort": 80, "hostPort": 80}]}]
OWN_PORT = [{"ports": [{"containerPort": 80}]}]


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"affinity": {"podAffinity": {"x": []}}}, ["affinity.podAffinity"]),
        ({"affinity": {"podAntiAffinity": {"x": []}}}, ["affinity.podAntiAffinity"]),
        ({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, ["topologySpreadConstraints"]),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, []),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}, ["volumes"]),
        ({"volumes": [{"iscsi": {"iqn": "i"}}]}, ["volumes"]),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}]}, []),
        ({"containers": HOST_PORT}, ["host ports"]),
        ({"containers": OWN_PORT}, []),
        ({"containers": OWN_PORT, "hostNetwork": True}, ["host ports"]),
        ({"hostNetwork": True}, []),
        ({"initContainers": [{**HOST_PORT[0], "restartPolicy": "Always"}]}, ["host ports"]),
        ({"initContainers": HOST_PORT}, []),
        ({"resources": {"requests": {"cpu": "1"}}}, ["resources of the pod as a whole"]),
        (
            {"resourceClaims": [{"name": "gpu"}], "runtimeClassName": "gvisor"},
            ["resourceClaims", "runtimeClassName"],
        ),
    ],
)
def test_what_kube_scheduler_decides_by_and_is_not_looked_at_is_named(spec: Any, names: list[str]) -> None:
    assert unseen(_pod(**spec)) == names


@pytest.mark.parametrize(
    ("term", "away"),
    [
        ({}, {"default"}),
        ({"namespaces": ["b"]}, {"b"}),
        ({"namespaceSelector": {}}, {"default", "b"}),
    ],
)
def test_a_pod_keeps_those_away_that_its_anti_affinity_is_about(term: Any, away: set[str]) -> None:
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    pod = _pod(affinity={"podAntiAffinity": hard})
    assert {name for name in ("default", "b") if keeps_away(pod, {name})} == away
    assert not keeps_away(_pod(affinity={"podAntiAffinity": {}}), {"default"})
