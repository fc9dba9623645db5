"""filter and prioritize as functions-framework --asgi would serve them: a contender of the bench only.
It blocks the event loop while it asks the ledger, ASGI's best case; with BENCH_ASGI_THREADS a thread does."""

import asyncio
import io
import os
from collections.abc import Awaitable, Callable

from functions_framework import aio
from starlette.requests import Request
from starlette.responses import Response

from berth import settings
from berth.handlers import filter as filter_verb
from berth.handlers import prioritize as prioritize_verb
from berth.http.endpoint import Endpoint, Reply, respond

_IN_THREADS = bool(os.environ.get("BENCH_ASGI_THREADS"))

Target = Callable[[Request], Awaitable[Response]]


def _target(endpoint: Endpoint) -> Target:
    async def answer(request: Request) -> Response:
        body = io.BytesIO(await request.body())

        def work() -> Reply:
            return respond(endpoint, request.method, request.url.path, dict(request.headers), body)

        reply = await asyncio.to_thread(work) if _IN_THREADS else work()
        return Response(reply.body, reply.status, media_type="application/json")

    answer.__name__ = endpoint.name
    aio.http(answer)
    return answer


filter = _target(filter_verb.endpoint(settings.from_environment()))  # noqa: A001 - the target's name
prioritize = _target(prioritize_verb.endpoint(settings.from_environment()))
