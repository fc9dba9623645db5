"""`berth suspend`, `berth external` and `berth release`: what a person changes by hand now and then.
The first two write one field of a Pool in the active source, which the functions take over within a minute.
`release` believes a person that nothing uses the units, but only the API server that the pod is gone."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache, partial

import msgspec

from berth import settings
from berth.api.pool import EVERYWHERE, Pool
from berth.api.units import MOST
from berth.cli.output import is_terminal, note, show
from berth.cli.shared_options import (
    add_kubeconfig,
    add_output,
    add_source,
    add_store,
    existing_ledger,
    whole_number,
)
from berth.controller import manual_release
from berth.controller.capacity_sync import supply_of
from berth.controller.external_use import only_cluster
from berth.controller.manual_release import Release
from berth.controller.pool_source import amend
from berth.controller.poolclaims import publish_free
from berth.controller.requeue import room_in, wake
from berth.errors import BadInputError, BerthError, RefusedError, UsageError, alternatives
from berth.handlers.wiring import ledger_of, telling
from berth.kube.cluster import Cluster, connect
from berth.ledger.holders import holder, wholes
from berth.ledger.keys import parse_domain
from berth.ledger.ledger import Ledger
from berth.ledger.model import Holding
from berth.ledger.report import counted, natural
from berth.ledger.view import View
from berth.settings import Settings


class _Report(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Suspended(_Report, frozen=True):
    """A Pool's suspension as its spec has it now; `holders` is the number of pods that hold units where
    nothing is given, None where that is not known."""

    pool: str
    suspended: bool | tuple[str, ...]
    holders: int | None
    written_to: str


class External(_Report, frozen=True):
    """The units of a Pool that are in use outside the cluster, now and before."""

    pool: str
    external: int
    before: int
    over_committed: int
    written_to: str


class Freed(_Report, frozen=True):
    """What a pod that is gone held in one domain."""

    namespace: str
    pod: str
    uid: str
    pool: str
    domain: str
    count: int
    units: tuple[str, ...]


class Released(_Report, frozen=True):
    """What was freed, or with `dry_run` would be."""

    dry_run: bool
    freed: list[Freed]


def add_suspend_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL")
    parser.add_argument(
        "domains", metavar="DOMAIN", nargs="*", default=[], help="only these (default: the whole pool)"
    )
    parser.add_argument("--resume", action="store_true", help="give out units there again")
    _add_source(parser)
    add_output(parser)
    # argparse takes no domain after --resume: it believes that there are none once it has the pool.
    parser.set_defaults(run=suspend, words_to="domains")


def add_external_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool", metavar="POOL", help="one of scope Cluster")
    parser.add_argument(
        "units",
        metavar="N",
        type=whole_number(0, MOST, "number of units"),
        help="how many are in use there now",
    )
    _add_source(parser)
    add_output(parser)
    parser.set_defaults(run=external)


def add_release_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uid", metavar="POD_UID", nargs="?", help="all units that this pod held")
    parser.add_argument("--node", metavar="NODE", help="the units of all pods of this node that are gone")
    parser.add_argument("--pool", metavar="POOL", help="the pool of --unit")
    parser.add_argument("--unit", metavar="NAME", help="this unit of --pool")
    parser.add_argument("--dry-run", action="store_true", help="say what would be freed, and free nothing")
    words = "free without asking (only on a terminal there is a question: scripts do not need it)"
    parser.add_argument("-y", "--yes", action="store_true", help=words)
    add_kubeconfig(parser)
    add_store(parser)
    add_output(parser)
    parser.set_defaults(run=release)


def _add_source(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_store(parser, ", to see who holds units")


# suspend


def suspend(options: argparse.Namespace) -> int:
    """Let the pool, or some of its domains, take no new claims; or take them again."""
    config, cluster = settings.from_environment(), cache(connect)
    view, why = _view(config)

    def change(pool: Pool) -> dict[str, object]:
        if options.domains:
            _require_domains(pool, options.domains, cluster(), view)
        return {"suspended": _suspended(pool, options.domains, options.resume) or None}

    _, after = amend(config.pools, cluster, options.pool, change)
    place = str(config.pools or "the cluster")
    if view is None and not options.resume:
        note(f"how many pods hold units there is not known: {why}")
    if options.output != "table":
        holders = None if view is None else _holders(view, after.name, _shut(after, view))
        show(Suspended(after.name, after.spec.suspended, holders, place), options.output)
        return 0
    print(
        _resumed_text(after, options.domains)
        if options.resume
        else _suspended_text(after, options.domains, view)
    )
    print(f"written to {place}")
    return 0


def _shut(pool: Pool, view: View) -> set[str]:
    """Return the domains in which nothing is given."""
    return set(view.names(pool.name)) if pool.spec.suspended is True else set(pool.spec.suspended_domains)


def _suspended(pool: Pool, domains: list[str], resume: bool) -> bool | list[str]:
    """Return what spec.suspended is to be."""
    now = pool.spec.suspended
    if not domains or (now is True and not resume):
        return not resume
    if now is True:
        raise BadInputError(
            f"Pool {pool.name} is suspended as a whole: resume it, and suspend the other domains by name"
        )
    listed = [] if isinstance(now, bool) else list(now)
    if resume:
        return [domain for domain in listed if domain not in domains]
    return list(dict.fromkeys([*listed, *domains]))


def _require_domains(pool: Pool, domains: Iterable[str], cluster: Cluster, view: View | None) -> None:
    """Raise BadInputError for a domain that neither nodes, nor the Pool, nor the ledger know."""
    supply = supply_of({pool.name: pool}, cluster.nodes())
    known = {domain for _, domain in supply.capacities if not parse_domain(domain).is_quota}
    known |= set() if view is None else set(view.names(pool.name))
    known |= set() if isinstance(pool.spec.suspended, bool) else set(pool.spec.suspended)
    for domain in domains:
        if domain not in known:
            there = alternatives(domain, sorted(known, key=natural))
            raise BadInputError(f"Pool {pool.name} has no domain {domain}; {there}")


def _suspended_text(pool: Pool, domains: list[str], view: View | None) -> str:
    whole = pool.spec.suspended is True
    verb = "is" if whole or len(domains) == 1 else "are"
    what = f"Pool {pool.name}" if whole else f"Pool {pool.name}: {', '.join(domains)}"
    suspended = f"{what} {verb} suspended: nothing new is given there"
    if view is None:
        return f"{suspended}, and pods that hold units keep them"
    pods = _holders(view, pool.name, set(view.names(pool.name)) if whole else set(domains))
    if pods == 1:
        return f"{suspended}; 1 pod that holds units there keeps them"
    return f"{suspended}; {pods} pods that hold units there keep them"


def _resumed_text(pool: Pool, domains: list[str]) -> str:
    suspended = pool.spec.suspended
    if isinstance(suspended, bool):
        return f"Pool {pool.name} gives units again"
    return f"Pool {pool.name}: {', '.join(domains)} resumed; suspended still: {', '.join(suspended)}"


def _holders(view: View, pool: str, places: set[str]) -> int:
    """Return how many pods hold units there, without those that are gone."""
    return sum(
        any(holding.pool == pool and holding.whole in places for holding in claim.holdings)
        for claim in view.claims()
        if claim.state != "lost" and not claim.is_external
    )


# external


def external(options: argparse.Namespace) -> int:
    """Write how many units are in use outside the cluster."""
    config = settings.from_environment()
    change = partial(only_cluster, options.units)
    before, after = amend(config.pools, connect, options.pool, change)
    view, _ = _view(config)
    over, place = 0 if view is None else max(0, _over(after, view)), str(config.pools or "the cluster")
    if options.output != "table":
        report = External(after.name, after.spec.external, before.spec.external, over, place)
        show(report, options.output)
        return 0
    units = "1 unit is" if after.spec.external == 1 else f"{after.spec.external} units are"
    print(f"Pool {after.name}: {units} in use outside the cluster (before: {before.spec.external})")
    if over:
        print(f"over-committed by {over}: nothing new is given until pods have left as many")
    print(f"written to {place}")
    return 0


def _over(pool: Pool, view: View) -> int:
    """Return the units over the capacity, by what the cluster's pods hold and the external use of now."""
    held = sum(
        holding.count
        for claim in view.claims()
        for holding in claim.holdings
        if (holding.pool, holding.whole) == (pool.name, EVERYWHERE) and not claim.is_external
    )
    return held + pool.spec.external - (pool.capacity_of(EVERYWHERE) or 0)


