"""status: what the ledger holds and who waits, as a page, as an API and as metrics; it only reads.
What it shows may be some seconds old (controller/board.py says how old)."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from msgspec.structs import replace

from berth.controller import ledger_metrics
from berth.controller.board import Board, Snapshot
from berth.errors import BadInputError
from berth.handlers.status_api import Api, usage_report
from berth.handlers.wiring import ledger_of
from berth.http import authentication
from berth.http.cloudevents import failed
from berth.http.endpoint import PATH, QUERY, Content, Endpoint, Reply, error_reply
from berth.http.scrape import scrape
from berth.kube.cluster import connect
from berth.ledger.holders import claim_rows, unit_rows
from berth.ledger.report import domain_notes, natural, pool_notes
from berth.metrics import UNCOUNTED, Metrics
from berth.page import html
from berth.page.parts import part
from berth.settings import Settings
from berth.stores import open_store

_FEW = 10  # rows of a table on the first page
_ROWS = 100  # rows of a table on a page of its own
_LONGEST = 253  # characters that are searched for: names of Kubernetes have no more
_TEXT = "text/html; charset=utf-8"
_HEADERS: Mapping[str, str] = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""What goes with each answer that is no page."""

Query = Mapping[str, str]


class Site:
    """The status function on one board. Raises nothing but BerthErrors."""

    def __init__(self, board: Board, function_page: Callable[[], bytes] = lambda: b"") -> None:
        """`function_page` returns the metrics of the function itself."""
        self._board, self._api, self._function_page = board, Api(board.usage), function_page
        self._pages: Mapping[str, Callable[[Snapshot, Query], bytes]] = {
            "/": self._pools,
            "/waiting": self._waiting,
            "/claims": self._claims,
            "/releases": self._releases,
            "/units": self._units,
            "/usage": self._usage,
        }

    def answer(self, headers: Mapping[str, str], _: Content) -> Reply:
        """Return the reply to a GET. Raises the store's errors, and BadInputError for a wrong query."""
        reply = self._answer(headers)
        return reply if reply.more else replace(reply, more=_HEADERS)

    def _answer(self, headers: Mapping[str, str]) -> Reply:
        path, query = headers.get(PATH, "/").rstrip("/") or "/", _query(headers.get(QUERY, ""))
        if path.startswith("/static/"):
            return _static(path.removeprefix("/static/"))
        if path == "/openapi.json":
            return Reply(200, self._api.document())
        if path == "/metrics":
            kind, body = self.metrics()
            return Reply(200, body, kind=kind)
        if path.startswith("/api/"):
            return self._api.answer(path, query, self._board.look())
        seen = self._board.look()
        if path in self._pages:
            return _page(200, self._pages[path](seen, query))
        if path.startswith("/pools/"):
            return self._pool(unquote(path.removeprefix("/pools/")), seen, query)
        return _missing(f"There is no page {path}.", seen)

    def metrics(self) -> tuple[str, bytes]:
        """Return a scrape's content type and body: the ledger, and the function itself. Raises the store's
        errors."""
        body = ledger_metrics.page(self._board.look()) + self._function_page()
        return "text/plain; version=0.0.4; charset=utf-8", body

    def _pools(self, seen: Snapshot, query: Query) -> bytes:
        search = query.get("q", "")
        pools = [(row, "; ".join(pool_notes(row))) for row in seen.pools if search in row.name]
        claims = sorted(claim_rows(seen.view), key=lambda row: row.since, reverse=True)
        mended = {} if seen.last is None else seen.last.mended
        return html.render(
            "pools",
            **_frame(seen, "/", search),
            pools=pools,
            waiting=() if seen.waiting is None else seen.waiting.pods[:_FEW],
            claims=claims[:_FEW],
            releases=seen.releases[:_FEW],
            mended=", ".join(f"{count} {kind}" for kind, count in mended.items() if count),
        )

    def _pool(self, name: str, seen: Snapshot, query: Query) -> Reply:
        row = next((row for row in seen.pools if row.name == name), None)
        if row is None:
            return _missing(f"There is no pool {name}.", seen)
        search = query.get("q", "")
        domains = [one for one in row.domains if search in one.name]
        domains.sort(key=lambda one: (one.free - one.over, natural(one.name)))
        here = f"/pools/{quote(name, safe='')}"
        page = part([(one, "; ".join(domain_notes(one))) for one in domains], query, here, _ROWS)
        waits = () if seen.waiting is None else seen.waiting.pods
        shown = {
            **_frame(seen, "", search, here),
            "row": row,
            "note": "; ".join(pool_notes(row)),
            "page": page,
            "waiting": [one for one in waits if one.pool == name][:_ROWS],
        }
        return _page(200, html.render("pool", **shown))

    def _waiting(self, seen: Snapshot, query: Query) -> bytes:
        search, waits = query.get("q", ""), seen.waiting
        rows = [
            row
            for row in (() if waits is None else waits.pods)
            if search in f"{row.namespace}/{row.pod}" or search in row.pool or search in row.why
        ]
        return html.render(
            "waiting",
            **_frame(seen, "/waiting", search, "/waiting"),
            page=part(rows, query, "/waiting", _ROWS),
            summary="" if waits is None else str(waits.summary),
            problems=() if waits is None else (*waits.problems, *waits.remarks),
        )

    def _claims(self, seen: Snapshot, query: Query) -> bytes:
        search = query.get("q", "")
        rows = [
            row
            for row in claim_rows(seen.view)
            if search in f"{row.namespace}/{row.pod}"
            or search in (row.pool, row.domain, row.node, *row.units)
        ]
        rows.sort(key=lambda row: row.since, reverse=True)
        frame = _frame(seen, "/claims", search, "/claims")
        return html.render("claims", **frame, page=part(rows, query, "/claims", _ROWS))

    def _releases(self, seen: Snapshot, query: Query) -> bytes:
        search = query.get("q", "")
        rows = [
            row
            for row in seen.releases
            if search in f"{row.namespace}/{row.pod}" or search in (row.pool, row.domain, row.node)
        ]
        frame = _frame(seen, "/releases", search, "/releases")
        return html.render("releases", **frame, page=part(rows, query, "/releases", _ROWS))

    def _usage(self, seen: Snapshot, query: Query) -> bytes:
        search, pages = query.get("q", ""), self._board.usage()
        pools = usage_report(pages, query, seen.at, "pool")
        namespaces = usage_report(pages, query, seen.at, "namespace")
        return html.render(
            "usage",
            **_frame(seen, "/usage", search, "/usage"),
            report=pools,
            pools=[row for row in pools.rows if row.counted_hours and search in row.pool],
            page=part(
                [row for row in namespaces.rows if search in row.pool or search in (row.namespace or "")],
                query,
                "/usage",
                _ROWS,
            ),
        )

    def _units(self, seen: Snapshot, query: Query) -> bytes:
        search, pool = query.get("q", ""), query.get("pool", "")
        rows = [
            row
            for row in unit_rows(seen.view, seen.at, pool or None)
            if search in row.unit or search in row.holder or search in (row.domain, row.node, row.claim)
        ]
        frame = _frame(seen, "/units", search, "/units")
        return html.render("units", **frame, pool=pool, page=part(rows, query, "/units", _ROWS))


