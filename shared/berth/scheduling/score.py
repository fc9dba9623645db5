"""Scores from 0 to 10 for nodes that fit: by how much of their pools is free, or by the nodes' names.
Ties are kube-scheduler's to break, and its weights decide what a score is worth."""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from berth.api.pool import HIGHEST_SCORE, Pool
from berth.ledger.free import Free, Share

_NODES = 16_384  # names of nodes whose score is kept in mind, a pool with score Names

Rule = Callable[[str, Share], int]


class ScoredPool(NamedTuple):
    """A pool that a pod asks for, as the pod sees it. `places` are the nodes' domains; None: each node is its
    own."""

    pool: Pool
    free: Free
    places: Mapping[str, str] | None = None


def spread(_: str, share: Share) -> int:
    """Return a score that prefers the largest free share."""
    free, capacity = share
    return HIGHEST_SCORE * min(free, capacity) // capacity if capacity else 0


def pack(name: str, share: Share) -> int:
    """Return a score that prefers the smallest free share; a domain without units is worth nothing."""
    return HIGHEST_SCORE - spread(name, share) if share[1] else 0


def rule(pool: Pool) -> Rule | None:
    """Return how the pool's domains are scored; None: not by what is free."""
    return {"Spread": spread, "Pack": pack}.get(pool.spec.score)


def scores(names: Sequence[str], pools: Sequence[ScoredPool]) -> list[int]:
    """Return each node's score, in the order of `names`: the mean over the pools that score, else 0."""
    by_pool = [_scores(names, scored) for scored in pools if scored.pool.spec.score != "None"]
    if len(by_pool) < 2:
        return by_pool[0] if by_pool else [0] * len(names)
    return [sum(of_node) // len(by_pool) for of_node in zip(*by_pool, strict=True)]


def _scores(names: Sequence[str], scored: ScoredPool) -> list[int]:
    by_share = rule(scored.pool)
    if by_share is None:
        return list(map(_by_name(tuple(scored.pool.spec.node_names.items())), names))
    known = scored.free.by_domain(by_share)
    domains = names if scored.places is None else list(map(scored.places.get, names, repeat("")))
    return [score or 0 for score in known.pick(domains)]


@lru_cache(maxsize=64)
def _by_name(by_name: tuple[tuple[str, int], ...]) -> Callable[[str], int]:
    """Return what scores a node by its very name, else by the longest pattern that it matches.

    Not by the first one written: the API server sorts the keys of an object."""
    exact = dict(by_name)
    ordered = sorted(by_name, key=lambda pattern: (-len(pattern[0]), pattern[0]))
    patterns = [(re.compile(translate(pattern)), score) for pattern, score in ordered]

    @lru_cache(maxsize=_NODES)
    def score(node: str) -> int:
        if node in exact:
            return exact[node]
        return next((score for pattern, score in patterns if pattern.match(node)), 0)

    return score
