"""Gangs: pods of one namespace that get their units together or not at all, by two annotations.
It does not know which pods there are, nor what they ask for."""

from typing import NamedTuple

from berth.api.names import GROUP, is_name
from berth.kube.types import Pod

GANG = f"{GROUP}/gang"
"""The pod's annotation that names its gang, one of its namespace."""

GANG_SIZE = f"{GROUP}/gang-size"
"""The pod's annotation that says how many pods its gang has."""

LARGEST_GANG = 512
"""Pods of a gang: what is known of it is one document."""


class Gang(NamedTuple):
    """A gang as one of its pods names it; `label` is its namespace and name."""

    label: str
    size: int

    @property
    def name(self) -> str:
        return self.label.partition("/")[2]


def gang_of(pod: Pod) -> Gang | None:
    """Return the gang that the pod is of; None: of none. Raises ValueError for what is no name or size."""
    annotations = pod.metadata.annotations or {}
    name, size = annotations.get(GANG), annotations.get(GANG_SIZE)
    if name is None and size is None:
        return None
    if name is None or not is_name(name):
        raise ValueError(
            f"annotation {GANG}: {(name or '')[:64]!r} can't be the name of a gang, which has lower-case"
            " letters, digits, - and ."
        )
    if size is None or not (size.isascii() and size.isdigit() and len(size) <= 4):
        raise ValueError(f"annotation {GANG_SIZE}: {(size or '')[:64]!r} is no number of pods")
    if not 1 <= int(size) <= LARGEST_GANG:
        raise ValueError(f"annotation {GANG_SIZE}: {size} is not from 1 to {LARGEST_GANG}")
    return Gang(f"{pod.namespace}/{name}", int(size))


def gang_or_none(pod: Pod) -> Gang | None:
    """Return the gang that the pod is of; None where it is of none, or says what is no gang."""
    try:
        return gang_of(pod)
    except ValueError:
        return None


def gang_name(pod: Pod) -> str:
    """Return the name of the pod's gang; empty where it is of none."""
    gang = gang_or_none(pod)
    return "" if gang is None else gang.name
