"""`berth explain`: its whole output in each situation, word for word, from tests/data/explain.

A situation is set up with the verbs' own code on the stand-in API server; beside a real kube-scheduler:
tests/e2e/test_explain.py. To write the texts anew: EXPLAIN_TEXTS=write, then read each of them.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import yaml

from berth.cli import main
from berth.cli.arguments import parsed
from berth.cli.explain import explain
from berth.controller.explain import explain_pod
from berth.controller.waiting import Seen, waiting
from berth.errors import BerthError, ClusterRefusedError
from berth.http.extender_v1 import BindingCall
from berth.local.ports import free_port
from berth.testing.api_server import StandIn
from berth.testing.api_server.rules import Key
from tests.support.builders.copies import pause
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage
from tests.support.cluster import Cluster
from tests.support.fixtures import PLACES
from tests.support.references import ROOT

TEXTS = ROOT / "tests" / "data" / "explain"
RACK = "example.com/rack"
POOLS: Mapping[str, Any] = {
    "ip": {"capacity": {"perDomain": 2}},
    "rack-licence": {
        "scope": "Topology",
        "topologyKey": RACK,
        "capacity": {"perDomain": 8},
        "limits": {"team-a": 4},
    },
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 3}},
    "gpu": {"capacity": {"perDomain": 3}, "reserved": {"priorityAtLeast": 1000, "units": 2}},
    "k80": {"units": {"n1": ["k80-0", "k80-1"], "n2": ["k80-2"]}},
    "lease": {"scope": "Cluster", "units": {"*": ["lease-0"]}, "reuseAfterSeconds": 300},
    "desk": {"scope": "Cluster", "capacity": {"perDomain": 1}, "sticky": {"by": "Pod", "forSeconds": 600}},
    "slot": {"capacity": {"perDomain": 1}, "sticky": {"by": "Pod", "forSeconds": 600}},
    "dongle": {"capacity": {"perDomain": 1}, "nodeSelector": {"matchLabels": {"dongle": "yes"}}},
}
NODES: Mapping[str, Mapping[str, str]] = {
    "n1": {RACK: "rack-1"},
    "n2": {RACK: "rack-1"},
    "n3": {RACK: "rack-2"},
}


class Told(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES["sqlite"](request, tmp_path)


@pytest.fixture
def stage(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolsStage]:
    for name in ("KUBECONFIG", "BERTH_STORE", "BERTH_POOLS", "BERTH_SCHEDULER_NAMES"):
        monkeypatch.delenv(name, raising=False)
    stages: list[PoolsStage] = []
    with StandIn(clock=lambda: stages[0].time() if stages else 1000.0) as api:
        stages.append(PoolsStage(api, tmp_path, place, POOLS, NODES))
        with closing(stages[0].store), closing(stages[0].raw):
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
            monkeypatch.setenv("BERTH_STORE", place.url)
            yield stages[0]


@pytest.fixture
def said(stage: PoolsStage, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """What the command answers at the stage's time."""

    def run(*arguments: str) -> Told:
        capsys.readouterr()
        try:
            code = explain(parsed(["explain", *arguments]), stage.time)
        except BerthError:
            code = main(["explain", *arguments])
        written = capsys.readouterr()
        return Told(code, written.out, written.err)

    return run


def racks(units: int) -> dict[str, Any]:
    """So many units of rack-licence, which is no name of a parameter."""
    return {"rack-licence": units}


def word(stage: PoolsStage, call: BindingCall, *others: str) -> None:
    """kube-scheduler's condition on the pod, as it makes it of filter's reasons and of its own."""
    nodes = [node.metadata.name for node in stage.cluster.nodes()]
    reasons = Counter([*stage.why(call, *nodes).values(), *others])
    told = ", ".join(f"{count} {text}" for text, count in sorted(reasons.items()))
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": f"0/{len(nodes)} nodes are available: {told}.",
        "lastTransitionTime": f"{datetime.fromtimestamp(stage.time(), UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    _write(stage, call, {"status": {"conditions": [condition]}})


