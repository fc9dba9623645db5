"""`berth apply`, `berth diff` and `berth validate`: Pools and PoolClaims that -f names.
They do not touch the ledger; the next reconcile (within a minute, or at once under `berth up`) does."""

import argparse
import difflib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from berth import settings
from berth.api.pool import parse
from berth.cli.manifests import Given, add_files, given, right
from berth.cli.output import show
from berth.cli.shared_options import add_kubeconfig, add_output
from berth.controller import planned
from berth.controller.planned import FieldChange, Planned
from berth.controller.pool_source import documents, write
from berth.kube.cluster import connect
from berth.ledger.report import counted

_CLUSTER = "the cluster"
_WORDS = {"create": "created", "change": "changed", "keep": "left as it is"}


class Applied(msgspec.Struct, frozen=True, rename="camel"):
    """One document of `berth apply -o json`."""

    kind: str
    name: str
    place: str
    action: planned.Action
    fields: list[FieldChange]


class Validated(msgspec.Struct, frozen=True, rename="camel"):
    """What `berth validate -o json` says."""

    pools: int
    pool_claims: int
    problems: list[str]


def add_options(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    _add_source(parser, "which need not exist; its comments are lost")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and write nothing")
    add_output(parser)
    parser.set_defaults(run=run)


def add_diff_options(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    _add_source(parser, "which need not exist")
    parser.set_defaults(run=diff, failed=2)  # as kubectl diff: 1 says that they differ


def add_validate_options(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    add_output(parser)
    parser.set_defaults(run=validate)


def _add_source(parser: argparse.ArgumentParser, more: str) -> None:
    add_kubeconfig(parser)
    words = f"the active source of Pools if it is a file (BERTH_POOLS), {more}"
    parser.add_argument("--pools", metavar="FILE", help=words)


def run(options: argparse.Namespace) -> int:
    """Add or replace Pools and PoolClaims by name; nothing is written unless all, old and new, are right."""
    wanted, pools = right(options.files), settings.from_environment().pools
    if pools is not None and wanted.pools:
        _merged(pools, wanted.pools)  # raises where the file, or both together, are wrong
    if not options.dry_run and options.output == "table":
        _write(wanted, pools, tell=True)
        return 0
    plans = _plans(wanted, pools)
    if not options.dry_run:
        _write(wanted, pools, tell=False)
    if options.output == "table":
        print("\n".join(line for plan in plans for line in _lines(plan)))
        print("dry run: nothing was written")
    else:
        reports = [
            Applied(each.kind, each.name, place, each.action, each.fields)
            for each, place in _placed(plans, pools)
        ]
        show({"dryRun": options.dry_run, "documents": reports}, options.output)
    return 0


def diff(options: argparse.Namespace) -> int:
    """Print how the active source would change, as a unified diff; 1 if it would."""
    wanted, pools = right(options.files), settings.from_environment().pools
    if pools is not None and wanted.pools:
        _merged(pools, wanted.pools)
    lines = [
        line for plan, place in _placed(_plans(wanted, pools), pools) for line in _diff(plan, place, wanted)
    ]
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


def validate(options: argparse.Namespace) -> int:
    """Print all that is wrong with the manifests, without a cluster; 1 if anything is."""
    wanted = given(options.files)
    if options.output != "table":
        show(Validated(len(wanted.pools), len(wanted.claims), wanted.problems), options.output)
    elif wanted.problems:
        print("\n".join(wanted.problems))
    else:
        print(f"all right: {counted(len(wanted.pools), 'Pool')}, {counted(len(wanted.claims), 'PoolClaim')}")
    return 1 if wanted.problems else 0


# What would change


def _plans(wanted: Given, pools: Path | None) -> list[Planned]:
    cluster, claims = cache(connect), [*wanted.claims.values()]
    if pools is None:
        return planned.in_cluster(cluster, [*wanted.pools, *claims])
    return [*planned.in_file(pools, wanted.pools), *planned.in_cluster(cluster, claims)]


def _placed(plans: list[Planned], pools: Path | None) -> list[tuple[Planned, str]]:
    return [(plan, _CLUSTER if plan.kind == "PoolClaim" else str(pools or _CLUSTER)) for plan in plans]


def _lines(plan: Planned) -> list[str]:
    head = f"{plan.kind} {plan.name} would be {_WORDS[plan.action]}"
    return [head, *(f"  {each.field}: {_value(each.before)} -> {_value(each.after)}" for each in plan.fields)]


def _value(value: object) -> str:
    return "(not set)" if value is None else msgspec.json.encode(value).decode()


def _diff(plan: Planned, place: str, wanted: Given) -> list[str]:
    old = [] if plan.before is None else _yaml(plan.before)
    names = f"{plan.kind} {plan.name} in {place}", wanted.places[plan.kind, plan.name]
    return list(difflib.unified_diff(old, _yaml(plan.after), *names, lineterm=""))


def _yaml(document: dict[str, Any]) -> list[str]:
    return yaml.safe_dump(document).splitlines()


# Writing


def _write(wanted: Given, pools: Path | None, *, tell: bool) -> None:
    if wanted.pools:
        place = _write_pools(wanted.pools, pools)
        if tell:
            print(f"applied to {place}: {', '.join(each['metadata']['name'] for each in wanted.pools)}")
    if wanted.claims:
        cluster = connect()
        for document in wanted.claims.values():
            cluster.apply_pool_claim(document)
        if tell:
            print(f"applied to the cluster: {', '.join(wanted.claims)}")


def _write_pools(new: list[dict[str, Any]], path: Path | None) -> str:
    if path is None:
        cluster = connect()
        for document in new:
            cluster.apply_pool(document)
        return _CLUSTER
    place = str(path) if path.exists() else f"{path}, which is new"
    write(path, _merged(path, new))
    return place


def _merged(path: Path, new: list[dict[str, Any]]) -> list[Any]:
    """Return the file's documents with the new ones among them. Raises BadInputError where any is wrong."""
    old = documents(path) if path.exists() else []
    parse(old, str(path))
    replaced = {document["metadata"]["name"] for document in new}
    merged = [document for document in old if document["metadata"]["name"] not in replaced] + new
    parse(merged, str(path))
    return merged
