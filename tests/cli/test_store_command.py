"""`berth store`, as a person or a program meets it; for what a copy promises see tests/ledger."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from berth.cli import main
from berth.ledger.keys import REBUILD
from berth.ledger.migrate import Copy
from berth.local.ports import free_port
from berth.stores import open_store
from tests.support.builders.copies import claims_in, gives, pause
from tests.support.builders.ledgers import claim, ledger_on, opened

BERTH = Path(sys.executable).with_name("berth")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative paths are below tmp_path."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[str]:
    """A ledger with one claim; its URL."""
    url = f"sqlite:///{tmp_path}/old.db"
    with closing(opened(url, {("ip", "n1"): 2, ("ip", "n2"): 2})) as store:
        ledger_on(store).reserve(claim("first"))
        yield url


def _failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The last line of standard error, with exit code 1."""
    assert main(["store", *arguments]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("berth: ")
    return said.err.splitlines()[-1]


def _gives(url: str) -> str:
    with closing(open_store(url)) as store:
        return gives(store)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), ("copy", "resume", "init")),
        (("copy",), ("FROM", "TO", "-o", "Exit codes: 0", "berth store resume FROM", "BERTH_STORE")),
        (("resume",), ("URL", "Exit codes: 0")),
        (("init",), ("URL", "--protect", "Exit codes: 0")),
    ],
)
def test_help_names_every_subcommand_and_option(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["store", *arguments, "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert [name for name in names if name not in said] == []


def test_a_copy_tells_what_it_does_and_the_old_store_says_where_the_ledger_is(
    source: str, tmp_path: Path
) -> None:
    target = f"sqlite:///{tmp_path}/folder/new.db"
    command = [str(BERTH), "store", "copy", "sqlite:///old.db", "sqlite:///folder/new.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    size = lines[1].partition("(")[2].partition(" ")[0]
    assert lines == [
        f"claims in {source} are paused",
        f"copied 2 documents ({size} bytes): 1 claims that hold 1 units",
        f"verified: {target} holds the same, document by document",
        f"moved: set BERTH_STORE to {target} wherever berth's functions run",
    ]
    with closing(open_store(target)) as store:
        assert list(claims_in(store)) == ["first"]
    assert (_gives(source), _gives(target)) == ("MovedError", "yes")


def test_a_copy_for_a_program_is_one_line_of_json(
    capsys: pytest.CaptureFixture[str], source: str, tmp_path: Path
) -> None:
    target = f"sqlite:///{tmp_path}/new.db"
    assert main(["store", "copy", source, target, "-o", "json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found.pop("bytes") > 100
    assert found == {"from": source, "to": target, "documents": 2, "claims": 1, "units": 1}
    assert (
        said.err.splitlines()[-1]
        == f"berth: moved: set BERTH_STORE to {target} wherever berth's functions run"
    )


def test_a_copy_that_can_t_be_made_says_why_and_claims_go_on(
    capsys: pytest.CaptureFixture[str], source: str, tmp_path: Path
) -> None:
    old = f"{tmp_path}/old.db"
    assert "can't be copied onto itself" in _failed(capsys, "copy", "sqlite:///old.db", source)
    assert f"there is no ledger at sqlite:///{tmp_path}/none.db: FROM should" in _failed(
        capsys, "copy", "sqlite:///none.db", source
    )
    assert not (tmp_path / "none.db").exists()
    assert f"can't be opened (sqlite:///{old}/new.db, Not a directory)" in _failed(
        capsys, "copy", source, f"{source}/new.db"
    )
    assert _gives(source) == "yes"


def test_a_password_is_never_shown(capsys: pytest.CaptureFixture[str], source: str) -> None:
    away = f"redis://me:s3cr3t@127.0.0.1:{free_port()}/0"
    for arguments in (("copy", source, away), ("copy", away, source), ("copy", away, away), ("resume", away)):
        assert "s3cr3t" not in _failed(capsys, *arguments)
    said = _failed(capsys, "init", away)
    assert "redis://127.0.0.1" in said
    assert "connection refused" in said


def test_a_url_may_come_from_the_environment_where_ps_does_not_show_it(
    capsys: pytest.CaptureFixture[str], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD", source)
    assert main(["store", "copy", "env:OLD", "sqlite:///new.db"]) == 0
    assert _gives(source) == "MovedError"
    capsys.readouterr()
    assert _failed(capsys, "resume", "env:NEW") == (
        "berth: env:NEW: the environment has no variable NEW: set it to a store's URL"
    )


def test_a_wrong_url_is_named_by_its_place(capsys: pytest.CaptureFixture[str], source: str) -> None:
    assert _failed(capsys, "copy", source, "postgres://host").startswith(
        "berth: TO 'postgres://host' should be"
    )
    assert _failed(capsys, "resume", "sqlite:///old.db?x=1").startswith(
        "berth: URL: 'sqlite:///old.db?x=1' should"
    )


def test_part_of_a_copy_is_shown_as_such(capsys: pytest.CaptureFixture[str], source: str) -> None:
    with closing(open_store(source)) as store, closing(open_store("sqlite:///new.db")) as new:
        assert new.commit(
            {REBUILD: b"copy c1", "domain/ip/n1": store.read(["domain/ip/n1"])["domain/ip/n1"].body}, {}
        )
    assert main(["status", "--store", "sqlite:///new.db"]) == 1
    said = capsys.readouterr().out.splitlines()[0]
    assert said == "this is part of a copy that has not ended: repeat berth store copy"


def test_resume_ends_the_pause_of_a_copy_that_died(
    capsys: pytest.CaptureFixture[str], source: str, tmp_path: Path
) -> None:
    assert main(["store", "resume", source]) == 0
    assert capsys.readouterr().out == f"claims in {source} were not paused\n"
    with closing(open_store(source)) as store:
        pause(store)
        assert main(["status", "--store", source]) == 1
        assert "is being copied to redis://there; claims are paused" in capsys.readouterr().out
        assert main(["store", "resume", "sqlite:///old.db"]) == 0
        assert capsys.readouterr().out == f"claims go on in {source}\n"
        assert gives(store) == "yes"
        pause(store, moved=True)
    assert "was moved to redis://there; set BERTH_STORE to it" in _failed(capsys, "resume", source)
    assert "there is no ledger at" in _failed(capsys, "resume", f"sqlite:///{tmp_path}/none.db")


def test_a_copy_that_is_ended_from_outside_is_undone(
    capsys: pytest.CaptureFixture[str], source: str, tmp_path: Path
) -> None:
    """SIGTERM in mid-copy, once claims are paused."""

    def end(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with mock.patch.object(Copy, "_write", end):
        assert main(["store", "copy", source, f"sqlite:///{tmp_path}/new.db"]) == 130
    said = capsys.readouterr().out.splitlines()
    assert said == [f"claims in {source} are paused", f"nothing was moved. Claims go on in {source}"]
    assert _gives(source) == "yes"
    assert signal.getsignal(signal.SIGTERM) == before


def test_init_says_which_stores_need_nothing_and_refuses_what_can_t_be_meant(
    capsys: pytest.CaptureFixture[str], source: str
) -> None:
    assert main(["store", "init", source]) == 0
    assert capsys.readouterr().out == f"{source} answers, and needs nothing made\n"
    assert "--protect is for the table of a dynamodb:// store" in _failed(capsys, "init", source, "--protect")
    assert "URL 'mysql://host' should be a store's URL" in _failed(capsys, "init", "mysql://host")
