"""`berth simulate`, as a person or a program meets it, on files, on a ledger, and beside a cluster.

That the real kube-scheduler then does what was said is shown in tests/e2e/test_simulate.py.
"""

import io
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.api.pool import parse
from berth.cli import main, simulate
from berth.controller.capacity_sync import supply_of
from berth.kube.types import Meta, Node
from berth.ledger.keys import CLUSTER
from berth.stores import open_store
from berth.testing import kubeconfig
from berth.testing.api_server import StandIn
from tests.support.builders.copies import pause
from tests.support.builders.ledgers import claim, ledger_on, opened
from tests.support.builders.objects import pool_document
from tests.support.builders.places import Place
from tests.support.cluster import Cluster, Object, pod_document, pods_path
from tests.support.fixtures import PLACES

NODES = ("n1", "n2")
IP = pool_document("ip", capacity={"perDomain": 2})
SEAT = pool_document("seat", scope="Cluster", capacity={"perDomain": 3}, limits={"team-b": 1})
FILES = ("--nodes", "nodes.yaml", "--pools", "pools.yaml")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `main` sets is taken back; relative paths are below tmp_path, and no cluster is at hand."""
    for name in ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    _write("nodes.yaml", *map(_node, NODES))
    _write("pools.yaml", IP, SEAT)


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](request, tmp_path)


@pytest.fixture
def api() -> Iterator[StandIn]:
    with StandIn() as started:
        yield started


def _node(name: str, **spec: Any) -> Object:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"allocatable": amounts}}


def _web(replicas: int, name: str = "web", cpu: str = "1", namespace: str = "", **asked: int) -> Object:
    """A Deployment; `asked` are units by pool."""
    resources = {f"berth.dev/{pool}": units for pool, units in asked.items()}
    pod = pod_document(name, resources, cpu=cpu)
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    template = {"spec": pod["spec"]}
    return {"kind": "Deployment", "metadata": meta, "spec": {"replicas": replicas, "template": template}}


def _write(name: str, *documents: Any) -> str:
    Path(name).write_text(yaml.safe_dump_all(documents))
    return name


def _ledger(url: str, nodes: Sequence[str] = NODES) -> None:
    """Make a ledger of both Pools in which `first` holds one unit of ip on n1, and two seats."""
    pools = parse([IP, SEAT], "a test")
    there = [Node(Meta(name=name)) for name in nodes]
    supply = supply_of(pools, there).capacities
    capacities = {which: size for which, size in supply.items() if isinstance(size, int)}
    with closing(opened(url, capacities)) as store:
        ledger = ledger_on(store)
        ledger.apply_pools(pools)
        first = claim("first", "n1", "a1", ip=1)
        ledger.reserve(first)
        ledger.confirm(first)


def _said(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> tuple[str, str]:
    """What it wrote to standard output and to standard error."""
    capsys.readouterr()
    assert main(["simulate", *map(str, arguments)]) == code
    said = capsys.readouterr()
    return said.out, said.err


def _report(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> Object:
    report: Object = json.loads(_said(capsys, code, *arguments, "-o", "json")[0])
    return report


def _placed(report: Object) -> dict[str, str]:
    return {one["pod"]: one["node"] for one in report["placed"]}


def test_files_alone_tell_what_fits_where_and_what_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    _write("pods.yaml", _web(6, ip=1), _web(1, "solver", seat=4))
    out, err = _said(capsys, 1, "-f", "pods.yaml", *FILES)
    assert out.splitlines() == [
        "4 of 7 pods fit on 2 nodes (an empty ledger made of pools.yaml and nodes.yaml; nothing was changed)",
        "",
        "NODE   PODS   UNITS   WHICH",
        "n1     2      ip 2    default/web-0, default/web-2",
        "n2     2      ip 2    default/web-1, default/web-3",
        "",
        "REFUSED   WHICH                          WHY",
        "2         default/web-4, default/web-5   0/2 nodes are available: 2 ip: 0 of 2 free, 1 asked",
        "1         default/solver-0               0/2 nodes are available: 2 seat: 3 of 3 free, 4 asked",
        "",
        "ip: 2 units short for 2 pods; 3 a domain would do, now 2 (--capacity ip=3)",
        "seat: 1 unit short for 1 pod; 4 would do, now 3 (--capacity seat=4)",
    ]
    assert err == "berth: not looked at: preemption\n"
    assert sorted(path.name for path in Path().iterdir()) == ["nodes.yaml", "pods.yaml", "pools.yaml"]


def test_what_others_use_is_taken_for_what_was_read_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Of an empty ledger for none; a capacity that is read is as it was read, or as it is said."""
    _write("pods.yaml", _web(1, "solver", seat=3))
    source = {"feature": "F"}
    _write(
        "pools.yaml", pool_document("seat", scope="Cluster", capacity={"perDomain": 3}, externalFrom=source)
    )
    assert _report(capsys, 0, "-f", "pods.yaml", *FILES)["summary"]["fit"] == 1
    issued = pool_document("seat", scope="Cluster", externalFrom={**source, "capacity": "Issued"})
    del issued["spec"]["capacity"]
    _write("pools.yaml", issued)
    out, _ = _said(capsys, 1, "-f", "pods.yaml", *FILES)
    assert "2 seat: 0 of 0 free, 3 asked" in out
    assert _report(capsys, 0, "-f", "pods.yaml", *FILES, "--capacity", "seat=3")["summary"]["fit"] == 1


