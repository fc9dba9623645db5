"""Scores from 0 to 10 for nodes that fit, by how much of their pools is free.
Ties are kube-scheduler's to break, and its weights decide what a score is worth."""

from collections.abc import Iterable, Mapping

from berth.policy.fit import Free
from berth.policy.pools import Pool

HIGHEST = 10  # extender/v1 MaxExtenderPriority


def scores(
    names: Iterable[str], demand: Mapping[str, int], free: Mapping[str, Free], pools: Mapping[str, Pool]
) -> list[tuple[str, int]]:
    """Each node's score for a pod of that demand: the mean over its pools, 0 where it asks for none."""
    if not demand:
        return [(name, 0) for name in names]
    asked = [(free.get(pool, {}), pools[pool].spec.score == "Pack") for pool in demand]
    return [
        (name, sum(_share(domains.get(name), pack) for domains, pack in asked) // len(asked))
        for name in names
    ]


def _share(found: tuple[int, int] | None, pack: bool) -> int:
    """Spread prefers the largest free share; Pack the smallest."""
    if found is None or found[1] == 0:
        return 0
    free, capacity = found
    share = HIGHEST * min(free, capacity) // capacity
    return HIGHEST - share if pack else share
