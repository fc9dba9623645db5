"""`berth apply` and `berth reconcile`: write Pools and PoolClaims, and mend the ledger now.
`apply` does not touch the ledger; the next reconcile (within a minute, or at once under `berth up`) does."""

import argparse
import math
from pathlib import Path
from typing import Any

import msgspec

from berth import settings
from berth.api import poolclaim
from berth.api.pool import parse
from berth.controller.capacity_sync import documents
from berth.controller.pool_source import write
from berth.errors import BadInputError
from berth.handlers.reconcile import Reconcile, Report
from berth.handlers.wiring import ledger_and_cluster
from berth.kube.cluster import connect
from berth.stores import shown


def apply(options: argparse.Namespace) -> int:
    """Add or replace Pools and PoolClaims by name; nothing is written unless all, old and new, are right."""
    given = [document for document in documents(Path(options.file)) if document is not None]
    claims = _claims(given, options.file)
    new = [document for document in given if not _is_claim(document)]
    names = list(parse(new, options.file))
    if not names and not claims:
        raise BadInputError(f"{options.file} holds no Pool and no PoolClaim: nothing was applied")
    if names:
        _apply_pools(new, names)
    if claims:
        cluster = connect()
        for document in claims.values():
            cluster.apply_pool_claim(document)
        print(f"applied to the cluster: {', '.join(claims)}")
    return 0


def _apply_pools(new: list[Any], names: list[str]) -> None:
    path = settings.from_environment().pools
    place = str(path or "the cluster")
    if path is None:
        cluster = connect()
        for document in new:
            cluster.apply_pool(document)
    elif path.exists():
        _merge(path, new)
    else:
        write(path, new)
        place = f"{path}, which is new"
    print(f"applied to {place}: {', '.join(names)}")


def _claims(given: list[Any], source: str) -> dict[str, dict[str, Any]]:
    """The PoolClaims' documents with their namespaces filled in, by namespace/name."""
    found: dict[str, dict[str, Any]] = {}
    for document in filter(_is_claim, given):
        try:
            claim = poolclaim.parse(document)
        except BadInputError as error:
            raise BadInputError(f"{source}: {error}") from error
        if claim.label in found:
            raise BadInputError(f"{source}: PoolClaim {claim.label} is there twice")
        found[claim.label] = document | {"metadata": document["metadata"] | {"namespace": claim.namespace}}
    return found


def _is_claim(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == "PoolClaim"


def _merge(path: Path, new: list[Any]) -> None:
    old = [document for document in documents(path) if document is not None]
    parse(old, str(path))
    replaced = {document["metadata"]["name"] for document in new}
    merged = [document for document in old if document["metadata"]["name"] not in replaced] + new
    parse(merged, str(path))
    write(path, merged)


def reconcile(options: argparse.Namespace) -> int:
    """One reconcile in this process, with the functions' own settings; 1 if it found problems."""
    found = settings.from_environment()
    verb = Reconcile(*ledger_and_cluster(found, while_closed=True), found, rebuild_seconds=math.inf)
    report = verb.run()
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
