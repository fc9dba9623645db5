"""docs/logs-and-traces.md has the lines that bind logs, each field, each decision and each kind of span."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from berth.http import cloudevents
from berth.local.processes import ORDER
from berth.telemetry import logs
from berth.telemetry.calls import Call
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import pools_staged
from tests.support.references import ROOT

PAGE = (ROOT / "docs/logs-and-traces.md").read_text()
CODE = "".join(path.read_text() for path in sorted((ROOT / "shared/berth").rglob("*.py")))
(SAMPLE,) = re.findall(r"^```json\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
(TEXT,) = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def names(heading: str) -> set[str]:
    """What is in the first column of the table with this heading."""
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    first = [line.split("|", 2)[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_line_in_json_is_as_bind_logs_it(
    tmp_path: Path, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    formatter, told = logs.formatter("json", environment={}), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: told.append(formatter.format(record))  # type: ignore[method-assign]
    log = logging.getLogger("berth.bind")
    caplog.set_level(logging.INFO, log.name)
    log.addHandler(handler)
    try:
        pools = {"ip": {"capacity": {"perDomain": 1}}}
        with pools_staged(tmp_path, place, pools, {"n1": {}}) as stage, Call("bind", TRACEPARENT):
            assert stage.bind(stage.pod(ip=1), "n1") == ""
    finally:
        log.removeHandler(handler)
    (line,) = map(json.loads, told)
    sample = json.loads(SAMPLE)
    assert list(sample) == list(line)
    differ = {"time": sample["time"], "duration": sample["duration"], "uid": sample["uid"]}
    ours = {name: _renamed(value, line["pod"], sample["pod"]) for name, value in line.items()}
    assert {**ours, **differ} == sample


def _renamed(value: Any, old: str, new: str) -> Any:
    return value.replace(old, new) if isinstance(value, str) else value


def test_the_line_in_text_says_the_same() -> None:
    facts = json.loads(SAMPLE)
    name, level, message = facts.pop("logger"), facts.pop("level"), facts.pop("message")
    facts.pop("time")
    record = logging.makeLogRecord({"name": name, "levelname": level, "msg": message, "facts": facts})
    assert logs.formatter("text", environment={}).format(record) == " ".join(TEXT.split())


def test_each_field_is_told() -> None:
    assert {*logs.FIRST, *logs.OWN} <= names("field")


def test_each_decision_is_told() -> None:
    decided = {*re.findall(r"calls\.decided\(\s*log, \"(\w+)\"", CODE), *cloudevents.PAST.values(), "nothing"}
    claims = [line for line in CODE.splitlines() if re.search(r"\btold\(claim, ", line)]
    decided |= {word for line in claims for word in re.findall(r'"(\w+)"', line)}
    assert decided == names("`decision` | by")


def test_each_function_and_each_call_of_a_store_is_a_span_that_is_told() -> None:
    told = names("span")
    assert {*ORDER} - {"extender"} <= told
    assert {f"store {call}" for call in ("read", "commit", "changes", "changes_at_once")} <= told
