"""The named units of one domain: names, and addresses as ranges that are never written out one by one.
It does not know who holds what, and not how many units fit into one document.

What stands for what, where users list units:
- A name holds letters, digits, `.` `-` `_` `:`, at most 63 of them: `k80-0`, a MAC, a PCI address.
- What reads as an address is that address, however it is spelled: `FD00:0::5` and `fd00::5` are one unit.
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
"""As so many units a longer list counts: Kubernetes' quantities and the ledger's counts are such numbers."""

_LISTS = 16_384  # domains' lists that are kept in mind, as they were read

_NAME = re.compile(r"[A-Za-z0-9._:-]+")
_LONGEST = 63
_ALMOST_IPV4 = re.compile(r"[0-9-]+(\.[0-9-]*){3,}")


class Units(msgspec.Struct, frozen=True, dict=True):
    """Names in the order they were given, then ranges: ascending, apart from each other, none adjacent."""

    names: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> "Units":
        """Reads what users write. Raises ValueError with a text for a person that names the entry."""
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
        return cls(tuple(names), addresses.joined(span for span, _ in spans))

    @classmethod
    def of(cls, canonical: Iterable[str]) -> "Units":
        """Reads what `entries` wrote, without a check."""
        return _of(tuple(canonical))

    def entries(self) -> tuple[str, ...]:
        """The one way to write these units, for a document."""
        return (*self.names, *map(addresses.written, self.spans))

    @cached_property
    def size(self) -> int:
        return len(self.names) + sum(last - first + 1 for first, last in self.spans)

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.names)

    def __contains__(self, unit: str) -> bool:
        place = addresses.place(unit)
        if place is None:
            return unit in self._members
        found = bisect_right(self.spans, (place, END)) - 1
        return found >= 0 and place <= self.spans[found][1]

    def meets(self, other: "Units") -> bool:
        """Whether they have any in common."""
        return bool(addresses.shared(self.spans, other.spans)) or not self._members.isdisjoint(other.names)

    def without(self, other: "Units") -> "Units":
        names = tuple(name for name in self.names if name not in other._members)
        return Units(names, addresses.shared(self.spans, addresses.gaps(other.spans)))

    def shared(self, other: "Units") -> "Units":
        names = tuple(name for name in self.names if name in other._members)
        return Units(names, addresses.shared(self.spans, other.spans))

    def joined(self, other: "Units") -> "Units":
        names = tuple(dict.fromkeys(self.names + other.names))
        return Units(names, addresses.joined(self.spans + other.spans))

    def take(self, count: int) -> tuple["Units", "Units"]:
        """The first `count` of them, and the rest."""
        count = max(count, 0)
        cut = addresses.cut(self.spans, max(count - len(self.names), 0))
        head = Units(self.names[:count], addresses.shared(self.spans, ((0, cut - 1),)))
        return head, Units(self.names[count:], addresses.shared(self.spans, ((cut, END),)))

    def free(self, count: int, held: Collection[str], first: Iterable[str] = ()) -> tuple[str, ...]:
        """The first `count` units that are not held, or as many as there are; those of `first` before others.

        Costs as much as `count`, `held` and `first` are long, however many units there are.
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
        found = chain(preferred, free_names, map(addresses.spelled, free_places))
        return tuple(islice(_once(found), max(count, 0)))


def normal(unit: str) -> str:
    """The one spelling of a unit; a text that is no address stays as it is."""
    place = addresses.place(unit)
    return unit if place is None else addresses.spelled(place)


@lru_cache(maxsize=_LISTS)
def _of(canonical: tuple[str, ...]) -> Units:
    names = []
    spans = []
    for entry in canonical:
        span = addresses.span_of(entry)
        if span is None:
            names.append(entry)
        else:
            spans.append(span)
    return Units(tuple(names), tuple(spans))


def _once(units: Iterable[str]) -> Iterator[str]:
    seen = set()
    for unit in units:
        if unit not in seen:
            seen.add(unit)
            yield unit


def _listed(entry: str) -> Span | None:
    """The range that an entry of a user's list stands for; None: it is a name."""
    span = _hosts(entry) if "/" in entry else addresses.span_of(entry)
    if span is None:
        _check_name(entry)
    elif MAPPED[0] <= span[0] <= MAPPED[1]:
        raise ValueError(f"{entry} stands for IPv4 addresses: write them as such")
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
    found = ip_interface(entry)
    if found.ip != found.network.network_address:
        raise ValueError(f"{entry} has host bits set: write {found.network}")
    return found.network


def _check_name(entry: str) -> None:
    if not entry:
        raise ValueError("a unit's name is empty")
    if not _NAME.fullmatch(entry):
        raise ValueError(f"{_shown(entry)} is no unit's name: write letters, digits and . - _ :")
    _check_no_typo(entry)
    if len(entry) > _LONGEST:
        raise ValueError(f"{_shown(entry)} is too long for a unit's name: {_LONGEST} characters at most")


def _check_no_typo(entry: str) -> None:
    """A mistyped address would pass as a name, and a pod would get it as its address."""
    ends = entry.partition("-")[::2]
    if all(addresses.place(end) is not None for end in ends):
        raise ValueError(f"{entry} is no range: its ends are of one family, the lower first")
    if _ALMOST_IPV4.fullmatch(entry) or "::" in entry:
        raise ValueError(f"{_shown(entry)} is neither an address nor a range such as 10.0.3.1-10.0.3.5")


def _shown(entry: str) -> str:
    """An entry that may hold anything, fit for one line."""
    return repr(entry if len(entry) <= _LONGEST else f"{entry[:_LONGEST]}…")


def _check_apart(spans: list[tuple[Span, str]]) -> None:
    for (one, entry), (other, next_entry) in pairwise(sorted(spans)):
        if one == other and entry == next_entry:
            raise ValueError(f"{entry} is listed twice")
        if other[0] <= one[1]:
            twice = addresses.spelled(other[0])
            raise ValueError(f"{twice} is listed twice: {entry} and {next_entry} overlap")
