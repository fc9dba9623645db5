"""The licences of one feature as a licence server has them: how many there are, and who has some."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

LARGEST = 64 * 1024 * 1024
"""Bytes of a server's text that are read by a command: some half a million checkouts."""

LARGEST_OF_A_FUNCTION = 8 * 1024 * 1024
"""Bytes that a function reads, which has less memory: some 60,000 checkouts."""

Match = Literal["host", "user", "display"]
"""By which word of a checkout a pod of ours is known, which is the pod's name."""

_LONGEST_HOSTNAME = 63  # kubelet cuts a pod's name there to make its hostname


class Checkout(NamedTuple):
    """So many licences that somebody has; `display` is empty where the server names none.

    `or_host` is the host if the user's name has spaces, which no server marks.
    """

    user: str
    host: str
    display: str
    licences: int
    or_host: str = ""


class Feature(NamedTuple):
    """What all servers of a text say of one feature, summed.

    `in_use` is the servers' own number, `reserved` what their options keep for somebody, `queued` how many
    are waited for.
    """

    name: str
    issued: int = 0
    in_use: int = 0
    reserved: int = 0
    queued: int = 0
    checkouts: tuple[Checkout, ...] = ()

    def joined(self, other: "Feature") -> "Feature":
        """Return the sum of what two servers say."""
        return Feature(
            self.name,
            self.issued + other.issued,
            self.in_use + other.in_use,
            self.reserved + other.reserved,
            self.queued + other.queued,
            self.checkouts + other.checkouts,
        )


class Use(NamedTuple):
    """How a feature is used: by `pods` of ours by their claims, of which `unclaimed` are more than they have
    claims for, and by `others`; `idle` are claims of pods that have checked out nothing."""

    pods: int
    unclaimed: int
    others: int
    idle: tuple[str, ...] = ()

    @property
    def outside(self) -> int:
        """Return the units that no claim counts, and that no pod may get: Pool's `external`."""
        return self.unclaimed + self.others


def use_of(feature: Feature, claimed: Mapping[str, Sequence[int]], match: Match = "host") -> Use:
    """Return how the feature is used where pods of these names hold claims of so many units.

    A pod that has its claim, and its checkout not yet or already, counts once: by its claim. What it has
    checked out beyond that counts as outside use, and so does what the server says to be in use and no line
    of it explains. Outside use is never a difference between what is in use and what is claimed. Of pods with
    one name in several namespaces nobody knows whose a checkout is: it may be that of the smallest claim.
    """
    claims = _claims(claimed, match)
    ours, strangers = _by_holder(feature, claims, match)
    others = strangers.total()
    unexplained = max(0, feature.in_use - others - ours.total() - feature.reserved)
    return Use(
        pods=sum(map(sum, claims.values())),
        unclaimed=sum(max(0, units - min(claims[who])) for who, units in ours.items()),
        others=others + feature.reserved + unexplained,
        idle=tuple(sorted(name for name in claimed if not ours[known_as(name, match)])),
    )


def holders_of(
    feature: Feature, claimed: Mapping[str, Sequence[int]], match: Match = "host"
) -> tuple[dict[str, int], dict[str, int]]:
    """Return who has licences that no claim counts, and how many: pods that have more than their claims, and
    others, by the word that `match` says."""
    claims = _claims(claimed, match)
    ours, strangers = _by_holder(feature, claims, match)
    beyond = {who: units - min(claims[who]) for who, units in ours.items()}
    return {who: units for who, units in beyond.items() if units > 0}, dict(strangers)


def _claims(claimed: Mapping[str, Sequence[int]], match: Match) -> dict[str, list[int]]:
    """Return the claims by the names of pods as checkouts have them."""
    claims: dict[str, list[int]] = {}
    for name, units in claimed.items():
        claims.setdefault(known_as(name, match), []).extend(units)
    return claims


def _by_holder(
    feature: Feature, claims: Mapping[str, Sequence[int]], match: Match
) -> tuple[Counter[str], Counter[str]]:
    """Return the licences of pods that hold claims, and those of others, by their names."""
    ours, others = Counter[str](), Counter[str]()
    for checkout in _lines(feature):
        names = _names(checkout, match)
        who = next((name for name in names if name in claims), None)
        if who is None:
            others[names[0]] += checkout.licences
        else:
            ours[who] += checkout.licences
    return ours, others


def _lines(feature: Feature) -> Sequence[Checkout]:
    """Return the checkouts; where they are more than are in use, one of each user and host: their processes
    may share a licence, and no server says which do."""
    lines = feature.checkouts
    if sum(line.licences for line in lines) + feature.reserved <= feature.in_use:
        return lines
    most: dict[tuple[str, str], Checkout] = {}
    for line in lines:
        before = most.setdefault((line.user, line.host), line)
        if line.licences > before.licences:
            most[line.user, line.host] = line
    return [*most.values()]


def _names(checkout: Checkout, match: Match) -> tuple[str, ...]:
    """Return the names of pods of which this may be a checkout."""
    if match == "host":
        return checkout.host.lower(), checkout.or_host.lower()
    return (checkout.user if match == "user" else checkout.display,)


def known_as(pod: str, match: Match) -> str:
    """Return the pod's name as checkouts have it: its hostname is what kubelet makes of the name."""
    return pod[:_LONGEST_HOSTNAME].rstrip("-.").lower() if match == "host" else pod
