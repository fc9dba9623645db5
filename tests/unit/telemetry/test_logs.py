"""A line of the log is one line whatever is in it, parses back, tells no secret, and is not endless."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.telemetry import calls, logs
from berth.telemetry.calls import Call
from berth.telemetry.traces import Facts

TRACE = "1a" * 16
TEXTS = st.text(st.characters(), max_size=300) | st.sampled_from(
    [
        "\n",
        "\r\n",
        "\x1b[2K\x1b[1A",
        "\u2028{}",
        "\u202egnp",
        "\ud800",
        "\x7f",
        "\x85",
        '"},{"level":"x',
        "a\x00b",
    ]
)
PLAIN = r"[ -~]*"


def line(
    form: str, message: str, *, facts: Facts | None = None, level: int = logging.INFO, **more: Any
) -> str:
    record = logging.LogRecord("berth.bind", level, "", 0, message, (), more.get("exc_info"))
    if facts is not None:
        record.facts = facts
    return logs.formatter(form, more.get("secrets", ()), environment=more.get("environment", {})).format(
        record
    )


@given(message=TEXTS, name=TEXTS, node=TEXTS)
def test_any_text_is_one_line_of_json_that_parses_back(message: str, name: str, node: str) -> None:
    with Call("bind"):
        calls.about(pod=name)
        said = line("json", message, facts={"node": node})
    assert re.fullmatch(PLAIN, said)
    told = json.loads(said)
    assert list(told) == ["time", "level", "logger", "message", "function", "pod", "node"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["time"])
    if not re.search(
        "(?i)token|pass|pwd|secret|credential|private|auth|key|bearer|basic|://|eyJ|A[KS]IA", said
    ):
        assert (told["message"], told["pod"], told["node"]) == (message, name, node)


@given(message=TEXTS, name=TEXTS)
def test_any_text_is_one_line_of_text_in_which_all_is_printable(message: str, name: str) -> None:
    said = line("text", message, facts={"pod": name})
    assert said.isprintable()
    assert said.startswith("INFO berth.bind: ")


def test_a_line_has_what_is_known_of_the_call_and_the_decision_in_a_fixed_order() -> None:
    with Call("bind", f"00-{TRACE}-00f067aa0ba902b7-01"):
        calls.about(pod="default/web", uid="u-1", node="n1")
        said = line(
            "json", "bound", facts={"units": 2, "duration": 0.0123456789, "decision": "bound", "pool": "ip"}
        )
    told = json.loads(said)
    del told["time"]
    assert list(told.items()) == [
        ("level", "INFO"),
        ("logger", "berth.bind"),
        ("message", "bound"),
        ("function", "bind"),
        ("pod", "default/web"),
        ("uid", "u-1"),
        ("node", "n1"),
        ("pool", "ip"),
        ("decision", "bound"),
        ("duration", 0.012346),
        ("trace_id", TRACE),
        ("units", 2),
    ]


def test_no_fact_takes_the_place_of_the_time_the_level_or_the_message() -> None:
    told = json.loads(line("json", "true", facts={"message": "forged", "level": "ERROR", "time": "x"}))
    assert (told["message"], told["level"], told["time"] == "x") == ("true", "INFO", False)


def test_text_names_the_facts_that_the_message_does_not() -> None:
    facts: Facts = {"pod": "d/web", "uid": "u", "decision": "no way", "units": 0}
    said = line("text", "pod d/web is unbound", facts=facts)
    assert said == 'INFO berth.bind: pod d/web is unbound decision="no way" units=0'


def test_long_texts_are_cut() -> None:
    told = json.loads(line("json", "m" * 100_000, facts={"pod": "p" * 100_000, "nodes": ["n"] * 100_000}))
    assert len(told["message"]) == logs.LONGEST_MESSAGE
    assert len(told["pod"]) == len(told["nodes"]) == logs.LONGEST_FIELD
    assert told["message"].endswith("…")


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    "said",
    [
        "Authorization: Bearer hunter-22",
        "the header was Bearer hunter-22",
        "redis://berth:s3cret@redis:6379/0 is away",
        "rediss://redis/0?password=hunter-22&x=1",
        "set BERTH_AUTH_TOKEN=hunter-22",
    ],
)
def test_nothing_that_looks_like_a_secret_is_in_a_line(form: str, said: str) -> None:
    told = line(form, said, facts={"why": said})
    assert "hunter" not in told
    assert "s3cret" not in told


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_that_is_known_is_in_a_line(form: str) -> None:
    environment = {"BERTH_STORE": "redis://:hunter-1@redis", "OTEL_EXPORTER_OTLP_HEADERS": "api=hunter-2"}
    said = "hunter-1, api=hunter-2 and hunter-3"
    assert "hunter" not in line(
        form, said, facts={"why": said}, secrets=["hunter-3"], environment=environment
    )


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_traceback_forges_no_line_and_its_end_is_kept(form: str) -> None:
    def fail() -> NoReturn:
        raise ValueError("y" * 200_000 + "\nINFO berth.bind: forged\x1b[1A password=hunter2 end")

    try:
        fail()
    except ValueError:
        said = line(form, "failed", level=logging.ERROR, exc_info=sys.exc_info())
    lines = said.splitlines()
    assert [text for text in lines if text.startswith(("INFO", "{"))] == ([said] if form == "json" else [])
    assert "hunter2" not in said
    assert "\x1b" not in said
    assert " end" in lines[-1]
    assert len(said) < 2 * logs.LONGEST_MESSAGE


def test_a_line_whose_arguments_do_not_fit_is_a_line_all_the_same() -> None:
    record = logging.LogRecord("lib", logging.INFO, "", 0, "%d of %d", ("x",), None)
    assert json.loads(logs.formatter("json", environment={}).format(record))["message"] == "%d of %d"


@contextmanager
def bare() -> Iterator[logging.Logger]:
    """The root logger without any handler; what it had is put back."""
    found, berth = logging.getLogger(), logging.getLogger("berth")
    before = [*found.handlers], found.level, berth.level
    found.handlers[:] = []
    yield found
    found.handlers[:], level, own = before
    found.setLevel(level)
    berth.setLevel(own)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "auto", "stream", "begins"),
    [
        ("auto", "", _Terminal, "INFO berth.x: hello"),
        ("auto", "", io.StringIO, '{"time":'),
        ("auto", "text", io.StringIO, "INFO berth.x: hello"),
        ("json", "text", _Terminal, '{"time":'),
        ("text", "", io.StringIO, "INFO berth.x: hello"),
    ],
)
def test_auto_is_text_on_a_terminal_and_json_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    auto: str,
    stream: type[io.StringIO],
    begins: str,
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    with bare() as root:
        logs.configure(form, "INFO", auto=auto)
        logs.configure(form, "INFO", auto=auto)
        logging.getLogger("berth.x").info("hello")
        logging.getLogger("berth.x").debug("nothing")
        logging.getLogger("library").debug("nothing")
        assert len(root.handlers) == 1
    assert isinstance(sys.stderr, io.StringIO)
    (said,) = sys.stderr.getvalue().splitlines()
    assert said.startswith(begins)


def test_another_s_handler_stays_unless_ours_is_to_be_alone() -> None:
    theirs = logging.NullHandler()
    with bare() as root:
        root.addHandler(theirs)
        logs.configure("json", "INFO")
        assert root.handlers == [theirs]
        logs.configure("json", "INFO", alone=True)
        assert theirs not in root.handlers
