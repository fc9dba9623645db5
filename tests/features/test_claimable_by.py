"""Which namespaces may claim which units of a Pool by name: a PoolClaim is made by users, and may name any
unit that the Pool lists unless its `claimableBy` says otherwise."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

IP: dict[str, Any] = {"scope": "Cluster", "units": {"*": ["10.0.3.0/28"]}}
CLAIMABLE = {"claimableBy": {"team-a": ["10.0.3.1-10.0.3.4"], "*": ["10.0.3.8"]}}
POOLS: dict[str, Any] = {"ip": {**IP, **CLAIMABLE}, "free": {"units": {"n1": ["a", "b"]}}}
WHY = "the Pool's claimableBy lets its namespace claim no such units"

CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


def test_no_tenant_takes_another_s_address_while_that_pod_restarts(stage: PoolsStage) -> None:
    """A PoolClaim of another namespace named the address, and its pod had it before the victim came again."""
    stage.claim_object("web", "ip", "team-a", units=["10.0.3.2"])
    victim = stage.bound_pod("web-0", claims="web", ip=1, namespace="team-a")
    stage.claim_object("mine", "ip", "mallory", units=["10.0.3.2"])
    text = f"ip: PoolClaim mine is refused: {WHY}"
    thief = stage.pod("thief", claims="mine", ip=1, namespace="mallory")
    stage.gone(victim)
    assert (stage.why(thief, "n1"), stage.bind(thief)) == ({"n1": text}, text)
    again = stage.bound_pod("web-0", claims="web", ip=1, namespace="team-a")
    assert stage.of(again, "ip")[2] == ("10.0.3.2",)
    stage.check_well()
    assert stage.status("mine", "mallory") == {"phase": "Refused", "message": WHY}
    stage.check_survives_a_loss()
    assert stage.bind(thief) == text


@CHEAP
def test_a_namespace_claims_its_own_units_or_those_of_all_and_any_without_a_name(stage: PoolsStage) -> None:
    for name, namespace, units, phase in (
        ("own", "team-a", ["10.0.3.1", "10.0.3.4"], "Available"),
        ("more", "team-a", ["10.0.3.4", "10.0.3.5"], "Refused"),
        ("named", "team-a", ["10.0.3.8"], "Refused"),  # `*` is for each that is not named
        ("all", "team-b", ["10.0.3.8"], "Available"),
        ("others", "team-b", ["10.0.3.1"], "Refused"),
        ("spelled", "team-b", ["10.0.3.9"], "Refused"),
    ):
        stage.claim_object(name, "ip", namespace, units=units)
        assert (name, stage.status(name, namespace)["phase"]) == (name, phase)
    stage.claim_object("any", "ip", "team-b")
    stage.claim_object("open", "free", "team-b", units=["b"])
    pod = stage.bound_pod(claims="any,open,all", namespace="team-b", ip=2, free=1)
    assert stage.of(pod, "ip")[2] == ("10.0.3.1", "10.0.3.8")
    assert stage.of(pod, "free")[2] == ("b",)
    stage.check_well()


@CHEAP
def test_who_may_claim_changes_at_once_and_takes_nothing_from_a_holder(stage: PoolsStage) -> None:
    stage.claim_object("web", "ip", "team-b", units=["10.0.3.2"])
    waiter = stage.pod(claims="web", ip=1, namespace="team-b")
    stage.pools(ip=IP)
    assert stage.status("web", "team-b") == {"phase": "Available"}
    assert stage.bind(waiter) == ""
    stage.pools(ip={**IP, "claimableBy": {}})
    stage.check_well()
    assert stage.status("web", "team-b")["phase"] == "Bound"
    assert stage.of(waiter, "ip")[2] == ("10.0.3.2",)
    stage.check_survives_a_loss()
    stage.gone(waiter)
    refused = stage.pod(claims="web", ip=1, namespace="team-b")
    assert stage.bind(refused) == f"ip: PoolClaim web is refused: {WHY}"
    stage.reconcile()
    assert stage.status("web", "team-b") == {"phase": "Refused", "message": WHY}


@CHEAP
def test_a_pool_without_the_field_is_stored_as_it_was_before_there_was_one(stage: PoolsStage) -> None:
    bodies = stage.store.changes(None).documents
    assert b"claimableBy" in (bodies["pool/ip"] or b"")
    assert b"claimableBy" not in (bodies["pool/free"] or b"")
