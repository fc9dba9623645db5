"""`berth status` and `berth claims`, as a person or a program meets them.

Beside a real kube-scheduler: tests/e2e/test_see.py; `berth up` on a terminal: test_live_table.py.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main
from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.local.ports import free_port
from berth.stores import open_store
from berth.testing.api_server import StandIn
from tests.e2e.harness import BERTH
from tests.support.builders.copies import pause
from tests.support.builders.ledgers import claim, ledger_on, two_pools
from tests.support.builders.objects import pool_document
from tests.support.builders.places import Place
from tests.support.builders.pool_rows import CALM
from tests.support.cluster import Cluster
from tests.support.fixtures import PLACES

NAMES = (
    *("KUBECONFIG", "BERTH_CONTEXT", "BERTH_STORE", "BERTH_POOLS", "BERTH_SCHEDULER_NAMES"),
    *("BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE"),
)
Counts = tuple[int, int, int, int]
WHERE = "berth's ledger was moved to redis://there; set BERTH_STORE to it"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `main` sets is taken back; relative paths are below tmp_path, and no cluster is at hand."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["redis", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A ledger in ConfigMaps would bring a cluster along, which could say who waits."""
    return PLACES[request.param](request, tmp_path)


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    """Two units of `ip` and three of `seat` on n1 and n2; `first` is bound to n1, `second` reserved there."""
    store = two_pools(place.url)
    found = ledger_on(store)
    found.reserve(claim("first", "n1", "a1", ip=1, seat=2))
    found.confirm(claim("first", "n1", "a1", ip=1, seat=2))
    found.reserve(claim("second", "n1", "a2", ip=1))
    yield found
    store.close()


@pytest.fixture
def api() -> Iterator[StandIn]:
    with StandIn() as started:
        yield started


def _said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    """What it wrote to standard output and to standard error."""
    assert main([str(argument) for argument in arguments]) == 0
    said = capsys.readouterr()
    return said.out, said.err


