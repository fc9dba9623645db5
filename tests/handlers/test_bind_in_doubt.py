"""A bind that does not know what became of its Binding, and can't fence the pod, or has little time for it.

What happens between any two of its calls otherwise: test_bind_interleavings.py. On the real API server:
tests/e2e/faults/test_bind_failures.py.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from berth.controller.settle import BIND_SECONDS
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError
from berth.handlers.bind import _WAKE_SECONDS
from berth.http.extender_v1 import BindingCall
from berth.kube.client import ApiServer, Request
from berth.kube.types import Pod
from berth.ledger.ledger import Ledger
from tests.support.builders.places import Place
from tests.support.builders.pools_stage import PoolsStage, mended, pools_staged
from tests.support.builders.stage import DOWN

# What is tried here is the verb's order, not the store's; on every store: tests/properties.
pytestmark = pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)

POOLS: dict[str, Any] = {
    "ip": {"units": {"n1": ["a"], "n2": ["b"]}},
    "seat": {"scope": "Cluster", "capacity": {"domains": {"*": 9}}},
}
NO_ANSWER = ClusterUnavailableError("the API server did not answer (timed out)")
DENIED = ClusterRefusedError("a webhook says no", 403)
LONGEST_SECONDS = BIND_SECONDS + _WAKE_SECONDS
MOST_REQUESTS = 40  # a bind makes fewer


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[PoolsStage]:
    with pools_staged(tmp_path, place, POOLS) as found:
        yield found


Meanwhile = Callable[[], object]


def answer_lost(stage: PoolsStage, meanwhile: Meanwhile, *, lands: bool) -> AbstractContextManager[object]:
    """Bindings land, or get lost themselves; then something else happens, and no answer comes."""
    land = stage.cluster.bind

    def bind(*arguments: Any) -> None:
        if lands:
            land(*arguments)
        meanwhile()
        raise NO_ANSWER

    return mock.patch.object(stage.cluster, "bind", bind)


def in_doubt(
    stage: PoolsStage,
    call: BindingCall,
    error: BerthError = DOWN,
    meanwhile: Meanwhile = lambda: None,
    *,
    lands: bool = True,
) -> str:
    """What bind answers when its Binding's answer is lost and nobody can write to the pod."""
    with answer_lost(stage, meanwhile, lands=lands), stage.unwritable(call.name, error=error) as failed:
        answer = stage.bind(call)
    assert failed[:1] == [call.name]
    return answer


@pytest.mark.parametrize("error", [DOWN, NO_ANSWER, DENIED], ids=["500", "time-out", "403"])
def test_a_binding_that_landed_is_a_success_though_the_pod_can_not_be_fenced(
    stage: PoolsStage, error: BerthError
) -> None:
    call = stage.pod(ip=1)
    assert in_doubt(stage, call, error) == ""
    assert stage.bound() == {call.name: "n1"}
    assert stage.claims() == {call.name: ("n1", "bound")}
    stage.check_well()


def test_a_binding_that_landed_is_a_success_though_a_fault_of_ours_keeps_its_claim_from_being_confirmed(
    stage: PoolsStage,
) -> None:
    call = stage.pod(ip=1)
    with mock.patch.object(Ledger, "confirm", side_effect=RuntimeError("a fault of ours")):
        assert stage.bind(call) == ""
    assert stage.bound() == {call.name: "n1"}
    assert stage.claims() == {call.name: ("n1", "reserved")}
    stage.check_counts()


def test_a_pod_that_somebody_bound_elsewhere_has_its_claim_there_though_it_can_not_be_fenced(
    stage: PoolsStage,
) -> None:
    call = stage.pod(ip=1)

    def bound_elsewhere() -> None:
        stage.objects._cluster.bind(stage.get(call.name), "n2", {}, 5.0)

    assert "was not bound to n1" in in_doubt(stage, call, meanwhile=bound_elsewhere, lands=False)
    assert stage.claims() == {call.name: ("n2", "bound")}


@pytest.mark.parametrize("end", ["gone", "replaced", "finished"])
def test_what_a_pod_held_that_has_ended_is_free_at_once_though_it_could_not_be_fenced(
    stage: PoolsStage, end: str
) -> None:
    call = stage.pod("pod", ip=1)

    def ends() -> None:
        if end == "finished":
            stage.finish(call)
        else:
            stage.delete(call)
        if end == "replaced":
            stage.pod("pod", ip=1)

    assert "was not bound to n1" in in_doubt(stage, call, meanwhile=ends, lands=False)
    assert stage.claims() == {}


