"""Adoption of many pods at once: the same claims as one by one, in few commits (a rebuild must be quick)."""

from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from msgspec.structs import replace

from berth.errors import RefusedError, StoreUnavailableError
from berth.ledger.keys import domain_key
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Holding
from berth.stores.base import LIMIT, Changes, Cursor, Store, Version
from tests.properties.pools import small_stripes
from tests.support.builders.ledgers import FaultyStore, claim, held, ledger_on, opened
from tests.support.builders.places import Place

LIMITED = "ip", "@d"
NODES = [f"n{number}" for number in range(12)]


class CountingStore(FaultyStore):
    """Counts the commits that went through, and the calls that ask what has changed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.commits = self.looks = 0

    def changes(self, since: Cursor | None) -> Changes:
        self.looks += 1
        return super().changes(since)

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        self.commits += 1
        return super().commit(writes, expected)


class CrowdedStore(FaultyStore):
    """Commits of more than a few documents meet others' each time."""

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, Version | None]) -> bool:
        return len(expected) <= 6 and super().commit(writes, expected)


@pytest.fixture
def store(place: Place) -> Iterator[CountingStore]:
    with closing(opened(place.url, {("ip", node): 2 for node in NODES})) as bare:
        yield CountingStore(bare)


@pytest.fixture
def ledger(store: CountingStore) -> Ledger:
    return ledger_on(store)


def running() -> list[Claim]:
    """Three pods a node, more than there is room for; every fourth has units of a second pool too."""
    demands = ({"ip": 1}, {"ip": 1}, {"ip": 1}, {"ip": 1, "seat": 2})
    return [claim(f"u{i}", NODES[i % len(NODES)], **demands[i % 4]) for i in range(3 * len(NODES))]


def _limited(uid: str, node: str) -> Claim:
    """A pod of a namespace with a limit."""
    return replace(claim(uid, node), holdings=(Holding("ip", "@d", 1), Holding("ip", node, 1)))


def test_all_of_them_hold_what_they_ask_for_afterwards_room_or_not(ledger: Ledger) -> None:
    claims = running()
    assert ledger.adopt_all(claims) == {each.uid for each in claims}
    assert held(ledger) == {each.uid: ("bound", each.node) for each in claims}
    assert ledger.view().domains["ip"]["n0"].used("ip", "n0") == 3
    assert {each.holdings for each in ledger.view().claims()} == {each.holdings for each in claims}


def test_what_agrees_already_is_left_alone(ledger: Ledger, store: CountingStore) -> None:
    first, *others = claims = running()
    assert ledger.adopt_all(others) == {each.uid for each in others}
    assert ledger.adopt_all(claims) == {first.uid}
    before = store.commits
    assert ledger.adopt_all(claims) == set()
    assert store.commits == before


def test_a_pod_that_runs_elsewhere_than_its_claim_says_ends_with_one_claim_where_it_runs(
    ledger: Ledger,
) -> None:
    ledger.reserve(claim("u0", "n1"))
    ledger.reserve(claim("u1", "n1"))
    assert ledger.adopt_all([claim("u0", "n0"), claim("u1", "n1")]) == {"u0", "u1"}
    assert held(ledger) == {"u0": ("bound", "n0"), "u1": ("bound", "n1")}


def test_many_pods_take_few_commits(ledger: Ledger, store: CountingStore) -> None:
    claims = [claim(f"u{i}", NODES[i % len(NODES)]) for i in range(20 * len(NODES))]
    ledger.adopt_all(claims)
    assert store.commits <= len(NODES)
    assert len(ledger.view().claims()) == len(claims)


