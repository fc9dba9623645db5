"""What the contract's tests of Redis share: stores that are closed when a test ends."""

from collections.abc import Callable, Iterator

import pytest

from berth.stores.redis import RedisStore
from berth.stores.redis.location import parse
from tests.support.redisserver import RedisServer


@pytest.fixture
def opened() -> Iterator[Callable[[RedisServer], RedisStore]]:
    """Opens a store on a server, as another process would."""
    stores: list[RedisStore] = []

    def opener(server: RedisServer) -> RedisStore:
        stores.append(RedisStore(parse(server.url), seconds=30.0))
        return stores[-1]

    yield opener
    for each in stores:
        each.close()
