"""`make bench` in miniature: who is measured, what the figures look like, and that nothing is left running.
How fast anything is, is no matter for a test; the floor in Go is built and tried in tests/controlplane."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.handlers import filter as filter_verb
from berth.handlers import prioritize as prioritize_verb
from berth.http import extender_v1
from berth.http.endpoint import joined
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.stores.base import Store
from berth.testing.loopback import Loopback, Reply
from tests.bench import __main__ as bench
from tests.bench import binds, costs, life, marks, report, scheduled, seats, signals
from tests.bench.answers import Asked, Expected, check, of_the_floor, without_its_claim
from tests.bench.bodies import CLAIMING, PLAIN, REFUSED, Calls, node
from tests.bench.callers import Caller, WrongError, claims
from tests.bench.client import CallError
from tests.bench.contender_processes import BenchError, Server
from tests.bench.contents import Contents, Stock, node_names
from tests.bench.keeper import add_pool_claim, change, fill, hold
from tests.bench.rounds import FLOOR, Contender, Measured, cases, measure, usual_cases
from tests.bench.witness import Witness, states
from tests.support.cluster import wait
from tests.support.processes import is_alive

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
_LONG_SECONDS = 120.0
_TINY = ("--nodes", "20", "--rounds", "2", "--calls", "3", "--no-floor")


def _started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finished(*arguments: str) -> subprocess.CompletedProcess[str]:
    with _started(*arguments) as process:
        out, err = process.communicate(timeout=_LONG_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.usefixtures("redis_installed")
def test_every_case_is_measured_on_every_store_with_both_verbs(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = _finished(*_TINY, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    titles = [case.title for case in usual_cases(20).values()]
    expected = set(product(titles, ("filter", "prioritize"), ("sqlite", "redis")))
    assert {(row["case"], row["verb"], row["contender"]) for row in rows} == expected
    assert all(0 < row["p50"] <= row["p99"] for row in rows)
    assert {row["calls"] for row in rows} == {2 * 3, 2 * 1}
    # Of 20 nodes two are full; a tenth of them, which is a case of its own, are two that are not.
    assert {(row["verb"], row["passed"]) for row in rows if row["case"] != "2 names"} == {
        ("filter", 18),
        ("prioritize", 20),
    }
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(rows)


def test_trees_and_servers_are_told_apart(tmp_path: Path) -> None:
    trees = ("--source", "old=functions", "--source", "new=functions", "--servers", "extender,uvicorn")
    few = ("--stores", "sqlite", "--cases", "changed", "--verbs", "filter")
    figures = tmp_path / "figures.json"
    done = _finished(*_TINY, *few, *trees, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    found = {row["contender"] for row in json.loads(figures.read_text())["rows"]}
    assert found == {
        "·".join(filter(None, each)) for each in product(("old", "new"), ("sqlite",), ("extender", "uvicorn"))
    }


WRONG = """
import json

from berth.http.endpoint import Endpoint, Reply
from berth.http.function import Served


def answer(headers, body):
    names = json.loads(body)["NodeNames"]
    refused = dict.fromkeys(names, "there is no PoolClaim k80-erc in the pod's namespace")
    said = {"Nodes": None, "NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": refused}
    return Reply(200, json.dumps({**said, "Error": ""}).encode())


def filter():
    pass


