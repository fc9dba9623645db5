"""Which server has the ledger: the one host, the Cluster's node that owns its keys, or the primary that the
Sentinels name. It can't promise that this is still so a moment later; the server's own answer tells."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import redis
from redis import exceptions as theirs

from berth.errors import BerthError
from berth.stores.redis.connection import Connection, Line, asked, connected
from berth.stores.redis.errors import alone, explained, unnamed, unsentinelled
from berth.stores.redis.url import Address, Location

_LEAST_SECONDS = 0.1  # to connect, however late it is
_CHECK_SECONDS, _UNCHECKED_SECONDS = 1.0, 10.0  # between two questions to Sentinels that answer, or do not


class Route:
    """`at` is whom to ask, as far as is known. Safe to use from many threads: what one learns, all follow."""

    def __init__(self, location: Location, seconds: float) -> None:
        self._location, self._seconds = location, seconds
        self._hosts = deque(location.hosts)
        self._nodes: set[Address] = set()  # of a Cluster, for certain
        self._only = len(location.hosts) == 1 and location.sentinel is None
        self.at: Address | None = None
        self._check_at = 0.0
        self._login = True  # whether the Sentinels want it

    def check(self) -> None:
        """Ask the Sentinels from time to time whether `at` is still the primary: one that was replaced while
        it lives may take writes for ten seconds more. While none answers, it is used on."""
        now = time.monotonic()
        if self._location.sentinel is None or self.at is None or now < self._check_at:
            return
        self._check_at = now + _CHECK_SECONDS  # others go on meanwhile
        try:
            self.at = self._primary(now + self._seconds)
        except BerthError:
            self._check_at = now + _UNCHECKED_SECONDS

    def opened(self, give_up_at: float, told: Address | None = None) -> Line:
        """A new connection: to `told` if that is given, else to whoever answers. Raises Berth's errors."""
        failed: redis.RedisError | None = None
        tried: list[Address] = []
        for at in self._candidates(give_up_at, told):
            if tried and (at in tried or time.monotonic() > give_up_at):
                continue
            tried.append(at)
            try:
                line = Line(at, self._connected(at, give_up_at))
            except theirs.AuthenticationError as error:
                raise explained(error, self._location.at(at), self._seconds) from error
            except (redis.ConnectionError, redis.TimeoutError) as error:
                failed = error
                self.lost(at)
            except redis.RedisError as error:
                raise explained(error, self._location.at(at), self._seconds) from error
            else:
                self.at = at
                return line
        assert failed is not None
        hosts = set(self._location.hosts)
        where = self._location if hosts <= {*tried} else self._location.at(tried[-1])
        raise explained(failed, where, self._seconds) from failed

    def moved(self, by: Address, error: theirs.MovedError) -> Address:
        """Where the Cluster's node says that the keys are; a node may leave out its host if it is its own."""
        found = Address(by.host if error.host in ("", "?") else error.host, error.port)
        self._nodes.add(found)
        return found

    def lost(self, at: Address) -> None:
        """That one is not to be asked any more, and the next host is the first to be asked instead."""
        if self.at == at:
            self.at = None
        self._hosts.rotate(-1)

    def _candidates(self, give_up_at: float, told: Address | None) -> Iterator[Address]:
        if told is not None:
            yield told
            return
        if (known := self.at) is not None:
            yield known
        if self._location.sentinel is None:
            yield from list(self._hosts)
        else:
            yield self._primary(give_up_at)

    def _connected(self, at: Address, give_up_at: float) -> Connection:
        connection = connected(self._location.at(at), self._in_time(give_up_at), self._seconds)
        if self._only or self._location.sentinel is not None or at in self._nodes:
            return connection
        if b"cluster_enabled:1" not in asked(connection, "INFO", "cluster"):
            connection.disconnect()
            raise alone(self._location.at(at))
        self._nodes.add(at)
        return connection

    def _primary(self, give_up_at: float) -> Address:
        """What the first Sentinel says that answers and knows it."""
        failed: redis.RedisError | None = None
        for host in list(self._hosts):
            if failed is not None and time.monotonic() > give_up_at:
                break
            try:
                found = self._ask(host, give_up_at)
            except (theirs.AuthenticationError, theirs.ResponseError) as error:
                raise unsentinelled(error, self._location.at(host)) from error
            except redis.RedisError as error:
                failed = error
                self._hosts.rotate(-1)
                continue
            if found is not None:
                return found
        if failed is None:
            raise unnamed(self._location)
        raise unsentinelled(failed, self._location) from failed

    def _ask(self, sentinel: Address, give_up_at: float) -> Address | None:
        seconds, to = self._in_time(give_up_at), self._location.at(sentinel)
        try:
            if self._login:
                return self._told(to, seconds)
        except theirs.AuthenticationError:
            # Often Sentinels ask for no login where the servers do.
            self._login = False
        try:
            return self._told(replace(to, user=None, password=None), seconds)
        except theirs.AuthenticationError:
            self._login = True
            raise

    def _told(self, sentinel: Location, seconds: float) -> Address | None:
        connection = connected(replace(sentinel, database=0), seconds, seconds)
        found = asked(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._location.sentinel or "")
        connection.disconnect()
        return Address(found[0].decode(), int(found[1])) if found else None

    def _in_time(self, give_up_at: float) -> float:
        """For one of several, so that the others are asked as well."""
        share = self._seconds if self._only else self._seconds / 3
        return max(_LEAST_SECONDS, min(share, give_up_at - time.monotonic()))
