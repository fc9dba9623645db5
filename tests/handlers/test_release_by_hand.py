"""`berth release`: a person says that nothing uses the units any more that a lost node's pods held.

What keeps them until then is in the tests of lost nodes; on a real kube-scheduler: tests/e2e.
"""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from berth.cli import main, maintenance
from berth.http import extender_v1
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

ONLY = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
POOLS = {
    "k80": {"units": {"n1": ["k80-0", "k80-1", "k80-2"], "n2": ["k80-3"]}},
    "port": {"capacity": {"perDomain": 4}, "onLostNode": "Hold"},
    "disk": {"capacity": {"perDomain": 4}, "releaseOn": "Deleted"},
    "ip": {"capacity": {"perDomain": 4}},
}


@pytest.fixture
def stage(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        monkeypatch.setattr(maintenance, "connect", lambda: found.cluster)
        monkeypatch.setenv("BERTH_STORE", place.url)
        yield found


def lose(stage: PoolsStage, *gone: extender_v1.BindingCall) -> None:
    """n1 does not answer any more, and these of its pods are deleted."""
    stage.write_node("n1", ready=False)
    for call in gone:
        stage.gone(call)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], str]:
    """The lines of standard output, and standard error."""
    assert main(["release", *arguments]) == 0, capsys.readouterr().err
    found = capsys.readouterr()
    return found.out.splitlines(), found.err


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["release", *arguments]) == 1
    found = capsys.readouterr()
    assert (found.out, found.err.count("\n")) == ("", 1)
    return found.err