def test_with_what_it_says_would_do_all_fit_and_with_one_less_they_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _write("pods.yaml", _web(6, ip=1), _web(1, "solver", seat=4))
    out, err = _said(capsys, 0, "-f", "pods.yaml", *FILES, "--capacity", "ip=3", "--capacity", "seat=4")
    assert out.splitlines()[:3] == [
        "7 of 7 pods fit on 2 nodes (an empty ledger made of pools.yaml and nodes.yaml; nothing was changed)",
        "as if ip had 3 units a domain (now 2)",
        "as if seat had 4 units (now 3)",
    ]
    assert err == ""
    few = _report(capsys, 1, "-f", "pods.yaml", *FILES, "--capacity", "ip=3")
    assert [one["pool"] for one in few["short"]] == ["seat"]
    one_more = _report(capsys, 1, "-f", "pods.yaml", *FILES, "--capacity", "ip/n2=3")
    assert one_more["capacities"] == [
        {"pool": "ip", "domain": "n2", "before": 2, "after": 3, "perDomain": False}
    ]
    assert list(_placed(one_more).values()).count("n2") == 3
    both = _report(capsys, 1, "-f", "pods.yaml", *FILES, "--capacity", "ip=9", "--capacity", "ip/n2=3")
    assert [(one["before"], one["after"]) for one in both["capacities"]] == [(2, 9), (2, 3)]


@pytest.mark.parametrize(
    ("replicas", "asked", "capacity", "enough"),
    [(3, 2, 3, 4), (5, 4, 3, 12), (4, 1, 1, 2), (9, 1, 0, 5), (1, 3, 2, 3), (7, 3, 5, 12)],
)
def test_the_least_capacity_is_found_also_where_units_are_left_that_are_too_few(
    capsys: pytest.CaptureFixture[str], replicas: int, asked: int, capacity: int, enough: int
) -> None:
    _write("pods.yaml", _web(replicas, cpu="100m", ip=asked))
    arguments = ["-f", "pods.yaml", *FILES]
    (short,) = _report(capsys, 1, *arguments, "--capacity", f"ip={capacity}")["short"]
    assert short["enough"] == enough
    assert _report(capsys, 0, *arguments, "--capacity", f"ip={enough}")["short"] == []
    assert _report(capsys, 1, *arguments, "--capacity", f"ip={enough - 1}")["short"] != []


def test_where_nodes_are_equal_pods_spread_over_them(capsys: pytest.CaptureFixture[str]) -> None:
    """On large nodes one pod more or less is no difference in a score of 0 to 100."""
    nodes = [_node(name) for name in ("n1", "n2", "n3")]
    for node in nodes:
        node["status"]["allocatable"] |= {"cpu": "128", "memory": "512Gi"}
    _write("nodes.yaml", *nodes)
    _write("pods.yaml", _web(3, cpu="1m", seat=1))
    assert _placed(_report(capsys, 0, "-f", "pods.yaml", *FILES)) == {
        "web-0": "n1",
        "web-1": "n2",
        "web-2": "n3",
    }


