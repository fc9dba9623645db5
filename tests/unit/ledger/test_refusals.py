"""What fits, and why not: promise 7's words, few of them, the same for the same cause."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.ledger import refusals as fit
from berth.ledger.free import Free, Share

POOLS = ("underlay-ip", "matlab-licence", "k80", "seat")

shares = st.none() | st.integers(0, 12).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size)))
# A node is what it has of each pool; the names are told apart from all words that a text may hold.
clusters = st.lists(st.tuples(*(shares for _ in POOLS)), max_size=40)
demands = st.dictionaries(st.sampled_from(POOLS), st.integers(1, 12), max_size=len(POOLS))


def refusals(names: Collection[str], demand: Mapping[str, int], free: Mapping[str, Free]) -> dict[str, str]:
    """Of pools whose domains are nodes."""
    wants = [
        fit.Requirement(pool, asked, free.get(pool, Free()), None, fit.lacking)
        for pool, asked in demand.items()
    ]
    return fit.refusals(names, wants)


def refused(cluster: list[tuple[Share | None, ...]], demand: Mapping[str, int]) -> dict[str, str]:
    names = [f"worker-{number}" for number in range(len(cluster))]
    free = {
        pool: Free(
            {name: share for name, has in zip(names, cluster, strict=True) if (share := has[at]) is not None}
        )
        for at, pool in enumerate(POOLS)
    }
    return refusals(names, demand, free)


def test_a_refusal_says_which_pool_how_much_is_free_and_how_much_was_asked() -> None:
    found = refusals(["n1", "n2"], {"underlay-ip": 1}, {"underlay-ip": Free({"n1": (0, 10), "n2": (1, 10)})})
    assert found == {"n1": "underlay-ip: 0 of 10 free, 1 asked"}


def test_a_node_without_a_share_says_so() -> None:
    assert refusals(["n1"], {"k80": 2}, {"k80": Free()}) == {"n1": "k80: none on this node"}
    assert refusals(["n1"], {"k80": 2}, {}) == {"n1": "k80: none on this node"}


def test_exactly_what_is_free_fits_and_one_more_does_not() -> None:
    free = {"k80": Free({"n1": (3, 8)})}
    assert refusals(["n1"], {"k80": 3}, free) == {}
    assert refusals(["n1"], {"k80": 4}, free) == {"n1": "k80: 3 of 8 free, 4 asked"}


def test_all_pools_that_are_short_are_named_and_only_they() -> None:
    shares = {"underlay-ip": (0, 10), "k80": (1, 2), "seat": (5, 5)}
    free = {pool: Free({"n1": share}) for pool, share in shares.items()}
    found = refusals(["n1"], {"underlay-ip": 1, "k80": 2, "seat": 1}, free)
    assert found == {"n1": "underlay-ip: 0 of 10 free, 1 asked; k80: 1 of 2 free, 2 asked"}


def test_a_pod_that_asks_nothing_fits_everywhere() -> None:
    assert refusals(["n1"], {}, {}) == {}


def test_up_to_four_kinds_of_refusal_are_told_exactly() -> None:
    free = {"k80": Free({f"n{count}": (count, 8) for count in range(4)})}
    found = refusals(free["k80"], {"k80": 5}, free)
    assert set(found.values()) == {f"k80: {count} of 8 free, 5 asked" for count in range(4)}


def test_more_kinds_are_told_in_general() -> None:
    free = {"k80": Free({f"n{count}": (count, 8) for count in range(5)})}
    found = refusals([*free["k80"], "bare"], {"k80": 5}, free)
    assert set(found.values()) == {"k80: fewer free than the 5 asked", "k80: none on this node"}


def test_two_pools_short_in_many_ways_still_say_which_of_them_is_short() -> None:
    one, two = "underlay-ip: fewer free than the 9 asked", "k80: fewer free than the 9 asked"
    kinds: list[Share | None] = [None, (1, 8), (9, 9)]
    names = {f"n{a}{b}": (kinds[a], kinds[b]) for a in range(3) for b in range(3)}
    free = {
        pool: Free({name: share for name, has in names.items() if (share := has[at]) is not None})
        for at, pool in enumerate(("underlay-ip", "k80"))
    }
    found = refusals(names, {"underlay-ip": 9, "k80": 9}, free)
    assert set(found.values()) == {one, two, f"{one}; {two}"}
    assert (found["n02"], found["n12"], found["n20"]) == (one, one, two)
    assert "n22" not in found


def test_a_thousand_refusals_stay_below_400_bytes_in_the_pods_condition() -> None:
    free = {pool: Free({f"n{at}": (at % 7, 7 + at % 5) for at in range(1000)}) for pool in POOLS}
    found = refusals([f"n{at}" for at in range(1000)], dict.fromkeys(POOLS, 9), free)
    assert len(found) == 1000
    assert len("".join(f"1000 {text}, " for text in set(found.values()))) < 400


@pytest.mark.parametrize("pools", [1, 2, 3, 4])
def test_no_more_than_four_texts_however_many_pools_are_short(pools: int) -> None:
    cluster = [
        tuple(None if number >> at & 1 else (number % 3, 3 + number % 4) for at in range(4))
        for number in range(16)
    ]
    assert 1 <= len(set(refused(cluster, dict.fromkeys(POOLS[:pools], 9)).values())) <= 4


@given(clusters, demands)
def test_exactly_the_nodes_that_lack_something_are_refused(
    cluster: list[tuple[Share | None, ...]], demand: dict[str, int]
) -> None:
    lacking = {
        f"worker-{number}"
        for number, has in enumerate(cluster)
        if any(
            (share := has[POOLS.index(pool)]) is None or share[0] < asked for pool, asked in demand.items()
        )
    }
    assert refused(cluster, demand).keys() == lacking


@given(clusters, demands)
def test_texts_are_few_name_no_node_and_are_equal_for_equal_causes(
    cluster: list[tuple[Share | None, ...]], demand: dict[str, int]
) -> None:
    found = refused(cluster, demand)
    assert len(set(found.values())) <= 4
    assert not any("worker" in text for text in found.values())
    by_cause: dict[tuple[Share | None, ...], set[str]] = {}
    for name, text in found.items():
        by_cause.setdefault(cluster[int(name.removeprefix("worker-"))], set()).add(text)
    assert all(len(texts) == 1 for texts in by_cause.values())


@given(clusters, demands)
def test_texts_do_not_depend_on_the_order_of_the_nodes(
    cluster: list[tuple[Share | None, ...]], demand: dict[str, int]
) -> None:
    backwards = refused(cluster[::-1], demand)
    assert set(refused(cluster, demand).values()) == set(backwards.values())
