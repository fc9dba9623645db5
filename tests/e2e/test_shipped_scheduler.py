"""What the overlays ship for kube-scheduler, run by the real one: the token made as infra's Job makes it, put
into the shipped configuration as the Deployment's init container does, the account's rights, its lease.

The functions' URLs are replaced by local ones, since there is no cluster DNS here.
"""

import base64
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.certificates import self_signed
from tests.support.cluster import Cluster
from tests.support.manifests import rendered
from tests.support.terminator import Terminator

SECRET = "/api/v1/namespaces/berth/secrets/berth-token"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/berth/leases/berth-scheduler"


@pytest.mark.parametrize("overlay", ["per-verb", "single"])
def test_the_shipped_configuration_places_pods_with_the_token_and_the_lease_of_its_account(
    system_of: Systems, overlay: str
) -> None:
    system = system_of(2, pools=[pool(units=2)], single=overlay == "single", start_berth=False)
    token = made_token(system)
    (system.berth.folder / "token").write_text(token)  # as the Services and the Deployment mount it
    system.berth.environment = {"BERTH_AUTH_TOKEN_FILE": str(system.berth.folder / "token")}
    system.berth.start()
    config = local(system, whole(system, overlay))
    system.plane.start_scheduler(config, flags=["--v=1"])  # as the Deployment
    for number in range(4):
        system.cluster.create_pod(f"pod-{number}")
    system.cluster.wait_bound()
    system.cluster.create_pod("waiter")
    assert "underlay-ip: 0 of 2 free, 1 asked" in system.refusal_of("waiter")
    assert system.cluster.get(LEASE)["spec"]["holderIdentity"]

    system.berth.stop()
    system.cluster.create_pod("late")
    said = system.refusal_of("late")
    assert "connection refused" in said
    # A pod's event is for its users, and the log is read by more than may read the Secret.
    assert token not in said
    assert token not in system.plane.scheduler_log()


def test_over_https_the_functions_certificates_are_checked_by_the_shipped_authority(
    system_of: Systems, tmp_path: Path
) -> None:
    system = system_of(1, pools=[pool(units=2)], start_scheduler=False)
    (secret,) = (each for each in rendered("https", "Secret") if "scheduler.yaml" in each["data"])
    shipped = yaml.safe_load(base64.b64decode(secret["data"]["scheduler.yaml"]))
    ours, others = (self_signed(tmp_path / name, address=(127, 0, 0, 1)) for name in ("ours", "others"))
    with ExitStack() as stack:
        for extender in shipped["extenders"]:
            name = extender["urlPrefix"].partition("@")[2].partition(".")[0]
            port = int(system.berth.urls[name].rpartition(":")[2])
            extender["urlPrefix"] = stack.enter_context(Terminator(port, *ours)).url
        for name, (authority, _) in (("untrusting", others), ("trusting", ours)):
            extenders = [{**each, "tlsConfig": {"caFile": str(authority)}} for each in shipped["extenders"]]
            config = system.scheduler_config(name, extenders=extenders)
            system.plane.start_scheduler(config, name)
            system.cluster.create_pod(name)
            if name == "untrusting":
                assert "certificate signed by unknown authority" in system.refusal_of(name)
                system.plane.stop_scheduler(name)
        system.cluster.wait_bound("trusting", "untrusting")
        system.plane.stop_scheduler("trusting")


def made_token(system: System) -> str:
    """As infra's Job: made once, and never again."""
    (job,) = rendered("per-verb", "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command, *arguments = container["command"]
    assert command == "berth"
    account = ("--kubeconfig", str(system.accounts.kubeconfig("token")))
    assert system.berth.run(*arguments, *account).stdout == "Secret berth/berth-token made\n"
    token = read_token(system.cluster)
    again = system.berth.run(*arguments, *account)
    assert again.stdout == "Secret berth/berth-token is there already, and stays as it is\n"
    assert (again.returncode, read_token(system.cluster)) == (0, token)
    assert len(token) > 40
    return token


def read_token(cluster: Cluster) -> str:
    return base64.b64decode(cluster.get(SECRET)["data"]["token"]).decode()


def whole(system: System, overlay: str) -> Path:
    """The shipped configuration with the token, by the init container's own command."""
    (deployment,) = rendered(overlay, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["initContainers"]
    (secret,) = (each for each in rendered(overlay, "Secret") if "scheduler.yaml" in each["data"])
    folder = system.berth.folder
    (folder / "shipped.yaml").write_bytes(base64.b64decode(secret["data"]["scheduler.yaml"]))
    places = {
        "/etc/scheduler/scheduler.yaml": str(folder / "shipped.yaml"),
        "/etc/berth/token": str(folder / "token"),
        "/run/scheduler/scheduler.yaml": str(folder / "whole.yaml"),
    }
    done = system.berth.run(*(places.get(each, each) for each in container["command"][1:]))
    assert done.returncode == 0, done.stderr
    return folder / "whole.yaml"


def local(system: System, config: Path) -> Path:
    """The functions where they run here, and the account's kubeconfig, which a pod has by itself."""
    document = yaml.safe_load(config.read_text())
    for extender in document["extenders"]:
        login, _, host = extender["urlPrefix"].rpartition("@")
        name = host.removesuffix(".berth.svc.cluster.local")
        extender["urlPrefix"] = f"{login}@{system.berth.urls[name].removeprefix('http://')}"
    document["clientConnection"] = {"kubeconfig": str(system.accounts.kubeconfig("scheduler"))}
    config.write_text(yaml.safe_dump(document))
    return config