def test_no_number_would_do_for_a_pool_that_pods_lack_beside_a_named_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    device = pool_document("device", units={"n2": ["d0"]})
    del device["spec"]["capacity"]
    _write("pools.yaml", device, SEAT, IP)
    _write("pods.yaml", _web(1, "a", seat=4), _web(1, "b", seat=4, device=2), _web(1, "c", ip=3))
    short = _report(capsys, 1, "-f", "pods.yaml", *FILES)["short"]
    told = {one["pool"]: (one["units"], one["pods"], one["enough"]) for one in short}
    assert told == {"device": (2, 1, None), "ip": (3, 1, 3), "seat": (8, 2, None)}


def test_yaml_and_json_say_the_same_and_name_units(capsys: pytest.CaptureFixture[str]) -> None:
    device = pool_document("device", units={"n2": ["d0", "d1"]})
    del device["spec"]["capacity"]
    _write("pools.yaml", device)
    _write("pods.yaml", _web(3, device=1))
    report = _report(capsys, 1, "-f", "pods.yaml", *FILES)
    assert yaml.safe_load(_said(capsys, 1, "-f", "pods.yaml", *FILES, "-o", "yaml")[0]) == report
    assert report["summary"] == {"pods": 3, "fit": 2, "nodes": 2}
    assert [one["units"] for one in report["placed"]] == [
        [{"pool": "device", "domain": "n2", "count": 1, "units": [name]}] for name in ("d0", "d1")
    ]
    (refused,) = report["refused"]
    reasons = {"device: 0 of 2 free, 1 asked": 1, "device: 0 of 0 free, 1 asked": 1}
    assert refused["reasons"] == reasons
    assert report["short"] == [
        {"pool": "device", "units": 1, "pods": 1, "perDomain": True, "capacity": None, "enough": None}
    ]
    assert (report["waiting"], report["withWaiting"]) == (None, False)
    assert report["notLookedAt"] == ["preemption"]


def test_pods_come_from_standard_input_and_several_files_by_priority(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    high = _web(1, "high", seat=3)
    high["spec"]["template"]["spec"]["priorityClassName"] = "high"
    classes = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"kind": "List", "items": [high, classes]})))
    _write("low.yaml", _web(1, "low", seat=1))
    report = _report(capsys, 1, "-f", "low.yaml", "-f", "-", *FILES)
    assert list(_placed(report)) == ["high-0"]


def test_namespaces_limits_count(capsys: pytest.CaptureFixture[str]) -> None:
    _write("pods.yaml", _web(2, seat=1))
    assert main(["simulate", "-f", "pods.yaml", *FILES, "-n", "team-a"]) == 0
    (refused,) = _report(capsys, 1, "-f", "pods.yaml", *FILES, "-n", "team-b")["refused"]
    assert list(refused["reasons"]) == ["seat: 0 of the 1 that namespace team-b may hold are free, 1 asked"]
    assert refused["short"] == {}


def test_pods_that_run_on_the_nodes_of_a_file_use_cpu_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    running = pod_document("old", {"berth.dev/ip": 1}, cpu="3500m", node_name="n1")
    _write("nodes.yaml", *map(_node, NODES), running)
    _write("pods.yaml", _web(1, "small", cpu="100m", ip=2), _web(2, "large", ip=1))
    report = _report(capsys, 1, "-f", "pods.yaml", *FILES)
    assert _placed(report) == {"small-0": "n2"}
    assert [one["reasons"] for one in report["refused"]] == [
        {"ip: 0 of 2 free, 1 asked": 1, "Insufficient cpu": 1}
    ] * 2


def test_pods_that_run_are_told_apart_though_a_file_gives_them_no_uid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = [pod_document(f"old-{number}", {"berth.dev/ip": 1}, node_name="n1") for number in range(2)]
    _write("nodes.yaml", *map(_node, NODES), *running)
    _write("pods.yaml", _web(3, cpu="1m", ip=1))
    assert _placed(_report(capsys, 1, "-f", "pods.yaml", *FILES)) == {"web-0": "n2", "web-1": "n2"}


