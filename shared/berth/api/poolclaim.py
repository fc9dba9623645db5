"""PoolClaims: units of one pool under a name; what their documents say, and which of them a pod names.
It does not know whether the pool and the units exist, nor who holds them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from berth.api.manifest import is_kind, spec_of
from berth.api.names import API_VERSION, GROUP, is_name, is_pool_name
from berth.api.units import MOST, Units
from berth.errors import BadInputError
from berth.kube.types import Pod

CLAIMS = f"{GROUP}/claims"
"""The pod's annotation that names PoolClaims of its namespace, separated by commas."""

Phase = Literal["Available", "Reserved", "Bound", "Refused"]

MOST_CLAIMS = 16
"""PoolClaims that a pod may name: all Pools are searched for each, at each try to schedule the pod."""

MOST_UNITS = 128
"""Units that a PoolClaim may name; of those that its last pod had, no more are remembered."""


class PoolClaim(msgspec.Struct, frozen=True):
    """A request for `count` units of the pool: any of them, or only those that `units` names."""

    namespace: str
    name: str
    uid: str
    pool: str
    count: int = 1
    units: tuple[str, ...] = ()
    created: str = ""

    @property
    def weight(self) -> int:
        """Return how much of its namespace's quota it takes: as much as it names units, or 1."""
        return max(1, len(self.units))

    @property
    def label(self) -> str:
        """Return the PoolClaim's name in messages: namespace/name."""
        return f"{self.namespace}/{self.name}"


class PoolClaimStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A PoolClaim's status, for people."""

    phase: Phase
    node: str = ""
    domain: str = ""
    units: list[str] = []
    pod: str = ""
    uid: str = msgspec.field(default="", name="podUID")
    message: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as the API server gives it back: what is empty is left out."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pool: str
    count: int | None = None
    units: tuple[str, ...] | None = None


def parse(document: Any) -> PoolClaim:
    """Read one decoded document. Raises BadInputError with all mistakes, each with PoolClaim and field."""
    if not is_kind(document, "PoolClaim"):
        raise BadInputError(
            f"a PoolClaim should be an object with apiVersion: {API_VERSION} and kind: PoolClaim"
        )
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace, name = str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")
    if not is_name(name) or not is_name(namespace):
        raise BadInputError(
            f"PoolClaim {namespace[:64]}/{name[:64]}: its namespace and name should be of lower-case letters,"
            " digits, - and ."
        )
    where = f"PoolClaim {namespace}/{name}"
    spec = spec_of(document, _Spec, where)
    units, wrong = _units(spec)
    if spec.count is not None and not 0 < spec.count <= MOST:
        wrong.insert(0, f"spec.count {spec.count} should be a number from 1 to {MOST}")
    if not is_pool_name(spec.pool):
        wrong.insert(0, f"spec.pool {spec.pool[:64]!r} can't be the name of a Pool")
    if wrong:
        raise BadInputError(*(f"{where}: {text}" for text in wrong))
    uid, created = str(metadata.get("uid", "")), str(metadata.get("creationTimestamp") or "")
    return PoolClaim(namespace, name, uid, spec.pool, spec.count or len(units) or 1, units, created)


def within(claims: Iterable[PoolClaim], most: int) -> list[PoolClaim]:
    """Return the PoolClaims that stay within `most`, which those of one namespace may weigh together. The
    oldest come first, so that a new one takes nothing from those that are used."""
    kept, weights = [], Counter[str]()
    for claim in sorted(claims, key=lambda claim: (claim.created, claim.label)):
        if weights[claim.namespace] + claim.weight <= most:
            weights[claim.namespace] += claim.weight
            kept.append(claim)
    return kept


def named(pod: Pod) -> tuple[str, ...]:
    """Return the PoolClaims that the pod names, in its order, without repetition. Raises ValueError for what
    is no name, and for more than MOST_CLAIMS between commas, as infra's admission policy counts them.
    """
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


def _units(spec: _Spec) -> tuple[tuple[str, ...], list[str]]:
    """Return the units in the document's order, in their one spelling, and what is wrong with them."""
    if spec.units is None:
        return (), []
    if not 0 < len(spec.units) <= MOST_UNITS:
        return (), [f"spec.units should name 1 to {MOST_UNITS} units, or be left out"]
    try:
        Units.parse(spec.units)  # raises where a unit is listed twice
        units = tuple(_unit(entry) for entry in spec.units)
    except ValueError as error:
        return (), [f"spec.units: {error}"]
    if spec.count not in (None, len(units)):
        return units, [f"spec.count is {spec.count}, and spec.units names {len(units)}: leave count out"]
    return units, []


def _unit(entry: str) -> str:
    units = Units.parse([entry])
    if "/" in entry or units.size != 1:
        raise ValueError(f"{entry} stands for {units.size} units: name each by itself")
    return units.entries()[0]
