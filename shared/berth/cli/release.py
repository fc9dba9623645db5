"""`berth release`: free units that stay held though their pod is gone, because a person says so.
It believes the person that nothing uses them any more, and only the API server that the pod is gone."""

import argparse
import time
from collections.abc import Iterable
from contextlib import closing

from berth import settings
from berth.cli.inspect import note, require_there
from berth.controller import manual_release
from berth.controller.manual_release import Release
from berth.controller.poolclaims import told_free
from berth.controller.requeue import room_in, wake
from berth.errors import BadInputError, RefusedError
from berth.handlers.wiring import ledger_of
from berth.kube.cluster import Cluster, connect
from berth.ledger.holders import holder, wholes
from berth.ledger.view import View
from berth.settings import Settings
from berth.stores import open_store
from berth.stores.base import Store


def release(options: argparse.Namespace) -> int:
    """Free what is asked for; 1 where a pod that was named lives."""
    given = (options.uid, options.node, options.unit)
    if sum(each is not None for each in given) != 1 or (options.unit is None) != (options.pool is None):
        raise BadInputError("say which: POD_UID, or --node NODE, or --pool POOL with --unit NAME")
    found, cluster = settings.from_environment(), connect()
    with closing(open_store(found.store)) as store:
        require_there(store, found.store)
        _release(options, found, cluster, store)
    return 0


def _release(options: argparse.Namespace, found: Settings, cluster: Cluster, store: Store) -> None:
    ledger = ledger_of(cluster, found, store, while_closed=False)
    ledger.require_ours()
    view = ledger.view()
    wanted = _judged(options, cluster, view)
    if not options.dry_run:
        freed = manual_release.free(ledger, wanted)
        told_free(cluster, freed)
    _tell(wanted, "would free" if options.dry_run else "freed")
    if not options.dry_run:
        woken = wake(ledger, cluster, found.scheduler_names, room_in(freed), time.time())
        print(f"pods woken: {woken}")


def _judged(options: argparse.Namespace, cluster: Cluster, view: View) -> list[Release]:
    if options.node is None:
        wanted = _wanted(options, view)
        return [manual_release.judged(each, cluster, view) for each in wanted]
    judged, refused = [], []
    for each in manual_release.of_node(options.node, view):
        try:
            judged.append(manual_release.judged(each, cluster, view))
        except RefusedError as error:
            refused.append(error)
    if refused:
        note(f"{refused[0]}" + (f"; and {len(refused) - 1} more like it" if refused[1:] else ""))
    return judged


def _wanted(options: argparse.Namespace, view: View) -> list[Release]:
    if options.uid is not None:
        return manual_release.of_pod(options.uid, view)
    return manual_release.of_unit(options.pool, options.unit, view)


def _tell(wanted: Iterable[Release], done: str) -> None:
    lines = [
        f"{done}: {each.count} {each.pool} of {each.domain}{_names(each.units)},"
        f" held by {holder(release.claim)} (UID {release.claim.uid})"
        for release in wanted
        for each in wholes(release.claim)
        if each.pool not in release.keep
    ]
    print("\n".join(lines) if lines else "nothing is held there by a pod that is gone")


def _names(units: tuple[str, ...]) -> str:
    return f" ({', '.join(units)})" if units else ""
