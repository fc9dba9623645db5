"""infra's admission policies on the real API server: each rule, its words, and what passes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE
from berth.api.run_time import RUNS_FOR
from tests.controlplane.lent import Planes
from tests.support.builders.manifests import ADMISSION, put, rendered, serve_pools, token_of
from tests.support.builders.objects import pool_document
from tests.support.cluster import UNDERLAY_IP, Cluster, Object, pod_document, pod_path, wait
from tests.support.kubernetes import OVERLAY, has, since

PODS = "/api/v1/namespaces/default/pods"
ONE = {UNDERLAY_IP: 1}
ALLOCATED, CLAIMS, LABEL = "berth.dev/allocated", "berth.dev/claims", "berth.dev/scheduled"
ANNOTATIONS = "annotations.berth.dev"
POOLS_PATH = "/apis/berth.dev/v1alpha1/pools"
ADMINS = {
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "admins"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [
        {"kind": "ServiceAccount", "name": name, "namespace": "berth"}
        for name in ("berth-bind", "berth-release")
    ],
}


@pytest.fixture(scope="module")
def guarded(planes: Planes) -> Iterator[Cluster]:
    """A cluster with the policies in force; the accounts of bind and release may do everything, so that what
    is refused to them is refused by a policy."""
    with planes.lent() as plane:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        put(cluster, rendered(OVERLAY, "Namespace", "ConfigMap", "ServiceAccount"))
        put(cluster, [ADMINS, *rendered(OVERLAY, *ADMISSION)])
        # The API server takes a policy into force a moment after it took it in.
        wait(lambda: in_force(cluster), 60, "the policies in force", every=0.1)
        yield cluster
        cluster.close()


def in_force(cluster: Cluster) -> bool:
    late = pod_document("probe", {}, annotations={CLAIMS: "a"})
    foreign = cluster.request("POST", f"{PODS}/nobody/binding?dryRun=All", binding_of("nobody", "[]")).status
    return (
        cluster.request("POST", f"{PODS}?dryRun=All", late).status == 422
        and labelled(cluster) == has("1.36")
        and foreign == 403
    )


def labelled(cluster: Cluster) -> bool:
    taken = cluster.request("POST", f"{PODS}?dryRun=All", pod_document("probe", {})).body
    return LABEL in taken.get("metadata", {}).get("labels", {})


def binding_of(pod: str, allocated: str | None = None) -> Object:
    notes = {} if allocated is None else {ALLOCATED: allocated}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": notes},
        "target": {"kind": "Node", "name": "n1"},
    }


@pytest.fixture
def pod(guarded: Cluster) -> Iterator[str]:
    """A waiting pod of ours with a claim's name; its path."""
    guarded.call("POST", PODS, pod_document("ours", ONE, annotations={CLAIMS: "k80-erc"}))
    yield pod_path("ours")
    guarded.delete_pod("ours")


def said(cluster: Cluster, method: str, path: str, body: Any, token: str | None = None) -> str:
    """The refusal, empty if it was taken."""
    how = "application/merge-patch+json" if method == "PATCH" else "application/json"
    reply = cluster.request(method, f"{path}?dryRun=All", body, token, how)
    return "" if reply.status < 300 else str(reply.body["message"])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: pod_document("p", ONE), ""),
        (lambda: pod_document("p", {}, scheduler="default-scheduler", node_name="n1"), ""),
        (lambda: pod_document("p", {"cpu": 1}, scheduler="default-scheduler"), ""),
        (lambda: pod_document("p", ONE, annotations={CLAIMS: "a"}), ""),
        (lambda: pod_document("p", ONE, annotations={RUNS_FOR: "30m"}), ""),
        (
            lambda: pod_document("p", ONE, scheduler="default-scheduler"),
            "which only berth counts: set spec.schedulerName to berth",
        ),
        (
            lambda: pod_document("p", {"native.berth.dev/k80": 1}, scheduler="default-scheduler"),
            "set spec.schedulerName to berth",
        ),
        (lambda: pod_document("p", ONE, node_name="n1"), "leave out spec.nodeName, and take nodeSelector"),
        (lambda: pod_document("p", ONE, annotations={ALLOCATED: "[]"}), "is written by berth's bind alone"),
        (lambda: pod_document("p", {}, annotations={CLAIMS: "a"}), "request those of the claims' pools too"),
        (lambda: pod_document("p", ONE, annotations={CLAIMS: ",".join("abcdefghijklmnop")}), ""),
        (
            lambda: pod_document("p", ONE, annotations={CLAIMS: ",".join("abcdefghijklmnopq")}),
            "berth.dev/claims names more than 16 PoolClaims: name fewer",
        ),
        (
            lambda: pod_document("p", ONE, annotations={CLAIMS: "c," * 120_000}),
            "berth.dev/claims names more than 16 PoolClaims: name fewer",
        ),
    ],
)
def test_a_new_pod_is_taken_or_told_what_to_do(
    guarded: Cluster, made: Callable[[], Object], why: str
) -> None:
    found = said(guarded, "POST", PODS, made())
    assert why in found
    assert bool(why) == bool(found)


