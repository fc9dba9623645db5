"""The manifests of infra/ as kubectl renders them, and parts of them put on a real API server with its
strictest field validation. Nothing is changed on the way."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import yaml

from tests.support.cluster import Cluster, Object, wait

INFRA = Path(__file__).resolve().parents[3] / "infra"
KUBECTL = INFRA.parent / "tests" / "controlplane" / ".bin" / "kubectl"
OVERLAYS = sorted(path.name for path in (INFRA / "overlays").iterdir())
NAMESPACE = "berth"

_CORE, _RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_COLLECTIONS = {
    "Namespace": f"{_CORE}/namespaces",
    "Secret": f"{_CORE}/namespaces/NAMESPACE/secrets",
    "ConfigMap": f"{_CORE}/namespaces/NAMESPACE/configmaps",
    "ServiceAccount": f"{_CORE}/namespaces/NAMESPACE/serviceaccounts",
    "Role": f"{_RBAC}/namespaces/NAMESPACE/roles",
    "RoleBinding": f"{_RBAC}/namespaces/NAMESPACE/rolebindings",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "CustomResourceDefinition": _CRDS,
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": f"{_ADMISSION}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{_ADMISSION}/mutatingadmissionpolicybindings",
}
RIGHTS = ("Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
ADMISSION = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
)


def rendered(overlay: str, *kinds: str) -> list[Object]:
    """The overlay's objects in the order in which kubectl applies them: all, or those of some kinds.
    kubectl has to be there: the fixture `binaries` builds it."""
    found: list[Object] = json.loads(_rendered(overlay))
    return [each for each in found if not kinds or each["kind"] in kinds]


@cache
def _rendered(overlay: str) -> str:
    return json.dumps(kustomized(INFRA / "overlays" / overlay))


def component(name: str, *kinds: str, overlay: str = "") -> list[Object]:
    """A component that no overlay has, as a site's own kustomization names it: what it adds, or, with an
    `overlay`, all that there is then; all of it, or the objects of some kinds."""
    found: list[Object] = json.loads(_component(name, overlay))
    return [each for each in found if not kinds or each["kind"] in kinds]


@cache
def _component(name: str, overlay: str) -> str:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        there = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(INFRA / "overlays" / overlay, folder)] if overlay else [],
            "components": [os.path.relpath(INFRA / "components" / name, folder)],
        }
        (folder / "kustomization.yaml").write_text(json.dumps(there))
        return json.dumps(kustomized(folder))


def kustomized(folder: Path) -> list[Object]:
    """What `kubectl kustomize` makes of the folder."""
    command = [str(KUBECTL), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def passes(filters: Iterable[Object], event: Mapping[str, str]) -> bool:
    """Whether an event of these attributes passes a Trigger's `filters`. Raises where a dialect is not known:
    Knative's CRD takes a misspelt one below `any` in silence."""
    return all(_passes(each, event) for each in filters)


def _passes(one: Object, event: Mapping[str, str]) -> bool:
    ((dialect, value),) = one.items()
    match dialect:
        case "exact":
            return all(event.get(name) == wanted for name, wanted in value.items())
        case "prefix":
            return all(event.get(name, "").startswith(wanted) for name, wanted in value.items())
        case "any":
            passed = [_passes(each, event) for each in value]  # all of them are looked at
            return any(passed)
    raise AssertionError(f"no dialect of a Trigger's filters: {dialect}")


def put(cluster: Cluster, objects: Iterable[Object]) -> None:
    """Create them; an unknown field is an error."""
    for each in objects:
        path = _COLLECTIONS[each["kind"]].replace("NAMESPACE", each["metadata"].get("namespace", ""))
        cluster.call("POST", f"{path}?fieldValidation=Strict", each)


def definition(kind: str) -> Object:
    """The CustomResourceDefinition of one of Berth's kinds."""
    found = rendered("per-verb", "CustomResourceDefinition")
    return next(each for each in found if each["spec"]["names"]["kind"] == kind)


def status_policies() -> list[Object]:
    """The policies on what functions' accounts may write into pods' and nodes' status, into Pools, and into
    Events."""
    found = [*rendered("per-verb", *ADMISSION), *component("native", *ADMISSION)]
    bounds = ("-status.berth.dev", "-external.berth.dev", "-events.berth.dev")
    return [each for each in found if each["metadata"]["name"].endswith(bounds)]


def serve_pools(cluster: Cluster) -> None:
    """Apply the CRDs of Pool and PoolClaim that are not there, and wait until the API server serves both by
    their schemas."""
    there = {each["metadata"]["name"] for each in cluster.get(_CRDS)["items"]}
    wanted = rendered("per-verb", "CustomResourceDefinition")
    put(cluster, [each for each in wanted if each["metadata"]["name"] not in there])
    wait(lambda: _serves(cluster, "Pool", "pools"), 60, "Pools served by their schema", every=0.1)
    claims = "namespaces/default/poolclaims"
    wait(lambda: _serves(cluster, "PoolClaim", claims), 60, "PoolClaims served by their schema", every=0.1)


def _serves(cluster: Cluster, kind: str, path: str) -> bool:
    wrong = {"apiVersion": "berth.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    return cluster.request("POST", f"/apis/berth.dev/v1alpha1/{path}?dryRun=All", wrong).status == 422


def token_of(
    cluster: Cluster, account: str, namespace: str = NAMESPACE, audience: str = "", seconds: int = 3600
) -> str:
    """A token of the service account, by TokenRequest; without an audience it is for the API server."""
    path = f"{_CORE}/namespaces/{namespace}/serviceaccounts/{account}/token"
    spec = {"expirationSeconds": seconds, **({"audiences": [audience]} if audience else {})}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    found: str = cluster.call("POST", path, asked)["status"]["token"]
    return found
