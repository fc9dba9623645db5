"""`berth suspend` and `berth external`: one field of a Pool in the active source, and what it means for pods.
They do not touch the ledger: the functions do, when the source tells them, or within a minute."""

import argparse
from collections.abc import Iterable
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from berth import settings
from berth.api.pool import EVERYWHERE, Pool
from berth.cli.inspect import note, require_there
from berth.controller.capacity_sync import stock_of
from berth.controller.external_use import only_cluster
from berth.controller.pool_source import amend
from berth.errors import BadInputError, BerthError
from berth.kube.cluster import Cluster, connect
from berth.ledger.ledger import Ledger
from berth.ledger.model import UNRESERVED
from berth.ledger.report import natural
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import open_store

_SHOWN = 20  # domains that an error names


def suspend(options: argparse.Namespace) -> int:
    """No new claims in the pool, or in some of its domains; or claims again."""
    found, cluster = settings.from_environment(), cache(connect)
    view, why = _view(found)

    def change(pool: Pool) -> dict[str, object]:
        if options.domains:
            _require(pool, options.domains, cluster(), view)
        return {"suspended": _suspended(pool, options.domains, options.resume) or None}

    _, after = amend(found.pools, cluster, options.pool, change)
    print(_resumed(after, options.domains) if options.resume else _told(after, options.domains, view))
    if view is None and not options.resume:
        note(f"how many pods hold units there is not known: {why}")
    _written(found.pools)
    return 0


def external(options: argparse.Namespace) -> int:
    """So many units are in use outside the cluster."""
    found = settings.from_environment()
    change = partial(only_cluster, options.units)
    before, after = amend(found.pools, connect, options.pool, change)
    units = "1 unit is" if after.spec.external == 1 else f"{after.spec.external} units are"
    print(f"Pool {after.name}: {units} in use outside the cluster (before: {before.spec.external})")
    view, _ = _view(found)
    if view is not None and (over := _over(after, view)) > 0:
        print(f"over-committed by {over}: nothing new is given until pods have left as many")
    _written(found.pools)
    return 0


def _suspended(pool: Pool, domains: list[str], resume: bool) -> bool | list[str]:
    """What spec.suspended is to be."""
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


def _require(pool: Pool, domains: Iterable[str], cluster: Cluster, view: View | None) -> None:
    """Raise BadInputError for a domain that neither nodes, nor the Pool, nor the ledger know."""
    stock = stock_of({pool.name: pool}, cluster.nodes())
    known = {domain for _, domain in stock.capacities if not domain.endswith(UNRESERVED)}
    known |= set() if view is None else set(view.names(pool.name))
    known |= set() if isinstance(pool.spec.suspended, bool) else set(pool.spec.suspended)
    for domain in domains:
        if domain not in known:
            names = sorted(known, key=natural)
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            there = ", ".join(names[:_SHOWN]) or "none"
            raise BadInputError(f"Pool {pool.name} has no domain {domain}; there are: {there}{more}")


def _told(pool: Pool, domains: list[str], view: View | None) -> str:
    whole = pool.spec.suspended is True
    what = f"Pool {pool.name} is" if whole else f"Pool {pool.name}: {_listed(domains)}"
    suspended = f"{what} suspended: nothing new is given there"
    if view is None:
        return f"{suspended}, and pods that hold units keep them"
    places = set(view.names(pool.name)) if whole else set(domains)
    pods = _holders(view, pool.name, places)
    if pods == 1:
        return f"{suspended}; 1 pod that holds units there keeps them"
    return f"{suspended}; {pods} pods that hold units there keep them"


def _resumed(pool: Pool, domains: list[str]) -> str:
    suspended = pool.spec.suspended
    if isinstance(suspended, bool):
        return f"Pool {pool.name} gives units again"
    return f"Pool {pool.name}: {', '.join(domains)} resumed; suspended still: {', '.join(suspended)}"


def _listed(domains: list[str]) -> str:
    return f"{', '.join(domains)} {'is' if len(domains) == 1 else 'are'}"


def _holders(view: View, pool: str, places: set[str]) -> int:
    """Pods, those aside that are gone."""
    return sum(
        any(each.pool == pool and each.place in places for each in claim.holdings)
        for claim in view.claims()
        if claim.state != "lost" and not claim.is_external
    )


def _over(pool: Pool, view: View) -> int:
    """Units over the capacity, by what the cluster's pods hold and the external use of now."""
    held = sum(
        each.count
        for claim in view.claims()
        for each in claim.holdings
        if (each.pool, each.place) == (pool.name, EVERYWHERE) and not claim.is_external
    )
    return held + pool.spec.external - (pool.capacity_of(EVERYWHERE) or 0)


def _view(found: Settings) -> tuple[View | None, str]:
    """What the ledger holds, or why it can't be read."""
    try:
        with closing(open_store(found.store)) as store:
            require_there(store, found.store)
            return Ledger(store).view(), ""
    except BerthError as error:
        return None, str(error)


def _written(path: Path | None) -> None:
    print(f"written to {path or 'the cluster'}")
