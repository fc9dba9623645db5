"""`berth simulate`: would these pods fit, where, and what is short.
It reads the ledger and the cluster, or nothing but files, and writes to neither: what it tries, it tries on a
copy in memory."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import msgspec

from berth import settings
from berth.api.names import GROUP, NATIVE
from berth.api.pool import Pool, parse_each
from berth.api.units import MOST
from berth.api.workloads import Manifests, with_priorities
from berth.cli.manifests import add_files, read_all
from berth.cli.output import can_draw, note, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_store, require_ledger
from berth.cli.tables import aligned
from berth.controller.simulation import (
    Attempt,
    Changed,
    Outcome,
    Placed,
    Refused,
    Shortage,
    Simulation,
    copy_of,
    empty_ledger,
    in_queue,
    known_apart,
    with_capacities,
)
from berth.errors import BadInputError, ClusterRefusedError, UsageError
from berth.kube.client import context_namespace
from berth.kube.cluster import connect
from berth.kube.types import Node, Pod, PodInFull, PriorityClass
from berth.ledger.keys import PoolDomain
from berth.ledger.ledger import Ledger
from berth.ledger.report import counted, natural
from berth.scheduling.demand import owner_of, resources
from berth.scheduling.node_fit import LOOKED_AT, keeps_away, unseen
from berth.settings import Settings
from berth.stores import open_store, redacted
from berth.stores.memory import MemoryStore

_MANY = 100  # pods from which on a bar shows how far it is
_MOST_NODES, _MOST_NAMES, _MOST_REFUSALS = 40, 4, 20  # that a table shows
_PREEMPTION = "preemption"
_APART = "affinity.podAntiAffinity of running pods"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    add_files(parser, "pods, or what makes pods (Deployment, StatefulSet, ReplicaSet, Job)")
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", help="of pods that name none (default: the context's)"
    )
    parser.add_argument(
        "--nodes",
        metavar="FILE",
        help="these nodes, and the pods that run on them, in place of the cluster's: then none is asked",
    )
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="these Pools in place of the ledger's; with --nodes and without --store: on an empty ledger",
    )
    parser.add_argument(
        "--capacity",
        metavar="POOL[/DOMAIN]=N",
        action="append",
        default=[],
        type=_capacity,
        help="as if the pool had so many units, in each domain or in this one; may be repeated",
    )
    parser.add_argument(
        "--with-waiting",
        action="store_true",
        help="the cluster's waiting pods come too: before those of FILE, but for more important ones",
    )
    add_output(parser)
    parser.set_defaults(run=run)


class _World(NamedTuple):
    """What the pods meet: a ledger's copy and where that is from, nodes, pods that run there or wait."""

    store: MemoryStore
    source: str
    nodes: Sequence[Node]
    running: Sequence[PodInFull]
    waiting: Sequence[PodInFull]
    classes: Sequence[PriorityClass]


class _Counts(msgspec.Struct, frozen=True, rename="camel"):
    """How many pods were tried, fit and don't fit, without those that wait already; on how many nodes."""

    pods: int
    fit: int
    nodes: int


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    """`waiting` is the number of the cluster's waiting pods, None if it was not asked; they come before, and
    are among `placed` and `refused`, where `with_waiting`."""

    source: str
    summary: _Counts
    waiting: int | None
    with_waiting: bool
    capacities: Sequence[Changed]
    placed: Sequence[Placed]
    refused: Sequence[Refused]
    short: Sequence[Shortage]
    looked_at: Sequence[str]
    not_looked_at: Sequence[str]


def run(options: argparse.Namespace) -> int:
    """Try the pods, and print what became of them. Return 0 if all fit, else 1."""
    report = _simulated(options, settings.from_environment())
    if options.output != "table":
        show(report, options.output)
    else:
        print("\n".join(_lines(report)))
    if report.not_looked_at:
        note(f"not looked at: {'; '.join(report.not_looked_at)}")
    return 0 if report.summary.fit == report.summary.pods else 1


def _simulated(options: argparse.Namespace, config: Settings) -> _Report:
    given = _read(options.files, options.namespace or context_namespace())
    pods = _new_pods(given, config)
    world = _world_of_files(options, config) if options.nodes else _world_of_cluster(config)
    _tell_of_namesakes(pods, world)
    pods = with_priorities(pods, [*given.priority_classes, *world.classes])
    pools, changed = with_capacities(_pools(options, world), world.nodes, dict(options.capacity))
    waiting = world.waiting if options.with_waiting else ()
    queue = in_queue(pods, waiting)
    attempt = Attempt(pools, world.nodes, world.running, time.time())
    with _progress("placing pods", len(queue), len(queue)) as advance:
        simulation = Simulation(world.store, attempt, advance=advance)
        outcome = simulation.run(queue)
    with _progress("looking for what would do", len(queue)):
        short = simulation.shortages()
    names = {pod.label for pod in pods}
    fit = sum(f"{one.namespace}/{one.pod}" in names for one in outcome.placed)
    return _Report(
        source=world.source,
        summary=_Counts(len(pods), fit, len(world.nodes)),
        waiting=None if options.nodes else len(world.waiting),
        with_waiting=bool(options.with_waiting),
        capacities=changed,
        placed=outcome.placed,
        refused=outcome.refused,
        short=short,
        looked_at=LOOKED_AT,
        not_looked_at=_not_looked_at(queue, world.running, pools, outcome),
    )


