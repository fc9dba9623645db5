"""Whether an annotation tells of other units than a pod holds: by its template, or by a former one."""

import pytest

from berth.api.annotations import tells_others, text_of
from berth.api.units import Units


def listed() -> Units:
    return Units.parse(["p-0", "p-1", "10.0.3.1-10.0.3.9"])


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
@pytest.mark.parametrize("unit", ["p-0", "10.0.3.1"])
def test_what_bind_wrote_is_right_and_another_unit_in_it_is_not(template: str, unit: str) -> None:
    right = text_of(template, "port", "n1", [unit])
    assert not tells_others(template, right, "port", "n1", [unit], listed)
    wrong = text_of(template, "port", "n1", ["10.0.3.7"])
    assert tells_others(template, wrong, "port", "n1", [unit], listed)


def test_the_order_of_units_does_not_matter_but_their_number_does() -> None:
    mine = ["p-0", "p-1"]
    assert not tells_others("{units}", "p-1,p-0", "port", "n1", mine, listed)
    assert not tells_others("{units:json}", '["p-1", "p-0"]', "port", "n1", mine, listed)
    assert tells_others("{units}", "p-1", "port", "n1", mine, listed)
    assert tells_others("{units}", "p-0,p-1,10.0.3.1", "port", "n1", mine, listed)


def test_a_text_of_a_former_template_is_wrong_where_it_names_another_unit_that_is_listed() -> None:
    assert not tells_others("{unit}", "rack r1", "port", "n1", ["p-0"], listed)
    assert not tells_others("{unit}", "port: p-0", "port", "n1", ["p-0"], listed)
    assert tells_others("{unit}", "p-1 p-0", "port", "n1", ["p-0"], listed)


def test_a_template_without_units_tells_of_none() -> None:
    assert not tells_others("{domain} {pool}", "whatever", "port", "n1", ["p-0"], listed)
