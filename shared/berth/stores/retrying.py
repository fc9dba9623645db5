"""A store whose calls are made again for a while when it does not answer: for work that is worth waiting for.
A commit made again may find its own first try: False then means no more than that something is there."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import tenacity

from berth.errors import StoreUnavailableError
from berth.stores.base import Document, Store, Version

PATIENCE_SECONDS = 5.0

T = TypeVar("T")


class Patient:
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
        return self._patiently(lambda: self._store.read(keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        return self._patiently(lambda: self._store.commit(writes, expected))

    def everything(self) -> Mapping[str, bytes | None]:
        return self._patiently(lambda: self._store.changes(None)).documents

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        return self._store.batches(keys)

    def _patiently(self, call: Callable[[], T]) -> T:
        give_up_at = self._monotonic() + PATIENCE_SECONDS
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(StoreUnavailableError),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            stop=lambda _: self._monotonic() >= give_up_at,
            sleep=self._sleep,
            reraise=True,
        )
        result: T = attempts(call)
        return result
