"""An API server for functions that need one and are not measured by it.
It has no pods, nodes or objects, and knows nobody: it answers whoever asks."""

import threading
from pathlib import Path
from typing import Self

import msgspec

from berth.testing.loopback import Loopback, Reply, Request


class Nobody:
    """An API server in which every pod is gone already; `calls` counts what it was asked."""

    def __init__(self) -> None:
        self.calls = 0
        self._guard = threading.Lock()
        self._loopback = Loopback(self._answer)

    def __enter__(self) -> Self:
        self._loopback.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loopback.stop()

    def kubeconfig(self, path: Path) -> Path:
        cluster = {"name": "nobody", "cluster": {"server": self._loopback.url}}
        context = {"name": "nobody", "context": {"cluster": "nobody", "user": ""}}
        found = {"clusters": [cluster], "contexts": [context], "users": [], "current-context": "nobody"}
        path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "Config", **found}))
        return path

    def _answer(self, request: Request) -> Reply:
        with self._guard:
            self.calls += 1
        if request.path.endswith("/kube-system"):
            return Reply(200, b'{"metadata":{"name":"kube-system","uid":"bench"}}')
        single = "/pods/" in request.path
        return Reply(404, b'{"message":"gone"}') if single else Reply(200, b'{"items":[]}')