answers = dict.fromkeys(("answer", "failed"), answer)
filter.served = Served(Endpoint(name="filter", health=lambda: None, body_limit=10**6, **answers), None)
"""


def test_a_function_that_refuses_every_node_is_not_measured_but_ends_the_bench(tmp_path: Path) -> None:
    (tmp_path / "filter").mkdir()
    (tmp_path / "filter" / "main.py").write_text(WRONG)
    few = ("--stores", "sqlite", "--cases", "names", "--verbs", "filter")
    done = _finished(*_TINY, *few, "--source", f"wrong={tmp_path}")
    assert done.returncode == 1
    assert done.stdout == ""
    told = done.stderr.splitlines()[-1]
    assert told.startswith(
        "bench: wrong·sqlite, filter, 20 names: a wrong answer: 18 nodes were expected to pass"
    )
    assert "there is no PoolClaim k80-erc in the pod's namespace" in told


@pytest.mark.usefixtures("redis_installed")
def test_what_a_claim_costs_is_measured_on_every_store_by_one_caller_and_by_many(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ("--nodes", "20", "--rounds", "1", "--seconds", "0.1", "--stores", "sqlite,redis")
    done = _finished("costs", *tiny, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    cells = {(row["store"], row["callers"], row["domains"]) for row in found["cycles"]}
    assert cells == set(product(("sqlite", "redis"), (1, 8, 64), ("any", "one")))
    measured = [row for row in found["cycles"] if row["p50"] is not None]
    assert measured
    assert all(0 < row["p50"] <= row["p99"] for row in measured)
    assert {row["store"]: row["bytes"] > 100 for row in found["sizes"]} == {"sqlite": True, "redis": True}
    assert {row["store"]: row["requests"] > 0 for row in found["sizes"]} == {"sqlite": False, "redis": True}
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(cells) + 2 + 2


def test_what_signals_add_to_a_call_is_measured_in_one_process(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = _finished("signals", "--calls", "3", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert [(row["names"], row["told"]) for row in rows] == [
        *product(signals.SIZES, signals.CONTENDERS.values())
    ]
    assert all(row["p50"] > 0 and row["ratio"] > 0 for row in rows)


def test_the_cluster_wide_pool_is_measured_in_stripes_and_in_one_document(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    tiny = ("--rounds", "1", "--seconds", "0.1", "--stores", "sqlite")
    done = _finished("seats", *tiny, "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert {(row["kind"], row["callers"]) for row in rows} == set(
        product(("stripes", "one document"), (1, 8, 64))
    )
    measured = [row for row in rows if row["p50"] is not None]
    assert {row["kind"] for row in measured} >= {"stripes"}
    assert all(0 < row["p50"] <= row["p99"] for row in measured)


@pytest.mark.usefixtures("redis_installed")
def test_binds_are_measured_on_every_store_and_what_they_ask_of_it_is_counted(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = _finished("binds", "--rounds", "1", "--pods", "8", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    usual = set(product(("sqlite", "redis"), ("each node's own", "a pool with units to spare"), (1, 8, 64)))
    last = set(product(("sqlite", "redis"), ("a pool's last",), (64,)))
    assert {(row["bind"], row["units"], row["callers"]) for row in rows} == usual | last
    assert all(0 < row["p50"] <= row["p99"] for row in rows)
    alone = [row for row in rows if row["callers"] == 1]
    assert all(row["commits"] == 2 and row["conflicts"] == 0 for row in alone)


def test_the_processor_s_work_for_a_pod_is_measured_part_by_part(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = _finished("life", "--rounds", "1", "--pods", "5", "--nodes", "20", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert [row["life"] for row in rows] == ["sqlite", "redis"]
    for row in rows:
        parts = [row[part] for part in life.PARTS]
        assert all(seconds > 0 for seconds in parts)
        assert row["whole"] == pytest.approx(sum(parts))


POD = binds.Pod(binds.NODES, "00000000-0000-4000-8000-000000000001", "node-00001")


def test_a_bind_that_is_one_claim_and_one_binding_is_a_figure(tmp_path: Path) -> None:
    assert _unconfirmed(tmp_path, [POD], {POD.name: [POD.node]}) == 0


@pytest.mark.parametrize(
    ("claims", "nodes"),
    [
        ([POD], []),
        ([POD], [POD.node, POD.node]),
        ([POD], ["node-00002"]),
        ([], [POD.node]),
        ([POD, POD._replace(uid="00000000-0000-4000-8000-000000000002")], [POD.node]),
    ],
    ids=["not bound", "bound twice", "bound elsewhere", "without a claim", "a claim too many"],
)
def test_a_bind_that_is_not_one_claim_and_one_binding_ends_the_bench(
    claims: Sequence[binds.Pod], nodes: list[str], tmp_path: Path
) -> None:
    with pytest.raises(BenchError, match=r"and (it is )?not"):
        _unconfirmed(tmp_path, claims, {POD.name: nodes} if nodes else {})


def _unconfirmed(folder: Path, claims: Sequence[binds.Pod], bound: dict[str, list[str]]) -> int:
    """Check a bind of POD in a ledger with these pods' claims, on an API server where these are bound."""
    with (
        closing(open_store(f"sqlite:///{folder}/ledger.db")) as store,
        Loopback(lambda _: Reply(200, msgspec.json.encode(bound))) as api,
    ):
        binds.fill(store, 200)
        ledger = Ledger(store)
        for pod in claims:
            holdings = (Holding(pod.pool, pod.node, 1),)
            claim = Claim(
                uid=pod.uid,
                namespace="default",
                name=pod.name,
                node=pod.node,
                holdings=holdings,
                attempt="a",
                since=0.0,
            )
            ledger.confirm(ledger.reserve(claim))
        port = int(api.url.rpartition(":")[2])
        return binds.Contender("bind", store, Server(0, 0), Server(port, 0), folder).check([POD])


