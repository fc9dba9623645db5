"""A port that leads to one process after the other, as a Service of Kubernetes leads to pods: new connections
go to the new one, and those that are there stay where they are."""

import asyncio
import threading
from contextlib import suppress

_SECONDS = 30.0


class Service:
    """`url` is its own; it leads nowhere until `lead_to` is called."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_SECONDS)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lead_to(self, port: int) -> None:
        """Where new connections go from now on."""
        self._port = port

    def stop(self) -> None:
        """Break off all that is under way."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._taken, "127.0.0.1", 0)

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(_pumped(reader, ours), _pumped(theirs, writer))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, and its end."""
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
        await writer.wait_closed()
