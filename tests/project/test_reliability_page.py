"""docs/reliability.md has every fault on every store, as the code has them now, and none that failed.

That its figures are of this commit is not checked: `make chaos` takes too long to be run for each.
"""

from tests.chaos.faults import FAULTS, faults_of
from tests.chaos.page import BY_HAND, PAGE, cells, page
from tests.chaos.store_faults import STORES
from tests.chaos.world import LONG


def test_the_table_has_every_fault_on_every_store_and_no_other() -> None:
    assert set(cells(PAGE.read_text())) == {(fault, store) for fault in FAULTS for store in STORES}


def test_every_fault_that_can_befall_a_store_has_passed_there() -> None:
    found = cells(PAGE.read_text())
    wanted = [(fault, store) for store in STORES for fault in faults_of(store)]
    assert {
        which: found.get(which) for which in wanted if not found.get(which, "").startswith("passed:")
    } == {}


def test_the_page_is_of_the_full_form() -> None:
    found = " ".join(PAGE.read_text().split())
    assert f"Store down, for {LONG.outage:g} s" in found
    assert f"lost, for {LONG.silence:g} s" in found
    assert f"{LONG.pods} pods at any time" in found


def test_where_there_is_no_such_fault_the_table_says_why() -> None:
    found = cells(PAGE.read_text())
    for store, each in STORES.items():
        for fault, why in each.why_not.items():
            assert found[fault, store] == f"– ({why})"


def test_the_part_about_knative_stays_when_the_page_is_written_anew() -> None:
    before = PAGE.read_text()
    _, heading, by_hand = before.partition(BY_HAND)
    assert heading
    anew = page({}, LONG, seed=1, seconds=60, before=before)
    assert anew.endswith(heading + by_hand)
    assert anew.count(BY_HAND) == 1
    assert set(cells(anew)) == set(cells(before))