NAMES = node_names(20)
FULL = {"node-00003", "node-00014"}
"""Who holds 3 · 7 or 14 · 7 units, modulo 11: ten."""


def right(asked: Asked, expected: Expected) -> Any:
    """What an extender answers that is right."""
    if asked.verb == "prioritize":
        return [{"Host": name, "Score": expected.scores[name]} for name in asked.names]
    passed = [name for name in asked.names if name not in expected.refused]
    items = [json.loads(asked.full[name]) for name in passed] if asked.full else None
    return {
        "Nodes": {"items": items} if items else None,
        "NodeNames": None if items else passed,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": dict(expected.refused),
        "Error": "",
    }


def test_the_ledger_of_the_bench_has_full_nodes_and_others_and_scores_of_each_kind() -> None:
    contents = Stock(NAMES).now
    assert dict(contents.refused) == dict.fromkeys(FULL, "underlay-ip: 0 of 10 free, 1 asked")
    assert set(contents.scores.values()) == set(range(11))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("pod", [PLAIN, CLAIMING, REFUSED])
def test_what_is_expected_of_berth_is_what_it_answers_whatever_claims_come_and_go(
    tmp_path: Path, pod: str, full: bool
) -> None:
    stock, calls = Stock(NAMES), Calls(NAMES, full=full, pod=pod)
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
        fill(store, NAMES)
        add_pool_claim(store)
        ledger, passed = Ledger(store), set()
        for _ in range(14):  # the seventh claim that comes fills a node
            expected = without_its_claim(stock.now) if pod == REFUSED else stock.now
            call = extender_v1.candidates(next(calls))
            body = joined(extender_v1.filter_answer(call, filter_verb.run(ledger.view, call)))
            passed.add(check(Asked("filter", NAMES, calls.full), expected, body))
            body = extender_v1.priorities(prioritize_verb.run(ledger.view, call))
            assert check(Asked("prioritize", NAMES, calls.full), expected, body) == len(NAMES)
            change(ledger, *stock.change())
    assert passed == ({0} if pod == REFUSED else {18, 17})


def _passing(answer: Any) -> None:
    answer["NodeNames"].append("node-00003")


def _refused_wrongly(answer: Any) -> None:
    answer["NodeNames"].remove("node-00000")
    answer["FailedAndUnresolvableNodes"]["node-00000"] = "underlay-ip: 0 of 10 free, 1 asked"


def _another_reason(answer: Any) -> None:
    answer["FailedAndUnresolvableNodes"]["node-00003"] = "underlay-ip: 0 of 9 free, 1 asked"


def _in_neither(answer: Any) -> None:
    del answer["FailedAndUnresolvableNodes"]["node-00003"]


