"""`berth store init dynamodb://…`: a ledger's table and its index, made or brought to what they should be.
It takes nothing away, and touches no table that is not ours."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from berth.errors import StoreFailedError, StoreUnavailableError
from berth.stores.dynamodb.client import Clients, Link, MissingTableError
from berth.stores.dynamodb.clock import ServerClock
from berth.stores.dynamodb.errors import UnknownOperationError, ledger
from berth.stores.dynamodb.generation import require_ours
from berth.stores.dynamodb.transaction import EXPIRES, FEED, INDEX, KEY, VERSION, WRITTEN
from berth.stores.dynamodb.url import Location

_CALL_SECONDS, _READY_SECONDS, _LOOK_SECONDS = 10.0, 180.0, 1.0


def make(
    location: Location,
    *,
    protect: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clients: Clients | None = None,
) -> Iterator[str]:
    """What was done, a line each, as it is done; it may be called again and again. `protect` is deletion
    protection. Raises StoreUnavailableError and StoreFailedError; what was done until then is found done.
    """
    clock = ServerClock()
    link = Link(location, _CALL_SECONDS, clock, sleep, clients)
    try:
        yield from _Making(link, location, clock, sleep).run(protect)
    except MissingTableError as error:
        raise StoreUnavailableError(f"{ledger(location)} went away while it was made") from error
    finally:
        link.close()


class _Making:
    def __init__(
        self, link: Link, location: Location, clock: ServerClock, sleep: Callable[[float], None]
    ) -> None:
        self._link, self._location, self._clock, self._sleep = link, location, clock, sleep
        self._table = {"TableName": location.table}

    def run(self, protect: bool) -> Iterator[str]:
        yield self._made(protect)
        found = self._ready()
        if protect and not found.get("DeletionProtectionEnabled"):
            self._call("update_table", DeletionProtectionEnabled=True)
            self._ready()
            yield "deletion protection: switched on"
        else:
            state = "on" if found.get("DeletionProtectionEnabled") else "off (--protect switches it on)"
            yield f"deletion protection: {state}"
        yield self._if_known("point-in-time recovery", self._backups)
        yield self._if_known("time to live", self._expiry)

    def _if_known(self, what: str, switch_on: Callable[[], str]) -> str:
        """A stand-in for DynamoDB may be without; the ledger needs neither to work."""
        try:
            return switch_on()
        except UnknownOperationError:
            return f"{what}: this endpoint has none"

    def _made(self, protect: bool) -> str:
        name = self._location.table
        try:
            self._call("describe_table")
        except MissingTableError:
            self._call("create_table", DeletionProtectionEnabled=protect, **FORM)
            return f"table {name}: made, billed on demand"
        return f"table {name}: it was there"

    def _ready(self) -> Mapping[str, Any]:
        """The table, once it can be used. Raises StoreFailedError at once if it is not ours."""
        give_up_at = self._clock.local() + _READY_SECONDS
        while True:
            try:
                found: Mapping[str, Any] = self._call("describe_table")["Table"]
                require_ours(found, self._location)
                if found["TableStatus"] == "ACTIVE":
                    return found
            except (MissingTableError, StoreUnavailableError):  # AWS tells of a new table a little later
                if self._clock.local() > give_up_at:
                    raise
            self._sleep(_LOOK_SECONDS)

    def _backups(self) -> str:
        found = self._call("describe_continuous_backups")["ContinuousBackupsDescription"]
        state = found.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
        if state == "ENABLED":
            return "point-in-time recovery: on"
        self._call(
            "update_continuous_backups",
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
        )
        return "point-in-time recovery: switched on"

    def _expiry(self) -> str:
        found = self._call("describe_time_to_live")["TimeToLiveDescription"]
        if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
            if found.get("AttributeName") == EXPIRES:
                return "time to live: on"
            raise StoreFailedError(
                f"{ledger(self._location)}: its time to live goes by {found.get('AttributeName')!r}, and "
                f"berth's by {EXPIRES!r}; name another table in BERTH_STORE"
            )
        self._call("update_time_to_live", TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRES})
        return "time to live: switched on"

    def _call(self, operation: str, **more: Any) -> Mapping[str, Any]:
        return self._link.call(operation, {**self._table, **more})


FORM: dict[str, Any] = {
    "BillingMode": "PAY_PER_REQUEST",
    "AttributeDefinitions": [
        {"AttributeName": KEY, "AttributeType": "S"},
        {"AttributeName": FEED, "AttributeType": "S"},
        {"AttributeName": WRITTEN, "AttributeType": "N"},
    ],
    "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": INDEX,
            "KeySchema": [
                {"AttributeName": FEED, "KeyType": "HASH"},
                {"AttributeName": WRITTEN, "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": [VERSION]},
        }
    ],
}
