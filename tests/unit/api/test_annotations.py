"""Of which units a text tells that a Pool has written, by its template; and that one of another is told."""

import pytest

from berth.api.annotations import names_in, tells_units, text_of, units_told

TEMPLATES = [
    "{unit}",
    '["{unit}"]',
    "{pool}-{unit}",
    "{unit}:8080",
    "eth{unit}.{domain}",
    '[{"name": "{domain}", "ips": ["{unit}/24"]}]',
    "{units}",
    "a {units:json} b {pool}",
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("unit", ["p-0", "10.0.3.1", "fd00::5"])
def test_what_bind_wrote_tells_of_the_unit_it_was_written_for(template: str, unit: str) -> None:
    said = text_of(template, "port", "n1", [unit])
    assert tells_units(template)
    assert units_told(template, "port", "n1", said) == frozenset({unit})
    assert unit in " ".join(names_in(said))


def test_several_units_are_told_in_any_order() -> None:
    assert units_told("{units}", "port", "n1", "p-1,p-0") == frozenset({"p-0", "p-1"})
    assert units_told("{units:json}", "port", "n1", '["p-1", "p-0"]') == frozenset({"p-0", "p-1"})
    assert units_told("{unit} {unit}", "port", "n1", "p-1 p-0") == frozenset({"p-0", "p-1"})


@pytest.mark.parametrize(
    ("template", "said"),
    [("{unit}", "rack r1"), ("{domain}: {unit}", "n2: p-0"), ("{units:json}", "p-0"), ("{unit}\n", "p-0")],
)
def test_a_text_of_another_template_or_place_is_told(template: str, said: str) -> None:
    assert units_told(template, "port", "n1", said) is None


def test_a_template_may_tell_of_no_units() -> None:
    assert not tells_units("{domain} {pool}")
