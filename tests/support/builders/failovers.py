"""A fail-over that loses what was answered for, seen by ledgers: nothing is given twice (promises 1 and 8).
Pods are a dict here: what the API server would say of them; a ledger is rebuilt from it as by reconcile."""

from collections.abc import Callable

import pytest

from berth.errors import RebuildingError, RefusedError
from berth.ledger.model import Claim
from berth.stores.base import Store
from tests.support.builders.ledgers import FaultyStore, claim, ledger_on, reopen

UNITS = 11
_CAPACITIES = {("ip", "n1"): UNITS}


def check_nothing_is_given_twice(
    opened: Callable[[], Store], lag: Callable[[], object], fail_over: Callable[[], object]
) -> None:
    """After `lag` the primary's writes reach nobody; `fail_over` loses them, and returns when all is back."""
    store, bystander = opened(), opened()
    reopen(store, _CAPACITIES)
    ledger, pods = ledger_on(store), dict[str, Claim]()

    def bind(uid: str) -> None:
        ledger.reserve(claim(uid))
        pods[uid] = claim(uid)
        ledger.confirm(claim(uid))

    for uid in "abcd":
        bind(uid)
    lag()
    for uid in "efghi":
        bind(uid)
    ledger.reserve(claim("reserved before"))
    late = FaultyStore(bystander)
    late.meanwhile = iter([fail_over])
    with pytest.raises(RebuildingError):
        # Decided on what the old primary said, committed on the new one, which knows of four claims.
        ledger_on(late).reserve(claim("under way"))
    for call in (
        ledger.view,
        lambda: ledger.reserve(claim("x")),
        lambda: ledger.confirm(claim("reserved before")),
        lambda: ledger_on(opened()).reserve(claim("x")),
    ):
        with pytest.raises(RebuildingError):
            call()
    reopen(store, _CAPACITIES, *pods.values())
    assert {found.uid for found in ledger.view().claims()} == set(pods)
    for uid in ("the last but one", "the last"):
        ledger_on(opened()).reserve(claim(uid))
    for each in (store, bystander):
        with pytest.raises(RefusedError, match=f"^ip: 0 of {UNITS} free, 1 asked$"):
            ledger_on(each).reserve(claim("one too many"))
