"""All faults on all stores, one world a store; a fault that fails is told, and the next gets a new world."""

import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.faults import Outcome, faults_of, suffer
from tests.chaos.world import PROXIED, Form, World, world_of

Say = Callable[[str], None]
FAILED = "failed"


class Runs:
    """`outcomes` by (fault, store); FAILED in place of one for what did not hold. `proxy` is an HAProxy."""

    def __init__(self, binaries: Path, proxy: Path, form: Form, seed: int, say: Say) -> None:
        self._binaries, self._proxy, self._form, self._seed, self._say = binaries, proxy, form, seed, say
        self.outcomes: dict[tuple[str, str], Outcome | str] = {}

    def run(self, stores: Sequence[str], faults: Sequence[str]) -> None:
        for store in stores:
            left = iter([fault for fault in faults_of(store) if fault in faults])
            while self._run_some(store, left):
                pass

    def _run_some(self, store: str, left: Iterator[str]) -> bool:
        """In one world, until a fault fails; False once there are none left."""
        fault = next(left, None)
        if fault is None:
            return False
        with tempfile.TemporaryDirectory(prefix="berth-chaos-") as folder, ExitStack() as stack:
            proxy = self._proxy if store == PROXIED else None
            made = world_of(self._binaries, Path(folder), store, self._form, self._seed, proxy)
            world = stack.enter_context(made)
            while fault is not None and self._passed(world, store, fault):
                fault = next(left, None)
        return True

    def _passed(self, world: World, store: str, fault: str) -> bool:
        try:
            outcome = suffer(world, fault)
        except Exception:  # noqa: BLE001 - whatever it was, the other faults are still to be seen
            self.outcomes[fault, store] = FAILED
            self._say(f"{store}: {fault}: {traceback.format_exc()}\n{world.berth.said()}")
            return False
        self.outcomes[fault, store] = outcome
        self._say(f"{store}: {fault}: {told(outcome)} ({outcome.lasted:.0f} s in all)")
        return True


def told(outcome: Outcome) -> str:
    """The cell of the table."""
    rebuilt = ", rebuilt" if outcome.rebuilt else ""
    note = f", {outcome.note}" if outcome.note else ""
    bound = f"{outcome.bound} bound ({outcome.meanwhile} meanwhile)"
    return f"{bound}, {outcome.mended} mended{rebuilt}, {outcome.seconds:.1f} s{note}"
