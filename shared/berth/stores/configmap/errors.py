"""The API server's errors as the store's: retryable or final, which ledger, what to do about it.
No text names a shard: equal troubles must have equal texts, or pods are tried again and again."""

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores.configmap.url import MOST_SHARDS, ConfigMapUrl

LABEL = "berth.dev/ledger"
MOST_BYTES = 900_000  # Kubernetes takes 1,048,576 in one ConfigMap


def busy(url: ConfigMapUrl, why: str = "too many writers") -> StoreUnavailableError:
    return StoreUnavailableError(f"berth's ledger is busy ({url}, {why})")


def unreachable(url: ConfigMapUrl, host: str, why: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"berth's ledger is unreachable ({url}, {why}); if this lasts, see to the API server at {host}, or "
        "to KUBECONFIG"
    )


def refused(url: ConfigMapUrl, status: int, said: str, rights: str) -> StoreFailedError:
    """Return what to say of a 4xx that has no meaning of its own; `said` is the API server's text."""
    if status == 401:
        return _failed(url, f"{said}; check the credentials in KUBECONFIG or the pod's account")
    if status == 403:
        return _failed(url, f"{said}; berth needs {rights} of configmaps in the namespace {url.namespace}")
    return _failed(url, said)


def no_namespace(url: ConfigMapUrl) -> StoreFailedError:
    return _failed(
        url,
        f"there is no namespace {url.namespace}; make it (kubectl create namespace {url.namespace}) or name "
        "another in BERTH_STORE",
    )


def full(url: ConfigMapUrl) -> StoreFailedError:
    return _failed(
        url,
        f"one of its ConfigMaps is full ({MOST_BYTES:,} bytes; Kubernetes takes 1 MiB); copy it to one of "
        f"more shards: berth store copy {url} 'configmap://{url.namespace}/OTHER?shards=N' "
        f"(N up to {MOST_SHARDS}), and set BERTH_STORE to that",
    )


def not_ours(url: ConfigMapUrl) -> StoreFailedError:
    return _failed(
        url,
        f"the ConfigMap {url.name} is none of berth's (it lacks the label {LABEL}); name another in "
        "BERTH_STORE, or delete it",
    )


def of_another_version(url: ConfigMapUrl, parts: list[str]) -> StoreFailedError:
    return _failed(
        url,
        f"another version of berth wrote it ({', '.join(parts)}); run one version of berth, or delete its "
        "ConfigMaps and let reconcile rebuild it",
    )


def _failed(url: ConfigMapUrl, what: str) -> StoreFailedError:
    return StoreFailedError(f"berth's ledger {url}: {what}")
