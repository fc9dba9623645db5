"""Commits: a write that only one can make for one ConfigMap, intents and a decision for several.

Several, in the order of their names, the first being the primary:
  1  each gets an intent: what will be written there            (nothing is changed; any process may end it)
  2  the primary's intent becomes its documents, in one write   (the decision: now it is done, everywhere)
  3  the others' intents become their documents                 (any process may do it)
  4  the primary forgets that it was decided
A writer that meets an intent in a ConfigMap settles it. An intent that its primary has decided is carried
out. One that is not decided, and whose commit no longer runs, is taken out, from the primary first
(intents.py). So a process may die at any step, and neither loses nor halves a commit.
"""

import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from berth.deadline import Deadline
from berth.errors import BerthError
from berth.retry import retry
from berth.stores.base import as_expected
from berth.stores.configmap.client import Item
from berth.stores.configmap.content import (
    Bodies,
    Committed,
    Documents,
    Expected,
    Generation,
    Intent,
    applied,
    encode,
    replaced,
    written,
)
from berth.stores.configmap.errors import busy
from berth.stores.configmap.generation import Generations
from berth.stores.configmap.intents import SHOWN_SECONDS, UNDECIDED_SECONDS, Intents, is_of

_FORGET_SECONDS = 10.0
_SECONDS_MORE = 0.05  # for each ConfigMap that a commit holds


class _ConflictError(Exception):
    """Another writer was first: read again."""


