"""The KubeSchedulerConfiguration that makes a kube-scheduler call Berth: one URL a function, or one for all.
With one URL a function it needs a scheduler of its own: all pods of its profiles are sent (facts, 3)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from berth.errors import SettingsError
from berth.policy.pools import GROUP

_VERBS: dict[str, dict[str, Any]] = {
    "filter": {"filterVerb": "filter"},
    "prioritize": {"prioritizeVerb": "prioritize", "weight": 1},
    "bind": {"bindVerb": "bind"},
}


def configuration(
    urls: Mapping[str, str],
    *,
    kubeconfig: str,
    schedulers: Iterable[str],
    groups: Iterable[str] = (GROUP,),
    token: str | None = None,
    managed: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The document for these functions (URL by name) and scheduler names. Raises SettingsError.

    `groups` are the domains of the Pools' resources, which NodeResourcesFit must not count. With `managed`,
    the Pools' resources, functions/extender gets all calls, and only for pods that ask for one of them. The
    token goes into the URLs, the only place kube-scheduler sends one from (facts, 4): keep the file secret.
    """
    if managed is None:
        plugins = [_ignoring(sorted(set(groups)))]
        extenders = [_extender(urls[name], token, verb) for name, verb in _VERBS.items()]
    else:
        # With a group ignored, pods of a Pool that is not listed here would be placed uncounted.
        plugins = []
        extenders = [_extender(urls["extender"], token, _managing(managed))]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": False},
        "profiles": [_profile(name, plugins) for name in schedulers],
        "extenders": extenders,
    }


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write it for its owner's eyes only: the URLs may hold the token. Raises SettingsError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"can't write {path} (--scheduler-config): {error.strerror}") from error


def _profile(name: str, plugins: list[dict[str, Any]]) -> dict[str, Any]:
    # Extenders are called after sampling: a share would miss a pool that few nodes have (facts, 2).
    profile: dict[str, Any] = {"schedulerName": name, "percentageOfNodesToScore": 100}
    return {**profile, "pluginConfig": plugins} if plugins else profile


def _ignoring(groups: list[str]) -> dict[str, Any]:
    return {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": groups}}


def _managing(resources: Iterable[str]) -> dict[str, Any]:
    """All verbs; kube-scheduler refuses a resource that is listed twice (facts, 3)."""
    found = sorted(set(resources))
    if not found:
        raise SettingsError(
            "no Pool is known, and an extender that manages no resource is called for every pod: "
            "apply a Pool, or name a file of Pools, before the scheduler's configuration is written"
        )
    verbs = {key: value for verb in _VERBS.values() for key, value in verb.items()}
    return {**verbs, "managedResources": [{"name": name, "ignoredByScheduler": True} for name in found]}


def _extender(url: str, token: str | None, verbs: Mapping[str, Any]) -> dict[str, Any]:
    if token is not None:
        url = url.replace("://", f"://berth:{quote(token, safe='')}@", 1)
    return {"urlPrefix": url, **verbs, "nodeCacheCapable": True, "httpTimeout": "5s"}
