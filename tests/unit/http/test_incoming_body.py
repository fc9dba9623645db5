"""What has come of a body: all of it, in order, in memory that grows with it."""

import resource
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.http.incoming_body import GROWS, IncomingBody

MIB = 1024 * 1024
BYTES = bytes(range(256)) * 4096 * 3

pytestmark = pytest.mark.skipif(not GROWS, reason="memory can't grow here")


def fill(body: IncomingBody, part: bytes, most: int | None = None) -> None:
    room = body.room(len(part) if most is None else most)
    room[: len(part)] = part
    del room
    body.fill(len(part))


@given(
    st.integers(0, MIB),
    st.lists(st.integers(0, len(BYTES)), max_size=12).map(sorted),
    st.sampled_from([0, 1, MIB]),
)
def test_whatever_comes_stays_in_order(added: int, cuts: list[int], more: int) -> None:
    """Part by part, with room for more than comes, or none was read at all."""
    body = IncomingBody()
    body.add(BYTES[: added // 2])
    body.add(BYTES[added // 2 : added])
    for start, stop in pairwise([added, *(cut for cut in cuts if cut > added), len(BYTES)]):
        body.room(1)
        fill(body, BYTES[start:stop], stop - start + more)
    assert body.whole() == BYTES


def test_what_has_come_is_there_while_anybody_looks_at_it() -> None:
    body = IncomingBody()
    fill(body, BYTES)
    view = memoryview(body.whole())[-5:]
    del body
    assert view == BYTES[-5:]


def test_memory_is_taken_for_what_has_come_and_not_for_what_may_come() -> None:
    """Where the system has large pages, a byte can take one."""
    bodies = [IncomingBody() for _ in range(300)]
    before = resident()
    for body in bodies:
        fill(body, b"x", 128 * 1024)
    assert resident() - before < 20 * MIB
    fill(bodies[0], BYTES * 2)
    fill(bodies[0], BYTES[: 2 * MIB])
    assert resident() - before < 20 * MIB + 8 * MIB + 2 * MIB


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
