"""What operators write of a Pool, field by field, with the bounds that a field has by itself.
How fields go together is for `pool_manifest`: what stands in the ledger was checked when it was read."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from berth.api.units import MOST

LONGEST = 31 * 24 * 3600  # seconds that a freed unit may rest or be kept for a next pod

HIGHEST_SCORE = 10  # extender/v1 MaxExtenderPriority

_Seconds = Annotated[int, msgspec.Meta(ge=0, le=LONGEST)]


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Requirement(_Spec, frozen=True):
    """One expression of a LabelSelector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            raise ValueError(
                f"operator {self.operator} {'needs values' if not self.values else 'takes no values'}"
            )


class Selector(_Spec, frozen=True):
    """A LabelSelector (apimachinery, meta/v1); an empty one selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _meets(expression, labels) for expression in self.match_expressions
        )


class Capacity(_Spec, frozen=True):
    """How many units a domain has: an exception by domain, else the node's annotation, else perDomain."""

    per_domain: int | None = None
    domains: dict[str, int] = {}
    node_annotation: str | None = None

    def __post_init__(self) -> None:
        numbers_of_units((("perDomain", self.per_domain or 0), *self.domains.items()))
        if self.per_domain is None and not self.domains and self.node_annotation is None:
            raise ValueError("it needs perDomain, domains or nodeAnnotation")


class Sticky(_Spec, frozen=True):
    """For whom freed units are kept a while: the next pod of that name, or of that owner."""

    by: Literal["Pod", "Owner"]
    for_seconds: _Seconds


class Reserved(_Spec, frozen=True):
    """Units of each domain that only pods of at least this priority get."""

    priority_at_least: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
    units: Annotated[int, msgspec.Meta(ge=1, le=MOST)]


class PoolSpec(_Spec, kw_only=True, frozen=True):
    """A Pool's spec, as in infra/base/crds/pool.yaml and README.md#what-you-write."""

    capacity: Capacity | None = None
    resource: str | None = None
    scope: Literal["Node", "Topology", "Cluster"] = "Node"
    topology_key: str | None = None
    node_selector: Selector = Selector()
    include_control_plane: bool = False
    units: dict[str, tuple[str, ...]] = {}
    reuse_after_seconds: _Seconds = 0
    score: Literal["Spread", "Pack", "Names", "None"] = "Spread"
    node_names: dict[str, int] = {}
    release_on: Literal["Finished", "Deleted"] = "Finished"
    on_lost_node: Literal["Release", "Hold"] | None = None
    preemption: Literal["None", "Native"] = "None"
    sticky: Sticky | None = None
    limits: dict[str, int] = {}
    reserved: Reserved | None = None
    external: Annotated[int, msgspec.Meta(ge=0, le=MOST)] = 0
    adopt_from: str | None = None
    suspended: bool | tuple[str, ...] = False
    # Not in the ledger's documents where it is not set: who knows no such field can read those.
    claimable_by: dict[str, tuple[str, ...]] | msgspec.UnsetType = msgspec.UNSET


def numbers_of_units(counts: Iterable[tuple[str, int]]) -> None:
    """Raises ValueError that names the first that is none."""
    for where, count in counts:
        if not 0 <= count <= MOST:
            raise ValueError(f"{where}: {count} is not a number of units from 0 to {MOST}")


def _meets(expression: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