def test_requests_of_init_containers_count_too(guarded: Cluster) -> None:
    document = pod_document("p", {}, scheduler="default-scheduler")
    (first,) = pod_document("p", ONE)["spec"]["containers"]
    document["spec"]["initContainers"] = [{**first, "name": "first"}]
    assert "set spec.schedulerName to berth" in said(guarded, "POST", PODS, document)


@pytest.mark.parametrize("what", ["", "/status"])
@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({"example.com/x": "y"}, ""),
        ({RUNS_FOR: "30m"}, ""),
        ({CLAIMS: "other"}, "can't change while the pod is there"),
        ({CLAIMS: None}, "can't change while the pod is there"),
        ({ALLOCATED: "[]"}, "is written by berth's bind alone"),
    ],
)
def test_the_annotations_of_a_pod_stay_as_they_are(
    guarded: Cluster, pod: str, what: str, notes: Mapping[str, str | None], why: str
) -> None:
    found = said(guarded, "PATCH", pod + what, {"metadata": {"annotations": notes}})
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.parametrize(
    "what",
    ["ephemeralcontainers", pytest.param("resize", marks=since("1.33", "pods have that subresource"))],
)
def test_no_other_subresource_changes_the_annotations_of_a_pod(guarded: Cluster, pod: str, what: str) -> None:
    """The policies don't look at them: Kubernetes takes no annotation by them."""
    before = guarded.get(pod)["metadata"]["annotations"]
    how = "application/strategic-merge-patch+json"
    for notes in ({ALLOCATED: "[]"}, {CLAIMS: "other"}, {CLAIMS: None}):
        body = {"metadata": {"annotations": notes}}
        reply = guarded.request("PATCH", f"{pod}/{what}", body, None, how)
        assert reply.status in (200, 403, 422)
        assert guarded.get(pod)["metadata"]["annotations"] == before


def test_only_bind_s_account_says_what_was_allocated(guarded: Cluster, pod: str) -> None:
    bind, release = token_of(guarded, "berth-bind"), token_of(guarded, "berth-release")
    assert said(guarded, "POST", f"{pod}/binding", binding_of("ours", "[]"), bind) == ""
    assert "leave it out of the Binding" in said(
        guarded, "POST", f"{pod}/binding", binding_of("ours", "[]"), release
    )
    assert said(guarded, "POST", f"{pod}/binding", binding_of("ours"), release) == ""


@since("1.36", "the label is a MutatingAdmissionPolicy's")
@pytest.mark.parametrize("what", ["", "/status"])
def test_the_label_that_the_source_selects_by_comes_and_stays(guarded: Cluster, pod: str, what: str) -> None:
    assert guarded.get(pod)["metadata"]["labels"] == {LABEL: "true"}
    for value in (None, "false"):
        after = guarded.patch(pod + what, {"metadata": {"labels": {LABEL: value}}})
        assert after["metadata"]["labels"] == {LABEL: "true"}


def test_pods_of_other_schedulers_get_no_label(guarded: Cluster) -> None:
    made = guarded.request("POST", f"{PODS}?dryRun=All", pod_document("p", {}, scheduler="other")).body
    assert LABEL not in made["metadata"].get("labels", {})


def test_pods_of_others_depend_on_nothing_of_berth(guarded: Cluster) -> None:
    """Whoever deletes the namespace berth, or spoils what is in it, must not stop the cluster: the policies
    look at nothing but the pod."""
    foreign = [
        pod_document("p", {}, scheduler="default-scheduler"),
        pod_document("p", {"cpu": 1}, node_name="n1", scheduler="default-scheduler"),
    ]
    assert [said(guarded, "POST", PODS, each) for each in foreign] == ["", ""]
    bare = guarded.request("POST", f"{PODS}/nobody/binding?dryRun=All", binding_of("nobody"))
    assert bare.status == 404  # taken by the policies
    policies = rendered(OVERLAY, *ADMISSION) + rendered("single", "ValidatingAdmissionPolicy")
    by_parameters = [each for each in policies if {"paramKind", "paramRef"} & each["spec"].keys()]
    assert {each["metadata"]["name"] for each in by_parameters} == {ANNOTATIONS}
    specs = {each["kind"]: each["spec"] for each in by_parameters}
    assert specs["ValidatingAdmissionPolicy"]["failurePolicy"] == "Ignore"
    reference = specs["ValidatingAdmissionPolicyBinding"]["paramRef"]
    assert reference == {"selector": {}, "parameterNotFoundAction": "Allow"}


