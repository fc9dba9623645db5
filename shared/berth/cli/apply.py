"""`berth apply`, `berth diff` and `berth validate`: Pools and PoolClaims that -f names.
They do not touch the ledger; the next reconcile (within a minute, or at once under `berth up`) does."""

import argparse
import difflib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from berth import settings
from berth.api.pool import parse
from berth.cli.manifests import Given, add_files, given, lacking, right
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


class _Wanted(NamedTuple):
    """The documents; the active source if it is a file, and its documents with these Pools among them."""

    given: Given
    pools: Path | None
    merged: list[Any]


def run(options: argparse.Namespace) -> int:
    """Add or replace Pools and PoolClaims by name; nothing is written unless all, old and new, are right."""
    wanted = _wanted(options)
    if not options.dry_run and options.output == "table":
        _write(wanted, tell=True)
        return 0
    plans = _plans(wanted)
    if not options.dry_run:
        _write(wanted, tell=False)
    if options.output == "table":
        print("\n".join(line for plan, _ in plans for line in _lines(plan)))
        print("dry run: nothing was written")
    else:
        reports = [Applied(each.kind, each.name, place, each.action, each.fields) for each, place in plans]
        show({"dryRun": options.dry_run, "documents": reports}, options.output)
    return 0


def diff(options: argparse.Namespace) -> int:
    """Print how the active source would change, as a unified diff; 1 if it would."""
    wanted = _wanted(options)
    lines = [line for plan, place in _plans(wanted) for line in _diff(plan, place, wanted.given)]
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


def validate(options: argparse.Namespace) -> int:
    """Print all that is wrong with the manifests, without a cluster; 1 if anything is."""
    wanted = given(options.files)
    problems = [*wanted.problems, *filter(None, [lacking(wanted, options.files)])]
    if options.output != "table":
        show(Validated(len(wanted.pools), len(wanted.claims), problems), options.output)
    elif problems:
        print("\n".join(problems))
    else:
        print(f"all right: {counted(len(wanted.pools), 'Pool')}, {counted(len(wanted.claims), 'PoolClaim')}")
    return 1 if problems else 0


def _wanted(options: argparse.Namespace) -> _Wanted:
    """Return what is to be applied. Raises BadInputError where that, the file, or both together are wrong."""
    wanted, pools = right(options.files), settings.from_environment().pools
    merged = _merged(pools, wanted.pools) if pools is not None and wanted.pools else []
    return _Wanted(wanted, pools, merged)


# What would change


def _plans(wanted: _Wanted) -> list[tuple[Planned, str]]:
    """Return what becomes of each document, and where."""
    cluster, (pools, claims) = cache(connect), (wanted.given.pools, [*wanted.given.claims.values()])
    if wanted.pools is None:
        return [(plan, _CLUSTER) for plan in planned.in_cluster(cluster, [*pools, *claims])]
    in_file = [(plan, str(wanted.pools)) for plan in planned.in_file(wanted.pools, pools)]
    return [*in_file, *((plan, _CLUSTER) for plan in planned.in_cluster(cluster, claims))]


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


def _write(wanted: _Wanted, *, tell: bool) -> None:
    new, claims = wanted.given.pools, wanted.given.claims
    if new:
        place = _write_pools(wanted)
        if tell:
            print(f"applied to {place}: {', '.join(each['metadata']['name'] for each in new)}")
    if claims:
        cluster = connect()
        for document in claims.values():
            cluster.apply_pool_claim(document)
        if tell:
            print(f"applied to the cluster: {', '.join(claims)}")


def _write_pools(wanted: _Wanted) -> str:
    if (path := wanted.pools) is None:
        cluster = connect()
        for document in wanted.given.pools:
            cluster.apply_pool(document)
        return _CLUSTER
    place = str(path) if path.exists() else f"{path}, which is new"
    write(path, wanted.merged)
    return place


def _merged(path: Path, new: list[dict[str, Any]]) -> list[Any]:
    """Return the file's documents with the new ones among them. Raises BadInputError where any is wrong."""
    old = documents(path) if path.exists() else []
    parse(old, str(path))
    replaced = {document["metadata"]["name"] for document in new}
    merged = [document for document in old if document["metadata"]["name"] not in replaced] + new
    parse(merged, str(path))
    return merged
