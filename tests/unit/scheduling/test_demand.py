"""What a pod asks of the pools: Kubernetes' rule for containers, init containers, sidecars and overhead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.kube.types import Container, Meta, Pod, PodSpec, Quantity, Resources
from berth.scheduling.demand import demand, might_ask
from tests.support.builders.objects import IP, SEAT, container, pod, pod_asking, pool, pools_of, sidecar

POOLS = pools_of(pool("underlay-ip"), pool("matlab-licence"), pool("k80", resource="example.com/k80"))


def asked(found: Pod) -> dict[str, int]:
    answer = demand(found, POOLS)
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
        answer = demand(found, POOLS)
        assert answer.refusal == f"{IP}: {why}; ask for a whole number"
        assert answer.units == {}


def test_a_resource_of_ours_that_no_pool_has_is_refused_naming_those_there_are() -> None:
    answer = demand(pod_asking({"berth.dev/underlay-pi": 1, IP: 1}), POOLS)
    assert answer.refusal == (
        "berth.dev/underlay-pi: no Pool has this resource; there are: "
        "berth.dev/matlab-licence, berth.dev/underlay-ip, example.com/k80"
    )


def test_a_refusal_stays_short_however_many_pools_there_are() -> None:
    many = pools_of(*(pool(f"pool-{number:03}") for number in range(200)))
    refusal = demand(pod_asking({IP: 1}), many).refusal or ""
    assert refusal.endswith("berth.dev/pool-009 and 190 more")
    assert len(refusal) < 400


def test_without_any_pool_the_refusal_says_that_there_are_none_yet() -> None:
    refusal = demand(pod_asking({IP: 1}), {}).refusal
    assert refusal == f"{IP}: no Pool has this resource; there are: none yet"


def test_nothing_asked_of_a_pool_that_is_not_there_is_no_demand() -> None:
    assert asked(pod_asking({"berth.dev/gone": "0"})) == {}


def test_extended_resources_of_others_are_not_ours_to_judge() -> None:
    foreign: dict[str, Quantity] = {"nvidia.com/gpu": "nonsense", "berth.dev.example.com/x": 1}
    assert asked(pod_asking({**foreign, IP: 1})) == {"underlay-ip": 1}
    assert asked(pod_asking(foreign)) == {}


def test_a_pool_may_count_a_resource_of_another_group() -> None:
    assert asked(pod_asking({"example.com/k80": "2"})) == {"k80": 2}
    assert demand(pod_asking({"example.com/k80": "2.5"}), POOLS).refusal is not None


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