def _write(stage: PoolsStage, call: BindingCall, body: Mapping[str, Any]) -> None:
    stage.api.memory.patch(Key("pods", call.namespace, call.name), dict(body), False, "")


def _exhausted(stage: PoolsStage) -> str:
    for name, seconds in (("sim-1", 60.0), ("sim-2", 3000.0)):
        stage.bound_pod(name, on="n1", **racks(3))
        stage.time.now += seconds
    stage.bound_pod("sim-3", on="n3", **racks(6))
    for number in (4, 5, 6):
        word(stage, stage.pod(f"sim-{number}", **racks(4)))
        stage.time.now += 240.0
    return "default/sim-5"


def _sidecar(stage: PoolsStage) -> str:
    for node in ("n1", "n2", "n3"):
        stage.bound_pod(on=node, ip=1)
    asks = {"resources": {"requests": {"berth.dev/ip": "1"}, "limits": {"berth.dev/ip": "1"}}}
    spec = {
        "schedulerName": "berth",
        "initContainers": [{"name": "mesh-proxy", "restartPolicy": "Always", **asks}],
        "containers": [{"name": "main", **asks}],
    }
    stage.cluster.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "web-1"}, "spec": spec})
    return "default/web-1"


def _two_pools_short(stage: PoolsStage) -> str:
    for node in ("n1", "n2", "n3"):
        stage.bound_pod(f"on-{node}", on=node, ip=2, seat=1)
    word(stage, stage.pod("both", ip=1, seat=1))
    return "default/both"


def _no_domain(stage: PoolsStage) -> str:
    word(stage, stage.pod("plugged", dongle=1))
    return "default/plugged"


def _unlabelled(stage: PoolsStage) -> str:
    unlabel: dict[str, Any] = {RACK: None}
    for node in ("n1", "n2", "n3"):
        stage.write_node(node, **unlabel)
        stage.node_event(node)
    word(stage, stage.pod("sim", **racks(1)))
    return "default/sim"


def _no_domain_yet(stage: PoolsStage) -> str:
    for node in ("n1", "n2", "n3"):
        labels: dict[str, Any] = {RACK: None}
        stage.write_node(node, **labels)
    stage.reconcile()
    word(stage, stage.pod("sim", **racks(1)))
    return "default/sim"


def _suspended(stage: PoolsStage) -> str:
    stage.pools(seat={**POOLS["seat"], "suspended": True})
    word(stage, stage.pod("sim", seat=1))
    return "default/sim"


def _suspended_and_short(stage: PoolsStage) -> str:
    stage.bound_pod("large", on="n1", **racks(8))
    stage.bound_pod("larger", on="n3", **racks(8))
    stage.pools(seat={**POOLS["seat"], "suspended": True})
    word(stage, stage.pod("sim", seat=1, **racks(1)))
    return "default/sim"


def _suspended_domain(stage: PoolsStage) -> str:
    stage.pools(**{"rack-licence": {**POOLS["rack-licence"], "suspended": ["rack-1"]}})
    stage.bound_pod("large", on="n3", **racks(6))
    word(stage, stage.pod("sim", **racks(3)))
    return "default/sim"


def _limit(stage: PoolsStage) -> str:
    stage.bound_pod("a-1", on="n1", namespace="team-a", **racks(3))
    stage.bound_pod("other", on="n1", **racks(1))
    stage.time.now += 90.0
    word(stage, stage.pod("a-2", namespace="team-a", **racks(3)))
    return "team-a/a-2"


def _reserved(stage: PoolsStage) -> str:
    for node in ("n1", "n2", "n3"):
        stage.bound_pod(f"on-{node}", on=node, gpu=1)
    word(stage, stage.pod("cheap", gpu=1))
    return "default/cheap"


def _unknown_claim(stage: PoolsStage) -> str:
    word(stage, stage.pod("job", k80=1, claims="k80-erc"))
    return "default/job"


