"""A function that hangs is ended and started again, and nobody else is held up; one that only works is left.

The functions are fakes, served like Berth's own; how long silence may last is cut
short. On a real control plane, with the seconds that `berth up` has: tests/e2e/test_up.py.
"""

import errno
import http.client
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from berth.local.processes import Functions, Supervisor
from tests.support.cluster import wait

pytestmark = pytest.mark.long

SECONDS = 90.0
MORE_CALLS = 540
NAMES = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "extender")
_FAKE = """
import os
from pathlib import Path

from berth.errors import StoreUnavailableError
from berth.http.endpoint import Endpoint, Reply, Router, error_reply
from berth.http.function import Served

folder = Path(__file__).parent


def wait():
    (folder / "done").open().close()  # a pipe: until the test opens it, too


def health():
    with (folder / "asked").open("a") as asked:
        asked.write(".")
    if (folder / "stuck").exists():
        wait()
    if (folder / "sick").exists():
        raise StoreUnavailableError("it is sick")


def answer(headers, body):
    return Reply(200, str(os.getppid()).encode())


def work(headers, body):
    (folder / "began").touch()
    wait()
    return answer(headers, body)


def endpoint(answer):
    failed = lambda message, _: error_reply(500, message)
    return Endpoint(name="{name}", answer=answer, failed=failed, health=health, body_limit=1000)


def {name}():
    pass


router = Router(name="{name}", endpoints={{"work": endpoint(work)}}, health=health, default=endpoint(answer))
{name}.served = Served(router, None)
"""
Start = Callable[..., "Stage"]


