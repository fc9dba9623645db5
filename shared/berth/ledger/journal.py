"""Keeps the journal beside the ledger, in its store: reads pages, lets `usage` count, writes them by their
versions. It asks no API server; what was in use its caller has found out."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from berth.errors import StoreFailedError
from berth.ledger.keys import COUNTED, RELEASES, PoolDomain, domain_key, usage_key, usage_of
from berth.ledger.model import EndedUse
from berth.ledger.releases import Release, body_of, latest, releases_of, remembered
from berth.ledger.transaction import Bodies, Commits, Writes
from berth.ledger.transitions import Domains
from berth.ledger.usage import (
    Milliseconds,
    PoolUse,
    UsagePage,
    begin_of,
    counted_on,
    decode_page,
    encode_page,
    milliseconds,
    month_of,
    months_before,
    months_between,
)

Batches = Callable[[Collection[str]], Iterable[Sequence[str]]]

Ended = Mapping[PoolDomain, tuple[EndedUse, ...]]
"""Notes on what pods used that have ended, by pool and by the document's name."""


class Journal(NamedTuple):
    """The journal of one ledger. `keys` are those of what there is of it, `batches` is as in Store; so many
    `months` are kept, with the current one."""

    commits: Commits
    batches: Batches
    keys: Collection[str]
    months: int

    def record(self, uses: Mapping[str, PoolUse], until: Milliseconds) -> list[str]:
        """Count the use of these pools until this moment, once. Return the problems, a line each: a page that
        can't be read is left as it is.

        A death at any point loses and doubles nothing: each page has its own watermark, which is written
        together with what was counted.
        """
        month = month_of(until)
        begin = self._begin(uses, until)
        wanted = {pool: self._months(pool, month, begin) for pool in uses}
        problems: list[str] = []
        for pools in self._groups(wanted, month):
            keys = {usage_key(page, pool) for pool in pools for page in wanted[pool]}
            decide = partial(_counted, {pool: uses[pool] for pool in pools}, begin, until)
            problems += self.commits.run_bodies(keys, decide)
        self.commits.write({COUNTED: str(until).encode()})
        self._forget(months_before(month, self.months - 1))
        return problems

    def _begin(self, uses: Mapping[str, PoolUse], until: Milliseconds) -> Milliseconds:
        """Return from when a pool is counted that has no page yet: from the last count of all pools; in a new
        journal, as after its store was lost, from when the oldest pod began that still runs or waits."""
        document = self.commits.store.read([COUNTED]).get(COUNTED)
        if document is not None and document.body.isdigit():
            begin = int(document.body)
        else:
            spans = (span for use in uses.values() for span in (*use.used, *use.waited))
            begin = milliseconds(min((span.start for span in spans), default=until / 1000))
        return max(begin, begin_of(months_before(month_of(until), self.months - 1)))

    def _months(self, pool: str, month: str, begin: Milliseconds) -> list[str]:
        """Return the months whose pages may change, or tell how far the pool is counted."""
        known = [name for name, of in map(usage_of, self.keys) if of == pool and name <= month]
        first = max(known, default=min(month, month_of(begin)))
        return months_between(max(first, months_before(month, self.months - 1)), month)

    def _groups(self, wanted: Mapping[str, Sequence[str]], month: str) -> Iterator[list[str]]:
        """Yield pools whose pages one commit takes: those that lie together in the store."""
        current = {usage_key(month, pool): pool for pool in wanted}
        for batch in self.batches(current):
            group: list[str] = []
            size = 0
            for pool in map(current.__getitem__, batch):
                if group and size + len(wanted[pool]) > self.commits.most_keys:
                    yield group
                    group, size = [], 0
                group.append(pool)
                size += len(wanted[pool])
            yield group

    def _forget(self, first: str) -> None:
        """Remove the pages of months before the first that is kept."""
        old = [key for key in self.keys if usage_of(key)[1] and usage_of(key)[0] < first]
        for batch in self.batches(old):
            self.commits.write(dict.fromkeys(batch))

    def drop_notes(self, seen: Ended) -> None:
        """Remove the notes that are counted now; those that were written since stay."""
        notes = {domain_key(*which): ended for which, ended in seen.items()}
        for batch in self.batches(notes):
            self.commits.run(batch, partial(_without_notes, notes))

    def note_releases(self, seen: Ended) -> None:
        """Write down what ended beside what is written there already; of many the oldest are forgotten."""
        if seen:
            self.commits.write({RELEASES: body_of(self.releases(seen))})

    def releases(self, notes: Ended) -> tuple[Release, ...]:
        """Return the latest releases, the last one first: those that are written down, and these notes."""
        return latest(releases_of(notes), remembered(self.commits.store.read([RELEASES]).get(RELEASES)))

    def pages(self) -> dict[tuple[str, str], UsagePage]:
        """Return all pages by month and pool; those that can't be read are left out."""
        pages: dict[tuple[str, str], UsagePage] = {}
        for batch in self.batches([key for key in self.keys if usage_of(key)[1]]):
            for key, document in self.commits.store.read(batch).items():
                try:
                    pages[usage_of(key)] = decode_page(document.body, key)
                except StoreFailedError:
                    continue
        return pages


def _counted(
    uses: Mapping[str, PoolUse], begin: Milliseconds, until: Milliseconds, bodies: Bodies
) -> tuple[list[str], Writes]:
    """Return the pools' pages with their use until this moment, and problems."""
    problems: list[str] = []
    writes: dict[str, bytes | None] = {}
    for pool, use in uses.items():
        mine = {usage_of(key)[0]: body for key, body in bodies.items() if usage_of(key)[1] == pool}
        try:
            pages = {
                month: decode_page(body, usage_key(month, pool))
                for month, body in mine.items()
                if body is not None
            }
        except StoreFailedError as error:
            problems.append(f"the use of Pool {pool} is not counted: {error}")
            continue
        changed = counted_on(pages, use, begin, until)
        writes |= {usage_key(month, pool): encode_page(page) for month, page in changed.items()}
    return problems, writes


def _without_notes(seen: Mapping[str, tuple[EndedUse, ...]], domains: Domains) -> tuple[None, Domains]:
    changed = {}
    for key, domain in domains.items():
        left = tuple(note for note in domain.ended if note not in seen[key])
        if left != domain.ended:
            changed[key] = replace(domain, ended=left)
    return None, changed