def test_pods_of_a_limit_in_many_stripes_take_few_commits_too(place: Place) -> None:
    """Each has documents on its own node and in a stripe: those of a pod lie together nowhere."""
    nodes = [f"n{number}" for number in range(150)]
    claims = [_limited(f"u{number}", node) for number, node in enumerate(nodes)]
    with small_stripes(), closing(opened(place.url, {("ip", node): 1 for node in nodes})) as bare:
        store = CountingStore(bare)
        ledger = ledger_on(store)
        ledger.set_capacities({LIMITED: 160}, {}, {LIMITED})
        assert ledger.view().at(domain_key(*LIMITED)).stripes == 80
        store.commits = 0
        assert ledger.adopt_all(claims) == {each.uid for each in claims}
        assert store.commits <= 8
        view = ledger.view()
        assert {each.uid: each.logical() for each in view.claims()} == {
            each.uid: each.holdings for each in claims
        }
        assert view.quotas["ip"]["@d"] == (10, 160)
        assert not any(units for units, _ in view.free["ip"].values())
        assert ledger.adopt_all(claims) == set()
        ledger.release("u0")
        ledger.reserve(_limited("last", "n0"))
        assert ledger.view().quotas["ip"]["@d"] == (10, 160)


def test_a_limit_in_stripes_that_more_is_used_of_than_there_is_gives_nothing_until_it_is_not(
    place: Place,
) -> None:
    nodes = [f"n{number}" for number in range(110)]
    with small_stripes(), closing(opened(place.url, {("ip", node): 2 for node in nodes})) as store:
        ledger = ledger_on(store)
        ledger.set_capacities({LIMITED: 100}, {}, {LIMITED})
        ledger.adopt_all([_limited(f"u{number}", node) for number, node in enumerate(nodes)])
        for number in range(10):
            assert ledger.view().quotas["ip"]["@d"] == (0, 100)
            with pytest.raises(RefusedError):
                ledger.reserve(_limited("more", "n0"))
            ledger.release(f"u{number}")
        ledger.release("u10")
        ledger.reserve(_limited("more", "n0"))
        assert ledger.view().quotas["ip"]["@d"] == (0, 100)


def test_a_domain_in_stripes_gives_what_it_has_right_after_an_adoption(place: Place) -> None:
    """Each pod is placed by itself, so several come to a stripe that has room for one."""
    with small_stripes(), closing(opened(place.url, {})) as store:
        ledger = ledger_on(store)
        ledger.set_capacities({("seat", "*"): 40}, {}, {("seat", "*")})
        ledger.adopt_all([claim(f"u{number}", "*", seat=2) for number in range(10)])
        assert ledger.view().free["seat"]["*"] == (20, 40)


def test_a_pod_that_is_adopted_alone_costs_one_commit_and_one_look(
    ledger: Ledger, store: CountingStore
) -> None:
    """Only a domain in stripes can be closed by it, which a second look is for."""
    ledger.view()
    store.commits = store.looks = 0
    ledger.adopt(claim("u0", "n0"))
    assert (store.commits, store.looks) == (1, 1)


@pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)
def test_where_others_are_always_first_pods_are_adopted_one_by_one(place: Place) -> None:
    nodes = NODES[:3]
    with small_stripes(), closing(opened(place.url, {("ip", node): 1 for node in nodes})) as bare:
        ledger = ledger_on(CrowdedStore(bare))
        ledger.set_capacities({LIMITED: 6}, {}, {LIMITED})
        claims = [_limited(f"u-{node}", node) for node in nodes]
        assert ledger.adopt_all(claims) == {each.uid for each in claims}
        assert ledger.view().quotas["ip"]["@d"] == (3, 6)


def test_after_an_outage_in_the_middle_the_same_call_does_the_rest(
    ledger: Ledger, store: CountingStore
) -> None:
    claims = [claim(f"u{i}", f"n{i}") for i in range(3 * LIMIT)]
    store.faults = ["", "after"]
    with pytest.raises(StoreUnavailableError):
        ledger.adopt_all(claims)
    assert 0 < len(held(ledger)) < len(claims)
    ledger.adopt_all(claims)
    assert len(held(ledger)) == len(claims)
