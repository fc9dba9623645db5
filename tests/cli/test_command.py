"""The `berth` command's words and exit codes: a mistake ends with one line that names what to mend.
What `berth up` does to a cluster is shown by tests/e2e."""

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from berth.cli import main
from berth.cli.arguments import parsed
from berth.testing.api_server import StandIn
from tests.support.servers.framework import send

BERTH = Path(sys.executable).with_name("berth")
NAMES = ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS", "BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `main` sets is taken back; relative paths are below tmp_path."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Leads to a stand-in with one node, which says that it has `lots` of addresses."""
    with StandIn() as api:
        node = {"metadata": {"name": "n1", "annotations": {"example.com/addresses": "lots"}}}
        kind = {"Content-Type": "application/json"}
        send(api.url, "POST", "/api/v1/nodes", json.dumps(node).encode(), kind)
        yield api.kubeconfig(tmp_path / "kubeconfig")


def _pools(path: Path, *capacities: tuple[str, object]) -> Path:
    documents = [
        {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "Pool",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"nodeAnnotation": units} if isinstance(units, str) else {"perDomain": units}
            },
        }
        for name, units in capacities
    ]
    path.write_text(yaml.safe_dump_all(documents))
    return path


def _units(path: Path) -> Mapping[str, int]:
    documents = yaml.safe_load_all(path.read_text())
    return {found["metadata"]["name"]: found["spec"]["capacity"]["perDomain"] for found in documents}