def test_it_is_said_of_which_workloads_pods_run_already(capsys: pytest.CaptureFixture[str]) -> None:
    owner = {"kind": "ReplicaSet", "name": "web-5d4f", "controller": True}
    old = [pod_document(f"web-5d4f-{number}", {}, node_name="n1") for number in range(2)]
    for pod in old:
        pod["metadata"] |= {"ownerReferences": [owner], "labels": {"pod-template-hash": "5d4f"}}
    _write("nodes.yaml", *map(_node, NODES), *old)
    _write("pods.yaml", _web(1, ip=1), _web(1, "other", ip=1))
    _, err = _said(capsys, 0, "-f", "pods.yaml", *FILES)
    assert err == ("berth: default/ReplicaSet:web has 2 pods already: those of -f are tried beside these\n")


def test_a_gated_pod_and_pods_without_room_are_refused_without_any_pool_being_short(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gated = pod_document("gated", {"berth.dev/ip": 1}, scheduling_gates=["later"])
    _write("pods.yaml", gated, _web(1, cpu="5", ip=1))
    report = _report(capsys, 1, "-f", "pods.yaml", *FILES)
    assert [one["why"] for one in report["refused"]] == [
        "has scheduling gates",
        "0/2 nodes are available: 2 Insufficient cpu",
    ]
    assert report["short"] == []


def test_what_is_left_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    bound = pod_document("bound", {}, node_name="n1")
    other = pod_document("other", {}, scheduler="default-scheduler")
    other["spec"]["topologySpreadConstraints"] = [{"topologyKey": "zone", "maxSkew": 1}]
    _write("pods.yaml", bound, other, _node("n3"), {"kind": "Service", "metadata": {"name": "s"}})
    _, err = _said(capsys, 0, "-f", "pods.yaml", *FILES)
    assert err.splitlines() == [
        "berth: left out, for they have a node already or have finished: 1 pod of -f",
        "berth: left out: 1 node of -f; name their file with --nodes",
        "berth: left out, since simulate makes no pods of them: Service (1)",
        "berth: simulated as if Berth were asked: 1 pod with schedulerName default-scheduler",
        "berth: not looked at: topologySpreadConstraints (1 pod)",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-f", "none.yaml", *FILES], "can't read none.yaml: No such file or directory"),
        (["-f", "empty.yaml", *FILES], "there are no pods in -f: nothing to simulate"),
        (["-f", "bad.yaml", *FILES], "bad.yaml is not YAML, line 1: "),
        (["-f", "pods.yaml", *FILES, "--capacity", "x=1"], "there is no pool x; there are: ip, seat"),
        (["-f", "pods.yaml", *FILES, "--capacity", "ip/n9=1"], "Pool ip has no domain n9; there are: n1, n2"),
        (["-f", "pods.yaml", "--nodes", "pods.yaml", "--pools", "pools.yaml"], "pods.yaml holds no Node"),
        (["-f", "pods.yaml", "--nodes", "nodes.yaml"], "there is no ledger at sqlite:///"),
        (["-f", "pods.yaml"], "there is no ledger at sqlite:///"),
        (["-f", "pods.yaml", "--nodes", "nodes.yaml", "--pools", "nodes.yaml"], "nodes.yaml:1: each "),
    ],
)
def test_what_is_wrong_is_told_and_makes_no_ledger(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], said: str
) -> None:
    _write("pods.yaml", _web(1, ip=1))
    Path("empty.yaml").write_text("")
    Path("bad.yaml").write_text("kind: [")
    out, err = _said(capsys, 1, *arguments)
    assert out == ""
    assert err.startswith(f"berth: {said}")
    assert not Path(".berth").exists()


@pytest.mark.parametrize("text", ["ip", "ip=", "ip=-1", "=3", "ip/=3", "/n1=3", "ip=1.5", "ip=99999999999"])
def test_a_capacity_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "-f", "pods.yaml", "--capacity", text])
    assert ended.value.code == 2
    assert f"{text!r} should be POOL=N or POOL/DOMAIN=N" in capsys.readouterr().err


