"""`berth status` and `berth top` beside a real kube-scheduler, with the ledger found by infra's own settings.

Their errors and forms, without a control plane, are in tests/cli/test_inspect.py and tests/cli/test_watch.py.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import BERTH, System, pool
from tests.support.builders.manifests import put, rendered
from tests.support.cluster import wait
from tests.support.fakes.terminal import Terminal

pytestmark = pytest.mark.long

LEDGER = "configmap://berth-ledger/ledger"
FROM = f"berth: ledger: {LEDGER} (from ConfigMap berth/berth-settings)"
CALM, FULL = "1 pool, 2 of 2 units free, 0 pods wait", "1 pool, 0 of 2 units free, 1 pod waits"


@pytest.mark.nightly
def test_the_ledger_is_found_by_the_cluster_s_settings_and_watched_as_pods_come(
    system_of: Systems, tmp_path: Path
) -> None:
    system = system_of(1, pools=[pool(units=2)], store=LEDGER)
    put(system.cluster, rendered("per-verb", "ConfigMap"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = system.berth.run("status")
    assert (done.returncode, done.stderr.splitlines()) == (0, [FROM])
    assert done.stdout.splitlines()[0] == CALM
    with (elsewhere / "blocks").open("w") as blocks:
        piped = subprocess.Popen(
            # A shell has its background jobs ignore Ctrl-C, and so what the tests start there.
            ["env", "--default-signal=INT", BERTH, "status", "--watch", "--interval", "0.5"],
            cwd=elsewhere,
            env=_environment(system),
            stdout=blocks,
            stderr=subprocess.PIPE,
            text=True,
        )
    with Terminal([BERTH, "top", "--interval", "0.5"], _environment(system), elsewhere) as terminal:
        try:
            wait(lambda: CALM in terminal.text, 60, "the table in place")
            wait(lambda: CALM in (elsewhere / "blocks").read_text(), 60, "the first block")
            system.cluster.create_pods("a", "b", "c")
            wait(lambda: FULL in terminal.text, 60, "two units in use in the table")
            wait(lambda: "WHY THEY WAIT" in terminal.text, 60, "why the third waits")
            wait(lambda: FULL in (elsewhere / "blocks").read_text(), 60, "two units in use in a block")
        finally:
            piped.send_signal(signal.SIGINT)
            said = piped.communicate(timeout=60)[1]
        terminal.press(b"\x03")
        assert (terminal.end(60), piped.returncode) == (130, 130)
        assert terminal.shows_cursor()
    assert said.splitlines() == [FROM]


def _environment(system: System) -> dict[str, str]:
    own = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
    return {**own, "HOME": str(system.berth.folder), "KUBECONFIG": str(system.berth.kubeconfig)}
