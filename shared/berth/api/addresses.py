"""Addresses as places on one line, and ranges of them as sets: never written out one by one.
It knows no names and no CIDRs; a set here is a tuple of spans, ascending, apart and none adjacent.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import chain, pairwise

Span = tuple[int, int]
"""The places of a range's first and last address."""

# IPv4 comes first, then IPv6, with a gap, so that no range spans both.
IPV6 = 2**33
END = IPV6 + 2**128
MAPPED = (IPV6 + (0xFFFF << 32), IPV6 + (0xFFFF << 32) + 2**32 - 1)
_LONGEST = 45


def place(text: str) -> int | None:
    """Where an address stands on the line; None: it is none.

    The quick look keeps names, and long texts that users wrote, out of what `parsed` keeps in mind.
    """
    like = text.count(".") == 3 or "::" in text or text.count(":") > 5
    return parsed(text) if like and len(text) <= _LONGEST else None


@lru_cache(maxsize=8192)
def parsed(text: str) -> int | None:
    """The same as `place`, quicker, for texts that the ledger wrote."""
    try:
        if ":" not in text:
            return int(IPv4Address(text))
        # A zone (fe80::1%eth0) is a node's own matter and would be lost in the number.
        return None if "%" in text else IPV6 + int(IPv6Address(text))
    except ValueError:
        return None


def spelled(place: int) -> str:
    if place < IPV6:
        return str(IPv4Address(place))
    if MAPPED[0] <= place <= MAPPED[1]:
        # Python spells these in one way up to 3.12 and in another since.
        return f"::ffff:{place >> 16 & 0xFFFF:x}:{place & 0xFFFF:x}"
    return str(IPv6Address(place - IPV6))


def span_of(entry: str) -> Span | None:
    """The range that a canonical entry writes; None: it is a name."""
    if "." not in entry and ":" not in entry:
        return None  # most names: a document may hold hundreds
    left, dash, right = entry.partition("-")
    first = place(left)
    last = place(right) if dash else first
    if first is None or last is None or first > last or (first < IPV6) != (last < IPV6):
        return None
    return first, last


def written(span: Span) -> str:
    first, last = map(spelled, span)
    return first if first == last else f"{first}-{last}"


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def shared(one: tuple[Span, ...], other: tuple[Span, ...]) -> tuple[Span, ...]:
    found = []
    here = there = 0
    while here < len(one) and there < len(other):
        first, last = max(one[here][0], other[there][0]), min(one[here][1], other[there][1])
        if first <= last:
            found.append((first, last))
        if one[here][1] < other[there][1]:
            here += 1
        else:
            there += 1
    return tuple(found)


def gaps(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """What of the line is in none of them."""
    bounds = ((-1, -1), *spans, (END, END))
    return tuple((one[1] + 1, other[0] - 1) for one, other in pairwise(bounds) if one[1] + 1 < other[0])


def cut(spans: tuple[Span, ...], count: int) -> int:
    """The place before which `count` of the addresses lie, or all if there are fewer."""
    for first, last in spans:
        if count <= last - first + 1:
            return first + count
        count -= last - first + 1
    return END


def walk(spans: tuple[Span, ...]) -> Iterator[int]:
    # A range object, not a list: a /64 is walked only as far as somebody asks.
    return chain.from_iterable(range(first, last + 1) for first, last in spans)
