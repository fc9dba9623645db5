"""Functions as forks: each is a process like one that was started, and ends with those it belongs to."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.local.forkserver import ForkServer
from tests.support.cluster import wait

SECONDS = 60.0
TELLS = """
import json, os, sys
told = [sys.argv, dict(os.environ), os.getsid(0) == os.getpid(), sys.stdin.read()]
print(json.dumps(told), flush=True)
print(open("/proc/self/comm").read() if sys.platform == "linux" else "release", file=sys.stderr)
sys.exit(3)
"""
WAITS = """
import os, signal
print(os.getppid(), flush=True)
signal.pause()
"""


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer(["berth.http.server"])
    yield server
    server.close()


def arguments(folder: Path, source: str) -> list[str]:
    path = folder / "main.py"
    path.write_text(source)
    return ["--source", str(path), "--target", "release"]


def test_a_fork_is_told_what_it_is_and_tells_its_output_and_its_end(
    server: ForkServer, tmp_path: Path
) -> None:
    options = arguments(tmp_path, TELLS)
    fork, output = server.fork(options, {"A": "b" * 100_000})
    with output:
        told, name = output.read().decode().splitlines()[:2]
    (_, *argv), environment, leads_its_session, stdin = json.loads(told)
    assert argv == options
    assert environment == {"A": "b" * 100_000}
    assert leads_its_session
    assert stdin == ""
    assert name == "release"
    assert fork.wait(SECONDS)
    assert fork.poll() == 3


def test_who_ends_with_a_word_says_it_and_ends_with_1(server: ForkServer, tmp_path: Path) -> None:
    fork, output = server.fork(arguments(tmp_path, "import sys\nsys.exit('berth can\\'t start')\n"), {})
    with output:
        assert output.read() == b"berth can't start\n"
    assert fork.wait(SECONDS)
    assert fork.poll() == 1


def test_wrong_arguments_end_a_fork_alone(server: ForkServer, tmp_path: Path) -> None:
    waiting, output = server.fork(arguments(tmp_path, WAITS), {})
    wrong, said = server.fork(["--nonsense"], {})
    with said:
        assert b"usage: python -m berth.http.server" in said.read()
    assert wrong.wait(SECONDS)
    assert wrong.poll() == 2
    with output:
        assert output.readline()
        assert waiting.poll() is None
        waiting.terminate()
        assert waiting.wait(SECONDS)
    assert waiting.poll() == -signal.SIGTERM


def test_forks_end_with_their_server_and_the_next_one_gets_another(
    server: ForkServer, tmp_path: Path
) -> None:
    options = arguments(tmp_path, WAITS)
    fork, output = server.fork(options, {})
    with output:
        parent = int(output.readline())
        os.kill(parent, signal.SIGKILL)
        assert output.read() == b""  # it is gone
    assert fork.wait(SECONDS)
    assert fork.poll() == -signal.SIGTERM
    _, output = server.fork(options, {})
    with output:
        assert int(output.readline()) != parent


def test_one_that_can_not_import_what_it_must_is_an_error_each_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server = ForkServer(["berth.nonsense"])
    for _ in range(2):
        with pytest.raises(ChildProcessError, match="the process that starts functions has died"):
            server.fork(arguments(tmp_path, WAITS), {})
    server.close()
    assert "No module named 'berth.nonsense'" in capfd.readouterr().err


def test_one_that_hangs_is_killed_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    source = f"open({str(pid)!r}, 'w').write(str(os.getpid()))"
    (tmp_path / "hangs.py").write_text(f"import os, signal\n{source}\nsignal.pause()\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    server = ForkServer(["hangs"], seconds=5.0)
    with pytest.raises(ChildProcessError, match="the process that starts functions has died"):
        server.fork(arguments(tmp_path, WAITS), {})
    server.close()
    wait(lambda: not Path(f"/proc/{pid.read_text()}").exists(), SECONDS, "the server is gone")


def test_closed_it_leaves_no_process(server: ForkServer, tmp_path: Path) -> None:
    fork, output = server.fork(arguments(tmp_path, WAITS), {})
    with output:
        parent = int(output.readline())
        server.close()
        assert fork.wait(SECONDS)
        assert output.read() == b""
    wait(lambda: not Path(f"/proc/{parent}").exists(), SECONDS, "the server is gone")
