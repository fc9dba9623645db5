"""A store whose calls are tried again for a while when it does not answer: for work that may take its time.
A commit that is tried again may meet its own first try: its False does not mean that another wrote."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from berth.deadline import Deadline
from berth.errors import StoreUnavailableError
from berth.retry import retry
from berth.stores.base import Document, Store, Version

PATIENCE_SECONDS = 5.0

T = TypeVar("T")


class RetryingStore:
    """One store and its name. Raises what the store raised last."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._store, self._monotonic, self._sleep = store, monotonic, sleep

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._retry(lambda: self._store.read(keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        return self._retry(lambda: self._store.commit(writes, expected))

    def everything(self) -> Mapping[str, bytes | None]:
        return self._retry(lambda: self._store.changes(None)).documents

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return self._store.batches(keys)

    def _retry(self, call: Callable[[], T]) -> T:
        deadline = Deadline.after(PATIENCE_SECONDS, self._monotonic)
        return retry(call, StoreUnavailableError, deadline=deadline, pauses=(0.02, 0.5), sleep=self._sleep)
