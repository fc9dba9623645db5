"""`berth demo`, as a user runs it, and what it does when a promise is broken or it is interrupted.
That the promises hold on a real kube-scheduler is shown by tests/e2e."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from berth.cli import demo, main
from berth.demo.stage import environment
from berth.demo.story import Measured
from tests.docs import demo_picture
from tests.support.cluster import wait
from tests.support.fakes.terminal import Terminal

BERTH = Path(sys.executable).with_name("berth")
AS_IN_A_TERMINAL = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)  # whatever those who run the tests ignore
os.execv(sys.argv[1], sys.argv[1:])
"""
KEPT = Measured(wake_seconds=0.2, bound=9, waiting=8)
NAIVE = Measured(
    over_allocated=6,
    leaked=2,
    uncounted=9,
    wake_seconds=None,
    watched_seconds=5.0,
    free_beside_waiter=2,
    bound=15,
    waiting=2,
)
NUMBERS = {
    "overAllocated",
    "leaked",
    "uncounted",
    "wakeSeconds",
    "watchedSeconds",
    "freeBesideWaiter",
    "bound",
    "waiting",
}


def _played(monkeypatch: pytest.MonkeyPatch, naive: Measured, berth: Measured) -> None:
    monkeypatch.setattr(demo, "_stderr_held_back", nullcontext)
    monkeypatch.setattr(demo, "_played", lambda *_: (naive, berth))


def test_a_signal_is_handled_before_there_is_a_folder_to_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = []

    def folder(prefix: str) -> nullcontext[str]:
        handlers.append(signal.getsignal(signal.SIGTERM))
        return nullcontext(prefix)

    _played(monkeypatch, NAIVE, KEPT)
    monkeypatch.setattr("tempfile.TemporaryDirectory", folder)
    assert main(["demo", "--json"]) == 0
    assert signal.SIG_DFL not in handlers
    assert len(handlers) == 1


def test_the_naive_counter_fails_each_time_and_berth_keeps_its_promises() -> None:
    done = subprocess.run(
        [BERTH, "demo", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert [set(numbers) for numbers in result.values()] == [NUMBERS, NUMBERS]
    naive, berth = result["naive"], result["berth"]
    assert (naive["overAllocated"], naive["leaked"], naive["wakeSeconds"]) == (6, 2, None)
    assert (naive["freeBesideWaiter"], naive["bound"], naive["waiting"]) == (2, 15, 2)
    assert berth.pop("wakeSeconds") >= 0
    assert berth == {**dict.fromkeys(berth, 0), "bound": 9, "waiting": 8}


@pytest.mark.parametrize("broken", [{"over_allocated": 1}, {"leaked": 1}, {"bound": 8}])
def test_a_broken_promise_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: dict[str, Any]
) -> None:
    _played(monkeypatch, NAIVE, Measured(**{"wake_seconds": 0.2, "bound": 9, "waiting": 8, **broken}))
    assert main(["demo"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("berth: a promise was broken: 1 unit")
    assert said.count("\n") == 1


def test_it_ends_with_one_line_of_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _played(monkeypatch, NAIVE, KEPT)
    assert main(["demo"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "naive counter: 6 over-allocated, 2 leaked, waiter: after the 5-minute flush · berth: 0, 0, 0.2 s"
    )


def test_the_words_of_the_demo_are_left_out_of_its_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _played(monkeypatch, NAIVE, KEPT)
    assert main(["demo", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["naive"]["overAllocated"], result["berth"]["wakeSeconds"]) == (6, 0.2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--binaries", "bin"], "--binaries is for --real"),
        (["--real", "--binaries", "bin"], "there is no etcd, no kube-apiserver, no kube-scheduler in "),
    ],
)
def test_what_the_real_demo_needs_is_said_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"berth: {says}")
    assert said.count("\n") == 1


def test_without_a_checkout_the_real_demo_asks_for_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("berth.__file__", str(tmp_path / "lib" / "site" / "berth" / "__init__.py"))
    assert main(["demo", "--real"]) == 1
    assert "--binaries DIR" in capsys.readouterr().err


def _processes_of(tag: str) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TAG_OF_THIS_TEST={tag}".encode() in each.read_bytes().split(b"\0"):
                found.append(each.parent.name)
        except OSError:
            continue  # it has ended meanwhile
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_interrupted_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TAG_OF_THIS_TEST": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", AS_IN_A_TERMINAL, BERTH, "demo"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("1. ") for line in process.stdout), "the first step is played"
        assert len(_processes_of(str(tmp_path))) > 1
        process.send_signal(number)
        process.stdout.read()
        assert process.wait(60) == 128 + number
    give_up_at, pause = time.monotonic() + 30, threading.Event()
    while left := _processes_of(str(tmp_path)):
        assert time.monotonic() < give_up_at, f"left: {left}"
        pause.wait(0.05)
    assert list(tmp_path.iterdir()) == []


def test_functions_that_do_not_start_end_the_demo_with_a_word() -> None:
    hasty = (
        "import sys; from berth.cli import main; from berth.demo import stage; "
        "stage._START_SECONDS = 0.0; sys.exit(main(['demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", hasty], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "berth: the demo's functions did not start within 0 s" in done.stderr


def test_what_the_demo_is_run_with_does_not_reach_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_BODY_LIMIT", "no number")
    with environment({}):
        assert "BERTH_BODY_LIMIT" not in os.environ
    assert os.environ["BERTH_BODY_LIMIT"] == "no number"


@pytest.mark.long
def test_on_a_terminal_a_table_of_berths_pools_follows_the_story(tmp_path: Path) -> None:
    own = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
    with Terminal([str(BERTH), "demo"], {**own, "TERM": "xterm"}, tmp_path, size=(160, 60)) as terminal:
        wait(lambda: terminal.process.poll() is not None, 180, "the end of the demo")
        assert terminal.process.returncode == 0, terminal.text
        wait(lambda: "berth: 0, 0, " in terminal.text, 10, "its last line")
    before, _, after = terminal.text.partition("The table below is Berth's ledger")
    assert "Two worlds" in before
    assert "1. 8 pods arrive" in after
    assert "POOL" in after
    said = demo_picture.plain(terminal.text)
    recorded = demo_picture.shown(demo_picture.PICTURE.read_text())
    assert [line for line in recorded if demo_picture.plain(line) not in said] == [], "run `make docs`"
