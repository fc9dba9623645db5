"""A stage with full pools, where time goes on and units are held for the first in line."""

from typing import Any

from berth.http.extender_v1 import BindingCall
from berth.kube.types import PodInFull
from berth.ledger.keys import domain_of
from berth.ledger.view import View
from tests.support.builders.pools_stage import PoolsStage


class LineStage(PoolsStage):
    """With full pools, and what is held in line."""

    def full(self, pool: str = "seat", count: int = 4, units: int = 1, **how: Any) -> list[BindingCall]:
        asked: dict[str, Any] = {pool: units, **how}
        return [self.bound_pod(f"{pool}-{number}", **asked) for number in range(count)]

    def full_pod(self, call: BindingCall) -> PodInFull:
        pod: PodInFull | None = self.cluster.pod_with_conditions(call.namespace, call.name)
        assert pod is not None
        return pod

    def ticks(self, seconds: float = 0.0) -> None:
        """The clock goes on, and reconcile runs."""
        self.time.now += seconds
        self.reconcile()

    def view(self) -> View:
        return self._ledger(self.store, while_closed=True).view()

    def holds(self) -> dict[str, tuple[str, int]]:
        """What is held in line, by document."""
        return {key: (hold.label, hold.count) for key, hold in self.view().line_holds.items()}

    def whole_by(self) -> dict[str, float | None]:
        """When all that is held is there at the latest, by document."""
        view, now = self.view(), self.time.now
        return {key: view.at(key).whole_by(*domain_of(key), now) for key in view.line_holds}
