"""preempt beside bind and release, in every store: what one of them did, the next call goes by."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from berth.api.pool import Capacity, Pool, PoolSpec
from berth.handlers.preempt import Preempt
from berth.http.extender_v1 import PreemptionCall, Victims
from berth.kube.types import Container, Meta, Pod, PodSpec, PodStatus, Resources
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores import open_store
from tests.support.builders.ledgers import Time, catch_up, ledger_on, opened
from tests.support.builders.places import Place

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