def _evicting(answer: Any) -> None:
    answer["FailedNodes"] = {"node-00003": "underlay-ip: 0 of 10 free, 1 asked"}


def _an_error(answer: Any) -> None:
    answer["Error"] = "the ledger is being rebuilt"


def _twice(answer: Any) -> None:
    answer["NodeNames"].append("node-00000")


def _not_as_offered(answer: Any) -> None:
    answer["Nodes"] = {"items": []}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_passing, "18 nodes were expected to pass; 0 of them did not (none), with the reasons"),
        (_refused_wrongly, "1 of them did not (node-00000)"),
        (_another_reason, "2 nodes were expected to be refused; 1 of them did not"),
        (_in_neither, "2 nodes were expected to be refused; 1 of them did not"),
        (_evicting, "filter says that evicting pods would help on node-00003"),
        (_an_error, "filter answered with the error: the ledger is being rebuilt"),
        (_twice, "the answer has a node twice"),
        (_not_as_offered, "in another form than it was offered them"),
    ],
)
def test_an_answer_of_filter_that_is_wrong_in_any_way_is_told(
    spoil: Callable[[Any], None], told: str
) -> None:
    asked, expected = Asked("filter", NAMES), Stock(NAMES).now
    answer = right(asked, expected)
    assert check(asked, expected, json.dumps(answer).encode()) == 18
    spoil(answer)
    with pytest.raises(CallError) as error:
        check(asked, expected, json.dumps(answer).encode())
    assert told in str(error.value)


def test_full_nodes_have_to_come_back_as_they_were_sent() -> None:
    asked = Asked("filter", NAMES, Calls(NAMES, full=True).full)
    answer = right(asked, of_the_floor(NAMES))
    del answer["Nodes"]["items"][0]["metadata"]["labels"]
    with pytest.raises(CallError, match="node-00000 came back from filter as another node"):
        check(asked, of_the_floor(NAMES), json.dumps(answer).encode())


@pytest.mark.parametrize("spoiled", [{"Score": 9}, {"Host": "node-00001"}, {"Host": "node-99999"}])
def test_a_score_that_is_wrong_missing_or_of_another_node_is_told(spoiled: dict[str, Any]) -> None:
    asked, expected = Asked("prioritize", NAMES), Stock(NAMES).now
    answer = right(asked, expected)
    assert check(asked, expected, json.dumps(answer).encode()) == 20
    answer[0] |= spoiled
    with pytest.raises(CallError, match="20 nodes were expected to have these scores"):
        check(asked, expected, json.dumps(answer).encode())


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_every_answer_of_every_round_is_looked_at_of_every_contender(verb: str) -> None:
    case, asked = cases(20)["names"], Asked(verb, NAMES)
    expected = Contents(dict.fromkeys(NAMES, 0))
    good, bad = json.dumps(right(asked, expected)).encode(), b"[]" if verb == "prioritize" else b"{}"
    calls = 21 + 2 * 3  # to warm up, and in two rounds
    answers = iter([good] * calls + [good] * (calls - 1) + [bad])
    server = Loopback(lambda _: Reply(200, next(answers)))
    server.start()
    try:
        up = {verb: Server(int(server.url.rpartition(":")[2]), os.getpid())}
        contender = Contender("other", up, lambda _: expected)
        assert measure([case], verb, [contender], 2, 3)[0].passed == 20
        with pytest.raises(CallError, match=f"other, {verb}, 20 names: "):
            measure([case], verb, [contender], 2, 3)
    finally:
        server.stop()


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
        fill(store, NAMES)
        yield store


