"""Pods that wait in line all through a fault: small ones that come and go, large asks for which units are
held, and gangs. They have a namespace and a pool of their own.

Whatever breaks: no more units are held than there are, a gang is bound whole, and each large ask is bound.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, Self

import urllib3

from berth.api.gang import GANG, GANG_SIZE
from berth.api.run_time import RUNS_FOR
from tests.chaos.background import PATIENCE, Background
from tests.chaos.churn import TOO_MANY, deleted
from tests.e2e.harness import Berth, pool
from tests.support.cluster import ApiError, Cluster, Object, wait

POOL, NAMESPACE = "seat", "line"
UNITS = 6
RESOURCE = f"berth.dev/{POOL}"

_SMALL, _LARGE, _GANG = "small", "large", "gang"
_SIZES = (2, 3, 4)
_PACE = 0.5


def line_pool() -> Object:
    """Seats wait for long, so that none is given back where a machine is slow."""
    line = {"holdAfterSeconds": 0, "whileHeldSeconds": 600}
    return pool(POOL, UNITS, scope="Cluster", line=line, gangSeconds=600)


class Line(Background):
    """More small pods than there are units, one large ask, and one gang of each size wait or run. Of those
    that run one goes at a time, and a small one takes its place. `served` are the large asks and the gangs of
    which all pods were seen to be bound."""

    def __init__(self, cluster: Cluster, berth: Berth, dice: random.Random) -> None:
        super().__init__()
        self._cluster, self._berth, self._dice = cluster, berth, dice
        self._seen = cluster.watch_pods(RESOURCE)
        self._made = 0
        self._groups: dict[str, list[str]] = {}
        """The pods of each large ask and gang, by its name."""

    def __enter__(self) -> Self:
        self._seen.__enter__()
        for _ in range(UNITS):
            self._small()
        wait(lambda: len(self._bound()) == UNITS, PATIENCE, f"{UNITS} small pods hold all units of {POOL}")
        self._group(_LARGE, [UNITS - 1], {})
        for size in _SIZES:
            noted = {GANG: f"{_GANG}-{size}", GANG_SIZE: str(size)}
            self._group(f"{_GANG}-{size}", [1] * size, noted)
        for _ in range(UNITS // 2):
            self._small()
        wait(self._is_held, PATIENCE, "units are held for the first in line", every=0.2)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error[0] is not None:
            self._seen.__exit__(*error)

    @property
    def served(self) -> int:
        return sum(not self._unseen(names) for names in self._groups.values())

    def check(self) -> None:
        """Once all is mended, and the small pods end one by one: all large asks and gangs are bound, and more
        units were held at no moment than there are."""
        self._pods_are_held_for()
        wait(self._all_served, PATIENCE, f"all are served of {sorted(self._groups)}", every=_PACE)
        self._seen.__exit__(None, None, None)
        most = self._most_held()
        assert most <= UNITS or self._seen.gaps, f"{most} of {UNITS} units of {POOL} were held at some moment"
        for name in self._names():
            deleted(self._cluster, name, NAMESPACE)

    def _pods_are_held_for(self) -> None:
        there = {pod["metadata"]["uid"] for pod in self._cluster.list_pods(NAMESPACE)}
        view = self._berth.ledger()
        holds = {hold.uid for hold in view.line_holds.values()}
        seats = {claim.uid for claim in view.claims() if claim.is_seat}
        assert holds <= there, f"units are held for pods that are gone: {holds - there}"
        assert seats <= there, f"seats wait for pods that are gone: {seats - there}"

    def _run(self) -> None:
        while not self._stop.wait(_PACE):
            self._try(self._goes_on)

    def _goes_on(self) -> None:
        """One pod that runs goes, and a small one comes. A gang goes when all of it was bound."""
        if may_go := self._may_go():
            deleted(self._cluster, self._dice.choice(may_go), NAMESPACE)
            self._small()

    def _all_served(self) -> bool:
        """Let one more pod go, and reconcile; whether all large asks and gangs were bound by then."""
        self._try(self._frees_one)
        self._try(self._berth.reconcile)
        return self.served == len(self._groups)

    def _frees_one(self) -> None:
        for name in self._may_go()[:1]:
            deleted(self._cluster, name, NAMESPACE)

    def _may_go(self) -> list[str]:
        whole = {name for names in self._groups.values() if not self._unseen(names) for name in names}
        return [name for name in self._bound() if name.startswith(_SMALL) or name in whole]

    def _small(self) -> None:
        self._made += 1
        notes = {RUNS_FOR: "10m"} if self._dice.random() < 0.5 else {}
        self._cluster.create_pod(f"{_SMALL}-{self._made:04}", {RESOURCE: 1}, NAMESPACE, annotations=notes)

    def _group(self, name: str, units: Iterable[int], notes: dict[str, str]) -> None:
        self._groups[name] = []
        for number, count in enumerate(units):
            pod = f"{name}-{number}"
            self._cluster.create_pod(pod, {RESOURCE: count}, NAMESPACE, annotations=notes)
            self._groups[name].append(pod)

    def _is_held(self) -> bool:
        self._try(self._berth.reconcile)
        return bool(self._berth.ledger().line_holds)

    def _unseen(self, names: Iterable[str]) -> set[str]:
        return {*names} - self._seen.bound_at.keys()

    def _bound(self) -> list[str]:
        return sorted(self._cluster.bound(NAMESPACE))

    def _names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._cluster.list_pods(NAMESPACE)]

    def _most_held(self) -> int:
        """The most units that were held on all nodes together."""
        held: dict[str, int] = {}
        most = 0
        for moment in self._seen.history:
            held[moment.node] = moment.held
            most = max(most, sum(held.values()))
        return most

    def _try(self, call: Callable[[], object]) -> None:
        """An API server that is away delays it, and no more."""
        try:
            call()
        except urllib3.exceptions.HTTPError:
            return
        except ApiError as error:
            if error.status < 500 and error.status != TOO_MANY:
                raise
