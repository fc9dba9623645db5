"""`berth explain`: why a pod waits, or where it is, in plain words or as a document for a program.
It only reads: the pod, the nodes and the waiting pods from the cluster, all else from the ledger."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial

from berth import settings
from berth.api.pool import EVERYWHERE
from berth.cli.output import show
from berth.cli.shared_options import add_kubeconfig, add_output, add_store, existing_ledger
from berth.cli.tables import age, aligned, printable
from berth.controller.explain import explain_pod
from berth.errors import MovedError, SettingsError, UsageError
from berth.kube.client import context_namespace
from berth.kube.cluster import Cluster, connect
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.scheduling.explanation import Asked, DomainState, Explanation, Held, PoolClaimState, PoolState
from berth.settings import Settings
from berth.stores import redacted

_MOST_ROWS = 20  # of a table for a person
_MOST_NAMES = 5
_INDENT = "  "


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        metavar="POD",
        nargs="+",
        help="NAMESPACE/NAME, or NAME with -n; the word pod may stand before it: explain pod team-a/sim-3",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="of a pod that is given by its name (default: the context's)",
    )
    add_kubeconfig(parser)
    add_store(parser)
    add_output(parser)
    parser.set_defaults(run=explain)


def explain(options: argparse.Namespace, clock: Callable[[], float] = time.time) -> int:
    """Show why the pod waits, or where it is. It returns 0 when it could explain, also while the ledger is
    rebuilt: then that is the answer."""
    label = _label(options.names, options.namespace, context_namespace)
    config, cluster, now = settings.from_environment(), connect(), clock()
    told = explain_pod(cluster, partial(_view, cluster, config, clock), config.scheduler_names, label, now)
    if options.output == "table":
        print("\n".join(lines(told, now)))
    else:
        show(told, options.output)
    return 0


def _label(names: Sequence[str], namespace: str | None, usual: Callable[[], str]) -> tuple[str, str]:
    """Return the pod's namespace and name; `usual` returns the namespace where none is given. Raises
    UsageError for anything else."""
    rest = list(names[1:]) if names[0] in ("pod", "pods", "po") and len(names) > 1 else list(names)
    rest = [name.removeprefix("pod/") for name in rest]
    before, slash, name = rest[0].rpartition("/")
    if len(rest) > 1 or not name or "/" in before or (slash and not before):
        raise UsageError(f"{' '.join(names)!r} names no pod: write NAMESPACE/NAME, or NAME -n NAMESPACE")
    if before and namespace not in (None, before):
        raise UsageError(f"{rest[0]} and -n {namespace} name two namespaces: keep one")
    return before or namespace or usual(), name


def _view(cluster: Cluster, config: Settings, clock: Callable[[], float]) -> View:
    """Return what the ledger says. Raises its errors, and SettingsError where it is not this cluster's."""
    from berth.handlers.wiring import ledger_of

    with existing_ledger(config.store, reads_only=True) as store:
        view = Ledger(store, clock=clock, while_closed=True).view()
        if view.epoch is None or view.epoch.trouble() is None:
            ledger_of(cluster, config, store, while_closed=True).require_cluster()
    if view.being_copied:
        raise SettingsError(
            f"{redacted(config.store)} has part of a copy that has not ended: repeat berth store copy"
        )
    if view.epoch is not None and view.epoch.moved:
        raise MovedError(view.epoch.to)
    return view


def lines(told: Explanation, now: float) -> list[str]:
    """Return the explanation for a person, the answer first."""
    alone = told.verdict == "waits" and not any(pool.lacks for pool in told.pools)
    sections = (
        _facts(told, now),
        _remedies(told, now),
        _refused(told),
        *(section for pool in told.pools for section in _pool(pool, now, alone=alone)),
        [f"Note: {text}" for text in told.notes],
    )
    answer = [printable(f"{told} {told.summary}")]
    return [line for section in (answer, *filter(None, sections)) for line in ("", *section)][1:]


def _asked(asked: Asked) -> str:
    parts = ", ".join(f"{name} {count}" for name, count in asked.containers.items())
    by = f" (by container: {parts})" if len(asked.containers) > 1 else ""
    return f"{asked.units} {asked.pool}{by}"


def _facts(told: Explanation, now: float) -> list[str]:
    asks = ", ".join(map(_asked, told.asks))
    rows = [("asks", asks)]
    rows += [("PoolClaim", _poolclaim(claim, now)) for claim in told.pool_claims]
    rows += [("priority", str(told.priority) if told.waits_since and told.asks else "")]
    rows += [("waiting for", _ago(told.waits_since, now) if told.waits_since else "")]
    rows += [("holds", _held(held, now)) for held in told.holds]
    rows += [("annotation", f"{key}: {text}") for key, text in told.annotations.items()]
    for line in told.lines:
        before = _some([str(pod) for pod in line.before], line.place - 1)
        after = f"; before it: {before}" if before else ""
        rows.append(("in line", f"{line.place} of {line.length} for {line.pool}{after}"))
    if told.cordoned:
        rows.append(("cordoned", f"{_some(told.cordoned)} could take it, but for being cordoned"))
    if told.verdict == "fits":
        rows.append(("fits on", _some(told.fitting)))
    if (said := told.scheduler_says) is not None and said.message:
        rows.append(("kube-scheduler says", said.message))
    rows = [row for row in rows if row[1]]
    width = max((len(name) for name, _ in rows), default=0)
    return [printable(f"{_INDENT}{name:{width}}   {text}") for name, text in rows]


