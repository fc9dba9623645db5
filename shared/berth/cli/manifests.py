"""What -f names, on every command that reads manifests: files, folders, or standard input.
All that is wrong with them is collected first: nobody has to mend one mistake to see the next."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from berth.api import pool, poolclaim
from berth.api.manifest import not_of_kind
from berth.api.mistakes import mistakes
from berth.controller.manifests import Manifest, decode, files_in, read
from berth.errors import BadInputError
from berth.stores import redacted

_STDIN = "-"
_NOTES, _Notes = ("labels", "annotations"), dict[str, str] | None


class Given(NamedTuple):
    """What manifests hold: the Pools' documents in order, the PoolClaims' by namespace/name, with their
    namespaces filled in, where each stands, and all that is wrong with any of them."""

    pools: list[dict[str, Any]]
    claims: dict[str, dict[str, Any]]
    places: dict[tuple[str, str], str]
    problems: list[str]


def add_files(parser: argparse.ArgumentParser, what: str = "Pools and PoolClaims") -> None:
    parser.add_argument(
        "-f",
        "--file",
        dest="files",
        metavar="FILE",
        action="append",
        required=True,
        help=f"the manifests to read, {what}: a file, a folder (its *.yaml, *.yml, *.json), or "
        "- for standard input; may be repeated",
    )


def given(names: Iterable[str]) -> Given:
    """Return what the manifests hold that -f names, and all that is wrong with them."""
    manifests, problems = _read(names)
    pools: list[Manifest] = []
    claims: list[Manifest] = []
    others: list[Manifest] = []
    for manifest in manifests:
        kind = manifest.document.get("kind") if isinstance(manifest.document, dict) else None
        (pools if kind == "Pool" else claims if kind == "PoolClaim" else others).append(manifest)
    problems += [f"{other.place}: {not_of_kind(other.document, 'Pool or PoolClaim')}" for other in others]
    by_name, wrong = _claims(claims)
    problems += [*_wrong_pools(pools), *wrong]
    problems += [text for manifest in (*pools, *claims) for text in _wrong_notes(manifest)]
    places = {("PoolClaim", name): claim.place for name, claim in by_name.items()}
    if not problems:
        places |= {("Pool", each.document["metadata"]["name"]): each.place for each in pools}
    order = {manifest.place: number for number, manifest in enumerate(manifests)}
    problems.sort(key=lambda text: order.get(text.partition(": ")[0], -1))
    documents = {name: claim.document for name, claim in by_name.items()}
    return Given([each.document for each in pools], documents, places, problems)


def right(names: list[str]) -> Given:
    """Return what the manifests hold. Raises BadInputError where anything is wrong, or there is nothing."""
    wanted = given(names)
    if wanted.problems:
        raise BadInputError(*wanted.problems)
    if lack := lacking(wanted, names):
        raise BadInputError(f"{lack}: nothing was applied")
    return wanted


def lacking(wanted: Given, names: list[str]) -> str:
    """Return that manifests without any mistake hold nothing of ours; empty where they do."""
    if wanted.pools or wanted.claims or wanted.problems:
        return ""
    listed = ", ".join("standard input" if name == _STDIN else name for name in names)
    return f"{listed} holds no Pool and no PoolClaim"


def read_all(names: Iterable[str]) -> list[Manifest]:
    """Return the documents that -f names. Raises BadInputError with all that can't be read."""
    manifests, problems = _read(names)
    if problems:
        raise BadInputError(*problems)
    return manifests


def _read(names: Iterable[str]) -> tuple[list[Manifest], list[str]]:
    manifests: list[Manifest] = []
    problems: list[str] = []
    for name in dict.fromkeys(names):
        try:
            if name == _STDIN:
                manifests += decode(_standard_input(), "standard input")
                continue
            files = _files(name)
        except BadInputError as error:
            problems += error.problems
            continue
        for file in files:
            try:
                manifests += read(file)
            except BadInputError as error:
                problems += error.problems
    return manifests, problems


def _files(name: str) -> list[Path]:
    if "://" in name:
        raise BadInputError(f"{redacted(name)} is no file: fetch it, and let Berth read it by -f {_STDIN}")
    return files_in(Path(name))


def _standard_input() -> str:
    if sys.stdin is None:
        raise BadInputError("there is no standard input to read: it is closed")
    try:
        return sys.stdin.read()
    except UnicodeError as error:
        raise BadInputError("standard input is not YAML: it is not UTF-8 text") from error


def _wrong_pools(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    try:
        pool.parse_each((manifest.document, manifest.place) for manifest in manifests)
    except BadInputError as error:
        return error.problems
    return ()


def _wrong_notes(manifest: Manifest) -> list[str]:
    """Return what the API server would refuse of the labels and annotations, in which Berth reads nothing."""
    meta = manifest.document.get("metadata")
    notes = {field: meta.get(field) for field in _NOTES} if isinstance(meta, dict) else {}
    wrong = [text for field in notes for text in mistakes(notes[field], _Notes, f"metadata.{field}")]
    return [f"{manifest.place}: {manifest.document['kind']} {meta.get('name')}: {text}" for text in wrong]


def _claims(manifests: Iterable[Manifest]) -> tuple[dict[str, Manifest], list[str]]:
    claims: dict[str, Manifest] = {}
    wrong: list[str] = []
    for manifest in manifests:
        document = manifest.document
        try:
            claim = poolclaim.parse(document)
        except BadInputError as error:
            wrong += [f"{manifest.place}: {problem}" for problem in error.problems]
            continue
        if claim.label in claims:
            wrong.append(f"{manifest.place}: PoolClaim {claim.label} is there twice")
        meta = document["metadata"] | {"namespace": claim.namespace}
        claims[claim.label] = manifest._replace(document=document | {"metadata": meta})
    return claims, wrong
