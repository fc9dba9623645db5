"""The command line: each command has options and something to run, and the others are not imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from berth.cli import main
from berth.cli.arguments import COMMANDS, build_parser, parsed
from berth.cli.output import as_given

_HELP = """
import contextlib, io, sys
from berth.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
print(*sys.modules)
"""


def test_the_whole_parser_has_the_options_of_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            parser.parse_args([command.name, "--help"])
        usage = capsys.readouterr().out.partition("\n\n")[0].replace("[-h]", "")
        assert usage.removeprefix(f"usage: berth {command.name}").strip()


@pytest.mark.parametrize(
    "arguments",
    [
        *(["up"], ["demo"], ["apply", "-f", "x"], ["reconcile"], ["status"], ["claims"], ["suspend", "p"]),
        *(
            ["explain", "p"],
            ["doctor"],
            ["waiting"],
            ["completion", "bash"],
            ["diff", "-f", "-"],
            ["validate", "-f", "x"],
        ),
        ["simulate", "-f", "x", "--capacity", "p=1", "--capacity", "p/d=0"],
        *(["top"], ["version"], ["version", "--client"]),
        *(["external", "p", "1"], ["release", "uid"], ["scheduler-config"], ["token", "n/s"]),
        *(["store", "copy", "a", "b"], ["store", "resume", "a"], ["store", "init", "a"]),
        *(["sysdump"], ["sysdump", "-o", "x.tar.gz", "--since", "30m", "-n", "berth"]),
        *(["check"], ["check", "--pre"]),
    ],
)
def test_each_command_has_something_to_run(arguments: list[str]) -> None:
    assert callable(parsed(arguments).run)


def test_help_imports_no_command() -> None:
    modules = subprocess.run([sys.executable, "-c", _HELP], capture_output=True, text=True, check=True).stdout
    assert "berth.cli.arguments" in modules.split()
    assert {f"berth.cli.{name}" for name in ("up", "inspect", "store", "demo")} & set(
        modules.split()
    ) == set()
    assert {"kubernetes", "yaml", "rich"} & set(modules.split()) == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stauts"], "'stauts' should be one of up, demo, apply, diff, "),
        (["stauts"], ": did you mean status?"),
        (["store", "int", "u"], "'int' should be one of copy, resume, init: did you mean init?"),
        (["status", "-o", "jsn"], "'jsn' should be one of table, json, yaml: did you mean json?"),
        (["status", "--stroe", "u"], "unrecognized arguments: --stroe u: did you mean --store?"),
        (["suspend", "p", "--resmue", "n1"], "unrecognized arguments: --resmue: did you mean --resume?"),
        (["apply", "-f", "x", "--dryrun"], "unrecognized arguments: --dryrun: did you mean --dry-run?"),
        (["apply", "-f", "x", "--flavour=1"], "unrecognized arguments: --flavour=1\n"),
        (["apply"], "the following arguments are required: -f/--file; see berth apply --help"),
        (["scheduler-config", "--weight", "x"], "argument --weight: 'x' should be a whole number"),
    ],
)
def test_wrong_usage_is_told_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(arguments)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert said in shown
    command = arguments[0] if arguments[0] != "stauts" else ""
    assert shown.startswith(f"usage: berth {command}".rstrip())


def test_an_error_names_the_option_that_was_given_in_place_of_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("BERTH_STORE", "BERTH_POOLS", "KUBECONFIG"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["claims", "--store", "postgres://me:secret@host/db"]) == 1
    told = "--store 'postgres://me:***@host/db' should be a store's URL: sqlite:///PATH, redis://HOST, "
    assert capsys.readouterr().err.startswith(f"berth: {told}")
    assert main(["claims", "--store", f"sqlite:///{tmp_path}/none.db"]) == 1
    assert "none.db: --store or BERTH_STORE should name the functions' own" in capsys.readouterr().err
    assert main(["version", "--store", "postgres://host"]) == 0
    assert "\nledger     postgres://host: --store 'postgres://host' should be a" in capsys.readouterr().out
    of_check = build_parser().parse_args(["check", "--store", "redis://host"])
    assert as_given("see BERTH_STORE and KUBECONFIG", of_check) == "see --store and KUBECONFIG"
    (tmp_path / "config").touch()
    assert main(["token", "n/s", "--kubeconfig", str(tmp_path / "config")]) == 1
    assert "; --kubeconfig should name a kubeconfig" in capsys.readouterr().err
    monkeypatch.setenv("BERTH_STORE", "postgres://host")
    assert main(["claims"]) == 1
    assert capsys.readouterr().err.startswith("berth: BERTH_STORE 'postgres://host' should be")