# What a Pool's annotations say

IP_KEY, SEAT_KEY = "cni.example/ip", "cni.example/seat"
SEAT = {"example.com/seat": 1}


def pool_of(name: str, template: str, **spec: Any) -> Object:
    document = pool_document(name, units={"n1": [f"{name}-1"]}, annotations={template: "{unit}"}, **spec)
    document["spec"].pop("capacity", None)
    return document


@pytest.fixture(scope="module")
def told(guarded: Cluster) -> Iterator[Cluster]:
    """With two Pools that have annotations written, of which one refuses pods that bring theirs."""
    make_pools(guarded)
    yield guarded
    for name in ("underlay-ip", "seat"):
        guarded.call("DELETE", f"{POOLS_PATH}/{name}")


def make_pools(cluster: Cluster) -> None:
    serve_pools(cluster)
    cluster.call("POST", POOLS_PATH, pool_of("underlay-ip", IP_KEY))
    seat = pool_of("seat", SEAT_KEY, resource="example.com/seat", onAnnotated="Refuse")
    cluster.call("POST", POOLS_PATH, seat)
    wait(lambda: said(cluster, "POST", PODS, bringing(SEAT, SEAT_KEY)), 60, "the Pools in force", every=0.1)


def bringing(resources: Mapping[str, int], key: str) -> Object:
    return pod_document("p", resources, annotations={key: "10.0.0.9"})


@pytest.mark.long
def test_a_pod_brings_no_annotation_that_its_pool_refuses(told: Cluster) -> None:
    assert (
        "berth's bind alone writes the annotation cni.example/seat into pods that ask for example.com/seat: "
        "leave it out"
    ) in said(told, "POST", PODS, bringing(SEAT, SEAT_KEY))
    assert said(told, "POST", PODS, bringing(SEAT, IP_KEY)) == ""
    assert said(told, "POST", PODS, bringing(ONE, SEAT_KEY)) == ""
    assert said(told, "POST", PODS, bringing(ONE, IP_KEY)) == ""  # bind overwrites it
    foreign = pod_document("p", SEAT, annotations={SEAT_KEY: "s9"}, scheduler="default-scheduler")
    assert said(told, "POST", PODS, foreign) == ""
    init = pod_document("p", {}, annotations={SEAT_KEY: "s9"})
    (first,) = pod_document("p", SEAT)["spec"]["containers"]
    init["spec"]["initContainers"] = [{**first, "name": "first"}]
    assert "leave it out" in said(told, "POST", PODS, init)


@pytest.mark.parametrize("what", ["", "/status"])
@pytest.mark.parametrize("value", ["10.0.0.9", None])
@pytest.mark.long
def test_nobody_changes_what_bind_has_told_a_pod_of_its_units(
    told: Cluster, what: str, value: str | None
) -> None:
    told.call("POST", PODS, pod_document("p", ONE, annotations={SEAT_KEY: "x"}))
    path = pod_path("p")
    change = {"metadata": {"annotations": {IP_KEY: value}}}
    try:
        assert said(told, "PATCH", path + what, change) == ""  # nothing is given to it yet
        binding = binding_of("p", "[]")
        binding["metadata"]["annotations"][IP_KEY] = "10.0.0.1"
        bind = token_of(told, "berth-bind")
        assert told.request("POST", f"{path}/binding", binding, bind).status == 201
        assert (
            "the annotation cni.example/ip is for berth's bind alone to write into pods that ask for "
            "berth.dev/underlay-ip: leave it as it is"
        ) in said(told, "PATCH", path + what, change)
        assert said(told, "PATCH", path + what, {"metadata": {"annotations": {SEAT_KEY: value}}}) == ""
        assert said(told, "PATCH", path + what, {"metadata": {"annotations": {IP_KEY: "10.0.0.1"}}}) == ""
    finally:
        told.delete_pod("p")


def test_the_policy_on_annotations_comes_back_after_it_was_removed(told: Cluster) -> None:
    """One with parameters from a ConfigMap would not (docs/decisions/0023)."""
    policies = [each for each in rendered(OVERLAY, *ADMISSION) if each["metadata"]["name"] == ANNOTATIONS]
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        told.call("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}/{ANNOTATIONS}")
    wait(lambda: not said(told, "POST", PODS, bringing(SEAT, SEAT_KEY)), 60, "the policy gone", every=0.1)
    put(told, policies)
    wait(lambda: said(told, "POST", PODS, bringing(SEAT, SEAT_KEY)), 60, "the policy back", every=0.1)


