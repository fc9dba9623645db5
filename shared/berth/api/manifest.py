"""What documents of Berth's kinds have in common: their head, and how a spec is decoded.
It knows no kind's own rules. What nobody knows is refused by its name, never ignored."""

from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec

from berth.api.names import API_VERSION
from berth.errors import BadInputError

Spec = TypeVar("Spec")

_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")


def is_kind(document: Any, kind: str) -> TypeGuard[dict[str, Any]]:
    """Whether the document is an object of this kind of Berth's."""
    head = (document.get("apiVersion"), document.get("kind")) if isinstance(document, dict) else ()
    return head == (API_VERSION, kind)


def spec_of(document: Mapping[str, Any], spec_type: type[Spec], where: str) -> Spec:
    """Decode the document's spec. Raises BadInputError that names the document by `where`, and the field."""
    if unknown := [key for key in document if key not in _FIELDS]:
        kind = document["kind"]
        raise BadInputError(f"{where}: unknown field {unknown[0]!r}; fields of a {kind} go under spec")
    spec = document.get("spec")
    try:
        return msgspec.convert({} if spec is None else spec, spec_type)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", "`spec")
        raise BadInputError(f"{where}: {text if '`spec' in text else f'{text} - at `spec`'}") from error
