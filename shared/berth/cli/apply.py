"""`berth apply`: write Pools and PoolClaims.
It does not touch the ledger; the next reconcile (within a minute, or at once under `berth up`) does."""

import argparse
from pathlib import Path
from typing import Any

from berth import settings
from berth.api import poolclaim
from berth.api.pool import parse
from berth.cli.shared_options import add_kubeconfig
from berth.controller.pool_source import documents, write
from berth.errors import BadInputError
from berth.kube.cluster import connect


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    parser.add_argument("-f", "--file", metavar="FILE", required=True, help="Pools and PoolClaims")
    parser.add_argument(
        "--pools",
        metavar="FILE",
        help="the active source if it is a file (BERTH_POOLS), which need not exist; its comments are lost",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
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
    """Return the PoolClaims' documents with their namespaces filled in, by namespace/name."""
    claims: dict[str, dict[str, Any]] = {}
    for document in filter(_is_claim, given):
        try:
            claim = poolclaim.parse(document)
        except BadInputError as error:
            raise BadInputError(f"{source}: {error}") from error
        if claim.label in claims:
            raise BadInputError(f"{source}: PoolClaim {claim.label} is there twice")
        claims[claim.label] = document | {"metadata": document["metadata"] | {"namespace": claim.namespace}}
    return claims


def _is_claim(document: Any) -> bool:
    return isinstance(document, dict) and document.get("kind") == "PoolClaim"


def _merge(path: Path, new: list[Any]) -> None:
    old = [document for document in documents(path) if document is not None]
    parse(old, str(path))
    replaced = {document["metadata"]["name"] for document in new}
    merged = [document for document in old if document["metadata"]["name"] not in replaced] + new
    parse(merged, str(path))
    write(path, merged)
