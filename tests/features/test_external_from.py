"""Pools that read what others use of them: what counts as used by whom, and that nothing new is given while
nobody knows. Readings come by reconcile's tick, or are given to inventory's path /licences."""

import io
import json
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from berth.controller.licence_reading import LicenceReader, take_text
from berth.controller.licence_text import TextError
from berth.errors import BadInputError, BerthError
from berth.handlers import inventory, licences
from berth.handlers.reconcile import Reconcile, Report
from berth.http.endpoint import respond
from berth.http.extender_v1 import BindingCall
from berth.ledger.report import PoolRow, pool_notes, pool_rows
from berth.scheduling.explanation import explain
from berth.settings import Access, Settings
from berth.testing.api_server import StandIn
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage

URL = "http://licences.example/lmstat"
FROM: dict[str, Any] = {"feature": "MATLAB", "url": URL, "format": "json"}
CLUSTER = {"scope": "Cluster"}
POOLS: dict[str, Any] = {
    "seat": {**CLUSTER, "capacity": {"perDomain": 4}, "externalFrom": FROM},
    "many": {**CLUSTER, "capacity": None, "externalFrom": {**FROM, "feature": "X", "capacity": "Issued"}},
    "kept": {**CLUSTER, "capacity": {"perDomain": 2}, "externalFrom": {**FROM, "whenStale": "Ignore"}},
    "post": {**CLUSTER, "capacity": {"perDomain": 2}, "externalFrom": {"feature": "P", "format": "json"}},
    "ip": {"capacity": {"perDomain": 2}},
}
NEVER = "seat: what others use of it is not known yet; nothing new is given until it is read"
STALE = "seat: what others use of it was not read for 180 s; nothing new is given until it is"
CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the rest are shown by others


def said(**features: tuple[int, dict[str, int]]) -> bytes:
    """A licence server's text: licences issued of each feature, and who has how many."""
    rows = [
        {
            "name": name,
            "issued": issued,
            "checkouts": [{"host": host, "count": count} for host, count in hosts.items() if count],
        }
        for name, (issued, hosts) in features.items()
    ]
    return json.dumps({"features": rows}).encode()


class Licences(PoolsStage):
    """With a licence server, which says `text`; None: it is away."""

    text: bytes | None = None
    asked = 0
    woken_before: frozenset[str] = frozenset()  # when the server was asked last

    def serve(self, issued: int = 4, /, **hosts: int) -> None:
        """What the server says of MATLAB from now on; of X there are 200 licences, one of which is out."""
        names = {host.replace("_", "-"): count for host, count in hosts.items()}
        self.text = said(MATLAB=(issued, names), X=(200, {"desk": 1}))

    def tick(self, seconds: float = 60.0) -> Report:
        """The clock goes on, and reconcile runs and reads."""
        self.time.now += seconds
        ledger = self._ledger(self.store, while_closed=True)
        reader = LicenceReader(ledger, clock=self.time, fetch=self._fetch)
        how: Any = {"clock": self.time, "monotonic": self.time, "teller": self.teller, "licences": reader}
        return Reconcile(ledger, self.cluster, self.settings, **how).run()

    def _fetch(self, url: str, _: float, __: int) -> bytes:
        self.asked += 1
        self.woken_before = frozenset(self.woken())
        if self.text is None:
            raise TextError(f"can't read {url}: connection refused")
        return self.text

    def post(self, query: str, text: bytes, ago: float = 0) -> dict[str, object] | str:
        """What inventory's path /licences answers, or its error, to a text from so many seconds ago."""
        ledger = self._ledger(self.store)
        try:
            return licences.run(ledger, self.cluster, self.settings, query, text, self.time() - ago)
        except BerthError as error:
            return str(error)

    def row(self, name: str = "seat") -> PoolRow:
        view = self._ledger(self.store, while_closed=True).view()
        (row,) = pool_rows(view, only=name, now=self.time())
        return row

    def counts(self, name: str = "seat") -> tuple[int, int, int]:
        """Capacity, used and given units."""
        row = self.row(name)
        return row.capacity, row.used, row.given


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Licences]:
    with StandIn() as api:
        stage = Licences(api, tmp_path, place, POOLS, {"n1": {}, "n2": {}})
        with closing(stage.store), closing(stage.raw):
            yield stage


