"""Scores: 0 to 10, Spread where most is free, Pack where least is."""

from hypothesis import given
from hypothesis import strategies as st

from berth.policy.free import Free
from berth.policy.score import scores
from tests.support.objects import pool

SPREAD = {"underlay-ip": pool()}
PACK = {"underlay-ip": pool(score="Pack")}
ONE = {"underlay-ip": 1}
FREE = {"underlay-ip": Free({"n0": (0, 10), "n1": (1, 10), "n5": (5, 10), "n10": (10, 10)})}
NAMES = ["n5", "n0", "n10", "n1"]

shares = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(20)]),
    st.integers(0, 30).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size))),
)


def test_spread_prefers_the_node_with_most_free() -> None:
    assert scores(NAMES, ONE, FREE, SPREAD) == [5, 0, 10, 1]


def test_pack_is_the_reverse() -> None:
    assert scores(NAMES, ONE, FREE, PACK) == [5, 10, 0, 9]


def test_a_share_counts_and_not_a_number_of_units() -> None:
    free = {"underlay-ip": Free({"small": (4, 4), "large": (50, 100)})}
    assert scores(["small", "large"], ONE, free, SPREAD) == [10, 5]


def test_a_pod_that_asks_nothing_finds_all_nodes_alike() -> None:
    assert scores(NAMES, {}, FREE, SPREAD) == [0] * len(NAMES)


def test_a_node_without_units_scores_nothing_under_either_rule() -> None:
    free = {"underlay-ip": Free({"none": (0, 0)})}
    for rule in (SPREAD, PACK):
        assert scores(["none", "absent"], ONE, free, rule) == [0, 0]


def test_several_pools_count_alike_each_by_its_own_rule() -> None:
    pools = {"underlay-ip": pool(), "k80": pool("k80", score="Pack")}
    both = Free({"n1": (10, 10), "n2": (0, 10)})
    free = {"underlay-ip": both, "k80": both}
    demand = {"underlay-ip": 1, "k80": 1}
    assert scores(["n1", "n2"], demand, free, pools) == [5, 5]
    assert scores(["n1"], demand, {**free, "k80": Free({"n1": (2, 10)})}, pools) == [9]


@given(st.lists(st.sampled_from([f"n{number}" for number in range(20)])), shares, st.booleans())
def test_every_offered_node_has_a_score_from_0_to_10_in_the_order_offered(
    names: list[str], free: dict[str, tuple[int, int]], pack: bool
) -> None:
    found = scores(names, ONE, {"underlay-ip": Free(free)}, PACK if pack else SPREAD)
    assert len(found) == len(names)
    assert all(0 <= score <= 10 for score in found)


@given(shares)
def test_more_free_is_never_worse_under_spread_and_never_better_under_pack(
    free: dict[str, tuple[int, int]],
) -> None:
    have = {name: found[0] / found[1] for name, found in free.items() if found[1]}
    ordered = sorted(have, key=lambda name: have[name])
    spread = scores(ordered, ONE, {"underlay-ip": Free(free)}, SPREAD)
    pack = scores(ordered, ONE, {"underlay-ip": Free(free)}, PACK)
    assert spread == sorted(spread)
    assert pack == sorted(pack, reverse=True)
