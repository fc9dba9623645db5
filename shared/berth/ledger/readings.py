"""What others use of a pool is known as of its last reading, and how long that is good for; pure functions.
Times are in Unix seconds. A reading stamped later than now is worth no more than one that is as old."""

from typing import Literal, NamedTuple

from berth.api.pool import EVERYWHERE, Pool
from berth.ledger import refusals
from berth.ledger.keys import domain_key
from berth.ledger.model import Domain, Reading

State = Literal["fresh", "ignored", "stale", "never"]

_NEVER = Reading()


class ReadingState(NamedTuple):
    """What a pool's last reading is worth: `fresh`, too old and `ignored` (whenStale), `stale`, or none.

    `age` is in seconds, below 0 by another's clock; None: there is no reading. `failed` says why the last try
    came to nothing.
    """

    state: State
    age: float | None = None
    failed: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing new is given."""
        return self.state in ("stale", "never")


def told(state: ReadingState, limit: int) -> str:
    """Return in words how old the reading is, and what that means; `limit` is the most seconds it may be."""
    age = "" if state.age is None else f"{max(0, int(state.age))} s ago"
    why = f" ({state.failed})" if state.failed else ""
    match state.state:
        case "never":
            return f"what others use was never read{why}: nothing new is given"
        case "stale":
            return f"what others use was last read {age}, limit {limit} s{why}: nothing new is given"
        case "ignored":
            return f"what others use was last read {age}, limit {limit} s{why}: that stands"
        case "fresh":
            return f"what others use was read {age}{why and f'; the last try failed{why}'}"


def noted(state: ReadingState, limit: int) -> str:
    """Return in words what is wrong with the reading; empty: nothing. No time is in it, so that who watches
    sees changes alone."""
    why = f" ({state.failed})" if state.failed else ""
    match state.state:
        case "never":
            return f"what others use was never read{why}: nothing new is given"
        case "stale":
            return f"what others use was not read for {limit} s{why}: nothing new is given"
        case "ignored":
            return f"what others use was not read for {limit} s{why}: the last reading stands"
        case "fresh":
            return f"the last try to read what others use failed{why}" if why else ""


def head_key(pool: str) -> str:
    """Return the key of the document that has the pool's reading."""
    return domain_key(pool, EVERYWHERE)


def reading_state(pool: Pool, head: Domain, now: float) -> ReadingState | None:
    """Return what the pool's last reading is worth; None: nothing is read for this pool."""
    source = pool.external_from
    if source is None:
        return None
    reading = head.reading or _NEVER
    if not reading.at or reading.mark != source.mark:
        return ReadingState("never", failed=reading.failed)
    age = now - reading.at
    if abs(age) <= source.stale_after_seconds:
        return ReadingState("fresh", age, reading.failed)
    state: State = "ignored" if source.when_stale == "Ignore" else "stale"
    return ReadingState(state, age, reading.failed)


def why_held(pool: Pool, head: Domain, now: float) -> str:
    """Return why nothing new is given of the pool, by its last reading; empty: it is given."""
    state, source = reading_state(pool, head, now), pool.external_from
    if state is None or source is None or not state.holds:
        return ""
    return refusals.unread(pool.name, None if state.state == "never" else source.stale_after_seconds)