def _held(held: Held, now: float) -> str:
    claim = f" by PoolClaim {held.pool_claim}" if held.pool_claim else ""
    where = "" if held.domain == EVERYWHERE else f" in {held.domain}"
    units = f"{held.count} {held.pool}{where}{_named(held.units)}"
    return f"{units}{claim}, since {_ago(held.since, now)}"


def _poolclaim(claim: PoolClaimState, now: float) -> str:
    of = f"{claim.name}, {claim.count} of {claim.pool}{_named(claim.units)}"
    match claim.state:
        case "unknown":
            return f"{claim.name}: the ledger knows none of this name in the pod's namespace"
        case "held" if claim.holder is not None:
            holder = claim.holder
            return f"{of}: held by {holder} on {holder.node} since {_ago(holder.since, now)}"
        case state:
            return f"{of}: {state}"


def _remedies(told: Explanation, now: float) -> list[str]:
    if not told.remedies:
        unknown = told.verdict == "waits"
        return ["What would let it in: no change that berth can try"] if unknown else []
    header = "What would let it in" + (" (any one of these)" if len(told.remedies) > 1 else "")
    texts = []
    for remedy in told.remedies:
        for number, step in enumerate(remedy.steps):
            left = f", in {age(step.until.timestamp() - now)}" if step.until is not None else ""
            texts.append(f"{_INDENT}{'- ' if number == 0 else '  and '}{step.text}{left}")
            texts += [f"{_INDENT}    $ {step.command}"] if step.command else []
    return [f"{header}:", *map(printable, texts)]


def _refused(told: Explanation) -> list[str]:
    if not told.refused:
        return []
    rows = [(str(len(group.nodes)), _some(group.nodes), group.text) for group in told.refused[:_MOST_ROWS]]
    return ["Refused nodes, in filter's words:", *_indented(aligned(("NODES", "WHICH", "REASON"), rows))]


def _pool(pool: PoolState, now: float, *, alone: bool) -> Iterator[list[str]]:
    """Yield a pool's tables; `alone`: no pool is short everywhere, so each is told of."""
    yield _domains(pool)
    if pool.retained:
        rows = [
            (
                left.domain,
                str(left.count),
                _some(left.units) or "-",
                _until(left.rests_until) or "-",
                f"{left.owner or '-'} {_until(left.kept_until)}" if left.kept_until else "-",
            )
            for left in pool.retained[:_MOST_ROWS]
        ]
        table = aligned(("DOMAIN", "COUNT", "UNITS", "RESTS", "KEPT FOR"), rows)
        yield [f"What pods left of {pool.name}:", *_indented(table), *_more(len(pool.retained))]
    if pool.holders and (pool.lacks or alone):
        rows_held = [
            (
                str(holder),
                holder.node or "-",
                holder.domain,
                str(holder.count),
                _some(holder.units) or "-",
                holder.state,
                _ago(holder.since, now),
            )
            for holder in pool.holders[:_MOST_ROWS]
        ]
        table = aligned(("HOLDER", "NODE", "DOMAIN", "COUNT", "UNITS", "STATE", "SINCE"), rows_held)
        yield [_measured(pool, now), *_indented(table), *_more(pool.holder_count)]


def _measured(pool: PoolState, now: float) -> str:
    """Return what is known of how long its units are held: facts, no forecast."""
    what = f"{pool.name} in namespace {pool.holders_of}" if pool.holders_of else pool.name
    if pool.oldest_since is None or pool.median_since is None or pool.holder_count < 2:
        return f"Who holds {what}:"
    oldest, median = _ago(pool.oldest_since, now), _ago(pool.median_since, now)
    times = f"the oldest since {oldest}, the median since {median}"
    return f"Who holds {what} ({pool.holder_count} holders: {times}):"


def _domains(pool: PoolState) -> list[str]:
    rows = [
        (
            domain.name,
            str(domain.free),
            str(domain.capacity),
            str(domain.missing),
            str(domain.nodes),
            _rule(domain),
        )
        for domain in pool.domains[:_MOST_ROWS]
    ]
    table = aligned(("DOMAIN", "FREE", "CAPACITY", "MISSING", "NODES", "RULE"), rows) if rows else []
    told = [f"{_INDENT}{text}" for text in pool.refusals]
    if pool.unlabelled:
        told.append(f"{_INDENT}without label {pool.topology_key}: {_some(pool.unlabelled)}")
    if pool.outside:
        told.append(f"{_INDENT}not in the pool: {_some(pool.outside)}")
    header = f"Pool {pool.name} ({pool.asked} asked):"
    return [header, *map(printable, told), *_indented(table), *_more(len(pool.domains))]


def _rule(domain: DomainState) -> str:
    """Return what refuses in a domain, and what of it may be given later."""
    resting = f"{domain.resting} resting" if domain.resting else ""
    kept = f"{domain.kept} kept for others" if domain.kept else ""
    later = ", ".join(filter(None, (resting, kept)))
    return f"{domain.refusal} ({later})" if domain.refusal and later else domain.refusal or "enough"


def _indented(table: Sequence[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in table]


def _more(count: int) -> list[str]:
    return [f"{_INDENT}and {count - _MOST_ROWS} more"] if count > _MOST_ROWS else []


def _some(names: Sequence[str], count: int | None = None) -> str:
    """Return the first of these names, and how many there are besides, of `count` in all."""
    count = len(names) if count is None else count
    shown = names[:_MOST_NAMES]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def _named(units: Sequence[str]) -> str:
    return f" ({_some(units)})" if units else ""


def _until(moment: datetime | None) -> str:
    return f"until {moment:%Y-%m-%d %H:%M:%S} UTC" if moment is not None else ""


def _ago(moment: datetime, now: float) -> str:
    return age(now - moment.timestamp())
