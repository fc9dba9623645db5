"""What documents of Berth's kinds have in common: their head, and how a spec is decoded.
It knows no kind's own rules. What nobody knows is refused by its name, never ignored."""

from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec

from berth.api.mistakes import mistakes
from berth.api.names import API_VERSION
from berth.errors import BadInputError, did_you_mean

Spec = TypeVar("Spec")

_FIELDS = ["apiVersion", "kind", "metadata", "spec", "status"]


def is_kind(document: Any, kind: str) -> TypeGuard[dict[str, Any]]:
    """Whether the document is an object of this kind of Berth's."""
    head = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else ()
    return head == (API_VERSION, kind)


def not_of_kind(document: Any, kinds: str) -> str:
    """Return what to say of a document of another kind."""
    said = f"each document should be an object with apiVersion: {API_VERSION} and kind: {kinds}"
    if not isinstance(document, dict):
        return said
    head = (f"{field}: {str(document[field])[:64]}" for field in _FIELDS[:2] if field in document)
    return f"{said}; this one has {', '.join(head) or 'neither'}"


def spec_of(document: Mapping[str, Any], spec_type: type[Spec], where: str) -> Spec:
    """Decode the document's spec. Raises BadInputError with all mistakes, each with `where`, which names the
    document, and the field."""
    wrong = [_beside_spec(key, document["kind"]) for key in document if key not in _FIELDS]
    # Where only a misspelt spec is there, that it is missing would be a second word about one mistake.
    if "spec" in document or not wrong:
        spec = document.get("spec")
        spec = {} if spec is None else spec
        try:
            decoded = msgspec.convert(spec, spec_type)
        except msgspec.ValidationError:
            wrong += mistakes(spec, spec_type, "spec")
    if wrong:
        raise BadInputError(*(f"{where}: {text}" for text in wrong))
    return decoded


def _beside_spec(key: object, kind: str) -> str:
    if near := did_you_mean(str(key), _FIELDS):
        return f"unknown field {key}{near}"
    return f"unknown field {key!r}; fields of a {kind} go under spec"