def test_a_pod_that_waits_keeps_its_reservation_while_it_can_not_be_fenced(stage: PoolsStage) -> None:
    """Its Binding may land later; only a fence would stop that."""
    call = stage.pod(ip=1)
    late = stage.get(call.name)
    assert in_doubt(stage, call, lands=False) == str(DOWN)
    assert stage.claims() == {call.name: ("n1", "reserved")}
    assert stage.bind(stage.pod(ip=1)) == "ip: 0 of 1 free, 1 asked"
    stage.cluster.bind(late, "n1", {}, 5.0)
    with stage.unwritable(call.name):
        stage.reconcile()
    assert stage.claims() == {call.name: ("n1", "bound")}


def test_reconcile_confirms_the_claim_of_a_bound_pod_that_bind_could_neither_fence_nor_see(
    stage: PoolsStage,
) -> None:
    call = stage.pod(ip=1)

    with ExitStack() as away:

        def goes() -> None:
            away.enter_context(mock.patch.object(stage.objects, "pod", side_effect=NO_ANSWER, create=True))

        assert in_doubt(stage, call, meanwhile=goes) == str(DOWN)
    assert stage.claims() == {call.name: ("n1", "reserved")}
    with stage.unwritable(call.name):
        assert mended(stage.reconcile()) == {"settled": 1}
        assert stage.claims() == {call.name: ("n1", "bound")}
        stage.check_well()


def test_reconcile_settles_a_pod_that_is_bound_after_it_was_listed_and_can_not_be_fenced(
    stage: PoolsStage,
) -> None:
    call = stage.pod(ip=1)
    late = stage.get(call.name)
    in_doubt(stage, call, lands=False)
    stage.time.now += 60
    listed = stage.cluster.pods

    def pods(wanted: Callable[[Pod], bool]) -> list[Pod]:
        found: list[Pod] = listed(wanted)
        stage.objects._cluster.bind(late, "n1", {}, 5.0)
        return found

    with mock.patch.object(stage.objects, "pods", pods, create=True), stage.unwritable(call.name):
        assert mended(stage.reconcile()) == {"settled": 1}
    assert stage.claims() == {call.name: ("n1", "bound")}


# Time: an API server that takes all that it is given


class Slow:
    """From its nth request on the API server uses up the time that each is given. Then, by the method, it has
    answered ("at the last moment"), has done it and answers nobody ("too late"), or does it "never"."""

    def __init__(self, stage: PoolsStage, first: int, how: Mapping[str, str]) -> None:
        self._stage, self._first, self._how = stage, first, how
        self._call = ApiServer.call
        self.made = 0
        self.asked: list[tuple[str, float]] = []  # method, and when it ended
        self.meanwhile: Meanwhile = lambda: None

    @contextmanager
    def there(self) -> Iterator[None]:
        def call(server: ApiServer, request: Request) -> Any:
            return self._carry(request.method, request.timeout, lambda: self._call(server, request))

        with mock.patch.object(ApiServer, "call", call):
            yield

    def poolclaims(self) -> AbstractContextManager[object]:
        """PoolClaims' objects, which the stage keeps itself, are as slow."""
        read, write, patches = (
            self._stage.objects.pool_claim,
            self._stage.objects.set_pool_claim_status,
            ExitStack(),
        )

        def slow_read(namespace: str, name: str, timeout: float) -> Any:
            return self._carry("GET", timeout, lambda: read(namespace, name))

        def slow_write(document: Any, status: Any, timeout: float) -> Any:
            return self._carry("PATCH", timeout, lambda: write(document, status))

        patches.enter_context(mock.patch.object(self._stage.objects, "pool_claim", slow_read))
        patches.enter_context(mock.patch.object(self._stage.objects, "set_pool_claim_status", slow_write))
        return patches

    def _carry(self, method: str, timeout: float, do: Callable[[], Any]) -> Any:
        self.made += 1
        if method == "POST":
            self.meanwhile()
        how = self._how.get(method, "") if self.made >= self._first else ""
        if how:
            self._stage.time.now += timeout
        self.asked.append((method, self._stage.time.now))
        if how == "never":
            raise NO_ANSWER
        answer = do()
        if how == "too late":
            raise NO_ANSWER
        return answer


