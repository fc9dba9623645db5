"""A licence server whose licences pods of ours and others check out, at random, and a ledger that reads it.
Texts come late or not at all, processes restart, the ledger is lost. What must hold is asserted."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from berth.api.pool import Pool, parse
from berth.controller.capacity_sync import sync_all
from berth.controller.external_use import take_external
from berth.controller.licence_reading import LicenceReader, take_text
from berth.controller.licence_text import TextError
from berth.errors import RefusedError
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.ledger.report import pool_rows
from tests.properties.memory import MemoryStore
from tests.support.builders.ledgers import Time
from tests.support.builders.objects import pool_document

CAPACITY = 8
STALE = 120


class Text(NamedTuple):
    """What the server said at a time, and how many licences others had taken until then, in all."""

    at: float
    body: bytes
    taken: int


@dataclass
class World:
    """`claims` are what pods hold, `out` what they have checked out, `others` what everybody else has, by
    name. `taken` is how many licences were taken by others, or were withdrawn, so far. `reading` is the text
    that counts, `decided` what `taken` was in that by which the last claim was given."""

    dice: Random
    issued_counts: bool = False
    time: Time = field(default_factory=Time)
    issued: int = CAPACITY
    claims: dict[str, int] = field(default_factory=dict)
    out: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    reading: Text | None = None
    decided: int = 0
    late: list[Text] = field(default_factory=list)
    given: int = 0
    refused: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        source = {"feature": "F", "url": "http://x", "format": "json", "everySeconds": 30}
        source |= {"staleAfterSeconds": STALE, "capacity": "Issued" if self.issued_counts else "Pool"}
        size = None if self.issued_counts else {"perDomain": CAPACITY}
        document = pool_document("seat", scope="Cluster", capacity=size, externalFrom=source)
        self.pools: dict[str, Pool] = dict(parse([document], "a test"))
        self.lose()

    # What is so

    @property
    def outside(self) -> int:
        """Licences that no claim counts."""
        beyond = sum(max(0, units - self.claims[name]) for name, units in self.out.items())
        return sum(self.others.values()) + beyond

    @property
    def free_at_server(self) -> int:
        return self.issued - sum(self.out.values()) - sum(self.others.values())

    def text(self) -> Text:
        """What the server says now."""
        self.time.now += 1
        rows = [{"host": who, "count": units} for who, units in (self.out | self.others).items() if units]
        feature = {"name": "F", "issued": self.issued, "checkouts": rows}
        return Text(self.time.now, json.dumps({"features": [feature]}).encode(), self.taken)

    # What happens

    def go_on(self, steps: int) -> None:
        """Let so many things happen."""
        happens = [self.come] * 6 + [self.start] * 4 + [self.end] * 2 + [self.take] * 3 + [self.give_back] * 3
        happens += [self.tick] * 6 + [self.wait] * 2
        happens += [self.rubbish, self.send_late, self.deliver, self.restart, self.lose, self.change_licence]
        for _ in range(steps):
            self.time.now += self.dice.randrange(20)
            self.dice.choice(happens)()
            self.look()

    def come(self) -> None:
        """A pod comes, and is bound if there is room."""
        self.made += 1
        name, units = f"pod-{self.made}", self.dice.randint(1, 3)
        holdings = (Holding("seat", "*", units),)
        wanted = Claim(uid=name, namespace="d", name=name, node="n", holdings=holdings, since=self.time.now)
        try:
            claim = self.ledger.reserve(wanted)
        except RefusedError:
            self.refused += 1
            return
        assert self.reading is not None, "a claim was given without a reading"
        assert self.time.now - self.reading.at <= STALE, "a claim was given by a reading that was too old"
        self.given += 1
        self.ledger.confirm(claim)
        self.claims[name], self.decided = units, self.reading.taken

    def start(self) -> None:
        """A pod checks out what it holds, or seldom one more, if the server has it."""
        for name in [name for name in self.claims if name not in self.out][:1]:
            greed = int(self.dice.random() < 0.1)
            if self.claims[name] + greed <= self.free_at_server:
                self.out[name] = self.claims[name] + greed
                self.taken += greed

    def end(self) -> None:
        """A pod ends; its checkout may stay for a while."""
        if not self.claims:
            return
        name = self.dice.choice(sorted(self.claims))
        units, claimed = self.out.pop(name, 0), self.claims.pop(name)
        if units and self.dice.random() < 0.3:
            self.others[name] = units
            self.taken += min(units, claimed)
        self.ledger.release(name)

    def take(self) -> None:
        units = self.dice.randint(1, 3)
        if units <= self.free_at_server:
            who = f"desk-{self.dice.randrange(4)}"
            self.others[who] = self.others.get(who, 0) + units
            self.taken += units

    def give_back(self) -> None:
        if self.others:
            del self.others[self.dice.choice(sorted(self.others))]

    def change_licence(self) -> None:
        before, self.issued = self.issued, self.dice.choice([CAPACITY - 3, CAPACITY, CAPACITY + 2])
        self.taken += max(0, before - self.issued)

    def wait(self) -> None:
        self.time.now += self.dice.randrange(STALE)

    def tick(self) -> None:
        """reconcile reads if it is due, and the server answers as a rule."""
        asked: list[Text] = []

        def fetch(url: str, _: float, __: int) -> bytes:
            if self.dice.random() < 0.3:
                raise TextError(f"can't read {url}: connection refused")
            asked.append(self.text())
            return asked[0].body

        LicenceReader(self.ledger, clock=self.time, fetch=fetch).run()
        if asked:
            # It is stamped with the time before it was asked for: what was taken since then is in it, too.
            self.reading = asked[0]._replace(at=asked[0].at - 1)
            self.check_exact()

    def rubbish(self) -> None:
        def fetch(_: str, __: float, ___: int) -> bytes:
            return self.dice.choice([b"", b'{"features": []}', b"\xff", b'{"features": [{"name": "F"}]}'])

        LicenceReader(self.ledger, clock=self.time, fetch=fetch).run()

    def send_late(self) -> None:
        """A text is asked for, and is not here yet."""
        self.late.append(self.text())

    def deliver(self) -> None:
        """A text that was asked for before is here, whatever has happened since."""
        if not self.late:
            return
        text = self.late.pop(self.dice.randrange(len(self.late)))
        source = self.pools["seat"].external_from
        assert source is not None
        told = take_text(self.ledger, self.pools["seat"], source, text.body, text.at)
        late = self.reading is not None and text.at < self.reading.at
        assert told.outdated == late, "an older text undid a later one"
        if not late:
            self.reading = text

    def restart(self) -> None:
        """All processes begin anew, on the same store."""
        self.ledger = Ledger(self.store, clock=self.time, monotonic=self.time, while_closed=True)

    def lose(self) -> None:
        """The ledger is lost, and rebuilt from the pods that run."""
        self.store = MemoryStore()
        self.restart()
        self.reading, ledger = None, self.ledger
        mark = ledger.begin_rebuild("anew")
        for name, units in self.claims.items():
            held = (Holding("seat", "*", units),)
            ledger.adopt(
                Claim(uid=name, namespace="d", name=name, node="n", holdings=held, state="bound", since=1.0)
            )
        take_external(ledger, self.pools, self.time.now)
        ledger.apply_pools(self.pools)
        sync_all(ledger, self.pools, list)
        ledger.open("epoch", mark)

    # What must hold

    def look(self) -> None:
        """Claims and outside use are no more than there are licences, but for what others took since the
        reading by which the last claim was given."""
        used, since = sum(self.claims.values()) + self.outside, self.taken - self.decided
        assert not self.claims or used <= self.issued + since, (
            f"more in use than there is: {used} of {self.issued}, {since} of them taken by others since"
        )

    def check_exact(self) -> None:
        """Right after a reading nothing is counted twice, and nothing is left out."""
        (row,) = pool_rows(self.ledger.view(), now=self.time.now)
        most = self.issued if self.issued_counts else min(self.issued, CAPACITY)
        left = max(0, most - sum(self.claims.values()) - self.outside)
        assert row.given == left, f"{row.given} are free by the ledger, and {left} by the server"
