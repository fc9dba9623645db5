"""Pods that come and go all through a fault; an API server that is away delays that, and no more."""

import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import urllib3

from tests.chaos.background import PATIENCE, Background
from tests.support.cluster import ApiError, Cluster, wait

T = TypeVar("T")
ALREADY_THERE, GONE, TOO_MANY = 409, 404, 429


class Churn(Background):
    """`count` pods are made, then bound ones are replaced by new ones, two every `pace` seconds as long as
    `keep` are bound: where binding is slow, so is this. After the block `count` pods are there again.
    `replaced` are those that were bound, and went."""

    def __init__(
        self, cluster: Cluster, prefix: str, count: int, keep: int, pace: float, dice: random.Random
    ) -> None:
        super().__init__()
        self._cluster, self._prefix, self._pace = cluster, prefix, pace
        self._count, self._keep = count, keep
        self._dice, self._made = dice, 0
        self.replaced: set[str] = set()
        self._turn = threading.Lock()

    def replace(self, count: int) -> None:
        """Some more, now. Only a pod that is bound is replaced."""
        with self._turn:
            bound = [name for name in sorted(self._try(self._cluster.bound) or {}) if self.has(name)]
            chosen = self._dice.sample(bound, min(count, max(0, len(bound) - self._keep)))
            self._each(deleted, chosen)
            self.replaced |= set(chosen)
            self._create(len(chosen))

    def has(self, name: str) -> bool:
        """Whether the pod is one of these."""
        return name.startswith(f"{self._prefix}-")

    def _run(self) -> None:
        self._create(self._count)
        while not self._stop.wait(self._pace):
            self.replace(2)

    def _create(self, count: int) -> None:
        first, self._made = self._made, self._made + count
        self._each(created, [f"{self._prefix}-{number:04}" for number in range(first, first + count)])

    def _each(self, call: Callable[[Cluster, str], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(6) as workers:
            list(workers.map(lambda name: self._insist(lambda: call(self._cluster, name)), names))

    def _insist(self, call: Callable[[], object]) -> None:
        wait(lambda: self._try(lambda: [call()]), PATIENCE, "the API server does it", every=0.2)

    def _try(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except urllib3.exceptions.HTTPError:
            return None
        except ApiError as error:
            if error.status < 500 and error.status != TOO_MANY:
                raise
            return None


def created(cluster: Cluster, name: str) -> None:
    try:
        cluster.create_pod(name)
    except ApiError as error:
        if error.status != ALREADY_THERE:
            raise


def deleted(cluster: Cluster, name: str, namespace: str = "default") -> None:
    """Whether it was there or not."""
    try:
        cluster.delete_pod(name, namespace)
    except ApiError as error:
        if error.status != GONE:
            raise
