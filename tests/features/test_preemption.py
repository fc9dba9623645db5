"""preempt beside bind and release, in every store: what one of them did, the next call goes by."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.api.pool import Capacity, Pool, PoolSpec
from berth.handlers.preempt import Preempt
from berth.http.extender_v1 import PreemptionCall, Victims
from berth.kube.types import Container, Meta, Pod, PodSpec, PodStatus, Resources
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from berth.testing.api_server.rules import Key
from tests.support.builders.ledgers import Time, catch_up, ledger_on, opened
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, pools_staged

K80 = "native.berth.dev/k80"


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    """bind's and release's: one unit of k80, whose preemption is Native, on n1 and n2, held by `low-1` and
    `low-2`, and three licences, all in use, two of them by these."""
    sizes = {("k80", "n1"): 1, ("k80", "n2"): 1, ("licence", "*"): 3}
    with closing(opened(place.url, sizes)) as store:
        found = ledger_on(store)
        found.apply_pools({
            "k80": Pool("k80", K80, PoolSpec(capacity=Capacity(per_domain=1), preemption="Native")),
            "licence": Pool(
                "licence", "berth.dev/licence", PoolSpec(capacity=Capacity(per_domain=3), scope="Cluster")
            ),
        })  # fmt: skip
        found.set_places({node: {"licence": "*"} for node in ("n1", "n2", "n3")}, {})
        for number in (1, 2):
            node = f"n{number}"
            hold(found, f"low-{number}", node, Holding("k80", node, 1), Holding("licence", "*", 1))
        hold(found, "other", "n3", Holding("licence", "*", 1))
        yield found


@pytest.fixture
def theirs(place: Place) -> Iterator[Ledger]:
    """preempt's: the same one, as another process has it."""
    with closing(open_store(place.url)) as store:
        yield ledger_on(store)


@pytest.fixture
def verb(theirs: Ledger) -> Preempt:
    return Preempt(theirs, Time())


def hold(ledger: Ledger, uid: str, node: str, *holdings: Holding) -> None:
    claim = Claim(uid=uid, namespace="d", name=uid, node=node, holdings=holdings, attempt="a")
    ledger.reserve(claim)
    ledger.confirm(ledger.view().claims_of(uid)[0])


def kept(verb: Preempt, asked: Sequence[str], nominated: str | None = None, **victims: str) -> list[str]:
    requests = Resources(requests=dict.fromkeys(asked, "1"))
    pod = Pod(
        Meta(name="high", namespace="d", uid="high"),
        PodSpec(containers=[Container(requests)]),
        PodStatus("Pending", nominated),
    )
    return sorted(verb.run(PreemptionCall(pod, {node: Victims((uid,)) for node, uid in victims.items()})))


def test_it_goes_by_the_claims_that_stand_when_it_is_asked(
    ledger: Ledger, theirs: Ledger, verb: Preempt
) -> None:
    assert kept(verb, [K80], n1="low-1", n2="other") == ["n1"]
    assert ledger.release("low-2")
    catch_up(theirs, ledger)
    assert kept(verb, [K80], n1="other", n2="other") == ["n2"]
    # Its victim is gone and its claim not yet: nobody else is evicted, until it is settled and filter looks.
    assert kept(verb, [K80], nominated="n1", n2="low-2") == []


def test_a_victim_frees_what_it_holds_of_the_whole_cluster_too(
    ledger: Ledger, theirs: Ledger, verb: Preempt
) -> None:
    both = [K80, "berth.dev/licence"]
    assert kept(verb, both, n1="low-1", n2="low-2") == ["n1", "n2"]
    assert ledger.set_capacities({("licence", "*"): 2}, {("licence", "*"): 3})
    catch_up(theirs, ledger)
    assert kept(verb, both, n1="low-1", n2="low-2") == []


def test_what_it_kept_bind_can_reserve_once_the_victim_is_released(
    ledger: Ledger, theirs: Ledger, verb: Preempt
) -> None:
    assert kept(verb, [K80], n1="low-1", n2="low-2") == ["n1", "n2"]
    assert ledger.release("low-1")
    hold(ledger, "high", "n1", Holding("k80", "n1", 1))
    catch_up(theirs, ledger)
    assert kept(verb, [K80], n1="high", n2="low-2") == ["n1", "n2"]  # its own claim is in nobody's way


POOLS: dict[str, Any] = {
    "k80": {"capacity": {"perDomain": 1}, "preemption": "Native"},
    "ip": {"capacity": {"perDomain": 1}},
}


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        found.serve_node_status()
        yield found


def priorities(stage: PoolsStage) -> dict[str, int | None]:
    return {claim.name: claim.priority for claim in stage.ledger().view().claims()}


CHEAP = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)


@CHEAP
def test_a_claim_says_how_important_its_pod_is_where_pods_may_be_evicted_for_it(stage: PoolsStage) -> None:
    stage.bound_pod("low", k80=1, priority=-5)
    stage.bound_pod("none", ip=1, priority=10)
    stage.pod("adopted", node="n2", k80=1, priority=7)
    stage.reconcile()
    assert priorities(stage) == {"low": -5, "none": None, "adopted": 7}


@CHEAP
def test_claims_of_an_older_version_are_brought_up_to_date_by_reconcile(stage: PoolsStage) -> None:
    call = stage.pod("old", k80=1, priority=10)
    ledger = stage._ledger(stage.store)
    old = msgspec.structs.replace(stage.claim(stage.get("old"), "n1"), priority=None)
    ledger.reserve(old)
    assert stage.bind(call) == ""
    standing = ledger.view().claims_of(call.uid)[0]
    ledger.release(call.uid)
    ledger.confirm(ledger.reserve(msgspec.structs.replace(standing, priority=None, state="reserved")))
    assert priorities(stage) == {"old": None}
    stage.reconcile()
    assert priorities(stage) == {"old": 10}
    stage.check_well()


def nominate(stage: PoolsStage, name: str, node: str | None) -> None:
    stage.status_of(name, {"nominatedNodeName": node})


@CHEAP
def test_a_pod_whose_nomination_comes_to_nothing_is_tried_again_with_each_reconcile(
    stage: PoolsStage,
) -> None:
    """Nothing else tells kube-scheduler when preempt waits no longer for what was nominated."""
    victim = stage.bound_pod("low", k80=1, ip=1)
    stage.bound_pod("other", on="n2", k80=1, ip=1)
    for name, pool in (("waits", "k80"), ("plain", "ip")):
        stage.pod(name, priority=1000, **dict[str, Any]({pool: 1}))
    assert stage.reconcile().woken == 0
    for name in ("waits", "plain"):
        nominate(stage, name, "n1")
    assert stage.reconcile().woken == 1
    assert stage.woken() == {"waits"}
    stage.api.memory.delete(Key("pods", "default", victim.name), 30, {})
    assert stage.reconcile().woken == 0  # its victim ends
