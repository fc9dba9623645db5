"""What the ledger notes of a gang beside its pods' claims: why it could not be had, or where its seats are.
Who writes it knows which pods there are; it may be missing or be old, and then bind looks anew."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from berth.api.gang import name_of
from berth.ledger.model import Claim, Domain
from berth.stores.base import Version

BELIEVED_SECONDS = 300.0
"""How long a note is believed that a gang can't be had: then bind looks at its pods anew."""

STUCK_SECONDS = 30.0
"""How long a note is believed that a gang finds no room though enough is free, and no more came free."""

LONGEST_REST = 3600.0
"""Seconds that nothing is reserved for a gang whose seats were given back, at most."""


class GangMember(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that waited for its gang: its name, the units that it asks for, by pool, and which size of the
    gang it said (0: an earlier version of Berth did not note it)."""

    name: str
    units: Mapping[str, int]
    size: int = 0


class GangNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the last bind of one of a gang's pods saw, for filter and for the next bind.

    `members` are its pods that waited without a claim, by their UIDs, as they are in line, where they could
    not be had `at` that time (Unix seconds): the first of them `together`. `absent` of the gang's pods were
    not there. `more` pods waited than it has members. `refusal` is what all of them are told where it could
    not be had because of which pods there were. `seats` are the documents in which seats were reserved last,
    or waited then; `vain` times seats were given back, and nothing is reserved for it `rests_until` then.
    `why` it could not be had where enough seemed to be free: so many units (`free`) of its pools, and of its
    namespace's limits.
    """

    at: float = 0.0
    members: Mapping[str, GangMember] = {}
    together: int = 0
    absent: int = 0
    more: int = 0
    refusal: str = ""
    seats: tuple[str, ...] = ()
    vain: int = 0
    rests_until: float = 0.0
    why: str = ""
    free: Mapping[str, int] = {}

    def after(self, before: "GangNote") -> "GangNote":
        """Return what is known then: where seats were, and how long the gang rests, if that is no news."""
        if self.vain:
            return replace(self, seats=before.seats)
        return replace(self, seats=before.seats, vain=before.vain, rests_until=before.rests_until)

    def rests(self, now: float) -> bool:
        """Whether nothing is reserved for it yet. One that is to rest longer than any may was noted by a
        wrong clock, and must not wait for that."""
        return now < self.rests_until <= now + LONGEST_REST

    @property
    def lacks_pods(self) -> bool:
        """Whether it says that the gang could not be had because of which pods there were."""
        return bool(self.absent or self.refusal)

    @property
    def size(self) -> int:
        """Return the size that its members said of their gang; 0: none has said it."""
        return max((member.size for member in self.members.values()), default=0)

    def ages(self, now: float) -> bool:
        """Whether it says no more, or not for long, that the gang can't be had."""
        return not self.members or abs(now - self.at) >= BELIEVED_SECONDS / 2

    def knows(self, uid: str, size: int) -> bool:
        """Whether it is also about the pod with this UID, which says this size now."""
        member = self.members.get(uid)
        return self.more > 0 if member is None else member.size in (0, size)

    def is_as(self, other: "GangNote") -> bool:
        """Whether it says what the other says, at about the same time."""
        near = abs(self.at - other.at) < (STUCK_SECONDS if self.why else BELIEVED_SECONDS) / 2
        return near and replace(self, at=0.0) == replace(other, at=0.0)


class GangSeen(NamedTuple):
    """A gang as the ledger has it now: its note, the note's version, and the claims of its pods by UID."""

    label: str
    note: GangNote
    version: Mapping[str, Version | None]
    claims: Mapping[str, Claim]

    @property
    def name(self) -> str:
        return name_of(self.label)

    @property
    def reserved(self) -> set[str]:
        """Return the documents of its pods that wait for their Bindings."""
        reserved = (claim for claim in self.claims.values() if claim.state == "reserved")
        return {holding.key for claim in reserved for holding in claim.holdings}

    def moved_to(self, keys: Collection[str]) -> GangNote | None:
        """Return the note where a seat moves to these documents; None: it names all of them already."""
        seats = {*self.note.seats, *keys}
        return None if seats == {*self.note.seats} else replace(self.note, seats=tuple(sorted(seats)))


_decoder = msgspec.json.Decoder(GangNote)


def note_of(body: bytes | None) -> GangNote:
    """Return what the document says; nothing where there is none, or it can't be read: bind looks anew."""
    try:
        return GangNote() if body is None else _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return GangNote()


def encode_note(note: GangNote) -> bytes:
    return msgspec.json.encode(note)


def claims_now(
    labels: Collection[str], known: Iterable[Claim], fresh: Mapping[str, Domain]
) -> dict[str, Claim]:
    """Return the claims of pods of gangs with these labels by UID: those known, but for what these documents
    say of them."""
    there = {
        claim.uid: claim
        for domain in fresh.values()
        for claim in domain.claims.values()
        if claim.gang_label in labels
    }
    elsewhere = {
        claim.uid: claim for claim in known if all(holding.key not in fresh for holding in claim.holdings)
    }
    return {**elsewhere, **there}
