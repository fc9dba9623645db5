"""PoolClaims: units of one pool under a name; what a document says, and which of them a pod names.
Whether pool and units exist, and who holds them, is for others to say."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from berth.api.names import SUBDOMAIN
from berth.api.pool import API_VERSION, GROUP
from berth.api.units import Units
from berth.errors import BadInputError
from berth.kube.types import Pod

CLAIMS = f"{GROUP}/claims"
"""The pod's annotation that names PoolClaims of its namespace, with commas between them."""

Phase = Literal["Available", "Reserved", "Bound", "Refused"]

MOST_CLAIMS = 16
"""PoolClaims that a pod may name: each is looked for among all Pools, at each try to schedule the pod."""

MOST_UNITS = 128
"""Units that a PoolClaim may name, and of those that its last pod had as many are remembered."""

_LONGEST_NAME = 253
_LONGEST_POOL = 63
_NAME = re.compile(SUBDOMAIN)
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")


class PoolClaim(msgspec.Struct, frozen=True):
    """`count` units of the pool, any of them; or where `units` names some, these and no others."""

    namespace: str
    name: str
    uid: str
    pool: str
    count: int = 1
    units: tuple[str, ...] = ()
    created: str = ""

    @property
    def weight(self) -> int:
        """Return what it takes of its namespace's bound: as much as it names units, or 1."""
        return max(1, len(self.units))

    @property
    def label(self) -> str:
        """The PoolClaim as messages name it: namespace/name."""
        return f"{self.namespace}/{self.name}"


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pool: str
    count: int | None = None
    units: tuple[str, ...] | None = None


def parse(document: Any) -> PoolClaim:
    """Reads one decoded document. Raises BadInputError that names the PoolClaim and field."""
    metadata = _metadata(document)
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    if not is_name(name) or not is_name(namespace):
        raise BadInputError(
            f"PoolClaim {namespace[:64]}/{name[:64]}: its namespace and name should be of lower-case letters,"
            " digits, - and ."
        )
    where = f"PoolClaim {namespace}/{name}"
    if unknown := [key for key in document if key not in _FIELDS]:
        raise BadInputError(f"{where}: unknown field {unknown[0]!r}; fields of a PoolClaim go under spec")
    spec = _spec(document.get("spec"), where)
    units = _units(spec, where)
    uid, created = str(metadata.get("uid", "")), str(metadata.get("creationTimestamp") or "")
    return PoolClaim(namespace, name, uid, spec.pool, spec.count or len(units) or 1, units, created)


def within(claims: Iterable[PoolClaim], most: int) -> list[PoolClaim]:
    """Return those that stay within what a namespace's may weigh together: the oldest first, so that a new
    one takes nothing from those that are used."""
    found, weights = [], dict[str, int]()
    for each in sorted(claims, key=lambda each: (each.created, each.label)):
        weight = weights.get(each.namespace, 0) + each.weight
        if weight <= most:
            weights[each.namespace] = weight
            found.append(each)
    return found


def named(pod: Pod) -> tuple[str, ...]:
    """The PoolClaims that the pod names, in its order, each once. Raises ValueError for what is no name, and
    for more than MOST_CLAIMS between commas, as infra's admission policy counts them."""
    parts = (pod.metadata.annotations or {}).get(CLAIMS, "").split(",", MOST_CLAIMS)
    if len(parts) > MOST_CLAIMS:
        raise ValueError(f"annotation {CLAIMS} names more than {MOST_CLAIMS} PoolClaims: name fewer")
    names = tuple(dict.fromkeys(name for part in parts if (name := part.strip())))
    for name in names:
        if not is_name(name):
            raise ValueError(
                f"annotation {CLAIMS}: {name[:64]!r} can't be the name of a PoolClaim, which has lower-case"
                " letters, digits, - and ."
            )
    return names


def status_of(
    phase: Phase,
    node: str = "",
    domain: str = "",
    units: Sequence[str] = (),
    pod: str = "",
    uid: str = "",
    message: str = "",
) -> dict[str, Any]:
    """The status document, as the API server gives it back: what is empty is left out."""
    whole = {
        "phase": phase,
        "node": node,
        "domain": domain,
        "units": list(units),
        "pod": pod,
        "podUID": uid,
        "message": message,
    }
    return {field: value for field, value in whole.items() if value}


def _metadata(document: Any) -> Mapping[str, Any]:
    if (
        not isinstance(document, dict)
        or document.get("kind") != "PoolClaim"
        or document.get("apiVersion") != API_VERSION
    ):
        raise BadInputError(
            f"a PoolClaim should be an object with apiVersion: {API_VERSION} and kind: PoolClaim"
        )
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _spec(spec: Any, where: str) -> _Spec:
    try:
        found = msgspec.convert({} if spec is None else spec, _Spec)
    except msgspec.ValidationError as error:
        said = str(error).replace("`$", "`spec")
        raise BadInputError(f"{where}: {said if '`spec' in said else f'{said} - at `spec`'}") from error
    if not is_name(found.pool, _LONGEST_POOL):
        raise BadInputError(f"{where}: spec.pool {found.pool[:64]!r} can't be the name of a Pool")
    if found.count is not None and not 0 < found.count < 2**31:
        raise BadInputError(f"{where}: spec.count {found.count} should be a number from 1 to 2147483647")
    return found


def _units(spec: _Spec, where: str) -> tuple[str, ...]:
    """Each by its one spelling, in the document's order."""
    if spec.units is None:
        return ()
    if not 0 < len(spec.units) <= MOST_UNITS:
        raise BadInputError(f"{where}: spec.units should name 1 to {MOST_UNITS} units, or be left out")
    try:
        Units.parse(spec.units)  # each unit once
        units = tuple(_unit(entry) for entry in spec.units)
    except ValueError as error:
        raise BadInputError(f"{where}: spec.units: {error}") from error
    if spec.count not in (None, len(units)):
        raise BadInputError(
            f"{where}: spec.count is {spec.count}, and spec.units names {len(units)}: leave count out"
        )
    return units


def _unit(entry: str) -> str:
    found = Units.parse([entry])
    if "/" in entry or found.size != 1:
        raise ValueError(f"{entry} stands for {found.size} units: name each by itself")
    return found.entries()[0]


def is_name(name: str, longest: int = _LONGEST_NAME) -> bool:
    """Whether an object of Kubernetes may have this name (a DNS subdomain)."""
    return len(name) <= longest and _NAME.fullmatch(name) is not None
