"""One URL for all verbs and managedResources: our pods are placed as ever, and others cost no call at all.

What each verb decides is tested elsewhere; here is shown who is called about whom.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Systems
from tests.e2e.harness import faulty_functions, pool, settled
from tests.support.builders.places import Place
from tests.support.cluster import UNDERLAY_IP, Cluster, wait

pytestmark = pytest.mark.long

SEAT = "example.com/seat"
SHORT = "underlay-ip: 0 of 5 free, 1 asked"
_EXTENDER = """
import json
from pathlib import Path

from msgspec.structs import replace

from berth.handlers.extender import router
from berth.http.function import serve


def counted(name, told):
    def answer(headers, body):
        call = json.loads(body)
        pod = call["Pod"]["metadata"]["name"] if "Pod" in call else call.get("PodName", "nobody")
        with Path(%r).open("a") as calls:
            calls.write(f"/{name} {pod}\\n")
        return told.answer(headers, body)

    return replace(told, answer=answer, at_once=None)


def counting(settings, **given):
    made = router(settings, **given)
    return replace(made, endpoints={name: counted(name, told) for name, told in made.endpoints.items()})


extender = serve(counting)
"""


@dataclass
class CountedExtender:
    """`functions` is for Berth's --functions; `calls` how often each path was called for each pod."""

    folder: Path

    def __post_init__(self) -> None:
        self._file = self.folder / "extender-calls"
        self._file.touch()
        self.functions = faulty_functions(self.folder, extender=_EXTENDER % str(self._file))

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        lines = (line.split(" ") for line in self._file.read_text().splitlines())
        return Counter((path, name) for path, name in lines)


def wait_placed(cluster: Cluster, names: set[str], count: int) -> None:
    wait(lambda: len(names & set(cluster.bound())) >= count, 60, f"{count} of {len(names)} pods bound")


def test_pods_that_ask_for_no_pool_cause_no_call_and_the_others_are_placed_as_ever(
    system_of: Systems, place: Place, tmp_path: Path
) -> None:
    counted = CountedExtender(tmp_path)
    system = system_of(3, pools=[pool(units=5)], single=True, functions=counted.functions, store=place.url)
    cluster = system.cluster
    for number in range(20):
        cluster.create_pod(f"before-{number}", {}, cpu="10m")
    cluster.wait_bound(seconds=60)
    assert counted.calls == Counter()

    ours = {f"ours-{number}" for number in range(16)}
    with cluster.watch_pods() as seen:
        for number in range(16):
            cluster.create_pod(f"ours-{number}")
            cluster.create_pod(f"beside-{number}", {}, cpu="10m")
        cluster.wait_bound(*(f"beside-{number}" for number in range(16)), seconds=60)
        wait_placed(cluster, ours, 15)
        (waiter,) = ours - set(cluster.bound())
        wait(lambda: any(SHORT in said for said in cluster.events_of(waiter)), 60, f"{waiter} refused")
        calls = counted.calls
        assert {name for _, name in calls} == ours
        assert {path for path, _ in calls} == {"/filter", "/prioritize", "/bind"}

        cluster.delete_pod(min(ours - {waiter}))
        cluster.wait_bound(waiter, seconds=60)
    assert seen.peak == dict.fromkeys(("node-1", "node-2", "node-3"), 5)
    settled(system)
    assert {name for _, name in counted.calls} == ours


@pytest.mark.nightly
def test_the_written_configuration_lists_every_pool_and_an_unlisted_resource_is_not_placed(
    system_of: Systems, tmp_path: Path
) -> None:
    counted = CountedExtender(tmp_path)
    system = system_of(
        2,
        pools=[pool(units=5), pool("seats", 1, resource=SEAT)],
        single=True,
        functions=counted.functions,
    )
    (extender,) = yaml.safe_load(system.berth.scheduler_config.read_text())["extenders"]
    assert {each["name"] for each in extender["managedResources"]} == {UNDERLAY_IP, SEAT}

    cluster = system.cluster
    for name in ("one", "two", "three"):
        cluster.create_pod(name, {UNDERLAY_IP: 2, SEAT: 1})
    wait_placed(cluster, {"one", "two", "three"}, 2)
    assert sorted(cluster.per_node().values()) == [1, 1]

    cluster.create_pod("typo", {"berth.dev/underlay-ips": 1})
    assert "2 Insufficient berth.dev/underlay-ips" in system.refusal_of("typo", seconds=60)
    assert "typo" not in {name for _, name in counted.calls}
    settled(system)
