"""What is found of pods, nodes, Pools, policies and versions, on objects made by hand."""

from typing import Any

import msgspec
import pytest

from berth.checks import admission, clock, nodes, pods, pools, versions
from berth.kube.configuration import PodWithVolumes, Policy, PolicyBinding, Right, Workload, minor_of
from berth.kube.types import Node
from tests.unit.checks.inputs import inputs_of

IP = "berth.dev/ip"


def pool(name: str = "ip", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": name}}
    return {**head, "spec": {"capacity": {"perDomain": 1}, **spec}}


def node(name: str = "n1", **fields: Any) -> Node:
    return msgspec.convert({"metadata": {"name": name, **fields.pop("metadata", {})}, **fields}, Node)


def pod(resource: str, scheduler: str = "berth", count: str = "1", **metadata: Any) -> PodWithVolumes:
    container = {"resources": {"requests": {resource: count}}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    named = {"name": "p", "namespace": "a", **metadata}
    return msgspec.convert({"metadata": named, "spec": spec}, PodWithVolumes)


@pytest.mark.parametrize(
    ("document", "rules"),
    [
        (pool(), []),
        (pool(nodeSelector={"matchLabels": {"a": "b"}}), ["pools.selector"]),
        (pool(scope="Topology", topologyKey="zone"), ["pools.label"]),
        (pool(capacity={"perDomain": 0}), ["pools.empty"]),
        (pool(capacity={"domains": {"elsewhere": 3}}), ["pools.empty"]),
        (pool(scope="Cluster", capacity={"domains": {"*": 3}}), []),
    ],
)
def test_a_pool_without_units_is_found(document: dict[str, Any], rules: list[str]) -> None:
    given = inputs_of(pools=[document], nodes=[node()])
    assert [finding.id for finding in pools._units(given)] == rules


@pytest.mark.parametrize(
    ("spec", "subnets"),
    [
        (
            {"units": {"n1": ["10.0.3.0/24", "fd00::/64", "a"], "n2": ["10.0.4.0/29"]}},
            "10.0.3.0/24, 10.0.4.0/29",
        ),
        ({"units": {"n1": ["10.0.3.2-10.0.3.9", "10.0.3.16/30", "10.0.3.20/32"]}}, ""),
        ({"units": {"n1": ["10.0.3.0/24"]}, "exclude": ["10.0.3.254"]}, ""),
        ({"units": {"n1": ["10.0.3.0/24"]}, "exclude": []}, ""),
        ({"capacity": {"perDomain": 1}}, ""),
    ],
)
def test_a_pool_that_gives_out_a_subnet_s_first_address_is_found(spec: dict[str, Any], subnets: str) -> None:
    document = {**pool("ip"), "spec": spec}
    found = "".join(finding.message for finding in pools._gateways(inputs_of(pools=[document])))
    assert found == (f"Pool ip gives out the first address of {subnets}" if subnets else "")


def test_a_pool_that_is_wrong_is_named_and_the_others_are_looked_at() -> None:
    given = inputs_of()
    vars(given)["pool_documents"] = [pool("a", capacity={"perDomain": -1}), pool("b")]
    (finding,) = pools._wrong(given)
    assert (finding.id, finding.names) == ("pools.wrong", ("a",))
    vars(given)["pool_documents"] = [pool("a", resource="x.y/z"), pool("b", resource="x.y/z")]
    (finding,) = pools._wrong(given)
    assert "Pools a and b both have resource x.y/z" in finding.message


def test_an_annotation_that_is_no_number_is_found() -> None:
    wrong = node(metadata={"annotations": {"x/n": "many"}})
    given = inputs_of(pools=[pool(capacity={"nodeAnnotation": "x/n"})], nodes=[wrong])
    assert [finding.names for finding in pools._annotation(given)] == [("ip",)]


def test_a_node_that_shows_a_resource_of_ours_is_found_unless_it_is_for_preemption() -> None:
    shows = node(status={"capacity": {IP: "4", "native.berth.dev/k80": "1", "cpu": "8"}})
    (finding,) = nodes._resource(inputs_of(nodes=[shows]))
    assert finding.names == (IP, "n1")


@pytest.mark.parametrize("name", ["cluster-autoscaler", "karpenter"])
def test_an_autoscaler_is_found(name: str) -> None:
    deployment = msgspec.convert({"metadata": {"name": name, "namespace": "kube-system"}}, Workload)
    (finding,) = nodes._autoscaler(inputs_of(deployments=[deployment]))
    assert finding.names == (f"kube-system/{name}",)


def test_a_pod_of_another_scheduler_and_one_of_no_pool_are_found() -> None:
    given = inputs_of(pods=[pod(IP, "other"), pod("berth.dev/pi"), pod(IP)], pools=[pool()])
    assert [finding.names for finding in pods._scheduler(given)] == [("a/p",)]
    assert [finding.names for finding in pods._pool(given)] == [("berth.dev/pi", "a/p")]


def test_a_pod_that_asks_for_none_or_of_another_s_group_is_not_ours() -> None:
    asking = [pod(IP, "other", count="0"), pod("berth.dev/pi", count="0"), pod("notberth.dev/a")]
    given = inputs_of(pods=asking, pools=[pool()])
    assert [*pods._scheduler(given), *pods._pool(given)] == []


def test_a_function_s_pod_of_our_own_scheduler_is_found_unless_that_is_the_cluster_s() -> None:
    labels = {"app.kubernetes.io/component": "function", "app.kubernetes.io/part-of": "berth"}
    function = pod("cpu", namespace="berth", labels=labels)
    assert len(list(pods._function(inputs_of(pods=[function], functions=[])))) == 1
    of_default = pod("cpu", "default-scheduler", namespace="berth", labels=labels)
    given = inputs_of(pods=[of_default], functions=[], scheduler_names=("default-scheduler",))
    assert list(pods._function(given)) == []


POLICY = {
    "metadata": {"name": "x"},
    "spec": {
        "validations": [{}],
        "matchConstraints": {"resourceRules": [{}], "namespaceSelector": {}},
        "variables": [{"name": "schedulers", "expression": "'berth, b'.replace(',', ' ')"}],
    },
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"failurePolicy": "Ignore"}, ["failurePolicy is Ignore"]),
        ({"validations": []}, ["it has 0 rules, and 1 are shipped"]),
        (
            {"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
            ["its matchConstraints leave objects out"],
        ),
    ],
)
def test_a_policy_that_is_not_as_it_is_shipped_is_found(change: dict[str, Any], said: list[str]) -> None:
    policy = msgspec.convert({**POLICY, "spec": {**POLICY["spec"], **change}}, Policy)  # type: ignore[dict-item]
    assert list(admission._changes(policy, admission.Expected(1))) == said