def test_a_ledger_s_claims_count_and_nothing_is_written_to_it(
    capsys: pytest.CaptureFixture[str], place: Place
) -> None:
    _ledger(place.url)
    before = _documents(place.url)
    _write("pods.yaml", _web(4, ip=1))
    arguments = ["-f", "pods.yaml", "--nodes", "nodes.yaml", "--store", place.url]
    report = _report(capsys, 1, *arguments)
    assert sorted(_placed(report).values()) == ["n1", "n2", "n2"]
    assert _report(capsys, 0, *arguments, "--capacity", "ip=3")["summary"]["fit"] == 4
    assert _documents(place.url) == before


def test_other_pools_take_the_place_of_the_ledger_s_unless_pods_hold_them_otherwise(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    _ledger(store)
    _write("pods.yaml", _web(3, ip=1))
    arguments = ["-f", "pods.yaml", *FILES, "--store", store]
    assert sorted(_placed(_report(capsys, 0, *arguments)).values()) == ["n1", "n2", "n2"]
    _write("pools.yaml", pool_document("ip", capacity={"perDomain": 1}))
    assert _placed(_report(capsys, 1, *arguments)) == {"web-0": "n2"}
    _write("pools.yaml", pool_document("ip", scope="Cluster", capacity={"perDomain": 9}))
    assert "pods hold units of Pool ip: its resource, scope," in _said(capsys, 1, *arguments)[1]
    _write("pools.yaml", SEAT)
    assert "pods hold units of Pool ip, which is not among" in _said(capsys, 1, *arguments)[1]


def test_a_ledger_in_which_nothing_may_be_claimed_is_not_simulated_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    _ledger(store)
    _write("pods.yaml", _web(1, ip=1))
    with closing(open_store(store)) as there:
        pause(there, moved=True)
    _, err = _said(capsys, 1, "-f", "pods.yaml", "--nodes", "nodes.yaml", "--store", store)
    assert err == "berth: berth's ledger was moved to redis://there; set --store to it\n"


def test_a_cluster_s_pods_use_its_nodes_and_those_that_wait_may_come_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    _ledger(store)
    _serve(api, "n1", "n2")
    _write("pods.yaml", _web(4, ip=1))
    kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
    arguments = ["-f", "pods.yaml", "--store", store, "--kubeconfig", kubeconfig]
    out, err = _said(capsys, 1, *arguments)
    assert out.splitlines()[:2] == [
        f"3 of 4 pods fit on 2 nodes (on a copy of {store}; nothing was changed)",
        "not counted: 1 pod waiting in the cluster (--with-waiting)",
    ]
    assert err.startswith("berth: PriorityClasses are not known: ")
    report = _report(capsys, 1, *arguments, "--with-waiting")
    assert report["summary"]["fit"] == 2
    assert [one["pod"] for one in report["placed"]] == ["waiter", "web-0", "web-1"]
    assert (
        "1 of 1 pod waiting in the cluster would fit as well"
        in _said(capsys, 1, *arguments, "--with-waiting")[0]
    )


def test_a_resource_that_may_be_ignored_with_a_pool_s_group_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _write("pools.yaml", IP, pool_document("seat", scope="Cluster", resource="example.com/seat"))
    asked = {"example.com/seat": 1, "example.com/board": 1, "other.com/card": 1}
    _write("pods.yaml", pod_document("a", asked), pod_document("b", {"berth.dev/ip": 1, "other.com/card": 1}))
    report = _report(capsys, 1, "-f", "pods.yaml", *FILES)
    assert report["notLookedAt"] == ["preemption", "whether kube-scheduler counts example.com/board (1 pod)"]


def test_what_waiting_and_running_pods_have_that_is_not_looked_at_is_said_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    _ledger(store)
    _serve(api, "n1")
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    apart, running = (pod_document(name, {"berth.dev/ip": 1}) for name in ("apart", "running"))
    for pod in (apart, running):
        pod["spec"]["affinity"] = {"podAntiAffinity": hard}
    running["spec"]["nodeName"] = "n1"
    with closing(Cluster(api.url, "")) as cluster:
        for pod in (apart, running):
            cluster.call("POST", pods_path("default"), pod)
    _write("pods.yaml", _web(1, ip=1))
    arguments = ["-f", "pods.yaml", "--store", store, "--kubeconfig", api.kubeconfig(tmp_path / "kubeconfig")]
    of_running = "affinity.podAntiAffinity of running pods (1 pod)"
    alone = _report(capsys, 1, *arguments)["notLookedAt"]
    assert alone == ["preemption", of_running]
    with_waiting = _report(capsys, 1, *arguments, "--with-waiting")["notLookedAt"]
    assert with_waiting == ["preemption", "affinity.podAntiAffinity (1 pod)", of_running]


def test_another_cluster_s_ledger_is_not_simulated_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: StandIn
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    _ledger(store)
    with closing(open_store(store)) as there:
        assert there.commit({CLUSTER: b"another"}, {})
    _serve(api, "n1")
    _write("pods.yaml", _web(1, ip=1))
    arguments = ["-f", "pods.yaml", "--store", store, "--kubeconfig", api.kubeconfig(tmp_path / "kubeconfig")]
    _, err = _said(capsys, 1, *arguments)
    assert f"berth's ledger {store} belongs to another cluster" in err


def test_a_bar_shows_on_a_terminal_how_far_many_pods_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _write("few.yaml", _web(4, cpu="10m", ip=1))
    _write("many.yaml", _web(120, cpu="10m", ip=1))
    assert "placing pods" not in _said(capsys, 0, "-f", "few.yaml", *FILES)[1]
    out, err = _said(capsys, 1, "-f", "many.yaml", *FILES)
    assert out.startswith("4 of 120 pods fit")
    assert "placing pods" in err
    assert "looking for what would do" in err


def test_ctrl_c_in_the_midst_of_it_ends_it_with_130_and_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/ledger.db"
    _ledger(store)
    _write("pods.yaml", _web(3, ip=1))
    before, files = _documents(store), _files()
    steps = iter((None, signal.SIGINT))
    # As in a process of its own: another test of this process may have left a handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def step() -> None:
        if (number := next(steps)) is not None:
            signal.raise_signal(number)

    monkeypatch.setattr(simulate, "_progress", lambda *_: nullcontext(step))
    out, err = _said(capsys, 130, "-f", "pods.yaml", "--nodes", "nodes.yaml", "--store", store)
    assert (out, err, next(steps, "both pods were tried")) == ("", "", "both pods were tried")
    assert (_documents(store), _files()) == (before, files)


def _files() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if not path.name.startswith("ledger.db"))


