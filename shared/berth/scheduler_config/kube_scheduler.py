"""The configuration with which a kube-scheduler calls Berth; before 1.23 it is a Policy.
With one URL a function it needs a scheduler of its own: docs/kubernetes.md#several-extenders."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from berth.api.names import GROUP, LABEL, NATIVE, WORD, is_extended_resource
from berth.errors import SettingsError

_VERBS: dict[str, dict[str, Any]] = {
    "filter": {"filterVerb": "filter"},
    "prioritize": {"prioritizeVerb": "prioritize", "weight": 1},
    # Always: Pools come later than the scheduler, and without it pods would be evicted in vain where units
    # are short. It is called only when some are to be evicted.
    "preempt": {"preemptVerb": "preempt"},
    "bind": {"bindVerb": "bind"},
}
_NANO = 10**9
# What Go's net/url takes, without a query and a fragment: kube-scheduler reads a URL only when it calls it.
_URL = re.compile(
    r"https?://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?"
    r"(/([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?"
)
_DOMAIN = re.compile(rf"(?=.{{1,63}}$){LABEL}(\.{LABEL})*")
# More would do for kube-scheduler; but the API server takes no event from a name that is not qualified.
_SCHEDULER = re.compile(rf"((?=[^/]{{1,253}}/){LABEL}(\.{LABEL})*/)?{WORD}")
_NAMESPACE = re.compile(LABEL)
_LEASE = re.compile(rf"(?=.{{1,253}}$){LABEL}(\.{LABEL})*")


class Calls(NamedTuple):
    """How kube-scheduler calls the functions.

    With a `proxy` it calls that URL alone: it can send a credential only in a URL, which it prints
    (docs/kubernetes.md#credentials). `ca` is the path, where the caller runs, of the authority's certificates
    for https URLs; without it the system's are taken. `weight` is that of Berth's scores; 1 is a plugin's.
    `timeout` is in seconds, by default kube-scheduler's own, and above bind's deadline. `tls` is a folder
    where kube-scheduler runs: it shows the proxy its scheduler.crt and scheduler.key, and checks the proxy's
    certificate by proxy-ca.crt.
    """

    urls: Mapping[str, str]
    proxy: str | None = None
    ca: str | None = None
    weight: int = 1
    timeout: int = 5
    tls: str | None = None


class Lease(NamedTuple):
    """The Lease by which the replicas of one scheduler elect who schedules."""

    namespace: str
    name: str


def configuration(
    calls: Calls,
    *,
    kubeconfig: str | None,
    schedulers: Iterable[str],
    groups: Collection[str] = (GROUP,),
    managed: Sequence[str] | None = None,
    lease: Lease | None = None,
) -> dict[str, Any]:
    """Return the KubeSchedulerConfiguration for these functions and scheduler names. Raises SettingsError.

    `kubeconfig` None: in a pod, its own account. `groups` are the domains of the Pools' resources, which
    NodeResourcesFit must not count (those of Pools with preemption Native it must). With `managed`, the
    Pools' resources, functions/extender gets all calls, and only for pods that ask for one of them.
    """
    names = list(schedulers)
    _check_schedulers(names)
    _check_groups(groups)
    _check_lease(lease)
    # With a group ignored, pods of a Pool that is not listed in `managed` would be placed uncounted.
    ignoring = {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": sorted(set(groups))}}
    plugins = {"pluginConfig": [ignoring]} if managed is None else {}
    # With a share of the nodes, a pool that few of them have is missed (docs/kubernetes.md#sampling).
    profile = {"percentageOfNodesToScore": 100, **plugins}
    election: dict[str, Any] = {"leaderElect": False}
    if lease is not None:
        election = {"leaderElect": True, "resourceNamespace": lease.namespace, "resourceName": lease.name}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **({} if kubeconfig is None else {"clientConnection": {"kubeconfig": kubeconfig}}),
        "leaderElection": election,
        "profiles": [{"schedulerName": name, **profile} for name in names],
        "extenders": _extenders(calls, managed, f"{calls.timeout}s"),
    }


def policy(calls: Calls, managed: Sequence[str]) -> dict[str, Any]:
    """Return the Policy of kube-scheduler before 1.23 (`--policy-config-file`). Raises SettingsError.

    It knows no ignored groups, so it is for functions/extender alone.
    """
    timeout = calls.timeout * _NANO  # a Go duration, in nanoseconds
    return {"kind": "Policy", "apiVersion": "v1", "extenders": _extenders(calls, managed, timeout)}


def write(path: Path, text: str, option: str) -> None:
    """Write a file that only its owner can read. Raises SettingsError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"can't write {path} ({option}): {error.strerror}") from error


def as_yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False)


