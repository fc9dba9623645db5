"""`python -m tests.bench life`: what the processor does for one pod, from filter to the end of its claim.
The functions are as shipped, called one call at a time; an API server that answers at once (at_once.py)
stands behind bind and release. Its own work, and that of redis-server, is not counted."""

import random
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from berth.ledger.keys import DOMAIN
from berth.ledger.model import decode_domain
from berth.stores import open_store
from berth.testing import kubeconfig
from tests.bench import binds, report
from tests.bench.at_once import pod_name
from tests.bench.bodies import ROOT
from tests.bench.client import Client
from tests.bench.contender_processes import BenchError, Server, server
from tests.bench.contenders import OWN, Tree
from tests.bench.contents import node_names
from tests.bench.foreign import told_of
from tests.bench.store_costs import place
from tests.support.fakes.apiserversource import Event, binary

FUNCTIONS = ("filter", "prioritize", "bind", "release")
IDLE = ("pod-add", *3 * ("pod-update-graceful-deletion",))
"""What is told of a pod that comes, is bound, runs and is to end: none of it frees anything."""
PARTS = ("filter", "prioritize", "bind", "idle", "deletion")
_HEAD = ("life", "filter", "prioritize", "bind", f"{len(IDLE)} other events", "deletion", "whole life")


@dataclass(frozen=True)
class Contender:
    """A tree's functions; `behind` has their store and API server. `parts` are the processor's seconds for a
    pod, a figure a round."""

    behind: binds.Contender
    functions: Mapping[str, Server]
    names: Sequence[str]
    parts: Mapping[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})

    def round(self, pods: Sequence[binds.Pod]) -> None:
        """Let these pods live, each part of it for all of them. Raises BenchError where an answer is not
        what it should be, or a claim stands that should not, or the other way round."""
        calls = [(pod, self._call(pod)) for pod in pods]
        self._spend("filter", "filter", calls, self._filter)
        self._spend("prioritize", "prioritize", calls, self._prioritize)
        self._spend("bind", "bind", [(pod, pod.call()) for pod in pods], self._bind)
        self.behind.check(pods)
        self._spend(
            "idle", "release", [(pod, _event(name, pod)) for pod in pods for name in IDLE], self._tell
        )
        self._require(len(pods), "events that end no pod")
        for pod in pods:
            path = f"http://127.0.0.1:{self.behind.api.port}/api/v1/namespaces/default/pods/{pod.name}"
            urllib.request.urlopen(urllib.request.Request(path, method="DELETE"), timeout=30).close()
        self._spend("deletion", "release", [(pod, _event("pod-delete", pod)) for pod in pods], self._tell)
        self._require(0, "the deletion of all pods")

    def row(self) -> dict[str, object]:
        parts = {part: statistics.median(seconds) for part, seconds in self.parts.items()}
        whole = statistics.median(map(sum, zip(*self.parts.values(), strict=True)))
        return {"life": self.behind.name, **parts, "whole": whole}

    def _spend(
        self,
        part: str,
        function: str,
        calls: Sequence[tuple[binds.Pod, Any]],
        make: Callable[[Client, Any], None],
    ) -> None:
        with Client(self.functions[function].port) as client:
            before = self._cpu(function)
            for _, call in calls:
                make(client, call)
        self.parts[part].append((self._cpu(function) - before) / len({pod.uid for pod, _ in calls}))

    def _cpu(self, function: str) -> float:
        return self.functions[function].cpu_seconds() or 0.0

    def _call(self, pod: binds.Pod) -> bytes:
        """Return kube-scheduler's call for filter and prioritize."""
        document = msgspec.json.decode(_event("pod-add", pod).data)
        return msgspec.json.encode({"Pod": document, "Nodes": None, "NodeNames": self.names})

    def _filter(self, client: Client, body: bytes) -> None:
        answer = msgspec.json.decode(client.call("filter", body).body)
        if answer["NodeNames"] != self.names or answer.get("FailedNodes"):
            raise BenchError(f"{self.behind.name}: filter should let every node pass")

    def _prioritize(self, client: Client, body: bytes) -> None:
        answer = msgspec.json.decode(client.call("prioritize", body).body)
        if [score["Host"] for score in answer] != self.names:
            raise BenchError(f"{self.behind.name}: prioritize should score every node")

    def _bind(self, client: Client, body: bytes) -> None:
        if error := msgspec.json.decode(client.call("bind", body).body)["Error"]:
            raise BenchError(f"{self.behind.name}: a pod should be bound, and is not: {error}")

    def _tell(self, client: Client, event: Event) -> None:
        headers, body = binary(event)
        client.call("", body, headers, status=204)

    def _require(self, expected: int, after: str) -> None:
        documents = self.behind.store.changes(None).documents
        claims = sum(len(decode_domain(documents[key]).claims) for key in documents if key.startswith(DOMAIN))
        if claims != expected:
            raise BenchError(f"{self.behind.name}: after {after} {claims} claims stand, not {expected}")


def measure(
    stores: Sequence[str], trees: Sequence[Tree], rounds: int, pods: int, nodes: int
) -> list[dict[str, object]]:
    """The lives of so many pods a round of each contender; verbs are asked about all nodes."""
    order = random.Random("life")
    with ExitStack() as stack:
        contenders = [
            stack.enter_context(_contender(tree, store, pods, nodes))
            for store in stores
            for tree in trees or [OWN]
        ]
        for number in range(rounds + 1):
            print(f"bench: round {number} of {rounds}", file=sys.stderr, flush=True)
            for contender in order.sample(contenders, len(contenders)):
                contender.round(binds.new_pods(order, binds.NODES, pods, nodes))
                if not number:  # in the first one, fresh processes pay what they pay once
                    for figures in contender.parts.values():
                        figures.clear()
        return [contender.row() for contender in contenders]


@contextmanager
def _contender(tree: Tree, store: str, pods: int, nodes: int) -> Iterator[Contender]:
    print(f"bench: a ledger in {store} {tree.label}", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(store, folder))
        opened = stack.enter_context(closing(open_store(home.url)))
        binds.fill(opened, pods, nodes)
        command = [sys.executable, str(ROOT / "tests" / "bench" / "at_once.py"), "--port", "PORT"]
        api = stack.enter_context(server(command, {}))
        environment = {
            **tree.environment(),
            **home.environment,
            "KUBECONFIG": str(kubeconfig.write(folder / "kubeconfig", f"http://127.0.0.1:{api.port}")),
            "BERTH_STORE": home.url,
        }
        functions = {}
        for name in FUNCTIONS:
            source = ["--source", str(tree.functions / name / "main.py"), "--target", name]
            listening = ["--host", "127.0.0.1", "--port", "PORT"]
            command = [sys.executable, "-m", "berth.http.server", *source, *listening]
            functions[name] = stack.enter_context(server(command, environment))
        label = "·".join(filter(None, (tree.label, store)))
        behind = binds.Contender(label, opened, functions["bind"], api, folder)
        yield Contender(behind, functions, node_names(nodes))


def _event(name: str, pod: binds.Pod) -> Event:
    identity = {"name": pod_name(pod.pool, pod.uid), "namespace": "default", "uid": pod.uid}
    return told_of(name, identity, "berth", {f"berth.dev/{pod.pool}": "1"})


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The processor's milliseconds, as Markdown."""
    return report.markdown(_HEAD, [_line(row) for row in rows], 1)


def _line(row: Mapping[str, Any]) -> Sequence[object]:
    return (row["life"], *(report.ms(row[part]) for part in (*PARTS, "whole")))
