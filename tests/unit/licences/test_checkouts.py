"""How much of a feature others than our pods use: never less than there is, and nobody counts twice."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.licences.checkouts import Checkout, Feature, Match, Use, holders_of, use_of

HOSTS = ["pod-1", "pod-2", "desk-1", "desk-2"]


def feature(*checkouts: Checkout, in_use: int | None = None, reserved: int = 0) -> Feature:
    used = sum(checkout.licences for checkout in checkouts) + reserved if in_use is None else in_use
    return Feature("f", 100, used, reserved, 0, checkouts)


def of(host: str, count: int = 1, user: str = "u", display: str = ":0") -> Checkout:
    return Checkout(user, host, display, count)


def test_a_pod_with_its_claim_and_not_yet_its_checkout_counts_once() -> None:
    claimed = {"pod-1": [2]}
    assert use_of(feature(), claimed) == Use(2, 0, 0, ("pod-1",))
    assert use_of(feature(of("pod-1", 2)), claimed) == Use(2, 0, 0)
    assert use_of(feature(of("pod-1"), of("desk-1", 3)), claimed) == Use(2, 0, 3)


def test_what_a_pod_has_beyond_its_claim_is_outside_use() -> None:
    found = use_of(feature(of("pod-1", 3), of("pod-2", 1)), {"pod-1": [2]})
    assert (found.pods, found.unclaimed, found.others, found.outside) == (2, 1, 1, 2)


def test_it_is_said_who_has_licences_that_no_claim_counts() -> None:
    there = feature(of("pod-1", 3), of("POD-2"), of("desk-1", 2, "ann"), of("desk-1", 1, "bob"), of("desk-2"))
    claimed = {"pod-1": [2], "pod-2": [1]}
    assert holders_of(there, claimed) == ({"pod-1": 1}, {"desk-1": 3, "desk-2": 1})
    assert holders_of(feature(of("desk-1", 2, "ann")), {}, "user") == ({}, {"ann": 2})
    assert holders_of(feature(in_use=7), claimed) == ({}, {})


def test_reservations_and_what_no_line_explains_are_outside_use() -> None:
    assert use_of(feature(of("desk-1"), in_use=7, reserved=2), {}).outside == 7


def test_lines_of_one_user_and_host_may_share_a_licence_where_fewer_are_in_use() -> None:
    same = [of("pod-1"), of("pod-1"), of("desk-1"), of("desk-1", user="v")]
    assert use_of(feature(*same, in_use=3), {"pod-1": [1]}) == Use(1, 0, 2)
    assert use_of(feature(*same), {"pod-1": [1]}) == Use(1, 1, 2)
    assert use_of(feature(of("desk-1", 3), in_use=1), {}).outside == 3


def test_a_checkout_of_pods_with_one_name_may_be_that_of_the_smallest_claim() -> None:
    assert use_of(feature(of("pod-1", 3)), {"pod-1": [2, 1]}) == Use(3, 2, 0)


@pytest.mark.parametrize(
    ("match", "checkout", "ours"),
    [
        ("host", of("POD-1"), True),
        ("host", of("pod-1.other.example.com"), False),
        ("host", Checkout("John", "of", "desk", 1, "pod-1"), True),
        ("host", of("10.0.0.1"), False),
        ("host", of("desk-1", user="pod-1", display="pod-1"), False),
        ("user", of("desk-1", user="pod-1"), True),
        ("user", of("pod-1"), False),
        ("display", of("desk-1", display="pod-1"), True),
        ("display", of("pod-1"), False),
    ],
)
def test_a_pod_is_known_by_host_user_or_display(match: Match, checkout: Checkout, ours: bool) -> None:
    assert (use_of(feature(checkout), {"pod-1": [1]}, match).others == 0) == ours


def test_a_long_name_is_cut_as_kubelet_cuts_it() -> None:
    pod = "a" * 62 + "-" + "b" * 20
    assert use_of(feature(of("a" * 62)), {pod: [1]}) == Use(1, 0, 0)


checkouts = st.lists(st.builds(of, st.sampled_from(HOSTS), st.integers(1, 3)), max_size=6)
claims = st.dictionaries(
    st.sampled_from(["pod-1", "pod-2", "pod-3"]), st.lists(st.integers(1, 3), min_size=1, max_size=1)
)


@given(checkouts, claims, st.integers(0, 3))
def test_claims_and_outside_use_are_no_less_than_what_is_in_use(
    held: Sequence[Checkout], claimed: Mapping[str, Sequence[int]], reserved: int
) -> None:
    found = use_of(feature(*held, reserved=reserved), claimed)
    by_host = Counter[str]()
    for checkout in held:
        by_host[checkout.host] += checkout.licences
    in_use = sum(by_host.values()) + reserved
    waiting = sum(max(0, sum(units) - by_host[pod]) for pod, units in claimed.items())
    assert found.pods + found.outside == in_use + waiting
    assert found.idle == tuple(sorted(pod for pod in claimed if not by_host[pod]))
