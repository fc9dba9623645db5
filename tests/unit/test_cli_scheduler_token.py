"""`berth scheduler-config --from`: the token goes into the URLs that ask for it, and everything else stays.
What kube-scheduler does with it: tests/e2e/test_shipped_scheduler.py."""

from pathlib import Path

import pytest
import yaml

from berth.cli import main

OWN = """profiles: [{schedulerName: berth, plugins: {score: {disabled: [{name: ImageLocality}]}}}]
extenders:
- {urlPrefix: "http://berth:TOKEN@filter.berth", filterVerb: filter}
- {urlPrefix: "https://example.com/another", prioritizeVerb: prioritize, weight: 1}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.setenv(name, "")  # so that what a command sets is taken back, too
        monkeypatch.delenv(name)


def written(folder: Path, text: str, *more: str, token: str | None = "s3/cret") -> int:
    (folder / "own.yaml").write_text(text)
    if token is not None:
        (folder / "token").write_text(token)
        more = ("--token-file", str(folder / "token"), *more)
    out = str(folder / "out.yaml")
    return main(["scheduler-config", "--from", str(folder / "own.yaml"), "--output", out, *more])


def test_only_our_urls_get_the_token_and_nothing_else_changes(tmp_path: Path) -> None:
    assert written(tmp_path, OWN) == 0
    expected = yaml.safe_load(OWN)
    expected["extenders"][0]["urlPrefix"] = "http://berth:s3%2Fcret@filter.berth"
    assert yaml.safe_load((tmp_path / "out.yaml").read_text()) == expected
    assert (tmp_path / "out.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "more", "token", "why"),
    [
        (OWN, (), None, "name it by --token-file"),
        (OWN, ("--lease", "a/b"), "x", "--from takes the file as it is, without --lease: leave it out"),
        (OWN, ("--filter", "http://f"), "x", "without --filter"),
        (OWN.replace("TOKEN@", "other@"), (), "x", "has no URL http://berth:TOKEN@HOST"),
        ("[", (), "x", "is not YAML"),
        ("a: b", (), "x", "is no KubeSchedulerConfiguration with extenders"),
        ("extenders: [1]", (), "x", "is no KubeSchedulerConfiguration with extenders"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    more: tuple[str, ...],
    token: str | None,
    why: str,
) -> None:
    assert written(tmp_path, text, *more, token=token) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert why in said.err
    assert not (tmp_path / "out.yaml").exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("x")
    missing = str(tmp_path / "none.yaml")
    options = ["--from", missing, "--token-file", str(tmp_path / "token")]
    assert main(["scheduler-config", *options]) == 1
    assert f"can't read {missing} (--from): No such file or directory" in capsys.readouterr().err
