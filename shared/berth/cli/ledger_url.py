"""Where the ledger is if nobody says so: a file here, or what infra's settings in the cluster name.
It asks the cluster only where there is no file, and opens no ledger."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from berth.cli.output import note
from berth.errors import BerthError, ClusterRefusedError, SettingsError
from berth.kube.cluster import Cluster, connect
from berth.settings import DEFAULT_STORE
from berth.stores import absolute, redacted

NAMESPACE = "berth"
SETTINGS, STORE_SECRET = "berth-settings", "berth-store"
"""The ConfigMap of infra/base/settings.yaml, and the Secret of infra/components/store-secret."""

_SECONDS = 3.0  # for each request
_STORE, _SCHEDULERS = "BERTH_STORE", "BERTH_SCHEDULER_NAMES"
_REDIS = re.compile(
    r"(?P<scheme>rediss?)://(?P<login>.*@)?(?P<host>[^/?@,:\[]+)(:(?P<port>[0-9]+))?(?P<rest>.*)"
)
_REDIS_PORT = "6379"


class Settings(NamedTuple):
    """What the cluster's settings say; `source` is the object that names the store, for people."""

    store: str
    source: str
    scheduler_names: str = ""


def take_over() -> None:
    """Put the ledger's URL into BERTH_STORE, and its scheduler names beside it where those are not set."""
    url = absolute(DEFAULT_STORE)
    if not Path(url.removeprefix("sqlite:///")).exists() and (settings := _of_cluster()) is not None:
        url = settings.store
        shown = redacted(url)
        note(f"ledger: {shown} (from {settings.source})")
        if hint := port_forward(shown):
            note(hint)
        if settings.scheduler_names and not os.environ.get(_SCHEDULERS):
            os.environ[_SCHEDULERS] = settings.scheduler_names
    os.environ[_STORE] = url


def _of_cluster() -> Settings | None:
    """Return the cluster's settings; None, and why, where a cluster can be asked and does not tell."""
    try:
        cluster = connect()
    except SettingsError:
        return None  # who needs a cluster says so
    try:
        settings = read(cluster)
    except BerthError as error:
        note(f"the cluster does not say where the ledger is: {error}")
        return None
    if settings is None:
        note(
            f"the cluster at {cluster.host} does not say where the ledger is: there is neither BERTH_STORE "
            f"in ConfigMap {NAMESPACE}/{SETTINGS}, nor the key url in Secret {NAMESPACE}/{STORE_SECRET}"
        )
    return settings


def read(cluster: Cluster) -> Settings | None:
    """Return what infra's settings say of the store; None where they are not there. Raises cluster errors."""
    settings = cluster.config_map(NAMESPACE, SETTINGS, _SECONDS) or {}
    names = settings.get(_SCHEDULERS, "")
    if url := settings.get(_STORE, ""):
        return Settings(url, f"ConfigMap {NAMESPACE}/{SETTINGS}", names)
    try:
        secret = cluster.secret(NAMESPACE, STORE_SECRET, _SECONDS) or {}
    except ClusterRefusedError as error:
        raise ClusterRefusedError(f"{error} (or say --store URL)", error.status) from error
    url = secret.get("url", b"").decode(errors="replace").strip()
    return Settings(url, f"Secret {NAMESPACE}/{STORE_SECRET}", names) if url else None


def port_forward(shown: str, resolves: Callable[[str], bool] | None = None) -> str:
    """Return how to reach a Redis whose name only the cluster's DNS knows; empty where that is not so.
    `shown` is the URL as it may be printed."""
    match = _REDIS.fullmatch(shown)
    if match is None or (resolves or _resolves)(match["host"]):
        return ""
    namespace, target = _target(match["host"])
    port, login = match["port"] or _REDIS_PORT, "USER:PASSWORD@" if match["login"] else ""
    rest = match["rest"]
    if rest.startswith(",") or "sentinel=" in rest:
        target, port, rest = "POD (the primary's)", _REDIS_PORT, ""
    return (
        f"only the cluster's DNS knows {match['host']}: kubectl port-forward -n {namespace} {target} {port}, "
        f"then --store {match['scheme']}://{login}127.0.0.1:{port}{rest}"
    )


def _target(host: str) -> tuple[str, str]:
    """Return the namespace, and what kubectl forwards a port to, by a name in the cluster's DNS:
    SERVICE.NAMESPACE.svc, or POD.SERVICE.NAMESPACE.svc."""
    labels = host.partition(".svc")[0].split(".")
    if len(labels) == 3:
        return labels[2], f"pod/{labels[0]}"
    return labels[1] if len(labels) == 2 else NAMESPACE, f"svc/{labels[0]}"


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True
