"""The rules of `berth check`: each has an id of its own, and its links lead somewhere."""

import pytest

from berth.checks.finding import Rule, listed
from berth.checks.registry import CHECKS, RULES
from tests.support.references import Reference, is_there


def test_each_rule_has_an_id_of_its_own_which_is_a_noun_and_a_word() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids)) > 40
    assert all(len(one.split(".")) == 2 and one == one.lower() and one.isascii() for one in ids)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.id))
def test_the_links_of_a_rule_lead_to_headings_that_are_there(rule: Rule) -> None:
    for link in (rule.docs, rule.more):
        path, _, anchor = link.partition("#")
        assert is_there(Reference(path, anchor)), link


def test_each_check_is_of_use_at_some_time_and_has_rules() -> None:
    assert all(check.rules and (check.phase.before or check.phase.after) for check in CHECKS)


def test_a_long_list_of_names_is_cut_and_counted() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcdefg") == "a, b, c, d, e and 2 more"
