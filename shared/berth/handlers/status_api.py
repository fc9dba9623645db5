"""status's API: the same as the commands print with -o json, in parts, and the OpenAPI document of it.
It only reads."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import msgspec

from berth import __version__
from berth.controller.board import Snapshot
from berth.controller.waiting import WaitingRow
from berth.errors import BadInputError
from berth.http.endpoint import Reply, error_reply
from berth.ledger.holders import ClaimRow, UnitRow, claim_rows, unit_rows
from berth.ledger.last_reconcile import LastReconcile
from berth.ledger.releases import Release
from berth.ledger.report import PoolRow
from berth.ledger.showback import BYS, By, Pages, UsageReport, usage_of

MOST, DEFAULT = 5000, 500
"""Items of a list that one answer has at most, and without a `limit`."""

_BASE = "/api/v1"
Query = Mapping[str, str]


class LedgerAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How all is: `closed` says why nothing is given out of the ledger, `unknown` why it is not known who
    waits; both are empty as a rule."""

    at: float
    headline: str
    closed: str
    unknown: str
    last_reconcile: LastReconcile | None


class _List(NamedTuple):
    """A list of the API: what it has, one item's shape, and what may be chosen."""

    summary: str
    shape: type
    items: Callable[[Snapshot, Query], Sequence[Any]]
    choices: tuple[str, ...] = ()


def _pools(seen: Snapshot, _: Query) -> Sequence[PoolRow]:
    return [msgspec.structs.replace(row, domains=()) for row in seen.pools]


def _waiting(seen: Snapshot, query: Query) -> Sequence[WaitingRow]:
    rows = () if seen.waiting is None else seen.waiting.pods
    pool, namespace = query.get("pool"), query.get("namespace")
    return [row for row in rows if pool in (None, row.pool) and namespace in (None, row.namespace)]


def _claims(seen: Snapshot, query: Query) -> Sequence[ClaimRow]:
    return claim_rows(seen.view, query.get("pool"), query.get("namespace"))


def _units(seen: Snapshot, query: Query) -> Sequence[UnitRow]:
    return unit_rows(seen.view, seen.at, query.get("pool"))


def _releases(seen: Snapshot, query: Query) -> Sequence[Release]:
    pool, namespace = query.get("pool"), query.get("namespace")
    return [row for row in seen.releases if pool in (None, row.pool) and namespace in (None, row.namespace)]


LISTS: Mapping[str, _List] = {
    "pools": _List("All pools, without their domains", PoolRow, _pools),
    "waiting": _List("Who waits, and the place in line", WaitingRow, _waiting, ("pool", "namespace")),
    "claims": _List("Who holds what", ClaimRow, _claims, ("pool", "namespace")),
    "releases": _List("The latest releases, the last one first", Release, _releases, ("pool", "namespace")),
    "units": _List("Each unit that has a name, and its holder", UnitRow, _units, ("pool",)),
}


def usage_report(pages: Pages, query: Query, at: float, by: By) -> UsageReport:
    """Return use from the query's `since` to its `until`, of its `pool`; of this month where it says nothing.
    Raises BadInputError."""
    today = datetime.fromtimestamp(at, UTC).date()
    since, last = _date(query, "since", today.replace(day=1)), _date(query, "until", today)
    if since > last:
        raise BadInputError(f"since is {since}, which is after {last}, the last day")
    return usage_of(pages, since, last, by, query.get("pool"))


def _by(query: Query) -> By:
    text = query.get("by", "pool")
    for by in BYS:
        if by == text:
            return by
    raise BadInputError(f"by is {text[:20]!r}: it should be one of {', '.join(BYS)}")


def _date(query: Query, name: str, default: date) -> date:
    text = query.get(name)
    try:
        return default if text is None else date.fromisoformat(text)
    except ValueError:
        raise BadInputError(f"{name} is {text!r}: it should be a date, such as {default}") from None


