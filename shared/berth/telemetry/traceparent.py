"""The header `traceparent` (W3C Trace Context): which trace a call is a part of.
What is no such header is no part of any trace; nothing here raises."""

import re
from typing import NamedTuple

_HEADER = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_LONGEST = 512  # a later version may add to it


class TraceParent(NamedTuple):
    """The trace that a caller is in, and its span there; both in hexadecimal digits."""

    trace_id: str
    span_id: str
    flags: str

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def parsed(header: str | None) -> TraceParent | None:
    """Return what the header says; None where there is none, or a wrong one."""
    if not header or len(header) > _LONGEST:
        return None
    match = _HEADER.fullmatch(header.strip())
    if match is None or (match[1] == "00" and match[5]):
        return None
    return TraceParent(match[2], match[3], match[4])
