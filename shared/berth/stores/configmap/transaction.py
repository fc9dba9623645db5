"""Commits: a write that only one can make for one ConfigMap, intents and a decision for several.

Several, in the order of their names, the first being the primary:
  1  each gets an intent: what will be written there            (nothing is changed yet; anybody may end it)
  2  the primary's intent becomes its documents, in one write   (the decision: now it is done, everywhere)
  3  the others' intents become their documents                 (anybody may do it)
  4  the primary forgets that it was decided
Whoever needs a ConfigMap and meets an intent there settles it: decided by its primary, it is carried out; if
not, and its commit does not go on, it is taken out, from the primary first (intents.py). So a process may die
at any step, and neither loses nor halves a commit.
"""

import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

import tenacity

from berth.errors import BerthError
from berth.stores.configmap.client import Item
from berth.stores.configmap.content import (
    Bodies,
    Committed,
    Documents,
    Expected,
    Intent,
    Life,
    applied,
    as_expected,
    encode,
    replaced,
    written,
)
from berth.stores.configmap.generation import Lives
from berth.stores.configmap.intents import SHOWN_SECONDS, UNDECIDED_SECONDS, Intents, is_of

_FORGET_SECONDS = 10.0
_SECONDS_EACH = 0.05  # more, for each ConfigMap that a commit holds


class _ConflictError(Exception):
    """Another writer was first: look again."""


