"""Whether the rest of a pod's gang could be served as well, as far as the ledger's View knows.
It refuses only what can't be: whether all find room side by side, bind's one commit decides."""

from collections.abc import Hashable, Iterator, Mapping

from berth.api.gang import Gang, gang_name, gang_or_none
from berth.kube.types import Pod
from berth.ledger import refusals
from berth.ledger.gang_note import BELIEVED_SECONDS, GangMember, GangNote
from berth.ledger.view import Shares, View


def gang_obstacle(pod: Pod, view: View, shares: Shares, now: float) -> tuple[str, str] | None:
    """Return the pool that it is about, and why the pod's gang can't be served whole; None: it may be.

    It goes by the pods that bind saw last, so a pod that bind has not seen yet, and one that has units or a
    seat, is let through."""
    gang = gang_or_none(pod)  # what is no gang is refused by its demand
    if gang is None:
        return None
    note, uid = view.gangs.get(gang.label), pod.metadata.uid
    if note is None or view.keys_of(uid):
        return None
    if note.rests(now) and len(view.gang(gang.label)) < gang.size - 1:
        return min(shares.free, default=""), refusals.gang_rests(gang.name)
    if uid not in note.members or abs(now - note.at) >= BELIEVED_SECONDS:
        return None
    pool, text = _lack(gang, note, view, shares) or ("", "")
    return (pool or min(shares.free, default=""), text) if text else None


def gang_kind(pod: Pod, view: View) -> Hashable:
    """Return a value that is equal for pods whose gangs are served, or not, alike."""
    name = gang_name(pod)
    if not name:
        return None
    note = view.gangs.get(f"{pod.namespace}/{name}")
    return name, note is not None and pod.metadata.uid in note.members


def _lack(gang: Gang, note: GangNote, view: View, shares: Shares) -> tuple[str, str] | None:
    if note.absent:
        return "", refusals.gang_absent(gang.name, gang.size - note.absent, gang.size)
    first = [*note.members.items()][: note.together]
    waiting = [member for uid, member in first if not view.keys_of(uid)]
    return next(_short(gang, waiting, shares), None)


def _short(gang: Gang, seats: list[GangMember], shares: Shares) -> Iterator[tuple[str, str]]:
    """Yield the pools of which these pods ask for more than is free in all domains together."""
    for pool, asked in _asked(seats).items():
        if pool in shares.free:
            free = [units for units, _ in shares.free[pool].values()]
            # Each of them takes what it asks for of one domain.
            most = sum(units // min(asked) for units in free)
            if sum(free) < sum(asked) or most < len(asked):
                yield pool, refusals.gang_short(pool, gang.name, sum(free), sum(asked), len(asked))


def _asked(seats: list[GangMember]) -> Mapping[str, list[int]]:
    asked: dict[str, list[int]] = {}
    for member in seats:
        for pool, units in member.units.items():
            if units:
                asked.setdefault(pool, []).append(units)
    return asked
