"""The generation of a ledger in DynamoDB: a table that was made anew, or restored from a backup, begins one.

DynamoDB gives each table an id, and a mark in the ledger says for which id its generation began. The ids are
compared at the first call and then every CHECK_SECONDS; a table takes longer than that to be deleted and
restored. Not promised: that a loss is noticed where somebody put the items back one by one.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores.base import EPOCH
from berth.stores.dynamodb import transaction
from berth.stores.dynamodb.client import Client, MissingTableError, UnmetError
from berth.stores.dynamodb.errors import ledger, missing, not_ready
from berth.stores.dynamodb.transaction import GENERATION, SEALED, TABLE, VERSION, Stamp
from berth.stores.dynamodb.url import DynamoDbUrl

CHECK_SECONDS = 20.0
_TRIES = 5
KEYS = [{"AttributeName": transaction.KEY, "KeyType": "HASH"}]
INDEX_KEYS = [
    {"AttributeName": transaction.FEED, "KeyType": "HASH"},
    {"AttributeName": transaction.WRITTEN, "KeyType": "RANGE"},
]


class _Known(NamedTuple):
    table: str
    generation: str


class Generations:
    """What this process knows of the present generation. Safe to use from many threads."""

    def __init__(self, client: Client, stamp: Callable[[], Stamp], *, begins: bool) -> None:
        """With `begins` False it begins none: the generation is empty until another process has begun one."""
        self._client, self._url, self._stamp, self._begins = client, client.url, stamp, begins
        self._known: _Known | None = None
        self._checked = 0.0
        self._checking = threading.Lock()

    def current(self) -> str:
        """Return the generation that the table holds. Raises the store's errors where it is no ledger."""
        known, age = self._known, self._client.clock.local() - self._checked
        if known is None or not known.generation or age >= 2 * CHECK_SECONDS:
            return self.check()
        # One thread checks, and the others go on meanwhile.
        if age >= CHECK_SECONDS and self._checking.acquire(blocking=False):
            try:
                return self.check()
            finally:
                self._checking.release()
        return known.generation

    def check(self, *, mark: bool = False) -> str:
        """Return the generation, read anew; with `mark` the mark in the ledger is read, too."""
        at, known = self._client.clock.local(), self._known
        table = self._table()
        if known is None or mark or not known.generation or known.table != table:
            known = _Known(table, self._marked(table))
        self._known, self._checked = known, at
        return known.generation

    def forget(self) -> None:
        self._known = None

    def _table(self) -> str:
        try:
            table = self._client.call("describe_table", {"TableName": self._url.table})["Table"]
        except MissingTableError as error:
            self.forget()
            raise missing(self._url) from error.__cause__
        require_ours(table, self._url)
        return str(table.get("TableId") or table["CreationDateTime"])

    def _marked(self, table: str) -> str:
        for _ in range(_TRIES):
            items = self._read()
            mark = items.get(GENERATION)
            if mark is not None and mark[TABLE]["S"] == table:
                return str(mark[VERSION]["S"])
            if not self._begins:
                return ""
            clause = transaction.not_begun() if mark is None else transaction.as_read(mark[VERSION]["S"])
            try:
                self._begin(table, clause, items)
            except UnmetError:
                continue  # another process was first
        raise StoreUnavailableError(f"{ledger(self._url)} is being taken over by many at once")

    def _begin(self, table: str, clause: transaction.Item, items: Mapping[str, transaction.Item]) -> None:
        documents = {key: transaction.document(items.get(key, {})) for key in SEALED}
        versions = {key: document and document.version for key, document in documents.items()}

        def request() -> transaction.Item:
            items = transaction.beginning(self._url.table, table, clause, versions, self._stamp())
            return {"TransactItems": items}

        self._client.call("transact_write_items", request)

    def _read(self) -> dict[str, transaction.Item]:
        keys = [GENERATION, *(key for key in SEALED if key != EPOCH)]
        request = {"TransactItems": transaction.gets(self._url.table, keys)}
        answers = self._client.call("transact_get_items", request)["Responses"]
        read = zip(keys, answers, strict=True)
        return {key: answer["Item"] for key, answer in read if answer.get("Item")}


def require_ours(table: Mapping[str, Any], url: DynamoDbUrl) -> None:
    """Raise an error unless the table, according to DescribeTable, can be used as a ledger."""
    where, status = ledger(url), table["TableStatus"]
    if status in ("CREATING", "DELETING"):
        raise not_ready(url, status)
    if status not in ("ACTIVE", "UPDATING"):
        raise StoreFailedError(f"{where} can't be used: its status is {status}; see to it at AWS")
    indexes = {index["IndexName"]: index for index in table.get("GlobalSecondaryIndexes") or ()}
    index = indexes.get(transaction.INDEX, {})
    if table["KeySchema"] != KEYS or index.get("KeySchema") != INDEX_KEYS:
        raise StoreFailedError(
            f"{where} is not a table that berth made; name another one in BERTH_STORE, "
            "and make it with berth store init"
        )
    if index.get("IndexStatus", "ACTIVE") not in ("ACTIVE", "UPDATING"):
        raise StoreUnavailableError(f"{where} is not ready: its index is {index['IndexStatus']}")
    home = table.get("TableArn", "").split(":")[3:4]
    if abroad := sorted({replica["RegionName"] for replica in table.get("Replicas") or ()} - set(home)):
        raise StoreFailedError(
            f"{where} is a global table (also in {', '.join(abroad)}): writes of two regions would give "
            "units out twice; remove the replicas, or name a table of one region in BERTH_STORE"
        )
