"""Which Pool objects of a cluster are taken over where some of them are wrong."""

from typing import Any
from unittest import mock

import pytest

from berth.api.pool import Pool
from berth.controller.pool_source import judge, take_pools
from berth.errors import BadInputError
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


def test_nothing_is_taken_where_a_new_pool_has_the_resource_that_a_wrong_one_keeps() -> None:
    new = pool_document("new", resource="berth.dev/k80")
    with pytest.raises(BadInputError, match="Pools k80 and new both have resource"):
        taken({"k80": pool("k80")}, wrong("k80"), new)
