"""The licences of one feature as a licence server has them: how many there are, and who has some."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

LARGEST = 64 * 1024 * 1024
"""Bytes of a server's text that are read: some half a million checkouts."""

Match = Literal["host", "user", "display"]
"""By which word of a checkout a pod of ours is known, which is the pod's name."""

_LONGEST_HOSTNAME = 63  # kubelet cuts a pod's name there to make its hostname


class Checkout(NamedTuple):
    """So many licences that somebody has; `display` is empty where the server names none."""

    user: str
    host: str
    display: str
    licences: int


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


def use_of(feature: Feature, claimed: Mapping[str, int], match: Match = "host") -> Use:
    """Return how the feature is used where these pods, by name, hold claims of so many units.

    A pod that has its claim, and its checkout not yet or already, counts once: by its claim. What it has
    checked out beyond that counts as outside use, and so does what the server says to be in use and no line
    of it explains. Outside use is never a difference between what is in use and what is claimed.
    """
    names = {_hostname(name): 0 for name in claimed} if match == "host" else dict.fromkeys(claimed, 0)
    ours, others = dict(names), 0
    for checkout in feature.checkouts:
        who = _short(checkout.host) if match == "host" else getattr(checkout, match)
        if who in ours:
            ours[who] += checkout.licences
        else:
            others += checkout.licences
    listed = others + sum(ours.values()) + feature.reserved
    unexplained = max(0, feature.in_use - listed)
    allowed = dict(names)
    for name, units in claimed.items():
        allowed[_hostname(name) if match == "host" else name] += units
    unclaimed = sum(max(0, units - allowed[who]) for who, units in ours.items())
    idle = tuple(sorted(name for name in claimed if not ours[_hostname(name) if match == "host" else name]))
    return Use(sum(claimed.values()), unclaimed, others + feature.reserved + unexplained, idle)


def _hostname(pod: str) -> str:
    """Return the hostname of the pod's containers, as kubelet makes it of the pod's name."""
    return pod[:_LONGEST_HOSTNAME].rstrip("-.").lower()


def _short(host: str) -> str:
    """Return a host's name without its domain."""
    return host.partition(".")[0].lower() if not host.replace(".", "").isdigit() else host
