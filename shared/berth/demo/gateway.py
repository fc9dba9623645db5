"""The functions' way to an API server, which can hold one Binding: the moment to kill its sender.
Everything else passes as it is. It carries no watches: who watches talks to the API server itself."""

import http.client
import ssl
import threading
from pathlib import Path
from urllib.parse import urlsplit

from berth.testing import kubeconfig
from berth.testing.loopback import CUT, Loopback, Reply, Request

_PASSED = ("Content-Type", "Accept")
_SECONDS = 30.0
_PATIENCE = 120.0  # a hold that is forgotten ends


class Hold:
    """One Binding that is never made: `reached` is set once it has come, and `drop` cuts its connection."""

    def __init__(self) -> None:
        self.reached, self._decided = threading.Event(), threading.Event()

    def drop(self) -> None:
        self._decided.set()

    def wait(self) -> None:
        self.reached.set()
        self._decided.wait(_PATIENCE)


class Gateway(Loopback):
    """Plain HTTP in, the API server at `upstream` out; its certificate and token where it needs them."""

    def __init__(self, upstream: str, token: str = "", authority: Path | None = None) -> None:
        super().__init__(self._answer)
        self._upstream, self._token = urlsplit(upstream), token
        self._tls = None if authority is None else ssl.create_default_context(cafile=str(authority))
        self._hold: Hold | None = None
        self._guard = threading.Lock()

    def stop(self) -> None:
        """Drop the Binding that is held, too."""
        if (hold := self._taken()) is not None:
            hold.drop()
        super().stop()

    def hold_next_binding(self) -> Hold:
        with self._guard:
            self._hold = Hold()
            return self._hold

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here, without credentials."""
        return kubeconfig.write(path, self.url)

    def _answer(self, request: Request) -> Reply:
        hold = self._taken() if request.path.endswith("/binding") else None
        if hold is not None:
            hold.wait()
            return CUT
        try:
            return self._forward(request)
        except (OSError, http.client.HTTPException):
            return CUT

    def _taken(self) -> Hold | None:
        with self._guard:
            hold, self._hold = self._hold, None
            return hold

    def _forward(self, request: Request) -> Reply:
        host, port = self._upstream.hostname or "", self._upstream.port
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=self._tls)
        headers = {name: value for name in _PASSED if (value := request.headers.get(name))}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(request.method, request.path, request.body or None, headers)
            reply = connection.getresponse()
            return Reply(reply.status, reply.read(), reply.headers.get("Content-Type", ""))
        finally:
            connection.close()
