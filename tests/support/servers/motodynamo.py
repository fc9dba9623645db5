"""moto's DynamoDB, one request at a time, with what it lacks (see motoserver.py) and faults on demand.

moto's own handler is called without its web framework, whose answers cost ten times as much as the work.
"""

import copy
import json
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.dynamodb import models, responses
from moto.dynamodb.models.table import Table
from werkzeug.exceptions import HTTPException

ACCOUNT, TOKENS = "123456789012", 5_000
Body = dict[str, Any]


@dataclass
class Fault:
    """How the next `times` requests of an operation end: with this answer; `lost`: done, and no answer;
    `hang`: neither done nor answered until it is mended; `unprocessed`: a batch is answered in part."""

    operation: str
    times: int
    status: int = 400
    answer: Body | None = None
    lost: bool = False
    hang: bool = False
    unprocessed: bool = False


@dataclass
class Watched:
    """What is known and wanted of one table."""

    faults: list[Fault] = field(default_factory=list)
    mended: threading.Event = field(default_factory=threading.Event)
    asked: Counter[str] = field(default_factory=Counter)
    actions: set[str] = field(default_factory=set)
    denied: frozenset[str] = frozenset()
    looks: int = 0
    old_index: dict[Any, Any] = field(default_factory=dict)
    collides: bool = False
    under_way: Counter[str] = field(default_factory=Counter)
    backup: dict[Any, Any] = field(default_factory=dict)
    described: Body = field(default_factory=dict)


class RefusedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, body: Body) -> None:
        super().__init__(body)
        self.status, self.body = status, body


class LostError(Exception):
    """No answer at all."""


def error(code: str, message: str, status: int = 400, **more: Any) -> RefusedError:
    return RefusedError(
        status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "Message": message, **more}
    )


# What moto lacks


class _Copying:
    """moto copies the whole table, deep, for each item of a transaction, to be able to go back. Documents
    are only ever replaced, so their items can be shared; the few that are updated in place are copied."""

    @staticmethod
    def deepcopy(what: Any, memo: Any = None) -> Any:
        if not isinstance(what, Table):
            return copy.deepcopy(what, memo)
        twin = copy.copy(what)
        twin.items = copy.copy(what.items)
        for key, item in what.items.items():
            if "feed" not in getattr(item, "attrs", {"feed": 0}):
                twin.items[key] = copy.deepcopy(item)
        return twin


setattr(models, "copy", _Copying)  # noqa: B010 - mypy knows the module's name as another one
setattr(responses, "TRANSACTION_MAX_ITEMS", 100)  # noqa: B010


