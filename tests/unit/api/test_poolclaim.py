"""PoolClaim documents: what is refused and in which words; which PoolClaims a pod names; their status."""

from typing import Any

import msgspec
import pytest

from berth.api.poolclaim import CLAIMS, PoolClaim, PoolClaimStatus, named, parse, within
from berth.errors import BadInputError
from berth.kube.types import Pod
from tests.support.builders.objects import pod

NAMES = [f"seat-{number}" for number in range(129)]
WRONG_SPECS: list[tuple[object, str]] = [
    (None, "spec.pool is missing: it should be text"),
    ([], "spec must be an object, not a list"),
    ({}, "spec.pool is missing: it should be text"),
    ({"pool": 7}, "spec.pool must be text, not 7: put it in quotation marks"),
    ({"pool": "K80"}, "spec.pool 'K80' can't be the name of a Pool"),
    ({"pool": ""}, "spec.pool '' can't be the name of a Pool"),
    ({"pool": "k" * 64}, "can't be the name of a Pool"),
    ({"pool": "k80", "unit": ["a"]}, "spec: unknown field unit: did you mean units?"),
    ({"pool": "k80", "count": 0}, "spec.count 0 should be a number from 1 to 2147483647"),
    ({"pool": "k80", "count": -1}, "spec.count -1 should be a number"),
    ({"pool": "k80", "count": 2**31}, "spec.count 2147483648 should be a number"),
    ({"pool": "k80", "count": "1"}, "spec.count must be a whole number, not the text '1'"),
    ({"pool": "k80", "count": True}, "spec.count must be a whole number, not true"),
    ({"pool": "k80", "count": 1.5}, "spec.count must be a whole number, not 1.5"),
    ({"pool": "k80", "units": "k80-0"}, "spec.units must be a list, not the text 'k80-0'"),
    ({"pool": "k80", "units": [7]}, "spec.units[0] must be text, not 7: put it in quotation marks"),
    ({"pool": "k80", "units": []}, "spec.units should name 1 to 128 units, or be left out"),
    ({"pool": "k80", "units": NAMES}, "spec.units should name 1 to 128 units, or be left out"),
    ({"pool": "k80", "units": ["a", "a"]}, "spec.units: a is listed twice"),
    ({"pool": "ip", "units": ["fd00::5", "FD00:0::5"]}, "spec.units: "),
    ({"pool": "ip", "units": ["10.0.3.0/30"]}, "spec.units: 10.0.3.0/30 stands for 2 units: name each by"),
    ({"pool": "ip", "units": ["10.0.3.7/32"]}, "spec.units: 10.0.3.7/32 stands for 1 units: name each by"),
    ({"pool": "ip", "units": ["10.0.3.1-10.0.3.2"]}, "10.0.3.1-10.0.3.2 stands for 2 units: name each by"),
    ({"pool": "ip", "units": ["a b"]}, "spec.units: 'a b' is no unit's name"),
    ({"pool": "k80", "count": 1, "units": ["a", "b"]}, "spec.count is 1, and spec.units names 2: leave"),
]  # fmt: skip


def document(spec: object, **metadata: Any) -> dict[str, Any]:
    meta = {"namespace": "team-a", "name": "k80-erc", "uid": "u1", **metadata}
    return {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": meta, "spec": spec}


def refusal(found: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        parse(found)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def naming(text: str) -> Pod:
    found = pod()
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, annotations={CLAIMS: text})
    )


def test_a_poolclaim_needs_only_a_pool_and_is_for_one_unit_then() -> None:
    found = parse(document({"pool": "k80"}))
    assert found == PoolClaim("team-a", "k80-erc", "u1", "k80", 1, ())
    assert found.label == "team-a/k80-erc"


def test_without_a_namespace_it_is_in_default() -> None:
    assert parse(document({"pool": "k80"}, namespace=None)).namespace == "default"


@pytest.mark.parametrize("count", [1, 12, 2**31 - 1])
def test_a_count_is_taken(count: int) -> None:
    assert parse(document({"pool": "k80", "count": count})).count == count


@pytest.mark.parametrize("count", [{}, {"count": 2}])
def test_units_are_counted_and_spelled_as_the_ledger_spells_them(count: dict[str, int]) -> None:
    found = parse(document({"pool": "ip", "units": ["FD00:0::5", "10.0.3.17"], **count}))
    assert (found.count, found.units) == (2, ("fd00::5", "10.0.3.17"))


