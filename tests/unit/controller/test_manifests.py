"""Documents of YAML and JSON: where each begins, what counts as one, and what is said of what is none."""

from pathlib import Path

import pytest

from berth.controller.manifests import decode, files_in, read
from berth.errors import BadInputError


def refusal(text: str) -> str:
    with pytest.raises(BadInputError) as caught:
        decode(text, "pools.yaml")
    assert "\n" not in str(caught.value)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("---\n# later\n---\n", []),
        ("a: 1\n", [({"a": 1}, 1)]),
        ("---\n---\n# x\na: 1\n---\n\n\nb: 2\n", [({"a": 1}, 4), ({"b": 2}, 8)]),
        ("text", [("text", 1)]),
        ('{"a": 1}', [({"a": 1}, 1)]),
        ('{\n\t"a": "\\t"\n}', [({"a": "\t"}, 1)]),
        ("apiVersion: v1\nkind: List\nitems:\n- a: 1\n- b: 2\n", [({"a": 1}, 4), ({"b": 2}, 5)]),
        ("kind: List\nitems: []", []),
        (
            "apiVersion: v1\nkind: PodList\nitems:\n- a: 1\n- kind: Own\n",
            [({"apiVersion": "v1", "kind": "Pod", "a": 1}, 4), ({"apiVersion": "v1", "kind": "Own"}, 5)],
        ),
        ('{"kind": "PodList", "items": [{"a": 1}, null]}', [({"kind": "Pod", "a": 1}, 1)]),
        ("a: 2026-01-02", [({"a": "2026-01-02"}, 1)]),
        ("kind: List\nitems: 3", [({"kind": "List", "items": 3}, 1)]),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}", [({"a": {"b": 1}, "c": {"b": 2}}, 1)]),
    ],
)
def test_each_document_has_the_line_where_it_begins(text: str, found: list[tuple[object, int]]) -> None:
    manifests = decode(text, "pools.yaml")
    assert [(manifest.document, manifest.line) for manifest in manifests] == found
    assert [manifest.place for manifest in manifests] == [f"pools.yaml:{line}" for _, line in found]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [\n", "is not YAML, line 2: while parsing a flow node, expected the node content, but found"),
        ("a: b: c", "is not YAML, line 1: mapping values are not allowed here\n    a: b: c\n        ^"),
        ("a:\n\tb: 1", "is not YAML, line 2: while scanning for the next token, found character '\\t' that "),
        ("a:\n\tb: 1", "(indent by blanks, not by tabs)\n    \tb: 1\n    ^"),
        ("a: 1\nb: 2\na: 3", "can't be taken, line 3: a is there twice\n    a: 3\n    ^"),
        ("a: {b: 1, b: 2}", "can't be taken, line 1: b is there twice"),
        ('{\n\t"a": 1,\n\t"a": 2\n}', "is not YAML, line 2: "),
        ("a: !!python/object:os.system 1", "can't be taken, line 1: could not determine a constructor"),
        ("a: !!bool x", "is not YAML: a value is not what its tag says"),
        ("a: !!timestamp x", "is not YAML: a value is not what its tag says"),
        ("a: " + "9" * 5_000, "is not YAML: Exceeds the limit"),
        ("a: \x00", "is not YAML: unacceptable character"),
        ("[" * 5_000, "is nested too deeply"),
        ('{"a":' * 100_000, "is nested too deeply"),
    ],
)
def test_what_is_no_yaml_is_shown_with_its_line_and_a_mark_below_it(text: str, said: str) -> None:
    problem = refusal(text)
    assert problem.startswith("pools.yaml ")
    assert said in problem


@pytest.mark.parametrize(
    "text",
    [
        "---\nb: 1\n---\na: &a {b: *a}",
        "b: 1\n---\n\n&a\nkind: List\nitems: [*a]",
        "b: 1\n---\n\na: " + "[" * 220 + "]" * 220,
        "b: 1\n---\n"
        "\na: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(
            f"{one}: &{one} [{', '.join([f'*{before}'] * 10)}]\n"
            for before, one in zip("abcdef", "bcdefg", strict=True)
        ),
    ],
)
def test_aliases_that_stand_for_too_much_or_for_themselves_are_refused(text: str) -> None:
    assert refusal(text) == "pools.yaml:4: it is nested too deeply, or its aliases stand for too much"


@pytest.mark.parametrize("text", ['{"a": {"b": "\\ud800"}}', 'a: {b: ["\\ud800"]}'])
def test_half_a_character_is_refused_and_two_halves_are_one(text: str) -> None:
    assert refusal(text) == "pools.yaml:1: an escape in it, such as \\ud800, is half a character"
    assert decode(r'{"a": "\ud83d\ude00"}', "pools.yaml")[0].document == {"a": "\U0001f600"}


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInputError, match=r"a\.yaml is not YAML: it is not UTF-8 text$"):
        read(tmp_path / "a.yaml")


def test_a_folder_stands_for_its_manifests_in_order_and_for_no_other_files(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "d.txt", "e.yaml.new"):
        (tmp_path / name).touch()
    (tmp_path / "f.yaml").mkdir()
    assert [path.name for path in files_in(tmp_path)] == ["a.yaml", "b.yml", "c.json"]
    assert files_in(tmp_path / "d.txt") == [tmp_path / "d.txt"]
    with pytest.raises(BadInputError, match=r"f\.yaml has no file that ends in \.json, \.yaml, \.yml$"):
        files_in(tmp_path / "f.yaml")
