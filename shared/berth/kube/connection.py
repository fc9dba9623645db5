"""Connections to the API server that send a small request, and read its whole answer, in half of the time.
They are urllib3's in all else: pools, TLS, proxies, time-outs and errors. It looks into no answer."""

import http.client
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection


class Answer:
    """An answer that was read to its end, with what a pool of urllib3's asks of it."""

    version_string, length_remaining = "HTTP/1.1", 0  # for urllib3's log

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.data = response.status, response.headers, response.read()
        self.retries: urllib3.Retry | None = None


class _Whole(HTTPConnection):
    """Where an answer is wanted whole, requests and answers are those of http.client, from which urllib3's
    connections are made: urllib3 copies what it gets from there into objects that can do more."""

    _whole = False
    putheader = http.client.HTTPConnection.putheader

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        self._whole = options.get("preload_content", True)
        if not self._whole:
            super().request(method, url, body, headers, **options)
            return
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
        http.client.HTTPConnection.request(self, method, url, body, headers or {})

    def getresponse(self) -> Any:
        if not self._whole:
            return super().getresponse()
        self.sock.settimeout(self.timeout)
        return Answer(http.client.HTTPConnection.getresponse(self))


def lean(pool: Any) -> Any:
    """Return this pool of urllib3's, whose new connections are lean from now on."""
    kind = pool.ConnectionCls
    if not issubclass(kind, _Whole):
        pool.ConnectionCls = type(kind.__name__, (_Whole, kind), {})
    return pool
