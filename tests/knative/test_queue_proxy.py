"""Knative's queue-proxy in front of a function: what it refuses, what its probes say, what it costs."""

import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import urllib3

from berth.local.ports import free_ports
from tests.knative.answering import answering
from tests.knative.programs import Program
from tests.support.builders.manifests import rendered
from tests.support.cluster import Object, wait
from tests.support.neighbours import MEASURED
from tests.support.servers.framework import ROOT, function

CALLS = 200
PROBE = {"User-Agent": "kube-probe/1.36", "K-Network-Probe": "queue"}
CALL = (ROOT / "events" / "extender" / "filter-names.json").read_bytes()


def service(name: str) -> Object:
    """The Service's spec of its pods."""
    found = (each for each in rendered("per-verb", "Service") if each["metadata"]["name"] == name)
    spec: Object = next(found)["spec"]["template"]["spec"]
    return spec


@contextmanager
def queue_proxy(binaries: Path, folder: Path, name: str, port: int) -> Iterator[str]:
    """Before the function at this port, as Serving's controller sets it up for infra's Service; its URL."""
    spec = service(name)
    probe = spec["containers"][0]["readinessProbe"]
    here = {**probe["httpGet"], "host": "127.0.0.1", "port": port, "scheme": "HTTP"}
    own, tls, admin, metrics = free_ports(4)
    environment = {
        "CONTAINER_CONCURRENCY": str(spec["containerConcurrency"]),
        "QUEUE_SERVING_PORT": str(own),
        "QUEUE_SERVING_TLS_PORT": str(tls),
        "HEALTH_PORT": str(admin),
        "PROFILING_PORT": str(metrics),
        "USER_PORT": str(port),
        "REVISION_TIMEOUT_SECONDS": str(spec["timeoutSeconds"]),
        "REVISION_RESPONSE_START_TIMEOUT_SECONDS": str(spec.get("responseStartTimeoutSeconds", 300)),
        "SERVING_READINESS_PROBE": json.dumps({**probe, "httpGet": here}),
        "SERVING_LOGGING_CONFIG": "",
        "SERVING_LOGGING_LEVEL": "",
        "SERVING_NAMESPACE": "berth",
        "SERVING_CONFIGURATION": name,
        "SERVING_REVISION": f"{name}-00001",
        "SERVING_POD": f"{name}-0",
        "SERVING_POD_IP": "127.0.0.1",
        "SYSTEM_NAMESPACE": "knative-serving",
    }
    url = f"http://127.0.0.1:{own}"
    program = Program(
        "queue-proxy", [str(binaries / "serving-queue")], folder / "queue.log", url, environment=environment
    )
    program.start()
    try:
        with urllib3.PoolManager(
            retries=urllib3.Retry(connect=50, backoff_factor=0.1, backoff_max=0.2)
        ) as http:
            wait(lambda: http.request("GET", url, headers=PROBE).status == 200, 60, "queue-proxy is ready")
        yield url
    finally:
        program.stop()


def is_refused(http: urllib3.PoolManager, url: str, body: bytes) -> bool:
    """Whether the body does not get through; queue-proxy may hang up while the client still sends."""
    try:
        return http.request("POST", url, body=body).status in (413, 502)
    except urllib3.exceptions.ProtocolError:
        return True


def test_an_over_full_queue_is_answered_with_503_and_probes_pass_all_the_same(
    knative_binaries: Path, tmp_path: Path
) -> None:
    concurrency = service("release")["containerConcurrency"]
    taken, more = concurrency * 11, 12  # those at work, and ten times as many that wait
    with (
        answering(b"") as blocked,
        queue_proxy(knative_binaries, tmp_path, "release", blocked.server_port) as url,
        urllib3.PoolManager(maxsize=taken + more, retries=False) as http,
        ThreadPoolExecutor(taken + more) as callers,
    ):
        blocked.go.clear()
        calls = [
            callers.submit(http.request, "POST", url, body=b"{}", timeout=60) for _ in range(taken + more)
        ]
        wait(lambda: sum(each.done() for each in calls) == more, 60, f"{more} calls are refused")
        assert {each.result().status for each in calls if each.done()} == {503}
        assert len(blocked.events) == concurrency
        assert http.request("GET", url, headers=PROBE).status == 200
        blocked.go.set()
        assert Counter(each.result().status for each in calls) == {200: taken, 503: more}


def test_the_probe_of_a_functions_health_goes_through(knative_binaries: Path, tmp_path: Path) -> None:
    store = tmp_path / "ledger"
    with (
        function("filter", {"BERTH_STORE": f"sqlite:///{store}/ledger.db"}, "webserver") as behind,
        urllib3.PoolManager(retries=False) as http,
        queue_proxy(knative_binaries, tmp_path, "filter", int(behind.rpartition(":")[2])) as url,
    ):
        assert http.request("GET", f"{url}/healthz").json() == {"function": "filter", "status": "ok"}
        for path in store.iterdir():
            path.unlink()
        store.rmdir()
        store.write_text("a file where the store's folder was")
        direct = http.request("GET", f"{behind}/healthz").status
        assert direct == 503
        assert http.request("GET", url, headers=PROBE).status == 503


def test_bodies_of_either_kind_come_through_it_and_large_ones_are_refused(
    knative_binaries: Path, tmp_path: Path
) -> None:
    """Later calls are answered all the same."""
    environment = {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db", "BERTH_BODY_LIMIT": "100000"}
    with (
        function("filter", environment, "webserver") as behind,
        urllib3.PoolManager(retries=False) as http,
        queue_proxy(knative_binaries, tmp_path, "filter", int(behind.rpartition(":")[2])) as url,
    ):
        for _ in range(20):
            for chunked in (False, True):
                reply = http.request("POST", url, body=CALL, chunked=chunked)
                assert "being rebuilt" in reply.json()["Error"]
            assert is_refused(http, url, b"x" * 5_000_000)


def test_what_queue_proxy_costs_is_told(knative_binaries: Path, tmp_path: Path) -> None:
    with (
        function("filter", {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}, "webserver") as behind,
        urllib3.PoolManager(retries=False) as http,
        queue_proxy(knative_binaries, tmp_path, "filter", int(behind.rpartition(":")[2])) as url,
    ):
        times: dict[str, list[float]] = {behind: [], url: []}
        for _ in range(CALLS):
            for to, found in times.items():
                began = time.monotonic()
                reply = http.request("POST", to, body=CALL, headers={"Content-Type": "application/json"})
                found.append(time.monotonic() - began)
                assert reply.status == 200
                assert "being rebuilt" in reply.json()["Error"]  # there is no cluster: the same from both
    straight, through = (1000 * statistics.median(found) for found in times.values())
    print(f"{MEASURED}queue-proxy before filter: p50 {straight:.2f} ms straight, {through:.2f} ms through it")