def _frame(seen: Snapshot, here: str, search: str, search_at: str = "/") -> dict[str, Any]:
    """Return what each page shows around its content."""
    return {"seen": seen, "here": here, "query": search, "search_at": search_at}


def _query(text: str) -> Query:
    """Return the query's first value of each name. Raises BadInputError where it can't be one of ours."""
    try:
        values = parse_qs(text, keep_blank_values=True, max_num_fields=10, errors="replace")
    except ValueError as error:
        raise BadInputError("the query has more than 10 fields") from error
    query = {name: given[0] for name, given in values.items()}
    if any(len(value) > _LONGEST for value in query.values()):
        raise BadInputError(f"a value in the query is longer than {_LONGEST} characters")
    return query


def _page(status: int, body: bytes) -> Reply:
    return Reply(status, body, kind=_TEXT, more=html.HEADERS)


def _missing(why: str, seen: Snapshot) -> Reply:
    return _page(404, html.render("missing", **_frame(seen, "", ""), why=why))


def _static(name: str) -> Reply:
    if name not in html.STATIC:
        return error_reply(404, f"there is no file {name[:100]}")
    more = {**html.HEADERS, "Cache-Control": "max-age=300"}
    return Reply(200, html.static(name), kind=html.STATIC[name], more=more)


def endpoint(settings: Settings, *, metrics: Metrics = UNCOUNTED) -> Endpoint:
    metrics = metrics.of("status")
    cluster = connect()
    store = open_store(settings.store, reads_only=True)
    ledger = ledger_of(cluster, settings, store, metrics, while_closed=True)
    board = Board(ledger, cluster, settings.scheduler_names)
    html.compile_all()
    site = Site(board, lambda: metrics.page()[1])
    return Endpoint(
        name="status",
        answer=site.answer,
        failed=failed,
        health=ledger.check,
        body_limit=0,
        authenticator=authentication.authenticator(settings.access),
        scrape=scrape("status", site.metrics, settings),
        reads=True,
    )
