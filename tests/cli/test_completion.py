"""Shell completion: what a shell asks for when its user presses Tab, as bash, kubectl and the scripts do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth.cli import main

BIN = Path(sys.executable).parent


def completed(line: str) -> list[str]:
    """What the command answers a shell whose line ends here."""
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    place = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout"}
    environment = {**os.environ, **asked, **place}
    done = subprocess.run([BIN / "berth"], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def for_kubectl(*words: str) -> list[str]:
    command = [str(BIN / "kubectl_complete-berth"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_commands_options_and_their_values_are_completed() -> None:
    assert completed("berth stat") == ["status"]
    assert completed("berth status --out") == ["--output"]
    assert completed("berth status -o ") == ["table", "json", "yaml"]


def test_the_same_goes_for_the_plugin_of_kubectl() -> None:
    assert for_kubectl("status", "--out") == ["--output", ":4"]
    assert {"copy", "init"} <= set(for_kubectl("store", ""))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_for_both_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "berth" in script
    assert "kubectl-berth" in script


def test_bash_reads_its_script_and_knows_the_command() -> None:
    script = f'eval "$({BIN}/berth completion bash)"; complete -p berth'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith(" berth")
