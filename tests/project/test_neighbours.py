"""`make test` runs tests side by side: who states a time has quiet neighbours; nothing that is said is lost.
Shown on a run of made-up tests; how long a real run takes is no matter for a test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth.local.ports import FIRST, LAST

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
_TESTS = """
import json, os, threading, time

import pytest

@pytest.fixture(scope="module")
def shared():
    return os.getpid()

def noted(kind, **more):
    began = time.monotonic_ns()
    threading.Event().wait(0.05)
    line = {"kind": kind, "pid": os.getpid(), "began": began, "ended": time.monotonic_ns(), **more}
    with open(os.environ["NOTES"], "a") as notes:
        print(json.dumps(line), file=notes)

@pytest.mark.alone
@pytest.mark.parametrize("number", range(2))
def test_alone(number):
    noted("alone")

@pytest.mark.parametrize("number", range(6))
def test_together(number):
    noted("together", ports=os.environ["BERTH_PORTS"])
    print(f"measured: {number} of something")

@pytest.mark.parametrize("number", range(3))
def test_sharing(shared, number):
    noted("sharing", of=shared)

@pytest.mark.group("one process")
@pytest.mark.parametrize("number", range(3))
def test_grouped(number):
    noted("grouped")

@pytest.mark.fast
@pytest.mark.parametrize("number", range(3))
def test_quiet(number):
    noted("quiet")

def test_failing():
    assert not "a word of its own"
"""


def test_tests_side_by_side_share_no_port_and_those_that_state_a_time_have_no_loud_neighbour(
    tmp_path: Path,
) -> None:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_made_up.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib --strict-markers\nmarkers = fast: needs no server\n"
    )
    notes = tmp_path / "notes"
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:hypothesispytest",
            "-p",
            "tests.support.neighbours",
        ],
        cwd=tmp_path,
        env={**own, "PYTHONPATH": str(ROOT), "NOTES": str(notes)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 17 passed" in done.stdout
    assert "a word of its own" in done.stdout
    assert all(f"\n{number} of something\n" in done.stdout for number in range(6))

    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    alone = [line for line in lines if line["kind"] == "alone"]
    assert len({line["pid"] for line in alone}) == 1
    for one in alone:
        others = (line for line in lines if line is not one and line["kind"] != "quiet")
        assert all(line["ended"] < one["began"] or one["ended"] < line["began"] for line in others)
    for kind in ("grouped", "quiet"):
        assert len({line["pid"] for line in lines if line["kind"] == kind}) == 1
    assert len({line["of"] for line in lines if line["kind"] == "sharing"}) == 1

    ports = {line["pid"]: line["ports"] for line in lines if line["kind"] == "together"}
    ranges = [range(*map(int, each.split("-"))) for each in ports.values()]
    assert len({each[0] for each in ranges}) == len(ranges)
    assert all(FIRST <= each[0] <= each[-1] <= LAST for each in ranges)
