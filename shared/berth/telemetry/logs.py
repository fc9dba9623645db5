"""The log: a line an event, as JSON for machines or as text for a terminal, set up here for every program.
No text that others write can break a line or forge one, and none is longer than the bounds below."""

import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TextIO

from berth.redaction import Redactor
from berth.telemetry import calls
from berth.telemetry.traces import Fact

LONGEST_MESSAGE = 8192
"""Characters of a message."""
LONGEST_FIELD = 1024
"""Characters of any other field; a traceback may have as many as a message, its last ones."""

FIRST = ("function", "pod", "uid", "node", "pool", "decision", "duration", "trace_id", "span_id")
"""Fields that come before all others, in this order."""

OWN = ("time", "level", "logger", "message", "exception")
"""Fields that no fact may take the place of."""

_LONGEST_READ = 65536  # of which secrets are taken out
_CUT = "…"
_OTLP_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")


class _Formatter(logging.Formatter):
    """What both forms have in common: a record's parts, bounded and without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def message(self, record: logging.LogRecord) -> str:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's line whose arguments don't fit: logging would print all of it
            text = str(record.msg)
        return self._clean(text, LONGEST_MESSAGE)

    def fields(self, record: logging.LogRecord) -> dict[str, Fact]:
        """Return what is known beside the message, the best known first."""
        call, known = calls.current(), dict[str, Fact]()
        if call is not None:
            known = {"function": call.function, **call.facts}
            if call.trace is not None:
                known["trace_id"] = call.trace.trace_id
            if call.span is not None and call.trace is not None:
                known["span_id"] = call.trace.span_id
        known |= getattr(record, "facts", {})
        named = {name: known.pop(name) for name in FIRST if name in known}
        return {name: self._bounded(value) for name, value in {**named, **known}.items() if name not in OWN}

    def traceback(self, record: logging.LogRecord) -> str:
        """Return the last of an exception's traceback; empty: there is none."""
        if not record.exc_info:
            return ""
        text = self._redactor.line(self.formatException(record.exc_info)[-_LONGEST_READ:])
        return text if len(text) <= LONGEST_MESSAGE else f"{_CUT}{text[-LONGEST_MESSAGE:]}"

    def _bounded(self, value: Fact) -> Fact:
        if isinstance(value, float):
            return round(value, 6)
        if isinstance(value, bool | int):
            return value
        text = value if isinstance(value, str) else ",".join(map(str, value))
        return self._clean(text, LONGEST_FIELD)

    def _clean(self, text: str, longest: int) -> str:
        text = self._redactor.line(text[:_LONGEST_READ])
        return text if len(text) <= longest else f"{text[: longest - 1]}{_CUT}"


class JsonFormatter(_Formatter):
    """A line of ASCII: what is no plain character is escaped, and is itself again once the JSON is read."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Fact] = {
            "time": _stamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": self.message(record),
            **self.fields(record),
        }
        if told := self.traceback(record):
            line["exception"] = told
        # Not by msgspec, which writes other alphabets, line separators and marks of direction as they are.
        return json.dumps(line, separators=(",", ":")).replace("\x7f", "\\u007f")


class TextFormatter(_Formatter):
    """A line for a person: the message, then those fields that it does not name already."""

    def format(self, record: logging.LogRecord) -> str:
        message = self.message(record)
        fields = {name: value for name, value in self.fields(record).items() if name != "function"}
        more = [f"{name}={_word(value)}" for name, value in fields.items() if not _is_said(value, message)]
        line = escaped(" ".join([f"{record.levelname} {record.name}: {message}", *more]))
        # No line of a traceback begins where a line of the log would.
        return "\n    ".join([line, *map(escaped, self.traceback(record).splitlines())])


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, which a second `configure` replaces."""


def configure(
    form: str, level: str, secrets: Iterable[str | None] = (), *, auto: str = "", alone: bool = False
) -> None:
    """Have all lines of the log written to standard error in this form, Berth's own from this level on.

    `auto` is the form that auto means; empty: text on a terminal, JSON elsewhere. `secrets` are taken out,
    and those in the environment. With `alone` no other handler stays; else ours comes where there is none.
    """
    root = logging.getLogger()
    for old in [*root.handlers]:
        if alone or isinstance(old, _Handler):
            root.removeHandler(old)
    if not root.handlers:
        handler = _Handler(sys.stderr)
        handler.setFormatter(formatter(form, secrets, auto=auto))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    # Berth's own lines alone: debug lines of libraries may hold secrets.
    logging.getLogger("berth").setLevel(level)


def formatter(
    form: str = "",
    secrets: Iterable[str | None] = (),
    *,
    auto: str = "",
    environment: Mapping[str, str] = os.environ,
) -> logging.Formatter:
    """Return what makes lines of this form (empty: as BERTH_LOG_FORMAT says)."""
    redactor = Redactor()
    redactor.learn([*secrets, *map(environment.get, _OTLP_HEADERS)])
    redactor.learn_settings(environment)
    form = form or environment.get("BERTH_LOG_FORMAT") or "auto"
    if form == "auto":
        form = auto or ("text" if sys.stderr.isatty() else "json")
    return TextFormatter(redactor) if form == "text" else JsonFormatter(redactor)


def escaped(text: str) -> str:
    r"""Return the text on one line: what is not printable is written as \n, \x1b, \u202e and so on."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _is_said(value: Fact, message: str) -> bool:
    """Whether the message has the value already. A number may stand there for something else."""
    return isinstance(value, str) and value in message


def _word(value: Fact) -> str:
    text = value if isinstance(value, str) else str(value)
    plain = text.isprintable() and not set(text) & set(" =\"'")
    return text if plain and text else json.dumps(text)


def _stamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
