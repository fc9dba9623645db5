"""Ledgers in an API server for ConfigMaps in memory: of many shards, in a time that passes as a test says,
and in states that are rare on a real one. The server knows what berth's store asks of one, and no more."""

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from berth.errors import ClusterRefusedError
from berth.kube.client import ApiServer, Request
from berth.stores.base import EPOCH
from berth.stores.configmap import ConfigMapStore
from berth.stores.configmap.client import Client
from berth.stores.configmap.content import Content, decode
from berth.stores.configmap.url import ConfigMapUrl
from tests.support.builders.ledgers import Time
from tests.support.builders.races import SECONDS
from tests.support.builders.stage import KilledError

Object = dict[str, Any]


class ConfigMapApi(ApiServer):
    """`before` and `after` see each request's method and the ConfigMap's name, and may raise."""

    def __init__(self) -> None:
        self.host = "https://memory.example"
        self.objects: dict[str, Object] = {}
        self.version = 1000
        self.before: Callable[[str, str], object] = lambda *_: None
        self.after: Callable[[str, str], object] = lambda *_: None

    def call(self, request: Request) -> bytes:
        method, path, body = request.method, request.path, request.body
        name = urlsplit(path).path.partition("/configmaps")[2].lstrip("/")
        name = body["metadata"]["name"] if method == "POST" else name
        self.before(method, name)
        answer = msgspec.json.encode(getattr(self, f"_{method.lower()}")(name, body))
        self.after(method, name)
        return answer

    def close(self) -> None:
        """Nothing is open."""

    def contents(self) -> dict[str, Content]:
        return {name: decode(*found["binaryData"].values()) for name, found in self.objects.items()}

    def _get(self, name: str, _: None) -> Object:
        return self._there(name) if name else {"items": list(self.objects.values())}

    def _post(self, name: str, body: Object) -> Object:
        if name in self.objects:
            raise ClusterRefusedError("it is there already", 409)
        return self._written(body, f"uid-{self.version}")

    def _put(self, name: str, body: Object) -> Object:
        found = self._there(name)["metadata"]
        if found["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ClusterRefusedError("it was changed", 409)
        return self._written(body, found["uid"])

    def _delete(self, name: str, _: None) -> Object:
        self.version += 1
        return self.objects.pop(self._there(name)["metadata"]["name"])

    def _there(self, name: str) -> Object:
        if name not in self.objects:
            raise ClusterRefusedError("it is not there", 404)
        return self.objects[name]

    def _written(self, body: Object, uid: str) -> Object:
        self.version += 1
        meta = body["metadata"] | {"uid": uid, "resourceVersion": str(self.version)}
        self.objects[meta["name"]] = {"metadata": meta, "binaryData": body["binaryData"]}
        return {"metadata": meta}


class Turns(Time):
    """The time of several threads, of which one runs at a time: it passes only when all sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._asleep, self._numbers = list[tuple[float, int]](), count()
        self._threads, self._turn = 0, (0.0, 0)
        self._changed = threading.Condition()

    def advance(self, seconds: float) -> None:
        if not self._threads:
            super().advance(seconds)
            return
        with self._changed:
            mine = self.now + max(seconds, 0.001), next(self._numbers)
            heapq.heappush(self._asleep, mine)
            self._wake()
            while self._turn != mine:
                assert self._changed.wait(SECONDS), "a thread neither sleeps nor ends"

    def play(self, work: Callable[[int], None], number: int) -> None:
        def run(number: int) -> None:
            try:
                self.advance(0.0)
                work(number)
            finally:
                with self._changed:
                    self._threads -= 1
                    self._wake()

        self._threads = number
        with ThreadPoolExecutor(number) as pool:
            for each in [pool.submit(run, i) for i in range(number)]:
                each.result()

    def _wake(self) -> None:
        if self._asleep and len(self._asleep) == self._threads:
            self._turn = heapq.heappop(self._asleep)
            self.now, _ = self._turn
            self._changed.notify_all()


class Reader:
    """Follows a store's changes."""

    def __init__(self, store: ConfigMapStore) -> None:
        self._store, self._cursor = store, store.changes(None).cursor
        self.known: dict[str, bytes | None] = {}

    def look(self) -> None:
        found = self._store.changes(self._cursor)
        self._cursor = found.cursor
        self.known |= found.documents


class Memory:
    """A ledger, and stores that have it open."""

    def __init__(self, shards: int = 3) -> None:
        self.api, self.time, self._shards = ConfigMapApi(), Turns(), shards
        self._numbers = count(1)

    def play(self, work: Callable[[int], None], number: int, *, latency: float) -> None:
        """In so many threads; each request takes so long."""
        self.api.before = lambda *_: self.time.advance(latency)
        self.time.play(work, number)
        self.api.before = lambda *_: None

    def store(self, *, wall: float = 0.0, key: str | None = None) -> ConfigMapStore:
        """As another process would open it, with a clock that is wrong by so much; `key` is that of the lives
        that it begins."""
        location = ConfigMapUrl("default", "ledger", self._shards)
        numbers = self._numbers
        return ConfigMapStore(
            location,
            self.api,
            new_generation=lambda: f"life{next(numbers)}",
            new_key=lambda: f"{next(numbers):032x}" if key is None else key,
            new_id=lambda: f"id-{next(numbers)}",
            clock=lambda: self.time.now + wall,
            monotonic=self.time,
            sleep=self.time.advance,
        )

    def apart(self, number: int) -> list[str]:
        """Keys in so many shards, and in the order of these."""
        self.store().read([EPOCH])
        generation = self.api.contents()["ledger"].generation
        assert generation is not None
        found = {generation.place("ledger", key): key for key in (f"domain/ip/n{i}" for i in range(400))}
        return [key for _, key in sorted(found.items())][:number]

    def rewrite(self, name: str, how: Callable[[Content], Content]) -> None:
        """As another process would write this ConfigMap."""
        client = Client(ConfigMapUrl("default", "ledger"), self.api)
        found = client.get(name)
        assert found is not None
        assert client.put(found, how(found.content)) is not None

    def leave_behind(self, keys: list[str]) -> None:
        """A commit that is killed when its intents are in all, and nothing is decided."""
        puts = count(1)

        def kill(method: str, _: str) -> None:
            if method == "PUT" and next(puts) == len(keys):
                raise KilledError

        self.api.after = kill
        with pytest.raises(KilledError):
            self.store().commit(dict.fromkeys(keys, b"left"), {})
        self.api.after = lambda *_: None
