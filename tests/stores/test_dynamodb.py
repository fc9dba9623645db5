"""What DynamoDB may answer, and what becomes of it: tried again, refused, unknown; and what is said of each.

On moto, which answers none of this by itself: the faults are put in front of it (motodynamo.py), in the form
AWS documents. What every store promises is in test_contract.py.
"""

import os
import re
import socket
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from berth.errors import BerthError, StoreFailedError, StoreUnavailableError
from berth.stores.dynamodb import DynamoDbStore
from berth.stores.dynamodb.client import Boto3Clients
from berth.stores.dynamodb.url import DynamoDbUrl
from tests.support.builders.ledgers import Time
from tests.support.builders.races import persistently
from tests.support.servers.dynamo import Table, cancelled, refused
from tests.support.servers.motoserver import PATIENT

SECRET = "s3cr3t"
COMMIT = "TransactWriteItems"
ALWAYS = 1000

BUSY = [
    refused("ThrottlingException"),
    refused("ProvisionedThroughputExceededException"),
    refused("RequestLimitExceeded"),
    cancelled("TransactionConflict", "None"),
    cancelled("None", "ThrottlingError"),
    cancelled("ProvisionedThroughputExceeded", "TransactionConflict"),
]


def code(answer: dict[str, Any]) -> str:
    reasons = answer["answer"].get("CancellationReasons", ())
    return "-".join(each["Code"] for each in reasons) or str(answer["answer"]["__type"]).partition("#")[2]


def said(kind: type[BerthError], call: Callable[..., object], *arguments: object) -> str:
    """What a call that must fail says: one line, without a secret."""
    with pytest.raises(BerthError) as caught:
        call(*arguments)
    assert type(caught.value) is kind, caught.value
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    return text


def impatient(table: Table) -> DynamoDbStore:
    """Its time is over after some tries; that of a single call is not."""
    time = Time()
    return table.store(time, sleep=lambda _: time.advance(PATIENT / 5))


# What may work at once is tried again


@pytest.mark.parametrize("answer", BUSY, ids=code)
def test_a_commit_that_was_turned_away_is_made_again(table: Table, answer: dict[str, Any]) -> None:
    store = table.store(Time())
    store.read(["a"])
    table.server.fault(table.name, COMMIT, **answer)
    assert store.commit({"a": b"1"}, {"a": None, "b": None})
    assert table.operations()[COMMIT] == 3  # with the one that began the ledger's life
    assert store.read(["a"])["a"].body == b"1"


@pytest.mark.parametrize("answer", BUSY, ids=code)
@pytest.mark.long
def test_one_that_is_always_turned_away_ends_within_its_time(table: Table, answer: dict[str, Any]) -> None:
    store = impatient(table)
    store.read(["a"])
    table.server.fault(table.name, COMMIT, ALWAYS, **answer)
    text = said(StoreUnavailableError, store.commit, {"a": b"1"}, {})
    assert text.startswith(f"berth's ledger in DynamoDB table {table.name} (eu-central-1, http://127.0.0.1:")
    assert "asked for more than it serves" in text or "busy (too many writers" in text
    table.server.mend(table.name)
    assert store.read(["a"]) == {}


@pytest.mark.parametrize("operation", ["TransactGetItems", "Query", "Scan", "BatchGetItem", "DescribeTable"])
@pytest.mark.parametrize("answer", [BUSY[0], refused("InternalServerError", status=500)], ids=code)
def test_every_call_that_reads_is_made_again(table: Table, operation: str, answer: dict[str, Any]) -> None:
    table.server.fault(table.name, operation, **answer)
    store = table.store(Time())
    cursor = store.changes(None).cursor
    assert store.commit({"a": b"1"}, {})
    assert dict(store.changes(cursor).documents) == {"a": b"1"}
    assert store.read(["a"])["a"].body == b"1"