def _capacity(text: str) -> tuple[PoolDomain, int]:
    """Return an argument of --capacity as pool, domain ("": each) and number of units."""
    where, separator, number = text.rpartition("=")
    pool, slash, domain = where.partition("/")
    right = separator and pool and bool(slash) == bool(domain)
    if not right or not number.isdecimal() or int(number) > MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r} should be POOL=N or POOL/DOMAIN=N, with a number of units from 0 to {MOST}"
        )
    return (pool, domain), int(number)


# What is read


def _read(names: Iterable[str], namespace: str = "default") -> Manifests:
    manifests = Manifests()
    for manifest in read_all(names):
        manifests.add(manifest.document, manifest.place, namespace)
    return manifests


def _new_pods(given: Manifests, config: Settings) -> list[PodInFull]:
    """Return the pods that are to be tried. Raises BadInputError if there are none."""
    pods = [pod for pod in given.pods if not pod.spec.node_name and not pod.finished]
    if left := len(given.pods) - len(pods):
        note(f"left out, for they have a node already or have finished: {counted(left, 'pod')} of -f")
    if given.nodes:
        note(f"left out: {counted(len(given.nodes), 'node')} of -f; name their file with --nodes")
    if given.skipped:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(given.skipped.items()))
        note(f"left out, since simulate makes no pods of them: {kinds}")
    if not pods and not given.pods:
        raise BadInputError("there are no pods in -f: nothing to simulate")
    others = Counter(pod.spec.scheduler_name or "default-scheduler" for pod in pods)
    for scheduler, count in sorted(others.items()):
        if scheduler not in config.scheduler_names:
            note(f"simulated as if Berth were asked: {counted(count, 'pod')} with schedulerName {scheduler}")
    return pods


def _tell_of_namesakes(pods: Iterable[Pod], world: _World) -> None:
    """Say which of these workloads have pods already: the new ones come beside them."""
    mine = {owner_of(pod) or pod.label for pod in pods}
    there = Counter(owner_of(pod) or pod.label for pod in (*world.running, *world.waiting))
    for name in sorted(mine & there.keys()):
        note(f"{name} has {counted(there[name], 'pod')} already: those of -f are tried beside these")


def _world_of_files(options: argparse.Namespace, config: Settings) -> _World:
    """Return the world of --nodes: no cluster is asked, and no store either where there is --pools alone."""
    there = _read([options.nodes])
    running = known_apart(pod for pod in there.pods if pod.spec.node_name and not pod.finished)
    if options.with_waiting:
        raise UsageError("--with-waiting asks the cluster who waits, and --nodes asks none: leave one out")
    if not there.nodes:
        raise BadInputError(f"{options.nodes} holds no Node")
    alone = bool(options.pools) and options.store is None
    store = empty_ledger() if alone else _copied(config)
    made = f"an empty ledger made of {options.pools} and {options.nodes}"
    source = made if alone else redacted(config.store)
    return _World(store, source, there.nodes, running, (), there.priority_classes)


def _world_of_cluster(config: Settings) -> _World:
    store, cluster = _copied(config), connect()
    Ledger(store, cluster=cluster.identity, name=redacted(config.store)).require_cluster()
    pods = cluster.all(PodInFull, "/api/v1/pods", lambda pod: not pod.finished)
    try:
        classes = cluster.priority_classes()
    except ClusterRefusedError as error:
        note(f"PriorityClasses are not known: {error}")
        classes = []
    ours = [pod for pod in pods if pod.spec.scheduler_name in config.scheduler_names and pod.waiting]
    running = [pod for pod in pods if pod.spec.node_name]
    return _World(store, redacted(config.store), cluster.nodes(), running, ours, classes)


def _copied(config: Settings) -> MemoryStore:
    with closing(open_store(config.store, reads_only=True)) as store:
        require_ledger(store, config.store)
        return copy_of(store)


def _pools(options: argparse.Namespace, world: _World) -> dict[str, Pool]:
    if options.pools:
        return parse_each((one.document, one.place) for one in read_all([options.pools]))
    return Ledger(world.store).view().pools


@contextmanager
def _progress(what: str, pods: int, steps: int | None = None) -> Iterator[Callable[[], object]]:
    """Yield what is to be called after each step (None: nobody knows how many); a bar shows it, on a
    terminal, where there are many pods."""
    if pods < _MANY or not can_draw(sys.stderr):
        yield lambda: None
        return
    from rich.console import Console  # it takes 0.1 s to import
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=steps)
        yield lambda: progress.advance(task)


