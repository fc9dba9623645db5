"""A terminal of a test's own: a pseudo-terminal with a program on it, and the screen that a person would see.

It understands what rich sends to an xterm and nothing more; what it does not know it keeps in `unknown`.
"""

import codecs
import contextlib
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from berth.local.prctl import when_parent_dies

_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
# The program's own terminal, so that Ctrl-C becomes a signal to it; not by preexec_fn: tests have threads.
_TAKE = """\
import fcntl, os, signal, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Screen:
    """Lines as they stand, those that were scrolled out first; `cursor` whether it is shown; `sequences` how
    many escape sequences there were."""

    def __init__(self, columns: int) -> None:
        self.columns, self.cursor, self.sequences, self.unknown = columns, True, 0, ""
        self._lines, self._row, self._column = [""], 0, 0
        self._rest = ""

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._lines)

    def feed(self, text: str) -> None:
        text = self._rest + text
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
            elif found := _SEQUENCE.match(text, at):
                self.sequences += 1
                self._obey(found[1], found[2])
                at = found.end()
            else:
                break  # it is not all here yet
        self._rest = text[at:]

    def _put(self, sign: str) -> None:
        if sign == "\n":
            self._row += 1
            self._lines += [""] * (self._row + 1 - len(self._lines))
        elif sign == "\r":
            self._column = 0
        else:
            if self._column == self.columns:
                self._column = 0
                self._put("\n")
            line = self._lines[self._row].ljust(self._column)
            self._lines[self._row] = line[: self._column] + sign + line[self._column + 1 :]
            self._column += 1

    def _obey(self, value: str, what: str) -> None:
        if what == "A":
            self._row = max(0, self._row - int(value or 1))
        elif (value, what) == ("2", "K"):
            self._lines[self._row] = ""
        elif value == "?25":
            self.cursor = what == "h"
        elif what != "m":
            self.unknown += f"{value}{what} "


class Terminal:
    """Use as `with Terminal(command, environment, folder) as terminal:`; the program is killed at the end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        size: tuple[int, int] = (100, 40),
    ) -> None:
        """`size` is columns and lines."""
        columns, lines = size
        self._lock, self._screen = threading.Lock(), Screen(columns)
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _TAKE, *command],
                cwd=folder,
                env={**environment, "TERM": environment.get("TERM", "xterm"), "PYTHONFAULTHANDLER": "1"},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=when_parent_dies(signal.SIGTERM),
            )
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All that was written, as it stands now."""
        with self._lock:
            return self._screen.text

    def shows_cursor(self) -> bool:
        with self._lock:
            return self._screen.cursor

    @property
    def sequences(self) -> int:
        with self._lock:
            return self._screen.sequences

    @property
    def unknown(self) -> str:
        with self._lock:
            return self._screen.unknown

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self, seconds: float = 60) -> int:
        """The exit code; all that was written is on the screen then. For one that goes on it raises
        AssertionError, with where each of its threads is."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.process.send_signal(signal.SIGABRT)  # PYTHONFAULTHANDLER
            self.process.wait(15)
            self._reader.join(15)
            raise AssertionError(f"it did not end within {seconds:g} s: {self.text}") from error
        self._reader.join(seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        self.process.kill()
        self.process.wait()
        self._reader.join(30)
        os.close(self._master)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end open any more
                return
            if not data:
                return
            with self._lock:
                self._screen.feed(decoder.decode(data))
