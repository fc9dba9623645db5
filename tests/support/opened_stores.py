"""What the contract's tests of one store share: stores that are closed when a test ends."""

from collections.abc import Callable, Iterator

import pytest

from berth.stores.redis import RedisStore
from berth.stores.redis.url import parse
from tests.support.patience import be_patient
from tests.support.servers.configmaps import ConfigMapServer, Opened
from tests.support.servers.dynamo import Table
from tests.support.servers.motoserver import ENVIRONMENT, MotoServer
from tests.support.servers.redisserver import RedisServer


@pytest.fixture
def opened_at() -> Iterator[Callable[[str], RedisStore]]:
    """Opens a store at a URL, as another process would."""
    stores: list[RedisStore] = []

    def opener(url: str) -> RedisStore:
        stores.append(RedisStore(parse(url), seconds=30.0))
        return stores[-1]

    yield opener
    for each in stores:
        each.close()


@pytest.fixture
def opened(opened_at: Callable[[str], RedisStore]) -> Callable[[RedisServer], RedisStore]:
    """Return what opens a store on a server."""
    return lambda server: opened_at(server.url)


@pytest.fixture
def configmaps(configmap_server: ConfigMapServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """A ledger of this test's own in ConfigMaps."""
    be_patient(monkeypatch)
    found = Opened(configmap_server, configmap_server.new_name())
    yield found
    found.close()
    configmap_server.delete(found.ledger)


@pytest.fixture
def table(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """A ledger's table in DynamoDB, as `berth store init` makes it."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    be_patient(monkeypatch)
    found = Table(moto_server)
    yield found
    found.close()
