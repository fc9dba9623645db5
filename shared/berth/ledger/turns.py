"""Whose turn it is to list the names of a pool's units, so that no name comes to be in two domains' lists.
A turn is taken at once and lasts until the next caller takes it; it stops nobody who takes names away."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from berth.errors import ContentionError
from berth.ledger.keys import domain_key, domain_of, turn_key
from berth.ledger.model import Domain, decode_domain
from berth.ledger.transaction import Commits, Fence, OvertakenError

T = TypeVar("T")


def in_turn(commits: Commits, pool: str, work: Callable[[Mapping[str, Domain], Fence], T]) -> T:
    """Return what `work` does with the pool's documents, by their names, as they are once it is our turn.

    Each commit that lists a name must expect the fence. So whoever had the turn before lists nothing any
    more, and what they listed is in the documents. When the turn is taken from us, `work` is called again, on
    new documents; in the end ContentionError.
    """
    try:
        return commits.again(lambda: work(*_take(commits, pool)), OvertakenError, (0.02, 0.2))
    except OvertakenError as error:
        raise ContentionError(
            f"other callers keep on changing the units of pool {pool} in berth's ledger; try again"
        ) from error


def _take(commits: Commits, pool: str) -> tuple[Mapping[str, Domain], Fence]:
    version = commits.write_mark(turn_key(pool))
    if version is None:
        raise OvertakenError(f"another caller lists the units of pool {pool} now")
    # A snapshot: later changes may lag, and would not tell what was listed a moment before.
    start, bodies = domain_key(pool, ""), commits.store.changes(None).documents
    domains = {domain_of(key)[1]: decode_domain(bodies[key], key) for key in bodies if key.startswith(start)}
    return domains, {turn_key(pool): version}