@pytest.mark.parametrize(
    ("step", "found"),
    [("reserve", "nothing"), ("confirm", "reserved, gone"), ("release", "reserved, bound")],
)
def test_a_cycle_that_leaves_out_a_step_is_no_figure(
    filled: Store, monkeypatch: pytest.MonkeyPatch, step: str, found: str
) -> None:
    witness = Witness(filled)
    caller, wanted = Caller(Ledger(witness), witness), claims(NAMES[:1], "one")
    assert caller.cycle(next(wanted))
    caller.check()
    if step == "reserve":
        monkeypatch.setattr(Ledger, "confirm", lambda *_: None)
    monkeypatch.setattr(Ledger, step, lambda _, claim: claim)
    assert caller.cycle(next(wanted))
    with pytest.raises(WrongError, match=f"a cycle of reserved, bound, gone was {found}"):
        caller.check()


def test_a_commit_made_once_more_because_nobody_knew_its_outcome_is_one_step(filled: Store) -> None:
    witness = Witness(filled)
    ledger, claim = Ledger(witness), next(claims(NAMES[:1], "one"))
    reserved = ledger.reserve(claim)
    (writes,) = witness.since(0)
    assert states(claim.uid, [writes, writes]) == ["reserved"]
    ledger.confirm(reserved)
    assert states(claim.uid, [writes, *witness.since(1), {"epoch": b"{}"}]) == ["reserved", "bound"]


def test_what_a_cell_leaves_behind_ends_the_bench(filled: Store) -> None:
    hold(filled, dict.fromkeys(NAMES, 5))
    costs.check("sqlite", filled, NAMES)
    Ledger(filled).reserve(next(claims(NAMES[:1], "one")))
    with pytest.raises(BenchError, match="5 units should be held in each domain, and in 1 it is not so"):
        costs.check("sqlite", filled, NAMES)


def test_more_winners_than_seats_end_the_bench(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "_HELD", 50)
    seats.fill_seats(filled)
    place = seats.Place("sqlite", filled, ())
    place.check("stripes", 50)
    Ledger(filled).reserve(next(claims(["*"], "one", "licence")))
    with pytest.raises(BenchError, match="50 units of stripes should be held, and 51 are"):
        place.check("stripes", 50)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_that_is_stopped_leaves_no_process_behind(number: signal.Signals) -> None:
    with _started(*_TINY[:2], "--no-floor", "--stores", "sqlite", "--rounds", "1000000") as process:
        assert process.stderr is not None
        assert any(line.startswith("bench: filter") for line in process.stderr)
        children = _descendants(process.pid)
        assert len(children) >= 3  # the ledger's keeper and two functions
        process.send_signal(number)
        process.communicate(timeout=_LONG_SECONDS)
    assert process.returncode == 128 + number
    wait(lambda: not any(map(is_alive, children)), _LONG_SECONDS, "all that it started has ended")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--rounds", "0"), "'0' should be a number above 0"),
        (("--stores", "sqlite,paper"), "no 'paper' here, only sqlite, redis, "),
        (("costs", "--stores", "paper"), "no 'paper' here, only sqlite, redis, "),
        (("costs", "--seconds", "0"), "'0' should be seconds above 0"),
        (("--source", "old=nowhere"), "should be LABEL=DIR"),
    ],
)
def test_a_wrong_option_is_told_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], told: str
) -> None:
    with pytest.raises(SystemExit):
        bench.main(arguments)
    assert told in capsys.readouterr().err


def test_where_changes_are_told_late_no_claim_is_changed_between_calls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # these are pytest's
    assert bench.main(["--stores", "sqlite,configmap"]) == 1
    assert "a reader of configmap may learn of a change late" in capsys.readouterr().err


def test_ratios_are_medians_of_what_was_measured_in_the_same_round() -> None:
    case = cases(10)["names"]
    floor = Measured(case, "filter", FLOOR, [[1.0, 1.0], [4.0, 4.0], [1.0, 1.0]])
    berth = Measured(case, "filter", "sqlite", [[2.0, 2.0], [2.0, 2.0], [3.0, 3.0]])
    assert [row["ratio"] for row in report.rows([floor, berth])] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("seconds", "verdict", "is_missed"),
    [(0.8, "met", False), (0.95, "not met", False), (0.97, "not met", True)],
)
def test_a_ratio_is_judged_by_its_mark(seconds: float, verdict: str, is_missed: bool) -> None:
    case = cases(5000)["names"]
    floor = Measured(case, "filter", FLOOR, [[1.0]])
    others = [Measured(case, "filter", name, [[seconds]]) for name in ("redis", "before·redis")]
    line = f"filter, 5,000 names, redis: {seconds:.2f} × the floor, mark 0.8: {verdict}"
    assert marks.judged([floor, *others]) == [(line, is_missed)]
    assert marks.judged(others) == []


