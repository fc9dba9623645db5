"""Scores: 0 to 10, Spread where most is free, Pack where least is, Names by the nodes' names."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.ledger.free import Free, Share
from berth.scheduling.score import ScoredPool, scores
from tests.support.builders.objects import pool

SHARES = {"n0": (0, 10), "n1": (1, 10), "n5": (5, 10), "n10": (10, 10)}
NAMES = ["n5", "n0", "n10", "n1"]
ZONES = {"n0": "a", "n1": "a", "n5": "b", "n10": ""}

shares = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(20)]),
    st.integers(0, 30).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size))),
)


def ask(
    free: Mapping[str, Share], score: str = "Spread", places: Mapping[str, str] | None = None, **spec: Any
) -> ScoredPool:
    return ScoredPool(pool(score=score, **spec), Free(free), places)


def names_scored(wanted: Mapping[str, int], names: Sequence[str]) -> list[int]:
    return scores(names, [ask({}, "Names", nodeNames=dict(wanted))])


def test_spread_prefers_the_node_with_most_free() -> None:
    assert scores(NAMES, [ask(SHARES)]) == [5, 0, 10, 1]


def test_pack_is_the_reverse() -> None:
    assert scores(NAMES, [ask(SHARES, "Pack")]) == [5, 10, 0, 9]


def test_a_share_counts_and_not_a_number_of_units() -> None:
    assert scores(["small", "large"], [ask({"small": (4, 4), "large": (50, 100)})]) == [10, 5]


def test_a_pod_that_asks_nothing_finds_all_nodes_alike() -> None:
    assert scores(NAMES, []) == [0] * len(NAMES)


@pytest.mark.parametrize("score", ["Spread", "Pack"])
def test_a_node_without_units_scores_nothing_under_either_rule(score: str) -> None:
    assert scores(["none", "absent"], [ask({"none": (0, 0)}, score)]) == [0, 0]


def test_several_pools_count_alike_each_by_its_own_rule() -> None:
    both = {"n1": (10, 10), "n2": (0, 10)}
    assert scores(["n1", "n2"], [ask(both), ask(both, "Pack")]) == [5, 5]
    assert scores(["n1"], [ask(both), ask({"n1": (2, 10)}, "Pack")]) == [9]


@pytest.mark.parametrize(("score", "expected"), [("Spread", [5, 2, 0, 2]), ("Pack", [5, 8, 0, 8])])
def test_nodes_of_a_rack_have_the_racks_score_and_those_in_none_have_0(
    score: str, expected: list[int]
) -> None:
    assert scores(NAMES, [ask({"a": (1, 5), "b": (2, 4)}, score, ZONES)]) == expected


def test_a_node_is_not_taken_for_a_rack_of_the_same_name() -> None:
    assert scores(["a", "n1"], [ask({"a": (5, 5)}, places={"n1": "a"})]) == [0, 10]


def test_a_pool_of_the_whole_cluster_scores_all_nodes_alike() -> None:
    everywhere = ask({"*": (3, 4)}, places=dict.fromkeys(NAMES, "*"))
    assert scores(NAMES, [everywhere]) == [7] * len(NAMES)


def test_the_very_name_of_a_node_comes_before_patterns_and_the_longest_of_these_counts() -> None:
    wanted = {"*-1": 4, "gpu-*": 7, "gpu-1": 2, "gpu-[ab]-*": 10, "rack?-?": 9}
    names = ["gpu-1", "gpu-2", "gpu-a-1", "cpu-1", "cpu-2", "rack1-7", "rack1-77", "Gpu-2"]
    expected = [2, 7, 10, 4, 0, 9, 0, 0]
    assert names_scored(wanted, names) == expected
    assert names_scored(dict(sorted(wanted.items(), reverse=True)), names) == expected


def test_of_patterns_of_one_length_the_first_by_the_alphabet_counts_in_whatever_order_they_stand() -> None:
    assert names_scored({"gpu-*": 7, "*pu-1": 4}, ["gpu-1"]) == [4]
    assert names_scored({"*pu-1": 4, "gpu-*": 7}, ["gpu-1"]) == [4]


def test_names_score_a_node_whatever_it_has_free() -> None:
    named = ask({"n1": (0, 10)}, "Names", nodeNames={"n1": 10})
    assert scores(["n1", "n2"], [named]) == [10, 0]
    assert scores(["n1", "n2"], [named, ask({"n1": (5, 10), "n2": (10, 10)})]) == [7, 5]


def test_the_same_names_with_other_scores_are_another_rule() -> None:
    assert names_scored({"n1": 10}, ["n1"]) == [10]
    assert names_scored({"n1": 3}, ["n1"]) == [3]


def test_a_pool_with_score_none_takes_no_part_in_the_mean() -> None:
    silent = ask(SHARES, "None")
    assert scores(NAMES, [silent]) == [0] * len(NAMES)
    assert scores(NAMES, [silent, ask(SHARES)]) == [5, 0, 10, 1]


@given(
    st.lists(st.sampled_from([f"n{number}" for number in range(20)])),
    shares,
    st.lists(st.sampled_from(["Spread", "Pack", "None"]), max_size=3),
)
def test_every_offered_node_has_a_score_from_0_to_10_in_the_order_offered(
    names: list[str], free: dict[str, Share], rules: list[str]
) -> None:
    asks = [ask(free, score) for score in rules]
    found = scores(names, asks)
    assert len(found) == len(names)
    assert all(0 <= score <= 10 for score in found)
    assert found == [scores([name], asks)[0] for name in names]


@given(shares)
def test_more_free_is_never_worse_under_spread_and_never_better_under_pack(
    free: dict[str, Share],
) -> None:
    have = {name: found[0] / found[1] for name, found in free.items() if found[1]}
    ordered = sorted(have, key=lambda name: have[name])
    spread = scores(ordered, [ask(free)])
    pack = scores(ordered, [ask(free, "Pack")])
    assert spread == sorted(spread)
    assert pack == sorted(pack, reverse=True)