def _one_unknown_claim(stage: PoolsStage) -> str:
    stage.claim_object("there", "k80")
    word(stage, stage.pod("job", k80=2, ip=2, claims="missing, there"))
    return "default/job"


def _held_claim(stage: PoolsStage) -> str:
    stage.claim_object("k80-erc", "k80", units=["k80-0"])
    stage.bound_pod("first", on="n1", k80=1, claims="k80-erc")
    stage.time.now += 7200.0
    word(stage, stage.pod("second", k80=1, claims="k80-erc"))
    return "default/second"


def _claims_units(stage: PoolsStage) -> str:
    stage.bound_pod("first", on="n1", k80=1)
    stage.claim_object("k80-erc", "k80", units=["k80-0"])
    word(stage, stage.pod("second", k80=1, claims="k80-erc"))
    return "default/second"


def _resting(stage: PoolsStage) -> str:
    stage.gone(stage.bound_pod("first", lease=1))
    stage.time.now += 100.0
    word(stage, stage.pod("second", lease=1))
    return "default/second"


def _kept(stage: PoolsStage) -> str:
    stage.gone(stage.bound_pod("web-0", desk=1))
    stage.time.now += 60.0
    word(stage, stage.pod("web-1", desk=1))
    return "default/web-1"


def _kept_for_it(stage: PoolsStage) -> str:
    stage.gone(stage.bound_pod("db-0", slot=1))
    word(stage, stage.pod("db-0", slot=1), "Insufficient cpu")
    return "default/db-0"


def _store_down(stage: PoolsStage) -> str:
    stage.pod("sim", seat=1)
    os.environ["BERTH_STORE"] = f"redis://:hidden@127.0.0.1:{free_port()}/0"  # the fixture takes it back
    return "default/sim"


def _rebuilding(stage: PoolsStage) -> str:
    stage.pod("sim", seat=1)
    stage.lose_ledger()
    stage._ledger(stage.store, while_closed=True).begin_rebuild("rebuild-2")
    return "default/sim"


def _anothers(stage: PoolsStage) -> str:
    stage.add_pod(scheduler="default-scheduler")
    return "default/pod-0"


def _bound(stage: PoolsStage) -> str:
    stage.claim_object("k80-erc", "k80", units=["k80-0"])
    stage.bound_pod("job", on="n1", seat=2, k80=1, claims="k80-erc")
    _write(stage, BindingCall("job", "default", "", "n1"), {"status": {"phase": "Running"}})
    stage.time.now += 3600.0
    return "default/job"


def _nothing_asked(stage: PoolsStage) -> str:
    stage.pod("plain")
    return "default/plain"


def _gated(stage: PoolsStage) -> str:
    stage.add_pod(gates=[{"name": "example.com/quota"}, {"name": "example.com/later"}])
    return "default/pod-0"


def _finished(stage: PoolsStage) -> str:
    stage.finished(stage.bound_pod("job", seat=2))
    return "default/job"


def _cordoned(stage: PoolsStage) -> str:
    stage.bound_pod("one", on="n1", ip=2)
    stage.write_node("n2", cordoned=True)
    stage.write_node("n3", cordoned=True)
    word(stage, stage.pod("two", ip=2), *["node(s) were unschedulable"] * 2)
    return "default/two"


def _elsewhere(stage: PoolsStage) -> str:
    call = stage.pod("large", ip=1)
    word(stage, call, *["Insufficient cpu"] * 3)
    return "default/large"


def _silent(stage: PoolsStage) -> str:
    stage.pod("alone", ip=1)
    return "default/alone"


def _not_together(stage: PoolsStage) -> str:
    for node in ("n1", "n2"):
        stage.bound_pod(f"ip-on-{node}", on=node, ip=2)
    stage.bound_pod("racks", on="n3", **racks(8))
    word(stage, stage.pod("both", ip=1, **racks(1)))
    return "default/both"


