"""A document as DynamoDB's item, and a commit as one transaction of named clauses.

    reader A  ── read d@1 ──────── commit(d, expected d@1): as_read ✓ → d@2
    reader B  ───── read d@1 ───────────── commit(d, expected d@1): as_read ✗ → decide again
    a loss    ──────────────────── epoch gone ──── commit(…, expected epoch@7): sealed ✗ → decide again

DynamoDB refuses a transaction that meets another one on any item, even if both only check it. Every commit
expects the epoch and the cluster: if it checked those documents, all commits of a cluster would collide. So
their versions are in SEALS seals as well: a commit checks any one seal, and a commit that changes such a
document changes all seals in the same transaction.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from berth.errors import StoreFailedError
from berth.stores.base import EPOCH, Document, Version
from berth.stores.compression import unpack

KEY, VERSION, BODY, WRITTEN, FEED, EXPIRES, TABLE = (
    "key", "version", "body", "written", "feed", "expires", "table",
)  # fmt: skip
INDEX, FEED_NAME = "feed", "f"

SEALED = (EPOCH, "cluster")  # what every commit expects; a name that is missing here only costs time
SEALS = 8
GENERATION = "\0life"  # the item that says for which table this generation began; no document's key
LAST = 9_999_999_999_999  # when it was written, for the index: each read of the feed ends with it

Item = dict[str, Any]


class Stamp(NamedTuple):
    """What a commit writes into each of its items: `written` in milliseconds, `expires` in seconds."""

    version: str
    written: int
    expires: int


# Items


def name(key: str) -> Item:
    return {KEY: {"S": key}}


def present(key: str, body: bytes, stamp: Stamp) -> Item:
    return {**_marks(key, stamp), BODY: {"B": body}}


def gone(key: str, stamp: Stamp) -> Item:
    """Return what is left of a deleted document, for readers that are behind; DynamoDB deletes it later."""
    return {**_marks(key, stamp), EXPIRES: {"N": str(stamp.expires)}}


def _marks(key: str, stamp: Stamp) -> Item:
    version, written = {"S": stamp.version}, {"N": str(stamp.written)}
    return {**name(key), VERSION: version, WRITTEN: written, FEED: {"S": FEED_NAME}}


def document(item: Item) -> Document | None:
    """Return the document in an item; None for one that was deleted. Raises StoreFailedError."""
    body = item.get(BODY)
    try:
        return None if body is None else Document(item[VERSION]["S"], unpack(body["B"]))
    except ValueError as error:
        raise StoreFailedError(f"berth's ledger in DynamoDB holds what berth never wrote: {error}") from error


# Clauses: what must be so


def not_there() -> Item:
    """The document does not exist: there is no item, or only what is left of a deleted one."""
    return _absent(BODY)


def not_begun() -> Item:
    """No generation has begun in this table."""
    return _absent(VERSION)


def _absent(attribute: str) -> Item:
    names = {f"#{attribute}": attribute}
    return {"ConditionExpression": f"attribute_not_exists(#{attribute})", "ExpressionAttributeNames": names}


def as_read(version: Version) -> Item:
    """The document was not written since: no version comes twice."""
    return {
        "ConditionExpression": "#version = :version",
        "ExpressionAttributeNames": {"#version": VERSION},
        "ExpressionAttributeValues": {":version": {"S": version}},
    }


def expecting(version: Version | None) -> Item:
    return not_there() if version is None else as_read(version)


def sealed(expected: Mapping[str, Version | None]) -> Item:
    """The seal has these versions of these documents; a document that does not exist has none."""
    there = {key: version for key, version in expected.items() if version is not None}
    terms = [f"#{key} = :{key}" if key in there else f"attribute_not_exists(#{key})" for key in expected]
    values = {"ExpressionAttributeValues": {f":{key}": {"S": there[key]} for key in there}}
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": {f"#{key}": key for key in expected},
        **(values if there else {}),
    }


# Transactions


def transaction(
    table: str,
    writes: Mapping[str, bytes | None],
    expected: Mapping[str, Version | None],
    stamp: Stamp,
    seal: int,
) -> list[Item]:
    """Return all writes (of packed bodies) if everything is as expected; `seal` is the one to check."""
    rewritten = {key: writes[key] for key in SEALED if key in writes}
    by_seal = {} if rewritten else {key: expected[key] for key in SEALED if key in expected}
    items = [
        put(
            table,
            gone(key, stamp) if body is None else present(key, body, stamp),
            expecting(expected[key]) if key in expected else {},
        )
        for key, body in writes.items()
    ]
    if by_seal:
        items.append(check(table, _seal(seal), sealed(by_seal)))
    items += [
        check(table, key, expecting(version))
        for key, version in expected.items()
        if key not in writes and key not in by_seal
    ]
    versions = {key: None if body is None else stamp.version for key, body in rewritten.items()}
    return items + (new_seals(table, versions) if rewritten else [])


def put(table: str, item: Item, clause: Item) -> Item:
    return {"Put": {"TableName": table, "Item": item, **clause}}


def check(table: str, key: str, clause: Item) -> Item:
    return {"ConditionCheck": {"TableName": table, "Key": name(key), **clause}}


def new_seals(table: str, versions: Mapping[str, Version | None]) -> list[Item]:
    """Return updates that give every seal these versions, and leave those of other documents as they are."""
    there = {key: version for key, version in versions.items() if version is not None}
    changes = [("SET ", [f"#{key} = :{key}" for key in there])]
    changes += [("REMOVE ", [f"#{key}" for key in versions if key not in there])]
    update = {
        "UpdateExpression": " ".join(verb + ", ".join(terms) for verb, terms in changes if terms),
        "ExpressionAttributeNames": {f"#{key}": key for key in versions},
    }
    if there:
        update["ExpressionAttributeValues"] = {f":{key}": {"S": there[key]} for key in there}
    return [{"Update": {"TableName": table, "Key": name(_seal(i)), **update}} for i in range(SEALS)]


def _seal(number: int) -> str:
    return f"\0seal/{number}"


def beginning(
    table: str, of: str, clause: Item, versions: Mapping[str, Version | None], stamp: Stamp
) -> list[Item]:
    """Return the begin of a generation for the table of this id: no epoch, and seals of what is there."""
    mark = {**_marks(GENERATION, stamp._replace(written=LAST)), TABLE: {"S": of}}
    others = {key: version for key, version in versions.items() if key != EPOCH}
    return [
        put(table, mark, clause),
        put(table, name(EPOCH), {}),  # no cursor goes on in a new generation, so the feed need not show it
        *(check(table, key, expecting(version)) for key, version in others.items()),
        *new_seals(table, {**others, EPOCH: None}),
    ]


def gets(table: str, keys: Iterable[str]) -> list[Item]:
    return [{"Get": {"TableName": table, "Key": name(key)}} for key in keys]
