"""`berth licences` where the Pools are in a file: what it shows, what it writes, and that a bad text writes
nothing. What the texts say is tested with their formats."""

import io
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from berth.cli import main
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.objects import pool_document
from tests.support.servers.serving import serving
from tests.unit.licences.test_formats import LMSTAT

PASSWORD = "poller:hush"


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Ten licences for the cluster, of which one pod holds two; its checkout is in the text."""
    path = tmp_path / "pools.yaml"
    seats = pool_document("matlab", scope="Cluster", capacity={"domains": {"*": 10}})
    path.write_text(yaml.safe_dump_all([pool_document("ip"), seats]))
    with StandIn() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        monkeypatch.setenv("BERTH_POOLS", str(path))
        monkeypatch.setenv("BERTH_STORE", f"sqlite:///{tmp_path}/ledger.db")
        assert main(["reconcile"]) == 0
        with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
            held = (Holding("matlab", "*", 2),)
            ledger_on(store).adopt(
                Claim(uid="u", namespace="d", name="berth-pod-1", node="n1", holdings=held, state="bound")
            )
        yield path


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "lmstat.txt"
    path.write_text(LMSTAT)
    return str(path)


def external(pools: Path) -> int:
    by_name = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(pools.read_text())}
    return int(by_name["matlab"].get("external", 0))


def test_it_shows_who_uses_how_many_and_writes_nothing(
    pools: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["licences", "matlab", "--from", text, "--feature", "MATLAB"]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "Pool matlab, feature MATLAB:\n"
        "  issued         10  the Pool has 10\n"
        "  in use          6  3 queued\n"
        "  by pods         2  by their claims\n"
        "  unclaimed       0  checked out by pods beyond their claims\n"
        "  by others       4  with what is reserved for somebody\n"
        "  missing         0  the Pool has more than the server\n"
        "  external        4  what no pod may get; the Pool says 0\n"
    )
    assert "nothing was written: say --write" in said.err
    assert external(pools) == 0


def test_it_writes_what_others_use_and_what_the_server_does_not_have(
    pools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    fewer = LMSTAT.replace("Total of 10 licenses issued", "Total of 8 licenses issued").replace(
        "berth-pod-1", "x"
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(fewer.encode())))
    assert main(["licences", "matlab", "--feature", "MATLAB", "--write", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {name: said[name] for name in ("pods", "others", "missing", "external", "before", "idle")} == {
        "pods": 2,
        "others": 6,
        "missing": 2,
        "external": 8,
        "before": 0,
        "idle": ["berth-pod-1"],
    }
    assert said["writtenTo"] == str(pools)
    assert external(pools) == 8


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["matlab"], "the text counts no licences of the feature matlab; it counts: MATLAB, Simulink"),
        (["matlab", "--feature", "MATLAB", "--format", "json"], "not licences as JSON"),
        (["matlap", "--feature", "MATLAB"], "there is no Pool matlap; there are: ip, matlab"),
        (["ip", "--feature", "MATLAB"], "Pool ip has scope Node: external use goes with scope Cluster only"),
    ],
)
def test_what_can_not_be_read_writes_nothing(
    pools: Path, text: str, words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["licences", *words, "--from", text, "--write"]) == 1
    assert error in capsys.readouterr().err
    assert external(pools) == 0


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """A server that answers any GET so; its URL, with a password in it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            return

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://{PASSWORD}@127.0.0.1:{server.server_port}/lmstat"


def test_a_url_is_read(pools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200, LMSTAT) as url:
        assert main(["licences", "matlab", "--from", url, "--feature", "MATLAB", "--write"]) == 0
    assert external(pools) == 4
    assert f"written to {pools}" in capsys.readouterr().out


def test_a_url_that_says_nothing_of_use_is_named_without_its_password(
    pools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["licences", "matlab", "--feature", "MATLAB", "--write", "--from"]
    with answering(404, LMSTAT) as url:
        assert main([*words, url]) == 1
    said = capsys.readouterr().err
    assert "/lmstat answered 404" in said
    assert main([*words, url]) == 1
    said += capsys.readouterr().err
    assert "can't read http" in said
    assert "hush" not in said
    assert external(pools) == 0


def test_a_file_that_is_not_there_is_named(pools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["licences", "matlab", "--from", "/none/lmstat.txt"]) == 1
    assert "can't read /none/lmstat.txt: No such file or directory" in capsys.readouterr().err
    assert external(pools) == 0


def test_a_pool_that_reads_what_others_use_names_the_feature_and_is_not_written_by_hand(
    pools: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"feature": "MATLAB", "staleAfterSeconds": 90}
    seats = pool_document("matlab", scope="Cluster", capacity={"domains": {"*": 10}}, externalFrom=source)
    pools.write_text(yaml.safe_dump_all([seats]))
    assert main(["reconcile"]) == 0
    capsys.readouterr()
    assert main(["licences", "matlab", "--from", text]) == 0
    said = capsys.readouterr().out
    assert "external        6  what no pod may get; the ledger counts 0\n" in said
    assert said.endswith("what others use was never read: nothing new is given\n")
    for words in (["licences", "matlab", "--from", text, "--write"], ["external", "matlab", "3"]):
        assert main(words) == 1
        assert "Pool matlab has externalFrom: what others use is read" in capsys.readouterr().err
    assert external(pools) == 0
