"""What fits where, and why not: one reason per refused node, equal for equal causes (promise 7).
It does not decide who gets a unit; the ledger's reserve does, because two pods can both fit the last one."""

from collections.abc import Collection, Mapping
from itertools import chain, filterfalse

from berth.policy.free import Free, Share

_NONE = Free()
_TEXTS = 4  # more kinds of refusal than this are told in general, to keep the pod's condition short

_Cause = tuple[str, Share | None, int]


def refusals(names: Collection[str], demand: Mapping[str, int], free: Mapping[str, Free]) -> dict[str, str]:
    """Why each node that can't take `demand` (units by pool) can't; nodes that can are left out.

    A node is its own domain in the one scope there is so far. kube-scheduler groups equal texts and tries
    again when they change, so a text holds no node, pod or time, and there are at most a few of them.
    """
    pools = [(pool, asked, free.get(pool, _NONE)) for pool, asked in demand.items()]
    short = (filterfalse(shares.enough(asked).__contains__, names) for _, asked, shares in pools)
    refused = list(dict.fromkeys(chain.from_iterable(short)))
    # What each has of all the pools. No loop over the names: there may be thousands, with few such kinds.
    has = list(zip(*(map(shares.get, refused) for _, _, shares in pools), strict=True))
    causes = {kind: _cause(kind, demand) for kind in set(has)}
    texts = _texts(set(causes.values()))
    told = {kind: texts[cause] for kind, cause in causes.items()}
    return dict(zip(refused, map(told.__getitem__, has), strict=True))


def exhausted(pool: str, free: int, capacity: int, asked: int) -> str:
    """The words of promise 7."""
    return f"{pool}: {free} of {capacity} free, {asked} asked"


def absent(pool: str) -> str:
    """Said of a node that has no domain in the pool."""
    return f"{pool}: none on this node"


def _cause(has: tuple[Share | None, ...], demand: Mapping[str, int]) -> tuple[_Cause, ...]:
    return tuple(
        (pool, share, asked)
        for share, (pool, asked) in zip(has, demand.items(), strict=True)
        if share is None or share[0] < asked
    )


def _texts(causes: set[tuple[_Cause, ...]]) -> dict[tuple[_Cause, ...], str]:
    for wording in (_exact, _general, _short):
        texts = {cause: "; ".join(map(wording, cause)) for cause in causes}
        if len(set(texts.values())) <= _TEXTS:
            return texts
    pools = sorted({pool for cause in causes for pool, _, _ in cause})
    return dict.fromkeys(causes, f"fewer free than asked of at least one of {', '.join(pools)}")


def _exact(cause: _Cause) -> str:
    pool, found, asked = cause
    return absent(pool) if found is None else exhausted(pool, *found, asked)


def _general(cause: _Cause) -> str:
    return absent(cause[0]) if cause[1] is None else _short(cause)


def _short(cause: _Cause) -> str:
    pool, _, asked = cause
    return f"{pool}: fewer free than the {asked} asked"
