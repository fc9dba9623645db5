"""Pools and their domains as a View has them, counted: for `berth status`, the live view and a Pool's status.
Pure: it asks no store and no cluster, and is as far behind them as the View it is given."""

import re
from collections.abc import Mapping

import msgspec

from berth.ledger.free import Free
from berth.ledger.model import Domain
from berth.ledger.view import View

_NUMBER = re.compile(r"([0-9]+)")


class _Row(msgspec.Struct, frozen=True, rename="camel"):
    pass


class DomainRow(_Row, frozen=True):
    """One domain. `capacity` None: the pool has no share here any more, but pods still hold units;
    `reserved` units are among those used, their pods not bound yet."""

    name: str
    capacity: int | None
    used: int
    free: int
    reserved: int

    @property
    def over(self) -> int:
        """Return units used beyond the capacity."""
        return max(0, self.used - (self.capacity or 0))


class PoolRow(_Row, frozen=True):
    """A pool in all, and its domains. `waiting` None: nobody could say how many pods wait for it."""

    name: str
    capacity: int
    used: int
    free: int
    reserved: int
    waiting: int | None
    over_committed: int
    domains: tuple[DomainRow, ...]


def names(view: View) -> list[str]:
    """Return the pools that the ledger knows, and those taken away of which pods still hold units."""
    held = {pool for pool in view.domains if view.names(pool)}
    return sorted({*view.pools, *held}, key=natural)


def pool_rows(view: View, waiting: Mapping[str, int] | None = None, only: str | None = None) -> list[PoolRow]:
    """Return pools by name with their domains; `waiting` is the number of pods by pool, None if it is not
    known."""
    return [
        _pool_row(name, view, None if waiting is None else waiting.get(name, 0))
        for name in names(view)
        if only in (None, name)
    ]


def _pool_row(pool: str, view: View, waiting: int | None) -> PoolRow:
    rows = tuple(_domain_row(pool, name, view) for name in sorted(view.names(pool), key=natural))
    return PoolRow(
        name=pool,
        capacity=sum(row.capacity or 0 for row in rows),
        used=sum(row.used for row in rows),
        free=sum(row.free for row in rows),
        reserved=sum(row.reserved for row in rows),
        waiting=waiting,
        over_committed=sum(row.over for row in rows),
        domains=rows,
    )


def _domain_row(pool: str, name: str, view: View) -> DomainRow:
    parts = view.parts(pool, name)
    share = view.free.get(pool, Free()).get(name)
    return DomainRow(
        name=name,
        capacity=None if share is None else share[1],
        used=sum(domain.used(pool, part) for part, domain in parts.items()),
        free=0 if share is None else share[0],
        reserved=sum(_reserved(pool, part, domain) for part, domain in parts.items()),
    )


def _reserved(pool: str, name: str, domain: Domain) -> int:
    reserved = {uid: claim for uid, claim in domain.claims.items() if claim.state == "reserved"}
    return Domain(claims=reserved).used(pool, name) if reserved else 0


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a key that sorts node-2 before node-10."""
    parts = _NUMBER.split(name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)], name
