"""filter and prioritize as plain ASGI, under uvicorn and without a framework: a contender of the bench only.
It asks the ledger in the event loop, ASGI's best case; with BENCH_ASGI_THREADS in a thread."""

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from berth import settings
from berth.handlers import filter as filter_verb
from berth.handlers import prioritize as prioritize_verb
from berth.http.endpoint import Endpoint, Reply, call

_IN_THREADS = bool(os.environ.get("BENCH_ASGI_THREADS"))

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def _application(endpoint: Endpoint) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    async def application(scope: Message, receive: Receive, send: Send) -> None:
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}

        def work() -> Reply:
            return call(endpoint, headers, parts[0] if len(parts) == 1 else b"".join(parts))

        reply = await asyncio.to_thread(work) if _IN_THREADS else work()
        said = {**reply.headers(), "Content-Length": str(len(reply.body))}
        pairs = [(name.lower().encode(), value.encode()) for name, value in said.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": pairs})
        await send({"type": "http.response.body", "body": reply.body})

    return application


filter = _application(filter_verb.endpoint(settings.from_environment()))  # noqa: A001 - the verb's name
prioritize = _application(prioritize_verb.endpoint(settings.from_environment()))