def test_nothing_is_given_before_the_first_reading_nor_while_the_last_one_is_too_old(stage: Licences) -> None:
    first, other = stage.pod("first", seat=1), stage.pod("other", seat=1, ip=1)
    assert stage.why(first, "n1", "n2") == {"n1": NEVER, "n2": NEVER}
    assert stage.bind(first) == NEVER
    stage.tick()
    assert stage.bind(first) == NEVER, "a server that is away is no server without use"
    stage.serve(desk=2)
    assert stage.tick().problems == []
    assert stage.woken() == {"first", "other"}
    assert stage.counts() == (4, 2, 2)
    assert stage.bind(first) == ""
    stage.text = None
    stage.tick(180)
    assert (stage.why(other, "n1"), stage.counts()) == ({}, (4, 3, 1)), "that old it may be"
    stage.tick(1)
    assert stage.why(other, "n1", "n2") == {"n1": STALE, "n2": STALE}
    assert stage.bind(other) == STALE
    assert "other" not in stage.held(), "all or nothing"
    assert stage.counts() == (4, 3, 0)
    assert stage.bound() == {"first": "n1"}
    stage.serve(desk=2)
    stage.tick(60)
    assert stage.bind(other) == ""
    stage.check_well()


def test_a_pod_counts_once_with_its_claim_and_not_yet_or_already_its_checkout(stage: Licences) -> None:
    stage.serve(desk=1)
    stage.tick()
    one, two = stage.bound_pod("one", seat=1), stage.bound_pod("two", seat=1)
    stage.serve(desk=1, one=1)
    stage.tick()
    assert stage.counts() == (4, 3, 1), "two has no checkout yet"
    stage.serve(desk=1, one=2, two=1)
    stage.tick()
    assert stage.counts() == (4, 4, 0), "one has more than its claim"
    stage.gone(one)
    stage.tick()
    assert stage.row().external == 3, "what is gone and checked out still is others' use"
    stage.serve(desk=1, two=1)
    stage.tick()
    assert stage.counts() == (4, 2, 2)
    assert stage.of(two, "seat")[1] == 1


def test_the_reading_is_lost_with_the_ledger_and_nothing_is_given_until_the_next(stage: Licences) -> None:
    stage.serve(desk=2)
    stage.tick()
    running, new = stage.bound_pod("running", seat=1), stage.pod("new", seat=1)
    stage.lose_ledger()
    assert stage.reconcile().rebuilt
    assert (stage.bind(new), stage.row().external) == (NEVER, 0)
    kept = stage.pod("kept", kept=1)
    assert "not known yet" in stage.bind(kept), "there is nothing that could stand"
    stage.tick()
    assert stage.counts() == (4, 3, 1)
    assert stage.bind(new) == ""
    assert stage.of(running, "seat")[1] == 1


def test_a_capacity_that_is_read_follows_what_is_issued_as_any_capacity(stage: Licences) -> None:
    pod = stage.pod("big", many=3)
    assert "not known yet" in stage.bind(pod)
    stage.serve()
    stage.tick()
    assert stage.counts("many") == (200, 1, 199)
    assert stage.bind(pod) == ""
    stage.tick()
    assert stage.counts("many") == (200, 4, 196)
    assert stage.pools() == {"changed": 0, "woken": 0}, "no look at the Pools sets another"
    stage.text = said(MATLAB=(4, {}), X=(2, {"desk": 1}))
    stage.tick()
    assert stage.counts("many") == (2, 4, 0)
    assert stage.row("many").over_committed == 2
    assert stage.bind(stage.pod("late", many=1)) == "many: 0 of 2 free, 1 asked"
    stage.text = said(MATLAB=(4, {}), X=(500, {"desk": 1}))
    stage.tick()
    assert stage.counts("many") == (500, 4, 496)
    stage.check_well()


@CHEAP
def test_what_the_server_does_not_have_of_a_pools_capacity_is_in_use(stage: Licences) -> None:
    stage.serve(3, desk=1)
    stage.tick()
    assert stage.counts() == (4, 2, 2)


@CHEAP
def test_a_reading_that_is_too_old_stands_where_the_pool_says_so(stage: Licences) -> None:
    stage.serve(desk=1)
    stage.tick()
    stage.text = None
    stage.tick(100_000)
    assert stage.bind(stage.pod("a", kept=1)) == ""
    assert stage.bind(stage.pod("b", kept=1)) == "kept: 0 of 2 free, 1 asked"
    assert stage.row("kept").external_state == "ignored"


