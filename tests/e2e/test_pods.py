"""Whom Berth believes about a pod: the API server, and nobody who sends an event or writes an annotation.

Lost events are tested elsewhere.
"""

import copy
import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import event, pool, settled
from tests.support.cluster import UNDERLAY_IP, Object, Reply

ALLOCATED = "berth.dev/allocated"
LIE = {ALLOCATED: '[{"pool":"underlay-ip","domain":"node-2","count":2}]'}
TAKEN = Reply(204, "")
RECORDED = Path(__file__).resolve().parents[2] / "events" / "cloudevents"


@pytest.mark.long
def test_an_allocation_that_a_user_wrote_is_not_believed(system_of: Systems) -> None:
    system = system_of(2, pools=[pool(units={"domains": {"node-1": 2, "node-2": 2}})])
    cluster = system.cluster
    # node-2 is full, by a pod that no scheduler of ours placed.
    cluster.create_pod("bound-by-others", {UNDERLAY_IP: 2}, node_name="node-2")
    cluster.create_pod("running", {}, node_name="node-1", annotations=LIE)
    cluster.create_pod("unbound", scheduler="nobody", annotations=LIE)
    cluster.create_pod("gated", annotations=LIE, scheduling_gates=["example.com/later"])
    assert settled(system)["adopted"] == 1
    assert system.berth.claims() == [("bound-by-others", "underlay-ip", 2)]

    cluster.create_pod("asks-and-lies", annotations=LIE)
    cluster.create_pod("only-lies", {}, annotations=LIE)
    bound = cluster.wait_bound("asks-and-lies", "only-lies")
    assert bound["asks-and-lies"] == "node-1"
    written = json.loads(cluster.get_pod("asks-and-lies")["metadata"]["annotations"][ALLOCATED])
    assert written == [{"pool": "underlay-ip", "domain": "node-1", "count": 1}]
    settled(system)
    assert system.berth.claims("node-1") == [("asks-and-lies", "underlay-ip", 1)]

    # Nor later, of a pod that runs: what is written there moves no claim.
    cluster.patch("/api/v1/namespaces/default/pods/asks-and-lies", {"metadata": {"annotations": LIE}})
    settled(system)
    assert system.berth.claims("node-1") == [("asks-and-lies", "underlay-ip", 1)]


def test_only_what_the_api_server_confirms_frees_a_unit(system_of: Systems) -> None:
    system = system_of(1, pools=[pool(units=2)])
    cluster, berth = system.cluster, system.berth
    for name in ("job", "service"):
        cluster.create_pod(name, labels={"berth.dev/scheduled": "true"})
    cluster.wait_bound("job", "service")
    cluster.create_pod("waiter")
    system.refusal_of("waiter")

    living = cluster.get_pod("service") | {"kind": "Pod", "apiVersion": "v1"}
    stale = copy.deepcopy(living)
    stale["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    finished = living | {"status": {"phase": "Succeeded"}}
    for change, forged in (("delete", living), ("delete", stale), ("update", finished)):
        assert berth.post("release", forged, event(change, forged)) == TAKEN
    # What the source sends when a label is taken off a running pod, as it was recorded.
    assert berth.post("release", *_label_removed(living)) == TAKEN
    assert berth.claims() == [("job", "underlay-ip", 1), ("service", "underlay-ip", 1)]
    cluster.patch(
        "/api/v1/namespaces/default/pods/service", {"metadata": {"labels": {"berth.dev/scheduled": None}}}
    )
    assert settled(system)["released"] == 0
    assert berth.claims() == [("job", "underlay-ip", 1), ("service", "underlay-ip", 1)]
    assert "waiter" not in cluster.bound()

    cluster.finish_pod("job")
    cluster.wait_bound("waiter", seconds=30)
    cluster.create_pod("next")
    cluster.finish_pod("service", phase="Failed")
    cluster.wait_bound("next", seconds=30)
    assert settled(system)["released"] == 0, "the events should have freed them, not the reconcile"
    assert berth.claims() == [("next", "underlay-ip", 1), ("waiter", "underlay-ip", 1)]


def _label_removed(pod: Object) -> tuple[Object, dict[str, str]]:
    """Body and headers of the recorded event, with this pod in place of the recorded one."""
    recorded = json.loads((RECORDED / "pod-delete-label-removed.json").read_text())
    data = recorded.pop("data")
    data["metadata"] |= {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
    data["spec"] = pod["spec"]
    named = recorded | {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    named.pop("datacontenttype")
    return data, {f"Ce-{name}": value for name, value in named.items()}
