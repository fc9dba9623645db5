"""IP addresses as numbers on one line, and sets of them as ranges, never listed one by one.
It knows no units' names and no CIDRs. A set is a tuple of spans: ascending, without overlap, none adjacent.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import chain, pairwise

Span = tuple[int, int]
"""The numbers of a range's first and last address."""

# IPv4 comes first, then a gap, then IPv6: no range has addresses of both.
IPV6 = 2**33
END = IPV6 + 2**128
MAPPED = (IPV6 + (0xFFFF << 32), IPV6 + (0xFFFF << 32) + 2**32 - 1)
_LONGEST = 45


def place(text: str) -> int | None:
    """Return the number of an address; None: the text is no address.

    The quick check first keeps names, and long texts that users wrote, out of the cache of `parsed`.
    """
    similar = text.count(".") == 3 or "::" in text or text.count(":") > 5
    return parsed(text) if similar and len(text) <= _LONGEST else None


@lru_cache(maxsize=8192)
def parsed(text: str) -> int | None:
    """Return the number of an address as `place` does, faster, for texts that the ledger wrote."""
    try:
        if ":" not in text:
            return int(IPv4Address(text))
        # A zone (fe80::1%eth0) is a node's own matter and would be lost in the number.
        return None if "%" in text else IPV6 + int(IPv6Address(text))
    except ValueError:
        return None


def spelled(place: int) -> str:
    """Return the one text of the address with this number."""
    if place < IPV6:
        return str(IPv4Address(place))
    if MAPPED[0] <= place <= MAPPED[1]:
        # Python spells these in one way up to 3.12 and in another since.
        return f"::ffff:{place >> 16 & 0xFFFF:x}:{place & 0xFFFF:x}"
    return str(IPv6Address(place - IPV6))


def span_of(entry: str) -> Span | None:
    """Return the range for which a canonical entry stands; None: the entry is a name."""
    if "." not in entry and ":" not in entry:
        return None  # most names: a document may hold hundreds
    left, dash, right = entry.partition("-")
    first = place(left)
    last = place(right) if dash else first
    if first is None or last is None or first > last or (first < IPV6) != (last < IPV6):
        return None
    return first, last


def written(span: Span) -> str:
    """Return the canonical entry for a range."""
    first, last = map(spelled, span)
    return first if first == last else f"{first}-{last}"


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the set of all addresses in any of these spans."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def shared(one: tuple[Span, ...], other: tuple[Span, ...]) -> tuple[Span, ...]:
    """Return the set of the addresses in both sets."""
    both = []
    here = there = 0
    while here < len(one) and there < len(other):
        first, last = max(one[here][0], other[there][0]), min(one[here][1], other[there][1])
        if first <= last:
            both.append((first, last))
        if one[here][1] < other[there][1]:
            here += 1
        else:
            there += 1
    return tuple(both)


def gaps(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Return the numbers that are in none of these spans."""
    bounds = ((-1, -1), *spans, (END, END))
    return tuple((one[1] + 1, other[0] - 1) for one, other in pairwise(bounds) if one[1] + 1 < other[0])


def cut(spans: tuple[Span, ...], count: int) -> int:
    """Return the number below which `count` of the addresses lie, or all if there are fewer."""
    for first, last in spans:
        if count <= last - first + 1:
            return first + count
        count -= last - first + 1
    return END


def walk(spans: tuple[Span, ...]) -> Iterator[int]:
    """Yield the numbers of all addresses, one after the other: a /64 is never listed."""
    return chain.from_iterable(range(first, last + 1) for first, last in spans)
