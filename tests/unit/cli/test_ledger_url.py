"""Where the ledger is if nobody says so: a file, else what the cluster's settings name."""

import os
from pathlib import Path
from typing import Any

import pytest

from berth.cli import ledger_url
from berth.errors import ClusterRefusedError, ClusterUnavailableError, NoClusterError
from berth.kube.types import Meta

CONFIGMAP = "configmap://berth-ledger/ledger"


class Fake:
    """A cluster with these objects; `secret` None: who asks may not read it."""

    host = "https://a:1"

    def __init__(
        self, settings: dict[str, str] | None = None, secret: dict[str, bytes] | None = None
    ) -> None:
        self._settings, self._secret = settings, secret

    def one(self, shape: type[Any], path: str, timeout: float) -> Any:
        assert timeout < 5
        if path == "/api/v1/namespaces/berth/configmaps/berth-settings":
            return None if self._settings is None else shape(Meta(), self._settings)
        assert path == "/api/v1/namespaces/berth/secrets/berth-store"
        if self._secret is None:
            raise ClusterRefusedError("the API server refused GET …/berth-store (403): no", 403)
        return shape(Meta(), self._secret)


class Away(Fake):
    def one(self, _: type[Any], path: str, timeout: float) -> Any:
        raise ClusterUnavailableError(f"no answer about {path.rpartition('/')[2]} in {timeout} s")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BERTH_STORE", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def taken(monkeypatch: pytest.MonkeyPatch, cluster: Fake | None) -> tuple[str, str]:
    """BERTH_STORE and BERTH_SCHEDULER_NAMES afterwards; without a cluster there is no kubeconfig."""

    def connect() -> Fake:
        if cluster is None:
            raise NoClusterError("no cluster to talk to")
        return cluster

    monkeypatch.setattr(ledger_url, "connect", connect)
    monkeypatch.setattr(ledger_url, "_resolves", lambda host: not host.endswith(".svc"))
    ledger_url.take_over()
    return os.environ["BERTH_STORE"], os.environ.get("BERTH_SCHEDULER_NAMES", "")


def test_the_config_map_of_the_cluster_names_the_store_and_the_schedulers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Fake({"BERTH_STORE": CONFIGMAP, "BERTH_SCHEDULER_NAMES": "berth,gpu"})
    assert taken(monkeypatch, cluster) == (CONFIGMAP, "berth,gpu")
    assert capsys.readouterr() == ("", f"berth: ledger: {CONFIGMAP} (from ConfigMap berth/berth-settings)\n")


def test_scheduler_names_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_SCHEDULER_NAMES", "mine")
    cluster = Fake({"BERTH_STORE": CONFIGMAP, "BERTH_SCHEDULER_NAMES": "berth"})
    assert taken(monkeypatch, cluster) == (CONFIGMAP, "mine")


def test_a_file_that_is_there_comes_first_and_no_cluster_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".berth").mkdir()
    (tmp_path / ".berth" / "ledger.db").write_bytes(b"")
    assert taken(monkeypatch, Fake({"BERTH_STORE": CONFIGMAP}))[0] == f"sqlite:///{tmp_path}/.berth/ledger.db"
    assert capsys.readouterr().err == ""


def test_the_url_in_the_secret_is_shown_without_its_password_and_with_the_way_to_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "redis://berth:s3cr3t@redis.stores.svc:6380/1"
    cluster = Fake({"BERTH_SCHEDULER_NAMES": "berth"}, {"url": f"{url}\n".encode()})
    assert taken(monkeypatch, cluster)[0] == url
    said, way = capsys.readouterr().err.splitlines()
    shown, login = url.replace("s3cr3t", "***"), "USER:PASSWORD"
    assert said == f"berth: ledger: {shown} (from Secret berth/berth-store)"
    assert way == (
        "berth: only the cluster's DNS knows redis.stores.svc: kubectl port-forward -n stores svc/redis 6380,"
        f" then --store redis://{login}@127.0.0.1:6380/1"
    )


def test_a_password_among_the_url_s_options_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "redis://redis.berth.svc:6379/1?password=s3cr3t"
    assert taken(monkeypatch, Fake({"BERTH_STORE": url}))[0] == url
    said = capsys.readouterr().err
    assert "s3cr3t" not in said
    assert said.endswith("then --store redis://127.0.0.1:6379/1?password=***\n")


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (None, []),
        (
            Away(),
            ["the cluster does not say where the ledger is: no answer about berth-settings in 3.0 s"],
        ),
        (Fake({}), ["the API server refused GET …/berth-store (403): no (or say --store URL)"]),
        (
            Fake(None, {}),
            ["the cluster at https://a:1 does not say", "nor the key url in Secret berth/berth-store"],
        ),
    ],
)
def test_else_it_is_the_file_that_is_not_there_yet_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cluster: Fake | None,
    why: list[str],
) -> None:
    assert taken(monkeypatch, cluster)[0] == f"sqlite:///{tmp_path}/.berth/ledger.db"
    said = capsys.readouterr().err
    assert [words for words in why if words not in said] == []
    assert said.count("\n") == bool(why)


@pytest.mark.parametrize(
    ("url", "way"),
    [
        (
            "redis://redis.berth.svc.cluster.local",
            "-n berth svc/redis 6379, then --store redis://127.0.0.1:6379",
        ),
        ("redis://redis", "-n berth svc/redis 6379, then --store redis://127.0.0.1:6379"),
        ("redis://r-0.redis.s.svc:6390/2", "-n s pod/r-0 6390, then --store redis://127.0.0.1:6390/2"),
        (
            "rediss://s-0.s.x.svc:26379,s-1.s.x.svc:26379?sentinel=m",
            "-n x POD (the primary's) 6379, then --store rediss://127.0.0.1:6379",
        ),
        ("configmap://berth/ledger", ""),
        ("dynamodb://table?region=eu-west-1", ""),
        ("redis://[::1]:6379", ""),
    ],
)
def test_a_name_that_only_the_cluster_knows_gets_the_way_to_it(url: str, way: str) -> None:
    said = ledger_url.port_forward(url, lambda _: False)
    assert said.endswith(way)
    assert bool(said) == bool(way)
    assert ledger_url.port_forward(url, lambda _: True) == ""