def _troubled(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """The lines on standard output, the headline first, where it ends with 1 and says nothing besides."""
    assert main([str(argument) for argument in arguments]) == 1
    said = capsys.readouterr()
    assert said.err == ""
    return said.out.splitlines()


def _failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which it ends, with exit code 1."""
    assert main([str(argument) for argument in arguments]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err


def _pool(name: str, counts: Counts, **domains: Counts) -> Mapping[str, Any]:
    """A pool that is not over-committed, with nobody who could say who waits for it."""
    return {
        **_counted(name, counts),
        "waiting": None,
        "overCommitted": 0,
        "suspendedDomains": [],
        "heldBack": False,
        "external": 0,
        "externalState": "",
        "externalAge": None,
        "externalNote": "",
        "priorityAtLeast": None,
        "preemption": "None",
        "limits": [],
        "domains": [_counted(domain, found) for domain, found in domains.items()],
    }


def _counted(name: str, counts: Counts) -> Mapping[str, Any]:
    counted = dict(zip(("name", "capacity", "used", "free", "reserved"), (name, *counts), strict=True))
    return {**counted, "binding": counts[-1], **CALM}


def test_a_document_that_cannot_be_read_is_named_with_what_to_do(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger
) -> None:
    assert ledger.view().open
    with closing(open_store(place.url)) as store:
        key = domain_key("ip", "n1")
        assert store.commit({key: b"garbage"}, {key: store.read([key])[key].version})
    said = _failed(capsys, "claims", "--store", place.url)
    assert said.startswith(f"berth: berth's ledger holds {key} as another version wrote it, or damaged (")
    assert said.endswith(" (--fix throws it away where that is safe)\n")


def test_status_shows_each_pool_and_domain_in_every_form(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger
) -> None:
    assert ledger.view().open
    text, why = _said(capsys, "status", "--store", place.url, "-o", "json")
    found = json.loads(text)
    assert found == {
        "ledger": {"store": place.url, "open": True, "why": ""},
        "headline": "2 pools, 6 of 10 units free, who waits is not known",
        "pools": [
            _pool("ip", (4, 2, 2, 1), n1=(2, 2, 0, 1), n2=(2, 0, 2, 0)),
            _pool("seat", (6, 2, 4, 0), n1=(3, 2, 1, 0), n2=(3, 0, 3, 0)),
        ],
        "remarks": [],
    }
    assert why.startswith("berth: who waits is not known: no cluster to talk to")
    assert why.count("\n") == 1
    assert yaml.safe_load(_said(capsys, "status", "--store", place.url, "-o", "yaml")[0]) == found
    table = _said(capsys, "status", "--store", place.url, "--pool", "ip")[0].splitlines()
    assert table[0] == "1 pool, 2 of 4 units free, who waits is not known"
    assert [line.split() for line in table[2:]] == [
        ["ip", "<all>", "4", "2", "2", "1", "?"],
        ["ip", "n1", "2", "2", "0", "1", "-"],
        ["ip", "n2", "2", "0", "2", "0", "-"],
    ]


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("status", ("--kubeconfig", "--context", "--store", "--pool", "-o", "{table,json,yaml}", "-w")),
        ("top", ("--kubeconfig", "--context", "--store", "--pool", "-o", "{table,json,yaml}", "--interval")),
        ("claims", ("--store", "--pool", "-n", "--namespace", "--units", "-o", "{table,json,yaml}", "-A")),
    ],
)
def test_help_names_every_option(
    capsys: pytest.CaptureFixture[str], command: str, names: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert [name for name in names if name not in said] == []


def test_claims_names_each_holder_in_every_form(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger
) -> None:
    assert ledger.view().open
    text, why = _said(capsys, "claims", "--store", place.url, "-o", "json")
    found = json.loads(text)
    names = {"namespace": "d", "pod": "first", "uid": "first", "node": "n1"}
    first = {**names, "units": [], "claim": "", "state": "bound"}
    assert found["ledger"] == {"store": place.url, "open": True, "why": ""}
    assert found["claims"][1:] == [
        {**first, "pool": "seat", "domain": "n1", "count": 2, "since": "1970-01-01T00:00:01Z"},
        {**found["claims"][0], "pod": "second", "uid": "second", "state": "reserved"},
    ]
    assert why == ""
    assert yaml.safe_load(_said(capsys, "claims", "--store", place.url, "-o", "yaml")[0]) == found
    table = _said(capsys, "claims", "--store", place.url, "--pool", "seat", "-n", "d")[0].splitlines()
    assert [line.split()[:-1] for line in table[1:]] == [["d", "first", "n1", "seat", "n1", "2", "bound"]]


def test_claims_of_a_namespace_without_any_are_none(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger
) -> None:
    assert ledger.view().open
    out, why = _said(capsys, "claims", "--store", place.url, "-n", "elsewhere")
    assert (out, why) == ("", f"berth: no claims in namespace elsewhere in {place.url}\n")


def test_claims_of_all_namespaces_can_be_said_and_not_beside_one_of_them(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger
) -> None:
    assert ledger.view().open
    every = _said(capsys, "claims", "--store", place.url, "-o", "json")
    assert _said(capsys, "claims", "--store", place.url, "-A", "-o", "json") == every
    with pytest.raises(SystemExit) as ended:
        main(["claims", "--store", place.url, "-n", "d", "-A"])
    assert ended.value.code == 2
    assert "-A/--all-namespaces: not allowed with argument -n/--namespace" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "claims"])
def test_a_pool_that_is_not_there_is_named_beside_those_that_are(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger, command: str
) -> None:
    assert ledger.view().open
    said = _failed(capsys, command, "--store", place.url, "--pool", "sear")
    assert said == "berth: there is no pool sear in the ledger; there are: ip, seat (did you mean seat?)\n"


def test_status_counts_the_pods_of_ours_that_wait_for_each_pool(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = _reconciled(tmp_path, api)
    cluster = Cluster(api.url, "")
    cluster.create_pods("a", "b")
    cluster.create_pod("gated", scheduling_gates=["later"])
    cluster.create_pod("another", scheduler="default-scheduler")
    cluster.create_pod("nothing", {})
    cluster.close()
    options = ["--store", store, "--kubeconfig", tmp_path / "kubeconfig", "-o", "json"]
    out, why = _said(capsys, "status", *options)
    assert why == ""
    assert {pool["name"]: pool["waiting"] for pool in json.loads(out)["pools"]} == {
        "seat": 0,
        "underlay-ip": 2,
    }
    remark = (
        "default/another: asks for underlay-ip, but its schedulerName is default-scheduler, not berth: Berth "
        "never counts nor places it"
    )
    assert json.loads(out)["remarks"] == [remark]
    assert _said(capsys, "status", *options[:-2])[1] == f"berth: {remark}\n"
    assert _said(capsys, "status", *options[:-2], "--pool", "seat")[1] == ""


def test_another_cluster_s_ledger_is_not_shown_as_this_one_s(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = _reconciled(tmp_path, api)
    with StandIn() as another:
        arguments = [
            "status",
            "--store",
            store,
            "--kubeconfig",
            str(another.kubeconfig(tmp_path / "another")),
        ]
        (why,) = _troubled(capsys, *arguments)
        assert why.startswith(f"berth's ledger {store} belongs to another cluster")
        found = json.loads("\n".join(_troubled(capsys, *arguments, "-o", "json")))
        assert _troubled(capsys, *arguments, "--watch")[0].endswith(f" {why}")
    state = {"store": store, "open": False, "why": why}
    assert found == {"ledger": state, "headline": why, "pools": [], "remarks": []}


@pytest.mark.parametrize(
    ("command", "empty"),
    [
        ("status", {"headline": WHERE, "pools": [], "remarks": []}),
        ("claims", {"claims": []}),
        ("claims --units", {"units": []}),
    ],
)
def test_a_ledger_that_was_moved_is_not_shown_but_where_it_is_now(
    capsys: pytest.CaptureFixture[str], place: Place, ledger: Ledger, command: str, empty: dict[str, object]
) -> None:
    assert ledger.view().open
    with closing(open_store(place.url)) as store:
        pause(store, moved=True)
    arguments = [*command.split(), "--store", place.url]
    assert _troubled(capsys, *arguments) == [WHERE]
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        said = "\n".join(_troubled(capsys, *arguments, "-o", output))
        assert read(said) == {"ledger": {"store": place.url, "open": False, "why": WHERE}, **empty}


def test_a_cluster_that_does_not_answer_leaves_only_the_waiting_unknown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = _reconciled(tmp_path, api)
    api.stop()
    out, why = _said(capsys, "status", "--store", store, "--kubeconfig", tmp_path / "kubeconfig")
    assert out.splitlines()[2].split() == ["seat", "<all>", "2", "0", "2", "0", "?"]
    assert why.startswith(f"berth: who waits is not known: the API server at {api.url} did not answer")
    assert why.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "claims"])
def test_looking_makes_no_ledger(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    said = _failed(capsys, command)
    assert said.startswith(f"berth: there is no ledger at sqlite:///{tmp_path}/.berth/ledger.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["status", "claims"])
def test_a_ledger_that_is_being_rebuilt_is_shown_as_far_as_it_is(
    capsys: pytest.CaptureFixture[str], place: Place, command: str
) -> None:
    store = two_pools(place.url)
    try:
        place.lose()
        keeper = ledger_on(store, while_closed=True)
        keeper.begin_rebuild("again")
        keeper.adopt(claim("first", "n1", "a1", ip=1))
        assert main([command, "--store", place.url, "-o", "json"]) == 1
        out = capsys.readouterr().out
        ledger = json.loads(out)["ledger"]
        assert ledger["open"] is False
        assert ledger["why"].startswith("the ledger is new or being rebuilt")
        assert '"ip"' in out
        assert main([command, "--store", place.url]) == 1
        first, *table = capsys.readouterr().out.splitlines()
        assert first == ledger["why"]
        assert "ip" in table[1].split()
    finally:
        store.close()


@pytest.mark.parametrize("command", ["status", "claims"])
def test_a_store_that_is_away_is_one_line_without_its_password(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    port = free_port()
    said = _failed(capsys, command, "--store", f"redis://me:hunter2@127.0.0.1:{port}/0")
    assert f"127.0.0.1:{port}" in said
    assert "hunter2" not in said


def _reconciled(folder: Path, api: StandIn) -> str:
    """A ledger with one unit of underlay-ip and two of seat on n1; its URL. Also writes the kubeconfig."""
    cluster = Cluster(api.url, "")
    cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    cluster.close()
    pools = [pool_document("underlay-ip", capacity={"perDomain": 1})]
    pools.append(pool_document("seat", capacity={"perDomain": 2}))
    (folder / "pools.yaml").write_text(yaml.safe_dump_all(pools))
    store = f"sqlite:///{folder}/ledger.db"
    kubeconfig = str(api.kubeconfig(folder / "kubeconfig"))
    pools_file = str(folder / "pools.yaml")
    command = [BERTH, "reconcile", "--kubeconfig", kubeconfig, "--store", store, "-f", pools_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return store


def test_a_context_that_is_not_there_is_an_error_and_no_question_mark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = _reconciled(tmp_path, api)
    kubeconfig = tmp_path / "kubeconfig"
    said = _failed(capsys, "status", "--store", store, "--kubeconfig", kubeconfig, "--context", "bert")
    assert "there is no context bert in " in said
    assert "(did you mean berth?)" in said


@pytest.mark.parametrize("command", ["status", "top", "waiting", "version"])
def test_a_file_that_is_no_kubeconfig_is_an_error_and_no_question_mark(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("[")
    with closing(two_pools(f"sqlite:///{tmp_path}/ledger.db")):
        said = _failed(capsys, command, "--store", f"sqlite:///{tmp_path}/ledger.db", "--kubeconfig", rubbish)
    assert said.startswith(f"berth: no cluster to talk to ({rubbish}: ")
    assert said.endswith("--kubeconfig should name a kubeconfig\n")
