"""What a commit only expects, the epoch above all, holds at the moment of its write: a ledger that is paused
takes nothing afterwards that was decided before. On a real API server, between any two requests."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from berth.errors import StoreUnavailableError
from berth.stores.base import EPOCH, Store
from tests.support.servers.configmaps import Opened


def before_request(number: int, do: Callable[[], object]) -> Callable[[str, str], None]:
    numbers = count(1)

    def step(*_: str) -> None:
        if next(numbers) == number:
            do()

    return step


def bodies(store: Store, keys: list[str]) -> set[bytes]:
    return {found.body for found in store.read(keys).values()}


@pytest.mark.parametrize("documents", [1, 2])
def test_once_the_epoch_is_written_nothing_lands_that_expected_it_as_it_was(
    configmaps: Opened, documents: int
) -> None:
    """Another writes the epoch before the first request of a commit, then before its second, to its end."""
    keys = configmaps.apart(documents)
    other = configmaps.store()
    assert other.commit({EPOCH: b"e", **dict.fromkeys(keys, b"0")}, {})
    for number in count(1):
        api = configmaps.api()
        store, body, seen = configmaps.store(api), b"%d" % number, list[set[bytes]]()
        expected = {key: found.version for key, found in store.read([EPOCH, *keys]).items()}

        def pause(body: bytes = body, seen: list[set[bytes]] = seen) -> None:
            if other.commit({EPOCH: body}, {EPOCH: other.read([EPOCH])[EPOCH].version}):
                seen.append(bodies(other, keys))

        api.before = before_request(number, pause)
        done = False
        with suppress(StoreUnavailableError):
            done = store.commit(dict.fromkeys(keys, body), expected)
        api.before = lambda *_: None
        assert bodies(other, keys) == {body} if done else body not in bodies(other, keys)
        if not seen:
            assert done
            return
        assert done is (seen == [{body}])