def _view(config: Settings) -> tuple[View | None, str]:
    """Return what the ledger holds, or why it can't be read."""
    try:
        with existing_ledger(config.store, reads_only=True) as store:
            return Ledger(store).view(), ""
    except BerthError as error:
        return None, str(error)


# release


def release(options: argparse.Namespace) -> int:
    """Free units of one pod, of a node's pods, or one unit. Raises RefusedError for a pod that lives."""
    given = (options.uid, options.node, options.unit)
    if sum(name is not None for name in given) != 1 or (options.unit is None) != (options.pool is None):
        raise UsageError("say which: POD_UID, or --node NODE, or --pool POOL with --unit NAME")
    config, cluster = settings.from_environment(), connect()
    with existing_ledger(config.store) as store:
        ledger = ledger_of(cluster, config, store, while_closed=False)
        ledger.require_cluster()
        releases = _judged(options, cluster, ledger.view())
        if options.dry_run:
            _tell(options.output, releases, "would free")
            return 0
        if releases and not options.yes and is_terminal(sys.stdin) and not _confirmed(releases):
            note("nothing was freed")
            return 1
        with telling(cluster, config, "cli") as teller:
            freed = manual_release.free(ledger, releases, teller)
            publish_free(ledger, cluster, freed)
            _tell(options.output, releases, "freed")  # first: that stands, whatever becomes of the rest
            woken = wake(ledger, cluster, config.scheduler_names, room_in(freed), time.time())
    if options.output == "table":
        print(f"pods woken: {woken}")
    else:
        note(f"pods woken: {woken}")
    return 0


