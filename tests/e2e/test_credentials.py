"""The token that opens bind, and where a tenant, or anybody who reads a log, could find it: nowhere, while
functions refuse, break, hang and are away. kube-scheduler prints the URL of a call that failed, all of it."""

import http.client
import os
import signal
import ssl
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import yaml

from berth.local.ports import free_port, is_free
from berth.scheduler_config.kube_scheduler import Calls, configuration
from tests.e2e.conftest import Systems
from tests.e2e.harness import System, faulty_functions, pool, settled
from tests.e2e.readable import Readable
from tests.support.builders.certificates import self_signed
from tests.support.builders.manifests import token_of
from tests.support.servers.haproxy import HAProxy

pytestmark = pytest.mark.long

RETRIED = "; the pod will be retried"
_ANSWERS = """
from berth.http.endpoint import Endpoint, Reply
from berth.http.function import Served

def filter():
    pass

answers = dict.fromkeys(("answer", "failed"), lambda *_: Reply(STATUS, b"words"))
filter.served = Served(Endpoint(name="filter", health=lambda: None, body_limit=10**6, **answers), None)
"""


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


@pytest.mark.nightly
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


def test_on_a_shared_loopback_the_proxy_takes_kube_scheduler_s_certificate_and_no_other_caller(
    system_of: Systems, haproxy_program: Path, tmp_path: Path
) -> None:
    """For a kube-scheduler that is not alone on its 127.0.0.1, with what `berth up --proxy-tls` writes."""
    (own, own_key), (theirs, their_key), (another, another_key) = (
        self_signed(tmp_path / name, address=(127, 0, 0, 1)) for name in ("proxy", "scheduler", "another")
    )
    tls = tmp_path / "tls"
    tls.mkdir()
    for name, parts in {
        "proxy.pem": (own, own_key),
        "scheduler.crt": (theirs,),
        "scheduler.key": (their_key,),
        "proxy-ca.crt": (own,),
        "scheduler-ca.crt": (theirs,),
    }.items():
        (tls / name).write_text("".join(part.read_text() for part in parts))
    system = system_of(1, proxy=True, proxy_tls=tls, start_scheduler=False)
    config, url = system.berth.proxy_config, system.berth.proxy_url
    assert url.startswith("https:")
    health = f"127.0.0.1:{free_port()}"
    probe = f"\nfrontend health\n    bind {health}\n    http-request return status 200\n"
    config.write_text(config.read_text() + probe)
    with HAProxy.written(haproxy_program, config, url, f"http://{health}"):
        system.plane.start_scheduler(system.scheduler_config("berth"))
        system.cluster.create_pod("pod")
        system.cluster.wait_bound("pod")
        assert not answers(url, own)
        assert not answers(url, own, (another, another_key))
        assert answers(url, own, (theirs, their_key))


def test_an_upgrade_from_a_token_in_the_urls_costs_no_pod_and_ends_with_that_token_worth_nothing(
    system_of: Systems, haproxy_program: Path, tmp_path: Path
) -> None:
    """As docs/upgrade.md says it: both, then the proxy, then the reviewed token alone."""
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


def answers(url: str, authority: Path, certificate: tuple[Path, Path] | None = None) -> bool:
    """Whether a caller with this certificate and key gets an answer."""
    context = ssl.create_default_context(cafile=authority)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=context, timeout=30)
    with closing(connection):
        try:
            connection.request("POST", "/filter", b"{}", {"Content-Type": "application/json"})
            return connection.getresponse().status == 200
        except OSError:
            return False


def post(system: System, name: str, token: str) -> int:
    """What a call with the token is answered."""
    return system.berth.post(name, {}, {"Authorization": f"Bearer {token}"}).status
