"""The KubeSchedulerConfiguration that makes a kube-scheduler call Berth's functions, one URL a function.
It is for a scheduler of our own: every pod of its profiles is sent to every extender (facts, 3)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from berth.errors import SettingsError
from berth.policy.pools import GROUP


def configuration(
    urls: Mapping[str, str],
    *,
    kubeconfig: str,
    schedulers: Iterable[str],
    groups: Iterable[str] = (GROUP,),
    token: str | None = None,
) -> dict[str, Any]:
    """The document for these functions (URL by name) and scheduler names.

    `groups` are the domains of the Pools' resources, which NodeResourcesFit must not count. The token goes
    into the URLs, the only place kube-scheduler sends one from (facts, 4): keep the file secret.
    """
    verbs: list[dict[str, Any]] = [
        {"filterVerb": "filter"},
        {"prioritizeVerb": "prioritize", "weight": 1},
        {"bindVerb": "bind"},
    ]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": False},
        "profiles": [_profile(name, sorted(set(groups))) for name in schedulers],
        "extenders": [_extender(verb, urls, token) for verb in verbs],
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


def _profile(name: str, groups: list[str]) -> dict[str, Any]:
    return {
        "schedulerName": name,
        # Extenders are called after sampling: a share would miss a pool that few nodes have (facts, 2).
        "percentageOfNodesToScore": 100,
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": groups}}],
    }


def _extender(verb: Mapping[str, Any], urls: Mapping[str, str], token: str | None) -> dict[str, Any]:
    url = urls[next(iter(verb.values()))]
    if token is not None:
        url = url.replace("://", f"://berth:{quote(token, safe='')}@", 1)
    return {"urlPrefix": url, **verb, "nodeCacheCapable": True, "httpTimeout": "5s"}
