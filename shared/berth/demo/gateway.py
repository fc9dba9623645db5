"""The functions' way to an API server, which can hold one Binding: the moment to kill its sender.
Everything else passes as it is. It carries no watches: who watches talks to the API server itself."""

import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import urllib3

from berth.testing.loopback import CUT, Loopback, Reply, Request

_PASSED = ("Content-Type", "Accept")
_SECONDS = 30.0
_PATIENCE = 120.0  # a hold that is forgotten ends


class Hold:
    """One Binding that is never made: `reached` is set once it has come, `dropped` cuts its connection."""

    def __init__(self) -> None:
        self.reached, self.dropped = threading.Event(), threading.Event()


class Gateway(Loopback):
    """Plain HTTP in, the API server at `upstream` out; its certificate and token where it needs them."""

    def __init__(self, upstream: str, token: str = "", authority: Path | None = None) -> None:
        super().__init__(self._answer)
        self._upstream, self._authority = upstream, None if authority is None else str(authority)
        self._credential = {"Authorization": f"Bearer {token}"} if token else {}
        self._holds = SimpleQueue[Hold]()

    def hold_next_binding(self) -> Hold:
        hold = Hold()
        self._holds.put(hold)
        return hold

    def _answer(self, request: Request) -> Reply:
        with suppress(Empty):
            if request.path.endswith("/binding"):
                hold = self._holds.get_nowait()
                hold.reached.set()
                hold.dropped.wait(_PATIENCE)
                return CUT
        return self._forward(request)

    def _forward(self, request: Request) -> Reply:
        passed = {name: value for name in _PASSED if (value := request.headers.get(name))}
        headers, url = {**passed, **self._credential}, f"{self._upstream}{request.path}"
        try:
            with urllib3.PoolManager(timeout=_SECONDS, retries=False, ca_certs=self._authority) as http:
                reply = http.request(request.method, url, body=request.body or None, headers=headers)
        except urllib3.exceptions.HTTPError:
            return CUT
        return Reply(reply.status, reply.data, reply.headers.get("Content-Type", ""))
