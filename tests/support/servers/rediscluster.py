"""A Redis Cluster of six servers on loopback, three primaries with a replica each; and what happens to one.
No node fails over by itself: tests say when. It needs no pytest."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from berth.local.ports import free_port
from tests.support.servers.redisserver import RedisServer, RedisServerError

SECONDS = 90.0
KEY = "{berth}:documents"
_PRIMARIES, _SLOTS = 3, 16384
_TIMEOUT_MS = 60_000  # so long that no node is thought dead for want of time


@dataclass
class Node(RedisServer):
    """One server of the Cluster; `bus` is the port on which the nodes talk."""

    bus: int = 0

    @property
    def id(self) -> str:
        return self.command("CLUSTER", "MYID").decode()

    def state(self) -> dict[str, str]:
        lines = self.command("CLUSTER", "INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def owns_the_ledger(self) -> bool:
        """Whether it is the primary of our keys, and says so to a client."""
        try:
            self.command("EXISTS", KEY)
        except (OSError, RedisServerError):
            return False
        return True

    def _settings(self) -> list[str]:
        if not self._log.exists():
            self.bus = free_port()
        secure = ["tls-cluster yes"] if self.tls else []
        return [
            *super()._settings(),
            "cluster-enabled yes",
            f"cluster-port {self.bus}",
            f"cluster-node-timeout {_TIMEOUT_MS}",
            "cluster-replica-no-failover yes",
            *secure,
        ]


class RedisCluster:
    """`acl` and `tls` are those of RedisServer; the default user must be let in."""

    def __init__(self, folder: Path, acl: Sequence[str] = (), tls: tuple[Path, Path] | None = None) -> None:
        self.nodes = [
            Node(folder / f"node-{number}", acl=acl, tls=tls, settings=("loglevel notice",))
            for number in range(2 * _PRIMARIES)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        """As in BERTH_STORE, replicas first: whoever asks there is sent on."""
        return ",".join(f"127.0.0.1:{node.port}" for node in reversed(self.nodes))

    @property
    def url(self) -> str:
        return f"{'rediss' if self.nodes[0].tls else 'redis'}://{self.hosts}"

    @property
    def owner(self) -> Node:
        """The primary that has the ledger."""
        return next(node for node in self.nodes if node.owns_the_ledger())

    @property
    def follower(self) -> Node:
        """The replica of that one."""
        port = str(self.owner.port)
        return next(node for node in self.nodes if node.info("replication").get("master_port") == port)

    @property
    def bystander(self) -> Node:
        """A primary that has no part of the ledger."""
        owner = self.owner
        return next(
            node for node in self.nodes if node is not owner and node.info("replication")["role"] == "master"
        )

    def start(self) -> None:
        """Returns when every node knows all, and every slot is served."""
        try:
            for node in self.nodes:
                node.start()
            self._introduce()
            primaries, replicas = self.nodes[:_PRIMARIES], self.nodes[_PRIMARIES:]
            for primary, replica in zip(primaries, replicas, strict=True):
                replica.command("CLUSTER", "REPLICATE", primary.id)
            self.wait("the Cluster did not come up", self._whole)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def flush(self) -> None:
        """Empties all primaries; replicas follow."""
        for node in self.nodes:
            with contextlib.suppress(RedisServerError):
                node.flush()

    def take_over(self, follower: Node) -> None:
        """Returns when every node that runs sends clients to this one, until now a replica."""
        follower.command("CLUSTER", "FAILOVER", "TAKEOVER")
        self.wait("no node took over", lambda: self._all_send_to(follower))

    def recover(self, node: Node) -> None:
        """Start it again; it becomes a replica of whoever took over."""
        node.start()
        self.wait("the node did not come back", self._whole)

    def moving(self, to: Node) -> Iterator[None]:
        """Moves the ledger's slot to this primary, a key at each step, and only at the end says so to all."""
        owner, slot = self.owner, self.owner.command("CLUSTER", "KEYSLOT", KEY).decode()
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", owner.id)
        owner.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        yield
        while keys := owner.parts("CLUSTER", "GETKEYSINSLOT", slot, "1"):
            owner.command("MIGRATE", "127.0.0.1", str(to.port), keys[0], "0", "5000")
            yield
        for node in (to, owner, *self.nodes):
            with contextlib.suppress(RedisServerError):  # a replica takes it from its primary
                node.command("CLUSTER", "SETSLOT", slot, "NODE", to.id)
        self.wait("the slot did not move", lambda: self._all_send_to(to))

    def wait(self, otherwise: str, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not _so(until):
            if time.monotonic() > deadline:
                logs = "\n".join(node.tail(10) for node in self.nodes)
                raise RedisServerError(f"{otherwise} within {SECONDS:.0f} s; the ends of their logs:\n{logs}")
            threading.Event().wait(0.1)

    def _introduce(self) -> None:
        first, size = self.nodes[0], -(-_SLOTS // _PRIMARIES)
        for number, node in enumerate(self.nodes):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
            if number < _PRIMARIES:
                last = min(_SLOTS, (number + 1) * size) - 1
                node.command("CLUSTER", "ADDSLOTSRANGE", str(number * size), str(last))
        for node in self.nodes[1:]:
            first.command("CLUSTER", "MEET", "127.0.0.1", str(node.port), str(node.bus))
        self.wait(
            "the nodes did not meet",
            lambda: all(_met(node, len(self.nodes)) for node in self.nodes),
        )

    def _running(self) -> list[Node]:
        return [node for node in self.nodes if node.running]

    def _whole(self) -> bool:
        infos = [node.info("replication") for node in self.nodes]
        replicas = [info for info in infos if info["role"] == "slave"]
        return (
            len(replicas) == len(self.nodes) - _PRIMARIES
            and all(info["master_link_status"] == "up" for info in replicas)
            and all(_served(node) for node in self.nodes)
        )

    def _all_send_to(self, owner: Node) -> bool:
        others = [node for node in self._running() if node is not owner]
        return owner.owns_the_ledger() and all(_sends_to(node, owner) for node in others)


def _met(node: Node, count: int) -> bool:
    lines = node.command("CLUSTER", "NODES").decode().splitlines()
    return len(lines) == count and not any("handshake" in line or "noaddr" in line for line in lines)


def _served(node: Node) -> bool:
    state = node.state()
    return (state["cluster_state"], state["cluster_slots_ok"]) == ("ok", str(_SLOTS))


def _sends_to(node: Node, owner: Node) -> bool:
    try:
        node.command("EXISTS", KEY)
    except RedisServerError as error:
        return str(error).startswith("-MOVED") and str(error).endswith(f":{owner.port}")
    return False


def _so(until: Callable[[], bool]) -> bool:
    with contextlib.suppress(OSError, RedisServerError):
        return until()
    return False
