"""`make bench` in miniature: who is measured, what the figures look like, and that nothing is left running.
How fast anything is, is no matter for a test; the floor in Go is built and tried in tests/controlplane."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import msgspec
import pytest

from berth import wire
from tests.bench import __main__ as bench
from tests.bench import report
from tests.bench.bodies import Calls, node, node_names
from tests.bench.rounds import FLOOR, Measured, cases

ROOT = Path(__file__).parents[2]
_LONG_SECONDS = 120.0
_TINY = ("--nodes", "20", "--rounds", "2", "--calls", "3", "--no-floor")


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finished(*arguments: str) -> subprocess.CompletedProcess[str]:
    with _started(*arguments) as process:
        out, err = process.communicate(timeout=_LONG_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.usefixtures("redis_installed")
def test_every_case_is_measured_on_every_store_with_both_verbs(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = _finished(*_TINY, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    titles = [case.title for case in cases(20).values()]
    expected = set(product(titles, ("filter", "prioritize"), ("sqlite", "redis")))
    assert {(row["case"], row["verb"], row["contender"]) for row in rows} == expected
    assert all(0 < row["p50"] <= row["p99"] for row in rows)
    assert {row["calls"] for row in rows} == {2 * 3, 2 * 1}
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(rows)


def test_two_trees_and_two_servers_are_told_apart(tmp_path: Path) -> None:
    trees = ("--source", "old=functions", "--source", "new=functions", "--servers", "gthread,asgi")
    few = ("--stores", "sqlite", "--cases", "changed", "--verbs", "filter")
    figures = tmp_path / "figures.json"
    done = _finished(*_TINY, *few, *trees, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    found = {row["contender"] for row in json.loads(figures.read_text())["rows"]}
    assert found == {"old·sqlite", "old·sqlite·asgi", "new·sqlite", "new·sqlite·asgi"}


@pytest.mark.usefixtures("redis_installed")
def test_what_a_claim_costs_is_measured_on_every_store_by_one_caller_and_by_many(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ("--nodes", "20", "--rounds", "1", "--seconds", "0.1", "--stores", "sqlite,redis")
    done = _finished("costs", *tiny, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    cells = {(row["store"], row["callers"], row["domains"]) for row in found["cycles"]}
    assert cells == set(product(("sqlite", "redis"), (1, 8, 64), ("any", "one")))
    measured = [row for row in found["cycles"] if row["p50"] is not None]
    assert measured
    assert all(0 < row["p50"] <= row["p99"] for row in measured)
    assert {row["store"]: row["bytes"] > 100 for row in found["sizes"]} == {"sqlite": True, "redis": True}
    assert {row["store"]: row["requests"] > 0 for row in found["sizes"]} == {"sqlite": False, "redis": True}
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(cells) + 2 + 2


def test_the_cluster_wide_pool_is_measured_in_stripes_and_in_one_document(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ("--rounds", "1", "--seconds", "0.1", "--stores", "sqlite")
    done = _finished("seats", *tiny, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert {(row["kind"], row["callers"]) for row in rows} == set(
        product(("stripes", "one document"), (1, 8, 64))
    )
    measured = [row for row in rows if row["p50"] is not None]
    assert {row["kind"] for row in measured} >= {"stripes"}
    assert all(0 < row["p50"] <= row["p99"] for row in measured)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_that_is_stopped_leaves_no_process_behind(number: signal.Signals) -> None:
    with _started(*_TINY[:2], "--no-floor", "--stores", "sqlite", "--rounds", "1000000") as process:
        assert process.stderr is not None
        assert any(line.startswith("bench: filter") for line in process.stderr)
        children = _descendants(process.pid)
        assert len(children) >= 3  # the ledger's keeper and two functions
        process.send_signal(number)
        process.communicate(timeout=_LONG_SECONDS)
    assert process.returncode == 128 + number
    _wait(lambda: not any(map(_alive, children)))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rounds", "0"), "'0' should be a number above 0"),
        (("--stores", "sqlite,paper"), "no 'paper' here, only sqlite, redis, "),
        (("costs", "--stores", "paper"), "no 'paper' here, only sqlite, redis, "),
        (("costs", "--seconds", "0"), "'0' should be seconds above 0"),
        (("--source", "old=nowhere"), "should be LABEL=DIR"),
    ],
)
def test_a_wrong_option_is_told_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], told: str
) -> None:
    with pytest.raises(SystemExit):
        bench.main(arguments)
    assert told in capsys.readouterr().err


def test_ratios_are_medians_of_what_was_measured_in_the_same_round() -> None:
    case = cases(10)["names"]
    floor = Measured(case, "filter", FLOOR, [[1.0, 1.0], [4.0, 4.0], [1.0, 1.0]])
    berth = Measured(case, "filter", "sqlite", [[2.0, 2.0], [2.0, 2.0], [3.0, 3.0]])
    assert [row["ratio"] for row in report.rows([floor, berth])] == [1.0, 2.0]


def test_without_a_floor_there_is_no_ratio() -> None:
    alone = Measured(cases(10)["names"], "filter", "sqlite", [[0.001], [0.002]])
    rows = report.rows([alone])
    assert rows[0]["ratio"] is None
    assert report.table(rows, {}).splitlines()[2].endswith("| 1.50 | 2.00 |  |  |")


def test_the_calls_are_what_kube_scheduler_sends() -> None:
    recorded = {
        full: json.loads((ROOT / "events" / "extender" / f"filter-{kind}.json").read_bytes())
        for full, kind in ((False, "names"), (True, "full"))
    }
    for full, sample in recorded.items():
        call = json.loads(next(Calls(node_names(30), full=full)))
        assert list(call) == list(sample)
        assert call["Pod"].keys() == sample["Pod"].keys()
        assert [key for key, value in call.items() if value is None] == [
            key for key, value in sample.items() if value is None
        ]


@pytest.mark.parametrize("full", [False, True])
def test_each_call_is_for_another_pod_and_offers_every_node_in_another_order(full: bool) -> None:
    calls = Calls(node_names(500), full=full)
    first, second = wire.candidates(next(calls)), wire.candidates(next(calls))
    assert first.pod.metadata.uid != second.pod.metadata.uid
    assert first.names != second.names
    assert sorted(first.names) == sorted(second.names) == node_names(500)


def test_a_full_node_is_as_large_as_a_real_one() -> None:
    assert 9_500 < len(msgspec.json.encode(node("node-00007"))) < 9_900


def _descendants(pid: int) -> list[int]:
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _wait(reached: Callable[[], bool]) -> None:
    give_up_at, pause = time.monotonic() + _LONG_SECONDS, threading.Event()
    while not reached():
        assert time.monotonic() < give_up_at
        pause.wait(0.05)
