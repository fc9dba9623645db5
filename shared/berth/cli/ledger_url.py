"""Where the ledger is if nobody says so: a file here, or what infra's settings in the cluster name.
It asks the cluster only where there is no file, and opens no ledger."""

import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from berth.cli.output import note
from berth.controller import infra
from berth.controller.infra import NAMESPACE, SETTINGS, STORE_SECRET, Store
from berth.errors import BerthError, NoClusterError
from berth.kube.cluster import connect
from berth.settings import DEFAULT_STORE
from berth.stores import absolute, redacted

_SECONDS = 3.0  # for each request
_SCHEDULERS = "BERTH_SCHEDULER_NAMES"
_REDIS = re.compile(
    r"(?P<scheme>rediss?)://(?P<login>.*@)?(?P<host>[^/?@,:\[]+)(:(?P<port>[0-9]+))?(?P<rest>.*)"
)
_REDIS_PORT = "6379"


def take_over() -> None:
    """Put the ledger's URL into BERTH_STORE, and its scheduler names beside it where those are not set."""
    url = absolute(DEFAULT_STORE)
    if not Path(url.removeprefix("sqlite:///")).exists() and (told := _in_cluster()) is not None:
        store, shared = told
        url, shown = store.url, redacted(store.url)
        note(f"ledger: {shown} (from {store.source})")
        if hint := port_forward(shown):
            note(hint)
        if (names := shared.get(_SCHEDULERS)) and not os.environ.get(_SCHEDULERS):
            os.environ[_SCHEDULERS] = names
    os.environ["BERTH_STORE"] = url


def _in_cluster() -> tuple[Store, Mapping[str, str]] | None:
    """Return the store of the functions, and their settings; None, and why, where a cluster can be asked and
    does not tell."""
    try:
        cluster = connect()
        shared = infra.settings(cluster, _SECONDS)
        store = infra.store(cluster, shared, _SECONDS)
    except NoClusterError:
        return None  # who needs a cluster says so
    except BerthError as error:
        note(f"the cluster does not say where the ledger is: {error} (or say --store URL)")
        return None
    if store is None:
        note(
            f"the cluster at {cluster.host} does not say where the ledger is: there is neither BERTH_STORE "
            f"in ConfigMap {NAMESPACE}/{SETTINGS}, nor the key url in Secret {NAMESPACE}/{STORE_SECRET}"
        )
    return None if store is None else (store, shared)


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
