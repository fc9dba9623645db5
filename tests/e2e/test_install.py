"""infra applied to a real API server that has Knative's CRDs, as docs/operations.md says: installed, applied
again, tried with each other overlay, removed. Knative itself is not there: nothing of it runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.support.cluster import Object, wait
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import OVERLAY, has
from tests.support.manifests import INFRA, OVERLAYS, rendered


@pytest.fixture(scope="module")
def kubectl(binaries: Path, knative: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("install")
    with ControlPlane(binaries, folder / "plane") as plane:
        found = Kubectl(plane, folder)
        found("apply", "--server-side", "-f", knative)
        found("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
        yield found


def there(kubectl: Kubectl, overlay: str) -> dict[str, str]:
    """The overlay's objects that the API server has: resourceVersion by kind/name."""
    listed = kubectl("get", "-k", INFRA / "overlays" / overlay, "--ignore-not-found", "-o", "json")
    metadata = ((each["kind"], each["metadata"]) for each in json.loads(listed)["items"])
    return {f"{kind}/{meta['name']}": meta["resourceVersion"] for kind, meta in metadata}


def pods(overlay: str) -> Iterator[Object]:
    """Of each Deployment, Job and Knative Service the pod that comes of it, but for what Knative adds."""
    knatives_own = ("containerConcurrency", "timeoutSeconds")
    for each in rendered(overlay, "Deployment", "Job", "Service"):
        template = each["spec"]["template"]
        spec = {name: value for name, value in template["spec"].items() if name not in knatives_own}
        for container in spec["containers"]:
            if "port" not in (look := container.get("readinessProbe", {}).get("httpGet", {"port": 0})):
                look["port"] = 8080  # as Knative takes it
        meta = {
            "name": each["metadata"]["name"],
            "namespace": "berth",
            "labels": template["metadata"]["labels"],
        }
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def check_users(kubectl: Kubectl) -> None:
    """What who has Kubernetes' roles may do; here by roles of our own, for the controller that adds ours to
    those is not there."""
    may = {"edit": ("create", "delete", "list", "patch"), "view": ("list",)}
    for role, verbs in may.items():
        name = f"berth-user-{role}"
        (label,) = (each for each in rendered(OVERLAY, "ClusterRole") if each["metadata"]["name"] == name)
        assert label["metadata"]["labels"] == {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true"}
        kubectl("create", "rolebinding", name, f"--clusterrole={name}", f"--user={name}")
        for verb in may["edit"]:
            asked = ("auth", "can-i", verb, "poolclaims.berth.dev", "--as", name)
            kubectl(*asked, fails=verb not in verbs)
            kubectl(*asked, "--subresource=status", fails=True)


def test_one_command_installs_all_and_another_removes_all(kubectl: Kubectl, tmp_path: Path) -> None:
    folder = INFRA / "overlays" / OVERLAY
    wanted = {f"{each['kind']}/{each['metadata']['name']}" for each in rendered(OVERLAY)}
    said = kubectl("apply", "-k", folder, "--validate=strict")
    assert len(said.splitlines()) == len(wanted)
    installed = there(kubectl, OVERLAY)
    assert set(installed) == wanted

    kubectl("apply", "-k", folder, "--validate=strict")
    assert there(kubectl, OVERLAY) == installed  # nothing was written

    # Its pods keep to what the namespace allows, and Kubernetes knows all their fields.
    made = list(pods(OVERLAY))
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    taken = kubectl("create", "--dry-run=server", "--validate=strict", "-f", tmp_path / "pods.json")
    assert len(taken.splitlines()) == len(made) == 9

    for overlay in OVERLAYS if has("1.36") else [OVERLAY]:
        dry = ("--dry-run=server", "--validate=strict")
        other = INFRA / "overlays" / overlay
        server = kubectl("apply", "--server-side", "--force-conflicts", *dry, "-k", other)
        assert len(server.splitlines()) == len(rendered(overlay))
        assert all(line.endswith("(server dry run)") for line in server.splitlines())

    check_users(kubectl)
    kubectl("delete", "-k", folder, "--wait=false")

    def gone() -> bool:
        # A namespace stays until a controller empties it, and there is none here. A CRD outlives its objects.
        return all(each.startswith("Namespace/") for each in there(kubectl, OVERLAY))

    wait(gone, 60, "all that was installed is gone")


def test_a_misspelt_field_of_kubernetes_own_kinds_is_refused_by_strict_validation(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    (deployment,) = rendered("per-verb", "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(deployment))
    said = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", wrong, fails=True)
    assert 'unknown field "spec.template.spec.containers[0].livenesProbe"' in said
