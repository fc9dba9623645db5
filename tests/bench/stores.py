"""Where the bench's ledgers live: an empty store of each kind, with the block that uses it.
It measures on this machine: no network lies between a function and its Redis."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.bench.processes import BenchError
from tests.support.redisserver import RedisServer, RedisServerError


@contextmanager
def _sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite:///{folder / 'ledger.db'}"


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    server = RedisServer(folder / "redis")
    try:
        server.start()
    except RedisServerError as error:
        raise BenchError(f"{error}; or measure with --stores sqlite") from error
    try:
        yield server.url
    finally:
        server.stop()


_KINDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {"sqlite": _sqlite, "redis": _redis}
STORES = tuple(_KINDS)


def place(kind: str, folder: Path) -> AbstractContextManager[str]:
    """The URL of an empty store, for as long as the block lasts; a store's files go to the folder."""
    return _KINDS[kind](folder)