@CHEAP
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x00\xff rubbish",
        b"[" * 10_000,
        said(Simulink=(4, {})),
        said(MATLAB=(0, {})),
        b'{"features": [{"name": "MATLAB", "issued": -4}]}',
        b" " * (8 * 1024 * 1024 + 1),
    ],
    ids=["nothing", "bytes", "brackets", "no feature", "none issued", "below zero", "too large"],
)
def test_what_is_no_reading_changes_no_count_and_is_told(stage: Licences, text: bytes) -> None:
    stage.serve(desk=2)
    stage.tick()
    stage.text = text
    stage.tick()
    assert stage.counts() == (4, 2, 2)
    row = stage.row()
    assert (row.external_state, row.external_age) == ("fresh", 60)
    assert row.external_note.startswith("the last try to read what others use failed (")
    stage.tick(121)
    assert stage.counts() == (4, 2, 0)
    (note,) = [note for note in pool_notes(stage.row()) if "what others use" in note]
    assert note.startswith("what others use was not read for 180 s (")
    assert note.endswith("): nothing new is given")
    stage.serve(desk=1)
    stage.tick()
    assert (stage.row().external_note, stage.row().external_age) == ("", 0)


@CHEAP
def test_a_text_that_is_posted_counts_at_once_and_wakes_who_fits(stage: Licences) -> None:
    pod = stage.pod("waits", post=1)
    assert "not known yet" in stage.bind(pod)
    text = said(P=(3, {"desk": 1}))
    assert stage.post("pool=post", text) == {"pool": "post", "issued": 3, "external": 1, "overCommitted": 0}
    assert stage.woken() == {"waits"}
    stage.tick(181)
    assert stage.bind(pod).startswith("post: what others use of it was not read")
    assert stage.asked == 1, "all that has a URL has one URL"


@CHEAP
@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", "name one Pool in the URL, such as /licences?pool=matlab"),
        ("pool=post&pool=seat", "name one Pool in the URL"),
        ("pool=ip", "no Pool 'ip' has externalFrom; there are: kept, many, post, seat"),
        ("pool=pots", "(did you mean post?)"),
        ("pool=post", "the text counts no licences of the feature P; it counts: MATLAB"),
    ],
)
def test_a_post_that_says_nothing_is_refused_with_what_to_do(stage: Licences, query: str, error: str) -> None:
    assert error in str(stage.post(query, said(MATLAB=(4, {}))))
    assert stage.counts("post") == (2, 0, 0)


@CHEAP
def test_a_reading_that_comes_late_does_not_undo_a_later_one(stage: Licences) -> None:
    assert stage.post("pool=post", said(P=(2, {"desk": 2}))) != {}
    told = stage.post("pool=post", said(P=(2, {})), ago=10)
    assert isinstance(told, dict)
    assert told["external"] == 2
    stage.time.now += 1
    assert stage.post("pool=post", said(P=(2, {}))) == {**told, "external": 0, "issued": 2}


@CHEAP
def test_a_reading_is_of_the_source_that_the_pool_names_now(stage: Licences) -> None:
    stage.serve(desk=2)
    stage.tick()
    stage.pools(seat={**POOLS["seat"], "externalFrom": {**FROM, "feature": "Simulink"}})
    assert stage.bind(stage.pod("new", seat=1)) == NEVER
    assert stage.row().external == 2, "the last that is known"
    stage.pools(seat={**CLUSTER, "capacity": {"perDomain": 4}, "external": 1})
    assert stage.counts() == (4, 1, 3)
    assert stage.row().external_state == ""
    stage.pools(seat={**CLUSTER, "capacity": {"perDomain": 4}})
    assert stage.counts() == (4, 0, 4)
    stage.pools(seat=POOLS["seat"])
    assert stage.counts() == (4, 0, 0), "what was read before is forgotten"
    stage.pools(seat=None)
    stage.check_well()


@CHEAP
def test_each_url_is_read_once_a_tick_and_no_oftener_than_the_pool_says(stage: Licences) -> None:
    stage.serve(desk=1)
    stage.tick()
    assert stage.asked == 1
    stage.tick(20)
    assert stage.asked == 1
    stage.tick(38)
    assert stage.asked == 2, "a tick may come a little early"


@CHEAP
def test_a_slow_server_delays_no_pod_of_another_pool(stage: Licences) -> None:
    """It is asked after all else was mended, and its failure is no problem of reconcile's."""
    holders = [stage.bound_pod(ip=2), stage.bound_pod(on="n2", ip=2)]
    stage.pod("waits", ip=1)
    stage.cluster.delete(f"/api/v1/namespaces/default/pods/{holders[0].name}")  # and its event is lost
    report = stage.tick()
    assert (report.released, report.woken, report.problems) == (1, 1, [])
    assert stage.woken_before == {"waits"}


