"""Scores from 0 to 10 for nodes that fit: by how much of their pools is free, or by the nodes' names.
Ties are kube-scheduler's to break, and its weights decide what a score is worth."""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import NamedTuple

from berth.api.pool import HIGHEST_SCORE, Pool
from berth.ledger.free import Free, Share

_NODES = 16_384  # names of nodes whose score is kept in mind, a pool with score Names

Rule = Callable[[str, Share], int]


class Ask(NamedTuple):
    """A pool that a pod asks for, as the pod sees it: `places` are the nodes' domains, and None means that
    each node is its own."""

    pool: Pool
    free: Free
    places: Mapping[str, str] | None = None


def spread(_: str, share: Share) -> int:
    """Prefers the largest free share."""
    free, capacity = share
    return HIGHEST_SCORE * min(free, capacity) // capacity if capacity else 0


def pack(name: str, share: Share) -> int:
    """Prefers the smallest; a domain without units is still worth nothing."""
    return HIGHEST_SCORE - spread(name, share) if share[1] else 0


def rule(pool: Pool) -> Rule | None:
    """How the pool's domains are scored; None: it does not go by what is free."""
    return {"Spread": spread, "Pack": pack}.get(pool.spec.score)


def scores(names: Sequence[str], asks: Sequence[Ask]) -> list[int]:
    """Each node's score, in the order of `names`: the mean over the pools that score, else 0."""
    found = [_scores(names, ask) for ask in asks if ask.pool.spec.score != "None"]
    if len(found) == 1:
        return found[0]
    return [sum(each) // len(found) for each in zip(*found, strict=True)] if found else [0] * len(names)


def _scores(names: Sequence[str], ask: Ask) -> list[int]:
    by_share = rule(ask.pool)
    if by_share is None:
        return list(map(_by_name(tuple(ask.pool.spec.node_names.items())), names))
    known = ask.free.each(by_share)
    domains = names if ask.places is None else map(ask.places.get, names, [""] * len(names))
    return [known.get(domain, 0) for domain in domains]


@lru_cache(maxsize=64)
def _by_name(wanted: tuple[tuple[str, int], ...]) -> Callable[[str], int]:
    """A node's score by its very name, else by the longest pattern that it matches.

    Not by the first one written: the API server sorts the keys of an object."""
    exact = dict(wanted)
    ordered = sorted(wanted, key=lambda each: (-len(each[0]), each[0]))
    patterns = [(re.compile(translate(pattern)), score) for pattern, score in ordered]

    @lru_cache(maxsize=_NODES)
    def score(node: str) -> int:
        if node in exact:
            return exact[node]
        return next((score for pattern, score in patterns if pattern.match(node)), 0)

    return score
