"""What is wrong with a document, in the words of who writes it: each kind of mistake that msgspec knows."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from berth.api.mistakes import mistakes
from berth.api.pool import PoolSpec

NUMBER, TRUTH = "must be a whole number, not ", "must be true or false, not "
QUOTE, UNQUOTE = ": put it in quotation marks", ": leave out the quotation marks"
WRONG: list[tuple[object, str]] = [
    # A number
    ({"capacity": {"perDomain": "10"}}, f"spec.capacity.perDomain {NUMBER}the text '10'{UNQUOTE}"),
    ({"capacity": {"perDomain": "ten"}}, f"spec.capacity.perDomain {NUMBER}the text 'ten'"),
    ({"capacity": {"perDomain": 1.5}}, f"spec.capacity.perDomain {NUMBER}1.5"),
    ({"capacity": {"perDomain": True}}, f"spec.capacity.perDomain {NUMBER}true"),
    ({"capacity": {"domains": {"n1": None}}}, f"spec.capacity.domains.n1 {NUMBER}null"),
    ({"nodeNames": {"n1": [3]}}, f"spec.nodeNames.n1 {NUMBER}a list"),
    ({"limits": {"a": {"units": 3}}}, f"spec.limits.a {NUMBER}an object"),
    ({"external": -1}, "spec.external -1 should be a number from 0 to 2147483647"),
    ({"external": 2**70}, f"spec.external {2**70} should be a number from 0 to 2147483647"),
    ({"external": "3"}, f"spec.external must be a number from 0 to 2147483647, not the text '3'{UNQUOTE}"),
    # True or false
    ({"includeControlPlane": "yes"}, f"{TRUTH}the text 'yes': write true, without quotation marks"),
    ({"includeControlPlane": "False"}, f"{TRUTH}the text 'False': write false, without quotation marks"),
    ({"includeControlPlane": 1}, f"spec.includeControlPlane {TRUTH}1"),
    ({"suspended": 1}, "spec.suspended must be true or false or a list, not 1"),
    ({"suspended": ["n1", 7]}, f"spec.suspended[1] must be text, not 7{QUOTE}"),
    # Text
    ({"capacity": {"nodeAnnotation": 7}}, f"spec.capacity.nodeAnnotation must be text, not 7{QUOTE}"),
    ({"resource": ["a"]}, "spec.resource must be text, not a list"),
    (
        {"nodeSelector": {"matchLabels": {"a": True}}},
        "spec.nodeSelector.matchLabels.a must be text, not true",
    ),
    ({"adoptFrom": b"x"}, "spec.adoptFrom must be text, not a bytes"),
    # One of some words
    (
        {"score": "spread"},
        "spec.score 'spread' should be one of Spread, Pack, Names, None: did you mean Spread?",
    ),
    ({"score": "Random"}, "spec.score 'Random' should be one of Spread, Pack, Names, None"),
    ({"score": None}, "spec.score must be one of Spread, Pack, Names, None, not null"),
    ({"onLostNode": False}, "spec.onLostNode must be one of Release, Hold, not false"),
    # Lists and objects
    ({"capacity": 5}, "spec.capacity must be an object, not 5"),
    ({"capacity": {"domains": ["n1"]}}, "spec.capacity.domains must be an object, not a list"),
    ({"units": {"n1": "k80-0"}}, "spec.units.n1 must be a list, not the text 'k80-0'"),
    ({"units": {"n1": ["a", None]}}, "spec.units.n1[1] must be text, not null"),
    ([], "spec must be an object, not a list"),
    ("ten", "spec must be an object, not the text 'ten'"),
    # Names
    ({"capacty": {}}, "spec: unknown field capacty: did you mean capacity?"),
    ({"topologykey": "a"}, "spec: unknown field topologykey: did you mean topologyKey?"),
    ({"sticky": {"by": "Pod", "seconds": 5}}, "spec.sticky: unknown field seconds: did you mean forSeconds?"),
    (
        {"capacity": {"flavour": 1}},
        "unknown field flavour: the fields are perDomain, domains, nodeAnnotation",
    ),
    ({True: 1}, "spec: unknown field true: "),
    ({"limits": {7: 1}}, 'spec.limits: the name 7 should be text: put it in quotation marks, "7"'),
    ({"perDomain": 3}, "spec: unknown field perDomain: it goes under spec.capacity"),
    ({"matchLabels": {}}, "spec: unknown field matchLabels: it goes under spec.nodeSelector"),
    # What is missing, and rules of its own
    ({"sticky": {"by": "Pod"}}, "spec.sticky.forSeconds is missing: it should be a number from 0 to 2678400"),
    ({"sticky": {"forSeconds": 5}}, "spec.sticky.by is missing: it should be one of Pod, Owner"),
    ({"capacity": {}}, "spec.capacity: it needs perDomain, domains or nodeAnnotation"),
    (
        {"capacity": {"perDomain": -1}},
        "spec.capacity: perDomain: -1 is not a number of units from 0 to 2147483647",
    ),
]


@pytest.mark.parametrize(("spec", "words"), WRONG, ids=lambda value: str(value)[:50])
def test_each_mistake_is_told_with_its_field_and_what_would_be_right(spec: object, words: str) -> None:
    said = mistakes(spec, PoolSpec, "spec")
    assert [text for text in said if words in text], said
    assert [text for text in said if "`" in text or "Expected" in text or "\n" in text] == []


def test_what_is_right_has_no_mistakes_and_null_stands_for_what_is_left_out() -> None:
    assert mistakes({"capacity": {"perDomain": 1}, "sticky": None, "resource": None}, PoolSpec, "spec") == []


def test_several_mistakes_are_all_told_in_the_documents_order() -> None:
    spec: dict[str, Any] = {"score": "pack", "limits": {"a": "1", 2: 3}, "units": {"n1": [1, "b", 2]}}
    fields = ["spec.score", "spec.limits.a", "spec.limits:", "spec.units.n1[0]", "spec.units.n1[2]"]
    assert [text.split(" ")[0] for text in mistakes(spec, PoolSpec, "spec")] == fields


def test_a_long_value_is_cut() -> None:
    (said,) = mistakes({"score": "x" * 10_000}, PoolSpec, "spec")
    assert len(said) < 200


class _Later(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of kinds that no spec has yet."""

    share: float = 0.5
    word: Annotated[str, msgspec.Meta(max_length=3)] = ""
    level: Literal[1, 2] = 1


@pytest.mark.parametrize("spec", [{"share": "x"}, {"word": "longer"}, {"word": 7}, {"level": 3}], ids=str)
def test_a_kind_of_field_that_nobody_thought_of_is_told_in_some_words(spec: dict[str, object]) -> None:
    (said,) = mistakes(spec, _Later, "spec")
    assert f"spec.{next(iter(spec))}" in said