def _check_schedulers(names: Sequence[str]) -> None:
    for name in names:
        if not _SCHEDULER.fullmatch(name):
            raise SettingsError(f"the scheduler's name {name!r} should be a name such as berth")
    if len(set(names)) != len(names):
        raise SettingsError(
            "a scheduler's name is given twice: kube-scheduler refuses two profiles of one name"
        )


def _check_groups(groups: Iterable[str]) -> None:
    for group in groups:
        if group == NATIVE:
            raise SettingsError(
                f"kube-scheduler must count the group {NATIVE}, or it finds nobody to evict: leave it out"
            )
        if not _DOMAIN.fullmatch(group):
            raise SettingsError(
                f"the group {group!r} should be the domain of a resource, such as {GROUP}, and have at most "
                "63 characters: kube-scheduler refuses others"
            )


def _check_lease(lease: Lease | None) -> None:
    if lease is not None and not (_NAMESPACE.fullmatch(lease.namespace) and _LEASE.fullmatch(lease.name)):
        raise SettingsError(
            f"the lease {lease.namespace}/{lease.name} should be NAMESPACE/NAME, such as berth/scheduler: "
            "the API server refuses others"
        )


def _extenders(calls: Calls, managed: Sequence[str] | None, timeout: str | int) -> list[dict[str, Any]]:
    if not 0 < calls.weight < 2**31:
        raise SettingsError(f"weight {calls.weight} should be 1 or more: kube-scheduler refuses others")
    verbs = _VERBS if managed is None else {"extender": _managing(managed)}
    return [{**_extender(calls, name, verb), "httpTimeout": timeout} for name, verb in verbs.items()]


def _managing(resources: Iterable[str]) -> dict[str, Any]:
    """Return all verbs under one URL, for pods that ask for these resources.

    kube-scheduler refuses a resource that is listed twice (docs/kubernetes.md#several-extenders)."""
    names = sorted(set(resources))
    if not names:
        raise SettingsError(
            "no Pool is known, and an extender that manages no resource is called for every pod: "
            "apply a Pool, or name a file of Pools, before the scheduler's configuration is written"
        )
    for name in names:
        if not is_extended_resource(name):
            raise SettingsError(
                f"the resource {name!r} should be an extended resource, such as {GROUP}/underlay-ip: "
                "kube-scheduler refuses others"
            )
    verbs = {key: value for verb in _VERBS.values() for key, value in verb.items()}
    managed = [{"name": name, "ignoredByScheduler": not name.startswith(f"{NATIVE}/")} for name in names]
    return {**verbs, "managedResources": managed}


def _extender(calls: Calls, name: str, verbs: Mapping[str, Any]) -> dict[str, Any]:
    url = checked(name, calls.urls.get(name, ""), calls.ca)
    weight = {"weight": calls.weight} if "weight" in verbs else {}
    # Not enableHTTPS: without a CA it means that no certificate is checked (scheduler/extender.go,
    # makeTransport). An https URL is served with TLS as it is, and checked.
    tls = {"tlsConfig": files} if (files := _files(calls)) else {}
    return {"urlPrefix": calls.proxy or url, **verbs, **weight, "nodeCacheCapable": True, **tls}


def _files(calls: Calls) -> dict[str, str]:
    """Return the certificates by which kube-scheduler checks whom it calls, and shows who it is."""
    if calls.proxy is None:
        return {} if calls.ca is None else {"caFile": calls.ca}
    names = {"caFile": "proxy-ca.crt", "certFile": "scheduler.crt", "keyFile": "scheduler.key"}
    return {} if calls.tls is None else {key: f"{calls.tls}/{name}" for key, name in names.items()}


def checked(name: str, url: str, ca: str | None) -> str:
    """Return the URL, if it can be called as it is meant. Raises SettingsError, which repeats no login."""
    is_url = _is_url(url)
    if "@" in (url.partition("://")[2].partition("/")[0] if is_url else url):
        raise SettingsError(
            f"{name}'s URL holds a login, which kube-scheduler would print into its log and into the event "
            "of each pod whose call fails: leave it out, and let a proxy add the token (--proxy)"
        )
    if not is_url:
        raise SettingsError(f"{name}'s URL {url!r} should be http://HOST[:PORT][/PATH] or https://…")
    if ca is not None and not url.startswith("https:"):
        raise SettingsError(
            f"{name}'s URL {url} is not https, so the CA would check nothing: name https URLs"
        )
    return url


def _is_url(url: str) -> bool:
    match = _URL.fullmatch(url)
    if match is None or not 0 < int(match["port"] or 1) < 65536:
        return False
    return not match["host"].startswith("[") or ip_version(match["host"][1:-1]) == 6


def ip_version(host: str) -> int | None:
    """Return 4 or 6 for an address, None for a name."""
    try:
        return ip_address(host).version
    except ValueError:
        return None
