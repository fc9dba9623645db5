"""The conditions of a Pool by what the ledger has of it."""

from typing import Any

import pytest

from berth.api.pool import Pool
from berth.controller.pool_source import Judged
from berth.controller.pool_status import conditions_of
from berth.ledger.keys import POOL, domain_key
from berth.ledger.model import Claim, Domain, Epoch, Holding, Reading, encode
from berth.ledger.report import pool_rows
from berth.ledger.view import View
from berth.stores.base import EPOCH
from tests.support.builders.objects import pool

OPEN = Epoch("e", 1.0)


def conditions(
    taken: Pool | None,
    now: Pool | None = None,
    wrong: str = "",
    epoch: Epoch | None = OPEN,
    **domains: Domain,
) -> dict[str, tuple[str, str, str]]:
    """Those of Pool ip, by type: the ledger has it as `taken`, and its object is as `now`, or wrong."""
    view = View()
    bodies = {domain_key("ip", name): encode(domain) for name, domain in domains.items()}
    if taken is not None:
        bodies[f"{POOL}ip"] = encode(taken)
    if epoch is not None:
        bodies[EPOCH] = encode(epoch)
    view.update(bodies)
    right = {} if wrong else {"ip": now or taken or pool("ip")}
    judged = Judged(right, {"ip": wrong} if wrong else {})
    row = next((row for row in pool_rows(view) if row.name == "ip"), None)
    found = conditions_of("ip", row, judged, view, 0.0)
    return {one.type: (one.status, one.reason, one.message) for one in found}


def used(count: int, capacity: int) -> Domain:
    held = (Holding("ip", "n1", count),)
    return Domain(capacity, {"a": Claim(uid="a", namespace="d", name="a", node="n1", holdings=held)})


def test_a_pool_that_is_counted_as_its_spec_says_is_ready() -> None:
    assert conditions(pool("ip"), n1=Domain(2)) == {
        "Ready": ("True", "Counted", "the ledger counts the Pool as its spec says"),
        "Suspended": ("False", "NotSuspended", ""),
        "OverCommitted": ("False", "WithinCapacity", ""),
    }


def test_a_pool_that_is_not_ready_says_why() -> None:
    assert conditions(pool("ip"))["Ready"][1:] == (
        "NoDomains",
        "no node is in the Pool: see spec.nodeSelector, spec.includeControlPlane and the nodes' labels",
    )
    assert conditions(pool("ip"), now=pool("ip", score="Pack"), n1=Domain(2))["Ready"][1] == "NotTaken"
    assert conditions(None).keys() == {"Ready"}
    assert conditions(None)["Ready"][:2] == ("False", "NotTaken")
    assert conditions(None, wrong="the cluster: Pool ip: no")["Ready"] == ("False", "Invalid", "Pool ip: no")
    assert conditions(pool("ip"), wrong="the cluster: Pool ip: no", n1=Domain(2))["Ready"] == (
        "False",
        "Invalid",
        "Pool ip: no; until it is put right the Pool stays as it was",
    )


@pytest.mark.parametrize(
    ("epoch", "why"), [(None, "is being rebuilt"), (Epoch("e", 1.0, to="redis://r"), "copied to redis://r")]
)
def test_no_pool_is_ready_while_the_ledger_gives_nothing(epoch: Epoch | None, why: str) -> None:
    status, reason, message = conditions(pool("ip"), epoch=epoch, n1=Domain(2))["Ready"]
    assert (status, reason) == ("False", "LedgerClosed")
    assert why in message


def test_a_pool_may_be_suspended_as_a_whole_or_in_some_domains() -> None:
    whole = conditions(pool("ip", suspended=True), n1=Domain(2))
    assert whole["Suspended"] == ("True", "WholePool", "no new units are given")
    assert whole["Ready"][0] == "True"
    many = [f"n{number}" for number in range(12, 0, -1)]
    some = conditions(pool("ip", suspended=many), n1=Domain(2))["Suspended"]
    first = ", ".join(f"n{number}" for number in range(1, 11))
    assert some == ("True", "SomeDomains", f"no new units are given in domains {first} and 2 more")


def test_what_is_used_beyond_the_capacity_is_said_with_its_domains() -> None:
    assert conditions(pool("ip"), n1=used(3, 1), n2=Domain(5))["OverCommitted"] == (
        "True",
        "BeyondCapacity",
        "by 2 in domain n1",
    )


@pytest.mark.parametrize(
    ("spec", "reading", "told"),
    [
        ({}, None, ("False", "NeverRead", "nothing new is given")),
        ({}, (0.0, "refused"), ("False", "NeverRead", "nothing new is given: refused")),
        ({}, (-180.0, ""), ("True", "Read", "")),
        ({}, (-180.0, "refused"), ("True", "Failing", "the last try failed: refused")),
        ({}, (181.0, ""), ("False", "Stale", "the last reading is older than 180 s: nothing new is given")),
        (
            {"whenStale": "Ignore"},
            (-181.0, "refused"),
            ("False", "Ignored", "the last reading is older than 180 s, and stands: refused"),
        ),
    ],
)
def test_a_pool_that_reads_what_others_use_says_whether_it_is_known(
    spec: dict[str, str], reading: tuple[float, str] | None, told: tuple[str, str, str]
) -> None:
    """At the time 0; a reading of the time 0 is none."""
    taken = pool("ip", scope="Cluster", externalFrom={"feature": "F", **spec})
    assert taken.external_from is not None
    there = None if reading is None else Reading(reading[0], taken.external_from.mark, reading[1])
    everywhere: Any = {"*": Domain(2, reading=there)}
    found = conditions(taken, **everywhere)
    assert found["ExternalRead"] == told
    assert list(found) == ["Ready", "Suspended", "OverCommitted", "ExternalRead"]
