"""reconcile that lets the clock's ticks pass while the file FAULTS/no-tick is there; a test calls it itself.
Otherwise it is Berth's own: a tick in the middle of a test would mend what the test wants to see.
"""

import os
from pathlib import Path

import functions_framework
from flask import Request

from berth.handlers import reconcile as verb
from berth.http.function import Response, serve

NO_TICK = Path(os.environ["FAULTS"]) / "no-tick"
answer = serve(verb.endpoint)


@functions_framework.http
def reconcile(request: Request) -> Response:
    if NO_TICK.exists() and request.headers.get("User-Agent") == "berth-up":
        return b"{}", 200, {}
    return answer(request)
