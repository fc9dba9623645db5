"""Requests for the ConfigMaps of one ledger; the API server's errors become the store's here, and only here.
It knows no life and no commit. A write that nobody answered may have been done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from berth.causes import reason
from berth.errors import (
    BerthError,
    ClusterRefusedError,
    ClusterUnavailableError,
    StoreFailedError,
    StoreUnavailableError,
)
from berth.kube.client import ApiServer
from berth.stores.configmap.content import Content, decode, encode, replaced
from berth.stores.configmap.url import MOST_SHARDS, Location

LABEL = "berth.dev/ledger"
MOST_BYTES = 900_000  # Kubernetes takes 1,048,576 in one ConfigMap
_DATA = "ledger-v1"
_KEYED = "ledger-v2"  # the head of a life with a key: who knows none would look in other shards
_META_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_META_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str
    labels: dict[str, str] = {}


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Meta
    binary_data: dict[str, bytes] = {}


class _ConfigMaps(msgspec.Struct):
    items: list[_ConfigMap] | None = None


class Item(NamedTuple):
    """A ConfigMap as it was read or written: `version` is its resourceVersion, `size` in bytes."""

    name: str
    uid: str
    version: int
    size: int
    content: Content


class Seen(NamedTuple):
    """A ConfigMap in a list."""

    uid: str
    version: int


_object, _list = msgspec.json.Decoder(_ConfigMap), msgspec.json.Decoder(_ConfigMaps)


class Objects:
    """The ConfigMaps of one ledger. Every call may raise StoreUnavailableError and StoreFailedError."""

    def __init__(self, location: Location, server: ApiServer, *, reads_only: bool = False) -> None:
        self.location, self._server = location, server
        self._rights = "get and list" if reads_only else "get, list, create, update and delete"
        self._path = f"/api/v1/namespaces/{location.namespace}/configmaps"

    def get(self, name: str) -> Item | None:
        """As it is now (a consistent read); None if it is not there or was never ours."""
        try:
            with self._explained(name):
                found = _object.decode(self._call("GET", f"{self._path}/{name}"))
        except _RefusedError as refused:
            if refused.status == 404:
                return None
            raise refused.explained from refused
        ours = found.metadata.labels.get(LABEL) == self.location.name
        if name == self.location.name:
            self._require_ours(ours, found)
        data = found.binary_data.get(_KEYED) or found.binary_data.get(_DATA, b"") if ours else b""
        return _item(found.metadata, len(data), decode(data))

    def create(self, name: str, content: Content) -> Item | None:
        """None if it is there already."""
        data = encode(content)
        try:
            with self._explained(name):
                answer = self._call("POST", self._path, self._body(name, data, _part(content)))
                return _item(_object.decode(answer).metadata, len(data), content)
        except _RefusedError as refused:
            if refused.status == 409:
                return None
            if refused.status == 404:
                raise self.failed(
                    f"there is no namespace {self.location.namespace}; make it (kubectl create namespace "
                    f"{self.location.namespace}) or name another in BERTH_STORE"
                ) from refused
            raise refused.explained from refused

    def put(self, before: Item, content: Content, *, must: bool = False) -> Item | None:
        """None if it has changed since, or is gone. Refuses to make a large one larger, unless it `must`."""
        content = replaced(content, rev=content.rev + 1)
        data = encode(content)
        if not must:
            self.require_room(before, len(data))
        body = self._body(before.name, data, _part(content), str(before.version))
        try:
            with self._explained(before.name):
                # Done twice, the second is a conflict.
                answer = self._call("PUT", f"{self._path}/{before.name}", body, again=True)
                return _item(_object.decode(answer).metadata, len(data), content)
        except _RefusedError as refused:
            if refused.status in (404, 409):
                return None
            raise refused.explained from refused

    def delete(self, name: str) -> None:
        try:
            with self._explained(name):
                self._call("DELETE", f"{self._path}/{name}", again=True)
        except _RefusedError as refused:
            if refused.status != 404:
                raise refused.explained from refused

    def listed(self, newest: int | None = None) -> dict[str, Seen]:
        """All that carry this ledger's label: as they are now, or with `newest` as the API server's cache
        has them, which holds at least what that resourceVersion wrote."""
        query = {"labelSelector": f"{LABEL}={self.location.name}"}
        if newest is not None:
            query |= {"resourceVersion": str(newest), "resourceVersionMatch": "NotOlderThan"}
        try:
            with self._explained(""):
                answer = self._call("GET", f"{self._path}?{urlencode(query)}", accept=_META_LIST)
                found = _list.decode(answer).items or ()
        except _RefusedError as refused:
            raise refused.explained from refused
        return {
            each.metadata.name: Seen(each.metadata.uid, int(each.metadata.resource_version)) for each in found
        }

    def close(self) -> None:
        self._server.close()

    def require_room(self, before: Item, size: int) -> None:
        if size > MOST_BYTES and size > before.size:
            ns = self.location.namespace
            raise self.failed(
                f"one of its ConfigMaps is full ({MOST_BYTES:,} bytes; Kubernetes takes 1 MiB); copy it to "
                f"one of more shards: berth store copy {self.location} 'configmap://{ns}/OTHER?shards=N' "
                f"(N up to {MOST_SHARDS}), and set BERTH_STORE to that"
            )

    def failed(self, what: str) -> StoreFailedError:
        return StoreFailedError(f"berth's ledger {self.location}: {what}")

    def busy(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"berth's ledger is busy ({self.location}, too many writers)")

    def _call(
        self, method: str, path: str, body: Any = None, *, accept: str = "", again: bool = False
    ) -> bytes:
        accept = accept or ("application/json" if method == "GET" else _META_ONLY)
        return self._server.call(method, path, self.location.timeout, body, accept=accept, again=again)

    def _body(self, name: str, data: bytes, part: str, version: str | None = None) -> dict[str, Any]:
        # The empty managedFields strip those that the API server would keep, which are larger than the rest
        # of the metadata.
        metadata = {"name": name, "labels": {LABEL: self.location.name}, "managedFields": [{}]}
        if version is not None:
            metadata["resourceVersion"] = version
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {part: data}}

    def _require_ours(self, ours: bool, found: _ConfigMap) -> None:
        if not ours:
            raise self.failed(
                f"the ConfigMap {self.location.name} is none of berth's (it lacks the label {LABEL}); "
                "name another in BERTH_STORE, or delete it"
            )
        if found.binary_data and not {_DATA, _KEYED} & found.binary_data.keys():
            raise self.failed(
                f"another version of berth wrote it ({', '.join(sorted(found.binary_data))}); run one "
                "version of berth, or delete its ConfigMaps and let reconcile rebuild it"
            )

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """No text names a shard: equal troubles must have equal texts, or pods are tried again and again."""

        def said(error: BerthError) -> str:
            shard = name not in ("", self.location.name)
            return str(error).replace(name, f"{self.location.name}-…") if shard else str(error)

        try:
            yield
        except ClusterUnavailableError as error:
            unanswered = error.__cause__ is not None
            late = f"no answer within {self.location.timeout:g} s"
            raise self._away(reason(error.__cause__, late) if unanswered else said(error)) from error
        except ClusterRefusedError as error:
            raise _RefusedError(error.status, self._refused(error.status, said(error))) from error
        except msgspec.DecodeError as error:
            raise self._away("the API server's answer can't be read") from error

    def _away(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"berth's ledger is unreachable ({self.location}, {why}); if this lasts, see to the API server "
            f"at {self._server.host}, or to KUBECONFIG"
        )

    def _refused(self, status: int, said: str) -> StoreFailedError:
        if status == 401:
            return self.failed(f"{said}; check the credentials in KUBECONFIG or the pod's account")
        if status == 403:
            return self.failed(
                f"{said}; berth needs {self._rights} of configmaps in the namespace {self.location.namespace}"
            )
        return self.failed(said)


class _RefusedError(Exception):
    """A 4xx that means something here, or else is `explained`."""

    def __init__(self, status: int, explained: StoreFailedError) -> None:
        super().__init__(str(explained))
        self.status, self.explained = status, explained


def _part(content: Content) -> str:
    return _KEYED if content.life is not None and content.life.key else _DATA


def _item(meta: _Meta, size: int, content: Content) -> Item:
    return Item(meta.name, meta.uid, int(meta.resource_version), size, content)