def test_a_batch_that_is_answered_in_part_is_asked_for_the_rest(table: Table) -> None:
    store = table.store(Time())
    cursor = store.changes(None).cursor
    assert store.commit({f"{i}": b"1" for i in range(5)}, {})
    table.server.fault(table.name, "BatchGetItem", 2, unprocessed=True)
    assert dict(store.changes(cursor).documents) == {f"{i}": b"1" for i in range(5)}
    table.server.fault(table.name, "BatchGetItem", ALWAYS, unprocessed=True)
    assert store.commit({f"{i}": b"2" for i in range(50)}, {})
    assert "asked for more than it serves" in said(StoreUnavailableError, store.changes, cursor)


# What is known to have failed, and what is not


@pytest.mark.parametrize(
    "codes",
    [["ConditionalCheckFailed", "None"], ["TransactionConflict", "ConditionalCheckFailed"]],
    ids="-".join,
)
def test_a_clause_that_did_not_hold_is_a_conflict_at_once(table: Table, codes: list[str]) -> None:
    store = table.store(Time())
    store.read(["a"])
    table.server.fault(table.name, COMMIT, ALWAYS, **cancelled(*codes))
    assert not store.commit({"a": b"1"}, {"a": None, "b": None})
    assert table.operations()[COMMIT] == 2


@pytest.mark.parametrize(
    "fault",
    [
        {"lost": True},
        refused("InternalServerError", status=500),
        refused("ServiceUnavailable", status=503),
        refused("TransactionInProgressException"),
    ],
    ids=["answer lost", "500", "503", "in progress"],
)
def test_a_commit_whose_outcome_is_unknown_is_sent_again_as_the_same_one(
    table: Table, fault: dict[str, Any]
) -> None:
    """It expects that the document is not there: made a second time as another one it would be refused."""
    store = table.store(Time())
    store.read(["a"])
    table.server.fault(table.name, COMMIT, **fault)
    assert store.commit({"a": b"1"}, {"a": None})
    assert table.operations()[COMMIT] == 3


def test_a_commit_whose_answers_are_all_lost_is_of_unknown_outcome_and_was_made_once(table: Table) -> None:
    store = impatient(table)
    store.read(["a"])
    table.server.fault(table.name, COMMIT, ALWAYS, lost=True)
    text = said(StoreUnavailableError, store.commit, {"a": b"1"}, {"a": None})
    assert ", the connection was closed); if this lasts" in text
    table.server.mend(table.name)
    assert store.read(["a"])["a"].body == b"1"


@pytest.mark.parametrize("operation", [COMMIT, "TransactGetItems"])
def test_what_does_not_answer_is_given_up_after_its_time_and_not_sent_again(
    table: Table, operation: str
) -> None:
    table.store().read(["a"])
    store = table.store(seconds=0.5)
    persistently(lambda: store.read(["a"]))  # a busy machine may need more
    table.operations()
    table.server.fault(table.name, operation, ALWAYS, hang=True)
    text = said(
        StoreUnavailableError,
        lambda: store.commit({"a": b"1"}, {}) if operation == COMMIT else store.read(["a"]),
    )
    assert text.startswith(f"berth's ledger is unreachable ({table.url}, no answer within 0.5 s); if this ")
    assert table.operations()[operation] == 1


# What a person must mend


