"""kill -9 after each call that bind makes: of bind itself, and of every other function at that moment.

The steps are not written down here: bind is made to tell them, for each way that a Binding can go. preempt
alone is killed while it has a call of its own to answer.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress

from tests.chaos.background import PATIENCE
from tests.chaos.churn import Churn
from tests.chaos.evictions import Evictions
from tests.chaos.inside import BINDING, CHANGED, CUT, DECIDED, LOST, TAKEN, UNDECIDED
from tests.chaos.store_faults import STORES
from tests.chaos.world import Step, World
from tests.support.cluster import Object, wait
from tests.support.processes import is_running

WAYS = {"": "confirm: commit", CUT: "cancel: commit", LOST: "PATCH status", CHANGED: f"again: {BINDING}"}
"""How a Binding can go: it is made; it never arrives; it is made and its answer is lost; the pod was written
before it. Each with a call that a bind must have come by, or it did not go that way."""

TRIES = 40  # binds that an order waits for: some steps are made only where others got in between
OTHERS = ("filter", "prioritize", "preempt", "release", "inventory", "reconcile")


def bind_killed(world: World, churn: Churn) -> str:
    steps = chosen(world, steps_of_bind(world))
    killed = 0
    for step in steps:
        killed += carry_out(world, step, ())
        churn.replace(1)  # often the pod whose bind died: an orphan for reconcile
    assert 2 * killed > len(steps), f"bind came to {killed} of {len(steps)} steps"
    return f"{killed} of {len(steps)} steps"


def others_killed(world: World, _: Churn) -> str:
    """Each function at as many steps as the others, in turn."""
    steps = steps_of_bind(world)
    world.dice.shuffle(steps)
    count = max(len(steps) // 2, 2 * len(OTHERS)) if world.form.whole else 2
    chosen = [OTHERS[(number + count * world.part) % len(OTHERS)] for number in range(count)]
    evicting = Evictions(world.cluster) if "preempt" in chosen else None
    killed: Counter[str] = Counter()
    with evicting or nullcontext():
        for number, function in enumerate(chosen):
            if function == "preempt":
                kill_preempt(world, DECIDED if killed[function] % 2 else UNDECIDED)
                killed[function] += 1
            else:
                killed[function] += carry_out(world, steps[number % len(steps)], [one_of(world, function)])
    spared = {function for function in chosen if not killed[function]}
    assert not spared, f"no bind came to a step at which {spared} were to be killed"
    world.evicting = evicting
    return f"{killed.total()} of {count} steps"


def kill_preempt(world: World, when: str) -> None:
    """While it has a call to answer: some pod waits for that."""
    world.faults.set("preempt", when)
    wait(lambda: world.faults.is_set("preempt-killed"), PATIENCE, f"preempt is called, and dies {when}")
    pid = int(world.faults.text("preempt-killed"))
    world.faults.unset("preempt-killed")
    wait(lambda: not is_running(pid), PATIENCE, f"process {pid} of preempt is gone")


def one_of(world: World, function: str) -> int:
    """The process group of one of its processes that answers."""
    return wait(lambda: alive(world, function), PATIENCE, f"{function} answers")[0]


def alive(world: World, function: str) -> list[int]:
    """Process groups of those of its processes that answer."""
    ready = world.berth.ready()
    return [pid for which, pid in world.berth.replica_pids.items() if which[0] == function and which in ready]


def chosen(world: World, steps: Sequence[Step]) -> list[Step]:
    """All of them; in the short form each store has its part."""
    if world.form.whole:
        return list(steps)
    return [step for number, step in enumerate(steps) if number % len(STORES) == world.part]


def steps_of_bind(world: World) -> list[Step]:
    """What bind does, in its order; of the ways that go wrong, what is new in them."""
    if not world.steps:
        found: dict[str, Step] = {}
        for way, landmark in WAYS.items():
            for call in rehearsed(world, way, landmark):
                found.setdefault(call, Step(way, call))
        world.steps = list(found.values())
    return list(world.steps)


def rehearsed(world: World, way: str, landmark: str) -> list[str]:
    """The calls of one bind that went this way; nobody is killed."""

    def tried() -> list[str]:
        calls: list[str] = ordered(world, {"way": way, "step": None, "victims": [], "tries": 1})["calls"]
        return calls if landmark in calls else []

    return wait(tried, PATIENCE, f"a bind whose Binding goes {way or 'well'} comes to {landmark}")


def carry_out(world: World, step: Step, victims: Sequence[int]) -> bool:
    """Whether it was: False where no bind came to that step. Then those who were to die are gone."""
    order = {"way": step.way, "step": step.call, "victims": list(victims), "tries": TRIES}
    told = ordered(world, order)
    if told["reached"]:
        assert not victims or told["killed"] == list(victims), f"{victims} were to die, {told['killed']} did"
        wait(lambda: not any(map(is_running, told["killed"])), PATIENCE, f"{told['killed']} are gone")
    return bool(told["reached"])


def _through(world: World) -> bool:
    """Whether a bind has done as ordered. An order whose process died of something else is given anew: a
    function that answers nobody on a busy machine is replaced."""
    for taken in world.faults.folder.glob(f"{TAKEN}*"):
        if not is_running(int(taken.name.removeprefix(TAKEN))):
            with suppress(FileNotFoundError):
                taken.rename(world.faults.folder / "order")
    return world.faults.is_set("done")


def ordered(world: World, order: Object) -> Object:
    """Gives the order, waits until a bind has carried it out or too many have not; see inside.py."""
    world.faults.set("order", json.dumps(order))
    wait(lambda: _through(world), PATIENCE, f"a bind is through with {order}", every=0.01)
    told: Object = json.loads(world.faults.text("done"))
    world.faults.unset("done")
    return told
