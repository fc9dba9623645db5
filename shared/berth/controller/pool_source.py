"""The active source of Pools, BERTH_POOLS' file or the cluster's objects: read it, or change a Pool in it.
It does not touch the ledger, which follows when an event brings the change, or within a minute."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from berth.api.pool import Pool, parse
from berth.controller.manifests import decode, read, text_of
from berth.errors import BadInputError, ClusterRefusedError, SettingsError, alternatives, first_of
from berth.kube.cluster import Cluster

Change = Callable[[Pool], Mapping[str, Any]]
"""Returns, for a Pool as it is, the fields of its spec to write; None takes one away."""

_CLUSTER = "the cluster"
_TRIES = 5
_TEXTS = 4  # of the file, whose Pools are kept: each reconcile reads it, and to parse YAML takes long
_MISTAKES = 5  # of one Pool object that its status and the reports name


class Judged(NamedTuple):
    """Pool objects as far as they are right, by name; and what is wrong with each of the others."""

    right: Mapping[str, Pool]
    wrong: Mapping[str, str]


def judge(documents: Iterable[Mapping[str, Any]], known: Callable[[], Mapping[str, Pool]]) -> Judged:
    """Judge the cluster's Pool objects one by one: a typo in one must not stop the others.

    `known` returns the Pools that the ledger has. A wrong one stays as it is there. Of two that have one
    resource, the one that has it there keeps it; where neither has, both are wrong.
    """
    known = cache(known)  # one answer: it may be another one a moment later
    right: dict[str, Pool] = {}
    wrong: dict[str, str] = {}
    for document in documents:
        try:
            right |= parse([_without_extras(document)], _CLUSTER)
        except BadInputError as error:
            few = first_of(error.problems, _MISTAKES)
            wrong[document["metadata"]["name"]] = str(BadInputError(*few))
    # Each round takes at least one from the right ones: what the ledger has clashes with nothing that it has.
    while clashes := _clashes({**right, **_kept(wrong, known)}, known):
        wrong |= clashes
        right = {name: pool for name, pool in right.items() if name not in clashes}
    return Judged(right, wrong)


def take_pools(
    path: Path | None, cluster: Cluster, known: Callable[[], Mapping[str, Pool]], problems: list[str]
) -> dict[str, Pool]:
    """Return Pools as `read_pools`, but where Pool objects are wrong those of them that are `known` to the
    ledger stay as they are, the others are left out, and a line for each is added to `problems`.

    A file is taken whole or not at all, since an editor may be writing it.
    """
    if path is not None:
        return read_pools(path, cluster)
    known = cache(known)
    right, wrong = judge(_objects(cluster), known)
    if not wrong:
        return {**right}
    problems += wrong.values()
    return {**right, **_kept(wrong, known)}


def read_pools(path: Path | None, cluster: Cluster) -> dict[str, Pool]:
    """Return Pools by name from the file if there is one, else from the cluster's Pool objects; never both.

    Raises SettingsError where there is no source, BadInputError for a document that is wrong.
    """
    if path is not None:
        pools = {**_of_text(text_of(path), str(path))}
        if not pools:
            # An editor may empty a file before it writes: this must not withdraw all Pools for a moment.
            raise BadInputError(f"{path} holds no Pool; to withdraw the last one, set its capacity to 0")
        return pools
    return parse(map(_without_extras, _objects(cluster)), _CLUSTER)


@lru_cache(maxsize=_TEXTS)
def _of_text(text: str, source: str) -> Mapping[str, Pool]:
    return parse([manifest.document for manifest in decode(text, source)], source)


def documents(path: Path) -> list[Any]:
    """Return the YAML documents of a file. Raises BadInputError that names the file and line."""
    return [manifest.document for manifest in read(path)]


def amend(path: Path | None, cluster: Callable[[], Cluster], name: str, change: Change) -> tuple[Pool, Pool]:
    """Write the change to this Pool, and return the Pool before and after. Nothing is written where `change`
    raises, or changes nothing. `path` is the file of the active source; None: it is the cluster."""
    return _in_cluster(cluster(), name, change) if path is None else _in_file(path, name, change)


def write(path: Path, contents: list[Any]) -> None:
    """Write these documents into the file. Raises SettingsError."""
    target = path.resolve()  # a symbolic link stays one
    fresh = target.with_name(f"{target.name}.new")
    try:
        fresh.write_text(yaml.safe_dump_all(contents, sort_keys=False), encoding="utf-8")
        fresh.rename(target)  # whole or not at all: a function may read it at any moment
    except OSError as error:
        raise SettingsError(f"can't write {error.filename or fresh}: {error.strerror}") from error


def _in_file(path: Path, name: str, change: Change) -> tuple[Pool, Pool]:
    there = documents(path)
    parse(there, str(path))
    old = _document_of(name, there, str(path))
    before, after, new = _changed(old, change, str(path))
    if after != before:
        write(path, [new if document is old else document for document in there])
    return before, after


def _in_cluster(cluster: Cluster, name: str, change: Change) -> tuple[Pool, Pool]:
    for tries_left in reversed(range(_TRIES)):
        old = _document_of(name, _objects(cluster), _CLUSTER)
        before, after, _ = _changed(old, change, _CLUSTER)
        if after == before:
            break
        try:
            cluster.patch_pool(old, change(before))
            break
        except ClusterRefusedError as error:
            if error.status != 409 or not tries_left:  # 409: its status was written meanwhile
                raise
    return before, after


def _kept(wrong: Collection[str], known: Callable[[], Mapping[str, Pool]]) -> dict[str, Pool]:
    """Return those of the wrong Pools that the ledger has, as it has them."""
    there = known() if wrong else {}
    return {name: there[name] for name in wrong if name in there}


def _clashes(pools: Mapping[str, Pool], known: Callable[[], Mapping[str, Pool]]) -> dict[str, str]:
    """Return, for Pools that may not have their resource because another has it, what to say, by name."""
    by_resource: dict[str, list[Pool]] = {}
    for pool in pools.values():
        by_resource.setdefault(pool.resource, []).append(pool)
    wrong: dict[str, str] = {}
    for resource, shared in by_resource.items():
        if len(shared) > 1:
            there = known()
            names = " and ".join(sorted(pool.name for pool in shared))
            said = f"{_CLUSTER}: Pools {names} both have resource {resource}"
            had = {pool.name for pool in there.values() if pool.resource == resource}
            wrong |= {pool.name: said for pool in shared if pool.name not in had}
    return wrong


def _objects(cluster: Cluster) -> list[dict[str, Any]]:
    pools = cluster.pools()
    if pools is None:
        raise SettingsError(
            "no Pools: set BERTH_POOLS to a file of them, or install the Pool CRD in the cluster"
        )
    return pools


def _without_extras(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the fields that Berth knows: an object of the cluster may have others beside its spec."""
    return {key: document.get(key) for key in ("apiVersion", "kind", "metadata", "spec")}


def _document_of(name: str, pools: list[Any], source: str) -> Any:
    by_name = {pool["metadata"]["name"]: pool for pool in pools}
    if name not in by_name:
        raise BadInputError(f"{source} has no Pool {name}; {alternatives(name, sorted(by_name))}")
    return by_name[name]


def _changed(document: Any, change: Change, source: str) -> tuple[Pool, Pool, Any]:
    """Return the Pool before and after, and its new document. Raises BadInputError where that is wrong."""
    (before,) = parse([document], source).values()
    spec = {**document["spec"], **change(before)}
    new = {**document, "spec": {field: value for field, value in spec.items() if value is not None}}
    (after,) = parse([new], source).values()
    return before, after, new
