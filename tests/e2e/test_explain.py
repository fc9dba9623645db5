"""`berth explain` beside a real kube-scheduler: it gives the reason that the pod's own condition has, and
what it says would let the pod in does so.

Its whole text in each situation, without a control plane: tests/cli/test_explain.py.
"""

import json

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.cluster import Object, wait

pytestmark = pytest.mark.long

RACK = "example.com/rack"
POOLS = [
    pool("seat", {"perDomain": 1}, scope="Cluster"),
    pool("desk", {"perDomain": 1}, suspended=True),
    pool("rack", {"domains": {"rack-1": 4}}, scope="Topology", topologyKey=RACK),
]


def test_what_explain_says_is_the_reason_of_the_condition_and_lets_the_pod_in(system_of: Systems) -> None:
    system = system_of(2, pools=POOLS)
    system.cluster.create_pod("holder", {"berth.dev/seat": 1})
    system.cluster.wait_bound("holder")
    for name in ("seat", "desk", "rack"):
        system.cluster.create_pod(f"waits-for-{name}", {f"berth.dev/{name}": 1})
    told = {name: _explained(system, f"waits-for-{name}") for name in ("seat", "desk", "rack")}

    text = _run(system, "explain", "pod", "default/waits-for-seat", "--store", system.berth.store)
    assert text.startswith("default/waits-for-seat waits: seat has 0 of 1 free, 1 asked\n")
    (step,) = told["seat"]["remedies"][0]["steps"]
    assert (step["kind"], step["pods"]) == ("units", [{"namespace": "default", "pod": "holder"}])
    system.cluster.delete_pod("holder")

    (step,) = told["desk"]["remedies"][0]["steps"]
    assert step["command"] == "berth suspend desk --resume"
    named = ("--pools", str(system.berth.pools_file), "--store", system.berth.store)
    _run(system, *step["command"].split()[1:], *named)

    (step,) = told["rack"]["remedies"][0]["steps"]
    assert (step["kind"], step["command"]) == ("label", f"kubectl label node {step['node']} {RACK}=rack-1")
    system.cluster.patch(f"/api/v1/nodes/{step['node']}", {"metadata": {"labels": {RACK: step["domain"]}}})

    system.berth.reconcile()
    bound = system.cluster.wait_bound(*(f"waits-for-{name}" for name in told))
    assert bound["waits-for-rack"] == step["node"]
    after = _seen(system, "waits-for-rack")
    assert (after["verdict"], after["node"]) == ("bound", step["node"])
    (held,) = after["holds"]
    assert (held["pool"], held["domain"], held["count"]) == ("rack", "rack-1", 1)


def _explained(system: System, name: str) -> Object:
    """What is said of a pod once its condition is there; both give the reason in the same words."""
    said = wait(lambda: system.cluster.condition(name, "PodScheduled"), 60, f"a condition of {name}")
    assert said is not None
    told = _seen(system, name)
    assert told["verdict"] == "waits"
    (refused,) = told["refused"]
    assert refused["text"] in said["message"]
    assert refused["text"] in told["schedulerSays"]["message"]
    return told


def _seen(system: System, name: str) -> Object:
    said = _run(system, "explain", "pod", name, "-n", "default", "--store", system.berth.store, "-o", "json")
    told: Object = json.loads(said)
    return told


def _run(system: System, *arguments: str) -> str:
    done = system.berth.run(*arguments, seconds=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
