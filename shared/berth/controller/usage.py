"""What was in use and waited for until a moment ago, found out from claims and pods, for the journal.
It counts what claims hold: a pod that is bound without one counts from when reconcile adopts it."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache

from berth.errors import BerthError
from berth.kube.types import Pod
from berth.ledger.journal import Ended
from berth.ledger.keys import PoolDomain, domain_of
from berth.ledger.ledger import Ledger
from berth.ledger.model import EndedUse
from berth.ledger.transitions import used_from
from berth.ledger.usage import PoolUse, Span, milliseconds
from berth.ledger.view import View
from berth.scheduling.demand import terms_of

SETTLED_SECONDS = 5.0
"""How long before a look the time ends that is counted by it.

By then each bind of before has ended, and each store's changes tell what was committed before: what began or
ended in the time that is counted is known, and counts in it to the millisecond."""

_GRAIN_SECONDS = 1.0
"""The API server tells in whole seconds when a pod was created: it waits from the end of that second, so that
a pod that is bound at once has not waited."""


def keep_journal(
    ledger: Ledger, pods: Collection[Pod], schedulers: Collection[str], looked: float, months: int
) -> list[str]:
    """Count use until shortly before `looked`, when the look began that listed these pods. Return the
    problems, a line each: nothing else of reconcile waits for the journal."""
    try:
        view = ledger.view()
        journal, until = ledger.journal(months), looked - SETTLED_SECONDS
        problems = journal.record(uses_of(view, pods, schedulers, looked), milliseconds(until))
        over = _over(notes_of(view), until)
        journal.note_releases(over)
        journal.drop_notes(over)
    except BerthError as error:
        return [f"the journal of use was not kept, and goes on from there at the next tick: {error}"]
    return problems


def uses_of(view: View, pods: Collection[Pod], schedulers: Collection[str], now: float) -> dict[str, PoolUse]:
    """Return by pool what is, and was, in use and waited for, as far as claims, notes and these pods tell,
    and what is held for the first in line now."""
    used: dict[str, list[Span]] = defaultdict(list)
    waited: dict[str, list[Span]] = defaultdict(list)
    running = {pod.metadata.uid for pod in pods if pod.spec.node_name}
    for claim in view.claims():
        if claim.state != "reserved" or claim.uid in running:
            start = used_from(claim)
            for holding in claim.holdings:
                if not holding.is_quota:
                    used[holding.pool].append(Span(claim.namespace, holding.count, start))
                    waited[holding.pool] += _waits(claim.namespace, holding.count, claim.made, start)
    for (pool, _), ended in notes_of(view).items():
        for note in ended:
            used[pool].append(Span(note.namespace, note.count, note.start, note.end))
            waited[pool] += _waits(note.namespace, note.count, note.made, note.start)
    for pool, span in _waiting(view, pods, schedulers):
        waited[pool].append(span)
    held = _held(view, now)
    return {
        pool: PoolUse(_capacity(view, pool), used.get(pool, ()), waited.get(pool, ()), held.get(pool, ()))
        for pool in view.pools
    }


def _held(view: View, now: float) -> dict[str, list[Span]]:
    """Return by pool the units that are free and held for the first in line, as if so many had been since it
    has its turn: between two looks nobody knows better."""
    held: dict[str, list[Span]] = defaultdict(list)
    for key, hold in view.line_holds.items():
        pool, name = domain_of(key)
        held[pool].append(Span("", view.held_at(pool, name, now), hold.since))
    return held


def _waits(namespace: str, count: int, made: float, start: float) -> tuple[Span, ...]:
    """Return for how long a pod waited before it was bound."""
    began = made + _GRAIN_SECONDS
    return (Span(namespace, count, began, start),) if made and began < start else ()


def _waiting(view: View, pods: Collection[Pod], schedulers: Collection[str]) -> Iterator[tuple[str, Span]]:
    """Yield what these pods wait for now, by pool. Users may write any number: a pod that asks for more than
    any domain has counts as one that asks for one unit more than that."""
    terms, most = terms_of(view), cache(lambda pool: _largest(view, pool) + 1)
    for pod in pods:
        if pod.waiting and pod.spec.scheduler_name in schedulers and (made := pod.made_at) is not None:
            for pool, count in terms.demand(pod).units.items():
                yield pool, Span(pod.namespace, min(count, most(pool)), made + _GRAIN_SECONDS)


def _largest(view: View, pool: str) -> int:
    """Return the largest capacity of the pool's domains; 0 where there is none."""
    return max((capacity for _, capacity in view.free.get(pool, {}).values()), default=0)


def notes_of(view: View) -> dict[PoolDomain, tuple[EndedUse, ...]]:
    """Return what the ledger noted of pods that have ended."""
    return {
        (pool, name): domain.ended
        for pool, domains in view.domains.items()
        for name, domain in domains.items()
        if domain.ended
    }


def _over(notes: Ended, until: float) -> Ended:
    """Return the notes of what ended until then: there is nothing more to count of it."""
    over = {which: tuple(note for note in ended if note.end <= until) for which, ended in notes.items()}
    return {which: ended for which, ended in over.items() if ended}


def _capacity(view: View, pool: str) -> int:
    return sum(capacity for _, capacity in view.free.get(pool, {}).values())
