"""The named units of one domain: names, and addresses as ranges, which are never listed one by one.
It knows neither who holds what, nor how many units fit into one document.

What an entry of a user's list means:
- A name holds letters, digits, `.` `-` `_` `:`, at most 63 of them: `k80-0`, a MAC, a PCI address.
- A text that is an address is that address, however it is spelled: `FD00:0::5` and `fd00::5` are one unit.
- A CIDR stands for its host addresses. IPv4: without network and broadcast address, but /31 and /32 whole.
  IPv6: without the first, which is the subnet routers' anycast address, but /127 and /128 whole.
- Two addresses of one family around a `-` are a range, both ends included.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_interface
from itertools import chain, filterfalse, islice, pairwise

import msgspec

from berth.api import addresses
from berth.api.addresses import END, IPV6, MAPPED, Span

MOST = 2**31 - 1
"""The most units that a list counts as: numbers in Kubernetes and in the ledger end here."""

_LISTS = 16_384  # domains' lists whose parsed form is cached
_WRITTEN = 1024  # the same of users' lists, which each reconcile needs once a node

_NAME = re.compile(r"[A-Za-z0-9._:-]+")
_LONGEST = 63
_ALMOST_IPV4 = re.compile(r"[0-9-]+(\.[0-9-]*){3,}")


class Units(msgspec.Struct, frozen=True, dict=True):
    """Names in the order they were given, and ranges: ascending, without overlap, none adjacent."""

    names: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "Units":
        """Read what users write. Raises ValueError with a text for people that names the entry."""
        return _parsed(tuple(entries))

    @classmethod
    def of(cls, canonical: Iterable[str]) -> "Units":
        """Read what `entries` wrote, without a check."""
        return _of(tuple(canonical))

    def entries(self) -> tuple[str, ...]:
        """Return these units as a document has them, in their one spelling."""
        return (*self.names, *map(addresses.written, self.spans))

    @cached_property
    def size(self) -> int:
        """Return how many units these are."""
        return len(self.names) + sum(last - first + 1 for first, last in self.spans)

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.names)

    def __contains__(self, unit: str) -> bool:
        place = addresses.place(unit)
        if place is None:
            return unit in self._members
        below = bisect_right(self.spans, (place, END)) - 1
        return below >= 0 and place <= self.spans[below][1]

    def meets(self, other: "Units") -> bool:
        """Whether both have a unit in common."""
        return bool(addresses.shared(self.spans, other.spans)) or not self._members.isdisjoint(other.names)

    def without(self, other: "Units") -> "Units":
        """Return these units except those of `other`."""
        names = tuple(name for name in self.names if name not in other._members)
        return Units(names, addresses.shared(self.spans, addresses.gaps(other.spans)))

    def shared(self, other: "Units") -> "Units":
        """Return the units that both have."""
        names = tuple(name for name in self.names if name in other._members)
        return Units(names, addresses.shared(self.spans, other.spans))

    def joined(self, other: "Units") -> "Units":
        """Return the units of both."""
        names = tuple(dict.fromkeys(self.names + other.names))
        return Units(names, addresses.joined(self.spans + other.spans))

    def take(self, count: int) -> tuple["Units", "Units"]:
        """Return the first `count` of these units, and the rest."""
        count = max(count, 0)
        cut = addresses.cut(self.spans, max(count - len(self.names), 0))
        head = Units(self.names[:count], addresses.shared(self.spans, ((0, cut - 1),)))
        return head, Units(self.names[count:], addresses.shared(self.spans, ((cut, END),)))

    def free(self, count: int, held: Collection[str], first: Iterable[str] = ()) -> tuple[str, ...]:
        """Return `count` units that are not held, or as many as there are; those in `first` come first.

        Its cost grows with `count`, `held` and `first`, not with the number of units.
        """
        names = set(held)
        places = {*map(addresses.parsed, names)} - {None} if self.spans else set()
        preferred = (
            normal(unit)
            for unit in first
            if unit in self and unit not in names and addresses.place(unit) not in places
        )
        free_names = filterfalse(names.__contains__, self.names)
        free_places = filterfalse(places.__contains__, addresses.walk(self.spans))
        free = chain(preferred, free_names, map(addresses.spelled, free_places))
        return tuple(islice(_once(free), max(count, 0)))


def normal(unit: str) -> str:
    """Return a unit in its one spelling; a text that is no address stays as it is."""
    place = addresses.place(unit)
    return unit if place is None else addresses.spelled(place)


@lru_cache(maxsize=_WRITTEN)
def _parsed(entries: tuple[str, ...]) -> Units:
    names: dict[str, None] = {}
    spans: list[tuple[Span, str]] = []
    for entry in entries:
        span = _listed(entry)
        if span is not None:
            spans.append((span, entry))
        elif entry in names:
            raise ValueError(f"{entry} is listed twice")
        else:
            names[entry] = None
    _check_apart(spans)
    return Units(tuple(names), addresses.joined(span for span, _ in spans))


@lru_cache(maxsize=_LISTS)
def _of(canonical: tuple[str, ...]) -> Units:
    spans = [addresses.span_of(entry) for entry in canonical]
    names = tuple(entry for entry, span in zip(canonical, spans, strict=True) if span is None)
    return Units(names, tuple(span for span in spans if span is not None))


def _once(units: Iterable[str]) -> Iterator[str]:
    seen = set()
    for unit in units:
        if unit not in seen:
            seen.add(unit)
            yield unit


def _listed(entry: str) -> Span | None:
    """Return the range for which an entry of a user's list stands; None: the entry is a name."""
    span = _hosts(entry) if "/" in entry else addresses.span_of(entry)
    if span is None:
        _check_name(entry)
    elif MAPPED[0] <= span[0] <= MAPPED[1]:
        raise ValueError(f"{entry} stands for IPv4 addresses: write those")
    return span


