"""The token that opens bind, and where a tenant, or anybody who reads a log, could find it: nowhere, while
functions refuse, break, hang and are away. kube-scheduler prints the URL of a call that failed, all of it."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from berth.cli.scheduler_config import Calls, configuration
from berth.ports import free_port, is_free
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, faulty_functions, pool, settled
from tests.support.haproxy import HAProxy
from tests.support.manifests import token_of

RETRIED = "; the pod will be retried"
_ANSWERS = """
import functions_framework

@functions_framework.http
def filter(request):
    return ("{}", 200) if request.method == "GET" else ("words", STATUS)
"""


class Readable:
    """Whatever others than its owners may read: the API server's objects, logs, command lines."""

    def __init__(self, system: System) -> None:
        self._system = system

    def texts(self) -> Iterator[tuple[str, str]]:
        system = self._system
        for name in ("events", "pods", "nodes", "configmaps"):
            yield name, json.dumps(system.cluster.get(f"/api/v1/{name}"))
        yield "the scheduler's configuration", system.berth.scheduler_config.read_text()
        yield "the proxy's configuration", system.berth.proxy_config.read_text()
        yield "kube-scheduler's log", system.plane.scheduler_log()
        yield "the proxy's log", system.berth.folder.joinpath("haproxy.log").read_text(errors="replace")
        yield "berth's and the functions' logs", system.berth.said(lines=1_000_000)
        yield "berth up's lines", json.dumps(system.berth.lines)
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and process.name != str(os.getpid()):
                yield f"ps: {process.name}", _read(process / "cmdline") + _read(process / "environ")

    def showing(self, secret: str) -> list[str]:
        """Where the secret is to be read."""
        return [name for name, text in self.texts() if secret in text]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "does not take the token of the proxy beside kube-scheduler (401)"),
        (503, "takes no calls at the moment (503): it is busy, or being started or replaced"),
    ],
)
def test_a_tenant_does_not_read_the_token_when_a_function_refuses_its_pod(
    system_of: Systems, haproxy_program: Path, tmp_path: Path, status: int, said: str
) -> None:
    """With it in a URL its event said `failed filter with extender at http://berth:S3CRET@…, code 401`."""
    functions = faulty_functions(tmp_path, filter=_ANSWERS.replace("STATUS", str(status)))
    system = system_of(1, proxy=True, functions=functions, start_scheduler=False)
    with system.beside(haproxy_program):
        system.plane.start_scheduler(system.scheduler_config("berth"), flags=["--v=10"])
        system.cluster.create_pod("mine")
        assert system.refusal_of("mine") == f"berth's function filter {said}{RETRIED}"
        assert Readable(system).showing(system.berth.token) == []


def test_the_token_is_nowhere_while_everything_fails(system_of: Systems, haproxy_program: Path) -> None:
    system = system_of(2, pools=[pool(units=10)], proxy=True, start_scheduler=False)
    berth, cluster = system.berth, system.cluster
    with ExitStack() as stack:
        stack.enter_context(system.beside(haproxy_program))
        system.plane.start_scheduler(system.scheduler_config("berth"), flags=["--v=10"])
        cluster.create_pod("first")
        cluster.wait_bound("first")
        for name in ("bind", "filter", "prioritize", "preempt"):  # killed, and started again
            seen = len(berth.lines)
            berth.kill(name)
            cluster.create_pod(f"after-{name}")
            berth.wait_line(function=name, state="ready", since=seen)
        os.killpg(berth.pids["filter"], signal.SIGSTOP)  # hangs
        cluster.create_pod("hung")
        assert "filter did not answer within 4.9 s" in system.refusal_of("hung")
        os.killpg(berth.pids["filter"], signal.SIGCONT)
        cluster.wait_bound("hung")
        berth.ledger_file.unlink()  # the ledger is lost
        cluster.create_pod("lost")
        cluster.wait_bound("lost", seconds=90)
        token, file = berth.token, berth.token_file
        assert file.stat().st_mode & 0o777 == 0o600
        file.write_text("another")  # a token that functions do not take
        cluster.create_pod("refused")
        assert "does not take the token" in system.refusal_of("refused")
        file.unlink()  # and none
        cluster.create_pod("without")
        assert "has no token" in system.refusal_of("without")
        file.write_text(token)
        cluster.wait_bound("refused", "without", seconds=60)
        berth.stop()  # away
        cluster.create_pod("late")
        assert f"filter can't be reached at {berth.urls['filter']}" in system.refusal_of("late")
        assert len(token) > 40
        assert Readable(system).showing(token) == []


