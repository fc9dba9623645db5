"""Keeps what Berth logs, as the lines of JSON that it would be."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from berth.telemetry import logs


class LogLines(logging.Handler):
    """`all` are the lines so far, each read back from its JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logs.formatter("json", environment={}))
        self.all: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(json.loads(self.format(record)))

    def decided(self) -> list[dict[str, Any]]:
        """The lines since the last time with a decision, without what differs from run to run."""
        lines = [line for line in self.all if "decision" in line]
        self.all = []
        return [{k: v for k, v in line.items() if k not in ("time", "duration", "message")} for line in lines]


@contextmanager
def log_lines(level: int) -> Iterator[LogLines]:
    """Yield what Berth logs from this level on until the end of the block."""
    kept, berth = LogLines(), logging.getLogger("berth")
    before = berth.level
    berth.addHandler(kept)
    berth.setLevel(level)
    try:
        yield kept
    finally:
        berth.removeHandler(kept)
        berth.setLevel(before)
