"""What the property test expects of units that rest, where a clock was wrong: only what that clock's writes
touch is no more expected."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.properties.api import api_client
from tests.properties.memory import MemoryStore
from tests.properties.pools import LONG, NodeIs
from tests.properties.promises import ALL
from tests.properties.random_world import World
from tests.properties.wish import Wish

COUNTED = {"scope": "Node", "capacity": {"perDomain": 3}, "reuseAfterSeconds": LONG}
NAMED = {"scope": "Cluster", "units": {"*": ["s1", "s2", "s3"]}, "reuseAfterSeconds": LONG}


@pytest.fixture(params=[COUNTED, NAMED], ids=["counted", "named"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Two pods run on n1, p1 with two units and p2 with the last one."""
    store = MemoryStore()
    world = World(store, store.lose, api_client(), ALL)
    world.set_pool("ip", request.param)
    world.set_node("n1", NodeIs({}, "a"))
    world.reconcile()
    for name, units in (("p1", 2), ("p2", 1)):
        world.create_pod(name, Wish({"ip": units}))
        assert world.bind(uid(world, name), "n1").answer == ""
    yield world
    world.stop(kill=True)


def uid(world: World, name: str) -> str:
    return next(each for each, known in world.names.items() if known == name)


def end(world: World, name: str, ahead: float = 0.0) -> None:
    world.end_pod(uid(world, name), "delete")
    world.ahead = ahead
    world.deliver(world.events[-1])


def resting(world: World) -> list[Any]:
    found = (left for each in world.lefts.found.values() for left in each)
    return [left for left in found if left.sure]


def given(world: World) -> bool:
    """Whether a pod gets two units now."""
    world.create_pod("p3", Wish({"ip": 2}))
    return world.bind(uid(world, "p3"), "n1").answer == ""


def test_a_reconcile_whose_clock_is_behind_shortens_rests(world: World) -> None:
    end(world, "p1")
    world.ahead = -LONG
    world.reconcile()
    assert given(world)
    assert world.promises.broken == ""


def test_a_release_whose_clock_is_behind_shortens_no_rest_but_its_own(world: World) -> None:
    end(world, "p1")
    end(world, "p2", ahead=-LONG)
    assert len(resting(world)) == 1


def test_a_release_whose_clock_is_ahead_drops_what_rests_beside(world: World) -> None:
    end(world, "p1")
    end(world, "p2", ahead=LONG)
    assert given(world)
    assert world.promises.broken == ""


def test_what_right_clocks_write_stays_expected(world: World) -> None:
    end(world, "p1")
    world.time.now += 1.0
    end(world, "p2")
    world.reconcile()
    assert len(resting(world)) == 2
    assert not given(world)
    assert world.promises.broken == ""


def test_filter_may_tell_any_number_between_what_is_left_for_sure_and_what_may_be() -> None:
    """p1 left two units and has one of them again; whether what is used outside is the other one, nobody can
    tell."""
    store = MemoryStore()
    world = World(store, store.lose, api_client(), ALL)
    spec = {"scope": "Cluster", "capacity": {"perDomain": 4}, "sticky": {"by": "Pod", "forSeconds": LONG}}
    world.set_pool("ip", spec)
    world.set_node("n1", NodeIs({}, "a"))
    world.reconcile()
    world.create_pod("p1", Wish({"ip": 2}))
    world.bind(uid(world, "p1"), "n1")
    end(world, "p1")
    world.create_pod("p1", Wish({"ip": 1}))
    world.bind(next(reversed(world.names)), "n1")
    world.set_pool("ip", {**spec, "external": 1})
    world.reconcile()
    world.create_pod("p2", Wish({"ip": 2}))
    said = world.filter(uid(world, "p2")).result
    assert isinstance(said, dict)
    assert said["n1"] == "ip: 1 of 4 free, 2 asked"
    assert world.promises.broken == ""


def test_a_bind_whose_clock_is_behind_may_give_what_never_rested() -> None:
    """A unit that a PoolClaim gave is kept for nobody, in a Pool whose units do not rest."""
    store = MemoryStore()
    world = World(store, store.lose, api_client(), ALL)
    world.set_pool("ip", {"units": {"n1": ["a1"]}, "sticky": {"by": "Pod", "forSeconds": LONG}})
    world.set_claim({"pool": "ip"})
    world.set_node("n1", NodeIs({}, "a"))
    world.reconcile()
    for name in ("p1", "p2"):
        world.create_pod(name, Wish({"ip": 1}, claim=True))
        assert world.bind(uid(world, name), "n1").answer == ""
        end(world, name)
        world.ahead = -LONG
    assert world.promises.broken == ""
