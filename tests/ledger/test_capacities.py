"""What claims draw from: capacities that fall, go and come back under their holders, and Pools.
Which capacity a node should have is policy's; here it is only set."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from berth.api.pool import Capacity, Pool, PoolSpec
from berth.errors import RefusedError
from berth.ledger.capacity import CapacityChange
from berth.ledger.ledger import Ledger
from tests.support.builders.ledgers import (
    FaultyStore,
    claim,
    drop_notes,
    free,
    held,
    ledger_on,
    resize,
    two_pools,
)
from tests.support.builders.places import Place


@pytest.fixture
def store(place: Place) -> Iterator[FaultyStore]:
    with closing(two_pools(place.url)) as made:
        yield FaultyStore(made)


@pytest.fixture
def ledger(store: FaultyStore) -> Ledger:
    return ledger_on(store)


def test_capacity_below_use_keeps_holders_and_gives_nothing_new(ledger: Ledger) -> None:
    ledger.reserve(claim("a", ip=2))
    assert resize(ledger, {("ip", "n1"): 1}) == [CapacityChange("ip", "n1", 2, 1)]
    assert ledger.view().free["ip"]["n1"] == (0, 1)
    assert ledger.reserve(claim("a", "n1", "a2", ip=2)).attempt == "a2"
    with pytest.raises(RefusedError, match=r"^ip: 0 of 1 free, 1 asked$"):
        ledger.reserve(claim("b"))
    ledger.release("a")
    assert ledger.reserve(claim("b")).uid == "b"


def test_a_dropped_capacity_keeps_its_holders_and_goes_with_the_last(ledger: Ledger) -> None:
    mine = ledger.reserve(claim("a"))
    assert [change.gained for change in resize(ledger, {("ip", "n1"): None})] == [0]
    ledger.confirm(mine)
    with pytest.raises(RefusedError, match=r"^ip: none on this node$"):
        ledger.reserve(claim("b"))
    ledger.release("a")
    drop_notes(ledger)
    assert set(ledger.view().domains["ip"]) == {"n2"}


def test_a_capacity_that_comes_back_finds_its_holders(ledger: Ledger) -> None:
    ledger.reserve(claim("a"))
    resize(ledger, {("ip", "n1"): None})
    assert [change.gained for change in resize(ledger, {("ip", "n1"): 2})] == [2]
    assert free(ledger) == 1


def test_capacities_that_are_so_already_are_no_changes_and_no_commit(
    ledger: Ledger, store: FaultyStore
) -> None:
    store.faults = ["before"]
    assert resize(ledger, {("ip", "n1"): 2, ("ip", "n9"): None}) == []
    assert store.faults == ["before"]


def test_many_capacities_at_once_also_under_another_writer(ledger: Ledger, store: FaultyStore) -> None:
    store.faults = ["", "conflict", "conflict"]
    wanted: dict[tuple[str, str], int | None] = {("ip", f"m{i}"): 1 for i in range(250)}
    assert len(resize(ledger, wanted)) == 250
    assert resize(ledger, wanted) == []


def test_applying_pools_adds_changes_and_removes(ledger: Ledger) -> None:
    def pool(name: str, units: int) -> Pool:
        return Pool(name, f"berth.dev/{name}", PoolSpec(capacity=Capacity(per_domain=units)))

    assert ledger.apply_pools({"ip": pool("ip", 1), "seat": pool("seat", 1)}) == ["ip", "seat"]
    assert ledger.apply_pools({"ip": pool("ip", 1), "seat": pool("seat", 1)}) == []
    ledger.reserve(claim("a"))
    assert ledger.apply_pools({"ip": pool("ip", 2), "gpu": pool("gpu", 1)}) == ["gpu", "ip", "seat"]
    view = ledger.view()
    assert set(view.pools) == {"ip", "gpu"}
    assert set(view.resources) == {"berth.dev/ip", "berth.dev/gpu"}
    assert held(ledger) == {"a": ("reserved", "n1")}
