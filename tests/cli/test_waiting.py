"""`berth waiting` as a person or a program meets it, with a stand-in for the API server.

What its rows say: tests/unit/controller/test_waiting.py; a real kube-scheduler: tests/e2e/test_waiting.py.
"""

import io
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import msgspec
import pytest
import yaml
from rich.console import Console

from berth.cli import main
from berth.cli.status import LedgerState
from berth.cli.waiting import WaitingReport, in_blocks, on_terminal, waiting_lines
from berth.controller.waiting import Seen, waiting
from berth.errors import ClusterRefusedError, ClusterUnavailableError, StoreUnavailableError
from berth.kube.cluster import Cluster as KubeCluster
from berth.kube.types import PodInFull
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.cli.test_inspect import _reconciled as reconciled
from tests.support.builders.copies import pause
from tests.support.cluster import Cluster
from tests.unit.controller.test_waiting import NOW, full, pod

SAID = "0/1 nodes are available: 1 x."


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("BERTH_", "KUBE"))]:
        monkeypatch.delenv(name)
    for name in ("BERTH_STORE", "KUBECONFIG", "BERTH_CONTEXT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def api() -> Iterator[StandIn]:
    with StandIn() as started:
        yield started


@pytest.fixture
def cluster(api: StandIn) -> Iterator[Cluster]:
    found = Cluster(api.url, "")
    yield found
    found.close()


def said(
    capsys: pytest.CaptureFixture[str], folder: Path, store: str, *options: str, code: int = 0
) -> tuple[str, str]:
    kubeconfig = str(folder / "kubeconfig")
    assert main(["waiting", "--store", store, "--kubeconfig", kubeconfig, *options]) == code
    found = capsys.readouterr()
    return found.out, found.err


def refuse(cluster: Cluster, name: str) -> None:
    """What kube-scheduler writes at its first attempt."""
    condition = {"type": "PodScheduled", "status": "False", "message": SAID}
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    cluster.patch(path, {"status": {"conditions": [condition]}}, "strategic")


def test_who_waits_is_shown_in_every_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn, cluster: Cluster
) -> None:
    store = reconciled(tmp_path, api)
    cluster.create_pod("a")
    refuse(cluster, "a")
    cluster.create_pod("big", {"berth.dev/underlay-ip": 2}, "other")
    cluster.create_pod("gated", scheduling_gates=["later"])
    cluster.create_pod("elsewhere", scheduler="default-scheduler")
    out, err = said(capsys, tmp_path, store)
    headline, header, *rows = out.splitlines()
    assert headline == (
        "2 pods wait for 1 pool; 1 could be placed now; 1 more in no pool's line (scheduling gates, or they "
        "ask for no pool)"
    )
    assert header.split() == ["PLACE", "NAMESPACE", "POD", "POOL", "ASKED", "PRIORITY", "SINCE", "WHY"]
    cells = [row.split(maxsplit=7) for row in rows]
    assert [[*line[:6], line[7]] for line in cells] == [
        [
            *("1", "default", "a", "underlay-ip", "1", "0"),
            f"could be placed now; it waits for kube-scheduler, which said last: {SAID}",
        ],
        ["2", "other", "big", "underlay-ip", "2", "0", "underlay-ip: 1 of 1 free, 2 asked"],
        [
            *("-", "default", "gated", "underlay-ip", "1", "0"),
            "has scheduling gates (later): it is in no scheduler's queue",
        ],
    ]
    assert err.startswith("berth: default/elsewhere: asks for underlay-ip, but its schedulerName is default-")
    found = json.loads(said(capsys, tmp_path, store, "-o", "json", "-n", "other")[0])
    assert found["ledger"] == {"store": store, "open": True, "why": ""}
    assert found["summary"] == {"waiting": 1, "pools": 1, "placeable": 0, "other": 0}
    (row,) = found["pods"]
    assert (row["place"], row["pod"], row["asked"], row["state"], row["tried"]) == (
        2,
        "big",
        2,
        "waiting",
        False,
    )
    text = said(capsys, tmp_path, store, "-o", "yaml", "-n", "other")[0]
    assert yaml.safe_load(text) == found
    assert said(capsys, tmp_path, store, "--pool", "seat")[0] == "no pod waits for a pool\n"


def test_what_can_not_be_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = reconciled(tmp_path, api)
    out, err = said(capsys, tmp_path, store, "--pool", "sear", code=1)
    assert (out, err.count("\n")) == ("", 1)
    assert "there is no pool sear in the ledger" in err
    api.stop()
    out, err = said(capsys, tmp_path, store, code=1)
    assert (out, err.count("\n")) == ("", 1)
    assert api.url in err


