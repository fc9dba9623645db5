"""functions/bind on a store that counts what it is asked, in the file that BENCH_COUNTS names.
It uses of berth only what trees of earlier days have, too."""

import mmap
import os
import struct
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import functions_framework

from berth.handlers.bind import on
from berth.handlers.wiring import ledger_of
from berth.http.endpoint import Endpoint
from berth.http.function import serve
from berth.kube.cluster import connect
from berth.metrics import Metrics
from berth.settings import Settings
from berth.stores import open_store
from berth.stores.base import Changes, Document, Store

COUNTS = struct.Struct("=4Q")
"""Reads, commits, commits that met a conflict, and looks (`changes`)."""
_READ, _COMMIT, _CONFLICT, _LOOK = range(4)


class Counted:
    """A store, and how often each of its calls was made."""

    def __init__(self, store: Store, path: Path) -> None:
        self._store, self._guard, self._counts = store, threading.Lock(), [0, 0, 0, 0]
        path.write_bytes(bytes(COUNTS.size))
        with path.open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), COUNTS.size)
        self.batches, self.close = store.batches, store.close

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        self._count(_READ)
        return self._store.read(keys)

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, str | None]) -> bool:
        self._count(_COMMIT)
        done = self._store.commit(writes, expected)
        if not done:
            self._count(_CONFLICT)
        return done

    def changes(self, since: str | None) -> Changes:
        self._count(_LOOK)
        return self._store.changes(since)

    def _count(self, which: int) -> None:
        with self._guard:
            self._counts[which] += 1
            COUNTS.pack_into(self._file, 0, *self._counts)


def endpoint(settings: Settings, *, metrics: Metrics) -> Endpoint:
    cluster = connect()
    store = Counted(open_store(settings.store), Path(os.environ["BENCH_COUNTS"]))
    return on(ledger_of(cluster, settings, store, metrics, while_closed=False), cluster, settings)


if "BENCH_COUNTS" in os.environ:
    bind = functions_framework.http(serve(endpoint))
