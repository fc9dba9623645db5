"""A Redis Cluster: whoever is asked sends us to the node that owns our keys, and a node that took them over,
or got them by resharding, begins a new life. One Cluster here wants TLS and an ACL user."""

import hashlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.local.ports import free_port
from berth.stores.base import EPOCH
from berth.stores.redis import RedisStore
from berth.stores.redis.url import parse
from tests.support.builders.certificates import self_signed
from tests.support.builders.failovers import check_nothing_is_given_twice
from tests.support.builders.losses import check_lost, fill, life
from tests.support.servers.rediscluster import RedisCluster
from tests.support.servers.redisserver import RedisServer

PASSWORD = "s3cr3t"
RIGHTS = (
    "+evalsha +eval +info +hget +hset +hdel +hgetall +zadd +zrem +zscore +zcard +zrangebyscore +zpopmin +del"
)
USERS = (
    "user default on nopass ~* &* +@all",
    f"user berth on #{hashlib.sha256(PASSWORD.encode()).hexdigest()} ~{{berth}}:* {RIGHTS}",
)

Opener = Callable[[str], RedisStore]


@pytest.fixture(scope="module")
def cluster(redis_installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """This module's own, which its tests may harm; they mend it."""
    assert redis_installed.exists()
    folder = tmp_path_factory.mktemp("secure")
    pair = self_signed(folder, address=(127, 0, 0, 1))
    with RedisCluster(folder, acl=USERS, tls=pair) as started:
        yield started


@pytest.fixture
def url(cluster: RedisCluster) -> str:
    """The Cluster, emptied, with the user's login."""
    cluster.flush()
    assert cluster.nodes[0].tls is not None
    return f"rediss://berth:{PASSWORD}@{cluster.hosts}/0?ssl_ca_certs={cluster.nodes[0].tls[0]}"


# Who is asked


def test_any_node_leads_to_the_one_that_owns_the_keys(redis_cluster: RedisCluster, opened_at: Opener) -> None:
    redis_cluster.flush()
    stores = [opened_at(node.url) for node in redis_cluster.nodes]
    for number, store in enumerate(stores):
        assert store.commit({f"{number}": b"1"}, {f"{number}": None})
    assert len(stores[0].changes(None).documents) == len(stores)
    assert redis_cluster.owner.command("EXISTS", "{berth}:documents") == b"1"


def test_once_sent_on_calls_go_straight_to_the_owner(redis_cluster: RedisCluster, opened_at: Opener) -> None:
    redis_cluster.flush()
    asked = redis_cluster.bystander
    store = opened_at(asked.url)
    store.read(["a"])
    before = moved(asked)
    for _ in range(5):
        assert store.commit({"a": b"1"}, {})
    assert moved(asked) == before


def moved(server: RedisServer) -> int:
    """How many scripts of berth's it has refused to run."""
    stats = server.info("commandstats")["cmdstat_evalsha"]
    return int(dict(part.split("=") for part in stats.split(","))["rejected_calls"])


def test_hosts_that_are_away_are_passed_over(redis_cluster: RedisCluster, opened_at: Opener) -> None:
    redis_cluster.flush()
    away = f"127.0.0.1:{free_port()}"
    store = opened_at(f"redis://{away},{redis_cluster.hosts}")
    assert store.commit({"a": b"1"}, {"a": None})


def test_where_no_host_answers_all_are_named(opened_at: Opener) -> None:
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailableError) as caught:
        opened_at(f"redis://me:s3cr3t@{hosts}").read(["a"])
    assert str(caught.value).startswith(
        f"berth's ledger is unreachable (redis://{hosts}, connection refused); if this lasts, check"
    )


def test_a_database_with_a_number_is_refused(redis_cluster: RedisCluster, opened_at: Opener) -> None:
    with pytest.raises(
        StoreFailedError, match=r"a Redis Cluster has no database but 0; leave out the number"
    ):
        opened_at(f"{redis_cluster.url}/1").read(["a"])


def test_several_hosts_that_are_no_cluster_are_refused(redis_server: RedisServer, opened_at: Opener) -> None:
    """Else processes could choose different ones, each with a ledger of its own."""
    store = opened_at(f"{redis_server.url},127.0.0.1:{free_port()}")
    with pytest.raises(StoreFailedError, match="several hosts are for a Redis Cluster, and this is not part"):
        store.commit({"a": b"1"}, {})


# Nodes that do not agree


