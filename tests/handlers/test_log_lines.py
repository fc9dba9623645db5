"""Each function's lines of the log on a stand-in cluster: one for each decision that changes something."""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from berth.controller import adopt
from berth.handlers import filter as filter_verb
from berth.handlers import preempt, prioritize, reconcile
from berth.http.endpoint import Endpoint, respond
from berth.ledger.ledger import Ledger
from berth.settings import Settings
from berth.telemetry.calls import Call
from tests.support.builders.objects import EVENTS
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged
from tests.support.log_lines import LogLines, log_lines

POOLS = {"ip": {"capacity": {"perDomain": 1}}}


pytestmark = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS, {"n1": {}, "n2": {}}) as staged:
        yield staged


@pytest.fixture
def lines() -> Iterator[LogLines]:
    with log_lines(logging.INFO) as kept:
        yield kept


def test_bind_logs_who_was_bound_and_who_was_refused(stage: PoolsStage, lines: LogLines) -> None:
    first, second = stage.pod(ip=1), stage.pod(ip=1)
    with Call("bind"):
        assert stage.bind(first, "n1") == ""
    with Call("bind"):
        assert stage.bind(second, "n1") != ""
    bound, refused = lines.decided()
    who = {"level": "INFO", "logger": "berth.bind", "function": "bind", "node": "n1"}
    assert bound == {
        **who,
        "pod": f"default/{first.name}",
        "uid": first.uid,
        "pool": "ip",
        "units": 1,
        "decision": "bound",
    }
    assert refused == {**who, "pod": f"default/{second.name}", "uid": second.uid, "decision": "refused"}


@pytest.mark.parametrize(("version", "count"), [((3, 51, 2), 1), ((3, 51, 3), 0)])
def test_reconcile_logs_at_its_start_a_sqlite_that_can_damage_the_ledger(
    stage: PoolsStage,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: LogLines,
    version: tuple[int, int, int],
    count: int,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(stage.api.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    reconcile.endpoint(Settings(store=place.url))
    said = [line for line in lines.all if "can damage a file that two programs write" in line["message"]]
    assert len(said) == count


def test_reconcile_logs_each_claim_that_it_releases_or_adopts(stage: PoolsStage, lines: LogLines) -> None:
    held = stage.bound_pod(on="n1", ip=1)
    stage.delete(held)
    lines.decided()
    stage.reconcile()
    (released,) = lines.decided()
    assert (released["decision"], released["uid"], released["node"]) == ("released", held.uid, "n1")
    assert (released["pool"], released["units"], released["logger"]) == ("ip", 1, "berth.claims")
    again = stage.bound_pod(on="n2", ip=1)
    lines.decided()
    stage.lose_ledger()
    stage.reconcile()
    (adopted,) = lines.decided()
    assert (adopted["decision"], adopted["uid"], adopted["pool"]) == ("adopted", again.uid, "ip")


def test_after_a_lost_ledger_not_all_of_a_large_cluster_s_claims_get_a_line(
    stage: PoolsStage, lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopt, "MOST_TOLD", 1)
    for node in ("n1", "n2"):
        stage.bound_pod(on=node, ip=1)
    stage.lose_ledger()
    lines.decided()
    stage.reconcile()
    messages = [line["message"] for line in lines.all if line["logger"] == "berth.claims"]
    assert messages[1:] == ["1 more claims are set to what their pods hold"]
    assert [line["decision"] for line in lines.decided()] == ["adopted"]


@pytest.mark.parametrize(
    ("verb", "decision", "counts"),
    [
        (filter_verb.endpoint, "filtered", {"offered", "refused"}),
        (prioritize.endpoint, "prioritized", {"offered"}),
        (preempt.endpoint, "preempted", {"offered", "fitting"}),
    ],
)
def test_a_verb_that_changes_nothing_logs_a_line_at_debug_alone(
    stage: PoolsStage, lines: LogLines, verb: Callable[..., Endpoint], decision: str, counts: set[str]
) -> None:
    endpoint = verb(stage.settings, Ledger(stage.store))
    body = (EVENTS / "extender" / f"{endpoint.name}-names.json").read_bytes()
    pod = json.loads(body)["Pod"]["metadata"]

    def ask() -> list[dict[str, Any]]:
        assert respond(endpoint, "POST", "/", {}, BytesIO(body)).status == 200
        return lines.decided()

    assert ask() == []
    logging.getLogger("berth").setLevel(logging.DEBUG)
    (told,) = ask()
    assert (told["level"], told["function"], told["decision"]) == ("DEBUG", endpoint.name, decision)
    assert (told["pod"], told["uid"]) == (f"{pod['namespace']}/{pod['name']}", pod["uid"])
    assert counts <= told.keys()


def test_release_says_in_its_call_s_line_whose_units_it_freed(stage: PoolsStage, lines: LogLines) -> None:
    held = stage.bound_pod(on="n1", ip=1)
    pod = stage.get(held.name)
    stage.delete(held)
    with Call("release") as call:
        stage.event_of(pod)
    about = {"pod": pod.label, "uid": held.uid, "node": "n1", "pool": "ip", "units": 1}
    assert call.facts == about
    assert lines.decided()[1:] == []  # the one is bind's
