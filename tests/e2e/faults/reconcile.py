"""reconcile that lets the clock's ticks pass while the file FAULTS/no-tick is there; a test calls it itself.
Otherwise it is Berth's own: a tick in the middle of a test would mend what the test wants to see. A call with
the header WAIT returns once nobody is to be woken later, and does nothing else.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from unittest import mock

from msgspec.structs import replace

from berth.controller.alarm import alarm_of
from berth.handlers import reconcile as verb
from berth.http.endpoint import Endpoint, Reply
from berth.http.function import serve
from berth.metrics import Metrics
from berth.settings import Settings
from tests.e2e.faults.timers import WAIT, Timers

NO_TICK = Path(os.environ["FAULTS"]) / "no-tick"
timers = Timers()
mock.patch.object(verb, "alarm_of", partial(alarm_of, start=timers)).start()


def endpoint(settings: Settings, *, metrics: Metrics) -> Endpoint:
    real = verb.endpoint(settings, metrics=metrics)

    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        if WAIT in headers:
            timers.wait_ended()
            return Reply(200, b"{}")
        if NO_TICK.exists() and headers.get("user-agent") == "berth-up":
            return Reply(200, b"{}")
        return real.answer(headers, body)

    return replace(real, answer=answer)


reconcile = serve(endpoint)
