"""The journal through bind, release and reconcile on each store: use between ticks, ticks that die, a ledger
that is lost. Time stands still but where a test moves it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from berth.controller.usage import SETTLED_SECONDS, uses_of
from berth.ledger.keys import COUNTED, usage_key
from berth.ledger.usage import DayUse, NamespaceUse
from berth.stores.base import EPOCH
from tests.support.builders.damage import GARBAGE, write
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.places import Place
from tests.support.builders.stage import KilledError, Stage, staged
from tests.support.builders.steps import each_step

_DAY = 1_700_000_000.0  # before any pod here is made, as its API server says


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as stage:
        stage.time.now = _DAY
        stage.new_ledger()
        yield stage


def _days(stage: Stage) -> dict[str, DayUse]:
    pages = ledger_on(stage.store, time=stage.time, while_closed=True).journal().pages()
    return {day: use for page in pages.values() for day, use in page.days.items()}


def _use(stage: Stage) -> NamespaceUse:
    total = DayUse()
    for use in _days(stage).values():
        total = total.plus(use)
    return total.namespaces.get("default", NamespaceUse())


def _settle(stage: Stage) -> None:
    """Reconcile when all until now is counted."""
    stage.time.now += SETTLED_SECONDS
    stage.reconcile()


def test_a_pod_that_began_and_ended_between_two_ticks_is_counted(stage: Stage) -> None:
    stage.time.now += 10
    call = stage.add_pod()
    assert stage.bind(call) == ""
    stage.time.now += 12.345
    stage.delete_with_event(call)
    stage.time.now += 20
    _settle(stage)
    assert _use(stage) == NamespaceUse(12_345, 0, 1)


def test_a_pod_that_asks_for_more_than_there_can_be_waits_for_one_unit_more_and_not_for_all(
    stage: Stage,
) -> None:
    """Any user may write any number: one such pod made all sums of the journal worthless."""
    calls = [stage.add_pod(units) for units in (str(2**63 - 1), "2", "1")]
    pods = [stage.cluster.pod(call.namespace, call.name) for call in calls]
    use = uses_of(stage.ledger().view(), list(filter(None, pods)), ("berth",), _DAY)["ip"]
    assert [span.units for span in use.waited] == [2, 2, 1]
    assert use.capacity == 2


def test_a_pod_is_counted_across_ticks_once_however_many_there_are(stage: Stage) -> None:
    call = stage.add_pod()
    assert stage.bind(call) == ""
    for seconds in (1.5, 0.0, 60.0, 7.25, 600.0):
        stage.time.now += seconds
        stage.reconcile()
    stage.delete_with_event(call)
    end = stage.time.now
    _settle(stage)
    _settle(stage)
    assert _use(stage).used == round((end - _DAY) * 1000)


def test_notes_go_once_they_are_counted(stage: Stage) -> None:
    call = stage.add_pod()
    assert stage.bind(call) == ""
    stage.time.now += 3
    stage.delete_with_event(call)
    stage.reconcile()
    assert ledger_on(stage.store, time=stage.time).view().document("ip", "n1").ended
    _settle(stage)
    assert not ledger_on(stage.store, time=stage.time).view().document("ip", "n1").ended
    assert _use(stage).used == 3000


@pytest.mark.long
def test_a_tick_that_dies_anywhere_loses_and_doubles_nothing(stage: Stage) -> None:
    def die() -> None:
        raise KilledError

    total = 0
    for step in each_step(every=3):
        stage.clear()
        write(stage.store, COUNTED, None)
        write(stage.store, usage_key("2023-11", "ip"), None)
        began = stage.time.now
        call, other = stage.add_pod(), stage.add_pod()
        assert stage.bind(call) == stage.bind(other, "n2") == ""
        stage.time.now += 30
        stage.delete_with_event(call)
        stage.time.now += 30
        try:
            stage.reconcile(step.doing(die))
        except KilledError:
            total += 1
        stage.time.now += 2
        end = stage.time.now
        _settle(stage)
        assert _use(stage).used == 30_000 + round((end - began) * 1000)
    assert total > 3


def test_a_ledger_without_its_epoch_goes_on_with_its_journal(stage: Stage) -> None:
    call = stage.add_pod()
    assert stage.bind(call) == ""
    stage.time.now += 100
    stage.reconcile()
    write(stage.store, EPOCH, None)
    stage.time.now += 50
    stage.reconcile()
    stage.time.now += 50
    stage.delete_with_event(call)
    _settle(stage)
    assert _use(stage).used == 200_000


def test_of_a_store_that_was_emptied_running_pods_come_back_from_when_they_were_bound(stage: Stage) -> None:
    call = stage.add_pod()
    assert stage.bind(call) == ""
    bound_at = _at(stage, call.name)
    stage.time.now = bound_at + 1000
    stage.lose_ledger()
    stage.reconcile()
    _settle(stage)
    assert _use(stage).used == 1_000_000


def test_a_page_that_can_not_be_read_stops_no_other_and_is_told(stage: Stage) -> None:
    key = usage_key("2023-11", "ip")
    stage.time.now += 60
    stage.reconcile()
    write(stage.store, key, GARBAGE)
    report = stage.reconcile()
    assert [problem for problem in report.problems if key in problem]
    assert stage.store.read([key])[key].body == GARBAGE


def test_months_beyond_those_that_are_kept_go(stage: Stage) -> None:
    stage.settings = replace(stage.settings, usage_months=2)
    stage.reconcile()
    old, kept = usage_key("2023-09", "gone"), usage_key("2023-10", "gone")
    for key in (old, kept):
        write(stage.store, key, b'{"until":1}')
    stage.reconcile()
    assert stage.store.read([old, kept]).keys() == {kept}


def _at(stage: Stage, name: str) -> float:
    pod = stage.cluster.pod("default", name)
    assert pod is not None
    assert pod.bound_at is not None
    return pod.bound_at
