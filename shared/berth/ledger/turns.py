"""Whose turn it is to list the names of a pool's units, so that no name comes to be in two domains' lists.
A turn is taken at once and lasts until the next caller takes it; it stops nobody who takes names away."""

import copy
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar

from berth.errors import ContentionError
from berth.ledger.keys import domain_key, domain_of, turn_key
from berth.ledger.model import Domain, decode_domain
from berth.ledger.transaction import PATIENCE_SECONDS, Commits, Fence, OvertakenError
from berth.retry import retry
from berth.stores.base import Store

T = TypeVar("T")


class Turns:
    """Turns in the ledger of one store."""

    def __init__(
        self,
        store: Store,
        commits: Commits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._store, self._commits, self._new_id = store, commits, new_id
        self._monotonic, self._sleep = monotonic, sleep

    def within(self, commits: Commits) -> "Turns":
        """Return turns that are taken by these commits."""
        other = copy.copy(self)
        other._commits = commits
        return other

    def run(self, pool: str, work: Callable[[Mapping[str, Domain], Fence], T]) -> T:
        """Return what `work` does with the pool's documents, by their names, as they are once it is our turn;
        each commit that lists a name must expect the fence.

        So whoever had the turn before lists nothing any more, and what they listed is in the documents. When
        the turn is taken from us, `work` is called again, on new documents; in the end ContentionError.
        """
        try:
            return retry(
                lambda: work(*self._take(pool)),
                OvertakenError,
                until=self._monotonic() + PATIENCE_SECONDS,
                pauses=(0.02, 0.2),
                monotonic=self._monotonic,
                sleep=self._sleep,
            )
        except OvertakenError as error:
            raise ContentionError(
                f"other callers keep on changing the units of pool {pool} in berth's ledger; try again"
            ) from error

    def _take(self, pool: str) -> tuple[Mapping[str, Domain], Fence]:
        key, mine = turn_key(pool), self._new_id().encode()
        self._commits.write({key: mine})
        document = self._store.read([key]).get(key)
        if document is None or document.body != mine:
            raise OvertakenError(f"another caller lists the units of pool {pool} now")
        # A snapshot: later changes may lag, and would not tell what was listed a moment before.
        start, bodies = domain_key(pool, ""), self._store.changes(None).documents
        domains = {domain_of(key)[1]: decode_domain(bodies[key]) for key in bodies if key.startswith(start)}
        return domains, {key: document.version}
