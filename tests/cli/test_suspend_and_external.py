"""`berth suspend` and `berth external` where the Pools are in a file, and `berth claims --units`.

In the cluster: features/test_pool_fields.py; with a real kube-scheduler: e2e/test_pools_on_nodes.py.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import ledger_on
from tests.support.builders.objects import pool_document
from tests.support.cluster import Cluster

NAMES = ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS", "BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE")


@pytest.fixture(autouse=True)
def source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A file of Pools: `ip` on nodes n1 and n2, and 10 seats for the whole cluster; it is the active source.
    The ledger that BERTH_STORE names is not there yet."""
    path = tmp_path / "pools.yaml"
    seat = pool_document("seat", scope="Cluster", capacity={"domains": {"*": 10}})
    path.write_text(f"# lost\n{yaml.safe_dump_all([pool_document('ip'), seat])}")
    with StandIn() as api:
        with closing(Cluster(api.url, "")) as cluster:
            for name in ("n1", "n2"):
                cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        for name in NAMES:
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
        monkeypatch.setenv("BERTH_POOLS", str(path))
        monkeypatch.setenv("BERTH_STORE", f"sqlite:///{tmp_path}/ledger.db")
        yield path


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Reconciled, open; pod `a` holds an address on n1, `b` one on n2 and 9 seats."""
    assert main(["reconcile"]) == 0
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as store:
        found = ledger_on(store)
        found.adopt(claim("a", Holding("ip", "n1", 1)))
        found.adopt(claim("b", Holding("ip", "n2", 1), Holding("seat", "*", 9)))
        yield found


def claim(name: str, *held: Holding) -> Claim:
    return Claim(uid=name, namespace="d", name=name, node="n1", holdings=held, state="bound", since=1.0)


def spec(source: Path, name: str) -> dict[str, Any]:
    found = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(source.read_text())}
    assert set(found) == {"ip", "seat"}
    return dict(found[name])


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What it wrote to standard output but for the last line, and to standard error."""
    capsys.readouterr()
    assert main(arguments) == 0
    found = capsys.readouterr()
    return found.out, found.err


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    found = capsys.readouterr()
    assert (found.out, found.err.count("\n")) == ("", 1)
    return found.err


def test_a_pool_is_suspended_as_a_whole_and_resumed(
    capsys: pytest.CaptureFixture[str], source: Path, ledger: Ledger
) -> None:
    assert ledger.view().open
    before = spec(source, "ip")
    out, why = said(capsys, "suspend", "ip")
    assert out == (
        "Pool ip is suspended: nothing new is given there; 2 pods that hold units there keep them\n"
        f"written to {source}\n"
    )
    assert why == ""
    assert spec(source, "ip") == {**before, "suspended": True}
    out, why = said(capsys, "suspend", "ip", "--resume")
    assert (out, why) == (f"Pool ip gives units again\nwritten to {source}\n", "")
    assert spec(source, "ip") == before


def test_domains_are_suspended_and_resumed_one_by_one(
    capsys: pytest.CaptureFixture[str], source: Path, ledger: Ledger
) -> None:
    assert ledger.view().open
    out, _ = said(capsys, "suspend", "ip", "n2")
    assert out.startswith(
        "Pool ip: n2 is suspended: nothing new is given there; 1 pod that holds units there"
    )
    out, _ = said(capsys, "suspend", "ip", "n1", "n2")
    assert out.startswith("Pool ip: n1, n2 are suspended: nothing new is given there; 2 pods that hold")
    assert spec(source, "ip")["suspended"] == ["n2", "n1"]
    out, _ = said(capsys, "suspend", "ip", "n2", "--resume")
    assert out.startswith("Pool ip: n2 resumed; suspended still: n1\n")
    assert spec(source, "ip")["suspended"] == ["n1"]
    assert said(capsys, "suspend", "ip", "n1", "--resume")[0].startswith("Pool ip gives units again\n")
    assert "suspended" not in spec(source, "ip")


def test_one_domain_of_a_pool_that_is_suspended_as_a_whole_is_not_resumed_by_itself(
    capsys: pytest.CaptureFixture[str], source: Path
) -> None:
    said(capsys, "suspend", "ip")
    text = source.read_text()
    assert "Pool ip is suspended as a whole: resume it" in failed(capsys, "suspend", "ip", "n1", "--resume")
    assert source.read_text() == text
    assert said(capsys, "suspend", "ip", "n1")[0].startswith("Pool ip is suspended: ")
    assert spec(source, "ip")["suspended"] is True


