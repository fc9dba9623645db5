"""Requests for the ConfigMaps of one ledger; errors of the API server become the store's here alone.
It knows no generation and no commit. A write that nobody answered may have been done."""

from collections.abc import Collection
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from berth.errors import ClusterRefusedError, ClusterUnavailableError, reason
from berth.kube.client import ApiServer, Request
from berth.stores.configmap import errors
from berth.stores.configmap.content import Content, decode, encode, replaced
from berth.stores.configmap.errors import LABEL, MOST_BYTES
from berth.stores.configmap.url import ConfigMapUrl

T = TypeVar("T")

_DATA = "ledger-v1"
_KEYED = "ledger-v2"  # the head of a life with a key: who does not know it would look in other shards
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


class Listed(NamedTuple):
    """A ConfigMap in a list."""

    uid: str
    version: int


_config_map, _list = msgspec.json.Decoder(_ConfigMap), msgspec.json.Decoder(_ConfigMaps)


class Client:
    """The ConfigMaps of one ledger. Every call may raise StoreUnavailableError and StoreFailedError."""

    def __init__(self, url: ConfigMapUrl, server: ApiServer, *, reads_only: bool = False) -> None:
        self.url, self._server = url, server
        self._rights = "get and list" if reads_only else "get, list, create, update and delete"

    def get(self, name: str) -> Item | None:
        """Return it as it is now (a consistent read); None if it is not there or was never ours."""
        answer = self._call("GET", name, none=(404,))
        if answer is None:
            return None
        config_map = self._decode(_config_map, answer)
        ours, parts = config_map.metadata.labels.get(LABEL) == self.url.name, config_map.binary_data
        if name == self.url.name:
            if not ours:
                raise errors.not_ours(self.url)
            if parts and not {_DATA, _KEYED} & parts.keys():
                raise errors.of_another_version(self.url, sorted(parts))
        data = parts.get(_KEYED) or parts.get(_DATA, b"") if ours else b""
        return _item(config_map.metadata, len(data), decode(data))

    def create(self, name: str, content: Content) -> Item | None:
        """Return it as it was made; None if there is one already."""
        data = encode(content)
        answer = self._call("POST", name, self._body(name, data, _part(content)), none=(409,))
        return None if answer is None else self._written(answer, data, content)

    def put(self, before: Item, content: Content, *, must: bool = False) -> Item | None:
        """Return it as it was written; None if it has changed since `before`, or is gone. A large one is made
        no larger, unless it `must`."""
        content = replaced(content, rev=content.rev + 1)
        data = encode(content)
        if not must:
            self.require_room(before, len(data))
        body = self._body(before.name, data, _part(content), str(before.version))
        # Done twice, the second is a conflict.
        answer = self._call("PUT", before.name, body, none=(404, 409), again=True)
        return None if answer is None else self._written(answer, data, content)

    def delete(self, name: str) -> None:
        self._call("DELETE", name, none=(404,), again=True)

    def list_all(self, newest: int | None = None) -> dict[str, Listed]:
        """Return all that carry this ledger's label: as they are now, or with `newest` as the API server's
        cache has them, which holds at least what that resourceVersion wrote."""
        query = {"labelSelector": f"{LABEL}={self.url.name}"}
        if newest is not None:
            query |= {"resourceVersion": str(newest), "resourceVersionMatch": "NotOlderThan"}
        answer = self._call("GET", query=f"?{urlencode(query)}")
        metas = [item.metadata for item in self._decode(_list, answer or b"").items or ()]
        return {meta.name: Listed(meta.uid, int(meta.resource_version)) for meta in metas}

    def close(self) -> None:
        self._server.close()

    def require_room(self, before: Item, size: int) -> None:
        if size > MOST_BYTES and size > before.size:
            raise errors.full(self.url)

    def _call(
        self,
        method: str,
        name: str = "",
        body: Any = None,
        *,
        query: str = "",
        none: Collection[int] = (),
        again: bool = False,
    ) -> bytes | None:
        """Return the answer, None for one of the statuses in `none`. Without a name it is about all."""
        path = f"/api/v1/namespaces/{self.url.namespace}/configmaps"
        target = path + query if method == "POST" or not name else f"{path}/{name}"
        accept = ("application/json" if name else _META_LIST) if method == "GET" else _META_ONLY
        request = Request(method, target, self.url.timeout, body, accept=accept, again=again)
        try:
            return self._server.call(request)
        except ClusterUnavailableError as error:
            late = f"no answer within {self.url.timeout:g} s"
            why = reason(error.__cause__, late) if error.__cause__ is not None else self._said(error, name)
            raise errors.unreachable(self.url, self._server.host, why) from error
        except ClusterRefusedError as error:
            if error.status in none:
                return None
            if (method, error.status) == ("POST", 404):
                raise errors.no_namespace(self.url) from error
            raise errors.refused(self.url, error.status, self._said(error, name), self._rights) from error

    def _said(self, error: Exception, name: str) -> str:
        shard = name not in ("", self.url.name)
        return str(error).replace(name, f"{self.url.name}-…") if shard else str(error)

    def _decode(self, decoder: msgspec.json.Decoder[T], answer: bytes) -> T:
        try:
            return decoder.decode(answer)
        except msgspec.DecodeError as error:
            why = "the API server's answer can't be read"
            raise errors.unreachable(self.url, self._server.host, why) from error

    def _written(self, answer: bytes, data: bytes, content: Content) -> Item:
        return _item(self._decode(_config_map, answer).metadata, len(data), content)

    def _body(self, name: str, data: bytes, part: str, version: str | None = None) -> dict[str, Any]:
        # The empty managedFields strip those that the API server would keep, which are larger than the rest
        # of the metadata.
        metadata = {"name": name, "labels": {LABEL: self.url.name}, "managedFields": [{}]}
        if version is not None:
            metadata["resourceVersion"] = version
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {part: data}}


def _part(content: Content) -> str:
    return _KEYED if content.generation is not None and content.generation.key else _DATA


def _item(meta: _Meta, size: int, content: Content) -> Item:
    return Item(meta.name, meta.uid, int(meta.resource_version), size, content)
