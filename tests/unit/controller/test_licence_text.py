"""Texts by URL: all of them in a bounded time, none in part, and none that is too long."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from berth.controller.licence_text import TextError, fetched, texts
from tests.support.servers.serving import serving

Answer = Callable[[BaseHTTPRequestHandler], object]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """A server that answers any GET so; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            return

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/lmstat"


def plain(body: bytes, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_a_text_is_read_as_it_is() -> None:
    with answering(plain(b"some text")) as url:
        assert fetched(url, 5.0, 100) == b"some text"
    zipped = gzip.compress(b"a" * 100_000)
    with answering(plain(zipped, Content_Encoding="gzip")) as url:
        assert fetched(url, 5.0, 1000) == zipped, "a small answer does not become a large one"


def test_of_a_text_that_is_too_long_no_more_is_read_than_shows_that() -> None:
    sent: list[int] = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while len(sent) < 10_000:
                handler.wfile.write(b"x" * 65_536)
                sent.append(1)
        except OSError:
            return

    with answering(endless) as url:
        assert fetched(url, 5.0, 100_000) == b"x" * 100_001
    assert len(sent) < 1000


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda handler: handler.send_error(503), "answered 503"),
        (lambda handler: (handler.send_response(302), handler.end_headers()), "answered 302"),
        (plain(b"half", Content_Length="1000"), "can't read http://127.0.0.1"),
        (lambda handler: handler.wfile.write(b"SSH-2.0\r\n"), "can't read http://127.0.0.1"),
    ],
    ids=["an error", "a redirect", "cut off", "another protocol"],
)
def test_what_is_not_the_whole_text_is_an_error(answer: Answer, error: str) -> None:
    with answering(answer) as url, pytest.raises(TextError, match=error):
        fetched(url, 5.0, 10_000)


def test_a_server_that_is_away_is_an_error_in_words_that_stay_the_same() -> None:
    with answering(plain(b"")) as url:
        pass
    with pytest.raises(TextError) as told:
        fetched(url, 5.0, 10)
    assert str(told.value) == f"can't read {url}: connection refused"


def test_a_server_that_never_comes_to_an_end_is_an_error_once_the_time_is_over() -> None:
    over = threading.Event()

    def dripping(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not over.wait(0.01):
                handler.wfile.write(b"x")
                handler.wfile.flush()
        except OSError:
            return

    with answering(dripping) as url:
        with pytest.raises(TextError, match="no answer in time"):
            fetched(url, 0.2, 10_000_000)
        over.set()


def test_a_url_that_hangs_delays_no_other_one() -> None:
    hangs, urls = threading.Event(), [f"http://host/{number}" for number in range(6)]

    def fetch(url: str, _: float, __: int) -> bytes:
        if url == urls[0]:
            hangs.wait()
        if url == urls[1]:
            raise ValueError("a library's own")
        if url == urls[2]:
            raise TextError("answered 404")
        return url.encode()

    try:
        told = texts(urls, 0.5, 100, fetch)
    finally:
        hangs.set()
    assert {url: str(text) for url, text in told.items() if isinstance(text, TextError)} == {
        urls[0]: f"can't read {urls[0]}: no answer in time",
        urls[1]: f"can't read {urls[1]}: ValueError",
        urls[2]: "answered 404",
    }
    assert [told[url] for url in urls[3:]] == [url.encode() for url in urls[3:]]
    assert texts([], 0.5, 100, fetch) == {}