@CHEAP
def test_people_are_told_why_nothing_is_given(stage: Licences) -> None:
    stage.tick()
    pod = stage.pod("waits", seat=1)
    nodes, view = stage.cluster.nodes(), stage.ledger().view()
    told = explain(stage.get(pod.name), view, nodes, stage.time())
    assert told.summary == f"waits: {NEVER}"
    why = f"(can't read {URL}: connection refused)"
    assert told.notes == (f"seat: what others use was never read {why}: nothing new is given",)
    assert [[step.text for step in way.steps] for way in told.remedies] == [
        ["what others use of seat is read again"]
    ]
    assert [step.kind for way in told.remedies for step in way.steps] == ["read"]


@CHEAP
def test_a_ledger_that_can_not_be_read_is_a_problem_and_no_failure(stage: Licences) -> None:
    class Broken(LicenceReader):
        def run(self) -> list[str]:
            raise BadInputError("the ledger is in a bad way")

    ledger = stage._ledger(stage.store, while_closed=True)
    how: Any = {"clock": stage.time, "monotonic": stage.time, "licences": Broken(ledger)}
    report = Reconcile(ledger, stage.cluster, stage.settings, **how).run()
    assert report.problems == ["what others use of pools was not read: the ledger is in a bad way"]


@CHEAP
def test_a_pod_that_is_being_bound_keeps_its_claim_when_the_reading_grows_old(stage: Licences) -> None:
    stage.serve(desk=1)
    stage.tick()
    pod: BindingCall = stage.bound_pod("one", seat=1)
    stage.text = None
    stage.tick(1000)
    assert stage.bind(pod) == "", "a bind that is called again gives nothing new"
    assert stage.claims()["one"] == ("n1", "bound")
    stage.check_well()


@CHEAP
def test_the_path_licences_is_for_those_who_may_say_what_others_use(
    stage: Licences, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No other token opens it, and while there is none it is closed."""
    monkeypatch.setenv("KUBECONFIG", str(stage.api.kubeconfig(tmp_path / "kubeconfig")))
    text, query = said(P=(2, {"desk": 1})), "pool=post"
    url, pools = place.url, stage.settings.pools

    def call(token: str, body: bytes = text, **access: Access) -> tuple[int, str]:
        settings = Settings(store=url, pools=pools, **access)  # type: ignore[arg-type]
        headers = {"Authorization": f"Bearer {token}"}
        sent, to = io.BytesIO(body), inventory.router(settings)
        reply = respond(to, "POST", "/any/licences", headers, sent, query=query)
        return reply.status, reply.body.decode()

    verbs, poller = Access(token="verbs"), Access(prefix="BERTH_EXTERNAL", token="poller")
    assert call("verbs", access=verbs)[0] == 403
    assert "nobody may call /licences: name the accounts" in call("verbs", access=verbs)[1]
    assert call("verbs", access=verbs, external=poller)[0] == 401
    assert call("poller", b"x" * (8 * 1024 * 1024 + 1), external=poller)[0] == 413
    assert call("poller", b"x", external=poller)[0] == 400
    assert stage.counts("post") == (2, 0, 0)
    answer = '{"pool":"post","issued":2,"external":1,"overCommitted":0}'
    assert call("poller", external=poller) == (200, answer)
    stage.time.now = time.time()  # the endpoint's own clock
    assert stage.counts("post") == (2, 1, 1)


@CHEAP
@pytest.mark.parametrize("number", range(12))
def test_a_reading_in_the_middle_of_a_bind_is_what_the_bind_goes_by(stage: Licences, number: int) -> None:
    """Others take all between two of its calls: a claim that was not there yet is refused."""
    stage.serve(desk=2)
    stage.tick()
    pod, steps, there = stage.pod("one", seat=2), count(), list[bool]()

    def step() -> None:
        if next(steps) == number:
            there.append("one" in stage.held())
            seat = stage.ledger().view().pools["seat"]
            assert seat.external_from is not None
            text = said(MATLAB=(4, {"desk": 4}))
            take_text(stage.ledger(), seat, seat.external_from, text, stage.time())

    answer = stage.bind(pod, step=step)
    if not there:
        assert answer == "", "the bind makes fewer calls"
    else:
        assert answer == ("" if there[0] else "seat: 0 of 4 free, 2 asked")
        assert stage.row().over_committed == (2 if there[0] else 0)
