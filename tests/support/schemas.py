"""A check of manifests by the schemas in CustomResourceDefinitions, stricter than an API server's: a field
beside those named is an error, also where the schema keeps unknown ones (as Knative's do, in silence)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster import Object

KNATIVE = Path(__file__).resolve().parents[1] / "controlplane" / ".bin-crds"
"""Knative's CustomResourceDefinitions, as tests/controlplane/build takes them out of its modules."""
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
}
_META = ("apiVersion", "kind", "metadata")


def crds_of(folder: Path) -> list[Object]:
    return [
        document
        for file in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
        if document and document["kind"] == "CustomResourceDefinition"
    ]


def schema_of(known: list[Object], document: Object) -> Object | None:
    """The schema of the document's kind and version; None where no CRD defines it."""
    group, _, version = document["apiVersion"].rpartition("/")
    for crd in known:
        if (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == (group, document["kind"]):
            for each in crd["spec"]["versions"]:
                if each["name"] == version:
                    found: Object = each["schema"]["openAPIV3Schema"]
                    return found
    return None


def wrong(schema: Object, document: Object) -> list[str]:
    """What the schema does not name, or names as another type, a line each with its path."""
    body = {key: value for key, value in document.items() if key not in _META}
    return list(_wrong(schema, body, ""))


def _wrong(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if not _is_of(schema, value):
        yield f"{path[1:]}: {value!r} is no {schema['type']}"
    elif isinstance(value, dict):
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, each in value.items():
            if key in named:
                yield from _wrong(named[key], each, f"{path}.{key}")
            elif isinstance(others, dict):
                yield from _wrong(others, each, f"{path}.{key}")
            elif named or not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path[1:]}: {key!r} is no field of it, which are {', '.join(sorted(named)) or 'none'}"
        for key in schema.get("required", ()):
            if key not in value and key not in _META:
                yield f"{path[1:]}: {key!r} is missing"
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _wrong(schema.get("items", {}), each, f"{path}[{number}]")


def _is_of(schema: Mapping[str, Any], value: Any) -> bool:
    if schema.get("x-kubernetes-int-or-string") or "type" not in schema:
        return True
    if schema["type"] == "boolean" or isinstance(value, bool):
        return schema["type"] == "boolean" and isinstance(value, bool)
    return isinstance(value, _TYPES[schema["type"]])