def _held_back(stage: PoolsStage) -> str:
    call = stage.pod("stuck", seat=1)
    stage.lose_ledger()
    with stage.unwritable("stuck"):
        assert stage.reconcile().rebuilt
    word(stage, call)
    return "default/stuck"


def _over_committed(stage: PoolsStage) -> str:
    stage.bound_pod("first", seat=3)
    stage.pools(seat={**POOLS["seat"], "capacity": {"perDomain": 1}})
    word(stage, stage.pod("second", seat=1))
    return "default/second"


def _refused_claim(stage: PoolsStage) -> str:
    stage.claim_object("k80-erc", "k80", units=["k80-9"])
    word(stage, stage.pod("job", k80=1, claims="k80-erc"))
    return "default/job"


def _one_unlabelled(stage: PoolsStage) -> str:
    unlabel: dict[str, Any] = {RACK: None}
    stage.bound_pod("large", on="n1", **racks(7))
    stage.write_node("n3", **unlabel)
    stage.node_event("n3")
    word(stage, stage.pod("sim", **racks(2)))
    return "default/sim"


def _outside(stage: PoolsStage) -> str:
    stage.pools(seat={**POOLS["seat"], "external": 2})
    stage.bound_pod("first", seat=1)
    word(stage, stage.pod("second", seat=2))
    return "default/second"


def _no_pool(stage: PoolsStage) -> str:
    misspelt: dict[str, Any] = {"rack-license": 1}
    word(stage, stage.pod("typo", **misspelt))
    return "default/typo"


def _no_pod(_: PoolsStage) -> str:
    return "team-a/nobody"


def _many_domains(stage: PoolsStage) -> str:
    for number in range(4, 31):
        stage.add_node(f"n{number}")
        stage.node_event(f"n{number}")
    stage.bound_pod("on-n7", on="n7", ip=1)
    word(stage, stage.pod("large", ip=3, priority=-10))
    return "default/large"


def _leaving(stage: PoolsStage) -> str:
    stage.bound_pod("web-0", desk=1)
    stage.raw.delete_pod("web-0")
    word(stage, stage.pod("web-0", desk=1))
    return "default/web-0"


def _stale_word(stage: PoolsStage) -> str:
    holder = stage.bound_pod("first", seat=3)
    word(stage, stage.pod("second", seat=1))
    stage.gone(holder)
    return "default/second"


def _reserved_for_it(stage: PoolsStage) -> str:
    call = stage.pod("early", seat=1)
    claim = stage.claim(stage.get("early"), "n1")
    stage._ledger(stage.store).reserve(claim)
    assert call.name == "early"
    return "default/early"


