"""A request in a RuntimeClass' overhead alone, where kube-scheduler calls an extender by managedResources.

kube-scheduler looks at containers' requests only, so such a pod is bound without a call. Stated here is what
comes of that, and that the overlay `single` refuses the pod (infra/components/extender/admission.yaml).
"""

from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.e2e.invariant import more_than_there_is
from tests.e2e.test_single_url import CountedExtender
from tests.support.builders.manifests import put, rendered
from tests.support.cluster import UNDERLAY_IP, Cluster, Object, Reply, pod_document, wait

pytestmark = pytest.mark.long

PODS = "/api/v1/namespaces/default/pods"
ONE = {UNDERLAY_IP: 1}
WHY = (
    "the overhead of RuntimeClass boxed requests berth.dev resources, and no container of this pod does, "
    "so the scheduler would not ask berth: request them in a container, or use another RuntimeClass"
)


def boxed(name: str) -> Object:
    """A pod of ours that asks for a unit in its overhead alone."""
    return pod_document(name, {}, cpu="10m", spec={"runtimeClassName": "boxed"})


def create(cluster: Cluster, document: Object) -> Reply:
    return cluster.request("POST", PODS, document)


def with_one_unit(system_of: Systems, counted: CountedExtender) -> System:
    """One node that has one unit, which a pod holds, and a RuntimeClass whose overhead is a unit."""
    system = system_of(1, pools=[pool(units=1)], single=True, functions=counted.functions)
    runtime = {"metadata": {"name": "boxed"}, "handler": "none", "overhead": {"podFixed": {UNDERLAY_IP: "1"}}}
    system.cluster.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    system.cluster.create_pod("holder", ONE)
    system.cluster.wait_bound("holder")
    return system


def test_without_the_policy_such_a_pod_is_bound_uncounted_until_reconcile_adopts_it(
    system_of: Systems, tmp_path: Path
) -> None:
    counted = CountedExtender(tmp_path)
    system = with_one_unit(system_of, counted)
    assert create(system.cluster, boxed("uncounted")).status == 201
    system.cluster.wait_bound("uncounted")  # on the node whose only unit is held
    assert "uncounted" not in {name for _, name in counted.calls}
    assert "berth.dev/allocated" not in system.cluster.get_pod("uncounted")["metadata"].get("annotations", {})
    settled(system, overcommitted=True)
    assert system.berth.claims() == [("holder", "underlay-ip", 1), ("uncounted", "underlay-ip", 1)]
    assert more_than_there_is(system.berth.ledger())


def test_with_the_policy_it_is_refused_and_what_asks_in_a_container_too_is_counted_in_full(
    system_of: Systems, tmp_path: Path
) -> None:
    counted = CountedExtender(tmp_path)
    system = with_one_unit(system_of, counted)
    cluster = system.cluster
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    ours = [each for each in rendered("single", *kinds) if each["metadata"]["name"] == "overhead.berth.dev"]
    put(cluster, ours)
    wait(
        lambda: cluster.request("POST", f"{PODS}?dryRun=All", boxed("p")).status == 422, 60, "it is in force"
    )
    refused = create(cluster, boxed("refused"))
    assert refused.status == 422
    assert WHY in refused.body["message"]

    both = boxed("both")
    both["spec"]["containers"] = pod_document("both", ONE)["spec"]["containers"]
    assert create(cluster, both).status == 201
    assert "underlay-ip: 0 of 1 free, 2 asked" in system.refusal_of("both")
    settled(system)
    assert system.berth.claims() == [("holder", "underlay-ip", 1)]
