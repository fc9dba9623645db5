"""release as it can go wrong; each fault is a file in the folder FAULTS, looked for on every call.
Without such a file it is Berth's own release.

deaf: events are taken and forgotten. late: a deletion is told so many seconds later as it says.
mute: nobody is woken. dies, dies-once: killed between commit and wake;
these three wait for the file `go`. It makes a file `through-with-last-…` when it is through with the deletion
of a pod of that name, and nobody is to be woken later either.
"""

import os
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

from berth.controller.alarm import alarm_of
from berth.controller.requeue import wake
from berth.handlers import release as verb
from berth.http.endpoint import Endpoint, Reply
from berth.http.function import serve
from berth.metrics import Metrics
from berth.settings import Settings
from tests.e2e.faults.timers import Timers

FAULTS = Path(os.environ["FAULTS"])
HELD = ("mute", "dies", "dies-once")


def faulty_wake(*arguments: Any, **named: Any) -> int:
    if (FAULTS / "dies-once").exists():
        (FAULTS / "dies-once").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (FAULTS / "dies").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return 0 if (FAULTS / "mute").exists() else wake(*arguments, **named)


timers = Timers()
mock.patch.object(verb, "wake", faulty_wake).start()
mock.patch.object(verb, "alarm_of", partial(alarm_of, start=timers)).start()


def endpoint(settings: Settings, *, metrics: Metrics) -> Endpoint:
    real = verb.endpoint(settings, metrics=metrics)

    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        try:
            return faulty(real, headers, body)
        finally:
            name = headers.get("ce-name", "")
            if name.startswith("last-") and headers["ce-type"].endswith(".delete"):
                timers.wait_ended()
                (FAULTS / f"through-with-{name}").touch()

    return replace(real, answer=answer)


def faulty(real: Endpoint, headers: Mapping[str, str], body: bytes) -> Reply:
    if (FAULTS / "deaf").exists():
        return Reply(204, b"")
    if (FAULTS / "late").exists() and headers.get("ce-type", "").endswith(".delete"):
        time.sleep(float((FAULTS / "late").read_text()))
    while any((FAULTS / fault).exists() for fault in HELD) and not (FAULTS / "go").exists():
        # As with any event (docs/kubernetes.md#requeue) kube-scheduler is to look in vain first: its own
        # look might find the unit that is free already, and nobody would miss the wake.
        time.sleep(0.01)
    return real.answer(headers, body)


release = serve(endpoint)