SITUATIONS: Mapping[str, Callable[[PoolsStage], str]] = {
    "exhausted": _exhausted,
    "asked-by-a-sidecar-too": _sidecar,
    "two-pools-short": _two_pools_short,
    "not-together": _not_together,
    "no-domain": _no_domain,
    "unlabelled": _unlabelled,
    "no-domain-yet": _no_domain_yet,
    "suspended": _suspended,
    "suspended-and-short": _suspended_and_short,
    "suspended-domain": _suspended_domain,
    "namespace-limit": _limit,
    "reserved-for-priority": _reserved,
    "poolclaim-unknown": _unknown_claim,
    "poolclaims-one-unknown": _one_unknown_claim,
    "poolclaim-held": _held_claim,
    "poolclaim-units-held": _claims_units,
    "resting": _resting,
    "kept-for-another": _kept,
    "kept-for-it": _kept_for_it,
    "store-down": _store_down,
    "rebuilding": _rebuilding,
    "another-schedulers": _anothers,
    "held-back": _held_back,
    "over-committed": _over_committed,
    "in-use-outside": _outside,
    "poolclaim-refused": _refused_claim,
    "one-node-unlabelled": _one_unlabelled,
    "bound": _bound,
    "reserved": _reserved_for_it,
    "nothing-asked": _nothing_asked,
    "no-such-pod": _no_pod,
    "no-such-pool": _no_pool,
    "gated": _gated,
    "finished": _finished,
    "many-domains": _many_domains,
    "leaving": _leaving,
    "freed-since": _stale_word,
    "cordoned": _cordoned,
    "elsewhere": _elsewhere,
    "silent-scheduler": _silent,
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_situation_is_explained_word_for_word(
    situation: str, stage: PoolsStage, place: Place, said: Callable[..., Told]
) -> None:
    name = SITUATIONS[situation](stage)
    told = said("pod", name)
    text = f"$ berth explain pod {name}\n{told.out}{told.err}exit code {told.code}\n"
    text = text.replace(stage.cluster.host, "https://API").replace(place.url, "STORE")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:6379", text)
    path = TEXTS / f"{situation}.txt"
    if os.environ.get("EXPLAIN_TEXTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_no_text_is_left_of_a_situation_that_is_gone() -> None:
    assert {path.stem for path in TEXTS.iterdir()} == SITUATIONS.keys()


def test_a_program_gets_all_of_it_as_json_and_as_yaml(stage: PoolsStage, said: Callable[..., Told]) -> None:
    name = _many_domains(stage)
    told = json.loads(said(name, "-o", "json").out)
    assert yaml.safe_load(said(name, "-o", "yaml").out) == told
    assert told["verdict"] == "waits"
    assert told["asks"] == [{"pool": "ip", "units": 3, "containers": {"main": 3}}]
    assert told["remedies"][0]["steps"][0]["kind"] == "capacity"
    assert [domain["name"] for domain in told["pools"][0]["domains"]][-1] == "n7"
    assert len(told["pools"][0]["domains"]) == 30
    assert told["lines"] == [{"pool": "ip", "place": 1, "length": 1, "before": []}]


def test_its_places_are_those_of_berth_waiting(stage: PoolsStage, said: Callable[..., Told]) -> None:
    stage.bound_pod("holder", seat=2)
    stage.pod("refused", seat=1, claims="none", priority=9)
    binding = stage.pod("binding", seat=1, priority=8)
    stage._ledger(stage.store).reserve(stage.claim(stage.get(binding.name), "n1"))
    for name in ("first", "second"):
        stage.pod(name, seat=1)
    lines = json.loads(said("second", "-o", "json").out)["lines"]
    before = [{"namespace": "default", "pod": "first"}]
    assert lines == [{"pool": "seat", "place": 2, "length": 2, "before": before}]
    pods, view = stage.cluster._cluster.pending_pods(), stage._ledger(stage.store).view()
    rows = waiting(Seen(pods, view, stage.time()), ("berth",)).pods
    assert [(row.pod, row.place) for row in rows[:2]] == [("first", 1), ("second", 2)]


@pytest.mark.parametrize(
    "names", ["pod team-a/sim", "team-a/sim", "pod sim -n team-a", "sim -n team-a", "pod/sim -n team-a"]
)
def test_a_pod_is_named_in_each_of_kubectl_s_ways(
    stage: PoolsStage, said: Callable[..., Told], names: str
) -> None:
    stage.pod("sim", namespace="team-a", ip=1)
    assert said(*names.split()).out.startswith("team-a/sim waits")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("a/b/c", "'a/b/c' names no pod: write NAMESPACE/NAME, or NAME -n NAMESPACE"),
        ("pod a b", "'pod a b' names no pod: write NAMESPACE/NAME, or NAME -n NAMESPACE"),
        ("a/", "'a/' names no pod: write NAMESPACE/NAME, or NAME -n NAMESPACE"),
        ("/a", "'/a' names no pod: write NAMESPACE/NAME, or NAME -n NAMESPACE"),
        ("a/b -n c", "a/b and -n c name two namespaces: keep one"),
        (".. -n team-a", "'..' is not the name of a Kubernetes object"),
    ],
)
@pytest.mark.usefixtures("stage")
def test_what_names_no_pod_is_refused(said: Callable[..., Told], names: str, why: str) -> None:
    code = 1 if "Kubernetes object" in why else 2  # what stands on the line is wrong usage
    assert said(*names.split()) == Told(code, "", f"berth: {why}\n")