class Transactions:
    """The commits of one process."""

    def __init__(
        self,
        generations: Generations,
        intents: Intents,
        new_id: Callable[[], str],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._generations, self._intents, self._new_id = generations, intents, new_id
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._patience = generations.client.url.timeout
        self._turns: dict[str, threading.Lock] = {}

    def commit(self, generation: Generation, writes: Bodies, expected: Expected) -> bool:
        """As in Store. Raises LostError, and then has changed nothing in the generation that follows."""
        head = self._generations.head_name
        places = {key: generation.place(head, key) for key in {*writes, *expected}}
        # What is only expected of the head (the epoch, by every commit) is read, not held: commits would
        # queue up there. So a writer of the head holds all shards: no commit lands that has read the head
        # before.
        held = {places[key] for key in writes} | {places[key] for key in expected if places[key] != head}
        names = sorted({*held, *generation.names(head)} if head in held else held)
        until = self._monotonic() + self._patience + _SECONDS_MORE * len(names)
        attempt = _Attempt(self._new_id(), generation, places, writes, expected, until)
        with self._turn(names, generation):
            try:
                return retry(
                    lambda: self._try(attempt, names),
                    _ConflictError,
                    deadline=Deadline(until, self._monotonic),
                    pauses=(0.004, 0.1),
                    sleep=self._sleep,
                )
            except _ConflictError as error:
                raise busy(self._generations.client.url) from error

    def _try(self, attempt: "_Attempt", names: list[str]) -> bool:
        attempt.turns += 1
        return self._several(attempt, names) if len(names) > 1 else self._single(attempt, names[0])

    def _head_as_expected(self, attempt: "_Attempt") -> bool:
        """Whether the head is as expected. Call it once the shards were read, or hold intents: a writer that
        changes the head later ends those."""
        head = self._generations.fetch(self._generations.head_name, attempt.generation)
        # An intent there is undecided (the head is the first of its names), and needs these shards yet.
        return as_expected(head.content.documents, attempt.expected_at(head.name))

    # One ConfigMap

    def _single(self, attempt: "_Attempt", name: str) -> bool:
        writes, expected = attempt.writes_at(name), attempt.expected_at(name)
        # What was read for the decision is enough at first: if it is old, the write is refused.
        known = self._generations.known(name) if attempt.turns == 1 else None
        item = self._ready(known or self._generations.fetch(name, attempt.generation), attempt)
        if known is not None and not as_expected(item.content.documents, expected):
            if any(self._generations.is_over(key, version, item) for key, version in expected.items()):
                return False
            item = self._ready(self._generations.fetch(name, attempt.generation), attempt)
        if attempt.turns > 1 and attempt.landed(item.content.documents, writes):
            return True
        if not as_expected(item.content.documents, expected) or not self._head_as_expected(attempt):
            return False
        if self._generations.put(item, written(item.content, writes, attempt.tx)) is None:
            raise _ConflictError
        return True

    def _ready(self, item: Item, attempt: "_Attempt") -> Item:
        """Return the ConfigMap ready to be written: settled, and without records of commits that are long
        over."""
        item = self._settled(item, attempt)
        now = self._clock()
        over = {tx for tx, commit in item.content.committed.items() if now - commit.since > _FORGET_SECONDS}
        if not over:
            return item
        for name in {name for tx in over for name in item.content.committed[tx].others}:
            self._intents.carry_out(over, name, attempt.generation)
        return self._forget(item, over)

    def _settled(self, item: Item, attempt: "_Attempt") -> Item:
        """Return the ConfigMap once it has no intent; wait for a commit that still runs."""
        # Not berth.retry: every step may end another intent, and shows others that this commit still runs.
        while item.content.intent is not None:
            if (settled := self._intents.settle(item, attempt.generation)) is None:
                if not attempt.waits:  # long enough to end what was left behind, once
                    attempt.waits = True
                    enough = self._monotonic() + UNDECIDED_SECONDS + _SECONDS_MORE
                    attempt.until = max(attempt.until, enough)
                if self._monotonic() >= attempt.until:
                    raise _ConflictError
                self._show(attempt)
                self._sleep(random.uniform(0.005, 0.02))
                settled = self._generations.fetch(item.name, attempt.generation)
            item = settled
        return item

    def _forget(self, item: Item, over: Collection[str]) -> Item:
        left = {tx: commit for tx, commit in item.content.committed.items() if tx not in over}
        after = self._generations.put(item, replaced(item.content, committed=left), must=True)
        if after is None:
            raise _ConflictError
        return after

    # Several ConfigMaps

    def _several(self, attempt: "_Attempt", names: list[str]) -> bool:
        tx, generation = attempt.tx if attempt.turns == 1 else self._new_id(), attempt.generation
        placed = attempt.placed = list[Item]()
        try:
            for name in names:
                self._show(attempt)
                if names[0] == self._generations.head_name:
                    # All shards: that may take its time, while it progresses.
                    attempt.until = max(attempt.until, self._monotonic() + self._patience)
                item = self._announce(attempt, tx, name, names[0])
                if item is None:
                    self._take_out(tx, placed, generation)
                    return False
                placed.append(item)
            if self._generations.head_name not in names and not self._head_as_expected(attempt):
                self._take_out(tx, placed, generation)
                return False
        except (_ConflictError, BerthError):
            self._take_out(tx, placed, generation)
            raise
        decided = self._decide(tx, placed[0], tuple(names[1:]), generation)
        if decided is None:
            self._take_out(tx, placed, generation)
            raise _ConflictError
        # Other writers would do what is left.
        with suppress(BerthError, _ConflictError):
            for item in placed[1:]:
                if self._generations.put(item, applied(item.content), must=True) is None:
                    self._intents.carry_out({tx}, item.name, generation)
            self._forget(decided, {tx})
        return True

    def _announce(self, attempt: "_Attempt", tx: str, name: str, primary: str) -> Item | None:
        """Return the ConfigMap with its intent; None if it is not as expected."""
        intent = Intent(tx, primary, dict(attempt.writes_at(name)))
        known = self._generations.known(name) if attempt.turns == 1 else None
        while True:
            item = self._ready(known or self._generations.fetch(name, attempt.generation), attempt)
            if not as_expected(item.content.documents, attempt.expected_at(name)):
                if known is None:
                    return None
                known = None
                continue
            content = replaced(item.content, intent=intent)
            # The intent itself may exceed that: a write that makes a full ConfigMap smaller needs an intent,
            # too.
            self._generations.client.require_room(item, len(encode(applied(content))))
            after = self._generations.put(item, content, must=True)
            if after is not None:
                attempt.shown = self._monotonic() if name == primary else attempt.shown
                return after
            known = None
            if self._monotonic() >= attempt.until:
                raise _ConflictError

    def _show(self, attempt: "_Attempt") -> None:
        """Show others from time to time that this commit still runs, by a write of its primary."""
        if not attempt.placed or self._monotonic() - attempt.shown < SHOWN_SECONDS:
            return
        before = attempt.placed[0]
        assert before.content.intent is not None
        after = self._generations.put(before, before.content, must=True)
        after = after or self._generations.fetch(before.name, attempt.generation)
        if not is_of(after, before.content.intent.tx):
            raise _ConflictError
        attempt.placed[0], attempt.shown = after, self._monotonic()

    def _decide(self, tx: str, primary: Item, others: tuple[str, ...], generation: Generation) -> Item | None:
        """Return the primary with the commit decided; None if its intent was taken out."""
        while is_of(primary, tx):
            decided = {**primary.content.committed, tx: Committed(self._clock(), others)}
            content = replaced(applied(primary.content), committed=decided)
            after = self._generations.put(primary, content, must=True)
            if after is not None:
                return after
            primary = self._generations.fetch(primary.name, generation)
        return primary if tx in primary.content.committed else None

    def _take_out(self, tx: str, placed: list[Item], generation: Generation) -> None:
        for item in reversed(placed):
            while is_of(item, tx):
                item = self._intents.end(item) or self._generations.fetch(item.name, generation)

    @contextmanager
    def _turn(self, names: list[str], generation: Generation) -> Iterator[None]:
        """The threads of a process queue here for each ConfigMap: refused writes cost more than waiting."""
        with ExitStack() as held:
            for name in names:
                turn = self._turns.setdefault(self._generations.part(name, generation), threading.Lock())
                if not turn.acquire(timeout=self._patience):
                    raise busy(self._generations.client.url)
                held.callback(turn.release)
            yield


@dataclass
class _Attempt:
    """One commit: how often it was tried, what the last try has announced, and when that was `shown` last."""

    tx: str
    generation: Generation
    places: Mapping[str, str]
    writes: Bodies
    expected: Expected
    until: float
    turns: int = 0
    waits: bool = False
    placed: list[Item] = field(default_factory=list)
    shown: float = 0.0

    def writes_at(self, name: str) -> Bodies:
        return {key: body for key, body in self.writes.items() if self.places[key] == name}

    def expected_at(self, name: str) -> Expected:
        return {key: version for key, version in self.expected.items() if self.places[key] == name}

    def landed(self, documents: Documents, writes: Bodies) -> bool:
        """Whether an earlier write, whose answer was lost, was done."""
        return any(documents.get(key, ("", b""))[0] == self.tx for key in writes)
