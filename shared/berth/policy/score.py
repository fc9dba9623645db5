"""Scores from 0 to 10 for nodes that fit, by how much of their pools is free.
Ties are kube-scheduler's to break, and its weights decide what a score is worth."""

from collections.abc import Callable, Mapping, Sequence

from berth.policy.free import Free, Share
from berth.policy.pools import Pool
from berth.wire import HIGHEST_SCORE

_NONE = Free()
_NOTHING = (0, 0)

Rule = Callable[[Share], int]


def spread(share: Share) -> int:
    """Prefers the largest free share."""
    free, capacity = share
    return HIGHEST_SCORE * min(free, capacity) // capacity if capacity else 0


def pack(share: Share) -> int:
    """Prefers the smallest; a domain without units is still worth nothing."""
    return HIGHEST_SCORE - spread(share) if share[1] else 0


def rule(pool: Pool) -> Rule:
    """How the pool's domains are scored."""
    return pack if pool.spec.score == "Pack" else spread


def scores(
    names: Sequence[str], demand: Mapping[str, int], free: Mapping[str, Free], pools: Mapping[str, Pool]
) -> list[int]:
    """Each node's score, in the order of `names`, for a pod of that demand: the mean over its pools, 0 where
    it asks for none."""
    if not demand:
        return [0] * len(names)
    asked = [(free.get(pool, _NONE), rule(pools[pool])) for pool in demand]
    return [sum(score(shares.get(name, _NOTHING)) for shares, score in asked) // len(asked) for name in names]