class Stage:
    """Functions, running, and what they said."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder, self.said = folder, list[Mapping[str, object]]()
        self.functions = Functions(folder, 0, self.said.append, single=True, **options)  # type: ignore[arg-type]
        self.functions.start()
        assert self.functions.wait_ready(threading.Event())

    def pids(self) -> dict[tuple[str, int | None], int | None]:
        return {(each.name, each.replica): each.pid for each in self.functions.all}

    def wait_said(self, **fields: object) -> Mapping[str, object]:
        def found() -> Mapping[str, object] | None:
            said = (each for each in list(self.said) if {key: each.get(key) for key in fields} == fields)
            return next(said, None)

        line = wait(found, SECONDS, f"that {fields} is said")
        assert line is not None
        return line

    def answer(self, name: str, path: str = "/") -> str:
        connection = http.client.HTTPConnection(urlsplit(self.functions.urls[name]).netloc, timeout=SECONDS)
        try:
            connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(_FAKE.format(name=name))
        os.mkfifo(tmp_path / name / "done")
    made: list[Supervisor] = []

    def stage(**options: object) -> Stage:
        found = Stage(tmp_path, **options)
        made.append(found.functions)
        return found

    yield stage
    for each in made:
        each.stop()


def _stop(pid: int | None) -> None:
    assert pid is not None
    os.killpg(pid, signal.SIGSTOP)


def _kill(pid: int | None) -> None:
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)


def test_one_that_is_stopped_is_replaced_and_answers_again_on_its_port(start: Start) -> None:
    stage = start(silence=3.0)
    before = stage.pids()
    hung = before["release", None]
    _stop(hung)
    assert stage.answer("reconcile") == str(before["reconcile", None])
    said = stage.wait_said(function="release", state="hung")
    assert said["why"] == "it answered nothing for 3 s"
    assert said["pid"] == hung
    assert stage.wait_said(function="release", state="died")["exit"] == -signal.SIGKILL
    wait(lambda: stage.pids()["release", None] not in (None, hung), SECONDS, "another process")
    wait(lambda: stage.said[-1].get("state") == "ready", SECONDS, "that it is ready")
    assert stage.answer("release") == str(stage.pids()["release", None])
    assert [name for name, pid in stage.pids().items() if pid != before[name]] == [("release", None)]


def test_a_replica_that_is_stopped_is_replaced_alone(start: Start) -> None:
    stage = start(silence=3.0, replicas=2)
    before = stage.pids()
    _stop(before["extender", 2])
    stage.wait_said(function="extender", replica=2, state="hung")
    wait(lambda: stage.said[-1].get("state") == "ready", SECONDS, "that it is ready")
    assert [name for name, pid in stage.pids().items() if pid != before[name]] == [("extender", 2)]
    answers = {stage.answer("extender") for _ in range(2)}
    assert answers == {str(pid) for (name, _), pid in stage.pids().items() if name == "extender"}


def test_one_that_hangs_while_it_starts_keeps_nobody_from_being_started_again(
    start: Start, tmp_path: Path
) -> None:
    stage = start(silence=4 * SECONDS)  # a look that waited for its answer would wait for a third of that
    before = stage.pids()
    (tmp_path / "release" / "stuck").touch()
    _kill(before["release", None])
    stage.wait_said(function="release", state="died")
    seen = _asked(tmp_path, "release")
    wait(lambda: _asked(tmp_path, "release") > seen, SECONDS, "that the new one is asked for its health")
    _kill(before["reconcile", None])
    stage.wait_said(function="reconcile", state="died")
    wait(lambda: stage.said[-1].get("state") == "ready", SECONDS, "that it is ready")
    assert stage.answer("reconcile") == str(stage.pids()["reconcile", None])
    assert "ready" not in [
        line["state"] for line in stage.said if line.get("pid") == stage.pids()["release", None]
    ]
    (tmp_path / "release" / "stuck").unlink()
    _let_go(tmp_path / "release")
    stage.wait_said(function="release", state="ready", pid=stage.pids()["release", None])


def test_a_worker_that_hangs_behind_a_process_that_died_gives_the_port_back(start: Start) -> None:
    stage = start()
    pid = stage.pids()["extender", None]
    assert pid is not None
    os.killpg(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)  # the workers stay, stopped, with the port
    stage.wait_said(function="extender", state="died", exit=-signal.SIGKILL)
    wait(lambda: stage.said[-1].get("state") == "ready", SECONDS, "that it is ready")
    assert stage.answer("extender") == str(stage.pids()["extender", None])


def test_one_that_works_for_long_is_left_to_it(start: Start, tmp_path: Path) -> None:
    stage = start(silence=3.0)
    before = stage.pids()
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(stage.answer, "reconcile", "/work")
        wait((tmp_path / "reconcile" / "began").exists, SECONDS, "that the work has begun")
        seen = _asked(tmp_path)
        # More than would end one that is silent.
        wait(lambda: _asked(tmp_path) >= seen + 4, SECONDS, "more questions for its health")
        _let_go(tmp_path / "reconcile")
        assert call.result(SECONDS) == str(before["reconcile", None])
    assert stage.pids() == before


def test_one_with_more_calls_than_it_may_answer_at_once_is_left_to_them(start: Start) -> None:
    """As bind has beside a slow API server. Its health was not told then, and it was ended in the burst."""
    stage = start(silence=3.0)
    before = stage.pids()
    call = b"POST /work HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    with ExitStack() as stack:
        for _ in range(MORE_CALLS):
            address = "127.0.0.1", urlsplit(stage.functions.urls["extender"]).port
            connection = stack.enter_context(socket.create_connection(address, SECONDS))
            connection.sendall(call)
        seen = _asked(stage.folder, "extender")
        wait(lambda: _asked(stage.folder, "extender") >= seen + 4, SECONDS, "more questions for its health")
    assert "hung" not in [line.get("state") for line in stage.said]
    assert stage.pids() == before


def _let_go(folder: Path) -> None:
    """Let the function go on that waits at its pipe. Where none waits any more, fail and wait for none."""

    def let_go() -> bool:
        try:
            os.close(os.open(folder / "done", os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return False
        return True

    wait(let_go, 5.0, "that the function waits at its pipe")


def _asked(folder: Path, name: str = "reconcile") -> int:
    return (folder / name / "asked").stat().st_size


def test_one_whose_store_is_away_is_no_hung_one(start: Start, tmp_path: Path) -> None:
    stage = start(silence=3.0)
    before = stage.pids()
    (tmp_path / "reconcile" / "sick").touch()
    seen = _asked(tmp_path)
    wait(lambda: _asked(tmp_path) >= seen + 4, SECONDS, "more questions for its health")
    assert stage.pids() == before


def test_an_event_that_is_never_answered_ends_the_processes_that_had_it(start: Start) -> None:
    stage = start(replicas=2)
    before = stage.pids()
    stage.functions.end("reconcile", "an event got no answer within 600 s", 0.0)
    assert "hung" not in [line.get("state") for line in stage.said]  # all began later
    stage.functions.end("reconcile", "an event got no answer within 600 s", float("inf"))
    for replica in (1, 2):
        stage.wait_said(function="reconcile", replica=replica, state="died", exit=-signal.SIGKILL)
    wait(
        lambda: [each.get("state") for each in stage.said[-2:]] == ["ready"] * 2,
        SECONDS,
        "that both are ready",
    )
    changed = [name for name, pid in stage.pids().items() if pid != before[name]]
    assert changed == [("reconcile", 1), ("reconcile", 2)]


def test_one_that_works_in_its_only_thread_is_not_silent(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THREADS", "1")
    test_one_that_works_for_long_is_left_to_it(start, tmp_path)
