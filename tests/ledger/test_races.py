"""Many processes and threads after the last units: exactly as many winners as units, and none with half.
Real races on every store; each outcome is exact whatever the order was."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest
from msgspec.structs import replace

from berth.ledger.keys import domain_key, namespace_quota
from berth.ledger.ledger import Ledger
from berth.ledger.model import Domain, Holding, Rank, decode_domain, encode, in_order
from berth.ledger.transitions import SupersededError
from berth.ledger.view import View
from berth.stores import open_store
from tests.support.builders.ledgers import claim
from tests.support.builders.objects import pool
from tests.support.builders.places import Place
from tests.support.builders.races import (
    CONTEXT,
    SECONDS,
    in_threads,
    persistently,
    process,
    reserve,
    running,
    started,
    used,
)

pytestmark = pytest.mark.slow

PROCESSES, THREADS = 4, 16

Work = Callable[[Ledger, str], str]


def one_unit(ledger: Ledger, name: str) -> str:
    return reserve(ledger, claim(name))


def two_pools(ledger: Ledger, name: str) -> str:
    """Half of the pods name the pools the other way round: nobody waits for anybody."""
    pods = {"0": {"ip": 1, "seat": 2}, "1": {"seat": 2, "ip": 1}}
    return reserve(ledger, claim(name, **pods[str(int(name.partition("-")[2]) % 2)]))


def one_pod(ledger: Ledger, name: str) -> str:
    return reserve(ledger, claim("the pod", "n1", name))


def of_one_namespace(ledger: Ledger, name: str) -> str:
    """On two nodes, and all from one limit, which nobody has made a document of yet."""
    node = f"n{1 + int(name.partition('-')[2]) % 2}"
    holdings = (Holding("ip", namespace_quota("default"), 1), Holding("ip", node, 1))
    return reserve(ledger, replace(claim(name, node), holdings=in_order(holdings)))


def come_and_go(ledger: Ledger, name: str) -> str:
    """Reserve, confirm or cancel, release; five times; nothing is left."""
    mine = claim(name, ip=1, seat=1)
    for turn in range(5):
        if reserve(ledger, mine) != "won":
            continue
        if turn % 2:
            persistently(lambda: ledger.confirm(mine))
            persistently(lambda: ledger.release(name))
        else:
            persistently(lambda: ledger.cancel(mine))
    return "done"


def adopted_and_moved(ledger: Ledger, name: str) -> str:
    """Bind calls for one pod on two nodes, and the pod found running on n2: one claim, there."""
    number = int(name.partition("-")[2])
    if number % 4 == 0:
        persistently(lambda: ledger.adopt(claim("the pod", "n2", name)))
    else:
        reserve(ledger, claim("the pod", f"n{1 + number % 2}", name))
    return "done"


def run(url: str, process: int, work: Work, barrier: Barrier, results: "Queue[list[str]]") -> None:
    store, answers = open_store(url), list[str]()
    ledger = Ledger(store)

    def one(thread: int) -> None:
        barrier.wait(SECONDS)
        answers.append(work(ledger, f"p{process}-{thread}"))

    in_threads(one, THREADS)
    store.close()
    results.put(answers)


def race(place: Place, work: Work) -> Counter[str]:
    """How the work ended in each thread of each process, all started at once."""
    barrier, results = CONTEXT.Barrier(PROCESSES * THREADS), CONTEXT.Queue()
    workers = [process(run, place.url, number, work, barrier, results) for number in range(PROCESSES)]
    with running(workers):
        answers = Counter(answer for _ in workers for answer in results.get(timeout=SECONDS))
    assert answers.total() == PROCESSES * THREADS
    return answers


@pytest.mark.every_store
@pytest.mark.parametrize("units", [1, 10])
def test_as_many_pods_win_as_there_are_units(place: Place, units: int) -> None:
    with started(place, ip=units) as ledger:
        assert race(place, one_unit) == {"won": units, "RefusedError": 64 - units}
        assert (used(ledger, "ip"), len(ledger.view().claims())) == (units, units)


def test_pods_that_want_units_of_two_pools_get_both_or_none(place: Place) -> None:
    """Nine `seat` are enough for four; the ninth and the six other `ip` stay free."""
    with started(place, ip=10, seat=9) as ledger:
        assert race(place, two_pools) == {"won": 4, "RefusedError": 60}
        assert (used(ledger, "ip"), used(ledger, "seat")) == (4, 8)
        for found in ledger.view().claims():
            for holding in found.holdings:
                assert ledger.view().domains[holding.pool]["n1"].claims[found.uid] == found


def test_the_pods_of_a_namespace_win_as_much_as_it_may_hold_on_all_nodes_together(place: Place) -> None:
    with started(place, ip=10) as ledger:
        ledger.apply_pools({"ip": pool("ip", limits={"default": 4})})
        assert race(place, of_one_namespace) == {"won": 4, "RefusedError": 60}
        assert used(ledger, "ip") + used(ledger, "ip", "n2") == used(ledger, "ip", "@default") == 4


def test_one_pod_that_is_bound_by_many_at_once_holds_its_unit_once(place: Place) -> None:
    with started(place, ip=3) as ledger:
        assert race(place, one_pod) == {"won": 64}
        assert used(ledger, "ip") == 1


def test_units_that_come_and_go_are_never_given_twice_and_never_lost(place: Place) -> None:
    with started(place, ip=3, seat=3) as ledger:
        over, stop = list[int](), threading.Event()
        watcher = open_store(place.url)

        def watch() -> None:
            keys = {pool: domain_key(pool, "n1") for pool in ("ip", "seat")}
            while not stop.is_set():
                found = watcher.read(list(keys.values()))
                counts = {p: decode_domain(found[keys[p]].body).used(p, "n1") for p in keys}
                if counts["ip"] != counts["seat"] or counts["ip"] > 3:
                    over.append(counts["ip"])

        watching = threading.Thread(target=watch)
        watching.start()
        assert race(place, come_and_go) == {"done": 64}
        stop.set()
        watching.join()
        watcher.close()
        assert over == []
        assert ledger.view().claims() == []
        assert ledger.view().free["ip"]["n1"] == ledger.view().free["seat"]["n1"] == (3, 3)


def test_a_pod_that_runs_ends_with_one_claim_where_it_runs_once_late_binds_are_settled(place: Place) -> None:
    """Two overlapping binds may both hold a unit for a moment; adopting what runs ends the other."""
    with started(place, ip=3) as ledger:
        assert race(place, adopted_and_moved) == {"done": 64}
        ledger.adopt(claim("the pod", "n2"))
        assert [found.node for found in ledger.view().claims()] == ["n2"]
        assert (used(ledger, "ip", "n1"), used(ledger, "ip", "n2")) == (0, 1)


def test_an_older_attempt_never_cancels_a_newer_one_s_reservation(place: Place) -> None:
    """64 attempts take one reservation over from each other; only the last one's cancel frees it."""
    with started(place, ip=1) as ledger:
        race(place, one_pod)
        last = ledger.view().claims_of("the pod")[0]
        others = [f"p{i}-{j}" for i in range(PROCESSES) for j in range(THREADS)]
        for attempt in others:
            if attempt != last.attempt:
                assert ledger.cancel(claim("the pod", "n1", attempt)) == ()
                with pytest.raises(SupersededError):
                    ledger.reserve(claim("the pod", "n1", attempt), after=attempt)
        assert ledger.cancel(last) == last.holdings


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_that_read_a_view_while_another_updates_it_never_miss_what_is_there() -> None:
    """A claim that moves is found at every moment, and a node never seems to have left the pool."""
    here, there = (encode(Domain(5, {"a": claim("a", node)})) for node in ("n1", "n2"))
    view, stop = View(), threading.Event()
    view.update({"domain/ip/n1": here, "domain/ip/n2": encode(Domain(5))})

    def update() -> None:
        while not stop.is_set():
            view.update({"domain/ip/n1": encode(Domain(5)), "domain/ip/n2": there, "domain/ip/n3": None})
            view.update({"domain/ip/n1": here, "domain/ip/n2": encode(Domain(5)), "domain/ip/n3": there})

    updating = threading.Thread(target=update)
    updating.start()
    try:
        for _ in range(20_000):
            assert view.keys_of("a")
            assert view.claims_of("a")
            assert {name for name, _ in view.free_for(Rank("b"), ["ip"]).free["ip"].items()} >= {"n1", "n2"}
    finally:
        stop.set()
        updating.join()
