"""What infra's objects in a cluster say: the functions' settings, where their ledger is, and their images.
It reads namespace berth alone, and opens no ledger."""

from collections.abc import Mapping
from typing import NamedTuple

from berth.kube.client import DEFAULT_TIMEOUT
from berth.kube.cluster import Cluster
from berth.kube.configuration import ConfigMap, Secret, Workload

NAMESPACE = "berth"
SETTINGS, STORE_SECRET = "berth-settings", "berth-store"
"""The ConfigMap of infra/base/settings.yaml, and the Secret of infra/components/store-secret."""

CORE = f"/api/v1/namespaces/{NAMESPACE}"
FUNCTION = ("app.kubernetes.io/component", "function")
"""The label that a function's pods have, and its Deployment, where there is no Knative."""

_SERVICES = f"/apis/serving.knative.dev/v1/namespaces/{NAMESPACE}/services"
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


class Store(NamedTuple):
    """The URL of the functions' ledger, and the object that names it, for people."""

    url: str
    source: str


def settings(cluster: Cluster, timeout: float = DEFAULT_TIMEOUT) -> Mapping[str, str]:
    """Return the variables that all functions have; none where they are not there."""
    return config_map(cluster, SETTINGS, timeout)


def store(cluster: Cluster, shared: Mapping[str, str], timeout: float = DEFAULT_TIMEOUT) -> Store | None:
    """Return the store that these settings name, else the Secret for it; None where neither does."""
    if url := shared.get("BERTH_STORE"):
        return Store(url, f"ConfigMap {NAMESPACE}/{SETTINGS}")
    url = secret(cluster, STORE_SECRET, timeout).get("url", b"").decode(errors="replace").strip()
    return Store(url, f"Secret {NAMESPACE}/{STORE_SECRET}") if url else None


def functions(cluster: Cluster, timeout: float = DEFAULT_TIMEOUT) -> list[Workload]:
    """Return what runs the functions: the namespace's Knative Services, and Deployments in place of them."""
    return [*services(cluster, timeout), *deployments(cluster, timeout)]


def services(cluster: Cluster, timeout: float = DEFAULT_TIMEOUT) -> list[Workload]:
    """Return the functions that are Knative Services."""
    return cluster.collection(Workload, _SERVICES, timeout=timeout) or []


def deployments(cluster: Cluster, timeout: float = DEFAULT_TIMEOUT) -> list[Workload]:
    """Return the functions that are Deployments."""

    def is_function(deployment: Workload) -> bool:
        return FUNCTION in (deployment.metadata.labels or {}).items()

    return cluster.collection(Workload, _DEPLOYMENTS, is_function, timeout) or []


def config_map(cluster: Cluster, name: str, timeout: float = DEFAULT_TIMEOUT) -> Mapping[str, str]:
    """Return what a ConfigMap holds; nothing where there is none."""
    there = cluster.one(ConfigMap, f"{CORE}/configmaps/{name}", timeout)
    return (there and there.data) or {}


def secret(cluster: Cluster, name: str, timeout: float = DEFAULT_TIMEOUT) -> Mapping[str, bytes]:
    """Return what a Secret holds; nothing where there is none."""
    there = cluster.one(Secret, f"{CORE}/secrets/{name}", timeout)
    return (there and there.data) or {}
