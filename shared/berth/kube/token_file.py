"""A file with a bearer token that somebody replaces while this process runs.
Whether a token is still valid only the API server knows: its client asks for a new look after a refusal."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SECONDS = 60.0
"""Seconds between two looks at the file; a token that was replaced stays valid for longer than that."""


class TokenFile:
    """The token of one file, read once a minute. Safe to use from many threads."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises OSError or ValueError where the file can't be read, and ValueError where it is empty."""
        self._path, self._monotonic = path, monotonic
        self._lock = threading.Lock()
        self._token, self._read_at = self._read(), monotonic()
        if not self._token:
            raise ValueError(f"{path} is empty")

    def token(self) -> str:
        """Return the token, at most a minute old."""
        with self._lock:
            if self._monotonic() - self._read_at >= SECONDS:
                self._renew()
            return self._token

    def renew(self) -> None:
        """Read the file now. Where it can't be read, or holds nothing, the token stays as it is."""
        with self._lock:
            self._renew()

    def _renew(self) -> None:
        self._read_at = self._monotonic()
        with suppress(OSError, UnicodeError):
            self._token = self._read() or self._token

    def _read(self) -> str:
        return self._path.read_text(encoding="ascii").strip()
