"""`berth waiting` beside a real kube-scheduler: pods are bound in the order of the places that it gives.

Its rows are in tests/unit/controller/test_waiting.py, its forms and errors in tests/cli/test_waiting.py.
"""

import json
import time
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, faulty_functions, pool
from tests.support.cluster import Object, wait

pytestmark = pytest.mark.long

BACK_OFF = 1.0  # seconds; what the configuration says of the first and of the longest one
PODS = {"low-1": "", "mid-1": "mid", "low-2": "", "high-1": "high"}  # the oldest first
ORDER = ["high-1", "mid-1", "low-1", "low-2"]
# kube-scheduler binds aside while it looks at the next pod: here filter lets it look at none until the bind
# of the pod that filter let through has ended.
FILTER = """
import time
from pathlib import Path

from berth.handlers import filter as verb
from berth.http.function import serve

under_way, told = Path(%r), verb.run


def another_is(name):
    try:
        return under_way.read_text() not in ("", name)
    except FileNotFoundError:
        return False


def run(look, call, **how):
    name, until = call.pod.metadata.name, time.monotonic() + 4
    while another_is(name) and time.monotonic() < until:
        time.sleep(0.005)
    said = told(look, call, **how)
    if "node-1" not in said.reasons:
        under_way.write_text(name)
    return said


verb.run = run
filter = serve(verb.endpoint)
"""
BIND = """
from pathlib import Path

import functions_framework
from msgspec.structs import replace

from berth.handlers.bind import endpoint
from berth.http.function import serve

under_way = Path(%r)


def one_by_one(settings, **given):
    real = endpoint(settings, **given)

    def answer(headers, body):
        try:
            return real.answer(headers, body)
        finally:
            under_way.unlink(missing_ok=True)

    return replace(real, answer=answer)


bind = functions_framework.http(serve(one_by_one))
"""


@pytest.mark.nightly
def test_pods_are_bound_in_the_order_of_their_places_when_room_comes_one_by_one(
    system_of: Systems, tmp_path: Path
) -> None:
    """Back-offs are over, no pod is deleted, and one bind begins when the last one has ended:
    controller/line.py says why the order may be another else."""
    under_way = str(tmp_path / "under-way")
    functions = faulty_functions(tmp_path, filter=FILTER % under_way, bind=BIND % under_way)
    system = system_of(1, pools=[pool(units=0)], start_scheduler=False, functions=functions)
    for name, value in (("high", 1000), ("mid", 100)):
        system.cluster.create_priority_class(name, value)
    back_off = {"podInitialBackoffSeconds": int(BACK_OFF), "podMaxBackoffSeconds": int(BACK_OFF)}
    system.plane.start_scheduler(system.scheduler_config("berth", **back_off))
    for name, priority in PODS.items():
        system.cluster.create_pod(name, priority_class=priority or None)
        system.refusal_of(name)
        _pass(BACK_OFF)  # Kubernetes knows the age of a pod in whole seconds
    found = _waiting(system)
    rows = sorted(found["pods"], key=lambda row: row["place"])
    assert [row["pod"] for row in rows] == ORDER
    assert {row["why"] for row in rows} == {"underlay-ip: 0 of 0 free, 1 asked"}
    assert found["summary"] == {"waiting": 4, "pools": 1, "placeable": 0, "other": 0}
    assert _bound_one_by_one(system) == ORDER
    assert _waiting(system)["pods"] == []


def _bound_one_by_one(system: System) -> list[str]:
    bound: list[str] = []
    for units in range(1, len(PODS) + 1):
        wait(partial(_is_quiet, system), 60, "no pod is in back-off")
        system.berth.write_pools([pool(units=units)])
        bound += sorted(wait(partial(_bound_since, system, set(bound)), 30, "one more pod is bound"))
    return bound


def _is_quiet(system: System) -> bool:
    """Whether kube-scheduler tries no pod for longer than a back-off lasts: that ends at a whole second."""
    before = _attempts(system)
    _pass(BACK_OFF + 1)
    return _attempts(system) == before


def _attempts(system: System) -> list[str]:
    lines = system.plane.scheduler_metrics("berth").splitlines()
    return [line for line in lines if line.startswith("scheduler_schedule_attempts_total{")]


def _bound_since(system: System, before: set[str]) -> set[str]:
    return set(system.cluster.bound()) - before


def _waiting(system: System) -> Object:
    done = system.berth.run("waiting", "--store", system.berth.store, "-o", "json", seconds=60)
    assert (done.returncode, done.stderr) == (0, "")
    found: Object = json.loads(done.stdout)
    return found


def _pass(seconds: float) -> None:
    """Let kube-scheduler's own clock go on: nobody can set it, and it tells nobody whose back-off is over."""
    until = time.monotonic() + seconds + 0.1
    wait(lambda: time.monotonic() > until, seconds + 5, "time passes")
