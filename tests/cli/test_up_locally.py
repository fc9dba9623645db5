"""`berth up` without a cluster behind it: its processes, how it ends, and what it refuses to begin with.

The functions are small fakes where only their processes matter; on a real
control plane it is shown by tests/e2e/test_up.py.
"""

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main, states
from berth.local.ports import free_port
from berth.testing.api_server import StandIn
from tests.e2e.harness import BERTH, Berth, pool
from tests.support.cluster import wait
from tests.support.processes import group_is_alive

SECONDS = 90.0
FUNCTIONS = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "extender")
NAMES = ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS", "BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE")
_FAKE = """
import json, os

from berth.http.endpoint import Endpoint, Reply, error_reply
from berth.http.function import Served


def answer(headers, body):
    said = {{"process": os.getppid(), "threads": os.environ.get("THREADS")}}
    return Reply(200, json.dumps(said).encode())


def {name}():
    pass


{name}.served = Served(
    Endpoint(
        name="{name}",
        answer=answer,
        failed=lambda message, _: error_reply(500, message),
        health=lambda: None,
        body_limit=1000,
    ),
    None,
)
"""
# Whatever the test run itself was started with, for this signal `berth up` begins as told.
_WITH_SIGHUP = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))\n"
    "os.execv(sys.argv[2], sys.argv[2:])"
)
Make = Callable[..., Berth]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `main` sets is taken back; relative paths are below tmp_path."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delenv("THREADS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with StandIn() as api:
        yield api.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def berth_of(tmp_path: Path, kubeconfig: Path) -> Iterator[Make]:
    """`berth up` on a stand-in for the API server; what a test leaves running is ended."""
    made: list[Berth] = []

    def make(fakes: bool = True, **options: Any) -> Berth:
        for name in FUNCTIONS:
            (tmp_path / "functions" / name).mkdir(parents=True)
            (tmp_path / "functions" / name / "main.py").write_text(_FAKE.format(name=name))
        functions = tmp_path / "functions" if fakes else None
        made.append(Berth(tmp_path / "berth", kubeconfig, functions=functions, **options))
        return made[-1]

    yield make
    for berth in made:
        berth.stop(seconds=SECONDS)


def _gone(berth: Berth) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in berth.replica_pids.values())


def test_with_replicas_a_function_is_one_url_and_several_processes_that_take_turns(berth_of: Make) -> None:
    berth = berth_of(replicas=3, single=True)
    berth.start(SECONDS)
    assert set(berth.replica_pids) == {(name, number) for name in berth.urls for number in (1, 2, 3)}
    assert len(berth.urls) == 4
    lines = [line for line in berth.lines if "function" in line]
    assert {(line["function"], line["url"]) for line in lines} == set(berth.urls.items())
    pids = [berth.replica_pids["extender", number] for number in (1, 2, 3)]
    asked = [berth.post("extender", {}).body["process"] for _ in range(6)]
    assert sorted(asked[:3]) == sorted(pids)
    assert asked[3:] == asked[:3]


def test_a_killed_replica_is_started_again_and_the_others_are_left_alone(berth_of: Make) -> None:
    berth = berth_of(replicas=2)
    berth.start(SECONDS)
    seen, before = len(berth.lines), dict(berth.replica_pids)
    berth.kill("bind", 2)
    berth.wait_line(function="bind", replica=2, state="ready", since=seen, seconds=SECONDS)
    assert {process for process, pid in berth.replica_pids.items() if pid != before[process]} == {("bind", 2)}
    asked = {berth.post("bind", {}).body["process"] for _ in range(2)}
    assert asked == {berth.replica_pids["bind", 1], berth.replica_pids["bind", 2]}


def test_without_replicas_there_is_nothing_between_a_function_and_its_url(berth_of: Make) -> None:
    berth = berth_of()
    berth.start(SECONDS)
    assert [line for line in berth.lines if "replica" in line] == []
    assert {berth.post("bind", {}).body["process"] for _ in range(3)} == {berth.pids["bind"]}


@pytest.mark.parametrize(("set_", "bind"), [({}, "48"), ({"THREADS": "5"}, "5")])
@pytest.mark.long
def test_functions_that_bind_get_many_threads_unless_the_user_says_how_many(
    berth_of: Make, set_: dict[str, str], bind: str
) -> None:
    berth = berth_of(environment=set_)
    berth.start(SECONDS)
    assert berth.post("bind", {}).body["threads"] == bind
    assert berth.post("filter", {}).body["threads"] == set_.get("THREADS")


@pytest.mark.long
def test_single_starts_the_extender_in_place_of_the_verbs(berth_of: Make) -> None:
    berth = berth_of(single=True)
    berth.start(SECONDS)
    assert set(berth.urls) == {"extender", "release", "inventory", "reconcile"}
    assert berth.post("extender", {}).body["threads"] == "48"


@pytest.mark.long
def test_a_pool_that_comes_later_is_missing_in_the_schedulers_configuration_and_that_is_said_once(
    berth_of: Make,
) -> None:
    berth = berth_of(fakes=False, single=True)
    berth.start(SECONDS)
    berth.write_pools([pool(), pool("later"), pool("other", resource="example.com/other")])
    for resource in ("berth.dev/later", "example.com/other"):
        why = (
            f"kube-scheduler's configuration lacks {resource}: start berth up anew and restart kube-scheduler"
        )
        berth.wait_line(state="problem", why=why, seconds=SECONDS)
    assert berth.stop(seconds=SECONDS) == 0
    assert len([line for line in berth.lines if line.get("state") == "problem"]) == 2


