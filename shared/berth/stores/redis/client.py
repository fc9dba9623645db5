"""The connections to the server that has the ledger, and the scripts that run there.
A script whose answer did not come may have run: only a script that changes nothing is sent a second time."""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import redis
from redis import exceptions as theirs

from berth.stores.redis.connection import Connection, NodeConnection, packed
from berth.stores.redis.errors import store_error, too_few
from berth.stores.redis.topology import Topology
from berth.stores.redis.url import Address, RedisUrl

_TRIES = 6  # in one call: while a Cluster elects, its nodes may name each other
_WAIT_MS = 500  # for replicas; a connection waits a second for any answer


class Script:
    """One Lua script, which a server knows by its hash once it has run it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Client:
    """Safe to use from many threads: each call has a connection to itself, taken from those that are idle.

    With `reads_only` scripts are run by a command that lets them write nothing, and needs no right to write.
    """

    def __init__(self, url: RedisUrl, seconds: float, *, reads_only: bool) -> None:
        self._url, self._seconds = url, seconds
        self._topology = Topology(url, seconds)
        self._idle: list[NodeConnection] = []
        self._suffix = "_RO" if reads_only else ""  # of the commands; none where the user lacks that right
        self._closed = False

    def run(self, script: Script, arguments: list[Any], *, again: bool, replicas: int = 0) -> list[Any]:
        """Return the script's answer. With `again` it is tried twice where an idle connection proves dead in
        use. With `replicas`, return once so many have what it wrote, if its answer ends with 1.

        Raises StoreUnavailableError and StoreFailedError.
        """
        # Not berth.retry: another try goes to another server, at once, and the error says to which.
        give_up_at = time.monotonic() + self._seconds
        redirect, turned = None, False
        self._topology.check()
        for _ in range(_TRIES):
            idle = self._take_idle(redirect)
            node = idle or self._topology.connect(give_up_at, redirect)
            try:
                return self._run_on(node, script, arguments, replicas)
            except redis.RedisError as error:
                failed, redirect = error, None
            if isinstance(failed, theirs.MovedError):
                redirect = self._topology.moved(node.address, failed)
            elif isinstance(failed, theirs.ReadOnlyError) and not turned:
                turned = True  # nothing was done, and its name or a Sentinel may lead elsewhere now
            elif isinstance(failed, redis.ConnectionError) and idle and again:
                again = False
            else:
                break
        raise store_error(failed, self._url.at(node.address), self._seconds) from failed

    def command(self, script: Script, arguments: list[Any]) -> bytes:
        """Return what `run_at_once` is to send for the script."""
        return packed(f"EVALSHA{self._suffix}", script.sha, *arguments)

    def run_at_once(self, command: bytes, seconds: float) -> list[Any] | None:
        """Return a script's answer, if each piece of it comes within so many seconds on an idle connection,
        which are rounded up to milliseconds. Else None: what is wrong, if anything is, `run` meets and tells.
        """
        if self._topology.is_check_due():
            return None
        try:
            node = self._idle.pop()
        except IndexError:
            return None
        try:
            if node.address == self._topology.primary:
                node.connection.send_packed_command([command])  # it has room for that, since it is idle
                answer: list[Any] = node.connection.read_response(timeout=seconds)
                self._give_back(node)
                return answer
        except redis.RedisError:
            pass  # also where it came too late: it must not be taken for the answer to what is sent next
        node.connection.disconnect()
        return None

    def ask(self, *commands: Sequence[str]) -> list[Any]:
        """Return the primary's answer to each command, None to one that it refuses. Raises as `run`."""
        node = self._topology.connect(time.monotonic() + self._seconds)
        try:
            return [_answered(node.connection, command) for command in commands]
        except redis.RedisError as error:
            raise store_error(error, self._url.at(node.address), self._seconds) from error
        finally:
            node.connection.disconnect()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _run_on(self, node: NodeConnection, script: Script, arguments: list[Any], replicas: int) -> list[Any]:
        try:
            answer = self._answer(node.connection, script, arguments)
            if replicas and answer[-1]:
                self._await(node, replicas)
        except (theirs.MovedError, theirs.ReadOnlyError, theirs.ClusterDownError, redis.TimeoutError):
            # The next call must go to another server, and not fail once for each idle connection to this one.
            node.connection.disconnect()
            self._topology.lost(node.address)
            self._drop_idle()
            raise
        except theirs.ResponseError:
            self._give_back(node)
            raise
        except BaseException:
            node.connection.disconnect()
            raise
        self._give_back(node)
        return answer

    def _answer(self, connection: Connection, script: Script, arguments: list[Any]) -> list[Any]:
        """Return the script's answer. A user that was made before Berth used the command that only reads
        lacks the right to it, and runs scripts like all others."""
        suffix = self._suffix
        try:
            return _evaluated(connection, script, arguments, suffix)
        except theirs.NoPermissionError as refused:
            if not suffix:
                raise
            try:
                answer = _evaluated(connection, script, arguments)
            except theirs.NoPermissionError:
                raise refused from None
        self._suffix = ""
        return answer

    def _await(self, node: NodeConnection, replicas: int) -> None:
        node.connection.send_command("WAIT", replicas, _WAIT_MS)
        written = node.connection.read_response()
        if written < replicas:
            raise too_few(written, replicas, self._url.at(node.address))

    def _take_idle(self, redirect: Address | None = None) -> NodeConnection | None:
        """Return an idle connection that the server has not closed meanwhile; None if there is none."""
        while True:
            try:
                node = self._idle.pop()
            except IndexError:
                return None
            try:
                if node.address == (redirect or self._topology.primary) and not node.connection.can_read(0):
                    return node
            except redis.RedisError:
                pass
            node.connection.disconnect()

    def _drop_idle(self) -> None:
        while (node := self._take_idle()) is not None:
            node.connection.disconnect()

    def _give_back(self, node: NodeConnection) -> None:
        self._idle.append(node)
        if self._closed:
            self.close()


def _answered(connection: Connection, command: Sequence[str]) -> Any:
    try:
        connection.send_command(*command)
        return connection.read_response()
    except theirs.ResponseError:
        return None


def _evaluated(connection: Connection, script: Script, arguments: list[Any], suffix: str = "") -> list[Any]:
    try:
        connection.send_command(f"EVALSHA{suffix}", script.sha, *arguments)
        answer: list[Any] = connection.read_response()
    except theirs.NoScriptError:
        connection.send_command(f"EVAL{suffix}", script.text, *arguments)
        answer = connection.read_response()
    return answer