class Transactions:
    """Commits in one life."""

    def __init__(
        self,
        lives: Lives,
        intents: Intents,
        new_id: Callable[[], str],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._lives, self._intents, self._new_id = lives, intents, new_id
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._patience = lives.objects.location.timeout
        self._turns: dict[str, threading.Lock] = {}

    def commit(self, life: Life, writes: Bodies, expected: Expected) -> bool:
        """Raises LostError, and then has changed nothing in the life that follows."""
        head = self._lives.head_name
        places = {key: life.place(head, key) for key in {*writes, *expected}}
        # What is only expected of the head (the epoch, by every commit) is looked at, not held: commits would
        # queue up there. So whoever writes there holds all shards: nothing lands that looked before.
        held = {places[key] for key in writes} | {places[key] for key in expected if places[key] != head}
        names = sorted({*held, *life.names(head)} if head in held else held)
        until = self._monotonic() + self._patience + _SECONDS_EACH * len(names)
        attempt = _Attempt(self._new_id(), life, places, writes, expected, until)
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_ConflictError),
            wait=tenacity.wait_random_exponential(multiplier=0.004, max=0.1),
            stop=lambda _: self._monotonic() >= until,
            sleep=self._sleep,
        )
        with self._turn(names, life):
            try:
                done: bool = attempts(self._try, attempt, names)
            except tenacity.RetryError as error:
                raise self._lives.objects.busy() from error
        return done

    def _try(self, attempt: "_Attempt", names: list[str]) -> bool:
        attempt.turns += 1
        return self._several(attempt, names) if len(names) > 1 else self._single(attempt, names[0])

    def _head_as_expected(self, attempt: "_Attempt") -> bool:
        """To be asked once the shards were read, or hold intents: who changes the head later ends those."""
        head = self._lives.fetch(self._lives.head_name, attempt.life)
        # An intent there is undecided (the head is the first of its names), and has these shards before it.
        return as_expected(head.content.documents, attempt.expected_at(head.name))

    # One ConfigMap

    def _single(self, attempt: "_Attempt", name: str) -> bool:
        writes, expected = attempt.writes_at(name), attempt.expected_at(name)
        # What was read for the decision will do at first: if it is old, the write is refused.
        known = self._lives.known(name) if attempt.turns == 1 else None
        item = self._ready(known or self._lives.fetch(name, attempt.life), attempt)
        if known is not None and not as_expected(item.content.documents, expected):
            if any(self._lives.is_over(key, version, item) for key, version in expected.items()):
                return False
            item = self._ready(self._lives.fetch(name, attempt.life), attempt)
        if attempt.turns > 1 and attempt.landed(item.content.documents, writes):
            return True
        if not as_expected(item.content.documents, expected) or not self._head_as_expected(attempt):
            return False
        if self._lives.put(item, written(item.content, writes, attempt.tx)) is None:
            raise _ConflictError
        return True

    def _ready(self, item: Item, attempt: "_Attempt") -> Item:
        """To be written: settled, and what it knows of decided commits forgotten where that is long over."""
        item = self._settled(item, attempt)
        over = {
            tx for tx, each in item.content.committed.items() if self._clock() - each.since > _FORGET_SECONDS
        }
        if not over:
            return item
        for name in {name for tx in over for name in item.content.committed[tx].others}:
            self._intents.carry_out(over, name, attempt.life)
        return self._forget(item, over)

    def _settled(self, item: Item, attempt: "_Attempt") -> Item:
        """The ConfigMap once it has no intent; what goes on is waited for."""
        while item.content.intent is not None:
            if (found := self._intents.settle(item, attempt.life)) is None:
                if not attempt.waits:  # long enough to end what was left behind, once
                    attempt.waits = True
                    enough = self._monotonic() + UNDECIDED_SECONDS + _SECONDS_EACH
                    attempt.until = max(attempt.until, enough)
                if self._monotonic() >= attempt.until:
                    raise _ConflictError
                self._go_on(attempt)
                self._sleep(random.uniform(0.005, 0.02))
                found = self._lives.fetch(item.name, attempt.life)
            item = found
        return item

    def _forget(self, item: Item, over: Collection[str]) -> Item:
        left = {tx: each for tx, each in item.content.committed.items() if tx not in over}
        after = self._lives.put(item, replaced(item.content, committed=left), must=True)
        if after is None:
            raise _ConflictError
        return after

    # Several ConfigMaps

    def _several(self, attempt: "_Attempt", names: list[str]) -> bool:
        tx, life = attempt.tx if attempt.turns == 1 else self._new_id(), attempt.life
        placed = attempt.placed = list[Item]()
        try:
            for name in names:
                self._go_on(attempt)
                if names[0] == self._lives.head_name:  # all shards: that may take as long as it gets on
                    attempt.until = max(attempt.until, self._monotonic() + self._patience)
                item = self._announce(attempt, tx, name, names[0])
                if item is None:
                    self._take_out(tx, placed, life)
                    return False
                placed.append(item)
            if self._lives.head_name not in names and not self._head_as_expected(attempt):
                self._take_out(tx, placed, life)
                return False
        except (_ConflictError, BerthError):
            self._take_out(tx, placed, life)
            raise
        decided = self._decide(tx, placed[0], tuple(names[1:]), life)
        if decided is None:
            self._take_out(tx, placed, life)
            raise _ConflictError
        # What is left to do others would do as well.
        with suppress(BerthError, _ConflictError):
            for item in placed[1:]:
                if self._lives.put(item, applied(item.content), must=True) is None:
                    self._intents.carry_out({tx}, item.name, life)
            self._forget(decided, {tx})
        return True

    def _announce(self, attempt: "_Attempt", tx: str, name: str, primary: str) -> Item | None:
        """The ConfigMap with its intent; None if it is not as expected."""
        intent = Intent(tx, primary, dict(attempt.writes_at(name)))
        known = self._lives.known(name) if attempt.turns == 1 else None
        while True:
            item = self._ready(known or self._lives.fetch(name, attempt.life), attempt)
            if not as_expected(item.content.documents, attempt.expected_at(name)):
                if known is None:
                    return None
                known = None
                continue
            content = replaced(item.content, intent=intent)
            # The intent itself may go beyond: what makes a full ConfigMap smaller must find room there.
            self._lives.objects.require_room(item, len(encode(applied(content))))
            after = self._lives.put(item, content, must=True)
            if after is not None:
                attempt.shown = self._monotonic() if name == primary else attempt.shown
                return after
            known = None
            if self._monotonic() >= attempt.until:
                raise _ConflictError

    def _go_on(self, attempt: "_Attempt") -> None:
        """Show others that what was announced is not left behind."""
        if not attempt.placed or self._monotonic() - attempt.shown < SHOWN_SECONDS:
            return
        before = attempt.placed[0]
        assert before.content.intent is not None
        after = self._lives.put(before, before.content, must=True)
        after = after or self._lives.fetch(before.name, attempt.life)
        if not is_of(after, before.content.intent.tx):
            raise _ConflictError
        attempt.placed[0], attempt.shown = after, self._monotonic()

    def _decide(self, tx: str, primary: Item, others: tuple[str, ...], life: Life) -> Item | None:
        """None if somebody has taken the intent out."""
        while is_of(primary, tx):
            decided = {**primary.content.committed, tx: Committed(self._clock(), others)}
            content = replaced(applied(primary.content), committed=decided)
            after = self._lives.put(primary, content, must=True)
            if after is not None:
                return after
            primary = self._lives.fetch(primary.name, life)
        return primary if tx in primary.content.committed else None

    def _take_out(self, tx: str, placed: list[Item], life: Life) -> None:
        for item in reversed(placed):
            while is_of(item, tx):
                item = self._intents.end(item) or self._lives.fetch(item.name, life)

    @contextmanager
    def _turn(self, names: list[str], life: Life) -> Iterator[None]:
        """The threads of a process queue here for each ConfigMap: refused writes cost more than waiting."""
        with ExitStack() as held:
            for name in names:
                turn = self._turns.setdefault(self._lives.part(name, life), threading.Lock())
                if not turn.acquire(timeout=self._patience):
                    raise self._lives.objects.busy()
                held.callback(turn.release)
            yield


class _Attempt:
    """One commit, how often it was tried, and what the last try has announced, `shown` last when."""

    def __init__(
        self,
        tx: str,
        life: Life,
        places: Mapping[str, str],
        writes: Bodies,
        expected: Expected,
        until: float,
    ) -> None:
        self.tx, self.life, self.until = tx, life, until
        self._places, self._writes, self._expected = places, writes, expected
        self.turns, self.waits = 0, False
        self.placed: list[Item] = []
        self.shown = 0.0

    def writes_at(self, name: str) -> Bodies:
        return {key: body for key, body in self._writes.items() if self._places[key] == name}

    def expected_at(self, name: str) -> Expected:
        return {key: version for key, version in self._expected.items() if self._places[key] == name}

    def landed(self, documents: Documents, writes: Bodies) -> bool:
        """Whether an earlier write, whose answer was lost, was done."""
        return any(documents.get(key, ("", b""))[0] == self.tx for key in writes)
