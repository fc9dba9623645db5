"""What changed since a cursor: the index of documents by the time they were written, read with an overlap.

A commit is stamped by DynamoDB's clock before it is sent, and seen late: it lands later than its stamp, the
index follows the table later still, and clocks are right to a second. So each read goes back by an overlap,
and once in WIDE_EVERY seconds by WIDE seconds: AWS refuses a request that is older than five minutes. Bodies
are read from the table itself, consistently, in the same call: no key goes back.

The index shows documents in any order, whichever was written first. So where it shows a new epoch, everything
is read from the table, after the epoch: a reader that gets an epoch gets all that was committed before it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Self

from berth.errors import StoreUnavailableError
from berth.retry import retry
from berth.stores.base import EPOCH, LIMIT, Changes, Cursor
from berth.stores.dynamodb.client import Client
from berth.stores.dynamodb.errors import ledger
from berth.stores.dynamodb.transaction import (
    BODY,
    FEED,
    FEED_NAME,
    GENERATION,
    INDEX,
    KEY,
    VERSION,
    WRITTEN,
    Item,
    document,
    name,
)

WIDE, WIDE_EVERY = 420.0, 30.0
TOMBSTONES = 24 * 3600.0  # a deletion is remembered so long; a cursor is served for half that time
_READS = 10
_CURSORS = 16  # of which it is known what was returned with them

Seen = Mapping[str, str]


class _UnreadError(Exception):
    """DynamoDB has not read all items yet."""


class Position(NamedTuple):
    """A cursor: the generation, when the last read began, when the last wide one did (both in milliseconds),
    and a name of its own."""

    generation: str
    at: int
    wide_at: int
    own: str

    def __str__(self) -> str:
        return ".".join(str(part) for part in self)

    @classmethod
    def parse(cls, cursor: Cursor | None) -> Self | None:
        match (cursor or "").split("."):
            case [generation, at, wide_at, own] if at.isdecimal() and wide_at.isdecimal():
                return cls(generation, int(at), int(wide_at), own)
        return None


class Feed:
    """Reads of one table. What was returned with a cursor is remembered, so that an overlap reads no body
    twice; it may be forgotten."""

    def __init__(self, client: Client, new_id: Callable[[], str], seconds: float) -> None:
        """`seconds` is how long a call may take."""
        self._client, self._table, self._new_id = client, client.url.table, new_id
        # A call may be sent twice, two clocks are right to a second, and the index takes one.
        self._overlap = 2 * seconds + 2 + 1
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._lock = threading.Lock()

    def reaches(self, position: Position) -> bool:
        """Whether all deletions since are still known."""
        return -1000 * self._overlap <= self._now() - position.at <= 1000 * TOMBSTONES / 2

    def everything(self, generation: str) -> Changes | None:
        """Return all documents; None where the table lacks the mark of this generation."""
        at, documents, seen, marked = self._now(), dict[str, bytes | None](), dict[str, str](), False
        epoch = self._read([EPOCH])  # one that comes during the scan is for the next call
        request = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": "attribute_exists(#body) OR #key = :life",
            "ExpressionAttributeNames": {"#body": BODY, "#key": KEY},
            "ExpressionAttributeValues": {":life": {"S": GENERATION}},
        }
        scanned = (item for item in self._items("scan", request) if item[KEY]["S"] != EPOCH)
        for item in chain(scanned, epoch.values()):
            key = item[KEY]["S"]
            if key == GENERATION:
                marked = item[VERSION]["S"] == generation
            elif (present := document(item)) is not None:
                documents[key] = present.body
                if key == EPOCH or int(item[WRITTEN]["N"]) >= at - 1000 * WIDE:
                    seen[key] = present.version
        return Changes(documents, self._remember(generation, at, at, seen), True) if marked else None

    def since(self, position: Position, *, marked: bool = False) -> Changes | None:
        """Return what changed; None where the index lacks the mark of the cursor's generation. With `marked`
        the table has the mark, so the index is only behind."""
        at = self._now()
        wide = at - position.wide_at >= 1000 * WIDE_EVERY
        entries = self._entries(position.at - int(1000 * (WIDE if wide else self._overlap)))
        if entries.pop(GENERATION, None) != position.generation and not marked:
            return None
        with self._lock:
            before = self._seen.get(str(position), {})
        fresh = [key for key, version in entries.items() if before.get(key) != version]
        items = self._read(fresh)
        if EPOCH in fresh and _version(items.get(EPOCH)) != before.get(EPOCH, ""):
            return self.everything(position.generation)
        if fresh or wide:
            old = {key: before[key] for key in (entries if wide else before) if key in before}
            before = {**old, **{key: _version(items.get(key)) for key in fresh}}
        bodies = {key: document(items.get(key, {})) for key in fresh}
        documents = {key: None if body is None else body.body for key, body in bodies.items()}
        cursor = self._remember(position.generation, at, at if wide else position.wide_at, before)
        return Changes(documents, cursor, False)

    def _now(self) -> int:
        return int(1000 * self._client.clock.now())

    def _remember(self, generation: str, at: int, wide_at: int, seen: Seen) -> Cursor:
        cursor = str(Position(generation, at, wide_at, self._new_id()))
        with self._lock:
            self._seen[cursor] = seen
            while len(self._seen) > _CURSORS:
                self._seen.popitem(last=False)
        return cursor

    def _entries(self, start: int) -> dict[str, str]:
        """Return key and version of what was written since, as far as the index knows, and of the mark."""
        request = {
            "TableName": self._table,
            "IndexName": INDEX,
            "KeyConditionExpression": "#feed = :feed AND #written >= :start",
            "ExpressionAttributeNames": {"#feed": FEED, "#written": WRITTEN},
            "ExpressionAttributeValues": {":feed": {"S": FEED_NAME}, ":start": {"N": str(start)}},
        }
        return {item[KEY]["S"]: item[VERSION]["S"] for item in self._items("query", request)}

    def _items(self, operation: str, request: dict[str, Any]) -> Iterator[Item]:
        while True:
            answer = self._client.call(operation, request)
            yield from answer["Items"]
            if (last := answer.get("LastEvaluatedKey")) is None:
                return
            request = {**request, "ExclusiveStartKey": last}

    def _read(self, keys: list[str]) -> dict[str, Item]:
        items: dict[str, Item] = {}
        for start in range(0, len(keys), LIMIT):
            items |= self._read_some(keys[start : start + LIMIT])
        return items

    def _read_some(self, keys: list[str]) -> dict[str, Item]:
        """Return the items of these keys. DynamoDB may answer for some: the others are asked for again."""
        table, items, unread = self._table, dict[str, Item](), [name(key) for key in keys]

        def ask() -> None:
            nonlocal unread
            request = {"RequestItems": {table: {"Keys": unread, "ConsistentRead": True}}}
            answer = self._client.call("batch_get_item", request)
            items.update({item[KEY]["S"]: item for item in answer["Responses"].get(table, ())})
            unread = answer.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            if unread:
                raise _UnreadError

        try:
            retry(ask, _UnreadError, tries=_READS, pauses=(0.01, 0.2), sleep=self._client.sleep)
        except _UnreadError as error:
            raise StoreUnavailableError(
                f"{ledger(self._client.url)} is asked for more than it serves; if this lasts, raise its "
                "limits"
            ) from error
        return items


def _version(item: Item | None) -> str:
    return "" if item is None or VERSION not in item else str(item[VERSION]["S"])
