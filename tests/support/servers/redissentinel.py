"""A Redis primary and its replica, watched by Sentinels, on loopback; and a fail-over that loses writes.
It needs no pytest. Whether what the clients then see is right is the tests' to say."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from tests.support.servers.redisserver import RedisServer, RedisServerError

NAME = "berth"
SECONDS = 90.0  # until a fail-over is through: Sentinels that were starved of time trust nobody for 30
# So long that none is thought dead for want of time: they connect anew once a second. `elect` asks for a
# fail-over instead of waiting.
_DOWN_AFTER_MS, _FAILOVER_MS = 10_000, 10_000


@dataclass
class Sentinel(RedisServer):
    """One Sentinel; `watches` is the primary as it is told when it starts for the first time."""

    watches: RedisServer | None = None
    quorum: int = 2
    mode: ClassVar[Sequence[str]] = ("--sentinel",)

    def primary_port(self) -> int:
        """Where it says that the primary is."""
        return int(self.parts("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def state(self) -> dict[str, str]:
        """What it knows of the primary."""
        return _fields(self.parts("SENTINEL", "MASTER", NAME))

    def replicas(self) -> dict[int, dict[str, str]]:
        """What it knows of each replica, by port."""
        found = [_fields(each) for each in self.parts("SENTINEL", "REPLICAS", NAME)]
        return {int(each["port"]): each for each in found}

    def _settings(self) -> list[str]:
        assert self.watches is not None
        return [
            "bind 127.0.0.1",
            f"port {self.port}",
            "daemonize no",
            f'dir "{self.folder}"',
            f"sentinel monitor {NAME} 127.0.0.1 {self.watches.port} {self.quorum}",
            f"sentinel down-after-milliseconds {NAME} {_DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} {_FAILOVER_MS}",
            *([f'aclfile "{self._users()}"'] if self.acl else []),
            *self.settings,
        ]


class RedisSentinels:
    """One primary and one replica to begin with. `primary` is the one that was elected last."""

    def __init__(self, folder: Path, sentinels: int = 3) -> None:
        self._servers = [RedisServer(folder / f"redis-{number}") for number in range(2)]
        self.primary = self._servers[0]
        self.sentinels = [
            Sentinel(folder / f"sentinel-{number}", watches=self.primary) for number in range(sentinels)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """What BERTH_STORE is; known once they have started."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis://{hosts}/0?sentinel={NAME}"

    @property
    def replica(self) -> RedisServer:
        return next(each for each in self._servers if each is not self.primary)

    def start(self) -> None:
        """Returns when every Sentinel knows the others and the replica."""
        try:
            for each in self._servers:
                each.start()
            self.replica.replica_of(self.primary)
            for sentinel in self.sentinels:
                sentinel.start()
            self.wait("the Sentinels did not find each other and the replica", self._agreed)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for each in (*self.sentinels, *self._servers):
            each.stop()

    def flush(self) -> None:
        self.primary.flush()

    def fail_over(self, losing: int = 1) -> None:
        """Kill the primary when it has answered for so many of berth's writes that the replica lacks; returns
        when the replica was elected. Somebody must be writing all the while, unless `losing` is 0."""
        before = self.primary.commits()
        # A replica that was cut off for ten seconds is not elected.
        self.wait("nobody wrote", lambda: self.primary.commits() >= before + losing)
        self.replica.cut_off(self.primary)
        wanted = self.replica.commits() + losing
        self.wait("nobody wrote", lambda: self.primary.commits() >= wanted)
        self.primary.stop()
        self.elect()

    def elect(self) -> None:
        """Returns when every Sentinel names the replica as the primary, and it is one."""
        following = self.replica

        def elected() -> bool:
            if self.sentinels[0].primary_port() != following.port:
                with contextlib.suppress(RedisServerError):  # under way, or not yet possible
                    self.sentinels[0].command("SENTINEL", "FAILOVER", NAME)
            return following.info("replication")["role"] == "master" and all(
                each.primary_port() == following.port and each.state()["flags"] == "master"
                for each in self.sentinels
            )

        self.wait("no new primary was elected", elected)
        self.primary = following

    def recover(self) -> None:
        """Start the server that was killed, as a replica of what is the primary now."""
        dead = self.replica
        dead.settings = (f"replicaof 127.0.0.1 {self.primary.port}",)
        dead.start()
        dead.catch_up(self.primary)
        self.wait("the Sentinels did not take the replica back", self._agreed)

    def _agreed(self) -> bool:
        return all(self._knows_all(each) for each in self.sentinels)

    def _knows_all(self, sentinel: Sentinel) -> bool:
        state = sentinel.state()
        known = int(state["num-other-sentinels"]) == len(self.sentinels) - 1
        if not known or state["flags"] != "master" or int(state["port"]) != self.primary.port:
            return False
        replica = sentinel.replicas().get(self.replica.port)
        return replica is not None and replica["flags"] == "slave" and replica["master-link-status"] == "ok"

    def wait(self, otherwise: str, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not _so(until):
            if time.monotonic() > deadline:
                logs = "\n".join(each.tail(10) for each in (*self.sentinels, *self._servers))
                raise RedisServerError(f"{otherwise} within {SECONDS:.0f} s; the ends of their logs:\n{logs}")
            threading.Event().wait(0.02)


def _so(until: Callable[[], bool]) -> bool:
    # A server that is promoted closes the connections it has.
    with contextlib.suppress(OSError, RedisServerError):
        return until()
    return False


def _fields(words: Sequence[bytes]) -> dict[str, str]:
    return {words[i].decode(): words[i + 1].decode() for i in range(0, len(words), 2)}