@pytest.mark.parametrize("why", ["ValidationError", "ItemCollectionSizeLimitExceeded"])
def test_a_change_that_aws_does_not_take_names_the_document_in_the_log_alone(
    table: Table, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    """A text with a node in it, which differs from pod to pod, makes kube-scheduler try again and again."""
    store = table.store(Time())
    store.read(["a"])
    table.server.fault(table.name, COMMIT, **cancelled("None", why, message="Item size is\ntoo much"))
    text = said(StoreFailedError, store.commit, {"a": b"1", "domain/ip/*": b"1"}, {})
    assert text.endswith(f") refused the change ({why}); the function's log says of which document")
    (logged,) = caplog.messages
    assert logged.endswith(f" refused the change of document 'domain/ip/*': {why}: Item size is too much")


def test_a_document_that_is_too_large_is_refused_before_it_is_sent(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    store = table.store()
    assert store.commit({"a": os.urandom(390 * 1024)}, {})
    table.operations()
    texts = {
        said(StoreFailedError, store.commit, {"b": b"1", key: os.urandom(size * 1024)}, {})
        for key, size in (("a", 400), ("c", 410))
    }
    assert [text.partition("): ")[2] for text in texts] == [
        "a domain holds more claims than an item takes (400 KB); use another store for this pool"
    ]
    assert [text.partition("): ")[2].partition(", and")[0][:24] for text in caplog.messages] == [
        "document 'a' would take ",
        "document 'c' would take ",
    ]
    many = {f"{i}": os.urandom(200 * 1024) for i in range(22)}
    assert said(StoreFailedError, store.commit, many, {}).endswith(
        "): more claims change at once than a transaction takes (4 MB); use another store for these pools"
    )
    assert "22 documents of 45" in caplog.messages[-1]
    assert table.operations() == {}


def test_a_right_that_is_missing_is_named(table: Table) -> None:
    store = table.store()
    table.server.deny(table.name, "dynamodb:GetItem")
    text = said(StoreFailedError, store.read, ["a"])
    assert text.endswith(
        ": its account may not do dynamodb:GetItem; infra/dynamodb/ has the policies that berth needs"
    )


@pytest.mark.parametrize("why", ["UnrecognizedClientException", "ExpiredTokenException"])
def test_credentials_that_aws_refuses_are_said_and_not_shown(table: Table, why: str) -> None:
    table.server.fault(table.name, "", **refused(why, "The security token is invalid."))
    text = said(StoreFailedError, table.store().read, ["a"])
    assert f": AWS refused the credentials ({why}); give them by AWS' own rules" in text


def test_a_signature_that_aws_refuses_may_be_the_clock_s_fault(table: Table) -> None:
    """A request is signed with this machine's time."""
    table.server.fault(table.name, "", **refused("InvalidSignatureException", "Signature expired: 2026"))
    text = said(StoreFailedError, table.store().read, ["a"])
    assert text.endswith("this machine's clock, which may be wrong by five minutes at most")


def test_what_aws_refuses_for_another_reason_is_quoted(table: Table) -> None:
    store = table.store()
    table.server.fault(table.name, "TransactGetItems", **refused("SomethingNewException"))
    text = said(StoreFailedError, store.read, ["a"])
    assert text.endswith(" refused transact_get_items: SomethingNewException: AWS said so")


@pytest.mark.parametrize("status", [200, 400, 404])
def test_what_is_no_dynamodb_is_said_to_be_looked_for_in_the_url(table: Table, status: int) -> None:
    table.server.fault(table.name, "DescribeTable", status=status, answer={})
    text = said(StoreFailedError, table.store().read, ["a"])
    assert re.search(r"\) refused describe_table: .*; check region= and endpoint= in BERTH_STORE$", text)


def elsewhere(location: DynamoDbUrl) -> DynamoDbStore:
    return DynamoDbStore(location, seconds=20.0, clients=Boto3Clients(boto3.session.Session))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No account and no region, as far as AWS' rules find any."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.mark.usefixtures("nowhere")
def test_without_credentials_it_is_said_how_to_give_them() -> None:
    store = elsewhere(DynamoDbUrl("berth", "eu-central-1", "http://127.0.0.1:9"))
    assert said(StoreFailedError, store.read, ["a"]).endswith(
        ": no AWS credentials were found; give them by AWS' own rules (AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, a profile, a role)"
    )


@pytest.mark.usefixtures("nowhere")
def test_without_a_region_it_is_said_where_to_name_it() -> None:
    text = said(StoreFailedError, elsewhere(DynamoDbUrl("berth")).read, ["a"])
    assert text == (
        "berth's ledger in DynamoDB table berth: no region is known; name it with ?region= in BERTH_STORE"
    )


@pytest.mark.usefixtures("nowhere")
def test_where_nobody_listens_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with socket.socket() as held:  # bound, it listens to nobody, and nobody else can
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        text = said(
            StoreUnavailableError,
            elsewhere(DynamoDbUrl("berth", "eu-central-1", f"http://127.0.0.1:{port}")).read,
            ["a"],
        )
    assert text == (
        "berth's ledger is unreachable "
        f"(dynamodb://berth?region=eu-central-1&endpoint=http://127.0.0.1:{port}, connection refused); "
        "if this lasts, check the network, AWS' status, and the region and endpoint= in BERTH_STORE"
    )
