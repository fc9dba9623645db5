"""A test run that is ended from outside leaves nothing behind: neither `berth up`, nor its functions, nor a
control plane's programs (Linux)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import wait
from tests.support.processes import is_running

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90.0
_TEST = """
import json, threading
from pathlib import Path

from berth.testing.api_server import StandIn
from berth.testing.control_plane import Component
from tests.e2e.harness import Berth

FAKE = '''
from berth.http.endpoint import Endpoint, Reply
from berth.http.function import Served

def {0}():
    pass

answers = dict.fromkeys(("answer", "failed"), lambda *_: Reply(200, b"{{}}"))
{0}.served = Served(Endpoint(name="{0}", health=lambda: None, body_limit=1000, **answers), None)
'''


def test_that_never_ends():
    folder = Path(__file__).parent
    for name in ("extender", "release", "inventory", "reconcile"):
        (folder / "functions" / name).mkdir(parents=True)
        (folder / "functions" / name / "main.py").write_text(FAKE.format(name))
    with StandIn() as api:
        kubeconfig = api.kubeconfig(folder / "kubeconfig")
        berth = Berth(folder / "berth", kubeconfig, functions=folder / "functions", single=True)
        berth.start()
        component = Component("etcd", ["sleep", "1000"], folder / "log", "")
        component.start()
        pids = [berth.process.pid, component.process.pid, *berth.replica_pids.values()]
        (folder / "pids.new").write_text(json.dumps(pids))
        (folder / "pids.new").rename(folder / "pids")
        threading.Event().wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)])
def test_a_run_that_is_ended_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "test_ended.py").write_text(_TEST)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "tests.conftest",
    ]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(
            [*command, "-p", "no:cacheprovider", str(tmp_path / "test_ended.py")],
            cwd=ROOT,
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait((tmp_path / "pids").exists, SECONDS, "that berth up is ready")
        pids = json.loads((tmp_path / "pids").read_text())
        assert len(pids) == 6
        assert all(map(is_running, pids))
        run.send_signal(how)
        run.wait(SECONDS)
        wait(lambda: not any(map(is_running, pids)), SECONDS, "that all processes have ended")
    finally:
        run.kill()
        run.wait()
        for pid in filter(is_running, pids):
            os.kill(pid, signal.SIGKILL)
