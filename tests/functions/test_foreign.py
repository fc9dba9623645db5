"""What the events of other schedulers' pods cost release, in miniature: see `make bench BENCH_ARGS=foreign`.
Counted are the store's and the API server's own requests, not the function's word."""

import pytest

from tests.bench import foreign


@pytest.mark.usefixtures("redis_installed")
def test_events_of_pods_that_hold_nothing_cost_no_call_of_the_store_and_none_of_the_api_server() -> None:
    rows = foreign.measure(100)
    plain, device = rows
    assert (plain["events"], plain["store_calls"], plain["api_calls"]) == (100, 0, 0)
    # The counters do count: there may be a Pool of that resource, and each fourth event is a deletion.
    assert (device["events"], device["api_calls"]) == (100, 25)
    assert device["store_calls"] == 3 * 25
    assert len(foreign.table(rows).splitlines()) == 2 + 2
