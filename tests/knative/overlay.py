"""An overlay of infra/ at work: Knative's controllers and adapters act on it, Berth's functions run where its
Services say, a kube-scheduler places pods.

Played here: Serving's controllers (they say where a Service is; its function is a process as the image starts
it, without a queue-proxy) and PingSource's clock (`tick`), so that ticks come when a test wants them; its own
is in test_pingsource.py. The ledger is a SQLite file in place of the overlay's store, so that times are
Knative's.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import urllib3

from berth.cli import main as berth
from berth.ledger.ledger import Ledger
from berth.local.ports import free_port
from berth.stores import open_store
from tests.knative.install import Knative
from tests.knative.programs import DOMAIN, Call, Program, is_ready, wait_port
from tests.support.builders.manifests import INFRA, NAMESPACE, component, rendered, serve_pools, token_of
from tests.support.builders.objects import pool_document
from tests.support.cluster import Object, wait
from tests.support.servers.framework import ROOT

VERBS = ("filter", "prioritize", "preempt", "bind")
EVENT_FUNCTIONS = ("release", "inventory", "reconcile")
ADAPTER = "apiserversource"
SOURCES = "/apis/sources.knative.dev/v1/namespaces/berth/apiserversources"
TICKER = "berth-reconcile-oidc-sources.knative.dev-pingsource"
_SECONDS = 180.0
_JSON = {"Content-Type": "application/json"}
_http = urllib3.PoolManager(maxsize=8, retries=False)


class Overlay:
    """One overlay, installed and running once `start` returns; `more` is a component beside it."""

    def __init__(self, knative: Knative, name: str, folder: Path, more: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.knative, self.name, self.folder, self._more = knative, name, folder, more
        self.cluster, self.names, self.plane = knative.cluster, knative.names, knative.plane
        self.store = f"sqlite:///{folder / 'ledger.db'}"
        self.functions: dict[str, Program] = {}
        self._adapters: dict[str, Program] = {}
        self.units = 0

    # Its beginning and end

    def start(self, units: Mapping[str, int]) -> None:
        """So many nodes, by name, with so many units each: all of one Pool, `underlay-ip`."""
        self._apply()
        serve_pools(self.cluster)
        self._say_where_services_are()
        self.start_functions(*VERBS, *EVENT_FUNCTIONS)
        self.units = sum(units.values())
        for node in units:
            self.cluster.create_node(node)
        document = pool_document(capacity={"domains": dict(units)})
        self.cluster.call("POST", "/apis/berth.dev/v1alpha1/pools", document)
        self.tick()
        self.start_adapters()
        wait(self._all_ready, _SECONDS, "Broker, Triggers and sources are ready", every=0.2)
        self._start_scheduler()

    def stop(self) -> None:
        for each in self.functions.values():
            each.stop()
        self.knative.names.stop()

    def objects(self, *kinds: str) -> list[Object]:
        """What is installed: all of it, or the objects of some kinds."""
        if self._more:
            return component(self._more, *kinds, overlay=self.name)
        return rendered(self.name, *kinds)

    def _apply(self) -> None:
        where = ("-k", INFRA / "overlays" / self.name)
        if self._more:
            where = ("-f", self.folder / "objects.json")
            where[1].write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": self.objects()}))
        self.knative.kubectl("apply", *where, "--validate=strict")

    def _say_where_services_are(self) -> None:
        """As Serving's controllers would, in the status of each Service."""
        for each in self.objects("Service"):
            if each["apiVersion"] != "serving.knative.dev/v1":
                continue
            name = each["metadata"]["name"]
            url = f"http://{name}.{NAMESPACE}.{DOMAIN}"
            path = f"/apis/serving.knative.dev/v1/namespaces/{NAMESPACE}/services/{name}/status"
            ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
            status = {"observedGeneration": 1, "address": {"url": url}, "url": url, "conditions": ready}
            self.cluster.patch(path, {"status": status})

    # The functions

    def start_functions(self, *names: str) -> None:
        """Each on its old port, if it ran before; its Service's name leads to it."""
        for name in names:
            self.functions.setdefault(name, self._function(name)).start()
        for name in names:
            self.functions[name].wait_ready()
            self.names.lead(name, NAMESPACE, int(self.functions[name].environment["PORT"]))

    def stop_function(self, name: str) -> None:
        """Killed; its name leads to a port where nobody listens."""
        self.functions[name].stop()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.functions[name].environment['PORT']}"

    def _function(self, name: str) -> Program:
        port = free_port()
        kubeconfig = self.plane.kubeconfig(
            self.folder / f"kubeconfig-of-{name}", token_of(self.cluster, f"berth-{name}")
        )
        environment = {
            **self._settings(name),
            "BERTH_STORE": self.store,
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT / "shared"),
            "PORT": str(port),
        }
        source = ROOT / "functions" / name / "main.py"
        argv = [
            str(ROOT / ".venv/bin/python"),
            "-m",
            "berth.http.server",
            "--source",
            str(source),
            "--target",
            name,
        ]
        argv += ["--host", "127.0.0.1", "--port", str(port)]
        log = self.folder / f"{name}.log"
        return Program(name, argv, log, f"http://127.0.0.1:{port}/healthz", environment=environment)

    def _settings(self, name: str) -> dict[str, str]:
        """What the Service's manifest sets, without who may call a verb."""
        services = self.objects("Service")
        (service,) = (each for each in services if each["metadata"]["name"] == name)
        (container,) = service["spec"]["template"]["spec"]["containers"]
        found = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        found.pop("BERTH_AUTH_ACCOUNTS", None)
        return found

    def tick(self) -> Object:
        """A reconcile, asked for as a person does; what it mended."""
        headers = {**_JSON, **(self.bearer(TICKER) if self._more else {})}
        reply = _http.request("POST", self.url("reconcile"), body=b"{}", headers=headers, timeout=120)
        assert reply.status == 200, reply.data
        return dict(json.loads(reply.data))

    def bearer(self, account: str, audience: str = "berth", namespace: str = NAMESPACE) -> dict[str, str]:
        """The header with which Knative's sender of this account calls, once Knative has made that."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
        wait(lambda: self.cluster.request("GET", path).status == 200, _SECONDS, f"an account {account}")
        return {"Authorization": f"Bearer {token_of(self.cluster, account, namespace, audience)}"}

    # Knative's side

    def start_adapters(self) -> None:
        """The adapters' Deployments, as Knative's controller makes them, become processes of the account that
        they name."""
        wait(lambda: len(self._deployments()) == 2, _SECONDS, "a Deployment for each source", every=0.2)
        for deployment in self._deployments():
            self._start_adapter(deployment)
        self._lead_channels()

    def start_adapter_of(self, source: str) -> None:
        """That of a source which is no part of the overlay."""

        def made() -> Object | None:
            owned = (each for each in self._deployments() if _owner(each) == source)
            return next(owned, None)

        deployment = wait(made, _SECONDS, f"a Deployment for the source {source}", every=0.1)
        assert deployment is not None
        self._start_adapter(deployment)
        self.wait_ready(f"{SOURCES}/{source}")

    def stop_adapter_of(self, source: str) -> None:
        if source in self._adapters:
            self._adapters.pop(source).stop()

    def wait_ready(self, path: str) -> None:
        """Until Knative's controllers call it ready."""
        wait(lambda: is_ready(self.cluster.get(path)), _SECONDS, f"{path} is ready", every=0.1)

    def adapter(self, source: str) -> Program:
        return self._adapters[source]

    def restart_adapter(self, source: str) -> None:
        """As kubelet starts the container again."""
        program = self.adapter(source)
        program.stop()
        program.start()
        wait_port(program, "HEALTH_PORT", "/readiness")

    def _start_adapter(self, deployment: Object) -> None:
        source = _owner(deployment)
        program = self.knative.pods.run(deployment)
        self._adapters[source] = program
        wait_port(program, "HEALTH_PORT", "/readiness")
        self.knative.pods.mark_available(deployment)

    def _deployments(self) -> list[Object]:
        found = self.cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"]
        return [each for each in found if each["metadata"]["name"].startswith(ADAPTER)]

    def _lead_channels(self) -> None:
        """A channel's Service is another name of the dispatcher's."""
        if self.through_broker:
            wait(self._channels, _SECONDS, "the Broker's channel has a Service", every=0.2)
        port = self.knative.pods.programs["imc-dispatcher"].port["HTTP_PORT"]
        for name in self._channels():
            self.names.lead(name, NAMESPACE, port)

    def _channels(self) -> list[str]:
        found = self.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/services")["items"]
        return [each["metadata"]["name"] for each in found if each["spec"]["type"] == "ExternalName"]

    @property
    def through_broker(self) -> bool:
        return bool(self.objects("Broker"))

    def _all_ready(self) -> bool:
        items = list(self.cluster.get(SOURCES)["items"])
        if self.through_broker:
            base = f"/apis/eventing.knative.dev/v1/namespaces/{NAMESPACE}"
            items += (
                self.cluster.get(f"{base}/brokers")["items"] + self.cluster.get(f"{base}/triggers")["items"]
            )
        return all(is_ready(each) for each in items)

    # What is seen of it

    def calls(self, function: str, since: int = 0) -> list[Call]:
        return self.names.calls(f"{function}.{NAMESPACE}.{DOMAIN}", since)

    def free(self) -> int:
        """Units that nobody holds, of all nodes."""
        with closing(open_store(self.store)) as store:
            view = Ledger(store, while_closed=True).view()
            return sum(free for free, _ in view.free["underlay-ip"].values())

    def wait_free(self, units: int, seconds: float) -> float:
        """How long it took until so many units were free."""
        began = time.monotonic()
        wait(lambda: self.free() == units, seconds, f"{units} units are free, not {self.free()}", every=0.05)
        return time.monotonic() - began

    def filter_calls(self, since: int = 0) -> list[Call]:
        """What the channel's dispatcher asked of the Broker's filter: a call for each Trigger and try."""
        return self.names.calls(f"broker-filter.knative-eventing.{DOMAIN}", since)

    def is_refused(self, name: str) -> bool:
        found = self.cluster.condition(name, "PodScheduled") or {}
        return " asked" in found.get("message", "")

    def wait_quiet(self) -> str:
        """Until all events that are told of by now are handled: a source sends one after the other. The pod
        whose end was the last of them."""
        return self.wait_heard(1)

    def wait_heard(self, times: int, **labels: str) -> str:
        """Until release has heard so many times of the end of one pod that comes and goes: from each source
        that selects it once. A source that is only starting misses some of them. The pod's name."""
        names: list[str] = []
        since, patience = self.names.count(), 3.0

        def heard() -> str:
            calls = (each for each in self.calls("release", since) if each.change == "delete")
            found = Counter(each.subject.rpartition("/")[2] for each in calls)
            return next((name for name in names if found[name] >= times), "")

        until = time.monotonic() + _SECONDS
        while not (name := heard()):
            assert time.monotonic() < until, f"release has not heard {times} times of any of {names}"
            names.append(f"last-{time.monotonic_ns()}")
            self.cluster.create_pod(names[-1], {}, labels=labels, scheduling_gates=["example.com/never"])
            self.cluster.delete_pod(names[-1])
            with suppress(AssertionError):
                wait(heard, patience, "release has heard", every=0.05)
            patience *= 2
        return name

    def clear(self) -> None:
        """No pods, all units free, everything runs."""
        for name, program in self.functions.items():
            if program.process is None or program.process.poll() is not None:
                self.start_functions(name)
        self.cluster.call("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        self.wait_quiet()
        self.tick()
        assert self.free() == self.units, f"{self.free()} of {self.units} units are free"

    def stays_free(self, units: int, seconds: float) -> None:
        """The outage over time is what is shown, so this waits it out."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.free() == units
            time.sleep(0.2)

    def _start_scheduler(self) -> None:
        config = self.folder / "scheduler.yaml"
        kubeconfig = self.plane.kubeconfig(
            self.folder / "kubeconfig-of-scheduler", token_of(self.cluster, "berth-scheduler")
        )
        urls = [f"--{name}={self.url(name)}" for name in VERBS]
        assert (
            berth(["scheduler-config", *urls, "--scheduler-kubeconfig", str(kubeconfig), "-o", str(config)])
            == 0
        )
        self.plane.start_scheduler(config)

    def logs(self) -> Iterator[tuple[str, str]]:
        for name, program in self.functions.items():
            yield f"end of {name}'s log", program.tail(15)


def _owner(deployment: Object) -> str:
    (owner,) = deployment["metadata"]["ownerReferences"]
    name: str = owner["name"]
    return name


@contextmanager
def overlay_on(
    knative: Knative, name: str, folder: Path, units: Mapping[str, int], more: str = ""
) -> Iterator[Overlay]:
    made = Overlay(knative, name, folder, more)
    try:
        made.start(units)
        yield made
    finally:
        made.stop()
