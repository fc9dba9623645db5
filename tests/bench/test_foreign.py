"""What the events of other schedulers' pods cost release, in miniature: see `make bench BENCH_ARGS=foreign`.
Counted are the store's and the API server's own requests, not the function's word."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from berth.stores import open_store
from tests.bench import foreign
from tests.bench.contender_processes import BenchError
from tests.bench.keeper import fill, hold
from tests.bench.witness import held

pytestmark = pytest.mark.long


@pytest.mark.usefixtures("redis_installed")
def test_events_of_pods_that_hold_nothing_cost_no_call_of_the_store_and_none_of_the_api_server() -> None:
    rows = foreign.measure(100)
    plain, device = rows
    assert (plain["events"], plain["store_calls"], plain["api_calls"]) == (100, 0, 0)
    # The counters do count: there may be a Pool of that resource, and each fourth event is a deletion.
    assert (device["events"], device["api_calls"]) == (100, 25)
    assert device["store_calls"] == 2 * 25
    assert len(foreign.table(rows).splitlines()) == 2 + 2


def test_an_event_that_freed_another_unit_than_it_should_or_none_ends_the_bench(tmp_path: Path) -> None:
    names = ["node-00001", "node-00002"]
    keys = [f"domain/underlay-ip/{name}" for name in names]
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
        fill(store, names)
        before = held(store, keys)
        foreign.check(store, before, "nothing")
        with pytest.raises(BenchError, match="after this 0 claims are gone that should stand, and 1 stand"):
            foreign.check(store, before - Counter(keys[:1]), "this")
        hold(store, {names[0]: before[keys[0]] - 1})
        foreign.check(store, before - Counter(keys[:1]), "this")
        with pytest.raises(BenchError, match="after this 1 claims are gone that should stand, and 1 stand"):
            foreign.check(store, before - Counter(keys[1:]), "this")
