"""How a pod's demand is read: what naming PoolClaims may cost, and what a pod that runs holds of them."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from berth.api.poolclaim import CLAIMS
from berth.kube.types import Meta, Owner, Pod
from berth.ledger.model import PoolClaimSpec
from berth.scheduling.terms import Terms, owner_of
from tests.support.builders.objects import container, pod, pool

POOLS = {"k80": pool(name="k80")}
REFUSED = "annotation berth.dev/claims names more than 16 PoolClaims: name fewer"


class Counted(Mapping[tuple[str, str], tuple[str, PoolClaimSpec]]):
    """PoolClaims that count how often one is looked for."""

    def __init__(self, *names: str) -> None:
        self._there = {("default", name): ("k80", PoolClaimSpec(1)) for name in names}
        self.looks = 0

    def __getitem__(self, key: tuple[str, str]) -> tuple[str, PoolClaimSpec]:
        self.looks += 1
        return self._there[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._there)

    def __len__(self) -> int:
        return len(self._there)


def naming(*names: str, node: str | None = None, k80: int = 1) -> Pod:
    found = pod(container({"berth.dev/k80": str(k80)}))
    return msgspec.structs.replace(
        found,
        metadata=msgspec.structs.replace(found.metadata, annotations={CLAIMS: ",".join(names)}),
        spec=msgspec.structs.replace(found.spec, node_name=node),
    )


@pytest.mark.parametrize("count", [17, 48_000])
def test_a_pod_that_names_too_many_poolclaims_is_refused_before_one_is_looked_for(count: int) -> None:
    there = Counted()
    asked = Terms(POOLS, {}, there).asked(naming(*(f"c{number}" for number in range(count))))
    assert (asked.refusal, there.looks) == (REFUSED, 0)


def test_sixteen_are_taken() -> None:
    names = [f"c{number}" for number in range(16)]
    asked = Terms(POOLS, {}, Counted(*names)).asked(naming(*names, k80=16))
    assert asked.refusal is None
    assert [name for name, *_ in asked.claims] == names


def test_nobody_looks_further_than_the_first_that_is_not_there() -> None:
    there = Counted("b", "d")
    asked = Terms(POOLS, {}, there).asked(naming("b", "a", "c", "d"))
    assert (asked.refusal, there.looks) == ("there is no PoolClaim a in the pod's namespace", 2)


@pytest.mark.parametrize(
    ("name", "kind", "owner"),
    [("w" * 253, "K" * 63, f"default/{'K' * 63}:{'w' * 253}"), ("w" * 254, "Job", ""), ("w", "K" * 64, "")],
)
def test_an_owner_of_a_name_or_kind_that_can_t_be_is_nobody(name: str, kind: str, owner: str) -> None:
    found = pod()
    reference = Owner(kind=kind, name=name, controller=True)
    meta = msgspec.structs.replace(found.metadata, owner_references=[reference])
    assert owner_of(msgspec.structs.replace(found, metadata=meta)) == owner


def test_a_pod_that_runs_holds_its_poolclaims_though_one_of_them_is_gone() -> None:
    asked = Terms(POOLS, {}, Counted("b", "d")).asked(naming("b", "a", "d", node="n1", k80=2))
    assert [name for name, *_ in asked.claims] == ["b", "d"]


@pytest.mark.parametrize(
    ("kind", "name"), [("../b/Pod", "x"), ("/b/Pod", "x"), ("\n b", "/"), ("", "b/web-0@ip/n1")]
)
def test_whoever_a_pod_says_that_it_is_of_is_of_its_own_namespace_and_no_pod(kind: str, name: str) -> None:
    """Users write that, and Kubernetes takes any text: no unit that is kept for another namespace, or for a
    pod by its name, is to be had by it."""
    owner = Owner(kind=kind, name=name, controller=True)
    found = owner_of(Pod(Meta(name="p", namespace="a", owner_references=[owner])))
    assert found.startswith("a/")
    assert ":" in found  # as in no pod's name