def test_a_binding_that_does_not_deny_is_found() -> None:
    spec = {"validationActions": ["Audit"], "matchResources": {"objectSelector": {"matchLabels": {}}}}
    binding = msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, PolicyBinding)
    assert list(admission._binding_changes(binding, admission.Expected(1))) == [
        "its binding's validationActions are Audit",
        "its binding's matchResources leave objects out",
    ]


def test_a_policy_of_other_schedulers_is_found() -> None:
    policy = msgspec.convert(POLICY, Policy)
    assert list(admission._names(policy, ("b", "berth"))) == []
    assert [finding.names for finding in admission._names(policy, ("c",))] == [("x",)]


@pytest.mark.parametrize(
    ("release", "rules"),
    [("v1.31.9", ["versions.kubernetes"]), ("v1.32.0", []), ("v1.36.3-gke.1", []), ("odd", [])],
)
def test_a_kubernetes_that_is_too_old_is_found(release: str, rules: list[str]) -> None:
    given = inputs_of(release=release)
    assert [finding.id for finding in versions._kubernetes(given)] == rules
    assert bool(given.unchecked) == ("versions.kubernetes" in given.unlooked) == (release == "odd")


@pytest.mark.parametrize(
    ("tag", "server", "wrong"),
    [
        ("v1.36.3", "v1.36.1", False),
        ("v1.31.0", "v1.36.1", True),
        ("v1.37.0", "v1.36.1", True),
        ("latest", "v1.36.1", False),
        ("v1.36.3", "odd", False),
        ("v1.31.0", "odd", True),
    ],
)
def test_a_scheduler_older_than_wakes_or_newer_than_the_api_server_is_found(
    tag: str, server: str, wrong: bool
) -> None:
    containers = [{"image": f"registry.k8s.io:5000/kube-scheduler:{tag}"}]
    spec = {"template": {"spec": {"containers": containers}}}
    deployment = msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, Workload)
    given = inputs_of(release=server, scheduler_deployment=deployment)
    assert bool(list(versions._scheduler(given))) == wrong


def test_versions_and_rights_are_read_and_written() -> None:
    assert [minor_of(text) for text in ("v1.36.3", "7.0.15", "1", "", "x.y")] == [
        *((1, 36), (7, 0)),
        *((0, 0), (0, 0), (0, 0)),
    ]
    right = Right("patch", "", "pods/status", "berth", "p")
    assert str(right) == "patch pods/status p in berth"
    assert right.attributes() == {
        "verb": "patch",
        "resource": "pods",
        "subresource": "status",
        "namespace": "berth",
        "name": "p",
    }


class Dated:
    host = "https://none"

    def __init__(self, date: str) -> None:
        self._date = date

    def date(self) -> str:
        return self._date


@pytest.mark.parametrize(
    ("date", "rules"),
    [
        ("Thu, 01 Jan 1970 00:16:40 GMT", []),
        ("Thu, 01 Jan 1970 00:16:37 GMT", []),  # 3 s, of which one may be what the Date leaves out
        ("Thu, 01 Jan 1970 00:16:36 GMT", ["clock.server"]),
        ("Thu, 01 Jan 1970 00:16:43 GMT", ["clock.server"]),
        ("", []),
    ],
)
def test_clocks_that_are_apart_are_found(date: str, rules: list[str]) -> None:
    given = inputs_of()
    given.cluster = Dated(date)  # type: ignore[assignment]
    assert [finding.id for finding in clock._server(given)] == rules
    assert bool(given.unchecked) == ("clock.server" in given.unlooked) == (not date)