def test_where_the_kind_pool_is_gone_the_policy_on_annotations_stops_nobody(told: Cluster) -> None:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pools.berth.dev"
    told.call("DELETE", crd)
    wait(lambda: told.request("GET", crd).status == 404, 60, "the kind gone", every=0.1)
    try:
        wait(lambda: not said(told, "POST", PODS, bringing(SEAT, SEAT_KEY)), 60, "the Pools gone", every=0.1)
        assert said(told, "POST", PODS, pod_document("p", {}, scheduler="default-scheduler")) == ""
    finally:
        make_pools(told)


OVERHEAD = {UNDERLAY_IP: "1"}


@pytest.fixture(scope="module")
def boxing(guarded: Cluster) -> Cluster:
    """With a RuntimeClass whose overhead is a unit."""
    for name, overhead in {"boxed": OVERHEAD, "plain": {"cpu": "10m"}}.items():
        made = {"metadata": {"name": name}, "handler": "none", "overhead": {"podFixed": overhead}}
        guarded.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", made)
    return guarded


@pytest.fixture
def managed(boxing: Cluster) -> Iterator[Cluster]:
    """With what the overlay `single` has besides. Of two policies that refuse a pod the API server tells
    either, so it is there for those alone who ask for it."""
    special = [
        each for each in rendered("single", *ADMISSION) if each["metadata"]["name"] == "overhead.berth.dev"
    ]
    assert [each["kind"] for each in special] == [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    put(boxing, special)
    wait(lambda: said(boxing, "POST", PODS, boxed({})), 60, "the policy in force", every=0.1)
    yield boxing
    for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        boxing.call("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}/overhead.berth.dev")
    wait(lambda: not said(boxing, "POST", PODS, boxed({})), 60, "the policy gone", every=0.1)


def boxed(resources: Mapping[str, int], runtime: str = "boxed", **more: Any) -> Object:
    return pod_document("p", resources, spec={"runtimeClassName": runtime}, **more)


def test_a_request_in_the_overhead_alone_is_refused_where_kube_scheduler_would_not_call(
    managed: Cluster,
) -> None:
    why = (
        "the overhead of RuntimeClass boxed requests berth.dev resources, and no container of this pod does, "
        "so the scheduler would not ask berth: request them in a container, or use another RuntimeClass"
    )
    assert why in said(managed, "POST", PODS, boxed({"cpu": 1}))
    assert said(managed, "POST", PODS, boxed(ONE)) == ""
    assert said(managed, "POST", PODS, boxed({"cpu": 1}, "plain")) == ""


def test_the_overhead_is_a_request_like_any_other(boxing: Cluster) -> None:
    found = said(boxing, "POST", PODS, boxed({}, scheduler="default-scheduler"))
    assert "set spec.schedulerName to berth" in found


STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"


def stateful_set(name: str, noted: Mapping[str, str], **spec: Any) -> Object:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": dict(noted)},
        "spec": pod_document("a", {})["spec"],
    }
    whole = {"serviceName": name, "replicas": 3, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {**whole, **spec},
    }


@pytest.mark.parametrize(
    ("noted", "spec", "taken"),
    [
        ({GANG: "train", GANG_SIZE: "3"}, {}, False),
        ({GANG: "train", GANG_SIZE: "3"}, {"podManagementPolicy": "OrderedReady"}, False),
        ({GANG: "train", GANG_SIZE: "3"}, {"podManagementPolicy": "Parallel"}, True),
        ({GANG: "train", GANG_SIZE: "1"}, {}, True),
        ({}, {}, True),
    ],
)
def test_a_statefulset_of_a_gang_makes_all_its_pods_at_once(
    guarded: Cluster, noted: Mapping[str, str], spec: Mapping[str, Any], taken: bool
) -> None:
    wait(lambda: "one by one" in said(guarded, "POST", STATEFUL_SETS, FIRST), 60, "in force")
    answer = said(guarded, "POST", STATEFUL_SETS, stateful_set("set", noted, **spec))
    assert ("create it with podManagementPolicy Parallel" in answer) is not taken
    assert bool(answer) is not taken


def test_a_statefulset_that_was_there_before_the_policy_may_be_changed_but_for_its_gang(
    guarded: Cluster,
) -> None:
    noted = {GANG: "train", GANG_SIZE: "1"}
    guarded.call("POST", STATEFUL_SETS, stateful_set("old", noted))
    path = f"{STATEFUL_SETS}/old"
    assert said(guarded, "PATCH", path, {"spec": {"replicas": 2}}) == ""
    larger = {"spec": {"template": {"metadata": {"annotations": {GANG_SIZE: "2"}}}}}
    assert "podManagementPolicy Parallel" in said(guarded, "PATCH", path, larger)
    guarded.call("DELETE", path)


FIRST = stateful_set("probe", {GANG: "train", GANG_SIZE: "3"})
