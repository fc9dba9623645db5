"""`berth version`: what can be reached tells its version, and what can't is no failure."""

import json
import platform
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from berth import __version__
from berth.cli import main, version
from berth.errors import ClusterRefusedError, ClusterUnavailableError, SettingsError
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import two_pools

CLIENT = {"version": __version__, "python": platform.python_version(), "why": ""}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "BERTH_STORE", "BERTH_CONTEXT", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


SERVICES = "/apis/serving.knative.dev/v1/namespaces/berth/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/berth/deployments"


class Fake:
    host = "https://a:1"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def version(self, _: float) -> str:
        if isinstance(self._answer, ClusterUnavailableError):
            raise self._answer
        return "v1.36.3"

    def collection(self, shape: Any, path: str, wanted: Any = None, timeout: float = 0) -> Any:
        assert 0 < timeout < 5
        if isinstance(self._answer, Exception):
            raise self._answer
        answer = self._answer[path]
        listed = None if answer is None else msgspec.convert(answer, list[shape])
        return listed if listed is None or wanted is None else [one for one in listed if wanted(one)]


def workload(name: str, image: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {f"app.kubernetes.io/{key}": labels[key] for key in labels}},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
    }


def shown(answer: Any) -> list[str]:
    """The lines about the cluster and the functions."""

    def connect() -> Any:
        if isinstance(answer, SettingsError):
            raise answer
        return Fake(answer)

    cluster, functions = version.in_cluster(connect)
    client = version.ClientVersion(version="1", python="3")
    return version.lines(version.Versions(client, None, cluster, functions))[1:]


def test_the_command_alone_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--client"]) == 0
    assert capsys.readouterr() == (f"berth      {__version__}, Python {platform.python_version()}\n", "")
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert main(["version", "--client", "-o", output]) == 0
        assert read(capsys.readouterr().out) == {"client": CLIENT}


def test_what_can_be_reached_tells_its_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with closing(two_pools(url)), StandIn() as api:
        options = ["--store", url, "--kubeconfig", str(api.kubeconfig(tmp_path / "kubeconfig"))]
        assert main(["version", *options]) == 0
        out, err = capsys.readouterr()
        assert main(["version", *options, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert err == ""
    assert out.splitlines()[1:3] == [
        f"ledger     {url}, epoch epoch-1 since 1970-01-01T00:16:40Z",
        f"cluster    Kubernetes v1.37.2+berth-stand-in at {api.url}",
    ]
    assert found["ledger"] == {"store": url, "epoch": "epoch-1", "since": "1970-01-01T00:16:40Z", "why": ""}
    assert found["cluster"] == {"server": api.url, "version": "v1.37.2+berth-stand-in", "why": ""}


def test_without_anything_to_reach_it_says_so_and_is_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["version"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    _, ledger, cluster, functions = out.splitlines()
    file = f"sqlite:///{tmp_path}/.berth/ledger.db"
    assert ledger.startswith(f"ledger     {file}: there is no ledger at {file}")
    assert cluster.startswith("cluster    not known: no cluster to talk to")
    assert functions == "functions  not known: there is no cluster to ask"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            {
                SERVICES: [
                    workload("bind", "r/berth:0.1.0"),
                    workload("filter", "r/berth:0.1.0"),
                    workload("x", "r/berth:2"),
                ],
                DEPLOYMENTS: [workload("berth-scheduler", "r/kube-scheduler:v1.36.3")],
            },
            ["functions  r/berth:0.1.0 (bind, filter)", "functions  r/berth:2 (x)"],
        ),
        (
            {
                SERVICES: None,
                DEPLOYMENTS: [
                    workload("bind", "r/berth:0.1.0", component="function"),
                    workload("berth-relay", "r/berth:2"),
                ],
            },
            ["functions  r/berth:0.1.0 (bind)"],
        ),
        ({SERVICES: None, DEPLOYMENTS: []}, ["functions  not known: namespace berth has none"]),
        (ClusterRefusedError("refused (403)", 403), ["functions  not known: refused (403)"]),
    ],
)
def test_the_functions_images_are_grouped_or_it_is_said_why_they_are_not_known(
    answer: Any, lines: list[str]
) -> None:
    assert shown(answer) == ["cluster    Kubernetes v1.36.3 at https://a:1", *lines]


def test_a_cluster_that_does_not_answer_is_said_once() -> None:
    assert shown(ClusterUnavailableError("no answer")) == [
        "cluster    not known: no answer",
        "functions  not known: the cluster does not answer",
    ]


@pytest.mark.parametrize(("tag", "told"), [(__version__, False), ("9.9.9", True)])
def test_functions_of_another_version_than_the_command_are_remarked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tag: str, told: bool
) -> None:
    there = {SERVICES: [workload("bind", f"r:5000/berth:{tag}")], DEPLOYMENTS: []}
    monkeypatch.setattr("berth.cli.version.connect", lambda: Fake(there))
    assert main(["version", "--store", "sqlite:///none"]) == 0
    why = f"berth: the functions' tag is 9.9.9, and this command is {__version__}\n"
    assert capsys.readouterr().err == (why if told else "")
