"""What a pod asks of the pools.
Of annotations it looks at none but the one that names PoolClaims: what else stands there is no demand, and no
proof of a claim."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from berth.api.names import GROUP, NATIVE
from berth.api.pool import Pool
from berth.api.poolclaim import CLAIMS
from berth.api.quantity import units
from berth.kube.types import Container, Pod, Quantity

Wanted = Callable[[str], bool]

_NAMED = 10  # so many pools are named in a refusal, the rest are counted


class Demand(msgspec.Struct, frozen=True):
    """Units asked per pool, by name; and why, if so, the pod can be served on no node at all (one that runs
    all the same holds those units)."""

    units: Mapping[str, int]
    refusal: str | None = None


_NONE = Demand({})


def might_ask(pod: Pod) -> bool:
    """Whether the pod asks for any extended resource, or names a PoolClaim: if not, nobody needs to look at
    the pools.

    Source: an extended resource's name has a domain (kubernetes.io/docs, Extended resources)."""
    if CLAIMS in (pod.metadata.annotations or {}):
        return True
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any("/" in name for found in (*map(_asked, containers), pod.spec.overhead or {}) for name in found)


def resources(pod: Pod) -> frozenset[str]:
    """The extended resources that the pod asks for, with a Pool or without."""
    try:
        return frozenset(_effective(pod, lambda name: "/" in name))
    except ValueError:
        return frozenset()  # it was never given any


def demand(pod: Pod, pools: Mapping[str, Pool]) -> Demand:
    """The pod's demand of `pools` (by resource name). A sum of 0 is no demand."""
    if not might_ask(pod):
        return _NONE
    try:
        asked = _effective(pod, lambda name: name in pools or _ours(name))
    except ValueError as error:
        return Demand({}, str(error))
    missing = min(asked.keys() - pools.keys(), default=None)
    return Demand(
        {pools[resource].name: count for resource, count in sorted(asked.items()) if resource in pools},
        None if missing is None else _no_such_pool(missing, pools),
    )


def _effective(pod: Pod, wanted: Wanted) -> dict[str, int]:
    """Kubernetes' rule for a pod's request: the larger of what runs together in the end (containers and
    sidecars) and of what each init container needs beside the sidecars started before it; then overhead.

    Source: k8s.io/component-helpers/resource/helpers.go, PodRequests and AggregateContainerRequests.
    """
    running = _sum(_counted(container, wanted) for container in pod.spec.containers or ())
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers or ():
        own = _counted(container, wanted)
        if container.restart_policy == "Always":
            running, sidecars = _add(running, own), _add(sidecars, own)
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, _add(own, sidecars))
    total = _add(_larger(running, peak), _whole(pod.spec.overhead or {}, wanted))
    return {name: count for name, count in total.items() if count}


def _asked(container: Container) -> Mapping[str, Quantity]:
    """Requests, and limits where there is no request: the API server fills it in by the same rule."""
    found = container.resources
    return {} if found is None else {**(found.limits or {}), **(found.requests or {})}


def _counted(container: Container, wanted: Wanted) -> dict[str, int]:
    return _whole(_asked(container), wanted)


def _whole(quantities: Mapping[str, Quantity], wanted: Wanted) -> dict[str, int]:
    counted = {}
    for name, quantity in quantities.items():
        if wanted(name):
            try:
                counted[name] = units(quantity)
            except ValueError as error:
                raise ValueError(f"{name}: {str(quantity)[:64]!r} {error}; ask for a whole number") from None
    return counted


def _add(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        total = _add(total, part)
    return total


def _ours(resource: str) -> bool:
    """A resource of Berth's own group is ours even without a Pool: a typo must not pass as no demand."""
    return resource.partition("/")[0] in (GROUP, NATIVE)


def _no_such_pool(resource: str, pools: Mapping[str, Pool]) -> str:
    names = sorted(pools)
    shown = ", ".join(names[:_NAMED]) or "none yet"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{resource}: no Pool has this resource; there are: {shown}{more}"
