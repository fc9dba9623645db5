"""The manifests of infra/ as objects, and put on a real API server with its strictest field validation.
It stands in for kubectl alone: nothing is changed on the way but the namespace of what has one."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.support.cluster import Cluster, Object, wait

INFRA = Path(__file__).resolve().parents[2] / "infra"
NAMESPACE = "berth"

_CORE, _RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_COLLECTIONS = {
    "Namespace": f"{_CORE}/namespaces",
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


def documents(*paths: str) -> list[Object]:
    """The objects of these files, or of all files of these folders, below infra/."""
    files = [
        file
        for path in paths
        for file in (sorted((INFRA / path).glob("*.yaml")) if (INFRA / path).is_dir() else [INFRA / path])
        if file.name != "kustomization.yaml"
    ]
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def put(cluster: Cluster, objects: Iterable[Object]) -> None:
    """Create them; an unknown field is an error."""
    for each in objects:
        path = _COLLECTIONS[each["kind"]].replace("NAMESPACE", each["metadata"].get("namespace", NAMESPACE))
        cluster.call("POST", f"{path}?fieldValidation=Strict", each)


def serve_pools(cluster: Cluster) -> None:
    """Apply the Pool CRD, and wait until the API server serves Pools by its schema."""
    put(cluster, documents("base/crds"))
    wait(lambda: _serves(cluster), 60, "Pools served by their schema", every=0.1)


def _serves(cluster: Cluster) -> bool:
    wrong = {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "x"}, "spec": {}}
    return cluster.request("POST", "/apis/berth.dev/v1alpha1/pools?dryRun=All", wrong).status == 422


def token_of(cluster: Cluster, account: str, namespace: str = NAMESPACE) -> str:
    """A token of the service account, by TokenRequest."""
    path = f"{_CORE}/namespaces/{namespace}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    found: str = cluster.call("POST", path, asked)["status"]["token"]
    return found