def test_a_missed_mark_is_told_and_ends_the_bench_with_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, slow = cases(5000)["few"], [1.0]
    measured = [Measured(case, "filter", FLOOR, [[1.0]]), Measured(case, "filter", "sqlite", [slow])]
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # these are pytest's
    monkeypatch.setattr(bench, "_run", lambda _: measured)
    assert bench.main([]) == 0
    slow[0] = 2.0
    assert bench.main([]) == 3
    assert "missed by more than a fifth: filter, 500 names, sqlite: 2.00 ×" in capsys.readouterr().err
    assert bench.main(["--nodes", "20"]) == 0  # the marks are of 5,000


def test_without_a_floor_there_is_no_ratio() -> None:
    alone = Measured(cases(10)["names"], "filter", "sqlite", [[0.001], [0.002]])
    rows = report.rows([alone])
    assert rows[0]["ratio"] is None
    assert report.table(rows).splitlines()[2].endswith("| 1.50 | 2.00 |  |  |")


def test_the_calls_are_what_kube_scheduler_sends() -> None:
    recorded = {
        full: json.loads((ROOT / "events" / "extender" / f"filter-{kind}.json").read_bytes())
        for full, kind in ((False, "names"), (True, "full"))
    }
    for (full, sample), pod in product(recorded.items(), (PLAIN, CLAIMING, REFUSED)):
        call = json.loads(next(Calls(node_names(30), full=full, pod=pod)))
        assert list(call) == list(sample)
        assert call["Pod"].keys() == sample["Pod"].keys()
        assert call["Pod"]["spec"] == sample["Pod"]["spec"]
        assert [key for key, value in call.items() if value is None] == [
            key for key, value in sample.items() if value is None
        ]


@pytest.mark.parametrize("full", [False, True])
def test_each_call_is_for_another_pod_and_offers_every_node_in_another_order(full: bool) -> None:
    calls = Calls(node_names(500), full=full)
    first, second = extender_v1.candidates(next(calls)), extender_v1.candidates(next(calls))
    assert first.pod.metadata.uid != second.pod.metadata.uid
    assert first.names != second.names
    assert sorted(first.names) == sorted(second.names) == node_names(500)


def test_a_full_node_is_as_large_as_a_real_one() -> None:
    assert 9_500 < len(msgspec.json.encode(node("node-00007"))) < 9_900


def _descendants(pid: int) -> list[int]:
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_of_pods_a_second_only_what_misses_the_mark_by_over_a_fifth_is_an_error() -> None:
    ratios = {scheduled.NONE: 2.0, scheduled.GO: 1.0, "sqlite": 0.76, "redis": 0.74}
    told = marks.judged_rates([{"contender": name, "ratio": ratio} for name, ratio in ratios.items()])
    verdict = f"the pods a second of {scheduled.GO}, mark 0.9: not met"
    assert told == [(f"sqlite: 0.76 × {verdict}", False), (f"redis: 0.74 × {verdict}", True)]


@pytest.mark.slow
def test_starts_and_memory_are_measured_with_answers_that_are_checked(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ("--starts", "1", "--domains", "20", "--stores", "sqlite", "--json", str(figures))
    done = _finished("start", *options)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(figures.read_text())["rows"]
    assert (row["ledger"], row["domains"], row["refused"]) == ("sqlite", 20, 0)
    assert row["seconds"] > 0
    assert 0 < row["idle"] <= row["named"] <= row["full"] <= row["at_once"]
    assert "| sqlite | 20 |" in done.stdout
