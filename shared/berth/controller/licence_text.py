"""Fetch licence servers' texts by URL, several side by side and all of them in a bounded time.
What a text means is another's matter; a text that is cut off, too long or late is an error, never a part."""

import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from http import HTTPStatus

from berth.deadline import Deadline
from berth.errors import LATE, BerthError, reason
from berth.stores import redacted

_CHUNK = 64 * 1024
_AT_ONCE = 4  # texts that are read, and are in memory, at the same time


class TextError(BerthError):
    """A URL gave no text, or not the whole of it."""


Fetch = Callable[[str, float, int], bytes]
"""Returns the text of a URL, in so many seconds and of so many bytes at most; raises TextError."""


def fetched(url: str, seconds: float, most: int) -> bytes:
    """Return the text of a URL, `most` bytes and one more of it at most. Raises TextError, also when it takes
    longer than so many seconds in all."""
    import urllib3  # here: most functions read no URL

    deadline, shown = Deadline.after(seconds), redacted(url)
    try:
        answer = urllib3.request("GET", url, timeout=seconds, retries=False, preload_content=False)
        with closing(answer):
            if answer.status != HTTPStatus.OK:
                raise TextError(f"{shown} answered {answer.status}")
            text = bytearray()
            # Not decompressed: a small answer could become a large one.
            while len(text) <= most and (part := answer.read1(_CHUNK, decode_content=False)):
                text += part
                if deadline.left() <= 0:
                    raise TextError(f"can't read {shown}: {LATE}")
            return bytes(text[: most + 1])
    except urllib3.exceptions.HTTPError as error:
        raise TextError(f"can't read {shown}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """Return why it failed, in words that equal causes have; what is no connection's error, by its type."""
    why = reason(error)
    return why if why != "the connection was closed" else type(error).__name__


def texts(
    urls: Collection[str],
    seconds: float,
    most: int,
    fetch: Fetch = fetched,
    monotonic: Callable[[], float] = time.monotonic,
) -> Mapping[str, bytes | TextError]:
    """Return the text of each of these URLs, or why there is none, in so many seconds in all."""
    deadline = Deadline.after(seconds, monotonic)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, bytes | TextError]] = queue.SimpleQueue()
    for url in urls:
        waiting.put(url)

    def work() -> None:
        while True:
            try:
                url = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                left = deadline.left()
                if left <= 0:
                    return
                done.put((url, fetch(url, left, most)))
            except TextError as error:
                done.put((url, error))
            except Exception as error:  # noqa: BLE001 - whatever a library raises is one URL's failure
                done.put((url, TextError(f"can't read {redacted(url)}: {type(error).__name__}")))

    for _ in range(min(_AT_ONCE, len(urls))):
        # Daemons: a name that nobody resolves holds a thread for longer than anybody waits.
        threading.Thread(target=work, daemon=True, name="licence-text").start()
    results: dict[str, bytes | TextError] = {}
    while len(results) < len(urls):
        try:
            url, result = done.get(timeout=max(0.001, deadline.left()))
        except queue.Empty:
            break
        results[url] = result
    late = (url for url in urls if url not in results)
    return {**results, **{url: TextError(f"can't read {redacted(url)}: {LATE}") for url in late}}
