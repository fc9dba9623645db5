"""`berth apply --dry-run`, `berth diff` and `berth validate` on files; what -f takes.
What a cluster would make of a document is shown by tests/e2e/test_diff.py."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main

NEITHER = "each document should be an object with apiVersion: berth.dev/v1alpha1 and kind: Pool or PoolClaim"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `main` sets is taken back; relative paths are below tmp_path."""
    for name in ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def pool(name: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": name}}
    return {**head, "spec": spec or {"capacity": {"perDomain": 3}}}


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "berth.dev/v1alpha1", "kind": "PoolClaim", "metadata": {"name": name}, "spec": spec}


def write(name: str, *documents: object) -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump_all(documents))
    return path


def names(path: str) -> list[str]:
    return [document["metadata"]["name"] for document in yaml.safe_load_all(Path(path).read_text())]


# What -f takes


def test_f_takes_files_folders_and_standard_input_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("folder/b.yml", pool("b"))
    write("folder/a.yaml", pool("a"))
    Path("folder/c.json").write_text(json.dumps(pool("c")))
    Path("folder/README.md").write_text("no manifest")
    write("d.yaml", pool("d"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(yaml.safe_dump(pool("e"))))
    assert main(["apply", "-f", "folder", "-f", "d.yaml", "-f", "-", "--pools", "active.yaml"]) == 0
    assert capsys.readouterr().out.endswith("active.yaml, which is new: a, b, c, d, e\n")
    assert names("active.yaml") == ["a", "b", "c", "d", "e"]


def test_labels_and_annotations_that_are_no_text_are_told_with_all_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad, seat = pool("a", capacity=1), claim("c", pool="a", count=1)
    bad["metadata"] |= {"labels": {"team": 7}, "annotations": ["x"]}
    seat["metadata"]["annotations"] = {"on": True}
    write("bad.yaml", bad, seat)
    assert main(["validate", "-f", "bad.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "bad.yaml:1: Pool a: spec.capacity must be an object, not 1",
        "bad.yaml:1: Pool a: metadata.labels.team must be text, not 7: put it in quotation marks",
        "bad.yaml:1: Pool a: metadata.annotations must be an object, not a list",
        "bad.yaml:12: PoolClaim c: metadata.annotations.on must be text, not true: put it in quotation marks",
    ]


def test_standard_input_that_is_closed_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["validate", "-f", "-"]) == 1
    assert capsys.readouterr().out == "there is no standard input to read: it is closed\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["none.yaml"], "can't read none.yaml: No such file or directory"),
        (["http://a/b.yaml"], "http://a/b.yaml is no file: fetch it, and let Berth read it by -f -"),
        (["folder"], "folder has no file that ends in .json, .yaml, .yml"),
        (["-"], "standard input holds no Pool and no PoolClaim: nothing was applied"),
        (
            ["empty.yaml", "-"],
            "empty.yaml, standard input holds no Pool and no PoolClaim: nothing was applied",
        ),
    ],
)
def test_what_holds_nothing_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    Path("folder").mkdir()
    Path("empty.yaml").touch()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    options = [word for name in given for word in ("-f", name)]
    assert main(["apply", *options, "--pools", "active.yaml"]) == 1
    assert capsys.readouterr().err == f"berth: {said}\n"
    assert not Path("active.yaml").exists()


def test_standard_input_that_is_no_text_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    assert main(["validate", "-f", "-"]) == 1
    assert capsys.readouterr().out == "standard input is not YAML: it is not UTF-8 text\n"


def test_all_mistakes_of_all_files_are_told_a_line_each_and_nothing_is_applied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("a.yaml", pool("a", capacty={"perDomain": 3}, score="Fast"), pool("b"), claim("k", pool="K80"))
    write("b.yaml", pool("b"))
    Path("c.yaml").write_text("a: b: c")
    files = ["-f", "a.yaml", "-f", "b.yaml", "-f", "c.yaml", "-f", "d.yaml"]
    assert main(["apply", *files, "--pools", "active.yaml"]) == 1
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("berth: ")] == [
        "berth: c.yaml is not YAML, line 1: mapping values are not allowed here",
        "berth: can't read d.yaml: No such file or directory",
        "berth: a.yaml:1: Pool a: spec: unknown field capacty: did you mean capacity?",
        "berth: a.yaml:1: Pool a: spec.score 'Fast' should be one of Spread, Pack, Names, None",
        "berth: a.yaml:18: PoolClaim default/k: spec.pool 'K80' can't be the name of a Pool",
        "berth: b.yaml:1: Pool b is there twice",
    ]
    assert not Path("active.yaml").exists()


# berth apply --dry-run


