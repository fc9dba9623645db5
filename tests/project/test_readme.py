"""The commands for one function alone in docs/install.md do what it says, as they stand there.
Only the port is another one, because 8080 may be taken on a developer's machine."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import yaml

from berth.api.pool import parse
from berth.cli.arguments import COMMANDS
from berth.local.ports import free_port
from berth.local.processes import ORDER
from berth.scheduler_config.kube_scheduler import Calls, configuration
from tests.support.servers.framework import ROOT, started

_MARK = "<!-- run by tests/project/test_readme.py -->\n```sh\n"


def test_the_page_on_installing_starts_one_function_and_sends_it_a_sample(tmp_path: Path) -> None:
    port = str(free_port())
    start, call = (
        shlex.split(block.partition("\n```")[0].replace("8080", port))
        for block in (ROOT / "docs/install.md").read_text().split(_MARK)[1:]
    )
    with started(start, {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}, int(port)):
        answer = subprocess.run(call, cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    assert json.loads(answer)["Error"].startswith("berth's ledger is being rebuilt from the pods")


def test_the_configuration_on_the_page_on_installing_is_the_one_that_berth_writes() -> None:
    blocks = re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs/install.md").read_text(), re.DOTALL | re.MULTILINE
    )
    shown = next(
        found for found in map(yaml.safe_load, blocks) if found.get("kind") == "KubeSchedulerConfiguration"
    )
    verbs = ("filter", "prioritize", "preempt", "bind")
    urls = {name: f"http://127.0.0.1:{8080 + ORDER.index(name)}" for name in verbs}
    kubeconfig = shown["clientConnection"]["kubeconfig"]
    assert shown == configuration(Calls(urls), kubeconfig=kubeconfig, schedulers=["berth"])


def test_the_pool_in_readme_is_a_right_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert list(parse([yaml.safe_load(blocks[0])], "README.md")) == ["underlay-ip"]


def test_no_figure_in_readme_is_still_to_be_measured() -> None:
    assert not re.search(r"@[A-Z]+@", (ROOT / "README.md").read_text())


def test_every_overlay_is_in_readme_or_the_page_on_installing() -> None:
    text = "".join((ROOT / page).read_text() for page in ("README.md", "docs/install.md"))
    named = set(re.findall(r"\binfra/overlays/([\w.-]*\w)", text))
    assert {each.name for each in (ROOT / "infra" / "overlays").iterdir()} <= named


def test_every_command_is_in_readme() -> None:
    commands = {name for name, *_ in COMMANDS}
    text = (ROOT / "README.md").read_text()
    assert {name for name in commands if not re.search(rf"`?berth {name}\b", text)} == set()
