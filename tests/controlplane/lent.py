"""Control planes that several tests use one after the other: each finds only what a new API server makes.

To start one takes 3.5 seconds of a core, to empty it a tenth of that.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

import urllib3

from tests.controlplane.plane import ControlPlane
from tests.support.cluster import ApiError, Cluster, Object, wait

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# The API server keeps these by itself.
_ITS_OWN_GROUPS = {"apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}
_ITS_OWN = {"leases", "endpointslices", "endpoints", "ipaddresses", "servicecidrs"}
_POLICIES = {"validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"}
# Last what others are in.
_LAST = ("customresourcedefinitions", "namespaces")
_MANY = 400  # objects: to start a new plane is cheaper than to delete more
_SECONDS = 20.0


class _Kind(NamedTuple):
    """`path` is that of the objects of all namespaces."""

    plural: str
    path: str
    namespaced: bool

    def collection(self, namespace: str) -> str:
        if not namespace:
            return self.path
        base, _, plural = self.path.rpartition("/")
        return f"{base}/namespaces/{namespace}/{plural}"


class _Key(NamedTuple):
    kind: _Kind
    namespace: str
    name: str


@dataclass
class _Contents:
    """What an API server holds: the version of each object."""

    versions: Mapping[_Key, str]

    @classmethod
    def of(cls, cluster: Cluster) -> "_Contents":
        versions = {}
        for kind in _kinds(cluster):
            reply = cluster.request("GET", kind.path, accept=_METADATA)
            if reply.status == 404:  # a kind that is on its way out
                continue
            if reply.status != 200:
                raise ApiError("GET", kind.path, reply.status, reply.body)
            for meta in (item["metadata"] for item in reply.body["items"] or []):
                key = _Key(kind, meta.get("namespace", ""), meta["name"])
                if not _is_kept(key):
                    versions[key] = meta["uid"] + meta["resourceVersion"]
        return cls(versions)


def _is_kept(key: _Key) -> bool:
    """Whether the API server makes and changes it at any time; a scheduler's lease it does not."""
    if key.kind.plural == "leases":
        return key.name.startswith("apiserver-")
    return key.kind.plural in _ITS_OWN


def _kinds(cluster: Cluster) -> list[_Kind]:
    """Of each group the preferred version's; what can be listed and deleted."""
    kinds = []
    for root in ("/api", "/apis"):
        reply = cluster.request("GET", root, accept=_DISCOVERY)
        for group in reply.body["items"]:
            name = group["metadata"].get("name", "")
            if name in _ITS_OWN_GROUPS or name == "events.k8s.io":  # the core group has the events, too
                continue
            seen: set[str] = set()
            for version in group["versions"]:
                prefix = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
                for resource in version.get("resources", []):
                    plural = resource["resource"]
                    if plural not in seen and {"list", "delete"} <= set(resource["verbs"]):
                        seen.add(plural)
                        kinds.append(_Kind(plural, f"{prefix}/{plural}", resource["scope"] == "Namespaced"))
    return kinds


class LentPlane(ControlPlane):
    """A control plane that can be emptied."""

    def start(self) -> None:
        super().start()
        with self._admin() as cluster:
            self._first = _Contents.of(cluster)

    def empty(self) -> bool:
        """Stop the schedulers and delete what the tests made; False where that is not possible or not worth
        its time: what was there at first is changed, too much was made, admission policies among it, or
        something does not go."""
        for component in self._schedulers.values():
            component.stop()
            component.log.unlink(missing_ok=True)
        self._schedulers.clear()
        try:
            with self._admin() as cluster:
                return self._emptied(cluster)
        except (ApiError, AssertionError, urllib3.exceptions.HTTPError):
            return False

    def _emptied(self, cluster: Cluster) -> bool:
        there = _Contents.of(cluster).versions
        made = sorted(there.keys() - self._first.versions.keys(), key=_turn)
        if len(made) > _MANY or not self._unharmed(there):
            return False
        if any(key.kind.plural in _POLICIES for key in made):
            return False  # a policy is in force for seconds after it is gone, and nothing tells for how long
        for key in made:
            _delete(cluster, key)

        def left() -> set[_Key]:
            left = _Contents.of(cluster).versions.keys() - self._first.versions.keys()
            for key in sorted(left, key=_turn):  # what is left in a namespace that is gone can't be released
                _release(cluster, key)
            return left

        if made:
            wait(lambda: not left(), _SECONDS, "an empty control plane", every=0.1)
        return True

    def _unharmed(self, there: Mapping[_Key, str]) -> bool:
        return all(there.get(key) == version for key, version in self._first.versions.items())

    @contextmanager
    def _admin(self) -> Iterator[Cluster]:
        cluster = Cluster(self.url, self.admin_token, self.ca_file)
        try:
            yield cluster
        finally:
            cluster.close()


def _turn(key: _Key) -> tuple[int, str]:
    plural = key.kind.plural
    return (1 + _LAST.index(plural) if plural in _LAST else 0, plural)


def _delete(cluster: Cluster, key: _Key) -> None:
    path = f"{key.kind.collection(key.namespace)}/{key.name}"
    reply = cluster.request("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
    if reply.status not in (200, 202, 404, 409):
        raise ApiError("DELETE", path, reply.status, reply.body)


def _release(cluster: Cluster, key: _Key) -> None:
    """Take off the finalizers of what is deleted, in the place of the controllers that would do it."""
    path = f"{key.kind.collection(key.namespace)}/{key.name}"
    if key.kind.plural == "customresourcedefinitions":
        return  # the API server's own
    if key.kind.plural == "namespaces":
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": key.name}}
        cluster.request("PUT", f"{path}/finalize", {**body, "spec": {"finalizers": []}})
        return
    _delete(cluster, key)  # what was made while we deleted, as by a scheduler's last events
    none: Object = {"metadata": {"finalizers": None}}
    cluster.request("PATCH", path, none, content_type="application/merge-patch+json")


class Planes:
    """Lends control planes; one that was given back empty is lent again."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder = binaries, folder
        self._numbers = count(1)
        self._idle: list[LentPlane] = []

    @contextmanager
    def lent(self) -> Iterator[LentPlane]:
        plane = self._idle.pop() if self._idle else self._new()
        with ExitStack() as stack:
            stack.callback(plane.stop)
            yield plane
            plane.require_no_flush()
            if plane.empty():
                stack.pop_all()
                self._idle.append(plane)

    def stop(self) -> None:
        while self._idle:
            self._idle.pop().stop()

    def _new(self) -> LentPlane:
        plane = LentPlane(self._binaries, self._folder / f"plane-{next(self._numbers)}")
        plane.start()
        return plane
