"""A real etcd and kube-apiserver for ledgers in ConfigMaps, what an operator may do to these, and stores
whose every request a test can stop. It checks nothing; a ledger's name is used once."""

import base64
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Self
from unittest import mock

from berth.kube.client import ApiServer, Request, configured
from berth.stores.configmap import ConfigMapStore
from berth.stores.configmap.content import Content, decode
from berth.stores.configmap.url import parse
from tests.controlplane.plane import ControlPlane
from tests.support.builders.ledgers import Time
from tests.support.cluster import ApiError, Cluster, Object

USER = "functions"  # has no rights of his own; his token is his name
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class ConfigMapServer:
    """`kubeconfig` is its admin's."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.plane = ControlPlane(binaries, folder / "plane", {USER: (USER, ())})
        self.kubeconfig = folder / "kubeconfig"
        self._numbers = count(1)

    def __enter__(self) -> Self:
        self.plane.start()
        self.plane.kubeconfig(self.kubeconfig)
        self.admin = Cluster(self.plane.url, self.plane.admin_token, self.plane.ca_file)
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self.plane.stop()

    def new_name(self) -> str:
        return f"ledger-{next(self._numbers)}"

    def url(self, name: str, shards: int = 2) -> str:
        """Few shards, since new lives are made often; a time-out for a machine that is busy."""
        return f"configmap://default/{name}?shards={shards}&timeout=30"

    def objects(self, ledger: str) -> dict[str, Object]:
        """The ledger's ConfigMaps by name."""
        found = self.admin.get(f"{CONFIGMAPS}?labelSelector=berth.dev%2Fledger%3D{ledger}")["items"]
        return {item["metadata"]["name"]: item for item in found}

    def delete(self, ledger: str) -> None:
        """All that there is of it, one after the other."""
        for name in self.objects(ledger):
            self.delete_one(name)

    def delete_one(self, name: str) -> None:
        try:
            self.admin.call("DELETE", f"{CONFIGMAPS}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise

    def contents(self, ledger: str) -> dict[str, Content]:
        return {name: decode(data_of(found)) for name, found in self.objects(ledger).items()}

    def put_back(self, found: Object) -> None:
        """As `kubectl apply` of an old copy: over what is there, or anew."""
        meta = {key: found["metadata"][key] for key in ("name", "labels")}
        body = {"metadata": meta, "binaryData": found["binaryData"]}
        path = f"{CONFIGMAPS}/{meta['name']}"
        there = self.admin.request("GET", path).status == 200
        self.admin.call("PUT" if there else "POST", path if there else CONFIGMAPS, body)


def data_of(found: Object) -> bytes:
    (data,) = found["binaryData"].values()
    return base64.b64decode(data)


class Tapped(ApiServer):
    """Berth's own connection; `before` and `after` see each request's method and path, and may raise."""

    def __init__(self, kubeconfig: Path) -> None:
        with mock.patch.dict(os.environ, {"KUBECONFIG": str(kubeconfig)}):
            super().__init__(configured())
        self.before: Callable[[str, str], object] = lambda *_: None
        self.after: Callable[[str, str], object] = lambda *_: None

    def lead(self, host: str) -> None:
        """Send what comes now to this server instead, as if it had been the one all along."""
        self.host = host
        vars(self).pop("_way", None)

    def call(self, request: Request) -> bytes:
        self.before(request.method, request.path)
        answer = super().call(request)
        self.after(request.method, request.path)
        return answer


class Opened:
    """Stores of one ledger, as processes would have it open; `time` is everybody's clock."""

    def __init__(self, server: ConfigMapServer, ledger: str) -> None:
        self.server, self.ledger, self.time = server, ledger, Time()
        self._stores: list[ConfigMapStore] = []
        self._numbers = count(1)

    def store(self, api: ApiServer | None = None, clock: Callable[[], float] | None = None) -> ConfigMapStore:
        numbers = self._numbers
        made = ConfigMapStore(
            parse(self.server.url(self.ledger, shards=3)),
            api or self.api(),
            new_generation=lambda: f"life{next(numbers)}",
            new_key=lambda: f"{next(numbers):032x}",
            new_id=lambda: f"id-{next(numbers)}",
            clock=clock or self.time,
            monotonic=self.time,
            sleep=self.time.advance,
        )
        self._stores.append(made)
        return made

    def api(self, token: str = "") -> Tapped:
        """As the bearer of a token, by default the admin."""
        if not token:
            return Tapped(self.server.kubeconfig)
        path = self.server.kubeconfig.with_name(f"kubeconfig-{token}")
        return Tapped(self.server.plane.kubeconfig(path, token))

    def close(self) -> None:
        for each in self._stores:
            each.close()

    def contents(self) -> dict[str, Content]:
        return self.server.contents(self.ledger)

    def apart(self, number: int = 3) -> list[str]:
        """Keys that lie in so many ConfigMaps, in the order of these."""
        self.store().read(["epoch"])
        generation = self.contents()[self.ledger].generation
        assert generation is not None
        found = {generation.place(self.ledger, key): key for key in (f"domain/ip/n{i}" for i in range(60))}
        return [key for _, key in sorted(found.items())][:number]