@pytest.mark.long
def test_a_ledger_that_is_lost_is_said_and_so_is_its_return(berth_of: Make) -> None:
    berth = berth_of(fakes=False)
    berth.start(SECONDS)
    berth.ledger_file.unlink()
    lost = berth.wait_line(ledger=berth.store, state="closed", seconds=SECONDS)
    assert "berth reconcile at once" in lost["why"]
    assert berth.reconcile()["rebuilt"]
    berth.wait_line(ledger=berth.store, state="open", seconds=SECONDS)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.long
def test_a_signal_again_and_again_ends_it_in_order(berth_of: Make, how: signal.Signals) -> None:
    command = (sys.executable, "-c", _WITH_SIGHUP, "SIG_DFL", BERTH)
    berth = berth_of(replicas=2, single=True, command=command)
    berth.start(SECONDS)
    assert berth.process is not None
    for _ in range(20):
        berth.process.send_signal(how)
    assert berth.stop(how, SECONDS) == 0
    wait(lambda: berth.lines[-1] == {"state": "stopping"}, SECONDS, "the last word of berth up")
    assert _gone(berth)
    assert "Traceback" not in berth.said(lines=10_000)


def test_one_that_was_started_to_outlive_its_terminal_does(berth_of: Make) -> None:
    berth = berth_of(command=(sys.executable, "-c", _WITH_SIGHUP, "SIG_IGN", BERTH))
    berth.start(SECONDS)
    assert berth.process is not None
    status = Path(f"/proc/{berth.process.pid}/status").read_text()
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert ignored is not None
    assert int(ignored[1], 16) >> (signal.SIGHUP - 1) & 1


def test_a_signal_before_anything_answers_ends_what_was_started(berth_of: Make) -> None:
    berth = berth_of(replicas=2)
    berth.launch()
    berth.wait_line(state="starting", seconds=SECONDS)
    assert berth.stop(signal.SIGINT, SECONDS) == 0
    assert _gone(berth)


def test_a_kill_of_berth_up_itself_leaves_no_function_behind(berth_of: Make) -> None:
    berth = berth_of(replicas=2)
    berth.start(SECONDS)
    berth.stop(signal.SIGKILL, SECONDS)
    groups = berth.replica_pids.values()
    wait(lambda: not any(map(group_is_alive, groups)), SECONDS, "that all functions have ended")


class _Pieces(io.StringIO):
    """A stream that keeps apart what it was given at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


@pytest.mark.parametrize("say", [states.say_json, states.say_text])
def test_a_state_line_is_written_in_one_piece_for_several_threads_say_them(
    monkeypatch: pytest.MonkeyPatch, say: Callable[[dict[str, object]], None]
) -> None:
    stream = _Pieces()
    monkeypatch.setattr(sys, "stdout", stream)
    say({"state": "ready"})
    say({"state": "stopping"})
    assert len(stream.pieces) == 2
    assert all(piece.endswith("\n") for piece in stream.pieces)


def _failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which it ends, with exit code 1, before anything was started."""
    assert main(["up", "--port=0", "--json", *map(str, arguments)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"berth: [^\n]+\n", said.err)
    return said.err


@pytest.mark.parametrize("count", ["0", "10", "two", "-1"])
def test_a_number_of_replicas_that_cannot_be_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], count: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", f"--replicas={count}"])
    assert ended.value.code == 2
    assert "should be a number from 1 to 9" in capsys.readouterr().err


def test_a_store_that_is_down_is_told_in_one_line_without_its_password(
    capsys: pytest.CaptureFixture[str], kubeconfig: Path
) -> None:
    port = free_port()
    said = _failed(capsys, "--kubeconfig", kubeconfig, "--store", f"redis://me:se-cret@127.0.0.1:{port}/0")
    assert f"127.0.0.1:{port}" in said
    assert "check the server and --store" in said
    assert said.count("check") == 1
    assert "se-cret" not in said


def test_single_with_no_pools_in_the_cluster_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kubeconfig: Path
) -> None:
    out = tmp_path / "scheduler.yaml"
    said = _failed(capsys, "--kubeconfig", kubeconfig, "--single", "--scheduler-config", out)
    assert "no Pools: set BERTH_POOLS to a file of them" in said
    assert not out.exists()


def test_single_with_an_empty_file_of_pools_asks_for_one_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kubeconfig: Path
) -> None:
    pools, out = tmp_path / "pools.yaml", tmp_path / "scheduler.yaml"
    pools.touch()
    said = _failed(capsys, "--kubeconfig", kubeconfig, "--single", "-f", pools, "--scheduler-config", out)
    assert f"{pools} holds no Pool" in said
    assert not out.exists()


@pytest.mark.parametrize(("options", "missing"), [([], "prioritize"), (["--single"], "release")])
def test_a_folder_that_lacks_a_function_is_named_with_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kubeconfig: Path, options: list[str], missing: str
) -> None:
    folder = tmp_path / "functions"
    for name in ("filter", "extender"):
        (folder / name).mkdir(parents=True)
        (folder / name / "main.py").touch()
    said = _failed(capsys, "--kubeconfig", kubeconfig, "--functions", folder, *options)
    assert said == f"berth: there is no function {missing} in {folder}\n"


@pytest.mark.parametrize("url", ["redis://:se-cret@host:6379/0", "rediss://host", "postgres://host/x"])
def test_the_url_of_a_store_that_is_no_file_is_left_as_it_is(
    capsys: pytest.CaptureFixture[str], kubeconfig: Path, url: str
) -> None:
    main(["up", "--kubeconfig", str(kubeconfig), "--store", url, "--functions", "/nowhere", "--single"])
    capsys.readouterr()
    assert os.environ["BERTH_STORE"] == url
