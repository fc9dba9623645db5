"""Which server has the ledger: the one host, the Cluster's node that owns its keys, or the primary that the
Sentinels name. It can't promise that this is still so a moment later; the server's own answer tells."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import redis
from redis import exceptions as theirs

from berth.errors import BerthError
from berth.stores.redis.connection import Connection, NodeConnection, ask, connect
from berth.stores.redis.errors import alone, store_error, unnamed, unsentinelled
from berth.stores.redis.url import Address, RedisUrl

_LEAST_SECONDS = 0.1  # to connect, however late it is
_CHECK_SECONDS, _UNCHECKED_SECONDS = 1.0, 10.0  # between two questions to Sentinels that answer, or do not


class Topology:
    """`primary` is the server to ask, as far as is known. Safe to use from many threads, which share it."""

    def __init__(self, url: RedisUrl, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._hosts = deque(url.hosts)
        self._nodes: set[Address] = set()  # of a Cluster, for certain
        self._only = len(url.hosts) == 1 and url.sentinel is None
        self.primary: Address | None = None
        self._check_at = 0.0
        self._login = True  # whether the Sentinels want it

    def check(self) -> None:
        """Ask the Sentinels from time to time whether `primary` still is it: one that was replaced while it
        runs may take writes for ten seconds more. While no Sentinel answers, it is used further."""
        if not self.is_check_due():
            return
        now = time.monotonic()
        self._check_at = now + _CHECK_SECONDS  # other threads go on meanwhile
        try:
            self.primary = self._ask_sentinels(now + self._seconds)
        except BerthError:
            self._check_at = now + _UNCHECKED_SECONDS

    def is_check_due(self) -> bool:
        """Whether `check` would ask the Sentinels now."""
        if self._url.sentinel is None or self.primary is None:
            return False
        return time.monotonic() >= self._check_at

    def connect(self, give_up_at: float, redirect: Address | None = None) -> NodeConnection:
        """Return a new connection: to `redirect` if that is given, else to the first server that answers.
        Raises store errors."""
        # Not berth.retry: every try is for another server, and comes at once.
        failed: redis.RedisError | None = None
        tried: list[Address] = []
        for address in self._candidates(give_up_at, redirect):
            if tried and (address in tried or time.monotonic() > give_up_at):
                continue
            tried.append(address)
            try:
                node = NodeConnection(address, self._connected(address, give_up_at))
            except redis.RedisError as error:
                away = isinstance(error, redis.ConnectionError | redis.TimeoutError)
                if not away or isinstance(error, theirs.AuthenticationError):
                    raise store_error(error, self._url.at(address), self._seconds) from error
                failed = error
                self.lost(address)
            else:
                self.primary = address
                return node
        assert failed is not None
        hosts = set(self._url.hosts)
        where = self._url if hosts <= {*tried} else self._url.at(tried[-1])
        raise store_error(failed, where, self._seconds) from failed

    def moved(self, by: Address, error: theirs.MovedError) -> Address:
        """Return where the keys are, according to a node of the Cluster; it may leave out its own host."""
        node = Address(by.host if error.host in ("", "?") else error.host, error.port)
        self._nodes.add(node)
        return node

    def lost(self, address: Address) -> None:
        """Ask this server no more, and the next host first."""
        if self.primary == address:
            self.primary = None
        self._hosts.rotate(-1)

    def _candidates(self, give_up_at: float, redirect: Address | None) -> Iterator[Address]:
        if redirect is not None:
            yield redirect
            return
        if (known := self.primary) is not None:
            yield known
        if self._url.sentinel is None:
            yield from list(self._hosts)
        else:
            yield self._ask_sentinels(give_up_at)

    def _connected(self, address: Address, give_up_at: float) -> Connection:
        connection = connect(self._url.at(address), self._in_time(give_up_at), self._seconds)
        if self._only or self._url.sentinel is not None or address in self._nodes:
            return connection
        if b"cluster_enabled:1" not in ask(connection, "INFO", "cluster"):
            connection.disconnect()
            raise alone(self._url.at(address))
        self._nodes.add(address)
        return connection

    def _ask_sentinels(self, give_up_at: float) -> Address:
        """Return the primary according to the first Sentinel that answers and knows it."""
        failed: redis.RedisError | None = None
        for host in list(self._hosts):
            if failed is not None and time.monotonic() > give_up_at:
                break
            try:
                primary = self._ask_sentinel(host, give_up_at)
            except (theirs.AuthenticationError, theirs.ResponseError) as error:
                raise unsentinelled(error, self._url.at(host)) from error
            except redis.RedisError as error:
                failed = error
                self._hosts.rotate(-1)
                continue
            if primary is not None:
                return primary
        if failed is None:
            raise unnamed(self._url)
        raise unsentinelled(failed, self._url) from failed

    def _ask_sentinel(self, host: Address, give_up_at: float) -> Address | None:
        """Return the primary according to this Sentinel, with our login or without one."""
        seconds, sentinel = self._in_time(give_up_at), self._url.at(host)
        try:
            if self._login:
                return self._primary_at(sentinel, seconds)
        except theirs.AuthenticationError:
            # Often Sentinels ask for no login where the servers do.
            self._login = False
        try:
            return self._primary_at(replace(sentinel, user=None, password=None), seconds)
        except theirs.AuthenticationError:
            self._login = True
            raise

    def _primary_at(self, sentinel: RedisUrl, seconds: float) -> Address | None:
        connection = connect(replace(sentinel, database=0), seconds, seconds)
        answer = ask(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.sentinel or "")
        connection.disconnect()
        return Address(answer[0].decode(), int(answer[1])) if answer else None

    def _in_time(self, give_up_at: float) -> float:
        """Return the seconds for one of several servers, so that the others are asked as well."""
        share = self._seconds if self._only else self._seconds / 3
        return max(_LEAST_SECONDS, min(share, give_up_at - time.monotonic()))
