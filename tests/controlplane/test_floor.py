"""The floor of `make bench`: a minimal extender in Go that answers as kube-scheduler's API wants it.
What it costs is measured by the bench, not here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import go_programs
from tests.bench.client import CallError, Client
from tests.bench.contender_processes import Server
from tests.bench.contenders import the_floor

pytestmark = pytest.mark.long

SAMPLES = Path(__file__).parents[2] / "events" / "extender"
NAMES = {"n0", "n1", "n2"}


@pytest.fixture(scope="module")
def up(binaries: Path) -> Iterator[Server]:
    """Built where the control plane is, so with a Go that is there."""
    assert go_programs.binary("floor").parent == binaries
    with the_floor(("filter", "prioritize")) as found:
        yield found.servers["filter"]


def _answer(up: Server, verb: str, sample: str) -> bytes:
    with Client(up.port) as client:
        return client.call(verb, (SAMPLES / sample).read_bytes()).body


def test_the_floor_lets_every_name_pass(up: Server) -> None:
    answer = json.loads(_answer(up, "filter", "filter-names.json"))
    assert set(answer["NodeNames"]) == NAMES
    assert answer["Nodes"] is None
    assert answer["Error"] == ""


def test_the_floor_sends_full_nodes_back(up: Server) -> None:
    answer = json.loads(_answer(up, "filter", "filter-full.json"))
    sent = json.loads((SAMPLES / "filter-full.json").read_bytes())
    names = [node["metadata"]["name"] for node in answer["Nodes"]["items"]]
    assert names == [node["metadata"]["name"] for node in sent["Nodes"]["items"]]


@pytest.mark.parametrize("sample", ["prioritize-names.json", "prioritize-full.json"])
def test_the_floor_likes_every_node_alike(up: Server, sample: str) -> None:
    answer = json.loads(_answer(up, "prioritize", sample))
    assert {each["Host"] for each in answer} == NAMES
    assert {each["Score"] for each in answer} == {5}


def test_an_answer_that_is_an_error_is_no_figure(up: Server) -> None:
    with Client(up.port) as client, pytest.raises(CallError, match="400"):
        client.call("filter", b"no JSON")


def test_the_bench_tells_how_berth_stands_to_the_floor(
    up: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up.port
    figures = tmp_path / "figures.json"
    tiny = ["--nodes", "20", "--rounds", "2", "--calls", "2", "--cases", "full", "--stores", "sqlite"]
    assert bench.main([*tiny, "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text())["rows"]
    assert [row["contender"] for row in rows] == ["floor", "sqlite"] * 2
    assert all(row["ratio"] == 1 for row in rows[::2])
    assert all(row["ratio"] > 0 for row in rows[1::2])
    assert "× floor" in capsys.readouterr().out
