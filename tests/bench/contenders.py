"""Who is compared: the floor, and each tree of functions on each store under each server.
A tree has one ledger in each store, which all its servers share."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import go_programs
from tests.bench.answers import Expected, of_the_floor, without_its_claim
from tests.bench.bodies import REFUSED, ROOT
from tests.bench.contender_processes import BenchError, Server, helper, server
from tests.bench.contents import Stock, node_names
from tests.bench.nobody import Nobody
from tests.bench.rounds import FLOOR, Case, Contender
from tests.bench.store_costs import place
from tests.support.servers.haproxy import MISSING, HAProxy, haproxy_binary

SHIPPED = "webserver"  # what the image and `berth up` start
PLAIN = "gthread"  # functions-framework
EXTENDER = "extender"  # both verbs in the one process of functions/extender, as shipped
PROXIED = "proxied"  # as shipped, with a token, behind the HAProxy that adds it beside kube-scheduler
SERVERS = (SHIPPED, PLAIN, EXTENDER, PROXIED, "uvicorn", "uvicorn-threads")
TOKEN = "s3cret" * 200  # as long as a pod's
_UVICORN = (
    *(sys.executable, "-m", "uvicorn", "--loop", "asyncio", "--http", "httptools", "--lifespan", "off"),
    *("--no-access-log", "--log-level", "error", "--host", "127.0.0.1", "--port", "PORT"),
)


@dataclass(frozen=True)
class Tree:
    """A folder of functions, with shared/ beside it; the label tells trees apart in the table."""

    label: str
    functions: Path

    @property
    def keeper(self) -> Path:
        """The checkout whose keeper fills the tree's ledger: its own, since names of modules change."""
        root = self.functions.parent
        return root if (root / "tests" / "bench" / "keeper.py").is_file() else ROOT

    def environment(self) -> Mapping[str, str]:
        paths = (str(self.functions.parent / "shared"), os.environ.get("PYTHONPATH", ""))
        return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


OWN = Tree("", ROOT / "functions")


@contextmanager
def the_floor(verbs: Sequence[str]) -> Iterator[Contender]:
    with server([str(go_programs.binary("floor")), "-listen", "127.0.0.1:PORT"], {}) as up:
        yield Contender(FLOOR, dict.fromkeys(verbs, up), lambda case: of_the_floor(node_names(case.nodes)))


@contextmanager
def functions(
    tree: Tree, store: str, servers: Sequence[str], verbs: Sequence[str], nodes: int
) -> Iterator[list[Contender]]:
    """The tree's functions on a filled ledger, one contender a server."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        home = stack.enter_context(place(store, folder))
        environment = {**tree.environment(), **home.environment, "BERTH_STORE": home.url}
        if EXTENDER in servers:  # it binds as well, and wants to know where
            api = stack.enter_context(Nobody())
            environment = {"KUBECONFIG": str(api.kubeconfig(folder / "nobody")), **environment}
        kept = stack.enter_context(helper("keeper", home.url, nodes, environment, folder=tree.keeper))

        stock = Stock(node_names(nodes))

        def change() -> None:
            node, more = stock.change()
            kept.tell(f"{node} {more}")
            kept.answer()

        def expected(case: Case) -> Expected:
            return without_its_claim(stock.now) if case.pod == REFUSED else stock.now

        yield [
            Contender(
                "·".join(filter(None, (tree.label, store, "" if kind == SHIPPED else kind))),
                _servers(stack, tree, kind, verbs, environment),
                expected,
                change,
            )
            for kind in servers
        ]


def _servers(
    stack: ExitStack, tree: Tree, kind: str, verbs: Sequence[str], environment: Mapping[str, str]
) -> Mapping[str, Server]:
    if kind == EXTENDER:
        return dict.fromkeys(verbs, stack.enter_context(_served(tree, kind, EXTENDER, environment)))
    if kind == PROXIED:
        return {verb: stack.enter_context(_proxied(tree, verb, environment)) for verb in verbs}
    return {verb: stack.enter_context(_served(tree, kind, verb, environment)) for verb in verbs}


@contextmanager
def _proxied(tree: Tree, verb: str, environment: Mapping[str, str]) -> Iterator[Server]:
    """Its CPU is the function's alone."""
    if (binary := haproxy_binary()) is None:
        raise BenchError(MISSING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        closed = {**environment, "BERTH_AUTH_TOKEN": TOKEN}
        up = stack.enter_context(_served(tree, SHIPPED, verb, closed))
        proxy = HAProxy(binary, folder, {EXTENDER: f"http://127.0.0.1:{up.port}"})
        proxy.token.write_text(TOKEN)
        stack.enter_context(proxy)
        yield Server(int(proxy.url.rpartition(":")[2]), up.pid)


@contextmanager
def _served(tree: Tree, kind: str, verb: str, environment: Mapping[str, str]) -> Iterator[Server]:
    source = ["--target", verb, "--host", "127.0.0.1", "--port", "PORT", "--source"]
    source.append(str(tree.functions / verb / "main.py"))
    if kind in (SHIPPED, EXTENDER):
        command = [sys.executable, "-m", "berth.http.server", *source]
    elif kind == PLAIN:
        command = [str(Path(sys.executable).with_name("functions-framework")), *source]
    else:
        command = [*_UVICORN, f"tests.bench.asgi:{verb}"]
    threads = {"BENCH_ASGI_THREADS": "1"} if kind == "uvicorn-threads" else {}
    with server(command, {**environment, **threads}) as up:
        yield up
