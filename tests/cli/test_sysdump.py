"""`berth sysdump` without a cluster, and its options. What it reads of one: tests/e2e/test_sysdump.py."""

import errno
import json
import os
import tarfile
from pathlib import Path

import pytest

from berth.cli import main
from berth.cli.sysdump import PARTS
from tests.support.builders.ledgers import two_pools


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster is at hand, and what `main` sets is taken back."""
    for name in ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS", "BERTH_AUTH_TOKEN", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file}


def test_without_a_cluster_the_ledger_is_in_the_archive_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    two_pools(store).close()
    assert main(["sysdump", "--store", store]) == 0
    (path,) = tmp_path.glob("berth-sysdump-*Z.tar.gz")
    assert capsys.readouterr().out.startswith(f"{path.name}: ")
    files = unpacked(path)
    assert {name.partition("/")[0] for name in files} == {"berth-sysdump"}
    ledger = json.loads(files["berth-sysdump/ledger.json"])
    assert {*ledger["domains"]} == {"ip", "seat"}
    errors = files["berth-sysdump/errors.txt"]
    assert "pods.json: no cluster to talk to" in errors
    assert "no cluster" in files["berth-sysdump/summary.txt"].splitlines()[1]


def test_what_is_wrong_with_the_settings_is_in_the_archive_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_SCHEDULER_NAMES", " ")
    assert main(["sysdump", "-o", "x.tar.gz"]) == 0
    errors = unpacked(tmp_path / "x.tar.gz")["berth-sysdump/errors.txt"]
    assert "settings: BERTH_SCHEDULER_NAMES is empty" in errors
    assert "ledger.json: there is no ledger at" in errors


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_text("mine")
    assert main(["sysdump", "-o", str(path)]) == 1
    assert capsys.readouterr().err == f"berth: {path} is there already: name another file with -o\n"
    assert path.read_text() == "mine"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_of_an_archive_that_could_not_be_written_nothing_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
) -> None:
    def full(number: int, _: str) -> None:
        os.close(number)
        raise error

    monkeypatch.setattr(os, "fdopen", full)
    code = main(["sysdump", "-o", "x.tar.gz"])
    assert not (tmp_path / "x.tar.gz").exists()
    assert (code, capsys.readouterr().err) in (
        (1, "berth: can't write x.tar.gz: No space left on device\n"),
        (130, ""),
    )


@pytest.mark.parametrize("since", ["", "1", "0h", "-1h", "1w", "h"])
def test_a_time_that_is_none_is_refused(since: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sysdump", f"--since={since}"])
    assert caught.value.code == 2
    assert "should be a time such as 30s, 10m, 1h or 2d" in capsys.readouterr().err


def test_each_part_has_a_file_of_its_own() -> None:
    names = [name for name, _ in PARTS]
    assert len({*names}) == len(names)
