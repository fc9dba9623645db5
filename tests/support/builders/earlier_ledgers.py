"""Puts a ledger that an earlier Berth wrote back into its store, beside the cluster that it belongs to.

The store is another one than it was then. What would tell of that (the server's id, UIDs, a table's id) is
written as it is here, since a store that was replaced is a loss, and tested elsewhere.
"""

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import redis
from msgspec.structs import replace

from berth.http.extender_v1 import BindingCall
from berth.kube.client import ApiServer, Request
from berth.kube.client import connect as api_server
from berth.kube.cluster import connect
from berth.stores import open_store
from berth.stores.configmap.content import decode, encode
from berth.testing.api_server import StandIn
from berth.testing.api_server.rules import Key
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, WithPoolClaims

DATA = Path(__file__).parents[2] / "data" / "ledgers"
STORES = ("configmap", "dynamodb", "redis", "sqlite")


class Earlier(PoolsStage):
    """The cluster and the ledger as they were written; `then` is what the ledger said of itself."""

    def __init__(self, api: StandIn, folder: Path, place: Place) -> None:
        self.then: dict[str, Any] = json.loads((DATA / f"{place.name}.json").read_text())
        super().__init__(api, folder, place, {}, {"n1": {}})
        self._restore_cluster(api, folder)
        self.store.close()  # it remembers what it saw of the store
        place.lose()
        _RESTORED[place.name](place, self.then["raw"])
        self.store = open_store(place.url)

    def _restore_cluster(self, api: StandIn, folder: Path) -> None:
        memory = api.memory
        memory.kube_system = self.then["kube_system"]
        memory._objects = {Key(*key): document for *key, document in self.then["objects"]}
        self.time.now = self.then["time"]
        with mock.patch.dict(os.environ, {"KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig"))}):
            self.objects = WithPoolClaims(connect(self.time))
        self.cluster = self.objects
        for document in self.then["poolclaims"]:
            self.objects.put(document)
        self.write_pools(**self.then["pools"])

    def bound_call(self, name: str) -> BindingCall:
        """The call by which a pod that runs was bound."""
        pod = self.get(name)
        return BindingCall(name, "default", pod.metadata.uid, pod.spec.node_name or "")

    def documents(self) -> dict[str, str]:
        """The ledger's documents, as they stand in the store."""
        changes = self.store.changes(None).documents
        return {key: body.decode() for key, body in changes.items() if body is not None}


@contextmanager
def earlier_ledger(folder: Path, place: Place) -> Iterator[Earlier]:
    with StandIn() as api:
        stage = Earlier(api, folder, place)
        with closing(stage.store), closing(stage.raw):
            yield stage


def _sqlite(place: Place, _: None) -> None:
    path = Path(place.url.removeprefix("sqlite:///"))
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(DATA / "sqlite.db", path)


def _redis(place: Place, raw: Mapping[str, Any]) -> None:
    with closing(redis.Redis.from_url(place.url)) as server:
        here = f"{server.info('server')['run_id']} {server.info('replication')['master_replid']}"
        for key, stored in raw.items():
            values = {base64.b64decode(name): value for name, value in stored["value"].items()}
            if stored["type"] == "zset":
                server.zadd(key, values)
                continue
            bodies: dict[Any, Any] = {name: base64.b64decode(value) for name, value in values.items()}
            life = bodies[b"\xff"].split()[:4]
            server.hset(key, mapping={**bodies, b"\xff": b" ".join([*life, here.encode()])})


def _configmap(place: Place, raw: Mapping[str, Any]) -> None:
    server, ledger = api_server(), place.url.rpartition("/")[2].partition("?")[0]
    path = f"/api/v1/namespaces/{raw['namespace']}/configmaps"
    uids = {}
    for item in sorted(raw["items"], key=lambda item: item["name"], reverse=True):  # the head comes last
        name = ledger + item["name"].removeprefix(raw["ledger"])
        meta = {"name": name, "labels": {"berth.dev/ledger": ledger}}
        body = {"metadata": meta, "binaryData": item["binaryData"]}
        uids[item["uid"]] = _called(server, "POST", path, body)["metadata"]["uid"]
    ((field, data),) = item["binaryData"].items()
    head = decode(base64.b64decode(data))
    before = head.generation
    assert before is not None
    now = replace(before, head=uids[before.head], uids=tuple(uids[uid] for uid in before.uids))
    here = base64.b64encode(encode(replace(head, generation=now))).decode()
    _called(server, "PUT", f"{path}/{name}", {**body, "binaryData": {field: here}})


def _called(server: ApiServer, method: str, path: str, body: Mapping[str, Any]) -> Any:
    return json.loads(server.call(Request(method, path, 30.0, body)))


def _dynamodb(place: Place, raw: Mapping[str, Any]) -> None:
    table, _, options = place.url.removeprefix("dynamodb://").partition("?")
    settings = dict(option.split("=", 1) for option in options.split("&"))
    client = boto3.client("dynamodb", region_name=settings["region"], endpoint_url=settings["endpoint"])
    here = client.describe_table(TableName=table)["Table"]["TableId"]
    for item in raw["items"]:
        stored = _attributes(item)
        if "table" in stored:
            stored["table"] = {"S": here}
        client.put_item(TableName=table, Item=stored)


def _attributes(value: Any) -> Any:
    if isinstance(value, list):
        return [_attributes(element) for element in value]
    if not isinstance(value, dict):
        return value
    if "$b64" in value:
        return base64.b64decode(value["$b64"])
    return {name: _attributes(inner) for name, inner in value.items()}


_RESTORED: dict[str, Callable[[Place, Any], None]] = {
    "configmap": _configmap,
    "dynamodb": _dynamodb,
    "redis": _redis,
    "sqlite": _sqlite,
}
