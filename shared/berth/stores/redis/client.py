"""The connections to whoever has the ledger, and the scripts that run there.
A script whose answer did not come may have run: only what changes nothing is sent a second time."""

import hashlib
import time
from typing import Any

import redis
from redis import exceptions as theirs

from berth.stores.redis.connection import Connection, Line
from berth.stores.redis.errors import explained, too_few
from berth.stores.redis.topology import Route
from berth.stores.redis.url import Address, Location

_TRIES = 6  # in one call: while a Cluster elects, its nodes may name each other
_WAIT_MS = 500  # for replicas; a connection waits a second for any answer


class Script:
    """One Lua script, which a server knows by its hash once it has run it. With `reads_only` it is run by a
    command that lets it write nothing, and that needs no right to write."""

    def __init__(self, text: str, *, reads_only: bool = False) -> None:
        self.text, self.reads_only = text, reads_only
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Link:
    """Safe to use from many threads: each call has a connection to itself, taken from those that are idle."""

    def __init__(self, location: Location, seconds: float) -> None:
        self._location, self._seconds = location, seconds
        self._route = Route(location, seconds)
        self._idle: list[Line] = []
        self._suffix = "_RO"  # of commands that let a script only read; none where the user lacks that right
        self._closed = False

    def run(self, script: Script, arguments: list[Any], *, again: bool, replicas: int = 0) -> list[Any]:
        """The script's answer. With `again`, a second try where an idle connection proves dead in use; with
        `replicas`, once so many have what it wrote, if its answer ends with 1.

        Raises StoreUnavailableError and StoreFailedError.
        """
        give_up_at = time.monotonic() + self._seconds
        told, turned = None, False
        self._route.check()
        for _ in range(_TRIES):
            idle = self._take_idle(told)
            line = idle or self._route.opened(give_up_at, told)
            try:
                return self._run_on(line, script, arguments, replicas)
            except redis.RedisError as error:
                failed, told = error, None
            if isinstance(failed, theirs.MovedError):
                told = self._route.moved(line.at, failed)
            elif isinstance(failed, theirs.ReadOnlyError) and not turned:
                turned = True  # nothing was done, and its name or a Sentinel may lead elsewhere now
            elif isinstance(failed, redis.ConnectionError) and idle and again:
                again = False
            else:
                break
        raise explained(failed, self._location.at(line.at), self._seconds) from failed

    def close(self) -> None:
        self._closed = True
        self._drop_idle()

    def _run_on(self, line: Line, script: Script, arguments: list[Any], replicas: int) -> list[Any]:
        try:
            answer = self._answer(line.connection, script, arguments)
            if replicas and answer[-1]:
                self._await(line, replicas)
        except (theirs.MovedError, theirs.ReadOnlyError, theirs.ClusterDownError, redis.TimeoutError):
            # Whoever is asked next must not be this one, at a failed call for each connection that is kept.
            line.connection.disconnect()
            self._route.lost(line.at)
            self._drop_idle()
            raise
        except theirs.ResponseError:
            self._give_back(line)
            raise
        except BaseException:
            line.connection.disconnect()
            raise
        self._give_back(line)
        return answer

    def _answer(self, connection: Connection, script: Script, arguments: list[Any]) -> list[Any]:
        """By the command that lets a script only read, if it does and the user may: one that was made before
        there were such scripts may run them as all others."""
        suffix = self._suffix if script.reads_only else ""
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

    def _await(self, line: Line, replicas: int) -> None:
        line.connection.send_command("WAIT", replicas, _WAIT_MS)
        found = line.connection.read_response()
        if found < replicas:
            raise too_few(found, replicas, self._location.at(line.at))

    def _take_idle(self, told: Address | None = None) -> Line | None:
        """One that the server has not closed meanwhile: then nothing was sent yet, and a new one will do."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                return None
            try:
                if line.at == (told or self._route.at) and not line.connection.can_read(0):
                    return line
            except redis.RedisError:
                pass
            line.connection.disconnect()

    def _drop_idle(self) -> None:
        while (line := self._take_idle()) is not None:
            line.connection.disconnect()

    def _give_back(self, line: Line) -> None:
        self._idle.append(line)
        if self._closed:
            self.close()


def _evaluated(connection: Connection, script: Script, arguments: list[Any], suffix: str = "") -> list[Any]:
    try:
        connection.send_command(f"EVALSHA{suffix}", script.sha, *arguments)
        answer: list[Any] = connection.read_response()
    except theirs.NoScriptError:
        connection.send_command(f"EVAL{suffix}", script.text, *arguments)
        answer = connection.read_response()
    return answer