def test_a_reviewed_token_opens_each_verb_and_a_tenant_s_own_does_not(system_of: Systems) -> None:
    """Anybody may have a token for the audience berth: of an account of his own."""
    environment = {"BERTH_AUTH_ACCOUNTS": "berth/berth-scheduler"}
    system = system_of(1, environment=environment, start_berth=False)
    system.berth.launch_alone()
    ours = token_of(system.cluster, "berth-scheduler", audience="berth")
    others = [
        token_of(system.cluster, "berth-events", audience="berth"),
        token_of(system.cluster, "berth-scheduler"),  # for the API server
        token_of(system.cluster, "berth-scheduler", audience="another"),
        f"{ours[:-4]}AAAA",
    ]
    for name in ("filter", "prioritize", "preempt", "bind"):
        status = {token: post(system, name, token) for token in (ours, *others)}
        assert status == {ours: 400, **dict.fromkeys(others, 401)}  # 400: nothing was called for
        assert system.berth.post(name, {}).status == 401
    said = system.berth.said(lines=10_000)
    assert not [token for token in (ours, *others) if token in said]


def test_an_upgrade_from_a_token_in_the_urls_costs_no_pod_and_ends_with_that_token_worth_nothing(
    system_of: Systems, haproxy_program: Path, tmp_path: Path
) -> None:
    """As docs/operations.md#upgrade says it: both, then the proxy, then the reviewed token alone."""
    accounts = {"BERTH_AUTH_ACCOUNTS": "berth/berth-scheduler"}
    old = {"BERTH_AUTH_TOKEN": "known-to-everybody"}
    system = system_of(2, start_berth=False, port=ports_in_a_row(), environment={**accounts, **old})
    berth, cluster = system.berth, system.cluster
    berth.launch_alone()
    with_login = calling(system, "old", lambda url: url.replace("//", "//berth:known-to-everybody@"))
    system.plane.start_scheduler(with_login)
    cluster.create_pod("by-the-old-one")
    cluster.wait_bound("by-the-old-one")
    proxy = HAProxy(haproxy_program, tmp_path, berth.urls)
    proxy.token.write_text(token_of(cluster, "berth-scheduler", audience="berth"))
    with proxy:
        for number in range(3):
            cluster.create_pod(f"meanwhile-{number}")
        system.plane.stop_scheduler()
        system.plane.start_scheduler(calling(system, "new", lambda _: proxy.url), "new")
        cluster.wait_bound(*(f"meanwhile-{number}" for number in range(3)))
        assert post(system, "bind", "known-to-everybody") == 400
        berth.stop()
        berth.environment = accounts
        cluster.create_pod("after")
        berth.start()
        cluster.wait_bound("after", seconds=90)
        assert post(system, "bind", "known-to-everybody") == 401
    settled(system)


def calling(system: System, name: str, url: Callable[[str], str]) -> Path:
    """A scheduler's configuration whose extenders are called by these URLs, as the scheduler's account."""
    kubeconfig = str(system.accounts.kubeconfig("scheduler"))
    document = configuration(Calls(system.berth.urls), kubeconfig=kubeconfig, schedulers=["berth"])
    for extender in document["extenders"]:  # which no command writes with a login any more
        extender["urlPrefix"] = url(extender["urlPrefix"])
    path = system.berth.folder / f"scheduler-{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def ports_in_a_row() -> int:
    """The first of nine, as many as `berth up` may use."""
    return next(first for first in iter(free_port, 0) if all(is_free(first + more) for more in range(9)))


def post(system: System, name: str, token: str) -> int:
    """What a call with the token is answered."""
    return system.berth.post(name, {}, {"Authorization": f"Bearer {token}"}).status
