"""`berth store init dynamodb://…`: makes a ledger's table and its index, or brings them to what they should
be. It takes nothing away, and changes no table that is not Berth's."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from berth.deadline import Deadline
from berth.errors import StoreFailedError, StoreUnavailableError
from berth.retry import retry
from berth.server_clock import ServerClock
from berth.stores.dynamodb.client import Boto3Clients, Client, MissingTableError
from berth.stores.dynamodb.errors import UnknownOperationError, ledger, not_ready
from berth.stores.dynamodb.generation import INDEX_KEYS, KEYS, require_ours
from berth.stores.dynamodb.transaction import EXPIRES, FEED, INDEX, KEY, VERSION, WRITTEN
from berth.stores.dynamodb.url import DynamoDbUrl

_CALL_SECONDS, _READY_SECONDS, _LOOK_SECONDS = 10.0, 180.0, (0.5, 2.0)


def make(
    url: DynamoDbUrl,
    *,
    protect: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clients: Boto3Clients | None = None,
) -> Iterator[str]:
    """Make the table, and yield a line for each thing done; it may be called again and again. `protect`
    switches deletion protection on. Raises StoreUnavailableError and StoreFailedError.
    """
    client = Client(url, _CALL_SECONDS, ServerClock(), sleep, clients)
    try:
        yield from _Making(client).run(protect)
    except MissingTableError as error:
        raise StoreUnavailableError(f"{ledger(url)} went away while it was made") from error
    finally:
        client.close()


def is_recoverable(client: Client, url: DynamoDbUrl) -> bool:
    """Whether the table can be put back to any moment (point-in-time recovery). Raises as `make`."""
    answer = client.call("describe_continuous_backups", {"TableName": url.table})
    recovery = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return bool(recovery.get("PointInTimeRecoveryStatus") == "ENABLED")


class _Making:
    def __init__(self, client: Client) -> None:
        self._client, self._url = client, client.url

    def run(self, protect: bool) -> Iterator[str]:
        yield self._made(protect)
        table = self._ready()
        if protect and not table.get("DeletionProtectionEnabled"):
            self._call("update_table", DeletionProtectionEnabled=True)
            self._ready()
            yield "deletion protection: switched on"
        else:
            state = "on" if table.get("DeletionProtectionEnabled") else "off (--protect switches it on)"
            yield f"deletion protection: {state}"
        yield self._if_known("point-in-time recovery", self._backups)
        yield self._if_known("time to live", self._expiry)

    def _if_known(self, what: str, switch_on: Callable[[], str]) -> str:
        """Switch it on where the endpoint has it; the ledger works without."""
        try:
            return switch_on()
        except UnknownOperationError:
            return f"{what}: this endpoint has none"

    def _made(self, protect: bool) -> str:
        name = self._url.table
        try:
            self._call("describe_table")
        except MissingTableError:
            self._call("create_table", DeletionProtectionEnabled=protect, **FORM)
            return f"table {name}: made, billed on demand"
        return f"table {name}: it was there"

    def _ready(self) -> Mapping[str, Any]:
        """Return the table, once it can be used. Raises StoreFailedError at once if it is not ours."""

        def active() -> Mapping[str, Any]:
            table: Mapping[str, Any] = self._call("describe_table")["Table"]
            require_ours(table, self._url)
            if table["TableStatus"] != "ACTIVE":
                raise not_ready(self._url, table["TableStatus"])
            return table

        return retry(
            active,
            (MissingTableError, StoreUnavailableError),  # AWS tells of a new table a little later
            deadline=Deadline.after(_READY_SECONDS, self._client.clock.local),
            pauses=_LOOK_SECONDS,
            sleep=self._client.sleep,
        )

    def _backups(self) -> str:
        if is_recoverable(self._client, self._url):
            return "point-in-time recovery: on"
        enabled = {"PointInTimeRecoveryEnabled": True}
        self._call("update_continuous_backups", PointInTimeRecoverySpecification=enabled)
        return "point-in-time recovery: switched on"

    def _expiry(self) -> str:
        expiry = self._call("describe_time_to_live")["TimeToLiveDescription"]
        if expiry.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
            if expiry.get("AttributeName") == EXPIRES:
                return "time to live: on"
            raise StoreFailedError(
                f"{ledger(self._url)}: its time to live goes by {expiry.get('AttributeName')!r}, and "
                f"berth's by {EXPIRES!r}; name another table in BERTH_STORE"
            )
        self._call("update_time_to_live", TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES})
        return "time to live: switched on"

    def _call(self, operation: str, **more: Any) -> Mapping[str, Any]:
        return self._client.call(operation, {"TableName": self._url.table, **more})


FORM: dict[str, Any] = {
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [
        {"AttributeName": KEY, "AttributeType": "S"},
        {"AttributeName": FEED, "AttributeType": "S"},
        {"AttributeName": WRITTEN, "AttributeType": "N"},
    ],
    "KeySchema": KEYS,
    "GlobalSecondaryIndexes": [
        {
            "IndexName": INDEX,
            "KeySchema": INDEX_KEYS,
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": [VERSION]},
        }
    ],
}
