"""Whether the rest of a pod's gang could be served as well, as far as the ledger's View knows.
It refuses only what can't be: whether all find room side by side, bind's one commit decides."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from berth.api.gang import Gang, gang_or_none
from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.free import Free, Share
from berth.ledger.gang_note import BELIEVED_SECONDS, STUCK_SECONDS, GangMember, GangNote
from berth.ledger.keys import namespace_quota
from berth.ledger.view import Shares, View
from berth.scheduling.demand import Demand, Terms


def gang_obstacle(pod: Pod, view: View, shares: Shares, now: float) -> tuple[str, str] | None:
    """Return the pool that it is about, and why the pod's gang can't be served whole; None: it may be.

    It goes by the pods that bind saw last, so a pod that bind has not seen yet, one that says another size
    since, and one that has units or a seat, is let through. Where there were more pods than a note takes, it
    goes for all of them."""
    gang = gang_or_none(pod)  # what is no gang is refused by its demand
    if gang is None:
        return None
    note, uid = view.gangs.get(gang.label), pod.metadata.uid
    if note is None or view.keys_of(uid):
        return None
    gang = gang._replace(size=gang.size or note.size)
    is_known = note.knows(uid, gang.size)
    if note.rests(now) and (len(view.gang(gang.label)) < gang.size - 1 or (is_known and note.together > 1)):
        return min(shares.free, default=""), refusals.gang_rests(gang.name)
    if abs(now - note.at) >= BELIEVED_SECONDS or not is_known:
        return None
    if note.lacks_pods:
        absent = refusals.gang_absent(gang.name, gang.size - note.absent, gang.size)
        pool, text = "", note.refusal or absent
    else:
        # This pod is one of those that are served together, whoever is before it in line.
        mine = [(uid, note.members[uid])] if uid in note.members else []
        others = ((other, member) for other, member in note.members.items() if other != uid)
        first = [*mine, *islice(others, note.together - len(mine))]
        waiting = [member for other, member in first if not view.keys_of(other)]
        stuck = "", note.why if _is_stuck(pod, note, view, now) else ""
        pool, text = next(_short(gang, waiting, _Room(pod.namespace, view, shares, now)), stuck)
    return (pool or min(shares.free, default=""), text) if text else None


def seated_on(pod: Pod, demand: Demand, terms: Terms, nodes: Iterable[str], view: View) -> set[str]:
    """Return those of these nodes on which the pod's seat is what it asks for: its bind takes that, whatever
    is free, also where the pool is suspended or has fewer units by now."""
    seat = next((claim for claim in view.claims_of(pod.metadata.uid) if claim.is_seat), None)
    if seat is None or any(view.pools[pool].resource in view.held for pool in demand.units):
        return set()
    wanted = replace(seat, holdings=terms.holdings(pod, seat.node, demand))
    if not seat.is_for(wanted, view.pools):
        return set()
    places = {pool: terms.place(pool, seat.node) for pool in demand.units}
    return {node for node in nodes if all(terms.place(pool, node) == place for pool, place in places.items())}


def free_for(namespace: str, members: Iterable[GangMember], view: View, now: float) -> dict[str, int]:
    """Return how many units are free, or kept for somebody, in the pools of these pods, and of the limits of
    their namespace; of a pool of which nothing new is given none."""
    free: dict[str, int] = {}
    quota = namespace_quota(namespace)
    for name in sorted({name for member in members for name in member.units} & view.pools.keys()):
        pool, domains = view.pools[name], view.free.get(name, Free())
        kept = 0 if pool.spec.sticky is None else view.kept(name, now)
        is_shut = pool.spec.suspended is True or pool.resource in view.held
        free[name] = 0 if is_shut else sum(units for units, _ in domains.values()) + kept
        if (limit := pool.limit(namespace)) is not None:
            free[f"{name}/{quota}"] = view.quotas.get(name, Free()).get(quota, (limit, limit))[0]
    return free


def _is_stuck(pod: Pod, note: GangNote, view: View, now: float) -> bool:
    """Whether there is no more for the gang than a moment ago, when it found no room in that."""
    if not note.why or abs(now - note.at) >= STUCK_SECONDS:
        return False
    free = free_for(pod.namespace, note.members.values(), view, now)
    return free.keys() == note.free.keys() and all(free[what] <= note.free[what] for what in free)


def gang_kind(pod: Pod, view: View) -> Hashable:
    """Return a value that is equal for pods whose gangs are served, or not, alike."""
    gang = gang_or_none(pod)
    if gang is None:
        return None
    note, uid = view.gangs.get(gang.label, GangNote()), pod.metadata.uid
    is_first = uid in islice(note.members, note.together)
    return gang, is_first, note.knows(uid, gang.size or note.size)


class _Room(NamedTuple):
    """What there is for a gang of this namespace at most, as one of its pods sees it."""

    namespace: str
    view: View
    shares: Shares
    now: float

    def free(self, pool: str, asked: list[int]) -> tuple[int, int]:
        """Return how many units are free in all domains, and for how many pods that ask for so many each
        takes what it asks for of one domain."""
        free = [units for units, _ in self.shares.free[pool].values()]
        most = sum(units // min(asked) for units in free)
        if self.view.pools[pool].spec.sticky is None:
            return sum(free), most
        # What is kept for the others this one does not see as free.
        return sum(free) + self.view.kept(pool, self.now), len(asked)

    def of_limit(self, pool: str) -> Share | None:
        """Return the share of the namespace's limit; None where it has none, or what is kept for the pods is
        counted by it already."""
        limit = self.view.pools[pool].limit(self.namespace)
        if limit is None or self.view.pools[pool].spec.sticky is not None:
            return None
        return self.shares.quotas[pool].get(namespace_quota(self.namespace), (limit, limit))


def _short(gang: Gang, seats: list[GangMember], room: _Room) -> Iterator[tuple[str, str]]:
    """Yield the pools of which these pods ask for more than there is for them, wherever they go."""
    for pool, asked in _asked(seats).items():
        if pool in room.shares.free:
            free, most = room.free(pool, asked)
            if free < sum(asked) or most < len(asked):
                yield pool, refusals.gang_short(pool, gang.name, free, sum(asked), len(asked))
            share = room.of_limit(pool)
            if share is not None and share[0] < sum(asked):
                text = refusals.limited(pool, room.namespace, share, sum(asked))
                yield pool, refusals.gang_limited(text, gang.name, len(asked))


def _asked(seats: list[GangMember]) -> Mapping[str, list[int]]:
    asked: dict[str, list[int]] = {}
    for member in seats:
        for pool, units in member.units.items():
            if units:
                asked.setdefault(pool, []).append(units)
    return asked