EACH = pytest.mark.parametrize("how", ["at the last moment", "too late", "never"])
METHODS = ("GET", "POST", "PATCH")
FIRST = range(1, MOST_REQUESTS)


def slow_bind(stage: PoolsStage, slow: Slow, call: BindingCall) -> tuple[str, float]:
    """What bind answers, and after how long."""
    began = stage.time.now
    with slow.there(), slow.poolclaims():
        answer = stage.bind(call)
    return answer, stage.time.now - began


@pytest.mark.parametrize("lost", ["POST at once", "POST too late"])
@pytest.mark.parametrize("fence", ["never", "too late"])
def test_a_fence_that_hangs_leaves_time_to_see_that_the_pod_is_bound(
    stage: PoolsStage, fence: str, lost: str
) -> None:
    """As with a webhook that hangs: it is waited for as long as the write may take."""
    call = stage.pod(ip=1)
    slow = Slow(stage, 1, {"PATCH": fence, **({"POST": "too late"} if lost == "POST too late" else {})})
    with ExitStack() as at_once:
        if lost == "POST at once":
            at_once.enter_context(answer_lost(stage, lambda: None, lands=True))
        answer, took = slow_bind(stage, slow, call)
    assert answer == ""
    assert took <= BIND_SECONDS
    assert stage.claims() == {call.name: ("n1", "bound")}


@EACH
def test_bind_answers_in_time_though_every_request_takes_all_the_time_it_is_given(
    stage: PoolsStage, how: str
) -> None:
    for name in ("one", "two"):
        stage.claim_object(name, "seat")
    for first in FIRST:
        call = stage.pod(claims="one,two", ip=1, seat=2)
        slow = Slow(stage, first, dict.fromkeys(METHODS, how))
        answer, took = slow_bind(stage, slow, call)
        what = f"from request {first} on: {answer!r} after {took:.2f} s, {slow.asked}"
        assert took <= LONGEST_SECONDS, what
        if how == "at the last moment":
            assert (answer == "") == (stage.bound().get(call.name) == "n1"), what
        stage.time.now += 60
        stage.check_counts()
        stage.clear_pods()
        if slow.made < first:
            return
    pytest.fail("a bind makes more requests than were tried")


@pytest.mark.parametrize("how", ["at the last moment", "never"])
def test_poolclaims_that_are_slow_to_be_written_leave_time_for_the_binding(
    stage: PoolsStage, how: str
) -> None:
    for name in ("one", "two"):
        stage.claim_object(name, "seat")
    call, posted = stage.pod(claims="one,two", seat=2), list[float]()
    land = stage.cluster.bind

    def bind(pod: Pod, node: str, notes: Mapping[str, str], timeout: float) -> None:
        posted.append(timeout)
        land(pod, node, notes, timeout)

    slow = Slow(stage, 1, dict.fromkeys(METHODS, how))
    with slow.poolclaims(), mock.patch.object(stage.objects, "bind", bind, create=True):
        assert stage.bind(call) == ""
    assert posted
    assert min(posted) > 1
    stage.check_counts()


@EACH
@pytest.mark.parametrize("waiters", [0, 5])
@pytest.mark.long
def test_bind_answers_in_time_for_a_pod_that_goes_meanwhile(
    stage: PoolsStage, how: str, waiters: int
) -> None:
    for first in FIRST:
        for _ in range(waiters):
            stage.pod(ip=1)
        call = stage.pod(ip=1)
        slow = Slow(stage, first, dict.fromkeys(METHODS, how))
        slow.meanwhile = lambda: stage.raw.delete_pod(call.name)  # noqa: B023 - it runs within this turn
        answer, took = slow_bind(stage, slow, call)
        assert answer
        assert took <= LONGEST_SECONDS, (
            f"from request {first} on: {answer!r} after {took:.2f} s, {slow.asked}"
        )
        stage.time.now += 60
        stage.check_counts()
        stage.clear_pods()
        if slow.made < first:
            return
    pytest.fail("a bind makes more requests than were tried")