class Dynamo:
    """The tables. All that touches them holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.watched: dict[str, Watched] = {}
        self._tokens: OrderedDict[str, bytes] = OrderedDict()
        self._ids = 0

    def watch(self, table: str) -> Watched:
        return self.watched.setdefault(table, Watched())

    def answer(self, operation: str, body: Body, raw: bytes) -> Body:
        """Raises RefusedError and LostError."""
        table = _table(operation, body)
        watched, items = self.watch(table), _items(operation, body)
        fault = self._struck(watched, operation, items)
        self._enter(watched, items)
        try:
            if watched.collides:
                time.sleep(0.002)  # as long as DynamoDB might take to prepare
            with self.lock:
                answer = self._done(operation, body, raw, watched, fault)
        finally:
            self._leave(watched, items)
        if fault is not None and fault.lost:
            raise LostError
        return answer

    def _struck(self, watched: Watched, operation: str, items: list[str]) -> Fault | None:
        with self.lock:
            watched.asked[operation] += 1
            actions = _actions(operation, items)
            watched.actions |= actions
            fault = next((each for each in watched.faults if each.operation in ("", operation)), None)
            if fault is not None:
                fault.times -= 1
                if fault.times <= 0:
                    watched.faults.remove(fault)
        if denied := sorted(actions & watched.denied):
            raise error(
                "AccessDeniedException",
                f"User: arn:aws:iam::{ACCOUNT}:user/berth is not authorized to perform: {denied[0]} on "
                f"resource: arn:aws:dynamodb:eu-central-1:{ACCOUNT}:table/x because no identity-based "
                f"policy allows the {denied[0]} action",
            )
        if fault is not None and fault.hang:
            watched.mended.wait(60)
            raise LostError
        if fault is not None and fault.answer is not None:
            raise RefusedError(fault.status, fault.answer)
        return fault

    def _enter(self, watched: Watched, items: list[str]) -> None:
        keys = [each.partition(" ")[2] for each in items]
        with self.lock:
            met = [watched.collides and watched.under_way[key] > 0 for key in keys]
            if not any(met):
                watched.under_way.update(keys)
                return
        codes = ["TransactionConflict" if each else "None" for each in met]
        said = "Transaction is ongoing for the item"
        raise error(
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons {codes}",
            CancellationReasons=[{"Code": c} if c == "None" else {"Code": c, "Message": said} for c in codes],
        )

    def _leave(self, watched: Watched, items: list[str]) -> None:
        with self.lock:
            watched.under_way.subtract([each.partition(" ")[2] for each in items])

    def _done(self, operation: str, body: Body, raw: bytes, watched: Watched, fault: Fault | None) -> Body:
        token = body.get("ClientRequestToken") if operation == "TransactWriteItems" else None
        if token is not None and token in self._tokens:
            if self._tokens[token] != raw:
                raise error("IdempotentParameterMismatchException", "the token was used for another request")
            return {}
        left: list[Any] = []
        if fault is not None and fault.unprocessed:
            ((name, asked),) = body["RequestItems"].items()
            left, asked["Keys"] = asked["Keys"][1:], asked["Keys"][:1]
        answer = self._looked(body, watched) if operation == "Query" else self.call(operation, body)
        if left:
            answer["UnprocessedKeys"] = {name: {**asked, "Keys": left}}
        if token is not None:
            self._tokens[token] = raw
            while len(self._tokens) > TOKENS:
                self._tokens.popitem(last=False)
        return answer

    def _looked(self, body: Body, watched: Watched) -> Body:
        """The index, as it is or as it was when it began to lag. moto goes through all items at length:
        it is shown only those that can be meant."""
        table = self.tables().get(body["TableName"])
        if table is None:
            return self.call("Query", body)
        now, seen = table.items, watched.old_index if watched.looks > 0 else table.items
        watched.looks -= 1
        (start,) = (int(each["N"]) for each in body["ExpressionAttributeValues"].values() if "N" in each)
        table.items = copy.copy(now)
        table.items.clear()
        table.items.update({key: item for key, item in seen.items() if _written(item) >= start})
        try:
            return self.call("Query", body)
        finally:
            table.items = now

    def call(self, operation: str, body: Body) -> Body:
        """moto's answer; the caller holds the lock."""
        handler = responses.DynamoHandler()
        handler.current_account, handler.region = ACCOUNT, "eu-central-1"
        handler.body = handler.params = body
        method: Callable[[], ActionResult] = getattr(
            handler, re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
        )
        try:
            found = method().result
        except JsonRESTError as raised:
            raise RefusedError(int(raised.code or 400), json.loads(str(raised.description))) from raised
        except HTTPException as raised:
            raise RefusedError(int(raised.code or 400), json.loads(str(raised.description))) from raised
        answer: Body = found if isinstance(found, dict) else {}
        for part in ("Table", "TableDescription"):
            if part in answer and operation in ("DescribeTable", "CreateTable"):
                name = answer[part]["TableName"]
                answer[part] |= {"TableId": self._id(name), **self.watch(name).described}
        return answer

    def tables(self) -> dict[str, Any]:
        found: dict[str, Any] = models.dynamodb_backends[ACCOUNT]["eu-central-1"].tables
        return found

    def _id(self, name: str) -> str:
        table = self.tables()[name]
        if not hasattr(table, "berth_id"):
            self._ids += 1
            table.berth_id = f"00000000-0000-0000-0000-{self._ids:012}"
        return str(table.berth_id)


def _written(item: Any) -> int:
    found = item.attrs.get("written")
    return -1 if found is None else int(found.value)


def _table(operation: str, body: Body) -> str:
    if operation == "BatchGetItem":
        return str(next(iter(body["RequestItems"])))
    if operation.startswith("Transact"):
        return str(next(iter(body["TransactItems"][0].values()))["TableName"])
    return str(body.get("TableName", ""))


def _items(operation: str, body: Body) -> list[str]:
    """What a transaction does, and to which item: "Put epoch"."""
    if not operation.startswith("Transact"):
        return []
    pairs = [next(iter(each.items())) for each in body["TransactItems"]]
    return [f"{verb} {(part.get('Key') or part['Item'])['key']['S']}" for verb, part in pairs]


def _actions(operation: str, items: list[str]) -> set[str]:
    """The actions of IAM that a request needs; a transaction those of its parts."""
    if not items:
        return {f"dynamodb:{operation}"}
    verbs = {each.partition(" ")[0] for each in items}
    return {f"dynamodb:{'ConditionCheck' if verb == 'ConditionCheck' else verb}Item" for verb in verbs}
