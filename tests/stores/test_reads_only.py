"""Every store opened for reading, as filter, prioritize and preempt open theirs: it sees all and begins
nothing, so its account needs no right to write. SQLite is the exception: a file's readers write its -shm."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores import open_store
from berth.stores.base import EPOCH, Changes, Cursor, Store
from tests.stores.test_redis import RIGHTS
from tests.support.builders.places import Place
from tests.support.cluster import wait
from tests.support.fixtures import PLACES
from tests.support.servers.redisserver import RedisServer

Open = Callable[..., Store]
READERS = "%R~{berth}:* +evalsha_ro +eval_ro +info +hget +hgetall +zscore +zrangebyscore"


@pytest.fixture(params=sorted(PLACES.keys() - {"sqlite"}))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](request, tmp_path)


@pytest.fixture
def opened(place: Place) -> Iterator[Open]:
    """Opens the place's ledger, as another process would each time."""
    made: list[Store] = []

    def store(**how: bool) -> Store:
        made.append(open_store(place.url, **how))
        return made[-1]

    yield store
    for each in made:
        each.close()


def everything(store: Store) -> dict[str, bytes | None]:
    return dict(store.changes(None).documents)


def next_changes(store: Store, since: Cursor | None) -> Changes:
    """Return the first changes since then: they may lag, and come whole (stores.base.Store)."""

    def seen() -> Changes | None:
        found = store.changes(since)
        return found if found.documents else None

    found = wait(seen, 30, "the reader sees what was written")
    assert found is not None
    return found


def test_it_reads_and_follows_what_others_write(opened: Open) -> None:
    writer, reader = opened(), opened(reads_only=True)
    assert writer.commit({EPOCH: b"e", "domain/p/a": b"1", "domain/p/b": b"1"}, {EPOCH: None})
    first = next_changes(reader, None)
    assert (dict(first.documents), first.snapshot) == (
        {EPOCH: b"e", "domain/p/a": b"1", "domain/p/b": b"1"},
        True,
    )
    there = writer.read(["domain/p/a"])
    assert writer.commit(
        {"domain/p/a": b"2", "domain/p/b": None}, {"domain/p/a": there["domain/p/a"].version}
    )
    then = next_changes(reader, first.cursor)
    assert dict(then.documents) == {"domain/p/a": b"2", "domain/p/b": None}
    assert reader.read(["domain/p/a", "domain/p/b"]) == writer.read(["domain/p/a", "domain/p/b"])


def test_a_ledger_that_was_never_made_is_empty_and_is_not_made(opened: Open) -> None:
    reader, cursor = opened(reads_only=True), None
    for _ in range(2):
        assert reader.read([EPOCH]) == {}
        found = reader.changes(cursor)
        assert (dict(found.documents), found.snapshot) == ({}, True)
        cursor = found.cursor
    writer = opened()
    assert writer.commit({EPOCH: b"e"}, {EPOCH: None})
    assert dict(next_changes(reader, cursor).documents) == {EPOCH: b"e"}
    assert reader.read([EPOCH])[EPOCH].body == b"e"


def test_a_commit_is_refused_here(opened: Open) -> None:
    with pytest.raises(StoreFailedError, match="opened for reading"):
        opened(reads_only=True).commit({"a": b"1"}, {})
    assert everything(opened()) == {}


def test_what_was_lost_is_empty_until_a_writer_has_begun_anew(opened: Open, place: Place) -> None:
    writer, reader = opened(), opened(reads_only=True)
    assert writer.commit({EPOCH: b"e", "domain/p/a": b"1"}, {EPOCH: None})
    cursor = reader.changes(None).cursor
    before = reader.read(["domain/p/a"])["domain/p/a"].version
    place.lose()
    late = opened(reads_only=True)  # whose process begins only now: its knowledge can't be at fault
    for each, since in ((reader, cursor), (late, None)):
        for _ in range(2):
            found = each.changes(since)
            if place.name != "dynamodb" or each is late:  # that is told within 20 s
                assert (dict(found.documents), found.snapshot) == ({}, True)
                assert each.read([EPOCH, "domain/p/a"]) == {}
            since = found.cursor
    again = opened()
    assert again.commit({EPOCH: b"new", "domain/p/a": b"2"}, {EPOCH: None})
    assert everything(late) == {EPOCH: b"new", "domain/p/a": b"2"}
    assert late.read(["domain/p/a"])["domain/p/a"].version != before


