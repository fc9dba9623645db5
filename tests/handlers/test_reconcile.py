"""One reconcile makes the ledger equal to the cluster, from whatever state, and says what it mended.
On the stand-in API server; with crashes in between in test_bind_interleavings.py."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from berth.controller.settle import BIND_SECONDS
from berth.errors import ClusterUnavailableError, ContentionError
from berth.http.extender_v1 import BindingCall
from berth.scheduling.demand import might_ask
from tests.support.builders.ledgers import claim as a_claim
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.places import Place
from tests.support.builders.stage import DOWN, KilledError, Stage, staged
from tests.support.builders.steps import each_step


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as found:
        yield found


def test_when_all_is_well_nothing_is_mended(stage: Stage) -> None:
    assert stage.bind(stage.add_pod()) == ""
    report = stage.reconcile()
    assert (report.released, report.settled, report.adopted, report.capacities) == (0, 0, 0, 0)
    assert (report.rebuilt, report.pools, report.problems) == (False, [], [])


def test_a_file_that_was_emptied_withdraws_no_pool_and_is_told(stage: Stage) -> None:
    assert stage.bind(stage.add_pod()) == ""
    file = stage.settings.pools
    assert file is not None
    file.write_text("# to be written\n")
    report = stage.reconcile()
    assert report.problems == [f"{file} holds no Pool; to withdraw the last one, set its capacity to 0"]
    assert (report.released, report.capacities, report.pools) == (0, 0, [])


def test_what_it_mended_and_left_is_written_down_for_people(stage: Stage) -> None:
    ledger = ledger_on(stage.store)
    opened = ledger.last_reconcile()
    assert opened is not None
    assert opened.mended["rebuilt"] == 1
    gone = stage.add_pod()
    assert stage.bind(gone) == ""
    stage.delete(gone)
    file = stage.settings.pools
    assert file is not None
    file.write_text("# to be written\n")
    report = stage.reconcile()
    last = ledger.last_reconcile()
    assert last is not None
    assert (last.mended["released"], last.problems) == (1, tuple(report.problems))
    first = last.at
    stage.time.now += 60
    stage.reconcile()
    last = ledger.last_reconcile()
    assert last is not None
    assert last.mended["released"] == 0
    assert last.at >= first + 60


def test_claims_of_pods_that_went_unseen_are_released(stage: Stage) -> None:
    gone, finished = stage.add_pod(), stage.add_pod()
    assert stage.bind(gone) == stage.bind(finished, "n2") == ""
    stage.delete(gone)
    stage.finish(finished)
    assert stage.reconcile().released == 2
    assert stage.claims() == {}


@pytest.mark.parametrize(("age", "left"), [(BIND_SECONDS, 1), (BIND_SECONDS + 0.001, 0)])
def test_a_reservation_waits_until_its_bind_must_be_over(stage: Stage, age: float, left: int) -> None:
    call = stage.add_pod()
    _reserved_and_killed(stage, call)
    stage.time.now += age
    assert stage.reconcile().settled == 1 - left
    assert len(stage.claims()) == left


def test_a_bound_pod_whose_bind_died_before_confirm_is_confirmed(stage: Stage) -> None:
    call = stage.add_pod()
    pod = stage.cluster.pod("default", call.name)
    assert pod is not None
    ledger_on(stage.store, time=stage.time).reserve(stage.claim(pod, "n1"))
    stage.cluster.bind(pod, "n1", {}, 5.0)
    assert stage.reconcile().settled == 1
    assert stage.claims() == {call.name: ("n1", "bound")}


def test_running_pods_without_a_claim_are_adopted_also_beyond_capacity(stage: Stage) -> None:
    calls = [stage.add_pod(), stage.add_pod()]
    for call in calls:
        pod = stage.cluster.pod("default", call.name)
        assert pod is not None
        stage.cluster.bind(pod, "n1", {}, 5.0)
    assert stage.reconcile().adopted == 2
    assert stage.claims() == {call.name: ("n1", "bound") for call in calls}
    assert stage.bind(stage.add_pod()) == "ip: 0 of 1 free, 1 asked"


def test_a_running_pod_keeps_the_claim_that_it_has_whatever_it_asks_for(stage: Stage) -> None:
    """Of those that ask for nothing only these are kept of the list."""
    path, spec = "/api/v1/namespaces/default/pods", {"containers": [{"name": "main", "image": "x"}]}
    for name in ("plain", "other"):
        stage.cluster.create(path, {"metadata": {"name": name}, "spec": spec})
    pod = stage.cluster.pod("default", "plain")
    assert pod is not None
    assert not might_ask(pod)
    stage.cluster.bind(pod, "n1", {}, 5.0)
    wanted = replace(a_claim(pod.metadata.uid), namespace="default", name="plain")
    ledger_on(stage.store, time=stage.time).adopt(wanted)
    for _ in range(2):
        report = stage.reconcile()
        assert (report.released, report.settled, report.adopted, report.problems) == (0, 0, 0, [])
        assert stage.claims() == {"plain": ("n1", "bound")}
    stage.cluster.delete(f"{path}/plain")
    assert stage.reconcile().released == 1
    assert stage.claims() == {}


def test_a_users_annotation_is_no_claim(stage: Stage) -> None:
    stage.add_pod(units="0", annotations={"berth.dev/allocated": '[{"pool":"ip","domain":"n1","count":1}]'})
    assert stage.reconcile().adopted == 0
    assert stage.bind(stage.add_pod()) == ""


def test_a_node_that_is_gone_has_no_capacity_and_its_claims_go_with_their_pods(stage: Stage) -> None:
    call = stage.add_pod()
    assert stage.bind(call) == ""
    stage.cluster.delete("/api/v1/nodes/n1")
    assert stage.reconcile().capacities == 1
    assert stage.claims() == {call.name: ("n1", "bound")}
    assert stage.bind(stage.add_pod()) == "ip: none on this node"
    stage.delete(call)
    stage.reconcile()
    assert stage.claims() == {}


def test_a_wrong_pool_document_is_reported_and_changes_nothing(stage: Stage) -> None:
    call = stage.add_pod()
    assert stage.bind(call) == ""
    pools = stage.settings.pools
    assert pools is not None
    pools.write_text(pools.read_text().replace("perDomain: 1", "perDomain: one"))
    report = stage.reconcile()
    expected = "spec.capacity.perDomain must be a whole number, not the text 'one'"
    assert report.problems == [f"{pools}: Pool ip: {expected}"]
    assert stage.claims() == {call.name: ("n1", "bound")}


def test_a_pool_that_counts_another_resource_now_frees_nothing_of_running_pods(stage: Stage) -> None:
    pools = stage.settings.pools
    assert pools is not None
    text = pools.read_text()

    def count(resource: str) -> None:
        pools.write_text(text.replace("spec: {", f"spec: {{resource: {resource}, "))
        stage.reconcile()

    count("example.com/ip")
    holder = stage.add_pod("0", other="example.com/ip")
    assert stage.bind(holder) == ""
    count("example.com/address")
    assert stage.bind(stage.add_pod("0", other="example.com/address")) == "ip: 0 of 1 free, 1 asked"
    assert stage.claims() == {holder.name: ("n1", "bound")}


def test_a_lost_ledger_gives_nothing_until_it_is_rebuilt(stage: Stage) -> None:
    holder, waiter = stage.add_pod(), stage.add_pod()
    assert stage.bind(holder) == ""
    stage.lose_ledger()
    assert stage.bind(waiter).startswith("berth's ledger is being rebuilt")
    report = stage.reconcile()
    assert (report.rebuilt, report.adopted) == (True, 1)
    assert stage.bind(waiter) == "ip: 0 of 1 free, 1 asked"


def test_a_ledger_that_is_lost_again_while_it_is_rebuilt_stays_closed(stage: Stage) -> None:
    holder = stage.add_pod()
    assert stage.bind(holder) == ""
    stage.lose_ledger()
    steps = 0

    def lose_it_again_late() -> None:
        nonlocal steps
        steps += 1
        if steps == 30:  # capacities and claims are in it by then, the epoch is not
            stage.lose_ledger()

    with pytest.raises(ContentionError, match="lost again"):
        stage.reconcile(step=lose_it_again_late)
    assert stage.bind(stage.add_pod()).startswith("berth's ledger is being rebuilt")
    assert stage.reconcile().rebuilt


@pytest.mark.slow
@pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)  # the steps are reconcile's own
@pytest.mark.parametrize(
    "reserved", [True, False], ids=["bind died before confirm", "bound by somebody else"]
)
@pytest.mark.long
def test_a_pod_that_goes_with_its_event_at_any_step_of_reconcile_leaves_no_claim(
    stage: Stage, reserved: bool
) -> None:
    for step in each_step():
        stage.clear()
        call = stage.add_pod()
        pod = stage.cluster.pod("default", call.name)
        assert pod is not None
        if reserved:
            ledger_on(stage.store, time=stage.time).reserve(stage.claim(pod, "n2"))
        stage.cluster.bind(pod, "n1", {}, 5.0)
        stage.reconcile(step=step.doing(partial(stage.delete_with_event, call)))
        left = {name: (node, "bound") for name, node in stage.bound().items()}
        assert stage.claims() == left, f"step {step.number}"


def test_a_confirmed_claim_of_a_living_pod_that_is_unbound_again_is_settled(stage: Stage) -> None:
    """As after etcd was restored to a time before the Binding."""
    call = stage.add_pod()
    pod = stage.cluster.pod("default", call.name)
    assert pod is not None
    ledger = ledger_on(stage.store, time=stage.time)
    ledger.confirm(ledger.reserve(stage.claim(pod, "n1")))
    assert stage.bind(call, "n2") == ""
    assert stage.claims() == {call.name: ("n2", "bound")}


def test_a_dead_binds_reservation_stays_while_its_pod_can_not_be_written_to_and_the_others_are_settled(
    stage: Stage,
) -> None:
    stuck, other = stage.add_pod(), stage.add_pod()
    ledger = ledger_on(stage.store, time=stage.time)
    for call, node in ((stuck, "n1"), (other, "n2")):
        pod = stage.cluster.pod("default", call.name)
        assert pod is not None
        ledger.reserve(stage.claim(pod, node))
    stage.time.now += 60
    with stage.unwritable(stuck.name):
        report = stage.reconcile()
        assert report.settled == 1
        assert f"the claim of pod default/{stuck.name} was not settled: {DOWN}" in report.problems
        assert stage.claims() == {stuck.name: ("n1", "reserved")}
    assert stage.reconcile().settled == 1
    assert stage.claims() == {}


def test_a_reconcile_ends_when_the_api_server_is_away(stage: Stage) -> None:
    call = stage.add_pod()
    _reserved_and_killed(stage, call)
    stage.time.now += 60
    with (
        stage.unwritable(call.name),
        mock.patch.object(stage.cluster, "pod", side_effect=DOWN),
        pytest.raises(ClusterUnavailableError),
    ):
        stage.reconcile()
    assert stage.claims() == {call.name: ("n1", "reserved")}


def _reserved_and_killed(stage: Stage, call: BindingCall) -> None:
    def step() -> None:
        if stage.claims():
            raise KilledError

    with pytest.raises(KilledError):
        stage.bind(call, step=step)
