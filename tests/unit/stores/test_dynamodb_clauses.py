"""The DynamoDB store's parts that need no server: its URL and its clauses."""

import subprocess
import sys
from itertools import combinations

import pytest

from berth.errors import SettingsError
from berth.stores import open_store, redacted
from berth.stores.base import EPOCH, LIMIT, chunks
from berth.stores.dynamodb import transaction
from berth.stores.dynamodb.transaction import SEALS, Stamp
from berth.stores.dynamodb.url import DynamoDbUrl, parse

SECRET = "s3cr3t"
STAMP = Stamp("v2", 1000, 2)
COMMON = {EPOCH: "e1", "cluster": "c1"}


# The URL


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("dynamodb://berth", DynamoDbUrl("berth")),
        ("dynamodb://Berth_2.x-y?region=eu-central-1", DynamoDbUrl("Berth_2.x-y", "eu-central-1")),
        (
            "dynamodb://berth?region=local&endpoint=http://127.0.0.1:8000",
            DynamoDbUrl("berth", "local", "http://127.0.0.1:8000"),
        ),
        ("dynamodb://berth?endpoint=https%3A%2F%2Fhost%2F", DynamoDbUrl("berth", None, "https://host")),
        ("dynamodb://berth?timeout=3", DynamoDbUrl("berth", seconds=3.0)),
    ],
)
def test_a_dynamodb_url_names_a_table_and_where_it_is(url: str, location: DynamoDbUrl) -> None:
    assert parse(url) == location
    assert parse(location.printable) == location


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("dynamodb://", "the form is dynamodb://TABLE[?region=REGION][&endpoint=URL][&timeout=SECONDS]"),
        ("dynamodb://ab", "a table's name has 3 to 255 letters"),
        ("dynamodb://berth/x", "a table's name has"),
        ("dynamodb://berth#x", "the form is"),
        (f"dynamodb://AKIA:{SECRET}@berth", "credentials have no place in it"),
        (f"dynamodb://berth?endpoint=http://me:{SECRET}@host", "credentials have no place in it"),
        ("dynamodb://berth?region=", "region= should be a region's name, such as eu-central-1"),
        ("dynamodb://berth?region=EU", "region=EU should be"),
        ("dynamodb://berth?endpoint=host:8000", "endpoint=host:8000 should be http://HOST[:PORT]"),
        ("dynamodb://berth?endpoint=http://host/x", "should be http://HOST[:PORT]"),
        ("dynamodb://berth?endpoint=http://host:x", "should be http://HOST[:PORT]"),
        ("dynamodb://berth?timeout=0", "timeout=0 should be a whole number from 1 to 3 seconds"),
        ("dynamodb://berth?timeout=x", "timeout=x should be"),
        ("dynamodb://berth?timeout=4", "timeout=4 should be a whole number from 1 to 3 seconds, since kube-"),
        ("dynamodb://berth?table=x", "there is no option 'table'; there are region, endpoint and timeout"),
        ("dynamodb://berth?region=a&region=b", "an option is given twice"),
        ("dynamodb://berth?region", "its options can't be read: they are NAME=VALUE, joined by &"),
    ],
)
def test_a_dynamodb_url_that_can_t_be_meant_is_refused_without_a_secret(url: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_store(url)
    text = str(caught.value)
    assert text.startswith("BERTH_STORE, a DynamoDB URL: ")
    assert said in text
    assert SECRET not in text
    assert SECRET not in redacted(url)


def test_without_the_boto3_package_the_url_is_refused_with_what_to_install() -> None:
    script = (
        "import sys; sys.modules['boto3'] = None\n"
        "from berth.stores import open_store\n"
        "from berth.errors import SettingsError\n"
        "try: open_store('dynamodb://berth?region=eu-central-1')\n"
        "except SettingsError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == (
        "BERTH_STORE: dynamodb://berth?region=eu-central-1 needs the package boto3: "
        "pip install 'berth-scheduler[dynamodb]'\n"
    )


# Clauses


def touched(items: list[transaction.Item]) -> list[str]:
    """The keys of the items that a transaction names."""
    parts = [next(iter(each.values())) for each in items]
    return [(part.get("Key") or part["Item"])["key"]["S"] for part in parts]


def commit(key: str, seal: int, **expected: str | None) -> list[transaction.Item]:
    return transaction.transaction("berth", {key: b"1"}, {**COMMON, **expected}, STAMP, seal)


def test_commits_of_different_documents_meet_on_no_item_unless_they_check_the_same_seal() -> None:
    """DynamoDB cancels transactions that meet, be it on an item that both only check."""
    each = [set(touched(commit(f"domain/ip/{seal}", seal))) for seal in range(SEALS)]
    assert all(one.isdisjoint(other) for one, other in combinations(each, 2))
    assert set(touched(commit("domain/ip/a", 3))) & set(touched(commit("domain/ip/b", 3))) == {"\0seal/3"}


def test_a_commit_checks_the_epoch_and_the_cluster_in_one_seal() -> None:
    put, check = commit("domain/ip/n1", 2, **{"domain/ip/n1": "v1"})
    assert put["Put"]["ConditionExpression"] == "#version = :version"
    assert check["ConditionCheck"]["ConditionExpression"] == "#epoch = :epoch AND #cluster = :cluster"
    values = check["ConditionCheck"]["ExpressionAttributeValues"]
    assert values == {":epoch": {"S": "e1"}, ":cluster": {"S": "c1"}}


def test_a_change_of_the_epoch_meets_every_commit() -> None:
    changed = touched(transaction.transaction("berth", {EPOCH: None}, COMMON, STAMP, 0))
    assert all(set(changed) & set(touched(commit("a", seal))) for seal in range(SEALS))


@pytest.mark.parametrize("keys", [[EPOCH], ["cluster"], [EPOCH, "cluster"], ["a"], ["a", EPOCH]])
def test_no_transaction_names_an_item_twice(keys: list[str]) -> None:
    """DynamoDB refuses that."""
    expected = {**COMMON, "a": "v1", "b": None}
    found = touched(transaction.transaction("berth", dict.fromkeys(keys, b"1"), expected, STAMP, 1))
    assert len(set(found)) == len(found)


def test_a_batch_with_all_that_is_expected_beside_it_fits_into_one_transaction() -> None:
    batch = max(chunks([f"domain/ip/{i}" for i in range(300)]), key=len)
    expected = {**COMMON, **dict.fromkeys(batch)}
    items = transaction.transaction("berth", dict.fromkeys(batch, b"1"), expected, STAMP, 1)
    assert len(items) <= LIMIT