def test_the_units_of_a_nodes_gone_pods_are_freed_at_once_and_those_that_live_keep_theirs(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, lives = stage.bound_pod("gone", k80=2, port=1), stage.bound_pod("lives", k80=1)
    waiter = stage.pod("waiter", k80=2)
    lose(stage, gone)
    assert stage.claims() == {"gone": ("n1", "lost"), "lives": ("n1", "bound")}
    told = [
        f"2 k80 of n1 (k80-0, k80-1), held by default/gone (UID {gone.uid})",
        f"1 port of n1, held by default/gone (UID {gone.uid})",
    ]
    keeps = "berth: pod default/lives lives, says the API server: it keeps its units\n"
    assert said(capsys, "--node", "n1", "--dry-run") == ([f"would free: {line}" for line in told], keeps)
    assert stage.states() == {"gone": "lost", "lives": "bound"}
    assert stage.woken() == set()

    freed = [f"freed: {line}" for line in told]
    assert said(capsys, "--node", "n1") == ([*freed, "pods woken: 1"], keeps)
    assert stage.states() == {"lives": "bound"}
    assert stage.woken() == {waiter.name}
    assert stage.bind(waiter, "n1") == ""
    assert stage.bind(lives, "n1") == ""
    nothing = ["nothing is held there by a pod that is gone", "pods woken: 0"]
    assert said(capsys, "--node", "n2") == (nothing, "")
    stage.check_well()


@ONLY
def test_a_pod_that_lives_keeps_its_units_whatever_a_person_says(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = stage.bound_pod("lives", k80=1)
    lose(stage)
    why = "berth: pod default/lives lives, says the API server: it keeps its units\n"
    assert failed(capsys, lives.uid) == why
    assert failed(capsys, "--pool", "k80", "--unit", "k80-0") == why
    assert stage.states() == {"lives": "bound"}


@ONLY
def test_one_pods_units_are_freed_by_its_uid_also_if_another_has_its_name_now(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = stage.bound_pod("web-0", k80=1), stage.bound_pod("web-1", k80=1)
    lose(stage, one, other)
    again = stage.bound_pod("web-0", on="n2", k80=1)
    out, _ = said(capsys, one.uid)
    assert out[0] == f"freed: 1 k80 of n1 (k80-0), held by default/web-0 (UID {one.uid})"
    held = stage._ledger(stage.store).view().claims()
    assert {claim.uid: claim.state for claim in held} == {other.uid: "lost", again.uid: "bound"}


@ONLY
def test_a_unit_is_freed_by_its_name_and_what_its_pod_held_of_other_pools_is_not(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, two = stage.bound_pod("gone", k80=1, port=1), stage.bound_pod("two", k80=2)
    lose(stage, gone, two)
    why = f"pod default/two holds k80-2 of k80 as well: free all of it, by its UID {two.uid}\n"
    assert failed(capsys, "--pool", "k80", "--unit", "k80-1") == f"berth: {why}"
    out, _ = said(capsys, "--pool", "k80", "--unit", "k80-0")
    assert out == [
        f"freed: 1 k80 of n1 (k80-0), held by default/gone (UID {gone.uid})",
        "pods woken: 0",
    ]
    assert stage.held()["gone"] == {("port", "n1"): (1, ())}
    assert stage.states() == {"gone": "lost", "two": "lost"}
    nobody = "berth: nobody holds unit k80-0 of k80 (see berth claims --units)\n"
    assert failed(capsys, "--pool", "k80", "--unit", "k80-0") == nobody


@ONLY
def test_a_finished_pods_units_are_freed_unless_its_pool_waits_for_its_deletion(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    call = stage.bound_pod("job", k80=1, disk=1)
    lose(stage)
    stage.finished(call)
    assert stage.states() == {"job": "bound"}
    out, _ = said(capsys, call.uid)
    assert out[0] == f"freed: 1 k80 of n1 (k80-0), held by default/job (UID {call.uid})"
    assert stage.held()["job"] == {("disk", "n1"): (1, ())}
    assert failed(capsys, call.uid) == (
        "berth: pod default/job has finished, and its units are free when it is deleted\n"
    )
    stage.check_well()


@ONLY
def test_a_poolclaim_is_available_again_and_remembers_what_it_had(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.claim_object("k80-erc", "k80")
    call = stage.bound_pod("gone", claims="k80-erc", k80=1)
    lose(stage, call)
    assert stage.status("k80-erc")["phase"] == "Bound"
    out, _ = said(capsys, "--node", "n1")
    assert out[0].startswith("freed: 1 k80 of n1 (k80-0), held by default/gone")
    assert stage.status("k80-erc") == {"phase": "Available"}


@ONLY
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nobody",), "no pod with UID nobody holds units (see berth claims -o json)"),
        (("--pool", "k80", "--unit", "k80-9"), "nobody holds unit k80-9 of k80"),
    ],
)
def test_what_is_asked_must_be_clear_and_held(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert stage.states() == {}
    assert why in failed(capsys, *arguments)


@ONLY
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "say which: POD_UID, or --node NODE, or --pool POOL with --unit NAME"),
        (("u", "--node", "n1"), "say which: POD_UID"),
        (("--pool", "k80"), "say which: POD_UID"),
        (("--unit", "k80-0"), "say which: POD_UID"),
        (("u", "--pool", "k80"), "say which: POD_UID"),
    ],
)
def test_what_does_not_say_which_is_wrong_usage(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert stage.states() == {}
    assert main(["release", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"berth: {why}")


@ONLY
def test_what_is_freed_is_told_to_a_program_too(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = stage.bound_pod("gone", k80=2)
    lose(stage, gone)
    pod = {"namespace": "default", "pod": "gone", "uid": gone.uid}
    freed = [{**pod, "pool": "k80", "domain": "n1", "count": 2, "units": ["k80-0", "k80-1"]}]
    out, _ = said(capsys, "--node", "n1", "--dry-run", "-o", "json")
    assert json.loads("\n".join(out)) == {"dryRun": True, "freed": freed}
    assert stage.states() == {"gone": "lost"}
    out, remark = said(capsys, "--node", "n1", "-o", "yaml")
    assert yaml.safe_load("\n".join(out)) == {"dryRun": False, "freed": freed}
    assert remark == "berth: pods woken: 0\n"
    assert stage.states() == {}


@ONLY
def test_external_use_is_not_freed_so(stage: PoolsStage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.pools(seat={"scope": "Cluster", "capacity": {"perDomain": 9}, "external": 3})
    why = "berth: that is use outside the cluster: say berth external seat N\n"
    assert failed(capsys, "external:seat") == why
    assert stage.free("seat", "*") == (6, 9)


class _Answer(io.StringIO):
    """A terminal on which a person types this."""

    def isatty(self) -> bool:
        return True


@ONLY
@pytest.mark.parametrize(
    ("answer", "frees"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_on_a_terminal_a_person_is_asked_and_all_that_is_not_yes_is_no(
    stage: PoolsStage,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    frees: bool,
) -> None:
    gone = stage.bound_pod("gone", k80=2, port=1)
    lose(stage, gone)
    monkeypatch.setattr(sys, "stdin", _Answer(answer))
    assert main(["release", gone.uid, "-o", "json"]) == (0 if frees else 1)
    found = capsys.readouterr()
    first, second, asked = found.err.split("\n", 2)
    assert first.startswith("would free: 2 k80 of n1 (k80-0, k80-1), held by default/gone")
    assert second.startswith("would free: 1 port of n1")
    question = "berth: nothing may use them any more. Free 2 units of k80 and 1 unit of port? [y/N] "
    assert asked == question + ("berth: pods woken: 0\n" if frees else "berth: nothing was freed\n")
    assert len(json.loads(found.out)["freed"]) == 2 if frees else found.out == ""
    assert stage.states() == ({} if frees else {"gone": "lost"})


@ONLY
@pytest.mark.parametrize("option", ["-y", "--yes", "--dry-run"])
def test_on_a_terminal_who_says_yes_before_is_not_asked_nor_who_frees_nothing(
    stage: PoolsStage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    gone = stage.bound_pod("gone", k80=1)
    lose(stage, gone)
    monkeypatch.setattr(sys, "stdin", _Answer("n\n"))
    assert said(capsys, gone.uid, option)[1] == ""
    assert stage.states() == ({"gone": "lost"} if option == "--dry-run" else {})
    assert said(capsys, "--node", "n2", *([] if option == "--dry-run" else [option]))[1] == ""
