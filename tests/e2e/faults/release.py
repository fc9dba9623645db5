"""release as it can go wrong; each fault is a file in the folder FAULTS, looked for on every call.
Without such a file it is Berth's own release.

deaf: events are taken and forgotten. late: a deletion is told so many seconds later as it says.
mute: nobody is woken. dies, dies-once: killed between commit and wake;
these three wait for the file `go`. It writes into `seen` which event it was through with last.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any
from unittest import mock

import functions_framework
from flask import Request

from berth.controller.requeue import wake
from berth.handlers import release as verb
from berth.http.function import Response, serve

FAULTS = Path(os.environ["FAULTS"])
HELD = ("mute", "dies", "dies-once")


def faulty_wake(*arguments: Any, **named: Any) -> int:
    if (FAULTS / "dies-once").exists():
        (FAULTS / "dies-once").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (FAULTS / "dies").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return 0 if (FAULTS / "mute").exists() else wake(*arguments, **named)


mock.patch.object(verb, "wake", faulty_wake).start()
answer = serve(verb.endpoint)


@functions_framework.http
def release(request: Request) -> Response:
    try:
        return faulty(request)
    finally:
        # Looks at its health come in between, and are no events.
        if name := request.headers.get("Ce-Name"):
            change = request.headers["Ce-Type"].rpartition(".")[2]
            (FAULTS / "seen").write_text(f"{change} {name}")


def faulty(request: Request) -> Response:
    if (FAULTS / "deaf").exists():
        return b"", 204, {}
    if (FAULTS / "late").exists() and request.headers.get("Ce-Type", "").endswith(".delete"):
        time.sleep(float((FAULTS / "late").read_text()))
    while any((FAULTS / fault).exists() for fault in HELD) and not (FAULTS / "go").exists():
        # As with any event (docs/kubernetes.md#requeue) kube-scheduler is to look in vain first: its own
        # look might find the unit that is free already, and nobody would miss the wake.
        time.sleep(0.01)
    return answer(request)