def test_another_clusters_ledger_says_nothing_of_these_pods(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = reconciled(tmp_path, api)
    with StandIn() as another:
        another.kubeconfig(tmp_path / "kubeconfig")
        found = json.loads(said(capsys, tmp_path, store, "-o", "json", code=1)[0])
        assert (found["ledger"]["open"], found["pods"]) == (False, [])
        assert "belongs to another cluster" in said(capsys, tmp_path, store, code=1)[0]


def test_only_who_may_not_read_nodes_is_told_without_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = reconciled(tmp_path, api)
    refused = ClusterRefusedError("nodes is forbidden", 403)
    with mock.patch.object(KubeCluster, "nodes", side_effect=refused):
        err = said(capsys, tmp_path, store)[1]
    assert err == "berth: which nodes are cordoned is not known: nodes is forbidden\n"
    away = ClusterUnavailableError("the API server did not answer")
    with mock.patch.object(KubeCluster, "nodes", side_effect=away):
        out, err = said(capsys, tmp_path, store, code=1)
    assert (out, err.partition(";")[0]) == ("", "berth: the API server did not answer")


def report(*pods: PodInFull, why: str = "") -> WaitingReport:
    found = waiting(Seen(pods, full(), NOW), ("berth",))
    return WaitingReport(**msgspec.structs.asdict(found), ledger=LedgerState("sqlite:///x", not why, why))


def test_on_a_narrow_terminal_reasons_go_on_below_themselves_and_no_word_is_cut() -> None:
    long = pod("a", schedulingGates=[{"name": f"example.com/gate-{number}"} for number in range(9)])
    why = report(long).pods[0].why
    lines = waiting_lines(report(long), NOW, 110)[1:]
    at = lines[0].index("WHY")
    assert len(lines) > 2
    assert max(map(len, lines)) <= 110
    assert {line[:at].strip() for line in lines[2:]} == {""}
    assert " ".join(line[at:] for line in lines[1:]) == why
    below = [line.strip() for line in waiting_lines(report(long), NOW, 60)]
    assert " ".join(below[below.index("WHY") + 2 :]) == why


def test_of_many_pods_each_reason_is_stated_once_and_the_first_rows_are_shown() -> None:
    found = report(*(pod(f"p{number}", second=number % 60) for number in range(40)), pod("x", ip=2))
    headline, *lines = waiting_lines(found, NOW, None)
    assert headline == "41 pods wait for 1 pool; none could be placed now"
    assert lines[:2] == [
        "(1) 40 pods: ip: 0 of 2 free, 1 asked",
        "(2) 1 pod: ip: 0 of 2 free, 2 asked",
    ]
    assert lines[3].split()[-1] == "(1)"
    assert len(lines) == 2 + 1 + 30 + 1
    assert lines[-1] == "and 11 more: -o json has all of them, --pool and -n choose"


def test_problems_and_a_closed_ledger_stand_above_all() -> None:
    lines = waiting_lines(report(pod("a", minute=1, said=None), why="it is being copied"), NOW, None)
    assert lines[0] == "it is being copied"
    assert lines[2].startswith(
        "problem: no scheduler named berth has tried pod d/a for 8 min since it was made"
    )


class Looks:
    """Reports, or errors, one after another; then Ctrl-C."""

    def __init__(self, *found: WaitingReport | Exception) -> None:
        self.left = list(found)

    def look(self) -> WaitingReport:
        found = self.left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def wait(self, seconds: float) -> None:
        assert seconds == 7.5
        if not self.left:
            raise KeyboardInterrupt


def test_a_watch_prints_each_change_once_and_goes_on_while_the_store_is_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = StoreUnavailableError("the store is away")
    looks = Looks(report(pod("a")), report(pod("a")), away, away, report())
    with pytest.raises(KeyboardInterrupt):
        in_blocks(looks.look, "table", 7.5, looks.wait, lambda: NOW)
    out, err = capsys.readouterr()
    first, second = out.split("\n\n")
    assert first.splitlines()[:2] == [
        "2026-01-01T00:10:00Z",
        "1 pod waits for 1 pool; none could be placed now",
    ]
    assert second.splitlines() == ["2026-01-01T00:10:00Z", "no pod waits for a pool"]
    assert err == "berth: the store is away\n"


def test_on_a_terminal_a_watch_is_drawn_anew_within_its_height() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=8, force_terminal=True, color_system=None)
    looks = Looks(report(*(pod(f"p{number}") for number in range(9))), report(pod("last")))
    with pytest.raises(KeyboardInterrupt):
        on_terminal(looks.look, 7.5, looks.wait, console, lambda: NOW)
    text = out.getvalue()
    assert "and 5 more lines: --pool and -n choose" in text
    assert text.index("9 pods wait") < text.index("1 pod waits") < text.rindex("\x1b[?25h")


@pytest.mark.parametrize("watch", [(), ("--watch",)])
def test_a_ledger_that_was_moved_says_so_and_nothing_of_who_waits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn, cluster: Cluster, watch: tuple[str, ...]
) -> None:
    store = reconciled(tmp_path, api)
    cluster.create_pod("a")
    with closing(open_store(store)) as opened:
        pause(opened, moved=True)
    out, _ = said(capsys, tmp_path, store, *watch, code=1)
    assert out.splitlines()[-1] == "berth's ledger was moved to redis://there; set BERTH_STORE to it"
    out, _ = said(capsys, tmp_path, store, "-o", "json", code=1)
    assert json.loads(out)["looked"] is False
