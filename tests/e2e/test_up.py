"""`berth up` as a user meets it: the order things start in, what dies, what is wrong, and the token.

What each subcommand's options are called is tested in tests/unit.
"""

import base64
import json
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from berth.local.ports import free_port, is_free
from tests.e2e.conftest import Systems
from tests.e2e.harness import Berth, System, pool, settled
from tests.support.cluster import wait
from tests.support.processes import is_alive

TOKEN = "a-secret/with~signs+in_it="
FUNCTIONS = {"filter", "prioritize", "preempt", "bind", "release", "inventory", "reconcile", "status"}


@pytest.mark.long
def test_pods_wait_with_a_word_when_the_scheduler_is_there_before_the_functions(system_of: Systems) -> None:
    system = system_of(2, start_berth=False, port=_nine_free_ports())
    cluster, berth = system.cluster, system.berth
    berth.start()  # it writes the configuration that the scheduler is to run on
    assert berth.stop(signal.SIGINT) == 0
    berth.ledger_file.unlink()
    system.start_scheduler()
    for number in range(5):
        cluster.create_pod(f"pod-{number}")
    for number in range(5):
        said = system.refusal_of(f"pod-{number}")
        assert f"127.0.0.1:{berth.port}/filter" in said
        assert "connection refused" in said
    assert cluster.bound() == {}
    berth.start()
    cluster.wait_bound()
    settled(system)


def test_a_killed_function_is_started_again_and_ctrl_c_ends_all(system_of: Systems) -> None:
    system = system_of(1)
    berth, cluster = system.berth, system.cluster
    assert set(berth.urls) == FUNCTIONS
    for name in ("bind", "release"):
        seen = len(berth.lines)
        killed = berth.kill(name)
        assert berth.wait_line(function=name, state="died", since=seen)["exit"] == -signal.SIGKILL
        assert berth.wait_line(function=name, state="ready", since=seen)["pid"] != killed
    cluster.create_pod("pod")
    cluster.wait_bound("pod")
    settled(system)
    assert berth.stop(signal.SIGINT) == 0
    assert not [name for name, pid in berth.pids.items() if is_alive(pid)]
    wait(lambda: berth.lines[-1] == {"state": "stopping"}, 60, "the last word of berth up")
    refused = cluster.create_pod("later")["metadata"]["name"]
    system.refusal_of(refused)


@pytest.mark.nightly
def test_functions_that_hang_are_replaced_and_what_they_had_to_do_is_done(system_of: Systems) -> None:
    system = system_of(1, pools=[pool(units=1)])
    berth, cluster = system.berth, system.cluster
    before, seen = berth.pids, len(berth.lines)
    for name in ("bind", "release", "reconcile"):
        os.killpg(before[name], signal.SIGSTOP)
    cluster.create_pod("pod")
    for name in ("bind", "release", "reconcile"):
        berth.wait_line(function=name, state="hung", since=seen, seconds=120)
        assert berth.wait_line(function=name, state="ready", since=seen)["pid"] != before[name]
    cluster.wait_bound("pod")
    cluster.create_pod("waiter")
    system.refusal_of("waiter")
    cluster.delete_pod("pod")
    cluster.wait_bound("waiter")
    settled(system)
    assert {name for name, pid in berth.pids.items() if pid != before[name]} == {
        "bind",
        "release",
        "reconcile",
    }


@pytest.mark.long
def test_with_two_replicas_a_killed_one_costs_no_pod_and_ctrl_c_ends_all(system_of: Systems) -> None:
    system = system_of(2, replicas=2)
    berth, cluster = system.berth, system.cluster
    assert set(berth.replica_pids) == {(name, number) for name in FUNCTIONS for number in (1, 2)}
    early, late = ([f"{name}-{number}" for number in range(10)] for name in ("early", "late"))
    cluster.create_pods(*early)
    seen = len(berth.lines)
    for name, number in (("filter", 1), ("bind", 2), ("release", 1)):
        killed = berth.kill(name, number)
        died = berth.wait_line(function=name, replica=number, state="died", since=seen)
        assert (died["exit"], died["url"]) == (-signal.SIGKILL, berth.urls[name])
        again = berth.wait_line(function=name, replica=number, state="ready", since=seen)
        assert again["pid"] != killed
    cluster.create_pods(*late)
    cluster.wait_bound(*early, *late, seconds=60)
    settled(system)
    assert berth.stop(signal.SIGINT) == 0
    assert not [process for process, pid in berth.replica_pids.items() if is_alive(pid)]


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.long
def test_with_a_proxy_and_a_token_the_scheduler_binds_and_a_call_without_it_gets_401(
    system_of: Systems, haproxy_program: Path, replicas: int
) -> None:
    environment = {"BERTH_AUTH_TOKEN": TOKEN}
    system = system_of(1, environment=environment, proxy=True, pools=[pool(units=1)], replicas=replicas)
    with system.beside(haproxy_program):
        binds_by_the_token_alone(system)


