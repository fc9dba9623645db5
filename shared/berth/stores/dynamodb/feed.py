"""What changed since: the index of documents by the time they were written, read with an overlap.

A commit is stamped by DynamoDB's clock before it is sent, and found late: it lands later than its stamp, the
index follows the table later still, and clocks are right to a second. So each look goes back by an overlap,
and once in WIDE_EVERY seconds it goes back WIDE seconds: AWS refuses a request that is older than five
minutes. Bodies are read from the table itself, consistently, in the same call: no key goes back.

The index tells of one document before another, whichever was first. So where it tells of a new epoch, all is
read from the table, after the epoch: whoever is told of an epoch is told of all that was committed before it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Self

import tenacity

from berth.errors import StoreUnavailableError
from berth.stores.base import EPOCH, LIMIT, Changes, Cursor
from berth.stores.dynamodb.client import Link
from berth.stores.dynamodb.clock import ServerClock
from berth.stores.dynamodb.errors import ledger
from berth.stores.dynamodb.transaction import (
    BODY,
    FEED,
    FEED_NAME,
    INDEX,
    KEY,
    LIFE,
    VERSION,
    WRITTEN,
    Item,
    document,
    name,
)
from berth.stores.dynamodb.url import Location

WIDE, WIDE_EVERY = 420.0, 30.0
TOMBSTONES = 24 * 3600.0  # a deletion is remembered so long; a cursor is served for half that time
_CURSORS = 16  # of which it is known what was told with them

Seen = Mapping[str, str]


def overlap(seconds: float) -> float:
    """For calls that may take so long: sent again once, two clocks that are right to a second, the index."""
    return 2 * seconds + 2 + 1


class Position(NamedTuple):
    """A cursor: the life, when the last look began and the last wide one did (milliseconds), and whose."""

    life: str
    at: int
    wide_at: int
    own: str

    def __str__(self) -> str:
        return ".".join(str(each) for each in self)

    @classmethod
    def parse(cls, cursor: Cursor | None) -> Self | None:
        match (cursor or "").split("."):
            case [life, at, wide_at, own] if at.isdecimal() and wide_at.isdecimal():
                return cls(life, int(at), int(wide_at), own)
        return None


class Feed:
    """Looks at one table. What was told with a cursor is remembered, so that an overlap reads no body
    twice; it may be forgotten."""

    def __init__(
        self,
        link: Link,
        location: Location,
        clock: ServerClock,
        new_id: Callable[[], str],
        sleep: Callable[[float], None],
        overlap: float,
    ) -> None:
        self._link, self._location, self._clock, self._overlap = link, location, clock, overlap
        self._new_id, self._sleep = new_id, sleep
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._lock = threading.Lock()

    def reaches(self, position: Position) -> bool:
        """Whether all that was deleted since is still known."""
        return -1000 * self._overlap <= self._now() - position.at <= 1000 * TOMBSTONES / 2

    def everything(self, life: str) -> Changes | None:
        """All documents; None where the table does not bear the mark of this life."""
        at, documents, seen, marked = self._now(), dict[str, bytes | None](), dict[str, str](), False
        epoch = self._read([EPOCH])  # one that comes while the table is gone through is told the next time
        request = {
            "TableName": self._location.table,
            "ConsistentRead": True,
            "FilterExpression": "attribute_exists(#body) OR #key = :life",
            "ExpressionAttributeNames": {"#body": BODY, "#key": KEY},
            "ExpressionAttributeValues": {":life": {"S": LIFE}},
        }
        scanned = (item for item in self._items("scan", request) if item[KEY]["S"] != EPOCH)
        for item in chain(scanned, epoch.values()):
            key = item[KEY]["S"]
            if key == LIFE:
                marked = item[VERSION]["S"] == life
            elif (found := document(item)) is not None:
                documents[key] = found.body
                if key == EPOCH or int(item[WRITTEN]["N"]) >= at - 1000 * WIDE:
                    seen[key] = found.version
        return Changes(documents, self._remember(life, at, at, seen), True) if marked else None

    def since(self, position: Position, *, marked: bool = False) -> Changes | None:
        """What changed; None where the index does not bear the mark of the cursor's life. With `marked` the
        table was found to bear it: then the index is only behind."""
        at = self._now()
        wide = at - position.wide_at >= 1000 * WIDE_EVERY
        entries = self._entries(position.at - int(1000 * (WIDE if wide else self._overlap)))
        if entries.pop(LIFE, None) != position.life and not marked:
            return None
        told = self._recall(position)
        fresh = [key for key, version in entries.items() if told.get(key) != version]
        items = self._read(fresh)
        if EPOCH in fresh and _version(items.get(EPOCH)) != told.get(EPOCH, ""):
            return self.everything(position.life)
        if fresh or wide:
            old = {key: told[key] for key in (entries if wide else told) if key in told}
            told = {**old, **{key: _version(items.get(key)) for key in fresh}}
        bodies = {key: document(items.get(key, {})) for key in fresh}
        documents = {key: None if found is None else found.body for key, found in bodies.items()}
        cursor = self._remember(position.life, at, at if wide else position.wide_at, told)
        return Changes(documents, cursor, False)

    def _now(self) -> int:
        return int(1000 * self._clock.now())

    def _recall(self, position: Position) -> Seen:
        with self._lock:
            return self._seen.get(str(position), {})

    def _remember(self, life: str, at: int, wide_at: int, seen: Seen) -> Cursor:
        cursor = str(Position(life, at, wide_at, self._new_id()))
        with self._lock:
            self._seen[cursor] = seen
            while len(self._seen) > _CURSORS:
                self._seen.popitem(last=False)
        return cursor

    def _entries(self, start: int) -> dict[str, str]:
        """Key and version of what was written since, as far as the index knows, and of the mark."""
        request = {
            "TableName": self._location.table,
            "IndexName": INDEX,
            "KeyConditionExpression": "#feed = :feed AND #written >= :start",
            "ExpressionAttributeNames": {"#feed": FEED, "#written": WRITTEN},
            "ExpressionAttributeValues": {":feed": {"S": FEED_NAME}, ":start": {"N": str(start)}},
        }
        return {item[KEY]["S"]: item[VERSION]["S"] for item in self._items("query", request)}

    def _items(self, operation: str, request: dict[str, Any]) -> Iterator[Item]:
        while True:
            answer = self._link.call(operation, request)
            yield from answer["Items"]
            if (last := answer.get("LastEvaluatedKey")) is None:
                return
            request = {**request, "ExclusiveStartKey": last}

    def _read(self, keys: list[str]) -> dict[str, Item]:
        found: dict[str, Item] = {}
        for start in range(0, len(keys), LIMIT):
            found |= self._read_some(keys[start : start + LIMIT])
        return found

    def _read_some(self, keys: list[str]) -> dict[str, Item]:
        """DynamoDB may answer for some of the keys only; the others are asked for again."""
        found, left = dict[str, Item](), [name(key) for key in keys]
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            wait=tenacity.wait_random_exponential(multiplier=0.01, max=0.2),
            stop=tenacity.stop_after_attempt(10),
            sleep=self._sleep,
            retry_error_callback=lambda _: True,
        )

        def ask() -> bool:
            nonlocal left
            table = self._location.table
            request = {"RequestItems": {table: {"Keys": left, "ConsistentRead": True}}}
            answer = self._link.call("batch_get_item", request)
            found.update({item[KEY]["S"]: item for item in answer["Responses"].get(table, ())})
            left = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            return bool(left)

        if attempts(ask):
            raise StoreUnavailableError(
                f"{ledger(self._location)} is asked for more than it serves; if this lasts, raise its limits"
            )
        return found


def _version(item: Item | None) -> str:
    return "" if item is None or VERSION not in item else str(item[VERSION]["S"])