class _Misleading(socketserver.StreamRequestHandler):
    """Answers every command with its server's text."""

    def handle(self) -> None:
        assert isinstance(self.server, Misleading)
        while line := self.rfile.readline():
            for _ in range(int(line[1:])):
                self.rfile.read(int(self.rfile.readline()[1:]) + 2)
            self.server.asked += 1
            self.wfile.write(self.server.text.encode() + b"\r\n")


class Misleading(socketserver.ThreadingTCPServer):
    daemon_threads = False  # their end is waited for

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Misleading)
        self.text, self.asked = "", 0
        self.port: int = self.server_address[1]


@contextmanager
def misleading() -> Iterator[Misleading]:
    with Misleading() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def node() -> Iterator[Misleading]:
    with misleading() as server:
        yield server


@pytest.fixture
def to_node(node: Misleading) -> Iterator[RedisStore]:
    # Closed before the node: that waits for its connections to end.
    store = RedisStore(parse(f"redis://127.0.0.1:{node.port}"), seconds=30.0)
    yield store
    store.close()


def test_nodes_that_name_each_other_are_not_asked_for_ever(node: Misleading, to_node: RedisStore) -> None:
    node.text = f"-MOVED 7 127.0.0.1:{node.port}"
    with pytest.raises(StoreUnavailableError, match=r"nodes name each other for its keys \(MOVED 7 127\.0"):
        to_node.commit({"a": b"1"}, {})
    assert node.asked == 6


def test_a_node_may_leave_out_its_host(
    node: Misleading, to_node: RedisStore, redis_cluster: RedisCluster
) -> None:
    redis_cluster.flush()
    node.text = f"-MOVED 7 :{redis_cluster.owner.port}"
    assert to_node.commit({"a": b"1"}, {"a": None})


def test_a_node_that_names_one_that_is_away_is_believed_and_that_one_named(
    node: Misleading, to_node: RedisStore
) -> None:
    away = free_port()
    node.text = f"-MOVED 7 127.0.0.1:{away}"
    with pytest.raises(StoreUnavailableError, match=rf"unreachable \(redis://127\.0\.0\.1:{away}, conn"):
        to_node.read(["a"])
    assert node.asked == 1


@pytest.mark.parametrize("text", ["CLUSTERDOWN The cluster is down", "CLUSTERDOWN Hash slot not served"])
def test_a_cluster_that_is_down_is_a_matter_of_time(node: Misleading, to_node: RedisStore, text: str) -> None:
    node.text = f"-{text}"
    with pytest.raises(StoreUnavailableError, match=rf"can't be used now \({text}\); if this lasts"):
        to_node.read(["a"])


# Fail-over and resharding, over TLS and as the ACL user


def test_a_primary_that_died_with_the_last_writes_is_a_loss(
    cluster: RedisCluster, url: str, opened_at: Opener
) -> None:
    before = opened_at(url)
    fill(before)
    owner, follower = cluster.owner, cluster.follower
    follower.catch_up(owner)
    follower.cut_off(owner)
    assert before.commit({"a": b"answered for, and lost"}, {})

    def die() -> None:
        owner.stop()
        with pytest.raises(
            StoreUnavailableError, match=rf"unreachable \(rediss://127\.0\.0\.1:{owner.port}, c"
        ):
            before.read(["a"])
        cluster.take_over(follower)

    check_lost(opened_at(url), before, die, "a", "b")
    assert life(before) == life(opened_at(url))
    cluster.recover(owner)


def test_what_a_fail_over_loses_is_not_given_twice(
    cluster: RedisCluster, url: str, opened_at: Opener
) -> None:
    owner, follower = cluster.owner, cluster.follower

    def lag() -> None:
        follower.catch_up(owner)
        follower.cut_off(owner)

    def fail_over() -> None:
        owner.stop()
        cluster.take_over(follower)

    check_nothing_is_given_twice(lambda: opened_at(url), lag, fail_over)
    cluster.recover(owner)


def test_a_ledger_that_moves_to_another_node_is_closed_and_nothing_decided_before_lands(
    cluster: RedisCluster, url: str, opened_at: Opener
) -> None:
    before = opened_at(url)
    fill(before)
    epoch = {EPOCH: before.read([EPOCH])[EPOCH].version}
    told = []

    def move() -> None:
        for step in cluster.moving(cluster.bystander):
            assert step is None
            try:
                assert before.commit({}, epoch)
                told.append("")
            except StoreUnavailableError as error:
                told.append(str(error))

    check_lost(opened_at(url), before, move, "a", "b")
    assert told[0] == ""
    assert all("its keys are being moved to another node (TRYAGAIN" in text for text in told[1:-1])
    assert "its keys are being moved to another node (ASK" in told[-1]
    assert not before.commit({"x": b"1"}, epoch)
