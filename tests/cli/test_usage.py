"""`berth usage`: what it prints of a journal in each format, and the example of docs/usage.md."""

import csv
import io
import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import yaml

from berth.api.pool import Pool, PoolSpec
from berth.cli import main
from berth.cli.usage import as_csv, usage_lines
from berth.ledger.keys import usage_key
from berth.ledger.showback import usage_of
from berth.ledger.usage import PoolUse, Span, counted_on, encode_page
from berth.stores import open_store
from tests.support.builders.damage import write
from tests.support.builders.ledgers import ledger_on

_HOUR = 3600
_NOON = int(datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp())
_PAGE = Path(__file__).resolve().parents[2] / "docs" / "usage.md"
_SINCE, _LAST = date(2026, 11, 1), date(2026, 11, 30)


def _use() -> PoolUse:
    """Two seats for eight hours: team-a has one all the time, team-b and team-c share the other."""
    used = [
        Span("team-a", 1, _NOON, _NOON + 8 * _HOUR),
        Span("team-b", 1, _NOON + 1 * _HOUR, _NOON + 5 * _HOUR),
        Span("team-c", 1, _NOON + 5 * _HOUR, _NOON + 7 * _HOUR),
    ]
    return PoolUse(2, used, [Span("team-c", 1, _NOON + 2 * _HOUR, _NOON + 5 * _HOUR)])


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    monkeypatch.setenv("BERTH_STORE", url)
    store = open_store(url)
    ledger = ledger_on(store, while_closed=True)
    ledger.apply_pools({"seat": Pool("seat", "example.com/seat", PoolSpec())})
    ledger.open("e", ledger.begin_rebuild("r"))
    for month, page in counted_on({}, _use(), _NOON * 1000, (_NOON + 8 * _HOUR) * 1000).items():
        write(store, usage_key(month, "seat"), encode_page(page))
    store.close()


def _said(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["usage", "--since", "2026-11-01", "--until", "2026-11-30", *more]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("journal")
def test_the_example_of_the_page_is_what_the_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = _PAGE.read_text()
    assert _said(capsys) in text
    assert _said(capsys, "--by", "namespace") in text


@pytest.mark.usefixtures("journal")
def test_programs_get_the_same_numbers_in_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(_said(capsys, "-o", "json"))
    assert yaml.safe_load(_said(capsys, "-o", "yaml")) == document
    (row,) = document["usage"]["rows"]
    assert (row["usedHours"], row["waitedHours"], row["peak"]) == (14.0, 3.0, 2)
    assert (row["hoursAtZeroFree"], row["oneMoreHours"], row["mean"]) == (6.0, 3.0, 1.75)
    assert row["heldHours"] == 0.0
    (line,) = csv.DictReader(io.StringIO(_said(capsys, "-o", "csv")))
    assert {name: line[name] for name in ("pool", "usedHours", "oneMoreHours")} == {
        "pool": "seat",
        "usedHours": "14.0",
        "oneMoreHours": "3.0",
    }


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--pool", "seta"], "there is no pool seta"),
        (["--since", "2026-12-01", "--until", "2026-11-01"], "is after 2026-11-01"),
    ],
    ids=["an unknown pool", "days the wrong way round"],
)
def test_what_can_not_be_told_is_an_error(
    capsys: pytest.CaptureFixture[str], more: list[str], why: str
) -> None:
    assert main(["usage", *more]) == 1
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "|", "%"])
def test_a_spreadsheet_takes_no_cell_for_a_formula(begin: str) -> None:
    pages = counted_on(
        {}, PoolUse(1, [Span(f"{begin}HYPERLINK(1)", 1, _NOON)]), _NOON * 1000, _NOON * 1000 + 9
    )
    report = usage_of({("2026-11", "seat"): pages["2026-11"]}, _SINCE, _LAST, "namespace")
    (row,) = csv.DictReader(io.StringIO(as_csv(report), newline=""))
    assert row["namespace"] == f"'{begin}HYPERLINK(1)"


def test_a_table_of_no_use_has_its_header() -> None:
    assert usage_lines(usage_of({}, _SINCE, _LAST))[0] == "2026-11-01 to 2026-11-30"