def test_what_it_would_do_is_right_however_the_pod_s_units_are_cut_and_counted(
    stage: PoolsStage, said: Callable[..., Told]
) -> None:
    """A domain in stripes, whose units have names: the units that are missing are added up over all."""
    many = [f"u-{number}" for number in range(300)]
    stage.pools(ip={"scope": "Cluster", "units": {"*": many}})
    stage.bound_pod("first", ip=298)
    stage.pod("second", ip=5)
    (step,) = json.loads(said("second", "-o", "json").out)["remedies"][0]["steps"]
    assert (step["kind"], step["units"], step["pods"]) == (
        "units",
        3,
        [{"namespace": "default", "pod": "first"}],
    )


def test_another_cluster_s_ledger_explains_nothing(
    stage: PoolsStage, said: Callable[..., Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.pod("sim", ip=1)
    with StandIn() as another:
        monkeypatch.setenv("KUBECONFIG", str(another.kubeconfig(tmp_path / "another")))
        assert said("sim").err.startswith("berth: there is no pod default/sim in the cluster at")
        raw = Cluster(another.url, "")
        raw.create_pod("sim")
        raw.close()
        told = said("sim")
    assert (told.code, told.out) == (1, "")
    assert "belongs to another cluster" in told.err


def test_a_ledger_that_is_copied_is_the_answer_and_one_that_was_moved_an_error(
    stage: PoolsStage, said: Callable[..., Told]
) -> None:
    stage.bound_pod("bound", ip=1)
    stage.pod("waits", ip=1)
    pause(stage.store)
    told = said("waits")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("default/waits waits: berth's ledger is being copied to redis://there;")
    where = "default/bound is bound to n1; what it holds is not known now: berth's ledger is being copied"
    assert said("bound").out.startswith(where)
    stage.lose_ledger()
    stage.reconcile()
    pause(stage.store, moved=True)
    why = "berth: berth's ledger was moved to redis://there; set BERTH_STORE to it\n"
    assert said("waits") == Told(1, "", why)


def test_a_poolclaim_that_only_the_cluster_has_is_told_of(stage: PoolsStage) -> None:
    stage.pod("job", k80=1, claims="k80-erc")
    meta = {"namespace": "default", "name": "k80-erc"}
    stage.objects.put({"metadata": meta, "spec": {"pool": "k80"}})  # inventory has not heard of it
    label = ("default", "job")
    told = explain_pod(stage.cluster, stage._ledger(stage.store).view, ["berth"], label, stage.time())
    assert told.notes[0] == (
        "the cluster has PoolClaim default/k80-erc, and the ledger does not: "
        "berth reconcile takes it over, or says why not"
    )


def test_who_may_not_list_nodes_or_pods_is_told_what_the_ledger_knows(stage: PoolsStage) -> None:
    for node in ("n1", "n2", "n3"):
        stage.bound_pod(f"on-{node}", on=node, ip=2)
    stage.pod("waits", ip=1)
    forbidden = ClusterRefusedError("forbidden", 403)
    cluster = stage.cluster._cluster
    with (
        mock.patch.object(cluster, "nodes", side_effect=forbidden),
        mock.patch.object(cluster, "unbound_pods", side_effect=forbidden),
    ):
        look, label = stage._ledger(stage.store).view, ("default", "waits")
        told = explain_pod(stage.cluster, look, ["berth"], label, stage.time())
    assert told.refused[0].nodes == ("n1", "n2", "n3")
    assert told.lines == ()
    assert told.notes[:2] == (
        "these are the nodes that the ledger knows, whether they take pods or not: forbidden",
        "its place in line is not known: forbidden",
    )


def test_a_cluster_that_does_not_answer_is_an_error_that_says_so(
    stage: PoolsStage, said: Callable[..., Told]
) -> None:
    stage.api.stop()
    told = said("sim")
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"berth: the API server at {stage.cluster.host} did not answer")
