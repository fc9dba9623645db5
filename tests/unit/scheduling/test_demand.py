"""What a pod demands: Kubernetes' rule for containers, init containers, sidecars and overhead; what naming
PoolClaims may cost, and what a pod that runs holds of them."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.poolclaim import CLAIMS
from berth.kube.types import Container, Meta, Owner, Pod, PodSpec, Quantity, Resources
from berth.ledger.model import PoolClaimSpec
from berth.scheduling.demand import Terms, demand_of, might_ask, owner_of
from tests.support.builders.objects import IP, SEAT, container, pod, pod_asking, pool, pools_of, sidecar

POOLS = pools_of(pool("underlay-ip"), pool("matlab-licence"), pool("k80", resource="example.com/k80"))


def asked(found: Pod) -> dict[str, int]:
    answer = demand_of(found, POOLS)
    assert answer.refusal is None
    return dict(answer.units)


def ips(*counts: Quantity) -> list[Container]:
    return [container({IP: count}) for count in counts]


def test_containers_are_summed() -> None:
    assert asked(pod(*ips("1", "2"), container({"cpu": "60", SEAT: 3}))) == {
        "underlay-ip": 3,
        "matlab-licence": 3,
    }


def test_init_containers_run_one_after_another_so_only_the_largest_counts() -> None:
    assert asked(pod(*ips(1, 1), init=ips(5, 3))) == {"underlay-ip": 5}
    assert asked(pod(*ips(3, 4), init=ips(5, 3))) == {"underlay-ip": 7}


def test_the_larger_of_init_and_running_is_taken_for_each_resource_by_itself() -> None:
    found = pod(container({IP: 1, SEAT: 5}), init=[container({IP: 4, SEAT: 2})])
    assert asked(found) == {"underlay-ip": 4, "matlab-licence": 5}


# KEP-753: max(each InitContainerUse, sidecars + containers), InitContainerUse(i) = sidecars before i + i.
def test_a_sidecar_runs_beside_the_containers() -> None:
    assert asked(pod(*ips(2), init=[sidecar({IP: 3})])) == {"underlay-ip": 5}


def test_an_init_container_before_the_sidecar_does_not_run_beside_it() -> None:
    assert asked(pod(*ips(1), init=[*ips(5), sidecar({IP: 3})])) == {"underlay-ip": 5}


def test_an_init_container_after_the_sidecar_runs_beside_it() -> None:
    assert asked(pod(*ips(1), init=[sidecar({IP: 3}), *ips(5)])) == {"underlay-ip": 8}


def test_each_init_container_is_added_only_to_the_sidecars_started_before_it() -> None:
    init = [*ips(6), sidecar({IP: 1}), *ips(4), sidecar({IP: 2}), *ips(5), sidecar({IP: 9})]
    assert asked(pod(init=init)) == {"underlay-ip": 12}
    assert asked(pod(init=init[:-1])) == {"underlay-ip": 8}
    assert asked(pod(init=init[:4])) == {"underlay-ip": 6}


def test_an_init_container_that_restarts_otherwise_is_no_sidecar() -> None:
    assert asked(pod(*ips(1), init=[container({IP: 3}, "OnFailure"), *ips(2)])) == {"underlay-ip": 3}


def test_overhead_is_added_to_the_rest() -> None:
    assert asked(pod(*ips(2), init=ips(5), overhead={IP: "1", "cpu": "250m"})) == {"underlay-ip": 6}
    assert asked(pod(container({}), overhead={IP: "1"})) == {"underlay-ip": 1}


def test_limits_count_where_no_request_is_given() -> None:
    only_limits = Container(Resources(limits={IP: "2", SEAT: "1"}, requests={SEAT: "3"}))
    assert asked(pod(only_limits)) == {"underlay-ip": 2, "matlab-licence": 3}


@pytest.mark.parametrize("nothing", ["0", 0, "0k", "-0", "0.0"])
def test_nothing_asked_is_no_demand(nothing: Quantity) -> None:
    assert asked(pod(*ips(nothing), init=ips(nothing))) == {}


@pytest.mark.parametrize(
    "bare",
    [
        Pod(Meta(name="a")),
        Pod(Meta(name="a"), PodSpec(containers=[Container()])),
        Pod(Meta(name="a"), PodSpec(containers=[Container(Resources())])),
        pod_asking({"cpu": "nonsense", "memory": "1Gi", "hugepages-2Mi": "4Mi"}),
    ],
    ids=["no spec", "no resources", "empty resources", "native resources"],
)
def test_a_pod_without_extended_resources_asks_nothing(bare: Pod) -> None:
    assert not might_ask(bare)
    assert asked(bare) == {}


@pytest.mark.parametrize(
    "asking",
    [pod(*ips(1)), pod(init=ips(1)), pod(overhead={IP: 1}), pod(Container(Resources(limits={IP: 1})))],
    ids=["container", "init container", "overhead", "limits"],
)
def test_an_extended_resource_anywhere_in_the_pod_may_be_a_demand(asking: Pod) -> None:
    assert might_ask(asking)
    assert asked(asking) == {"underlay-ip": 1}


@pytest.mark.parametrize(
    ("quantity", "why"),
    [
        ("500m", "'500m' is not a whole number of units"),
        (1.5, "'1.5' is not a whole number of units"),
        ("-1", "'-1' is negative"),
        ("9Ei", "'9Ei' is too large"),
        ("many", "'many' is not a quantity"),
        ("", "'' is not a quantity"),
        ("x" * 999, f"'{'x' * 64}' is not a quantity"),
    ],
)
def test_a_quantity_that_is_no_whole_number_is_refused_by_resource_and_value(
    quantity: Quantity, why: str
) -> None:
    for found in (pod(*ips(1, quantity)), pod(init=ips(quantity)), pod(overhead={IP: quantity})):
        answer = demand_of(found, POOLS)
        assert answer.refusal == f"{IP}: {why}; ask for a whole number"
        assert answer.units == {}


def test_a_resource_of_ours_that_no_pool_has_is_refused_naming_those_there_are() -> None:
    answer = demand_of(pod_asking({"berth.dev/underlay-pi": 1, IP: 1}), POOLS)
    assert answer.refusal == (
        "berth.dev/underlay-pi: no Pool has this resource; there are: "
        "berth.dev/matlab-licence, berth.dev/underlay-ip, example.com/k80"
    )


def test_a_refusal_stays_short_however_many_pools_there_are() -> None:
    many = pools_of(*(pool(f"pool-{number:03}") for number in range(200)))
    refusal = demand_of(pod_asking({IP: 1}), many).refusal or ""
    assert refusal.endswith("berth.dev/pool-009 and 190 more")
    assert len(refusal) < 400


def test_without_any_pool_the_refusal_says_that_there_are_none_yet() -> None:
    refusal = demand_of(pod_asking({IP: 1}), {}).refusal
    assert refusal == f"{IP}: no Pool has this resource; there are: none yet"


def test_nothing_asked_of_a_pool_that_is_not_there_is_no_demand() -> None:
    assert asked(pod_asking({"berth.dev/gone": "0"})) == {}


def test_extended_resources_of_others_are_not_ours_to_judge() -> None:
    foreign: dict[str, Quantity] = {"nvidia.com/gpu": "nonsense", "berth.dev.example.com/x": 1}
    assert asked(pod_asking({**foreign, IP: 1})) == {"underlay-ip": 1}
    assert asked(pod_asking(foreign)) == {}


def test_a_pool_may_count_a_resource_of_another_group() -> None:
    assert asked(pod_asking({"example.com/k80": "2"})) == {"k80": 2}
    assert demand_of(pod_asking({"example.com/k80": "2.5"}), POOLS).refusal is not None


counts = st.integers(0, 50)
init_containers = st.lists(st.tuples(st.booleans(), counts), max_size=6)


@given(st.lists(counts, max_size=4), init_containers, counts)
def test_the_demand_is_the_most_that_ever_runs_at_once(
    running: list[int], init: list[tuple[bool, int]], overhead: int
) -> None:
    moments = [sum(count for is_sidecar, count in init if is_sidecar) + sum(running)]
    for index, (_, count) in enumerate(init):
        moments.append(count + sum(before for is_sidecar, before in init[:index] if is_sidecar))
    found = pod(
        *ips(*running),
        init=[sidecar({IP: count}) if is_sidecar else container({IP: count}) for is_sidecar, count in init],
        overhead={IP: overhead},
    )
    assert asked(found).get("underlay-ip", 0) == max(moments) + overhead


K80 = {"k80": pool(name="k80")}
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
    demand = Terms(K80, {}, there).demand(naming(*(f"c{number}" for number in range(count))))
    assert (demand.refusal, there.looks) == (REFUSED, 0)


def test_sixteen_are_taken() -> None:
    names = [f"c{number}" for number in range(16)]
    demand = Terms(K80, {}, Counted(*names)).demand(naming(*names, k80=16))
    assert demand.refusal is None
    assert [name for name, *_ in demand.claims] == names


def test_nobody_looks_further_than_the_first_that_is_not_there() -> None:
    there = Counted("b", "d")
    demand = Terms(K80, {}, there).demand(naming("b", "a", "c", "d"))
    assert (demand.refusal, there.looks) == ("there is no PoolClaim a in the pod's namespace", 2)


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
    demand = Terms(K80, {}, Counted("b", "d")).demand(naming("b", "a", "d", node="n1", k80=2))
    assert [name for name, *_ in demand.claims] == ["b", "d"]


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