def _serve(api: StandIn, *nodes: str) -> None:
    """Nodes with CPU, the pod that holds `first`'s claim, and one that waits."""
    cluster = Cluster(api.url, "")
    for name in nodes:
        cluster.call("POST", "/api/v1/nodes", _node(name))
    cluster.create_pod("waiter", {"berth.dev/ip": 1})
    cluster.close()


def _documents(url: str) -> Mapping[str, bytes | None]:
    with closing(open_store(url)) as store:
        return store.changes(None).documents


def test_asking_a_cluster_and_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    _write("pods.yaml", _web(1, ip=1))
    out, err = _said(capsys, 2, "-f", "pods.yaml", *FILES, "--with-waiting")
    assert (out, err.partition(",")[0]) == ("", "berth: --with-waiting asks the cluster who waits")


def test_on_files_alone_no_cluster_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubeconfig leads to nobody, and nothing is said of it."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig.write(Path("kubeconfig"), "http://127.0.0.1:1")))
    _write("pods.yaml", _web(1, ip=1))
    _, err = _said(capsys, 0, "-f", "pods.yaml", *FILES)
    assert "cluster" not in err


def test_a_password_in_an_address_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = _said(capsys, 1, "-f", "https://me:s3cr3t@example.com/pods.yaml", *FILES)
    assert "is no file: fetch it" in err
    assert "s3cr3t" not in err
