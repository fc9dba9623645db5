"""`berth scheduler-config`, as an operator meets it. That kube-scheduler runs what it writes: tests/e2e."""

import json
from pathlib import Path

import pytest
import yaml

from berth.cli import main

EACH = ["--filter", "http://f", "--prioritize", "http://p", "--preempt", "http://e", "--bind", "http://b"]
ALL = ["--extender", "http://e"]
RESOURCE = ["--resource", "berth.dev/k80"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.setenv(name, "")  # so that what a command sets is taken back, too
        monkeypatch.delenv(name)


def test_it_is_printed_for_a_scheduler_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduler-config", *EACH, "--group", "example.com", "--lease", "berth/scheduler"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert [each["urlPrefix"] for each in found["extenders"]] == EACH[1::2]
    ignored = found["profiles"][0]["pluginConfig"][0]["args"]["ignoredResourceGroups"]
    assert ignored == ["berth.dev", "example.com"]
    assert found["leaderElection"]["resourceName"] == "scheduler"


def test_a_file_with_the_token_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    out = tmp_path / "scheduler.yaml"
    token = ["--token-file", str(tmp_path / "token")]
    assert main(["scheduler-config", *ALL, *RESOURCE, *token, "-o", str(out)]) == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(out.read_text())["extenders"][0]["urlPrefix"] == "http://berth:s3cret@e"


def test_a_policy_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduler-config", *ALL, *RESOURCE, "--policy"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "Policy"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--filter and --prioritize and --preempt and --bind should name the functions' URLs"),
        (EACH[:6], "--bind should name the functions' URLs"),
        ([*EACH, *ALL], "refuses two entries that bind"),
        ([*EACH, *RESOURCE], "refuses one that two entries manage"),
        (ALL, "no Pool is known"),
        ([*ALL, *RESOURCE, "--group", "x.y"], "leave it out"),
        ([*EACH, "--group", "native.berth.dev"], "must count the group native.berth.dev"),
        ([*EACH, "--policy"], "a Policy knows no ignored resource groups"),
        ([*ALL, *RESOURCE, "--policy", "--scheduler", "x"], "a Policy holds no --scheduler: leave it out"),
        ([*EACH, "--timeout", "4"], "--timeout 4 should be 5 to 300 seconds"),
        (
            [*ALL, "--resource", "cpu"],
            "the resource 'cpu' should be an extended resource, such as berth.dev/",
        ),
        ([*EACH, "--group", "example.com/x"], "the group 'example.com/x' should be the domain of a resource"),
        ([*EACH, "--ca", ""], "--ca is empty: name a path, or leave it out"),
        ([*EACH, "--lease", "berth"], "--lease 'berth' should be NAMESPACE/NAME"),
        ([*EACH, "--token-file", "/no/such"], "there is no file /no/such (--token-file)"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert main(["scheduler-config", *arguments]) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert why in said.err
