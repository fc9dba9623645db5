"""The ledger in a DynamoDB table of one region: an item a document, a commit one transaction.

`changes` lags: a commit is in it as soon as the index has it, if that takes less than 5 s (feed.py). One that
took up to 7 minutes on its way is in it within 30 s more. A table that was made anew or restored is a loss
(generation.py). A global table is refused, since two regions would give units out twice.
"""

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.server_clock import ServerClock
from berth.stores.base import NOTHING, Changes, Cursor, Document, ServerFacts, Version, chunks, only_read
from berth.stores.compression import pack
from berth.stores.dynamodb import transaction
from berth.stores.dynamodb.client import Boto3Clients, Client, MissingTableError, UnmetError
from berth.stores.dynamodb.errors import ledger, missing, require_room
from berth.stores.dynamodb.feed import TOMBSTONES, Feed, Position
from berth.stores.dynamodb.generation import Generations
from berth.stores.dynamodb.table import is_recoverable, make
from berth.stores.dynamodb.transaction import SEALED, SEALS, Stamp
from berth.stores.dynamodb.url import DynamoDbUrl, parse

_TRIES = 3


class DynamoDbStore:
    """See `berth.stores.base.Store`. Nothing is sent before the first call."""

    def __init__(
        self,
        url: DynamoDbUrl,
        *,
        new_id: Callable[[], str] = lambda: os.urandom(8).hex(),
        seconds: float | None = None,
        clock: ServerClock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clients: Boto3Clients | None = None,
        reads_only: bool = False,
    ) -> None:
        self._url, self._new_id, self._reads_only = url, new_id, reads_only
        self._sleep, self._clients = sleep, clients
        seconds = seconds or url.seconds
        self._client = Client(url, seconds, clock or ServerClock(), sleep, clients)
        self._generations = Generations(self._client, self._stamp, begins=not reads_only)
        self._feed = Feed(self._client, new_id, seconds)

    def make(self, *, protect: bool) -> Iterator[str]:
        return make(self._url, protect=protect, sleep=self._sleep, clients=self._clients)

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        if not keys:
            return {}
        ordered = list(dict.fromkeys(keys))
        request = {"TransactItems": transaction.gets(self._url.table, ordered)}
        with self._table_there():
            if not self._generations.current():
                return {}
            answers = self._client.call("transact_get_items", request, ordered)["Responses"]
        documents = [transaction.document(answer.get("Item") or {}) for answer in answers]
        read = zip(ordered, documents, strict=True)
        return {key: document for key, document in read if document is not None}

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        if not writes and not expected:
            return True
        if self._reads_only:
            raise only_read()
        # Each kilobyte of an item costs a unit.
        packed = {key: None if body is None else pack(body) for key, body in writes.items()}
        require_room(self._url, {key: len(body) for key, body in packed.items() if body is not None})

        def request() -> dict[str, Any]:
            seal = random.randrange(SEALS)
            items = transaction.transaction(self._url.table, packed, expected, self._stamp(), seal)
            # AWS takes a transaction with the same token for the same one: it may be sent again.
            return {"TransactItems": items, "ClientRequestToken": self._new_id()}

        with self._table_there():
            generation = self._generations.current()
            try:
                self._client.call("transact_write_items", request, list(writes))
            except UnmetError:
                return False
            # This process may have been paused for longer than it takes to restore a table.
            if self._generations.current() != generation:
                raise StoreUnavailableError(f"{ledger(self._url)} was made anew during a commit")
        return True

    def changes(self, since: Cursor | None) -> Changes:
        with self._table_there():
            return self._changes(Position.parse(since))

    def batches(self, keys: Collection[str]) -> Iterable[Sequence[str]]:
        """Return sealed documents in parts of their own: a transaction has no room for the seals and
        others."""
        yield from chunks([key for key in keys if key not in SEALED])
        yield from chunks([key for key in keys if key in SEALED])

    def facts(self) -> ServerFacts:
        try:
            with self._table_there():
                return ServerFacts(recovery=is_recoverable(self._client, self._url))
        except StoreFailedError as error:
            return ServerFacts(unknown=(f"point-in-time recovery: {error}",))

    def close(self) -> None:
        self._client.close()

    def _changes(self, position: Position | None) -> Changes:
        generation = self._generations.current()
        if not generation:
            return NOTHING
        if position is not None and position.generation == generation and self._feed.reaches(position):
            if (changes := self._feed.since(position)) is not None:
                return changes
            if not (generation := self._generations.check(mark=True)):
                return NOTHING
            same = position.generation == generation
            if same and (changes := self._feed.since(position, marked=True)) is not None:
                return changes
        for _ in range(_TRIES):
            if (changes := self._feed.everything(generation)) is not None:
                return changes
            if not (generation := self._generations.check(mark=True)):
                return NOTHING
        raise StoreUnavailableError(f"{ledger(self._url)} is being made anew")

    def _stamp(self) -> Stamp:
        now = self._client.clock.now()
        return Stamp(self._new_id(), int(1000 * now), int(now + TOMBSTONES))

    @contextmanager
    def _table_there(self) -> Iterator[None]:
        try:
            yield
        except MissingTableError as error:
            self._generations.forget()
            raise missing(self._url) from error.__cause__


def open_store(url: str, *, reads_only: bool = False) -> DynamoDbStore:
    """Return the store of this URL. Raises SettingsError."""
    return DynamoDbStore(parse(url), reads_only=reads_only)
