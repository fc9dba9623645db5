"""`berth status` and `berth claims` beside a real kube-scheduler, over each store.

Their errors and forms, without a control plane, are in tests/cli/test_inspect.py.
"""

import json

import pytest
import yaml

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool, settled
from tests.support.builders.places import Place
from tests.support.cluster import Object, wait

pytestmark = pytest.mark.long


def test_what_is_held_free_and_waited_for_is_seen_in_every_form(system_of: Systems, place: Place) -> None:
    system = system_of(1, pools=[pool(units=2)], store=place.url)
    system.cluster.create_pods("a", "b", "c")
    wait(lambda: len(system.cluster.bound()) == 2, 30, "two of three pods are bound")
    holders = set(system.cluster.bound())
    system.refusal_of(({"a", "b", "c"} - holders).pop(), 30)
    settled(system, 30)

    found = _seen(system, "status")
    (underlay_ip,) = found["pools"]
    counts = {
        key: underlay_ip[key] for key in ("capacity", "used", "free", "reserved", "waiting", "overCommitted")
    }
    assert list(counts.values()) == [2, 2, 0, 0, 1, 0]
    (node,) = underlay_ip["domains"]
    assert [node[key] for key in ("name", "capacity", "used", "free", "reserved", "binding")] == [
        *("node-1", 2, 2, 0, 0, 0)
    ]
    assert found["headline"] == "1 pool, 0 of 2 units free, 1 pod waits"
    assert found["ledger"] == {"store": place.url, "open": True, "why": ""}
    assert _table(system, "status")[1:] == [
        ["underlay-ip", "<all>", "2", "2", "0", "0", "1"],
        ["underlay-ip", "node-1", "2", "2", "0", "0", "-"],
    ]

    uids = {name: system.cluster.get_pod(name)["metadata"]["uid"] for name in holders}
    claims = _seen(system, "claims")["claims"]
    assert {claim["pod"]: claim["uid"] for claim in claims} == uids
    held = ["default", "node-1", "underlay-ip", "node-1", 1, "bound"]
    keys = ("namespace", "node", "pool", "domain", "count", "state")
    assert [[claim[key] for key in keys] for claim in claims] == [held, held]
    assert [line[:7] for line in _table(system, "claims")] == [
        ["default", name, *map(str, held[1:])] for name in sorted(holders)
    ]


def _seen(system: System, command: str) -> Object:
    """What it says as JSON, which is what it says as YAML."""
    said = [_run(system, command, "-o", form) for form in ("json", "yaml")]
    found: Object = json.loads(said[0])
    assert yaml.safe_load(said[1]) == found
    return found


def _table(system: System, command: str) -> list[list[str]]:
    """The cells below the header."""
    return [line.split() for line in _run(system, command).splitlines()[1:]]


def _run(system: System, command: str, *options: str) -> str:
    done = system.berth.run(command, "--store", system.berth.store, *options, seconds=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