def binds_by_the_token_alone(system: System) -> None:
    cluster, berth = system.cluster, system.berth
    cluster.create_pod("first")
    cluster.wait_bound("first")
    cluster.create_pod("waiter")
    said = system.refusal_of("waiter")
    assert "underlay-ip: 0 of 1 free, 1 asked" in said
    assert stat.S_IMODE(berth.token_file.stat().st_mode) == 0o600
    assert TOKEN not in berth.scheduler_config.read_text() + berth.proxy_config.read_text()
    body = {"Pod": cluster.get_pod("waiter"), "NodeNames": ["node-1"]}
    for function in ("filter", "prioritize", "preempt", "bind"):
        for wrong in ({}, _basic("another"), {"Authorization": "Bearer another"}):
            reply = berth.post(function, body, wrong)
            assert reply.status == 401
            assert "BERTH_AUTH_TOKEN" in reply.body["error"]
    assert berth.post("filter", body, _basic(TOKEN)).status == 200
    assert berth.post("filter", body, {"Authorization": f"Bearer {TOKEN}"}).status == 200
    assert TOKEN not in berth.said(lines=10_000)
    settled(system)


def _basic(token: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'berth:{token}'.encode()).decode()}"}


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A kubeconfig of a cluster that is not there; what is wrong is told before anyone asks it."""
    path = tmp_path / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
        "current-context": "nowhere",
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("name", ["BERTH_AUTH_TOKEN", "BERTH_AUTH_ACCOUNTS"])
def test_a_door_that_kube_scheduler_could_not_pass_ends_it_with_one_clear_line(
    nowhere: Path, tmp_path: Path, name: str
) -> None:
    said = _refused(Berth(tmp_path, nowhere, environment={name: "s3cret/x"}))
    assert "the functions want a token, and kube-scheduler can't send one: let a proxy beside it" in said
    assert "s3cret" not in said


def test_a_token_that_no_proxy_could_send_ends_it_with_one_clear_line(nowhere: Path, tmp_path: Path) -> None:
    said = _refused(Berth(tmp_path, nowhere, proxy=True, environment={"BERTH_AUTH_TOKEN": "a secret@in it"}))
    assert "the token has characters that a proxy can't send" in said
    assert "secret@" not in said


def test_a_door_that_its_own_events_could_not_pass_ends_it_with_one_clear_line(
    nowhere: Path, tmp_path: Path
) -> None:
    said = _refused(Berth(tmp_path, nowhere, environment={"BERTH_EVENTS_ACCOUNTS": "berth/x"}))
    assert "BERTH_EVENTS_ACCOUNTS is for events that Knative sends; berth up sends its own" in said


def test_an_empty_token_ends_it_with_one_clear_line(nowhere: Path, tmp_path: Path) -> None:
    """As a script's variable that was not set: it opened every door in silence."""
    said = _refused(Berth(tmp_path, nowhere, environment={"BERTH_AUTH_TOKEN": ""}))
    assert "BERTH_AUTH_TOKEN is empty: name the token, or unset it" in said


@pytest.mark.long
def test_a_web_page_gets_nothing_of_it(system_of: Systems) -> None:
    """What a browser sends to another site without asking it, or to a name that was made to lead here."""
    system = system_of(1, start_scheduler=False)
    berth = system.berth
    for name in FUNCTIONS:
        for headers, status in (
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ({"Origin": "https://evil.example"}, 403),
            ({"Host": "evil.example"}, 421),
        ):
            assert berth.post(name, b"{}", headers).status == status, (name, headers)


def test_a_wrong_pool_file_ends_it_with_one_clear_line(nowhere: Path, tmp_path: Path) -> None:
    berth = Berth(tmp_path, nowhere, pools=[pool(units=1, scoer="Pack")])
    said = _refused(berth)
    assert f"{berth.pools_file}: Pool underlay-ip: " in said
    assert "scoer" in said


def test_a_pool_file_that_is_no_yaml_ends_it_with_the_line_that_is_wrong(
    nowhere: Path, tmp_path: Path
) -> None:
    berth = Berth(tmp_path, nowhere)
    berth.pools_file.write_text("kind: [Pool")
    said, *place = _refused(berth, lines=3).splitlines()
    assert f"{berth.pools_file} is not YAML, line 1: " in said
    assert place == ["    kind: [Pool", "               ^"]


def test_a_taken_port_ends_it_with_one_clear_line(nowhere: Path, tmp_path: Path) -> None:
    first = _nine_free_ports()
    with socket.create_server(("127.0.0.1", first + 3)):
        said = _refused(Berth(tmp_path, nowhere, port=first))
    assert f"port {first + 3} (for bind) is in use" in said
    assert "--port" in said


@pytest.mark.parametrize("url", ["postgres://host/db", "/var/lib/berth.db", "sqlite://ledger.db"])
def test_a_store_that_is_none_ends_it_with_one_clear_line(nowhere: Path, tmp_path: Path, url: str) -> None:
    assert "--store" in _refused(Berth(tmp_path, nowhere, store=url))


def test_a_missing_kubeconfig_ends_it_with_one_clear_line(tmp_path: Path) -> None:
    assert "there is no file" in _refused(Berth(tmp_path, tmp_path / "none"))


def _refused(berth: Berth, lines: int = 1) -> str:
    """What `berth up` said; it started nothing."""
    berth.launch()
    assert berth.process is not None
    try:
        assert berth.process.wait(120) == 1
    finally:
        berth.stop(signal.SIGKILL)
    said = berth.said()
    assert said.startswith("berth: ")
    assert len(said.splitlines()) == lines
    assert berth.lines == []
    return said


def _nine_free_ports() -> int:
    """The first of nine in a row, as many as `berth up` may use."""
    for _ in range(100):
        first = free_port()
        if all(is_free(first + more) for more in range(9)):
            return first
    raise AssertionError("no nine free ports in a row")
