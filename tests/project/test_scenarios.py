"""docs/scenarios without a control plane: its index, the tests it names, the configurations it shows.
What its pages do on a real kube-scheduler is shown by tests/e2e/test_scenario_*.py."""

import re
import shlex
from typing import Any

import pytest
import yaml

from berth.cli import main
from tests.e2e.scenarios import SCENARIOS, commands_of, documents_of, text_of
from tests.support.servers.framework import ROOT

PAGES = sorted(page.name for page in SCENARIOS.glob("*.md") if page.name != "README.md")
CONFIGURATION = "extender-configuration.md"
KUBECONFIG = "/etc/kubernetes/berth-scheduler.conf"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.delenv(name, raising=False)


def test_the_index_names_every_page_and_no_other() -> None:
    assert PAGES
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", text_of("README.md"))) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text_of(page))
    assert named
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text() if test else (ROOT / path).is_file(), (path, test)


def test_the_entries_that_the_page_on_configuration_shows_are_those_that_berth_writes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = [
        _written(command, capsys)["extenders"][0]
        for command in commands_of(CONFIGURATION)
        if command.startswith("berth scheduler-config")
    ]
    blocks = re.findall(r"```yaml\n(urlPrefix: .*?)```", text_of(CONFIGURATION), re.DOTALL)
    assert [yaml.safe_load(block) for block in blocks] == written
    assert len(written) == 2


def test_the_whole_configuration_that_the_page_shows_is_the_one_that_berth_writes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    urls = {"filter": 8080, "prioritize": 8081, "preempt": 8082, "bind": 8083}
    options = " ".join(f"--{verb} http://127.0.0.1:{port}" for verb, port in urls.items())
    command = f"berth scheduler-config {options} --weight 10 --scheduler-kubeconfig {KUBECONFIG}"
    (shown,) = documents_of(CONFIGURATION, "scheduler.yaml")
    assert shown == _written(command, capsys)


def _written(command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(shlex.split(command)[1:]) == 0
    return yaml.safe_load(capsys.readouterr().out)
