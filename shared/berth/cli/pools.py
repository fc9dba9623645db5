"""`berth apply` and `berth reconcile`: write Pools to the active source, and mend the ledger now.
`apply` does not touch the ledger; the next reconcile (within a minute, or at once under `berth up`) does."""

import argparse
from pathlib import Path
from typing import Any

import msgspec
import yaml

from berth import settings
from berth.cluster import connect
from berth.errors import BadInputError, SettingsError
from berth.policy.pools import parse
from berth.steps.ours import ledger_and_cluster
from berth.steps.stock import documents
from berth.stores import shown
from berth.verbs.reconcile import Reconcile, Report


def apply(options: argparse.Namespace) -> int:
    """Add or replace Pools by name; nothing is written unless all of them, old and new, are right."""
    new = [document for document in documents(Path(options.file)) if document is not None]
    names = list(parse(new, options.file))
    if not names:
        raise BadInputError(f"{options.file} holds no Pool: nothing was applied")
    path = settings.from_environment().pools
    if path is None:
        cluster = connect()
        for document in new:
            cluster.apply_pool(document)
    else:
        _merge(path, new)
    print(f"applied to {path or 'the cluster'}: {', '.join(names)}")
    return 0


def _merge(path: Path, new: list[Any]) -> None:
    old = [document for document in documents(path) if document is not None]
    parse(old, str(path))
    replaced = {document["metadata"]["name"] for document in new}
    merged = [document for document in old if document["metadata"]["name"] not in replaced] + new
    parse(merged, str(path))
    target = path.resolve()  # a symbolic link stays one
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.write_text(yaml.safe_dump_all(merged, sort_keys=False), encoding="utf-8")
        fresh.rename(target)  # whole or not at all: a function may read it at any moment
    except OSError as error:
        raise SettingsError(f"can't write {error.filename or fresh}: {error.strerror}") from error


def reconcile(options: argparse.Namespace) -> int:
    """One reconcile in this process, with the functions' own settings; 1 if it found problems."""
    found = settings.from_environment()
    report = Reconcile(*ledger_and_cluster(found, while_closed=True), found).run()
    print(msgspec.json.encode(report).decode() if options.output == "json" else _text(report, found.store))
    return 1 if report.problems else 0


def _text(report: Report, store: str) -> str:
    lines = [
        f"ledger: {shown(store)}",
        "the ledger was rebuilt from the pods" if report.rebuilt else "",
        f"Pools changed: {', '.join(report.pools)}" if report.pools else "",
        f"claims released: {report.released}, settled: {report.settled}, adopted: {report.adopted}",
        f"capacities changed: {report.capacities}, pods woken: {report.woken}",
        *(f"problem: {problem}" for problem in report.problems),
    ]
    return "\n".join(line for line in lines if line)
