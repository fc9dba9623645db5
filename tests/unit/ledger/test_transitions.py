"""What a commit may go on with, decided on documents that a View which lags behind did not tell all of."""

from msgspec.structs import replace

from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, Domain, Holding, RetainedUnits
from berth.ledger.transitions import adopted, standing, with_claim


def claim(*holdings: Holding) -> Claim:
    return Claim(uid="u", namespace="d", name="p", node="n1", holdings=holdings, state="bound", attempt="a")


def test_a_claim_that_stands_in_a_stripe_that_was_not_read_is_none_to_go_on_with() -> None:
    there = claim(Holding("ip", "a#0", 1, (), "erc"), Holding("ip", "a#1", 1))
    planned = (Holding("ip", "a#1", 1, (), "erc"), Holding("ip", "a#1", 1))
    read = {domain_key("ip", "a#1"): Domain(2, {"u": there})}
    assert standing(claim(*planned), planned, read) is None
    assert standing(claim(*planned), planned, {**read, domain_key("ip", "a#0"): Domain(2)}) == there


def test_who_adopts_a_pod_without_knowing_its_units_leaves_it_those_that_it_has() -> None:
    key = domain_key("ip", "n1")
    there = claim(Holding("ip", "n1", 2, ("u1", "u2")))
    domains = {key: Domain(3, {"u": there}, units=("u1", "u2", "u3"))}
    assert adopted(claim(Holding("ip", "n1", 2)), True, domains) == (None, {})
    _, changed = adopted(claim(Holding("ip", "n1", 1)), True, domains)
    assert changed[key].claims["u"].units == {("ip", "u1")}


def test_units_that_had_names_once_are_kept_no_more_when_the_pod_they_are_for_is_bound() -> None:
    """Their Pool lists names no more: which of them the pod has, nobody can tell."""
    key = domain_key("ip", "n1")
    left = RetainedUnits(2, ("u1", "u2"), owner="d/p", kept_until=60.0)
    for units in (), ("u1",):
        bound = claim(Holding("ip", "n1", 1, units))
        reserved = replace(bound, state="reserved")
        before = Domain(3, {"u": reserved}, retained=(left,))
        after = with_claim(bound, {key: before})[key]
        assert before.room("ip", "n1", now=1.0) == after.room("ip", "n1", now=1.0) == 1
        assert [(each.count, len(each.units)) for each in after.retained] == [(1, 1)]
