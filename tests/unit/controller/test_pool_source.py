"""Which Pool objects of a cluster are taken over where some of them are wrong."""

from typing import Any
from unittest import mock

from berth.api.pool import Pool
from berth.controller.pool_source import judge, take_pools
from berth.kube.cluster import Cluster
from tests.support.builders.objects import pool, pool_document

TWICE = {"spec": {"units": {"n1": ["a"], "n2": ["a"]}}}
"""A wrong Pool that the CRD takes: one unit in two domains."""


def wrong(name: str) -> dict[str, Any]:
    return pool_document(name) | TWICE


def taken(known: dict[str, Pool], *documents: dict[str, Any]) -> tuple[set[str], list[str]]:
    problems: list[str] = []
    cluster = mock.create_autospec(Cluster, instance=True)
    cluster.pools.return_value = list(documents)
    found = take_pools(None, cluster, lambda: known, problems)
    return {f"{name} {one.resource}" for name, one in found.items()}, problems


def test_a_wrong_pool_does_not_stop_the_others_and_stays_as_it_was() -> None:
    said = ["the cluster: Pool k80: spec.units: unit a is in domains n1 and n2"]
    both = {"ip berth.dev/ip", "k80 berth.dev/k80"}
    assert taken({}, wrong("k80"), pool_document("ip")) == ({"ip berth.dev/ip"}, said)
    assert taken({"k80": pool("k80")}, wrong("k80"), pool_document("ip")) == (both, said)


def test_of_two_pools_with_one_resource_the_one_that_had_it_keeps_it() -> None:
    other = pool_document("other", resource="berth.dev/ip")
    said = "the cluster: Pools ip and other both have resource berth.dev/ip"
    assert taken({}, pool_document("ip"), other) == (set(), [said, said])
    assert taken({"ip": pool("ip")}, pool_document("ip"), other) == ({"ip berth.dev/ip"}, [said])
    assert judge([pool_document("ip"), other], lambda: {"ip": pool("ip")}).wrong == {"other": said}


def test_what_clashes_with_the_resource_that_a_wrong_pool_keeps_stays_too_and_the_others_go_on() -> None:
    """k80 is wrong, and keeps what it had; `new` wants that, `old` once had another, `ip` is changed."""
    new = pool_document("new", resource="berth.dev/k80")
    old = pool_document("old", resource="berth.dev/new")
    known = {"k80": pool("k80"), "old": pool("old")}
    seen, problems = taken(known, wrong("k80"), new, old, pool_document("ip"))
    assert seen == {"k80 berth.dev/k80", "old berth.dev/new", "ip berth.dev/ip"}
    clash = "the cluster: Pools k80 and new both have resource berth.dev/k80"
    assert problems == ["the cluster: Pool k80: spec.units: unit a is in domains n1 and n2", clash]
    assert set(judge([wrong("k80"), new, old], lambda: known).wrong) == {"k80", "new"}


def test_a_pool_that_would_take_what_a_kept_one_has_keeps_its_own() -> None:
    """k80 is wrong; `seat` is to have its resource, so it stays as it was, and `x` can't have that one."""
    known = {"k80": pool("k80"), "seat": pool("seat")}
    seat, x = (
        pool_document(name, resource=f"berth.dev/{of}") for name, of in (("seat", "k80"), ("x", "seat"))
    )
    seen, problems = taken(known, wrong("k80"), seat, x, pool_document("ip"))
    assert seen == {"k80 berth.dev/k80", "seat berth.dev/seat", "ip berth.dev/ip"}
    assert len(problems) == 3


def test_a_pool_with_very_many_mistakes_is_told_by_the_first() -> None:
    spec = {"spec": {"capacity": {f"n{number}": "many" for number in range(2000)}}}
    _, (problem,) = taken({}, pool_document("k80") | spec)
    assert len(problem) < 2000
    assert problem.endswith("more mistakes like these")
