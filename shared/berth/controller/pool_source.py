"""One Pool changed in the active source of Pools: in the cluster, or in BERTH_POOLS' file.
It does not touch the ledger, which follows when the source tells of it, or within a minute."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from berth.api.pool import Pool, parse
from berth.controller.capacity_sync import documents
from berth.errors import BadInputError, ClusterRefusedError, SettingsError
from berth.kube.cluster import Cluster

Change = Callable[[Pool], Mapping[str, Any]]
"""From a Pool as it is to the fields of its spec that it is to have; None takes one away."""

_CLUSTER = "the cluster"
_TRIES = 5


def amend(path: Path | None, cluster: Callable[[], Cluster], name: str, change: Change) -> tuple[Pool, Pool]:
    """The Pool before and after the change, which may raise an error of its own; nothing is written then,
    nor where it changes nothing. `path` is the file of the active source, None: it is the cluster."""
    return _in_cluster(cluster(), name, change) if path is None else _in_file(path, name, change)


def write(path: Path, found: list[Any]) -> None:
    """Write these documents into the file. Raises SettingsError."""
    target = path.resolve()  # a symbolic link stays one
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.write_text(yaml.safe_dump_all(found, sort_keys=False), encoding="utf-8")
        fresh.rename(target)  # whole or not at all: a function may read it at any moment
    except OSError as error:
        raise SettingsError(f"can't write {error.filename or fresh}: {error.strerror}") from error


def _in_file(path: Path, name: str, change: Change) -> tuple[Pool, Pool]:
    found = [document for document in documents(path) if document is not None]
    parse(found, str(path))
    old = _named(found, name, str(path))
    before, after, new = _changed(old, change, str(path))
    if after != before:
        write(path, [new if document is old else document for document in found])
    return before, after


def _in_cluster(cluster: Cluster, name: str, change: Change) -> tuple[Pool, Pool]:
    for left in reversed(range(_TRIES)):
        found = cluster.pools()
        if found is None:
            raise SettingsError(
                "no Pools: set BERTH_POOLS to a file of them, or install the Pool CRD in the cluster"
            )
        old = _named(found, name, _CLUSTER)
        before, after, _ = _changed(old, change, _CLUSTER)
        if after == before:
            break
        try:
            cluster.patch_pool(old, change(before))
            break
        except ClusterRefusedError as error:
            if error.status != 409 or not left:  # its status was written meanwhile: look again
                raise
    return before, after


def _named(found: list[Any], name: str, source: str) -> Any:
    names = {document["metadata"]["name"]: document for document in found}
    if name not in names:
        raise BadInputError(f"{source} has no Pool {name}; there are: {', '.join(sorted(names)) or 'none'}")
    return names[name]


def _changed(document: Any, change: Change, source: str) -> tuple[Pool, Pool, Any]:
    """The Pool before and after, and its document then. Raises BadInputError where that is none."""
    (before,) = parse([document], source).values()
    spec = {**document["spec"], **change(before)}
    new = {**document, "spec": {field: value for field, value in spec.items() if value is not None}}
    (after,) = parse([new], source).values()
    return before, after, new