def test_without_a_ledger_only_the_number_of_holders_is_not_known(
    capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path
) -> None:
    out, why = said(capsys, "suspend", "ip", "n1")
    assert out.startswith(
        "Pool ip: n1 is suspended: nothing new is given there, and pods that hold units keep"
    )
    assert why.startswith("berth: how many pods hold units there is not known: there is no ledger at sqlite:")
    assert spec(source, "ip")["suspended"] == ["n1"]
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("suspend", "ipp"), "has no Pool ipp; there are: ip, seat"),
        (("suspend", "ip", "n3"), "Pool ip has no domain n3; there are: n1, n2"),
        (("suspend", "ip", "n1", "n3", "--resume"), "Pool ip has no domain n3; there are: n1, n2"),
        (("suspend", "seat", "n1"), "Pool seat has no domain n1; there are: *"),
        (("external", "ip", "3"), "Pool ip has scope Node: external use goes with scope Cluster only"),
        (("external", "ip", "0"), "Pool ip has scope Node: external use goes with scope Cluster only"),
        (("external", "ipp", "3"), "has no Pool ipp; there are: ip, seat"),
    ],
)
def test_a_mistake_changes_nothing_and_names_what_there_is(
    capsys: pytest.CaptureFixture[str], source: Path, arguments: tuple[str, ...], why: str
) -> None:
    text = source.read_text()
    assert why in failed(capsys, *arguments)
    assert source.read_text() == text


@pytest.mark.parametrize("number", ["-1", "many", "2147483648"])
def test_external_use_is_a_number_of_units(capsys: pytest.CaptureFixture[str], number: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["external", "seat", "--", number])
    assert ended.value.code == 2
    assert f"'{number}' should be a number of units from 0 to 2147483647" in capsys.readouterr().err


def test_external_use_is_written_and_what_it_takes_too_much_is_said(
    capsys: pytest.CaptureFixture[str], source: Path, ledger: Ledger
) -> None:
    out, why = said(capsys, "external", "seat", "1")
    told = "Pool seat: 1 unit is in use outside the cluster (before: 0)\n"
    assert (out, why) == (f"{told}written to {source}\n", "")
    out, _ = said(capsys, "external", "seat", "3")
    assert "(before: 1)\nover-committed by 2: nothing new is given until" in out
    assert spec(source, "seat")["external"] == 3
    main(["reconcile"])
    assert ledger.view().free["seat"]["*"] == (7, 10)  # the pods were none, and hold nothing any more
    assert "external use" in said(capsys, "claims", "--pool", "seat")[0]
    assert said(capsys, "external", "seat", "0")[0].startswith(
        "Pool seat: 0 units are in use outside the cluster (before: 3)\nwritten"
    )


def test_each_unit_of_a_named_pool_is_listed_in_every_form(
    capsys: pytest.CaptureFixture[str], source: Path, ledger: Ledger
) -> None:
    k80 = pool_document("k80") | {"spec": {"units": {"n1": ["10.0.0.1-10.0.0.9", "k80-0"]}}}
    source.write_text(source.read_text() + "---\n" + yaml.safe_dump(k80))
    assert main(["reconcile"]) == 0
    ledger.adopt(claim("c", Holding("k80", "n1", 1, ("10.0.0.4",))))
    table = said(capsys, "claims", "--units")[0].splitlines()
    assert [line.split() for line in table] == [
        ["POOL", "DOMAIN", "UNIT", "STATE", "HOLDER", "CLAIM", "NODE"],
        ["k80", "n1", "k80-0", "free", "-", "-", "-"],
        ["k80", "n1", "10.0.0.1-10.0.0.3", "free", "-", "-", "-"],
        ["k80", "n1", "10.0.0.4", "bound", "d/c", "-", "n1"],
        ["k80", "n1", "10.0.0.5-10.0.0.9", "free", "-", "-", "-"],
    ]
    found = json.loads(said(capsys, "claims", "--units", "-o", "json")[0])
    assert found["ledger"]["open"] is True
    assert found["units"][2] == {
        "pool": "k80", "domain": "n1", "unit": "10.0.0.4", "count": 1, "state": "bound", "holder": "d/c",
        "uid": "c", "claim": "", "node": "n1",
    }  # fmt: skip
    assert found["units"][3]["count"] == 5
    assert yaml.safe_load(said(capsys, "claims", "--units", "-o", "yaml")[0]) == found
    held = json.loads(said(capsys, "claims", "--units", "-n", "d", "-o", "json")[0])
    assert held["units"] == [found["units"][2]]
    out, why = said(capsys, "claims", "--units", "--pool", "ip")
    assert (out, why.startswith("berth: no units with names in sqlite:")) == ("", True)


def test_suspend_without_a_pool_asks_for_no_domain(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["suspend"])
    assert "the following arguments are required: POOL; see berth suspend --help\n" in capsys.readouterr().err


def test_what_was_written_is_told_to_a_program_too(
    source: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ledger.view().open
    written = {"writtenTo": str(source)}
    for words, told in (
        ("suspend ip n1", {"pool": "ip", "suspended": ["n1"], "holders": 1}),
        ("suspend ip", {"pool": "ip", "suspended": True, "holders": 2}),
        ("suspend ip --resume", {"pool": "ip", "suspended": False, "holders": 0}),
        ("external seat 3", {"pool": "seat", "external": 3, "before": 0, "overCommitted": 2}),
    ):
        capsys.readouterr()
        assert main([*words.split(), "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == {**told, **written}
