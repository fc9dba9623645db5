"""`berth up` on a terminal, with a stand-in for the API server: a table in place, the terminal given back.

What the table shows of which ledger is in tests/unit/cli/test_dashboard.py.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.testing.api_server import StandIn
from tests.e2e.harness import BERTH, faulty_functions
from tests.support.builders.accounts import FUNCTIONS
from tests.support.builders.objects import pool_document
from tests.support.cluster import Cluster, wait
from tests.support.fakes.terminal import Terminal

VERBS = ("filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile")
NOISE = "a line of filter's"
PATIENCE = 180  # seconds: eight processes start, and CI has two slow cores
UNDERLAY = "1 underlay-ip: 0 of 1 free, 1 asked."
READY = "berth: ready: all functions answer, the ledger is reconciled"


@pytest.fixture
def api() -> Iterator[StandIn]:
    with StandIn() as started:
        yield started


def _up(folder: Path, api: StandIn, **environment: str) -> Terminal:
    """`berth up` on a terminal of its own, one node with one unit; filter says something when it starts."""
    cluster = Cluster(api.url, "")
    cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    cluster.close()
    (folder / "pools.yaml").write_text(yaml.safe_dump(pool_document(capacity={"perDomain": 1})))
    noisy = (
        f"import sys\n\nprint({NOISE!r}, file=sys.stderr)\n" + (FUNCTIONS / "filter" / "main.py").read_text()
    )
    functions = faulty_functions(folder, filter=noisy)
    own = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
    command = [BERTH, "up", "--port", "0", "--functions", str(functions)]
    command += ["--kubeconfig", str(api.kubeconfig(folder / "kubeconfig")), "-f", str(folder / "pools.yaml")]
    command += ["--store", f"sqlite:///{folder}/ledger.db"]
    return Terminal(command, {**own, **environment}, folder, size=(400, 40))


def _until(terminal: Terminal, text: str) -> None:
    def found() -> bool:
        assert terminal.process.poll() is None, f"berth up has ended: {terminal.text}"
        return text in terminal.text

    try:
        wait(found, PATIENCE, f"{text!r} on the terminal")
    except AssertionError as error:
        raise AssertionError(f"{error}; there was:\n{terminal.text}") from None


def _refuse(api: StandIn, name: str) -> None:
    """A pod of ours that kube-scheduler found no node for."""
    cluster = Cluster(api.url, "")
    cluster.create_pod(name)
    said: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    said["message"] = f"0/1 nodes are available: {UNDERLAY} preemption: 0/1 nodes are available."
    cluster.patch(
        f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"conditions": [said]}}, "strategic"
    )
    cluster.close()


def _spoil_and_mend(pools: Path, terminal: Terminal) -> None:
    """A mistake in the Pools is told, stays below the table, and goes from there once it is mended."""
    right = pools.read_text()
    mistake = f"{pools}: Pool underlay-ip: spec.score 'spread' should be one of Spread, Pack"
    pools.write_text(right.replace("perDomain: 1", "perDomain: 1\n  score: spread"))
    _until(terminal, f"berth: problem: {mistake}")
    _until(terminal, f"\n{mistake}")
    pools.write_text(right)
    _until(terminal, f"berth: mended (it was): {mistake}")
    wait(lambda: f"\n{mistake}" not in terminal.text, PATIENCE, "the complaint is gone")


def test_up_on_a_terminal_shows_a_table_in_place_and_ctrl_c_gives_the_terminal_back(
    tmp_path: Path, api: StandIn
) -> None:
    with _up(tmp_path, api) as terminal:
        _until(terminal, READY)
        _until(terminal, "underlay-ip   n1       1          0      1      0         -")
        assert not terminal.shows_cursor()
        _refuse(api, "waiter")
        _until(terminal, "underlay-ip   <all>    1          0      1      0         1")
        _until(terminal, f"0/1 nodes are available: {UNDERLAY}")
        assert "preemption" not in terminal.text
        _spoil_and_mend(tmp_path / "pools.yaml", terminal)
        terminal.press(b"\x03")
        assert terminal.end(PATIENCE) == 0
        assert terminal.shows_cursor()
        assert terminal.unknown == ""
        above, _, below = terminal.text.partition("POOL          DOMAIN")
    assert "POOL" not in below
    lines = above.splitlines()
    assert {f"filter | {NOISE}", "berth: stopping"} <= set(lines)
    assert [
        line for line in lines if not line.startswith(("berth: ", *(f"{name} | " for name in VERBS)))
    ] == []
    assert [line for line in below.splitlines() if "berth:" in line or " | " in line] == []


@pytest.mark.long
def test_on_a_terminal_that_cannot_move_its_cursor_up_writes_plain_lines(
    tmp_path: Path, api: StandIn
) -> None:
    with _up(tmp_path, api, TERM="dumb") as terminal:
        _until(terminal, READY)
        terminal.press(b"\x03")
        assert terminal.end(PATIENCE) == 0
        assert terminal.sequences == 0
        assert "POOL" not in terminal.text
