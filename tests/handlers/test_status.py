"""functions/status: what its pages, its API and its metrics say of a ledger and of who waits.
It is asked as the server asks it."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec.structs import replace
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from berth.controller.board import FRESH_SECONDS, Board
from berth.controller.ledger_metrics import GAUGES, MOST_DOMAINS, MOST_DOMAINS_OF_A_POOL, told_apart
from berth.controller.usage import SETTLED_SECONDS
from berth.handlers.status import Site
from berth.http.cloudevents import failed
from berth.http.endpoint import Authenticator, Endpoint, Reply, respond
from berth.ledger.report import DomainRow, PoolRow
from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, staged

VOID = {"meta", "link", "input", "br"}


class Page(HTMLParser):
    """A page's text, links and tables; it must be well nested."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(body.decode())
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        if tag == "a":
            self.links.append(dict(attrs)["href"] or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


class Desk:
    """A stage with its status function."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        board = Board(stage.ledger(), stage.cluster, ("berth",), stage.time, stage.time)
        self.endpoint = Endpoint(
            name="status",
            answer=Site(board).answer,
            failed=failed,
            health=lambda: None,
            body_limit=0,
            reads=True,
        )

    def ask(self, url: str, method: str = "GET") -> Reply:
        self.stage.time.now += 30
        path, _, query = url.partition("?")
        return respond(self.endpoint, method, path, {}, io.BytesIO(), query=query)

    def page(self, url: str, status: int = 200) -> Page:
        reply = self.ask(url)
        assert (reply.status, reply.kind) == (status, "text/html; charset=utf-8")
        assert "default-src 'none'" in reply.headers()["Content-Security-Policy"]
        return Page(reply.body)

    def json(self, url: str, status: int = 200) -> Any:
        reply = self.ask(url)
        assert (reply.status, reply.kind) == (status, "application/json")
        return json.loads(reply.body)


@pytest.fixture
def desk(tmp_path: Path, place: Place) -> Iterator[Desk]:
    with staged(tmp_path, place) as stage:
        yield Desk(stage)


ONLY = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


def test_a_pool_fills_up_and_who_waits_is_told_with_reason_and_place(desk: Desk) -> None:
    first, second, third = (desk.stage.add_pod() for _ in range(3))
    assert desk.page("/").rows[1][:1] == ["ip"]
    assert (desk.stage.bind(first), desk.stage.bind(second, "n2")) == ("", "")
    page = desk.page("/")
    assert page.rows[1][2:8] == ["2", "2", "0", "0", "1", "2"]
    waiting = next(row for row in page.rows if row[1:2] == [f"default/{third.name}"])
    assert (waiting[0], waiting[2]) == ("1", "ip")
    assert "0 of 1 free, 1 asked" in waiting[6]
    assert f"default/{first.name}" in page.text
    assert "Last reconcile" in page.text


@ONLY
def test_each_link_of_each_page_leads_to_one(desk: Desk) -> None:
    desk.stage.bind(desk.stage.add_pod())
    desk.stage.add_pod(units="2")
    seen, left = set[str](), ["/"]
    while left:
        url = left.pop()
        if url in seen or url.startswith("#"):
            continue
        seen.add(url)
        reply = desk.ask(url)
        assert reply.status == 200, url
        if reply.kind.startswith("text/html"):
            left += Page(reply.body).links
    assert {"/", "/waiting", "/claims", "/units", "/usage", "/pools/ip", "/openapi.json", "/metrics"} <= seen


@ONLY
def test_what_users_wrote_is_text_and_nothing_else(desk: Desk) -> None:
    for url in ("/?q=<script>", "/waiting?q=%22><img>", "/claims?q=<b>", "/units?q=<b>&pool=<i>"):
        assert not {"script", "img", "b", "i"} & (set(desk.page(url).tags) - {"script"})
        assert desk.ask(url).body.count(b"<script") == 1, "its own"
    assert "<b>" in desk.page("/pools/<b>", 404).text


@ONLY
def test_the_api_tells_the_same_in_parts(desk: Desk) -> None:
    calls = [desk.stage.add_pod() for _ in range(4)]
    assert (desk.stage.bind(calls[0]), desk.stage.bind(calls[1], "n2")) == ("", "")
    (pool,) = desk.json("/api/v1/pools")["items"]
    assert (pool["name"], pool["capacity"], pool["used"], pool["waiting"]) == ("ip", 2, 2, 2)
    assert [one["name"] for one in desk.json("/api/v1/pools/ip")["domains"]] == ["n1", "n2"]
    part = desk.json("/api/v1/claims?limit=1")
    assert (len(part["items"]), part["total"], part["continue"]) == (1, 2, "1")
    rest = desk.json(f"/api/v1/claims?limit=1&continue={part['continue']}")
    assert {part["items"][0]["pod"], rest["items"][0]["pod"]} == {calls[0].name, calls[1].name}
    assert rest["continue"] == ""
    assert [row["place"] for row in desk.json("/api/v1/waiting?pool=ip")["items"]] == [1, 2]
    assert desk.json("/api/v1/waiting?namespace=other")["items"] == []
    assert desk.json("/api/v1")["closed"] == ""


def test_what_ended_is_told_at_once_and_after_it_was_counted(desk: Desk) -> None:
    stage = desk.stage
    call = stage.add_pod()
    assert stage.bind(call) == ""
    assert desk.json("/api/v1/releases")["items"] == []
    stage.delete_with_event(call)
    (release,) = desk.json("/api/v1/releases")["items"]
    assert (release["pod"], release["node"], release["pool"], release["domain"]) == (
        call.name,
        "n1",
        "ip",
        "n1",
    )
    stage.time.now += SETTLED_SECONDS
    stage.reconcile()
    stage.reconcile()
    assert not stage.ledger().view().document("ip", "n1").ended, "it is counted"
    assert desk.json("/api/v1/releases")["items"] == [release]
    assert desk.json("/api/v1/releases?pool=other")["items"] == []
    row = next(row for row in desk.page("/").rows if row[0] == f"default/{call.name}")
    assert row[1:5] == ["ip", "n1", "n1", "1"]
    assert f"default/{call.name}" in desk.page("/releases?q=n1").text
    assert "None is remembered" in desk.page("/releases?q=nobody").text


def test_who_used_how_much_is_told_by_pool_and_by_namespace(desk: Desk) -> None:
    stage = desk.stage
    stage.reconcile()
    call = stage.add_pod()
    assert stage.bind(call) == ""
    stage.time.now += 3600 - 30  # each question takes 30 s here
    stage.time.now += SETTLED_SECONDS
    stage.reconcile()
    day = f"{datetime.fromtimestamp(stage.time.now, UTC):%Y-%m-%d}"
    report = desk.json(f"/api/v1/usage?since={day}&by=namespace")
    (row,) = report["rows"]
    assert (row["pool"], row["namespace"], row["peak"]) == ("ip", "default", 1)
    assert row["usedHours"] == pytest.approx(1, abs=0.02)
    page = desk.page(f"/usage?since={day}")
    assert [cells[0] for cells in page.rows[1:2]] == ["ip"]
    assert ["ip", "default"] in [cells[:2] for cells in page.rows]
    assert "Nothing is counted of these days" in desk.page("/usage?since=2020-01-01&until=2020-01-02").text


@ONLY
def test_each_answer_is_as_the_openapi_document_says(desk: Desk) -> None:
    desk.stage.bind(desk.stage.add_pod())
    desk.stage.add_pod(units="2")
    document = desk.json("/openapi.json")
    validate(document)
    for path, operations in document["paths"].items():
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        Draft202012Validator(whole).validate(desk.json(path.replace("{name}", "ip")))


@ONLY
@pytest.mark.parametrize(
    ("url", "status", "said"),
    [
        ("/api/v1/claims?limit=many", 400, "limit is 'many': it should be a number, such as 500"),
        ("/api/v1/claims?continue=-1", 400, "continue is '-1'"),
        ("/claims?page=x", 400, "page is 'x'"),
        ("/api/v1/usage?since=May", 400, "since is 'May': it should be a date, such as "),
        ("/api/v1/usage?by=pod", 400, "by is 'pod': it should be one of pool, namespace"),
        ("/usage?since=2026-05-02&until=2026-05-01", 400, "which is after 2026-05-01, the last day"),
        (f"/?q={'x' * 300}", 400, "longer than 253"),
        (f"/?{'a&' * 20}", 400, "more than 10 fields"),
        ("/api/v1/pods", 404, "GET /openapi.json tells"),
        ("/api/v1usage", 404, "there is no /api/v1usage"),
        ("/api/usage", 404, "there is no /api/usage"),
        ("/api/v1/pools/none", 404, "there is no pools/none"),
        ("/static/../handlers/status.py", 404, "there is no file"),
    ],
)
def test_wrong_questions_are_answered_in_one_line(desk: Desk, url: str, status: int, said: str) -> None:
    assert said in desk.json(url, status)["error"]


@ONLY
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_only_reads(desk: Desk, method: str) -> None:
    reply = desk.ask("/", method)
    assert (reply.status, reply.headers()["Allow"]) == (405, "GET, HEAD")


class _Locked:
    def refusal(self, authorization: str) -> str:
        return "" if authorization == "Bearer good" else "wants a token"

    def knows(self, authorization: str) -> bool:
        return bool(authorization)


@ONLY
def test_behind_a_token_a_browser_asks_a_person_for_it(desk: Desk) -> None:
    locked: Authenticator = _Locked()
    endpoint = replace(desk.endpoint, authenticator=locked)
    for path in ("/", "/api/v1", "/metrics", "/openapi.json", "/static/berth.css"):
        reply = respond(endpoint, "GET", path, {}, io.BytesIO())
        assert reply.status == 401
        assert reply.headers()["WWW-Authenticate"].startswith("Basic ")
        assert respond(endpoint, "GET", path, {"Authorization": "Bearer good"}, io.BytesIO()).status == 200


@ONLY
@pytest.mark.parametrize(
    "path", ["/", "/api/v1/ledger", "/api/v1/pools", "/api/v1/none", "/metrics", "/openapi.json"]
)
def test_no_answer_is_kept_on_the_way_or_taken_for_another_kind(desk: Desk, path: str) -> None:
    headers = desk.ask(path).headers()
    assert (headers["Cache-Control"], headers["X-Content-Type-Options"]) == ("no-store", "nosniff")


@ONLY
def test_a_pod_that_asks_under_another_scheduler_is_told_on_the_first_page(desk: Desk) -> None:
    assert "schedulerName" not in desk.page("/").text
    call = desk.stage.add_pod(scheduler="default-scheduler")
    remark = (
        f"{call.namespace}/{call.name}: asks for ip, but its schedulerName is default-scheduler, not berth"
    )
    assert remark in desk.page("/").text
    assert remark in desk.page("/waiting").text


@ONLY
def test_many_who_look_are_one_look(desk: Desk) -> None:
    stage, lists = desk.stage, list[str]()
    pending = stage.cluster.pending_pods

    def counted(timeout: float = 10) -> Any:
        lists.append("pods")
        return pending(timeout)

    stage.cluster.pending_pods = counted  # type: ignore[method-assign]
    board = Board(stage.ledger(), stage.cluster, ("berth",), stage.time, stage.time)
    looks = [board.look() for _ in range(50)]
    assert len(lists) == 1
    assert all(look is looks[0] for look in looks)
    stage.time.now += FRESH_SECONDS
    assert board.look() is not looks[0]


@ONLY
def test_while_the_api_server_is_away_the_ledger_is_shown_and_nobody_is_told_as_waiting(desk: Desk) -> None:
    desk.stage.bind(desk.stage.add_pod())
    with desk.stage.away():
        page = desk.page("/")
        assert "who waits is not known" in page.text
        assert page.rows[1][6] == "?"
        assert "berth_pool_waiting_pods" not in desk.ask("/metrics").body.decode()


@ONLY
def test_a_ledger_that_was_lost_is_told(desk: Desk) -> None:
    desk.stage.lose_ledger()
    assert "rebuilt" in desk.page("/").text
    assert _gauges(desk)["berth_ledger_closed"] == {(): 1.0}


def _gauges(desk: Desk) -> dict[str, dict[tuple[str, ...], float]]:
    families = text_string_to_metric_families(desk.ask("/metrics").body.decode())
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in families
    }


def test_the_ledger_in_numbers(desk: Desk) -> None:
    calls = [desk.stage.add_pod() for _ in range(3)]
    assert desk.stage.bind(calls[0]) == ""
    told = _gauges(desk)
    assert set(told) == {name for name in GAUGES if "external" not in name}, "no pool has any"
    assert told["berth_pool_capacity_units"] == {("ip",): 2}
    assert told["berth_pool_used_units"] == {("ip",): 1}
    assert told["berth_pool_waiting_pods"] == {("ip",): 2}
    assert told["berth_claims"] == {("reserved",): 0, ("bound",): 1, ("lost",): 0}
    assert told["berth_domain_used_units"] == {("n1", "ip"): 1, ("n2", "ip"): 0}
    assert told["berth_ledger_closed"] == {(): 0}
    assert told["berth_reconcile_problems"] == {(): 0}
    assert told["berth_reconcile_mended"]["rebuilt",] == 1
    assert told["berth_reconcile_last_success_timestamp_seconds"][()] >= 1000


@ONLY
def test_five_thousand_domains_make_no_more_series_than_the_page_says(desk: Desk) -> None:
    ledger = desk.stage.ledger()
    wide = {("ip", f"node-{number}"): 4 for number in range(5000)}
    ledger.set_capacities(wide, dict.fromkeys(wide))
    told = _gauges(desk)
    assert told["berth_pool_domains"] == {("ip",): 5002}
    assert len(told["berth_domain_used_units"]) == MOST_DOMAINS_OF_A_POOL
    assert sum(map(len, told.values())) < 200
    page = desk.page("/pools/ip?page=51")
    assert "Part 51 of 51, 5002 rows" in page.text
    assert len(desk.page("/pools/ip?q=node-4999").rows) == 2


def test_all_pools_together_have_a_bounded_number_of_domains() -> None:
    domain = DomainRow(name="n", capacity=1, used=0, free=1, reserved=0, binding=0)
    rows = [
        PoolRow(
            name=f"pool-{number}",
            capacity=1,
            used=0,
            free=1,
            reserved=0,
            binding=0,
            waiting=0,
            over_committed=0,
            domains=tuple(replace(domain, name=f"n{one}") for one in range(60)),
        )
        for number in range(200)
    ]
    assert len(told_apart(rows)) == MOST_DOMAINS
