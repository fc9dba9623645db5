"""`berth status --watch` and `berth top`: a block at each change, or a table in place on a terminal.

Beside a real kube-scheduler: tests/e2e/test_top.py.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self
from unittest import mock

import pytest
import yaml

from berth.cli import watch
from berth.cli.arguments import parsed
from berth.cli.dashboard import LiveView
from berth.cli.status import Source
from berth.errors import StoreUnavailableError
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.e2e.harness import BERTH
from tests.support.builders.ledgers import claim, ledger_on, two_pools
from tests.support.cluster import wait as wait_for
from tests.support.fakes.terminal import Terminal

NOW = 1_000_000.0
UNKNOWN = "berth: who waits is not known: no cluster to talk to"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with closing(two_pools(url)) as store:
        yield ledger_on(store)


def watched(url: str, output: str, *steps: Callable[[], object], pool: str | None = None) -> list[float]:
    """Go on with these steps in place of the pauses, whose lengths are returned; Ctrl-C comes after them."""
    pauses: list[float] = []
    left = iter(steps)

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    with closing(open_store(url)) as store, pytest.raises(KeyboardInterrupt):
        watch.in_blocks(Source(store, Settings(store=url), pool), output, 7.5, wait, lambda: NOW)
    return pauses


def nothing() -> None:
    pass


def test_each_change_is_a_block_with_its_time_and_a_look_without_one_is_silent(
    capsys: pytest.CaptureFixture[str], url: str, ledger: Ledger
) -> None:
    steps = (nothing, lambda: ledger.reserve(claim("a", "n1", "a1", ip=1)), nothing)
    assert watched(url, "table", *steps, pool="ip") == [7.5] * 4
    out, err = capsys.readouterr()
    first, second = out.split("\n\n")
    assert first.splitlines()[0] == ("1970-01-12T13:46:40Z 1 pool, 4 of 4 units free, who waits is not known")
    assert second.splitlines()[0].endswith("Z 1 pool, 3 of 4 units free, who waits is not known")
    assert [line.split()[:6] for line in second.splitlines()[2:]] == [
        ["ip", "<all>", "4", "1", "3", "1"],
        ["ip", "n1", "2", "1", "1", "1"],
        ["ip", "n2", "2", "0", "2", "0"],
    ]
    assert err.startswith(UNKNOWN)
    assert err.count("\n") == 1


def test_programs_get_a_document_for_each_change(
    capsys: pytest.CaptureFixture[str], url: str, ledger: Ledger
) -> None:
    for output, read in (("json", _all_json), ("yaml", yaml.safe_load_all)):
        watched(url, output, nothing, lambda: ledger.reserve(claim(output, "n1", "a1", seat=1)))  # noqa: B023
        free = [found["pools"][1]["free"] for found in read(capsys.readouterr().out)]
        assert free[0] - free[1] == 1


def _all_json(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        found, at = decoder.raw_decode(text, at)
        yield found
        at += 1


def test_a_store_that_is_away_for_a_while_is_told_once_and_the_watch_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, ledger: Ledger
) -> None:
    def away(_: Source) -> View:
        raise StoreUnavailableError("the store is away")

    there = Source.view
    steps = (
        lambda: monkeypatch.setattr(Source, "view", away),
        nothing,
        lambda: monkeypatch.setattr(Source, "view", there),
        lambda: ledger.reserve(claim("a", "n1", "a1", ip=1)),
    )
    watched(url, "table", *steps)
    out, err = capsys.readouterr()
    assert out.count("units free") == 2
    assert err.count("berth: the store is away\n") == 1


@pytest.mark.parametrize("seconds", ["0.4", "3601", "often", "nan"])
def test_an_interval_that_can_not_be_is_wrong_usage(capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    for command in (["top"], ["status", "-w"]):
        with pytest.raises(SystemExit) as ended:
            parsed([*command, "--interval", seconds])
        assert ended.value.code == 2
        assert "should be a number of seconds from 0.5 to 3600" in capsys.readouterr().err


@pytest.mark.usefixtures("ledger")
def test_the_first_picture_knows_who_waits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Live(LiveView):
        def __enter__(self) -> Self:
            shown.append(self.unknown)
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("berth.cli.dashboard.LiveView", Live)
    with closing(open_store(url)) as store, pytest.raises(KeyboardInterrupt):
        watch.on_terminal(
            Source(store, Settings(store=url), None), 1.0, mock.Mock(side_effect=KeyboardInterrupt)
        )
    assert [text.partition(":")[0] for text in shown] == ["who waits is not known"]


@pytest.mark.parametrize("command", [["top"], ["status", "--watch"]])
def test_on_a_terminal_it_is_a_table_in_place_and_ctrl_c_gives_the_terminal_back(
    tmp_path: Path, url: str, ledger: Ledger, command: list[str]
) -> None:
    with StandIn() as api:
        kubeconfig = str(api.kubeconfig(tmp_path / "kubeconfig"))
        options = ["--store", url, "--kubeconfig", kubeconfig, "--interval", "0.5"]
        own = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        with Terminal([BERTH, *command, *options], own, tmp_path, size=(120, 30)) as terminal:
            wait_for(lambda: "2 pools, 10 of 10 units free, 0 pods wait" in terminal.text, 60, terminal.text)
            assert not terminal.shows_cursor()
            ledger.reserve(claim("a", "n1", "a1", ip=2))
            wait_for(lambda: "2 pools, 8 of 10 units free, 0 pods wait" in terminal.text, 60, terminal.text)
            terminal.press(b"\x03")
            assert terminal.end(60) == 130
            assert terminal.shows_cursor()
            assert "Traceback" not in terminal.text
