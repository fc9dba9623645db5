"""The naive counter as a function: kube-scheduler's calls by their paths, CloudEvents at any other.
Run it: functions-framework --source main.py --target extender"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import functions_framework
import msgspec

from berth.demo.naive.counter import Counter
from berth.http.endpoint import Endpoint, Reply, Router, error_reply
from berth.http.function import serve
from berth.metrics import Metrics
from berth.settings import Settings


def router(settings: Settings, *, metrics: Metrics) -> Router:  # noqa: ARG001 - it counts otherwise
    counter = Counter(
        Path(os.environ["NAIVE_COUNTS"]), int(os.environ["NAIVE_CAPACITY"]), os.environ["NAIVE_API"]
    )

    def answer(path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        said = counter.answer(path, headers.get("ce-type", ""), msgspec.json.decode(body or b"{}"))
        return Reply(200, msgspec.json.encode(said))

    def endpoint(path: str) -> Endpoint:
        return Endpoint(
            name=f"naive/{path}",
            answer=partial(answer, path),
            failed=lambda message, _: error_reply(500, message),
            health=lambda: None,
            body_limit=settings.body_limit,
        )

    calls = {path: endpoint(path) for path in ("filter", "prioritize", "bind")}
    return Router(name="naive", endpoints=calls, health=lambda: None, default=endpoint("events"))


extender = functions_framework.http(serve(router))
