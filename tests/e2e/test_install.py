"""infra applied to a real API server that has Knative's CRDs, as docs/install.md says: installed, applied
again, tried with each other overlay, removed. Knative itself is not there: nothing of it runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.support.builders.manifests import INFRA, OVERLAYS, rendered
from tests.support.cluster import UNDERLAY_IP, Object, pod_document, wait
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import OVERLAY, has

pytestmark = pytest.mark.long


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
    found = json.loads(listed)["items"] if listed else []  # of nothing at all kubectl says nothing
    metadata = ((each["kind"], each["metadata"]) for each in found)
    return {f"{kind}/{meta['name']}": meta["resourceVersion"] for kind, meta in metadata}


def remove(kubectl: Kubectl, folder: Path, overlay: str) -> None:
    """Remove it all, and end the namespaces in the place of the controller that does it elsewhere.

    A kind that nobody has listed before is at times gone only after minutes: docs/install.md#remove.
    Functions list both all the time, and there are none here.
    """
    for kind in ("pools", "poolclaims"):
        kubectl("get", kind, "--all-namespaces")
    kubectl("delete", "-k", INFRA / "overlays" / overlay, "--wait=false")

    def left() -> set[str]:
        # A namespace stays until a controller empties it, and there is none here. A CRD outlives its objects.
        return {each for each in there(kubectl, overlay) if not each.startswith("Namespace/")}

    try:
        wait(lambda: not left(), 120, "all that was installed is gone", every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {left()}") from error
    for name in [each["metadata"]["name"] for each in rendered(overlay, "Namespace")]:
        empty = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name},
            "spec": {"finalizers": []},
        }
        (folder / "empty.json").write_text(json.dumps(empty))
        kubectl("replace", "--raw", f"/api/v1/namespaces/{name}/finalize", "-f", folder / "empty.json")
    assert there(kubectl, overlay) == {}


def pods(overlay: str) -> Iterator[Object]:
    """Of each Deployment, Job and Knative Service the pod that comes of it, but for what Knative adds."""
    knatives_own = ("containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds")
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
    remove(kubectl, tmp_path, OVERLAY)


def test_what_was_removed_and_applied_again_is_in_force_again(kubectl: Kubectl, tmp_path: Path) -> None:
    """Policies that read a ConfigMap never see it again: docs/kubernetes.md#parameters-of-policies."""
    pods = {
        "lost.json": pod_document("lost", {UNDERLAY_IP: 1}, scheduler="default-scheduler"),
        "ours.json": pod_document("ours", {UNDERLAY_IP: 1}),
    }
    for name, document in pods.items():
        (tmp_path / name).write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **document}))

    def refused() -> bool:
        said = kubectl.complaint("create", "--dry-run=server", "-f", tmp_path / "lost.json")
        return "which only berth counts: set spec.schedulerName to berth" in said

    def labelled() -> bool:
        taken = kubectl("create", "--dry-run=server", "-o", "json", "-f", tmp_path / "ours.json")
        return "berth.dev/scheduled" in json.loads(taken)["metadata"].get("labels", {})

    for applied in ("at first", "again"):
        kubectl("apply", "-k", INFRA / "overlays" / OVERLAY)
        wait(refused, 60, f"a pod of another scheduler is refused, applied {applied}", every=0.5)
        wait(lambda: labelled() == has("1.36"), 60, f"our pods have the label, applied {applied}", every=0.5)
        remove(kubectl, tmp_path, OVERLAY)
        wait(lambda: not refused(), 60, "the policies are no longer in force", every=0.5)


def test_a_misspelt_field_of_kubernetes_own_kinds_is_refused_by_strict_validation(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    (deployment,) = rendered("per-verb", "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(deployment))
    said = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", wrong, fails=True)
    assert 'unknown field "spec.template.spec.containers[0].livenesProbe"' in said
