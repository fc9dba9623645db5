"""What others use of cluster-wide pools, as licence servers say: their texts are read by URL, or given, and
counted in the ledger. A text that can't be read changes no count: the last reading stands until it is too old
for anything new to be given."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from berth.api.pool import EVERYWHERE, ExternalFrom, Pool
from berth.controller.capacity_sync import capacities_of
from berth.controller.licence_text import Fetch, TextError, fetched, texts
from berth.errors import BadInputError, BerthError
from berth.ledger import capacity
from berth.ledger.last_reading import LastReading
from berth.ledger.ledger import Ledger
from berth.ledger.model import Reading
from berth.ledger.readings import head_key, reading_state
from berth.ledger.report import external_units
from berth.ledger.view import View
from berth.licences.checkouts import LARGEST_OF_A_FUNCTION, Feature, Use, holders_of, use_of
from berth.licences.formats import read
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.licences")

SECONDS = 5.0
"""For all URLs together: reconcile waits for them."""

_EARLY = 5.0  # seconds: a tick that comes a little sooner than the last one reads, too
_MOST_SAID = 200  # characters of why a reading failed


class Taken(NamedTuple):
    """What was read: the licences that there are, and those that others use. With `room` more may be given
    than before. `outdated`: a later reading was quicker, and stands."""

    issued: int
    outside: int
    room: bool = False
    outdated: bool = False


def claimed_of(view: View, pool: str) -> dict[str, list[int]]:
    """Return the units of the pool that each pod holds, by the pods' names."""
    claimed = defaultdict[str, list[int]](list)
    for claim in view.claims():
        units = sum(holding.count for holding in claim.at_places(pool))
        if units and not claim.is_external:
            claimed[claim.name].append(units)
    return claimed


def missing_of(pool: Pool, feature: Feature) -> int:
    """Return how many units the Pool counts that the licence server does not have."""
    return 0 if pool.capacity_is_read else max(0, (pool.capacity_of(EVERYWHERE) or 0) - feature.issued)


def take_text(ledger: Ledger, pool: Pool, source: ExternalFrom, text: bytes, at: float) -> Taken:
    """Count what others use by a text that was asked for at this time (Unix seconds). Raises BadInputError
    where the text does not say it, and the ledger's errors; then the last reading stands.

    Claims are looked up after the text is here: a pod has its claim before it has a checkout.
    """
    if len(text) > LARGEST_OF_A_FUNCTION:
        raise BadInputError(f"the text has over {LARGEST_OF_A_FUNCTION // 1024 // 1024} MiB")
    feature = read(text, source.format, source.feature)
    view = ledger.view()
    before, known = _known(view, pool, at), view.capacities()  # now: the view goes on
    claimed = claimed_of(view, pool.name)
    use = use_of(feature, claimed, source.match)
    outside = use.outside + missing_of(pool, feature)
    last = _last_reading(feature, claimed, use, source, at, outside)
    more = feature.issued - capacity.amount(known.get((pool.name, EVERYWHERE)))
    wanted = capacities_of(pool, feature.issued) if pool.capacity_is_read and more else {}
    resize = partial(ledger.set_capacities, wanted, known, wanted.keys())
    if more < 0:
        resize()  # first: once the reading is fresh again, nothing is given that is there no more
    taken = ledger.take_reading(pool.name, outside, Reading(at, source.mark), last)
    if more > 0 and taken:
        resize()
    ledger.metrics.licences_read(pool.name, "read" if taken else "outdated")
    news = taken and (bool(wanted) or before != (outside, False))
    if news:
        said, numbers = "pool %s: others use %d of %d licences", (pool.name, outside, feature.issued)
        facts: Facts = {"pool": pool.name, "external": outside, "issued": feature.issued}
        calls.decided(log, "read", facts, said, *numbers)
    return Taken(feature.issued, outside, room=news, outdated=not taken)


def _known(view: View, pool: Pool, now: float) -> tuple[int, bool]:
    """Return how many units others use by the last reading, and whether nothing is given for want of one."""
    state = reading_state(pool, view.at(head_key(pool.name)), now)
    return external_units(pool, view), state is not None and state.holds


def _last_reading(
    feature: Feature,
    claimed: Mapping[str, list[int]],
    use: Use,
    source: ExternalFrom,
    at: float,
    outside: int,
) -> LastReading:
    beyond, others = holders_of(feature, claimed, source.match)
    return LastReading(
        at=at,
        issued=feature.issued,
        in_use=feature.in_use,
        outside=outside,
        idle=use.idle,
        beyond=beyond,
        others=others,
    )


def note_failed(ledger: Ledger, pool: Pool, error: BerthError) -> None:
    """Say in the log, in metrics and in the ledger that a reading failed; the last one stands. Raises the
    ledger's errors."""
    why = " ".join(str(error).split())[:_MOST_SAID]
    log.warning("pool %s: what others use could not be read: %s", pool.name, why)
    ledger.metrics.licences_read(pool.name, "failed")
    ledger.note_failed_reading(pool.name, why)


class LicenceReader:
    """Reads the URLs of Pools whose last reading is old enough."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        fetch: Fetch = fetched,
    ) -> None:
        self._ledger, self._clock, self._monotonic, self._fetch = ledger, clock, monotonic, fetch

    def run(self) -> list[str]:
        """Read what is due, in SECONDS. Return the pools of which more may be given than before. Raises
        nothing but the ledger's errors: a licence server that is away is no failure of who asks."""
        due = self._due()
        if not due:
            return []
        at = self._clock()
        urls = list(dict.fromkeys(url for _, _, url in due))
        answers = texts(urls, SECONDS, LARGEST_OF_A_FUNCTION, self._fetch, self._monotonic)
        room = []
        for pool, source, url in due:
            answer = answers[url]
            try:
                if isinstance(answer, TextError):
                    raise answer
                if take_text(self._ledger, pool, source, answer, at).room:
                    room.append(pool.name)
            except (BadInputError, TextError) as error:
                note_failed(self._ledger, pool, error)
        return room

    def _due(self) -> list[tuple[Pool, ExternalFrom, str]]:
        """Return the pools to be read with their URLs, those first whose readings are the oldest."""
        view, now = self._ledger.view(), self._clock()
        ages: dict[str, float] = {}
        due = []
        for pool in view.pools.values():
            source = pool.external_from
            state = reading_state(pool, view.at(head_key(pool.name)), now)
            if source is None or source.url is None or state is None:
                continue
            ages[pool.name] = float("inf") if state.age is None else abs(state.age)
            if ages[pool.name] >= source.every_seconds - min(_EARLY, source.every_seconds / 2):
                due.append((pool, source, source.url))
        return sorted(due, key=lambda one: (-ages[one[0].name], one[0].name))
