"""`berth demo`, as a user runs it, and what it does when a promise is broken or it is interrupted.
That the promises hold on a real kube-scheduler is shown by tests/e2e."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.text import Text

from berth.cli import demo, main
from berth.demo import control_planes
from berth.demo.stage import environment
from berth.demo.story import Measured, Played, Story
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


@pytest.mark.nightly
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


def test_it_ends_with_what_was_measured_a_line_for_each_world(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _played(monkeypatch, NAIVE, KEPT)
    assert main(["demo"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "naive counter: 6 over-allocated, 2 leaked, waiter: after 5 minutes",
        "berth:         0 over-allocated, 0 leaked, waiter: 0.2 s",
    ]


class _Told(Story):
    """Tells the longest lines that the story has, without worlds."""

    def play(self) -> None:
        self._tell("pod-1 is deleted, its event arrives, and other pods wait for just that.")
        played = SimpleNamespace(world=SimpleNamespace(name="naive counter"))
        self._line(
            cast("Played", played),
            "13 still waiting after 5 s beside 12 free units; kube-scheduler tries them again when something "
            "else changes, else after 5 minutes",
        )


def test_no_line_is_longer_than_72_columns_and_the_rest_of_one_is_indented() -> None:
    lines: list[str] = []
    world: Any = SimpleNamespace(world=None)
    _Told(world, world, lines.append).play()
    text = [*demo._WORLDS.splitlines(), *demo._PLAYED.splitlines(), *demo._REAL.splitlines()]
    told = "\n".join(lines).splitlines()
    assert [line for line in [*text, *told] if len(line) > 72] == []
    assert told[:4] == [
        "",
        "1. pod-1 is deleted, its event arrives, and other pods wait for just",
        "   that.",
        "   naive counter: 13 still waiting after 5 s beside 12 free units;",
    ]
    assert all(line.startswith(" " * 18) for line in told[4:])


WRONG_AND_RIGHT = (
    "6. pod-4 is deleted,\n   at once.\n   naive counter: 8 bound; over-allocated 1; leaked 2\n"
    "   berth:         9 bound\nberth:         0 over-allocated, 0 leaked, waiter: 0.2 s"
)


@pytest.mark.parametrize(("no_color", "red"), [(None, ["over-allocated 1", "leaked 2"]), ("1", [])])
def test_on_a_terminal_what_went_wrong_is_red_unless_no_color_is_set(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, red: list[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    console = demo._console()
    console.file = io.StringIO()
    console.print(Text(WRONG_AND_RIGHT))
    shown = console.file.getvalue()
    assert re.findall(r"\x1b\[31m(.*?)\x1b\[0m", shown) == red
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown).rstrip() == WRONG_AND_RIGHT


# berth demo --real: what it builds


_BUILD = """
import pathlib, sys
print("controlplane: building etcd and kube-apiserver", flush=True)
print("controlplane: etcd built in 3 s", flush=True)
print("controlplane: no Go found: install Go", file=sys.stderr)
folder = pathlib.Path(__file__).with_name(".bin")
folder.mkdir()
for name in ("etcd", "kube-apiserver", "kube-scheduler"):
    (folder / name).touch()
sys.exit({code})
"""


def _checkout(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    build = folder / "tests" / "controlplane" / "build"
    build.parent.mkdir(parents=True)
    build.write_text(_BUILD.format(code=code))
    (folder / "pyproject.toml").touch()
    monkeypatch.setattr("berth.__file__", str(folder / "shared" / "berth" / "__init__.py"))
    return build.with_name(".bin")


def test_what_a_build_says_is_told_line_by_line_to_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _checkout(tmp_path, monkeypatch, 0)
    with demo._progress() as tell:
        assert control_planes.binaries(None, tell) == folder
    told = "berth: building etcd and kube-apiserver\nberth: etcd built in 3 s\n"
    assert capsys.readouterr() == ("", told)


def test_on_a_terminal_a_build_has_a_clock_beside_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    folder, shown = _checkout(tmp_path, monkeypatch, 0), Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown)
    with demo._progress() as tell:
        assert control_planes.binaries(None, tell) == folder
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert "etcd built in 3 s\n" in text.replace("\r", "")
    assert re.search(r"0:00:0\d ", text)


@pytest.mark.parametrize(("code", "advice"), [(3, "--binaries DIR"), (1, "install Go")])
def test_a_build_that_fails_is_told_with_its_own_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    advice: str,
) -> None:
    _checkout(tmp_path, monkeypatch, code)
    assert main(["demo", "--real"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("berth: the control plane could not be built: controlplane: no Go found: install")
    assert said.endswith(advice)


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
@pytest.mark.long
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


@pytest.mark.long
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
        wait(lambda: "berth:         0 over-allocated, 0 leaked" in terminal.text, 10, "its last line")
    before, _, after = terminal.text.partition("The table below is Berth's ledger")
    assert "Two worlds" in before
    assert "1. 8 pods arrive" in after
    assert "POOL" in after
    said = demo_picture.plain(terminal.text)
    recorded = demo_picture.shown(demo_picture.PICTURE.read_text())
    assert [line for line in recorded if demo_picture.plain(line) not in said] == [], "run `make docs`"
