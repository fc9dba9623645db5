"""What `berth scheduler-config` writes, the real kube-scheduler takes; what that one refuses is not written.

kube-scheduler reads its configuration, makes its extenders, writes the configuration out and ends: no API
server is asked, so nothing here shows that pods are placed (test_shipped_scheduler.py does).
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main
from tests.support.builders.certificates import self_signed

EACH = ["--filter", "http://f", "--prioritize", "http://p", "--preempt", "http://e", "--bind", "http://b"]
ALL = ["--extender", "https://extender.example:8443/berth/"]
LONGEST_DOMAIN = ".".join(["a" * 63] * 3 + ["b" * 52])  # 244 signs: with `requests.` before it 253
Judge = Callable[[str], str]


@pytest.fixture
def judge(binaries: Path, tmp_path: Path) -> Judge:
    """What kube-scheduler says against this configuration; empty if it takes it."""

    def ask(text: str) -> str:
        config, taken = tmp_path / "scheduler.yaml", tmp_path / "taken.yaml"
        config.write_text(text)
        taken.unlink(missing_ok=True)
        argv = [str(binaries / "kube-scheduler"), f"--config={config}", f"--write-config-to={taken}"]
        argv += ["--authentication-skip-lookup", "--secure-port=0"]  # it serves nobody, and takes no port
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return "" if done.returncode == 0 and taken.exists() else done.stderr

    return ask


@pytest.fixture
def kubeconfig(tmp_path: Path) -> list[str]:
    cluster = {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "nowhere"}
    document |= {"clusters": [cluster], "contexts": [context], "users": [{"name": "nobody", "user": {}}]}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    return ["--scheduler-kubeconfig", str(tmp_path / "kubeconfig")]


def written(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["scheduler-config", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        EACH,
        [*EACH, "--timeout", "300", "--weight", "2147483647", "--lease", "berth/berth-scheduler"],
        [*EACH, "--scheduler", "berth", "--scheduler", "example.com/Second_1", "--group", "a" * 63],
        [*ALL, "--resource", "berth.dev/k80", "--resource", "berth.dev/k80"],
        [*ALL, "--resource", f"{LONGEST_DOMAIN}/{'K' * 63}", "--resource", "native.berth.dev/seat_1.x"],
    ],
    ids=["each", "far", "names", "twice", "longest"],
)
def test_kube_scheduler_takes_what_is_written(
    capsys: pytest.CaptureFixture[str], judge: Judge, kubeconfig: list[str], arguments: list[str]
) -> None:
    assert judge(written(capsys, *arguments, *kubeconfig)) == ""


def test_kube_scheduler_takes_urls_with_an_authority(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, judge: Judge, kubeconfig: list[str]
) -> None:
    authority, _ = self_signed(tmp_path / "authority", address=(127, 0, 0, 1))
    more = ["--resource", "berth.dev/k80", "--ca", str(authority)]
    assert judge(written(capsys, *ALL, *more, *kubeconfig)) == ""


@pytest.mark.parametrize(
    "resource",
    [
        *("cpu", "kubernetes.io/x", "node.kubernetes.io/x", "mykubernetes.io/x", "requests.berth.dev/x"),
        *("Berth.dev/x", "a..b/x", "a/b/c", "/x", "x/", "berth.dev/-x", "berth.dev/x y"),
        *(f"berth.dev/{'x' * 64}", f"a{LONGEST_DOMAIN[1:]}b/x"),
    ],
)
def test_a_resource_that_kube_scheduler_refuses_is_refused(
    capsys: pytest.CaptureFixture[str], judge: Judge, kubeconfig: list[str], resource: str
) -> None:
    document = yaml.safe_load(written(capsys, *ALL, "--resource", "berth.dev/x", *kubeconfig))
    document["extenders"][0]["managedResources"][0]["name"] = resource
    assert "managedResources[0].name" in judge(yaml.safe_dump(document))
    assert main(["scheduler-config", *ALL, "--resource", "berth.dev/x", "--resource", resource]) == 1
    assert f"{resource!r} should be an extended resource" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["example.com/x", "a" * 64, "", "-x", "a b"])
def test_a_group_that_kube_scheduler_refuses_is_refused(
    capsys: pytest.CaptureFixture[str], judge: Judge, kubeconfig: list[str], group: str
) -> None:
    document = yaml.safe_load(written(capsys, *EACH, *kubeconfig))
    document["profiles"][0]["pluginConfig"][0]["args"]["ignoredResourceGroups"] = [group]
    assert "ignoredResourceGroups" in judge(yaml.safe_dump(document))
    assert main(["scheduler-config", *EACH, f"--group={group}"]) == 1
    assert f"{group!r} should be the domain of a resource" in capsys.readouterr().err
