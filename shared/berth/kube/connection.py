"""Connections to the API server that send a request in one piece, and read its whole answer by httptools.
They are urllib3's in all else: pools, TLS, proxies, time-outs and errors (docs/decisions/0041)."""

import http.client
import re
from collections.abc import Callable, Mapping
from typing import Any

import httptools
import urllib3
from urllib3.connection import HTTPConnection

_CHUNK = 65536
_ILLEGAL = re.compile(r"[\r\n\0]")


class Answer:
    """An answer that was read to its end, with what a pool of urllib3's asks of it. Of its headers only the
    Date is kept."""

    version_string, length_remaining = "HTTP/1.1", 0  # for urllib3's log

    def __init__(self, status: int, data: bytes, date: bytes = b"") -> None:
        self.status, self.data = status, data
        self.headers: Mapping[str, str] = {"Date": date.decode("latin-1")} if date else {}
        self.retries: urllib3.Retry | None = None


class _Reader:
    """Reads one answer; answers that only announce it (1xx) are passed over."""

    def __init__(self) -> None:
        self._parser, self._parts = httptools.HttpResponseParser(self), list[bytes]()
        self._begun = self._headed = self._sized = False
        self._date = b""
        self.keeps = False  # whether the connection is of use afterwards
        self.answer: Answer | None = None

    def read(self, receive: Callable[[int], bytes]) -> Answer:
        """Return the answer. Raises HTTPException where what comes is none, or not all of it."""
        try:
            while self.answer is None:
                if data := receive(_CHUNK):
                    self._feed(data)
                else:
                    self._end()
            return self.answer
        finally:
            del self._parser  # which has this object: until Python looks for circles both would stay

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keeps = False
            if error.__context__ is not None:  # raised while httptools called us, such as a KeyboardInterrupt
                raise error.__context__ from None
            if self.answer is None:
                raise http.client.HTTPException(f"no HTTP answer: {error}") from error

    def _end(self) -> None:
        if not self._begun:
            raise http.client.RemoteDisconnected("Remote end closed connection without response")
        if self._sized or not self._headed:
            raise http.client.IncompleteRead(b"".join(self._parts))
        self._complete()  # a body that its connection ends with

    def _complete(self) -> None:
        self.answer = Answer(self._parser.get_status_code(), b"".join(self._parts), self._date)
        self._parts.clear()

    def on_message_begin(self) -> None:
        self._begun, self._headed, self._sized = True, False, False
        self.keeps = False  # where an answer is here already: nobody has asked for this one

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._sized = self._sized or name in (b"content-length", b"transfer-encoding")
        if name == b"date":
            self._date = value

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, part: bytes) -> None:
        if self.answer is None:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        self._headed = False  # of one that announces another, nothing is left
        if self.answer is None and self._parser.get_status_code() >= 200:
            self._complete()
            self.keeps = self._parser.should_keep_alive()


class _Whole(HTTPConnection):
    """One of urllib3's connections that reads an answer by _Reader where it is wanted whole."""

    _reader: _Reader | None = None

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        self._reader = _Reader() if options.get("preload_content", True) else None
        if self._reader is None:
            super().request(method, url, body, headers, **options)
            return
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self.timeout)
        self.sock.sendall(_head(method, url, headers, body) + (body or b""))

    def getresponse(self) -> Any:
        reader, self._reader = self._reader, None
        if reader is None:
            return super().getresponse()
        self.sock.settimeout(self.timeout)
        answer = reader.read(self.sock.recv)
        if not reader.keeps:
            self.close()
        return answer


def _head(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the request's head. Raises ValueError for a header that would be more than one."""
    if any(map(_ILLEGAL.search, headers.values())):
        raise ValueError("a header of a request to the API server has a line break in it")
    lines = [f"{method} {url} HTTP/1.1", *map(": ".join, headers.items())]
    if body is not None or method not in ("GET", "DELETE"):
        lines.append(f"Content-Length: {len(body or b'')}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def lean(pool: Any) -> Any:
    """Return this pool of urllib3's, whose new connections read whole answers so from now on. Each request
    must name its host in its headers."""
    kind = pool.ConnectionCls
    if not issubclass(kind, _Whole):
        pool.ConnectionCls = type(kind.__name__, (_Whole, kind), {})
    return pool
