"""A day in the life of two worlds that meet the same pods, events and faults, told line by line.
All numbers are measured; Berth's have to keep its promises, the naive counter has made none."""

import re
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from berth.demo.observer import Observer
from berth.demo.world import UNITS, World
from berth.errors import BerthError

WORKERS = 3
WATCHED_SECONDS = 5.0
"""How long a waiter that nobody wakes is observed; kube-scheduler's own flush comes after five minutes."""

COLUMNS = 72
"""No line of the demo is longer: it fits beside an editor, and into a mail."""

WRONG = re.compile(
    r"(?:over-allocated|leaked) [1-9]\d*|\b[1-9]\d* (?:over-allocated|leaked)|after 5 minutes"
    r"|\d+ still waiting after \d+ s\s+beside\s+\d+\s+free\s+units"
)
"""What of the demo's words says that something went wrong."""

_KEPT_SECONDS = 20.0

Show = Callable[[str], None]


class Measured(msgspec.Struct, rename="camel"):
    """The numbers of one world at their worst; `leaked` and `uncounted` are taken after a reconcile."""

    over_allocated: int = 0
    leaked: int = 0
    uncounted: int = 0  # units that living pods hold and the count does not have, at the end
    wake_seconds: float | None = None  # from room made to Binding
    watched_seconds: float = 0.0  # how long a waiter was observed that was not bound
    free_beside_waiter: int = 0
    bound: int = 0
    waiting: int = 0


@dataclass
class Played:
    """A world with its observer and what was measured in it; `promising`: Berth's."""

    world: World
    observer: Observer
    promising: bool
    measured: Measured = field(default_factory=Measured)

    def measure(self) -> str:
        """Reconcile, measure, and return the result in words."""
        world, measured = self.world, self.measured
        world.count.reconcile()
        world.settle()
        if self.promising:
            # A real kube-scheduler may not have seen the wake yet, or be in the middle of a bind.
            world.comes_true(self._kept, _KEPT_SECONDS)
        bound, waiting = world.bound(), world.waiting()
        world.until(lambda: self.observer.has_seen(bound), "the observer has seen every Binding")
        leaked = world.leaked()
        measured.over_allocated = self.observer.over_allocated
        measured.leaked, measured.uncounted = max(measured.leaked, leaked), world.uncounted()
        measured.bound, measured.waiting = len(bound), len(waiting)
        parts = [f"{len(bound)} bound, {len(waiting)} waiting"]
        parts += [f"over-allocated {measured.over_allocated}"] if measured.over_allocated else []
        parts += [f"leaked {leaked}"] if leaked else []
        return "; ".join(parts)

    def _kept(self) -> bool:
        """Whether no unit is free beside a waiting pod, and the count equals the pods."""
        world = self.world
        used = len(world.bound()) == WORKERS * UNITS or not world.waiting()
        return used and not world.leaked() and not world.uncounted()


class Story:
    """Plays the day; `show` gets the lines for a person."""

    def __init__(self, naive: Played, berth: Played, show: Show) -> None:
        self._berth, self._both, self._show, self._step = berth, (naive, berth), show, 0
        self._worlds = (naive.world, berth.world)

    def play(self) -> None:
        for world in self._worlds:
            for number in range(1, WORKERS + 1):
                world.add_node(f"worker-{number}")
        world = self._berth.world
        world.until(lambda: len(world.count.used()) == WORKERS, "the nodes' capacities are in the ledger")
        with self._told(f"8 pods arrive, for {WORKERS * UNITS} units on {WORKERS} nodes."):
            self._add(*range(1, 9))
        with self._told(
            "The extender is killed (kill -9) in the bind of pod-9: counted, but the Binding not made."
        ):
            self._kill_bind_of(9)
        with self._told("2 more pods arrive: more than fit."):
            self._add(10, 11)
        self._tell("pod-1 is deleted, its event arrives, and other pods wait for just that.")
        for played in self._both:
            self._watch_waiters(played)
        with self._told("pod-3 is deleted, and its event gets lost."):
            self._delete("pod-3", 0)
        with self._told("pod-4 is deleted, its event arrives twice; 2 pods arrive."):
            self._delete("pod-4", 2)
            self._add(12, 13)
        with self._told("A delete event is forged for pod-5, which lives; 1 pod arrives."):
            for world in self._worlds:
                world.forge_delete("pod-5")
            self._add(14)
        with self._told("The ledger is deleted, and so is the counter's database; 6 pods arrive."):
            for world in self._worlds:
                world.count.file.unlink()
                world.create_pods(*range(15, 21))

    def _kill_bind_of(self, number: int) -> None:
        for world in self._worlds:
            hold = world.gateway.hold_next_binding()
            world.create_pods(number)
            world.until(hold.reached.is_set, f"bind makes the Binding of pod-{number}")
            world.count.kill()
            hold.dropped.set()
        for world in self._worlds:
            world.settle()

    def _watch_waiters(self, played: Played) -> None:
        """Make room, and measure when a waiter has it; kube-scheduler's flush is not awaited."""
        world, measured = played.world, played.measured
        waiters = set(world.waiting())
        began = time.monotonic()
        world.delete_pod("pod-1", 1).sent.set()
        patience = _KEPT_SECONDS if played.promising else WATCHED_SECONDS
        left = began + patience - time.monotonic()
        bound = world.comes_true(lambda: waiters & set(world.bound()), left)
        seconds = round(time.monotonic() - began, 2)
        if bound:
            measured.wake_seconds = seconds
            self._line(played, f"a waiter is bound {seconds:g} s after the deletion")
            return
        measured.watched_seconds = seconds
        measured.free_beside_waiter = WORKERS * UNITS - len(world.bound())
        self._line(
            played,
            f"{len(world.waiting())} still waiting after {seconds:.0f} s beside "
            f"{measured.free_beside_waiter} free units; kube-scheduler tries them again when something else "
            "changes, else after 5 minutes",
        )

    def _add(self, *numbers: int) -> None:
        for world in self._worlds:
            world.create_pods(*numbers)
        for world in self._worlds:
            world.settle()

    def _delete(self, name: str, events: int) -> None:
        for world in self._worlds:
            parcel = world.delete_pod(name, events)
            parcel.sent.set()
            world.until(parcel.delivered.is_set, f"the event of {name} was delivered")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Tell what happens in the block, and then what came of it in both worlds."""
        self._tell(what)
        yield
        for played in self._both:
            self._line(played, played.measure())

    def _tell(self, what: str) -> None:
        self._step += 1
        self._show(f"\n{_filled(what, f'{self._step}. ')}")

    def _line(self, played: Played, what: str) -> None:
        self._show(_filled(what, f"   {played.world.name + ':':15}"))


def _filled(text: str, label: str) -> str:
    return textwrap.fill(
        text, COLUMNS, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )


def require_kept(berth: Measured) -> None:
    """Raise BrokenPromiseError if a promise was broken; it names all that were."""
    counts = {
        "units over-allocated": berth.over_allocated,
        "units leaked": berth.leaked,
        "units held that the ledger does not know of": berth.uncounted,
        "units free beside waiting pods": min(WORKERS * UNITS - berth.bound, berth.waiting),
    }
    broken = [f"{count} {what}" for what, count in counts.items() if count > 0]
    broken += ["no waiter was woken"] if berth.wake_seconds is None else []
    if broken:
        raise BrokenPromiseError(f"a promise was broken: {', '.join(broken)}")


class BrokenPromiseError(BerthError):
    """The demo saw something that Berth promises never happens."""
