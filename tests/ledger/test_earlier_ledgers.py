"""A ledger that an earlier Berth wrote is opened, holds what it held, and every verb works on it.
What it said then, in pods' events and to `berth … -o json`, it says today, word for word (tests/data)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.http.extender_v1 import BindingCall
from tests.support.builders.earlier_ledgers import DATA, STORES, Earlier, earlier_ledger
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import mended

EVERY = pytest.mark.parametrize("place", STORES, indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Earlier]:
    with earlier_ledger(tmp_path, place) as restored:
        yield restored


@EVERY
def test_it_holds_what_it_held(stage: Earlier) -> None:
    assert stage.documents() == stage.then["documents"]
    held = {
        name: {
            f"{pool}/{domain}": [count, list(units)] for (pool, domain), (count, units) in holdings.items()
        }
        for name, holdings in stage.held().items()
    }
    assert held == stage.then["held"]
    assert stage.states() == stage.then["states"]
    view = stage._ledger(stage.store).view()
    free = {pool: {name: list(share) for name, share in view.free[pool].items()} for pool in view.pools}
    assert free == stage.then["free"]


@EVERY
def test_reconcile_settles_what_was_under_way_and_finds_nothing_else(stage: Earlier) -> None:
    stage.time.now += 60
    assert mended(stage.reconcile()) == {"settled": 1}  # the reservation whose bind died
    assert {**stage.then["states"]} == {**stage.states(), "reserved": "reserved"}
    stage.check_well()


@EVERY
def test_what_is_said_of_it_is_the_same_word_for_word(stage: Earlier) -> None:
    assert _said(stage) == json.loads((DATA / "said.json").read_text())


def _said(stage: Earlier) -> dict[str, Any]:
    """Refusals by filter, by node, and bind's errors."""
    said: dict[str, Any] = {}

    def offer(name: str, *, bound_to: str = "", **asked: Any) -> BindingCall:
        call = stage.pod(name, **asked)
        said[f"filter {name}"] = stage.why(call, "n1", "n2", "n3")
        if bound_to:
            said[f"bind {name}"] = stage.bind(call, bound_to)
        return call

    offer("w-ip", ip=2)
    offer("w-ip9", ip=9)
    offer("w-seat", seat=300)
    offer("w-seat-a", namespace="team-a", seat=2)
    offer("w-k80-erc", claims="erc", k80=1)
    offer("w-k80-none", claims="nope", k80=1)
    offer("w-k80-any", claims="any", k80=1)
    offer("w-slot", slot=2)
    offer("slot-kept", slot=1)
    offer("w-rack", rack=2)
    offer("w-lic", lic=295)
    offer("w-float", float=7)
    offer("w-held", held=2)
    offer("w-nopool", nopool=1)
    offer("w-two", ip=9, seat=300, slot=2)
    offer("w-bind", bound_to="n1", ip=9)
    said["bind other uid"] = stage.bind(BindingCall("w-bind", "default", "no-such-uid", "n1"))
    offer("w-bind-seat", bound_to="n2", seat=300)
    offer("w-bind-claim", bound_to="n1", claims="erc", k80=1)
    ip = stage.specs["ip"]
    stage.pools(ip={**ip, "suspended": ["n1"]})
    offer("w-suspended", ip=1)
    said["bind w-susp2"] = stage.bind(stage.pod("w-susp2", ip=1), "n1")
    stage.pools(ip=ip)
    stage.lose_ledger()
    call = stage.pod("w-closed", ip=1)
    with pytest.raises(Exception, match="is being rebuilt") as closed:
        stage.why(call, "n1")
    said["filter w-closed"] = str(closed.value)
    said["bind w-closed"] = stage.bind(call, "n1")
    return said


@EVERY
def test_every_verb_works_on_it(stage: Earlier) -> None:
    nodes = ("n1", "n2", "n3")
    stage.claim_object("two", "k80", units=["k80-2"])
    waiting = stage.pod("new", ip=1, seat=2, lic=1, float=1, rack=1)
    assert stage.passes(waiting, *nodes) == {"n2"}  # one unit of rack a is reserved
    assert stage.scores(waiting, "n1", "n2").keys() == {"n1", "n2"}
    assert stage.bind(waiting, "n2") == ""
    assert stage.bind(stage.pod("named", claims="two", k80=1), "n2") == ""
    assert stage.of(stage.bound_call("named"), "k80") == ("n2", 1, ("k80-2",))
    assert stage.bind(stage.pod("slot-kept", slot=1), "n1") == ""  # by its name, what was kept for it
    before = stage.free("lic", "*")
    assert stage.gone(stage.bound_call("lic-1"))["released"] == 2
    assert stage.free("lic", "*") == before  # it rests for an hour
    stage.time.now += 3600
    assert stage.free("lic", "*") == (before[0] + 5, before[1])  # with the three that rested already
    stage.node_event("n3")
    stage.pools(seat={**stage.specs["seat"], "capacity": {"domains": {"*": 400}}})
    assert stage.free("seat", "*")[1] == 400
    stage.reconcile()
    stage.check_well()
    running = {name: holdings for name, holdings in stage.held().items() if stage.states()[name] == "bound"}
    stage.lose_ledger()
    assert stage.reconcile().rebuilt
    assert stage.held() == running


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("stage")
def test_the_command_line_shows_it_as_then(tmp_path: Path, place: Place) -> None:
    environment = {**os.environ, "BERTH_STORE": place.url, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    for words in (["status"], ["claims"], ["claims", "--units"]):
        program = "import sys; from berth.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, *words, "-o", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        shown = json.loads(done.stdout)
        shown["ledger"]["store"] = ""
        then = json.loads((DATA / f"{'-'.join(words).replace('---', '-')}.json").read_text())
        assert _of_then(shown, then) == then


def _of_then(shown: Any, then: Any) -> Any:
    """What is shown, without the fields that there were not then."""
    if isinstance(then, dict):
        return {name: _of_then(value, then[name]) for name, value in shown.items() if name in then}
    if isinstance(then, list) and len(then) == len(shown):
        return [_of_then(*pair) for pair in zip(shown, then, strict=True)]
    return shown