def _berth(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(BERTH), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which it ends, with exit code 1."""
    assert main([str(argument) for argument in arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith("berth: ")
    assert said.count("\n") == 1
    return said


def _until(condition: Callable[[], object], what: str) -> None:
    give_up_at, pause = time.monotonic() + 60, threading.Event()
    while not condition():
        assert time.monotonic() < give_up_at, what
        pause.wait(0.05)


def _answers(url: str) -> bool:
    try:
        return send(url, "GET", "/healthz", b"", {})[0] == 200
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), ("up", "demo", "apply", "reconcile", "suspend", "external", "release")),
        (("up",), ("--kubeconfig", "--store", "-f", "--port", "--scheduler-config", "--json", "65526")),
        (("up",), ("--single", "--replicas", "1 to 9")),
        (("demo",), ("--port", "--json")),
        (("apply",), ("--kubeconfig", "-f", "--pools", "without its comments")),
        (("reconcile",), ("--kubeconfig", "--store", "-f", "-o")),
        (("explain",), ("POD", "NAMESPACE/NAME", "-n", "--kubeconfig", "--store", "-o")),
        (("suspend",), ("POOL", "DOMAIN", "--resume", "--kubeconfig", "--pools", "--store")),
        (("external",), ("POOL", "N", "--kubeconfig", "--pools", "--store")),
        (("release",), ("POD_UID", "--node", "--pool", "--unit", "--dry-run", "--kubeconfig", "--store")),
    ],
)
def test_help_names_every_subcommand_and_option(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert [name for name in names if name not in said] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--resume", "pool", "a", "b"),
        ("pool", "--resume", "a", "b"),
        ("pool", "a", "--resume", "b"),
        ("pool", "a", "b", "--resume"),
    ],
)
def test_suspend_takes_its_domains_before_and_after_its_options(arguments: tuple[str, ...]) -> None:
    found = parsed(["suspend", *arguments])
    assert (found.pool, found.domains, found.resume) == ("pool", ["a", "b"], True)


@pytest.mark.parametrize(
    "arguments",
    [("suspend", "pool", "--resume", "a", "--no"), ("external", "pool", "1", "--pools", "f", "2")],
)
def test_an_argument_that_nobody_takes_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert f"unrecognized arguments: {arguments[-1]}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.parametrize("port", ["-1", "65528", "http"])
def test_a_port_that_cannot_be_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], command: str, port: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, f"--port={port}"])
    assert ended.value.code == 2
    assert "should be a number from 0 to 65526" in capsys.readouterr().err


def test_up_with_a_ledger_that_cannot_be_written_ends_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kubeconfig: Path
) -> None:
    (tmp_path / "file").touch()
    store = f"sqlite:///{tmp_path}/file/ledger.db"
    said = _failed(capsys, "up", "--kubeconfig", kubeconfig, "--store", store, "--port", 0)
    assert f"can't be opened ({store}, Not a directory)" in said


@pytest.mark.parametrize(
    ("json_lines", "first"), [(False, "berth: ledger sqlite:///{}/.berth/ledger.db\n"), (True, "")]
)
def test_a_scheduler_configuration_that_cannot_be_written_is_named(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, kubeconfig: Path, json_lines: bool, first: str
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "scheduler.yaml"
    options = ["--kubeconfig", str(kubeconfig), "--port", "0", "--scheduler-config", str(out)]
    assert main(["up", *options, *(["--json"] if json_lines else [])]) == 1
    said = capfd.readouterr()
    assert said.err == f"berth: can't write {out} (--scheduler-config): File exists\n"
    assert said.out == first.format(tmp_path)


def test_up_keeps_the_functions_alive_when_nobody_reads_what_it_says(
    tmp_path: Path, kubeconfig: Path
) -> None:
    pools = _pools(tmp_path / "pools.yaml", ("underlay-ip", 1))
    options = ["--kubeconfig", str(kubeconfig), "-f", str(pools), "--port", "0", "--json"]
    up = subprocess.Popen(
        [BERTH, "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert up.stdout is not None
        first = json.loads(up.stdout.readline())
        up.stdout.close()
        _until(lambda: _answers(first["url"]), "the function answers although its state is not read")
        os.killpg(first["pid"], signal.SIGKILL)  # its workers too: what answers afterwards is a new one
        _until(lambda: not Path(f"/proc/{first['pid']}").exists(), "the function is gone")
        _until(lambda: _answers(first["url"]), "the function was started again")
    finally:
        up.terminate()
        up.wait(60)
    assert up.returncode == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(first["url"].rpartition(":")[2]))) != 0


@pytest.mark.parametrize(
    ("units", "code", "problem"), [(3, 0, ""), ("example.com/addresses", 1, "problem: underlay-ip: node n1")]
)
def test_reconcile_names_its_ledger_and_tells_problems_by_its_exit_code(
    tmp_path: Path, kubeconfig: Path, units: object, code: int, problem: str
) -> None:
    pools = _pools(tmp_path / "pools.yaml", ("underlay-ip", units))
    store = "sqlite:///ledgers/a.db"
    done = _berth("reconcile", "--kubeconfig", kubeconfig, "-f", pools, "--store", store)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(f"ledger: sqlite:///{tmp_path}/ledgers/a.db\n")
    assert ("problem:" in done.stdout) == bool(problem)
    assert problem in done.stdout


def test_apply_to_a_file_adds_replaces_by_name_and_keeps_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    active = _pools(tmp_path / "active.yaml", ("a", 1), ("b", 2))
    new = _pools(tmp_path / "new.yaml", ("b", 20), ("c", 30))
    assert main(["apply", "-f", str(new), "--pools", str(active)]) == 0
    assert capsys.readouterr().out == f"applied to {active}: b, c\n"
    assert _units(active) == {"a": 1, "b": 20, "c": 30}
    assert [path.name for path in tmp_path.iterdir()].count("active.yaml.new") == 0


@pytest.mark.parametrize("how", ["--pools", "BERTH_POOLS"])
def test_apply_to_a_file_that_is_not_there_makes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    active, new = tmp_path / "active.yaml", _pools(tmp_path / "new.yaml", ("a", 1))
    if how == "BERTH_POOLS":
        monkeypatch.setenv(how, str(active))
    options = [how, str(active)] if how == "--pools" else []
    assert main(["apply", "-f", str(new), *options]) == 0
    assert capsys.readouterr().out == f"applied to {active}, which is new: a\n"
    assert _units(active) == {"a": 1}


def test_apply_of_something_wrong_makes_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    new.write_text("kind: Pod")
    assert str(new) in _failed(capsys, "apply", "-f", new, "--pools", tmp_path / "active.yaml")
    assert list(tmp_path.iterdir()) == [new]


def test_apply_to_a_folder_that_is_not_there_names_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new = _pools(tmp_path / "new.yaml", ("a", 1))
    said = _failed(capsys, "apply", "-f", new, "--pools", "none/active.yaml")
    assert said == f"berth: can't write {tmp_path}/none/active.yaml.new: No such file or directory\n"


@pytest.mark.parametrize("command", ["up", "reconcile", "suspend"])
def test_a_file_of_pools_that_is_not_there_is_named_by_whoever_would_read_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    pool = ["pool"] if command == "suspend" else []
    said = _failed(capsys, command, *pool, "--pools", "none.yaml")
    assert said == f"berth: there is no file {tmp_path}/none.yaml (--pools)\n"


@pytest.mark.parametrize("option", ["--pools", "--kubeconfig"])
def test_an_address_in_place_of_a_file_is_named_without_its_password(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    said = _failed(capsys, "suspend", "ip", option, "https://me:s3cr3t@example.com/a.yaml")
    shown = "https://me:***@example.com/a.yaml"
    assert said == f"berth: {shown} is no file ({option}): fetch it, and name the file\n"


def test_apply_leaves_a_symbolic_link_to_the_pools_in_its_place(tmp_path: Path) -> None:
    active, link = _pools(tmp_path / "active.yaml", ("a", 1)), tmp_path / "link.yaml"
    link.symlink_to(active)
    new = _pools(tmp_path / "new.yaml", ("b", 2))
    assert main(["apply", "-f", str(new), "--pools", str(link)]) == 0
    assert link.is_symlink()
    assert _units(active) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no Pool and no PoolClaim: nothing was applied"),
        ("---\n# later\n---\n", "holds no Pool and no PoolClaim: nothing was applied"),
        ("kind: Pod", "each document should be an object with apiVersion: berth.dev/v1alpha1 and kind: Pool"),
        (None, "No such file or directory"),
    ],
)
def test_apply_refuses_a_wrong_document_and_leaves_the_file_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, why: str
) -> None:
    active, new = _pools(tmp_path / "active.yaml", ("a", 1)), tmp_path / "new.yaml"
    before = active.read_bytes()
    if text is not None:
        new.write_text(text)
    said = _failed(capsys, "apply", "-f", new, "--pools", active)
    assert str(new) in said
    assert why in said
    assert active.read_bytes() == before


def test_a_mistake_in_yaml_is_shown_with_its_line_and_a_mark_below_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new = tmp_path / "new.yaml"
    new.write_text("kind: Pool\nspec: a: b\n")
    assert main(["apply", "-f", str(new), "--pools", str(tmp_path / "active.yaml")]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"berth: {new} is not YAML, line 2: mapping values are not allowed here",
        "    spec: a: b",
        "           ^",
    ]


@pytest.mark.parametrize("old", ["- just\n- a list\n", "kind: Pool\n", "text"])
def test_apply_onto_a_file_that_is_not_right_names_that_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, old: str
) -> None:
    active = tmp_path / "active.yaml"
    active.write_text(old)
    said = _failed(capsys, "apply", "-f", _pools(tmp_path / "new.yaml", ("b", 2)), "--pools", active)
    assert said.startswith(f"berth: {active}: each document should be")
    assert active.read_text() == old


def test_apply_to_a_place_that_cannot_be_written_names_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    active = _pools(tmp_path / "active.yaml", ("a", 1))
    (tmp_path / "active.yaml.new").mkdir()
    said = _failed(capsys, "apply", "-f", _pools(tmp_path / "new.yaml", ("b", 2)), "--pools", active)
    assert said == f"berth: can't write {active}.new: Is a directory\n"
    assert _units(active) == {"a": 1}


def test_a_reader_that_is_gone_ends_it_quietly(tmp_path: Path) -> None:
    active, new = _pools(tmp_path / "active.yaml", ("a", 1)), _pools(tmp_path / "new.yaml", ("b", 2))
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(BERTH), "apply", "-f", str(new), "--pools", str(active)]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_output_that_cannot_be_written_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    active, new = _pools(tmp_path / "active.yaml", ("a", 1)), _pools(tmp_path / "new.yaml", ("b", 2))
    monkeypatch.setattr(sys, "stdout", Full())
    said = _failed(capsys, "apply", "-f", new, "--pools", active)
    assert said == "berth: standard output: No space left on device\n"