def _not_looked_at(
    tried: Sequence[PodInFull], running: Iterable[PodInFull], pools: Mapping[str, Pool], outcome: Outcome
) -> list[str]:
    counts = Counter(name for pod in tried for name in (*unseen(pod), *_beside_pools(pod, pools)))
    namespaces = {pod.namespace for pod in tried}
    if apart := sum(keeps_away(pod, namespaces) for pod in running):
        counts[_APART] = apart
    fields = [f"{name} ({counted(count, 'pod')})" for name, count in sorted(counts.items())]
    return [*([_PREEMPTION] if outcome.refused else []), *fields]


def _beside_pools(pod: PodInFull, pools: Mapping[str, Pool]) -> list[str]:
    """Name the resources that kube-scheduler does not count if its configuration ignores a Pool's group, as
    that of `berth scheduler-config` may."""
    groups = {pool.resource.partition("/")[0] for pool in pools.values()} - {GROUP, NATIVE}
    others = resources(pod) - {pool.resource for pool in pools.values()} if groups else frozenset()
    mine = sorted(name for name in others if name.partition("/")[0] in groups)
    return [f"whether kube-scheduler counts {name}" for name in mine]


# What is shown


def _lines(report: _Report) -> Iterator[str]:
    summary = report.summary
    yield f"{summary.fit} of {summary.pods} pods fit on {counted(summary.nodes, 'node')} ({_where(report)})"
    for change in report.capacities:
        where = f"{change.pool}/{change.domain}" if change.domain else change.pool
        each = " a domain" if change.per_domain else ""
        yield f"as if {where} had {change.after} units{each}{_was(change)}"
    if report.waiting:
        yield _of_waiting(report)
    if report.placed:
        yield ""
        yield from _placed_lines(report.placed)
    if report.refused:
        yield ""
        yield from _refused_lines(report.refused)
    if report.short:
        yield ""
        yield from map(_shortage_line, report.short)


def _where(report: _Report) -> str:
    made = report.source if report.source.startswith("an empty") else f"on a copy of {report.source}"
    return f"{made}; nothing was changed"


def _was(change: Changed) -> str:
    return "" if change.before is None else f" (now {change.before})"


def _of_waiting(report: _Report) -> str:
    waiting = report.waiting or 0
    if not report.with_waiting:
        return f"not counted: {counted(waiting, 'pod')} waiting in the cluster (--with-waiting)"
    placed = len(report.placed) - report.summary.fit
    return f"{placed} of {counted(waiting, 'pod')} waiting in the cluster would fit as well"


def _placed_lines(placed: Sequence[Placed]) -> Iterator[str]:
    by_node: dict[str, list[Placed]] = {}
    for one in placed:
        by_node.setdefault(one.node, []).append(one)
    nodes = sorted(by_node, key=natural)
    rows = [
        (node, str(len(by_node[node])), _units(by_node[node]), _names(by_node[node]))
        for node in nodes[:_MOST_NODES]
    ]
    yield from aligned(("NODE", "PODS", "UNITS", "WHICH"), rows)
    if len(nodes) > _MOST_NODES:
        rest = sum(len(by_node[node]) for node in nodes[_MOST_NODES:])
        yield f"and {len(nodes) - _MOST_NODES} more nodes with {rest} pods (-o json shows all)"


def _refused_lines(refused: Sequence[Refused]) -> Iterator[str]:
    by_reason: dict[str, list[Refused]] = {}
    for one in refused:
        by_reason.setdefault(one.why, []).append(one)
    rows = [(str(len(ones)), _names(ones), reason) for reason, ones in by_reason.items()]
    yield from aligned(("REFUSED", "WHICH", "WHY"), rows[:_MOST_REFUSALS])
    if len(rows) > _MOST_REFUSALS:
        yield f"and {len(rows) - _MOST_REFUSALS} more reasons (-o json shows all)"


def _names(ones: Sequence[Placed] | Sequence[Refused]) -> str:
    shown = [f"{one.namespace}/{one.pod}" for one in ones[:_MOST_NAMES]]
    more = [f"and {len(ones) - _MOST_NAMES} more"] if len(ones) > _MOST_NAMES else []
    return ", ".join([*shown, *more])


def _units(ones: Iterable[Placed]) -> str:
    counts = Counter[str]()
    for one in ones:
        for units in one.units:
            counts[units.pool] += units.count
    return ", ".join(f"{pool} {count}" for pool, count in sorted(counts.items())) or "-"


def _shortage_line(short: Shortage) -> str:
    text = f"{short.pool}: {counted(short.units, 'unit')} short for {counted(short.pods, 'pod')}"
    if short.enough is None or short.capacity is None:
        return text
    each = " a domain" if short.per_domain else ""
    would = f"{short.enough}{each} would do, now {short.capacity}"
    return f"{text}; {would} (--capacity {short.pool}={short.enough})"
