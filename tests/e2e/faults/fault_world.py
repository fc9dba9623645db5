"""A system whose release and bind can be made to fail, shared by the tests of one module.

It starts no kube-scheduler by itself; `fresh` leaves no pod, rule or fault to the next test.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from berth.local.event_relay import LANES, lane_of
from tests.controlplane.lent import Planes
from tests.e2e.faults.timers import WAIT
from tests.e2e.harness import Berth, System, faulty_functions, pool
from tests.support.builders.accounts import Accounts
from tests.support.cluster import Cluster, Object, wait
from tests.support.fakes.proxy import Proxy

HERE = Path(__file__).parent
BIND_ANSWERS_WITHIN = 5.0  # what kube-scheduler waits
ALLOCATED = "berth.dev/allocated"
T = TypeVar("T")


class Faults:
    """The faults of release.py, bind.py and reconcile.py beside this, switched on and off as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def set(self, name: str, text: str = "") -> None:
        fresh = self.folder / f"{name}.new"
        fresh.write_text(text)
        fresh.rename(self.folder / name)

    def clear(self) -> None:
        for each in self.folder.iterdir():
            each.unlink(missing_ok=True)

    def unset(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def is_set(self, name: str) -> bool:
        return (self.folder / name).exists()

    def text(self, name: str) -> str:
        return (self.folder / name).read_text() if self.is_set(name) else ""

    def counts(self, prefix: str) -> dict[str, int]:
        """How long the files are whose names begin so, by what follows in the name."""
        files = self.folder.glob(f"{prefix}*")
        return {each.name.removeprefix(prefix): each.stat().st_size for each in files}


@dataclass
class World(System):
    """A System whose bind goes through `proxy`; everything else talks to the API server itself."""

    proxy: Proxy = field(kw_only=True)
    faults: Faults = field(kw_only=True)
    scheduler: str = ""

    def bind(self, pod: Object, node: str) -> str:
        """One bind call as kube-scheduler makes it; its Error, empty for a success, and that in time."""
        meta = pod["metadata"]
        call = {"PodName": meta["name"], "PodNamespace": "default", "PodUID": meta["uid"], "Node": node}
        began = time.monotonic()
        reply = self.berth.post("bind", call)
        took = time.monotonic() - began
        assert reply.status == 200, reply
        assert took < BIND_ANSWERS_WITHIN, f"bind took {took:.2f} s: {reply.body}"
        error: str = reply.body["Error"]
        return error

    def node_of(self, pod: Object) -> str | None:
        node: str | None = self.cluster.get_pod(pod["metadata"]["name"])["spec"].get("nodeName")
        return node

    def allocated(self, pod: Object) -> str | None:
        annotations = self.cluster.get_pod(pod["metadata"]["name"])["metadata"].get("annotations", {})
        found: str | None = annotations.get(ALLOCATED)
        return found

    def claims_of(self, pod: Object) -> list[tuple[str, str]]:
        """(node, state) of each claim of the pod."""
        return [(each.node, each.state) for each in self.berth.ledger().claims_of(pod["metadata"]["uid"])]

    def free(self, pool: str = "underlay-ip") -> dict[str, int]:
        return {node: free for node, (free, _) in self.berth.ledger().free[pool].items()}

    def pending(self) -> dict[str, int]:
        """How many pods wait in each of kube-scheduler's queues."""
        return self._metric("scheduler_pending_pods")

    def attempts(self) -> int:
        """How many times kube-scheduler has tried a pod."""
        return sum(self._metric("scheduler_schedule_attempts_total").values())

    def binding(self) -> int:
        """How many binds kube-scheduler waits for, once there was one."""
        return self._metric("scheduler_goroutines")["binding"]

    def _metric(self, name: str) -> dict[str, int]:
        """By the first label's value, summed over the others."""
        found: Counter[str] = Counter()
        for line in self.plane.scheduler_metrics(self.scheduler).splitlines():
            if line.startswith(f"{name}{{"):
                found[line.split('"')[1]] += int(float(line.rsplit(" ", 1)[1]))
        return dict(found)

    def wait_idle(self, waiters: int, seconds: float = 60) -> None:
        """Until these many waiters, and no others, are refused for want of units, and nothing moves."""

        def idle() -> bool:
            before = self._waiters()
            refused = all(" asked" in text for _, text in before)
            still = {"active": 0, "backoff": 0, "unschedulable": waiters}
            if len(before) != waiters or not refused or not still.items() <= self.pending().items():
                return False
            time.sleep(0.15)  # nothing may happen for a while: that is the condition
            return before == self._waiters() and still.items() <= self.pending().items()

        wait(idle, seconds, f"{waiters} idle waiters; {self._waiters()} {self.pending()}")

    def _waiters(self) -> list[tuple[str, str]]:
        pods = [pod for pod in self.cluster.list_pods() if not pod["spec"].get("nodeName")]
        return [(pod["metadata"]["resourceVersion"], _refusal(pod)) for pod in pods]

    def remove_pods(self) -> None:
        """All pods, with them their claims, and every event of them."""
        for pod in self.cluster.list_pods():
            self.cluster.delete_pod(pod["metadata"]["name"])
        wait(lambda: not self._left(), 60, f"no claims without pods: {self._left()}")
        # In a lane events come in order: after these no wake of an earlier one meets the next test's pods.
        lanes = dict[int, str]()
        while len(lanes) < LANES:
            last = f"last-{time.monotonic_ns()}"
            made = self.cluster.create_pod(last, {}, scheduling_gates=["example.com/never"])
            lanes[lane_of(made["metadata"]["uid"])] = last
            self.cluster.delete_pod(last)
        through = [f"through-with-{last}" for last in lanes.values()]
        wait(lambda: all(map(self.faults.is_set, through)), 60, "release is through with all events")
        assert self.berth.post("reconcile", {}, {WAIT: "yes"}, seconds=60).status == 200

    def _left(self) -> list[str]:
        left = [claim.label for claim in self.berth.ledger().claims()]
        if left:
            self.berth.reconcile()
        return left

    @contextmanager
    def fresh(self) -> Iterator["World"]:
        self.faults.set("no-tick")
        try:
            yield self
        finally:
            self.faults.clear()
            self.proxy.clear()
            print(self.berth.said())  # shown for a failed test
        self.remove_pods()

    @contextmanager
    def scheduling(self, bind_timeout: str = "5s") -> Iterator[None]:
        """A kube-scheduler for the block, which talks to the API server itself."""
        extenders = yaml.safe_load(self.berth.scheduler_config.read_text())["extenders"]
        for extender in extenders:
            extender["httpTimeout"] = bind_timeout if "bindVerb" in extender else "5s"
        config = self.scheduler_config("of-test", extenders=extenders)
        self.scheduler = f"scheduler-{time.monotonic_ns()}"
        self.plane.start_scheduler(config, self.scheduler)
        try:
            yield
        finally:
            self.plane.stop_scheduler(self.scheduler)


def _refusal(pod: Object) -> str:
    conditions = pod["status"].get("conditions", [])
    found = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return next(found, "")


@contextmanager
def world_of(
    planes: Planes,
    folder: Path,
    nodes: Mapping[str, Mapping[str, Any]],
    units: int,
    pools: Sequence[Object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[World]:
    """Nodes by name with create_node's options, so many units each; `environment` is also the functions'."""
    with planes.lent() as plane, Proxy(plane) as proxy:
        cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
        for name, options in nodes.items():
            cluster.create_node(name, **options)
        faults, accounts = Faults(folder / "faults"), Accounts(plane, cluster, folder)
        base = faulty_functions(
            folder, **{name: HERE / f"{name}.py" for name in ("release", "bind", "reconcile")}
        )
        bind = proxy.kubeconfig(folder / "kubeconfig-of-bind", accounts.token("bind"))
        berth = Berth(
            folder / "berth",
            plane.kubeconfig(folder / "kubeconfig"),
            pools or [pool(units=units)],
            {"FAULTS": str(faults.folder), "KUBECONFIG_OF_BIND": str(bind), **(environment or {})},
            accounts.functions(folder, base),
        )
        try:
            berth.start()
            yield World(plane, cluster, berth, accounts, proxy=proxy, faults=faults)
        finally:
            berth.end()
            cluster.close()


class Background(threading.Thread):
    """A call on its way; `result` waits for it, and raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._error: BaseException | None = None
        self._value: Any = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the result
            self._error = error

    def result(self, seconds: float = 60) -> Any:
        self.join(seconds)
        assert not self.is_alive(), f"the call did not end within {seconds:g} s"
        if self._error is not None:
            raise self._error
        return self._value