def test_an_object_as_the_api_server_returns_it_is_taken() -> None:
    found = document({"pool": "k80", "count": 1}, resourceVersion="7", labels={"a": "b"})
    assert parse(found | {"status": {"phase": "Available"}}).pool == "k80"


@pytest.mark.parametrize(("spec", "words"), WRONG_SPECS, ids=str)
def test_a_wrong_spec_is_refused_naming_the_poolclaim_and_field(spec: object, words: str) -> None:
    said = refusal(document(spec))
    assert said.startswith("PoolClaim team-a/k80-erc: ")
    assert words in said


@pytest.mark.parametrize(
    "metadata",
    [{"name": name} for name in (None, "", "K80", "a_b", "-a", "a/b", "a" * 254)]
    + [{"namespace": name} for name in ("A", "a/b", "..")],
    ids=str,
)
def test_a_poolclaim_without_a_proper_name_is_refused(metadata: dict[str, Any]) -> None:
    said = refusal(document({"pool": "k80"}, **metadata))
    assert said.endswith("its namespace and name should be of lower-case letters, digits, - and .")


@pytest.mark.parametrize("found", [None, 7, "x", [], {}, {"kind": "Pool"}, {"kind": "PoolClaim"}], ids=str)
def test_what_is_no_poolclaim_is_refused(found: object) -> None:
    said = "a PoolClaim should be an object with apiVersion: berth.dev/v1alpha1 and kind: PoolClaim"
    assert refusal(found) == said


def test_a_field_beside_spec_is_refused_and_not_ignored() -> None:
    said = refusal(document({"pool": "k80"}) | {"pool": "k80"})
    assert said == "PoolClaim team-a/k80-erc: unknown field 'pool'; fields of a PoolClaim go under spec"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("k80-erc", ("k80-erc",)),
        (" k80-erc , other,k80-erc,", ("k80-erc", "other")),
        ("b,a,k80.erc", ("b", "a", "k80.erc")),
        ("", ()),
        (" , ", ()),
    ],
)
def test_a_pod_names_poolclaims_with_commas_between_them_each_once_and_in_order(
    text: str, names: tuple[str, ...]
) -> None:
    assert named(naming(text)) == names


def test_a_pod_without_the_annotation_names_none() -> None:
    assert named(pod()) == ()


@pytest.mark.parametrize("text", ["K80", "a b", "../a", "ok,a/b", "-a", "a" * 254, "a\nb"])
def test_what_can_be_no_poolclaims_name_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="can't be the name of a PoolClaim") as caught:
        named(naming(text))
    said = str(caught.value)
    assert said.startswith("annotation berth.dev/claims: '")
    assert "\n" not in said
    assert len(said) < 250


def test_within_a_namespace_s_bound_the_oldest_stay_each_as_heavy_as_it_names_units() -> None:
    def made(name: str, day: int, units: int = 0, namespace: str = "team-a") -> PoolClaim:
        names = tuple(f"u{number}" for number in range(units))
        return PoolClaim(namespace, name, name, "k80", max(1, units), names, f"2026-01-{day:02}T00:00:00Z")

    new, old, large, small = made("a", 9), made("z", 1), made("m", 5, 3), made("s", 6)
    other = made("o", 9, 4, "team-b")
    assert within([new, old, large, small, other], 4) == [old, large, other]
    assert within([new, old, large, small, other], 3) == [old, small, new]
    assert within([made("b", 1), made("a", 1)], 1) == [made("a", 1)]


def test_a_status_has_only_what_is_known() -> None:
    assert PoolClaimStatus("Available").document() == {"phase": "Available"}
    assert PoolClaimStatus("Available", domain="n1", units=["k80-0"]).document() == {
        "phase": "Available",
        "domain": "n1",
        "units": ["k80-0"],
    }
    whole = PoolClaimStatus("Bound", "n1", "rack-1", ["k80-0", "k80-1"], "web-0", "u1").document()
    assert whole == {
        "phase": "Bound",
        "node": "n1",
        "domain": "rack-1",
        "units": ["k80-0", "k80-1"],
        "pod": "web-0",
        "podUID": "u1",
    }
