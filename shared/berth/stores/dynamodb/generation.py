"""Is this the table that it was? One deleted and made anew, or restored from a backup, begins a new life.

DynamoDB gives each table an id, and a mark in the ledger says for which id its life began. The ids are
compared at the first call and then every CHECK_SECONDS; a table takes longer than that to be deleted and
restored. Not promised: that a table is told from one whose items somebody put back one by one.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores.base import EPOCH
from berth.stores.dynamodb import transaction
from berth.stores.dynamodb.client import Link, MissingTableError, UnmetError
from berth.stores.dynamodb.clock import ServerClock
from berth.stores.dynamodb.errors import ledger, missing
from berth.stores.dynamodb.transaction import LIFE, SEALED, TABLE, VERSION, Stamp
from berth.stores.dynamodb.url import Location

CHECK_SECONDS = 20.0
_TRIES = 5
_KEYS = [{"AttributeName": transaction.KEY, "KeyType": "HASH"}]
_INDEX_KEYS = [
    {"AttributeName": transaction.FEED, "KeyType": "HASH"},
    {"AttributeName": transaction.WRITTEN, "KeyType": "RANGE"},
]


class _Known(NamedTuple):
    table: str
    life: str


class TableLife:
    """Safe to use from many threads."""

    def __init__(
        self,
        link: Link,
        location: Location,
        clock: ServerClock,
        stamp: Callable[[], Stamp],
        *,
        begins: bool = True,
    ) -> None:
        """With `begins` False it begins no life: there is none, the empty one, until another has."""
        self._link, self._location, self._clock, self._stamp = link, location, clock, stamp
        self._begins = begins
        self._known: _Known | None = None
        self._checked = 0.0
        self._checking = threading.Lock()

    def current(self) -> str:
        """The life that the table holds. Raises the store's errors where there is none of ours."""
        known, age = self._known, self._clock.local() - self._checked
        if known is None or not known.life or age >= 2 * CHECK_SECONDS:
            return self.check()
        # One thread looks, and the others go on meanwhile.
        if age >= CHECK_SECONDS and self._checking.acquire(blocking=False):
            try:
                return self.check()
            finally:
                self._checking.release()
        return known.life

    def check(self, *, mark: bool = False) -> str:
        """The same, asked anew; with `mark` also whether the ledger still bears the mark of its life."""
        at, known = self._clock.local(), self._known
        table = self._table()
        if known is None or mark or not known.life or known.table != table:
            known = _Known(table, self._marked(table))
        self._known, self._checked = known, at
        return known.life

    def forget(self) -> None:
        self._known = None

    def _table(self) -> str:
        try:
            found = self._link.call("describe_table", {"TableName": self._location.table})["Table"]
        except MissingTableError as error:
            self.forget()
            raise missing(self._location) from error.__cause__
        require_ours(found, self._location)
        return str(found.get("TableId") or found["CreationDateTime"])

    def _marked(self, table: str) -> str:
        for _ in range(_TRIES):
            found = self._read()
            mark = found.get(LIFE)
            if mark is not None and mark[TABLE]["S"] == table:
                return str(mark[VERSION]["S"])
            if not self._begins:
                return ""
            clause = transaction.not_begun() if mark is None else transaction.as_read(mark[VERSION]["S"])
            try:
                self._begin(table, clause, found)
            except UnmetError:
                continue  # another process was first
        raise StoreUnavailableError(f"{ledger(self._location)} is being taken over by many at once")

    def _begin(self, table: str, clause: transaction.Item, found: Mapping[str, transaction.Item]) -> None:
        documents = {key: transaction.document(found.get(key, {})) for key in SEALED}
        versions = {key: None if each is None else each.version for key, each in documents.items()}
        self._link.call(
            "transact_write_items",
            lambda: {
                "TransactItems": transaction.beginning(
                    self._location.table, table, clause, versions, self._stamp()
                )
            },
        )

    def _read(self) -> dict[str, transaction.Item]:
        keys = [LIFE, *(key for key in SEALED if key != EPOCH)]
        request = {"TransactItems": transaction.gets(self._location.table, keys)}
        answers = self._link.call("transact_get_items", request)["Responses"]
        return {key: each["Item"] for key, each in zip(keys, answers, strict=True) if each.get("Item")}


def require_ours(table: Mapping[str, Any], location: Location) -> None:
    """Raise an error unless the table, as DescribeTable tells it, can be used as a ledger."""
    where, status = ledger(location), table["TableStatus"]
    if status in ("CREATING", "DELETING"):
        raise StoreUnavailableError(f"{where} is not ready ({status}); it can be used once it is ACTIVE")
    if status not in ("ACTIVE", "UPDATING"):
        raise StoreFailedError(f"{where} can't be used: its status is {status}; see to it at AWS")
    indexes = {each["IndexName"]: each for each in table.get("GlobalSecondaryIndexes") or ()}
    index = indexes.get(transaction.INDEX, {})
    if table["KeySchema"] != _KEYS or index.get("KeySchema") != _INDEX_KEYS:
        raise StoreFailedError(
            f"{where} is not a table that berth made; name another one in BERTH_STORE, "
            "and make it with berth store init"
        )
    if index.get("IndexStatus", "ACTIVE") not in ("ACTIVE", "UPDATING"):
        raise StoreUnavailableError(f"{where} is not ready: its index is {index['IndexStatus']}")
    home = table.get("TableArn", "").split(":")[3:4]
    if abroad := sorted({each["RegionName"] for each in table.get("Replicas") or ()} - set(home)):
        raise StoreFailedError(
            f"{where} is a global table (also in {', '.join(abroad)}): writes of two regions would give "
            "units out twice; remove the replicas, or name a table of one region in BERTH_STORE"
        )
