"""What applying documents would do to the active source, document by document and field by field.
It writes nothing; what a cluster would make of a document it asks the cluster itself."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from berth.controller.pool_source import documents
from berth.kube.cluster import Cluster

_OWN = ("name", "namespace", "labels", "annotations")
"""What an author writes of a document's metadata; the API server writes the rest."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Action = Literal["create", "change", "keep"]


class FieldChange(msgspec.Struct, frozen=True, rename="camel"):
    """A field before and after, such as spec.capacity.perDomain; null where it is not set."""

    field: str
    before: Any
    after: Any


class Planned(msgspec.Struct, frozen=True, rename="camel"):
    """What becomes of one document; `before` and `after` hold only what its author writes."""

    kind: str
    name: str
    before: dict[str, Any] | None
    after: dict[str, Any]

    @property
    def action(self) -> Action:
        if self.before is None:
            return "create"
        return "keep" if self.before == self.after else "change"

    @property
    def fields(self) -> list[FieldChange]:
        """Return the fields that change; none of a document that is new."""
        if self.before is None:
            return []
        old, new = dict(_fields(self.before)), dict(_fields(self.after))
        return [
            FieldChange(field, old.get(field), new.get(field))
            for field in dict.fromkeys([*old, *new])
            if old.get(field) != new.get(field)
        ]


def in_file(path: Path, new: list[dict[str, Any]]) -> list[Planned]:
    """Return what becomes of Pools of a file, in which a document takes the place of another of its name."""
    old = documents(path) if path.exists() else []
    by_name = {document["metadata"]["name"]: document for document in old}
    return [_planned(by_name.get(document["metadata"]["name"]), document) for document in new]


def in_cluster(cluster: Callable[[], Cluster], new: list[dict[str, Any]]) -> list[Planned]:
    """Return what becomes of Pools and PoolClaims of the cluster: it merges fields, and adds defaults."""
    return [_planned(*cluster().applied(document)) for document in new]


def _planned(before: dict[str, Any] | None, after: dict[str, Any]) -> Planned:
    meta = after["metadata"]
    name = f"{meta['namespace']}/{meta['name']}" if after["kind"] == "PoolClaim" else meta["name"]
    return Planned(after["kind"], name, None if before is None else _authored(before), _authored(after))


def _authored(document: Mapping[str, Any]) -> dict[str, Any]:
    meta = {key: value for key, value in document["metadata"].items() if key in _OWN}
    if isinstance(notes := meta.get("annotations"), dict) and _LAST_APPLIED in notes:
        meta["annotations"] = {key: value for key, value in notes.items() if key != _LAST_APPLIED}
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {key: value for key, value in meta.items() if value},
        "spec": document.get("spec"),
    }


def _fields(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield all fields with their values; a list is one value."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _fields(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
