"""`berth store init dynamodb://…`, and the rights that it and the functions need.

moto makes tables, switches on backups, expiry and protection as AWS does, but at once: what AWS does in
minutes is put in front of it. It knows no rights: motodynamo.py refuses actions by name.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.stores.base import EPOCH
from berth.stores.dynamodb.table import make
from berth.stores.dynamodb.url import parse
from tests.support.builders.ledgers import Time
from tests.support.servers.dynamo import Table, refused

POLICIES = Path(__file__).resolve().parents[2] / "infra" / "dynamodb"


def policy(name: str) -> dict[str, set[str]]:
    """The actions that a policy allows, by the end of their resource."""
    found: dict[str, set[str]] = {}
    for each in json.loads((POLICIES / f"{name}.json").read_text())["Statement"]:
        actions = [each["Action"]] if isinstance(each["Action"], str) else each["Action"]
        found[each["Resource"].rpartition("table/")[2]] = set(actions)
        assert each["Effect"] == "Allow"
    return found


def actions(name: str) -> list[str]:
    return sorted(set().union(*policy(name).values()))


@pytest.fixture
def bare(table: Table) -> Iterator[Table]:
    """A name without a table."""
    table.server.drop(table.name)
    yield table
    if not table.server.exists(table.name):
        table.server.make(table.name)


def told(table: Table, **more: Any) -> list[str]:
    return list(make(parse(table.url), sleep=Time().advance, **more))


# The table


def test_a_table_is_made_with_its_index_and_can_be_used_at_once(bare: Table) -> None:
    assert told(bare) == [
        f"table {bare.name}: made, billed on demand",
        "deletion protection: off (--protect switches it on)",
        "point-in-time recovery: switched on",
        "time to live: switched on",
    ]
    assert bare.store().commit({"a": b"1"}, {"a": None})
    found = bare.server.call("DescribeTable", {"TableName": bare.name})["Table"]
    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert found["GlobalSecondaryIndexes"][0]["Projection"] == {
        "ProjectionType": "INCLUDE",
        "NonKeyAttributes": ["version"],
    }
    expiry = bare.server.call("DescribeTimeToLive", {"TableName": bare.name})["TimeToLiveDescription"]
    assert expiry == {"AttributeName": "expires", "TimeToLiveStatus": "ENABLED"}


def test_a_table_that_is_there_keeps_what_is_in_it_and_gets_only_what_is_missing(bare: Table) -> None:
    told(bare)
    bare.store().commit({"a": b"1"}, {})
    assert told(bare) == [
        f"table {bare.name}: it was there",
        "deletion protection: off (--protect switches it on)",
        "point-in-time recovery: on",
        "time to live: on",
    ]
    assert bare.store().read(["a"])["a"].body == b"1"


def test_deletion_protection_is_switched_on_when_asked_for_and_never_off(bare: Table) -> None:
    told(bare)
    assert told(bare, protect=True)[1] == "deletion protection: switched on"
    assert told(bare)[1] == "deletion protection: on"
    found = bare.server.call("DescribeTable", {"TableName": bare.name})["Table"]
    assert found["DeletionProtectionEnabled"] is True
    bare.server.call("UpdateTable", {"TableName": bare.name, "DeletionProtectionEnabled": False})


def test_a_table_is_made_with_its_protection_from_the_first_moment(bare: Table) -> None:
    assert told(bare, protect=True)[1] == "deletion protection: on"
    bare.server.call("UpdateTable", {"TableName": bare.name, "DeletionProtectionEnabled": False})


def test_what_a_stand_in_for_dynamodb_does_not_have_is_told_and_left_out(bare: Table) -> None:
    for operation in ("DescribeContinuousBackups", "DescribeTimeToLive"):
        bare.server.fault(bare.name, operation, **refused("UnknownOperationException"))
    assert told(bare)[2:] == [
        "point-in-time recovery: this endpoint has none",
        "time to live: this endpoint has none",
    ]
    assert bare.store().commit({"a": b"1"}, {"a": None})


def test_whether_a_table_can_be_put_back_is_told_or_why_that_is_not_known(bare: Table) -> None:
    bare.server.make(bare.name)
    assert bare.store().facts().recovery is False
    told(bare)
    assert bare.store().facts().recovery is True
    bare.server.fault(bare.name, "DescribeContinuousBackups", **refused("UnknownOperationException"))
    facts = bare.store().facts()
    assert facts.recovery is None
    assert "its endpoint knows no" in facts.unknown[0]


def test_an_endpoint_that_cannot_make_a_table_says_so(bare: Table) -> None:
    bare.server.fault(bare.name, "CreateTable", **refused("UnknownOperationException"))
    with pytest.raises(
        StoreFailedError, match="its endpoint knows no create_table; check endpoint= in BERTH"
    ):
        told(bare)


def test_a_table_that_is_slow_to_come_is_waited_for(bare: Table) -> None:
    """AWS may not know a table that it has just begun to make, nor its backups."""
    bare.server.fault(bare.name, "DescribeTable", 2, **refused("ResourceNotFoundException"))
    unready = refused("ContinuousBackupsUnavailableException")
    bare.server.fault(bare.name, "DescribeContinuousBackups", **unready)
    assert told(bare)[0].endswith("made, billed on demand")


def test_a_table_that_is_never_ready_is_given_up(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.stores.dynamodb.table._READY_SECONDS", 0.0)
    table.server.describe(table.name, {"TableStatus": "CREATING"})
    with pytest.raises(StoreUnavailableError, match="is not ready"):
        told(table)


@pytest.mark.parametrize("change", [{"KeySchema": []}, {"GlobalSecondaryIndexes": []}], ids=["keys", "index"])
def test_a_table_that_is_not_ours_is_left_as_it_is(table: Table, change: dict[str, object]) -> None:
    table.server.describe(table.name, change)
    table.operations()
    with pytest.raises(StoreFailedError, match="is not a table that berth made"):
        told(table, protect=True)
    assert table.operations().keys() == {"DescribeTable"}


def test_a_table_that_expires_by_another_attribute_is_refused(table: Table) -> None:
    other = {"Enabled": True, "AttributeName": "ttl"}
    table.server.call("UpdateTimeToLive", {"TableName": table.name, "TimeToLiveSpecification": other})
    with pytest.raises(StoreFailedError, match="its time to live goes by 'ttl', and berth's by 'expires'"):
        told(table)


# Rights


def use(table: Table) -> None:
    """Everything that a function may do with a ledger."""
    store = table.store()
    cursor = store.changes(None).cursor
    assert store.commit({EPOCH: b"e", "a": b"1"}, {EPOCH: None, "a": None})
    found = store.read([EPOCH, "a"])
    assert store.commit({"a": None}, {key: each.version for key, each in found.items()})
    assert store.commit({}, {"b": None})
    assert dict(store.changes(cursor).documents) == {EPOCH: b"e"}


def test_the_functions_ask_for_nothing_but_what_their_policy_allows(table: Table) -> None:
    table.server.asked(table.name)
    use(table)
    asked = set(table.server.asked(table.name)["actions"])
    assert asked == set(actions("functions"))
    assert policy("functions")["TABLE/index/feed"] == {"dynamodb:Query"}


def test_who_only_reads_asks_for_nothing_but_what_its_policy_allows(table: Table) -> None:
    reader, writer = table.store(reads_only=True), table.store()
    assert writer.commit({EPOCH: b"e"}, {})
    asked: set[str] = set()

    def look(cursor: str | None) -> str:
        table.server.asked(table.name)
        found = reader.changes(cursor).cursor
        assert reader.read([EPOCH])
        asked.update(table.server.asked(table.name)["actions"])
        return found

    cursor = look(None)
    assert writer.commit({"a": b"2"}, {})
    look(cursor)
    assert asked == set(actions("readers"))
    assert policy("readers")["TABLE/index/feed"] == {"dynamodb:Query"}
    assert set(actions("readers")) < set(actions("functions"))


@pytest.mark.parametrize("action", sorted({"dynamodb:PutItem", "dynamodb:UpdateItem"}))
def test_who_only_reads_needs_no_right_to_write_to_a_table_that_nobody_has_used(
    table: Table, action: str
) -> None:
    table.server.deny(table.name, action)
    reader = table.store(reads_only=True)
    assert (reader.read([EPOCH]), dict(reader.changes(None).documents)) == ({}, {})


def test_store_init_asks_for_nothing_but_what_its_policy_allows(bare: Table) -> None:
    bare.server.asked(bare.name)
    told(bare)
    told(bare, protect=True)
    assert set(bare.server.asked(bare.name)["actions"]) == set(actions("init"))
    bare.server.call("UpdateTable", {"TableName": bare.name, "DeletionProtectionEnabled": False})


@pytest.mark.parametrize("action", actions("functions"))
def test_a_function_that_lacks_one_right_says_which(table: Table, action: str) -> None:
    denied(table, action, lambda: use(table))


@pytest.mark.parametrize("action", actions("init"))
def test_store_init_that_lacks_one_right_says_which(bare: Table, action: str) -> None:
    def run() -> None:
        told(bare)
        told(bare, protect=True)

    denied(bare, action, run)


def denied(table: Table, action: str, call: Callable[[], object]) -> None:
    table.server.deny(table.name, action)
    with pytest.raises(BerthError) as caught:
        call()
    assert type(caught.value) is StoreFailedError
    assert str(caught.value).endswith(
        f": its account may not do {action}; infra/dynamodb/ has the policies that berth needs"
    )