def _tell(output: str, releases: Collection[Release], done: str) -> None:
    if output == "table":
        print(_lines(releases, done) or "nothing is held there by a pod that is gone")
        return
    units = [
        Freed(
            namespace=release.claim.namespace,
            pod=release.claim.name,
            uid=release.claim.uid,
            pool=holding.pool,
            domain=holding.domain,
            count=holding.count,
            units=holding.units,
        )
        for release, holding in _holdings(releases)
    ]
    show(Released(done != "freed", units), output)


def _judged(options: argparse.Namespace, cluster: Cluster, view: View) -> list[Release]:
    """Return what may be freed; of a node's pods those that live are reported."""
    if options.uid is not None:
        releases = manual_release.of_pod(options.uid, view)
    elif options.unit is not None:
        releases = manual_release.of_unit(options.pool, options.unit, view)
    else:
        return _judged_of_node(options.node, cluster, view)
    return [manual_release.permitted(release, cluster, view) for release in releases]


def _judged_of_node(node: str, cluster: Cluster, view: View) -> list[Release]:
    judged, refusals = [], []
    for release in manual_release.of_node(node, view):
        try:
            judged.append(manual_release.permitted(release, cluster, view))
        except RefusedError as error:
            refusals.append(error)
    if refusals:
        note(f"{refusals[0]}" + (f"; and {len(refusals) - 1} more like it" if refusals[1:] else ""))
    return judged


def _confirmed(releases: Collection[Release]) -> bool:
    """Whether a person says that these may be freed; all that is not yes is no."""
    counts = Counter[str]()
    for _, holding in _holdings(releases):
        counts[holding.pool] += holding.count
    units = " and ".join(f"{counted(count, 'unit')} of {pool}" for pool, count in sorted(counts.items()))
    # Not on standard output: that may be one JSON document, and go into a file.
    sys.stderr.write(f"{_lines(releases, 'would free')}\n")
    sys.stderr.write(f"berth: nothing may use them any more. Free {units}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _holdings(releases: Iterable[Release]) -> Iterator[tuple[Release, Holding]]:
    """Yield what is freed, by whole domains."""
    for release in releases:
        for holding in wholes(release.claim):
            if holding.pool not in release.keep:
                yield release, holding


def _lines(releases: Iterable[Release], done: str) -> str:
    return "\n".join(
        f"{done}: {holding.count} {holding.pool} of {holding.domain}"
        + (f" ({', '.join(holding.units)})" if holding.units else "")
        + f", held by {holder(release.claim)} (UID {release.claim.uid})"
        for release, holding in _holdings(releases)
    )