def _hosts(entry: str) -> Span:
    network = _network(entry)
    first, last = int(network.network_address), int(network.broadcast_address)
    if isinstance(network, IPv6Network):
        return IPV6 + first + (network.prefixlen < 127), IPV6 + last
    inner = network.prefixlen < 31
    return first + inner, last - inner


def _network(entry: str) -> IPv4Network | IPv6Network:
    address, _, prefix = entry.partition("/")
    widest = 128 if ":" in address else 32
    if addresses.place(address) is None or not re.fullmatch("[0-9]{1,3}", prefix) or int(prefix) > widest:
        raise ValueError(f"{_shown(entry)} is not a CIDR such as 10.0.3.0/28, and no name holds a /")
    interface = ip_interface(entry)
    if interface.ip != interface.network.network_address:
        raise ValueError(f"{entry} has host bits set: write {interface.network}")
    return interface.network


def _check_name(entry: str) -> None:
    if not entry:
        raise ValueError("a unit's name is empty")
    if not _NAME.fullmatch(entry):
        raise ValueError(f"{_shown(entry)} is no unit's name: write letters, digits and . - _ :")
    _check_no_typo(entry)
    if len(entry) > _LONGEST:
        raise ValueError(f"{_shown(entry)} is too long for a unit's name: {_LONGEST} characters at most")


def _check_no_typo(entry: str) -> None:
    """Raise ValueError for a mistyped address: as a name it would be given to a pod as its address."""
    ends = entry.partition("-")[::2]
    if all(addresses.place(end) is not None for end in ends):
        raise ValueError(f"{entry} is no range: its ends are of one family, the lower first")
    if _ALMOST_IPV4.fullmatch(entry) or "::" in entry:
        raise ValueError(f"{_shown(entry)} is neither an address nor a range such as 10.0.3.1-10.0.3.5")


def _shown(entry: str) -> str:
    """Return an entry, which may hold anything, as a text for one line."""
    return repr(entry if len(entry) <= _LONGEST else f"{entry[:_LONGEST]}…")


def _check_apart(spans: list[tuple[Span, str]]) -> None:
    for (one, entry), (other, next_entry) in pairwise(sorted(spans)):
        if one == other and entry == next_entry:
            raise ValueError(f"{entry} is listed twice")
        if other[0] <= one[1]:
            twice = addresses.spelled(other[0])
            raise ValueError(f"{twice} is listed twice: {entry} and {next_entry} overlap")