def test_an_older_copy_that_was_put_back_is_told_as_it_is_after_an_empty_ledger(
    own_redis: RedisServer,
) -> None:
    """Whoever writes begins a new life then. A reader only advises: it must neither stay empty for ever nor
    mix what it knew with what is there."""
    names = ("documents", "written", "deleted")
    with (
        closing(open_store(f"{own_redis.url}/0")) as writer,
        closing(open_store(f"{own_redis.url}/0", reads_only=True)) as reader,
    ):
        assert writer.commit({EPOCH: b"e", "a": b"1"}, {})
        for name in names:
            own_redis.command("COPY", f"{{berth}}:{name}", f"old-{name}")
        assert writer.commit({"a": b"2", "b": b"2"}, {})
        cursor = reader.changes(None).cursor
        for name in names:
            own_redis.command("COPY", f"old-{name}", f"{{berth}}:{name}", "REPLACE")
        found = reader.changes(cursor)
        assert (dict(found.documents), found.snapshot) == ({}, True)
        assert dict(reader.changes(found.cursor).documents) == {EPOCH: b"e", "a": b"1"}


def test_a_redis_user_with_the_readers_rights_in_the_manual_is_enough_and_writes_nothing(
    own_redis: RedisServer,
) -> None:
    manual = Path(__file__).parents[2] / "docs" / "stores" / "redis.md"
    assert f"on >PASSWORD {READERS}" in " ".join(manual.read_text().split())
    own_redis.command("ACL", "SETUSER", "reader", "on", ">s3cr3t", *READERS.split())
    url = f"redis://reader:s3cr3t@127.0.0.1:{own_redis.port}/0"
    with (
        closing(open_store(f"{own_redis.url}/0")) as writer,
        closing(open_store(url, reads_only=True)) as reader,
    ):
        assert writer.commit({EPOCH: b"e", "a": b"1"}, {})
        found = reader.changes(None)
        assert dict(found.documents) == {EPOCH: b"e", "a": b"1"}
        assert writer.commit({"a": b"2"}, {})
        assert dict(reader.changes(found.cursor).documents) == {"a": b"2"}
        own_redis.command("FLUSHALL")
        assert dict(reader.changes(found.cursor).documents) == {}
    with redis.Redis(port=own_redis.port, username="reader", password="s3cr3t") as stolen:
        for attack in (
            ("DEL", "{berth}:documents"),
            ("HSET", "{berth}:documents", "a", "1 x"),
            ("FLUSHALL",),
            ("EVAL", "return redis.call('DEL', KEYS[1])", 1, "{berth}:documents"),
            ("EVAL_RO", "return redis.call('DEL', KEYS[1])", 1, "{berth}:documents"),
        ):
            with pytest.raises(redis.exceptions.ResponseError, match=r"permission|can't run"):
                stolen.execute_command(*attack)


def test_a_redis_user_that_was_made_before_there_were_readers_is_enough(own_redis: RedisServer) -> None:
    """It may run scripts, but none by the commands that let a script only read: with it filter refused every
    pod after an upgrade."""
    own_redis.command("ACL", "SETUSER", "berth", "on", ">s3cr3t", "~{berth}:*", *RIGHTS.split())
    url = f"redis://berth:s3cr3t@127.0.0.1:{own_redis.port}/0"
    with (
        closing(open_store(url)) as writer,
        closing(open_store(url, reads_only=True)) as reader,
    ):
        assert writer.commit({EPOCH: b"e", "a": b"1"}, {})
        found = reader.changes(None)
        assert dict(found.documents) == {EPOCH: b"e", "a": b"1"}
        assert reader.read(["a"])["a"].body == b"1"
        own_redis.command("FLUSHALL")
        assert dict(reader.changes(found.cursor).documents) == {}
        assert own_redis.parts("KEYS", "*") == []
    own_redis.command("ACL", "SETUSER", "berth", "-evalsha", "-eval")
    with closing(open_store(url, reads_only=True)) as reader:
        with pytest.raises(StoreFailedError, match=r"lacks rights .* 'evalsha_ro'"):
            reader.changes(None)
        own_redis.command("ACL", "SETUSER", "berth", "+evalsha_ro", "+eval_ro")
        assert dict(reader.changes(None).documents) == {}


def test_a_redis_replica_is_refused_by_a_reader_as_well(own_redis: RedisServer, tmp_path: Path) -> None:
    """A primary that became a replica keeps its connections. A reader took it for a ledger that is lost, and
    said so for as long as the connection stood."""
    with (
        closing(open_store(f"{own_redis.url}/0")) as writer,
        closing(open_store(f"{own_redis.url}/0", reads_only=True)) as reader,
        RedisServer(tmp_path / "promoted") as promoted,
    ):
        assert writer.commit({EPOCH: b"e", "a": b"1"}, {})
        assert dict(reader.changes(None).documents) == {EPOCH: b"e", "a": b"1"}
        own_redis.replica_of(promoted)
        for call in (lambda: reader.read(["a"]), lambda: reader.changes(None)):
            with pytest.raises(StoreUnavailableError, match="is a replica"):
                call()
        own_redis.replica_of(None)
        assert writer.commit({EPOCH: b"new"}, {})
        assert dict(reader.changes(None).documents)[EPOCH] == b"new"
