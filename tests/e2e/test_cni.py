"""What networks make of the annotations that bind wrote, by their own code: Multus' reading of a pod, and the
IPAM plugin `static` of the CNI project. Interfaces and namespaces of the kernel are nothing to it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.capabilities import named
from tests.e2e.conftest import Systems
from tests.e2e.scenarios import documents_of

pytestmark = pytest.mark.long

PAGE = "addresses.md"
IP_KEY = "cni.projectcalico.org/ipAddrs"


def test_multus_and_static_ipam_set_up_the_address_that_bind_wrote(system_of: Systems, cni: Path) -> None:
    (spec,) = (each["spec"] for each in documents_of(PAGE, "pools.yaml"))
    pool = named("office-ip", {"node-1": ["10.0.3.17", "10.0.3.18"]}, annotations=spec["annotations"])
    system = system_of(1, pools=[pool])
    for name, address in (("web-1", "10.0.3.17"), ("web-2", "10.0.3.18")):
        system.cluster.create_pod(name, {"berth.dev/office-ip": 1})
        system.cluster.wait_bound(name)
        pod = system.cluster.get_pod(name)
        (network,) = json.loads(ran(cni / "networks", pod))
        assert (network["name"], network["namespace"]) == ("office", "default")
        added = json.loads(ran(cni / "static", as_delegate(network), **CNI_ADD))
        assert [each["address"] for each in added["ips"]] == [f"{address}/24"]
        # Calico's plugin decodes its annotation as a JSON list of texts (cni-plugin/pkg/k8s/k8s.go).
        assert json.loads(pod["metadata"]["annotations"][IP_KEY]) == [address]


CNI_ADD = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "sandbox",
    "CNI_NETNS": "/var/run/netns/none",
    "CNI_IFNAME": "net1",
    "CNI_PATH": "/none",
}


def as_delegate(network: dict[str, Any]) -> dict[str, Any]:
    """The page's network with what Multus adds for the capability `ips` (pkg/types/conf.go)."""
    (definition,) = documents_of(PAGE, "office.yaml")
    config: dict[str, Any] = yaml.safe_load(definition["spec"]["config"])
    assert config.pop("capabilities") == {"ips": True}
    return {**config, "runtimeConfig": {"ips": network["ips"]}}


def ran(program: Path, document: Any, **environment: str) -> str:
    """What the program says to this document."""
    done = subprocess.run(
        [program], input=json.dumps(document), capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