def test_a_dry_run_says_what_would_change_field_by_field_and_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    active = write("active.yaml", pool("a", capacity={"perDomain": 2}, external=0, score="Pack"), pool("b"))
    before = active.read_bytes()
    write(
        "new.yaml", pool("a", capacity={"perDomain": 20}, external=0, suspended=["n1"]), pool("b"), pool("c")
    )
    assert main(["apply", "-f", "new.yaml", "--pools", "active.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Pool a would be changed",
        "  spec.capacity.perDomain: 2 -> 20",
        '  spec.score: "Pack" -> (not set)',
        '  spec.suspended: (not set) -> ["n1"]',
        "Pool b would be left as it is",
        "Pool c would be created",
        "dry run: nothing was written",
    ]
    assert active.read_bytes() == before


def test_a_dry_run_onto_a_file_that_is_not_there_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    write("new.yaml", pool("a"))
    assert main(["apply", "-f", "new.yaml", "--pools", "active.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().out == "Pool a would be created\ndry run: nothing was written\n"
    assert not Path("active.yaml").exists()


@pytest.mark.parametrize("dry", [True, False])
def test_for_a_program_apply_says_what_it_did_or_would_do(
    capsys: pytest.CaptureFixture[str], dry: bool
) -> None:
    write("active.yaml", pool("a"))
    write("new.yaml", pool("a", capacity={"perDomain": 4}))
    options = ["--pools", "active.yaml", "-o", "json", *(["--dry-run"] if dry else [])]
    assert main(["apply", "-f", "new.yaml", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    place = str(Path("active.yaml").absolute())
    fields = [{"field": "spec.capacity.perDomain", "before": 3, "after": 4}]
    done = {"kind": "Pool", "name": "a", "place": place, "action": "change", "fields": fields}
    assert found == {"dryRun": dry, "documents": [done]}
    (kept,) = yaml.safe_load_all(Path("active.yaml").read_text())
    assert kept["spec"]["capacity"]["perDomain"] == (3 if dry else 4)


def test_a_dry_run_fails_where_the_two_together_would_be_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    write("active.yaml", pool("a"))
    write("new.yaml", pool("b", capacity={"perDomain": 1}, resource="berth.dev/a"))
    for command in (["apply", "--dry-run"], ["diff"]):
        assert main([*command, "-f", "new.yaml", "--pools", "active.yaml"]) in (1, 2)
        assert "Pools a and b both have resource berth.dev/a" in capsys.readouterr().err


# berth diff


def test_diff_shows_what_would_change_as_a_unified_diff_and_ends_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    active = write("active.yaml", pool("a", capacity={"perDomain": 2}), pool("b"))
    before = active.read_bytes()
    write("new.yaml", pool("b"), pool("a", capacity={"perDomain": 20}))
    assert main(["diff", "-f", "new.yaml", "--pools", "active.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"--- Pool a in {active.absolute()}",
        "+++ new.yaml:9",
        "@@ -4,4 +4,4 @@",
        "   name: a",
        " spec:",
        "   capacity:",
        "-    perDomain: 2",
        "+    perDomain: 20",
    ]
    assert active.read_bytes() == before


def test_diff_ends_with_0_and_says_nothing_where_nothing_would_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("active.yaml", pool("a"), pool("b"))
    Path("new.json").write_text(json.dumps(pool("a") | {"status": {"used": 3}}))
    assert main(["diff", "-f", "new.json", "--pools", "active.yaml"]) == 0
    assert capsys.readouterr().out == ""


def test_a_document_that_is_new_is_wholly_in_the_diff(capsys: pytest.CaptureFixture[str]) -> None:
    write("new.yaml", pool("a"))
    assert main(["diff", "-f", "new.yaml", "--pools", "active.yaml"]) == 1
    body = capsys.readouterr().out.splitlines()[3:]
    assert yaml.safe_load("\n".join(line.removeprefix("+") for line in body)) == pool("a")


@pytest.mark.parametrize("wrong", ["file", "cluster"])
def test_an_error_ends_diff_with_2_as_kubectl_diff(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    write("new.yaml", pool("a") if wrong == "cluster" else pool("a", scope="Planet"))
    assert main(["diff", "-f", "new.yaml"]) == 2
    said = "no kubeconfig found" if wrong == "cluster" else "spec.scope 'Planet' should be one of"
    assert said in capsys.readouterr().err


# berth validate


def test_validate_tells_all_that_is_wrong_with_file_and_line_and_asks_no_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("pools.yaml").write_text(
        "# Pools\n" + yaml.safe_dump_all([pool("a", scope="Planet"), pool("b", x=1)])
    )
    write("claims.yaml", claim("k", pool="k80", count="one"), {"apiVersion": "v1", "kind": "Pod"})
    assert main(["validate", "-f", "pools.yaml", "-f", "claims.yaml"]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [line.partition(": the fields")[0] for line in shown.out.splitlines()] == [
        "pools.yaml:2: Pool a: spec.scope 'Planet' should be one of Node, Topology, Cluster",
        "pools.yaml:9: Pool b: spec: unknown field x",
        "claims.yaml:1: PoolClaim default/k: spec.count must be a whole number, not the text 'one'",
        f"claims.yaml:9: {NEITHER}; this one has apiVersion: v1, kind: Pod",
    ]


def test_validate_says_how_much_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    write("new.yaml", pool("a"), claim("k", pool="a"), claim("l", pool="a"))
    assert main(["validate", "-f", "new.yaml"]) == 0
    assert capsys.readouterr().out == "all right: 1 Pool, 2 PoolClaims\n"
    assert main(["validate", "-f", "new.yaml", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"pools": 1, "poolClaims": 2, "problems": []}


def test_a_file_without_any_pool_is_not_all_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline whose template came out empty would go on."""
    (empty := tmp_path / "empty.yaml").write_text("---\n# later\n")
    why = f"{empty} holds no Pool and no PoolClaim"
    assert main(["validate", "-f", str(empty)]) == 1
    assert capsys.readouterr().out == f"{why}\n"
    assert main(["validate", "-f", str(empty), "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [why]
