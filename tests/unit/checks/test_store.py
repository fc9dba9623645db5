"""What is found in a store: by its URL, by how quickly it answers, by what its server says of itself."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from berth.checks import store as checks
from berth.ledger.model import Epoch, encode
from berth.stores import open_store
from berth.stores.base import EPOCH, Document, ServerFacts
from berth.stores.redis import _facts
from tests.unit.checks.inputs import inputs_of

WELL = ServerFacts("7.2.4", "noeviction", True, 1000.0)


def told(facts: ServerFacts) -> list[str]:
    return [finding.id for finding in checks._described(inputs_of(), facts, "redis://host")]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, []),
        ({"version": "6.2.1"}, ["store.version"]),
        ({"eviction": "allkeys-lru"}, ["store.eviction"]),
        ({"eviction": "volatile-lru"}, []),  # the ledger's keys never expire
        ({"persistent": False}, ["store.persistence"]),
        ({"clock": 998.0}, []),
        ({"clock": 997.9}, ["store.clock"]),
        ({"clock": 1002.1}, ["store.clock"]),
        ({"recovery": False}, ["store.recovery"]),
    ],
)
def test_what_a_server_says_of_itself_is_judged(change: dict[str, object], rules: list[str]) -> None:
    assert told(WELL._replace(**change)) == rules  # type: ignore[arg-type]


def test_what_a_server_does_not_say_is_not_called_right() -> None:
    given = inputs_of()
    facts = ServerFacts(unknown=("the user in the store's URL may not use INFO",))
    assert list(checks._described(given, facts, "redis://host")) == []
    assert {"store.eviction", "store.persistence", "store.recovery"} <= given.unlooked
    (said,) = given.unchecked
    assert said == "redis://host could not be checked: the user in the store's URL may not use INFO"


def test_answers_of_redis_are_read_and_those_that_are_refused_are_named() -> None:
    info = b"redis_version:7.0.15\r\naof_enabled:0\r\nmaxmemory_policy:noeviction\r\n"
    facts = _facts([b"save", b"3600 1"], info, [b"5", b"500000"])
    assert facts == ServerFacts("7.0.15", "noeviction", True, 5.5)
    assert _facts([b"save", b""], info, [b"5", b"0"]).persistent is False
    refused = _facts(None, None, None)
    assert refused.persistent is None
    assert len(refused.unknown) == 3


class Slow:
    """A store whose reads take as long as the clock says."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def read(self, _: object) -> dict[str, Document]:
        self.now += self._seconds
        return {EPOCH: Document("1", encode(Epoch("e", 1.0)))}


@pytest.mark.parametrize(("seconds", "rules"), [(0.010, []), (0.011, ["store.slow"])])
def test_a_store_that_takes_more_than_ten_milliseconds_is_slow(seconds: float, rules: list[str]) -> None:
    store, given = Slow(seconds), inputs_of()
    given.monotonic = lambda: round(store.now, 6)
    assert [each.id for each in checks._read(given, store, "x")] == rules  # type: ignore[arg-type]
    assert given.store_seconds == pytest.approx(seconds)


def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nbroken\n"
    assert checks.file_system(tmp_path / "a" / "b", mounts) == "nfs4"
    assert checks.file_system(Path("/etc"), mounts) == "ext4"
    assert checks.file_system(Path("/etc"), "") == ""


@pytest.mark.parametrize(("version", "rules"), [((3, 51, 2), ["store.sqlite"]), ((3, 51, 3), [])])
def test_a_sqlite_that_can_damage_a_file_is_told(
    version: tuple[int, int, int], rules: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    given = inputs_of(store=f"sqlite:///{tmp_path}/ledger.db", functions=())
    assert [finding.id for finding in checks._place(given)] == rules


def test_a_ledger_that_was_moved_is_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with closing(open_store(url)) as opened:
        assert opened.commit({EPOCH: encode(Epoch("copy", 1.0, "redis://there", True))}, {})
        told = list(checks._read(inputs_of(), opened, "x"))
    assert [finding.id for finding in told] == ["store.closed"]
    assert "moved to redis://there" in told[0].message