class Api:
    """Answers GETs below /api/v1; `usage` returns the journal's pages."""

    def __init__(self, usage: Callable[[], Pages]) -> None:
        self._usage = usage

    def answer(self, path: str, query: Query, seen: Snapshot) -> Reply:
        """Return the reply. Raises BadInputError for a wrong query."""
        if path == _BASE:
            ledger = LedgerAnswer(
                at=seen.at,
                headline=seen.headline,
                closed=seen.closed,
                unknown=seen.unknown,
                last_reconcile=seen.last,
            )
            return Reply(200, msgspec.json.encode(ledger))
        name = path.removeprefix(f"{_BASE}/")
        if name in LISTS:
            return _some(LISTS[name], query, seen)
        if name == "usage":
            return Reply(200, msgspec.json.encode(usage_report(self._usage(), query, seen.at, _by(query))))
        if name.startswith("pools/"):
            pool = next((row for row in seen.pools if row.name == name.removeprefix("pools/")), None)
            return (
                error_reply(404, f"there is no {name[:300]}")
                if pool is None
                else Reply(200, msgspec.json.encode(pool))
            )
        return error_reply(404, f"there is no {path[:300]}: GET /openapi.json tells what there is")

    def document(self) -> bytes:
        """Return the OpenAPI document."""
        shapes = [LedgerAnswer, UsageReport, *(one.shape for one in LISTS.values())]
        _, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
        error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        ledger = {"get": _operation("How all is", "ledger", [], _reference("LedgerAnswer"))}
        pool = _operation(
            "One pool with its domains", "pool", [_parameter("name", "path")], _reference("PoolRow")
        )
        chosen = [_parameter(name, "query") for name in ("since", "until", "by", "pool")]
        usage = _operation(
            "Unit-hours in use and waited for, by pool or namespace",
            "usage",
            chosen,
            _reference("UsageReport"),
        )
        paths = {
            _BASE: ledger,
            f"{_BASE}/pools/{{name}}": {"get": pool},
            f"{_BASE}/usage": {"get": usage},
        }
        for name, one in LISTS.items():
            parameters = [_parameter(choice, "query") for choice in (*one.choices, "limit", "continue")]
            paths[f"{_BASE}/{name}"] = {"get": _operation(one.summary, name, parameters, _list_of(one.shape))}
        return msgspec.json.encode(
            {
                "openapi": "3.1.0",
                "info": {"title": "Berth's status", "version": __version__},
                "paths": paths,
                "components": {"schemas": {**components, "Error": error}},
            }
        )


def _some(one: _List, query: Query, seen: Snapshot) -> Reply:
    """Return as many items as are asked for, from where the part before ended."""
    most = min(MOST, _number(query, "limit", DEFAULT))
    start = _number(query, "continue", 0)
    items = one.items(seen, query)
    end = start + most
    return Reply(
        200,
        msgspec.json.encode(
            {"items": items[start:end], "total": len(items), "continue": str(end) if end < len(items) else ""}
        ),
    )


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name) or str(default)
    if not (text.isascii() and text.isdecimal()) or len(text) > len("1000000000"):
        raise BadInputError(f"{name} is {text[:20]!r}: it should be a number, such as {default}")
    return int(text)


def _reference(name: str) -> Mapping[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(shape: type) -> Mapping[str, object]:
    items = {"type": "array", "items": _reference(shape.__name__)}
    properties = {"items": items, "total": {"type": "integer"}, "continue": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _parameter(name: str, where: str) -> Mapping[str, object]:
    kind = "integer" if name == "limit" else "string"
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": kind}}


def _operation(
    summary: str, name: str, parameters: Sequence[Mapping[str, object]], shape: Mapping[str, object]
) -> Mapping[str, object]:
    def answer(description: str, schema: Mapping[str, object]) -> Mapping[str, object]:
        return {"description": description, "content": {"application/json": {"schema": schema}}}

    return {
        "summary": summary,
        "operationId": f"get_{name}",
        "parameters": parameters,
        "responses": {
            "200": answer("What there is", shape),
            "400": answer("The query is wrong", _reference("Error")),
            "401": answer("Who may not look", _reference("Error")),
            "404": answer("There is no such thing", _reference("Error")),
            "503": answer("The store does not answer", _reference("Error")),
        },
    }
