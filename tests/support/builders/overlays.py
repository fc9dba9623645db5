"""Overlays in miniature: so that a few names show what thousands do."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from berth.ledger import overlay

LIMITS = st.tuples(st.integers(0, 4), st.integers(0, 3))
"""How many changes lie over at most, and how often names are looked up until all is made one."""


@contextmanager
def limited(limits: tuple[int, int]) -> Iterator[None]:
    """Let overlays have these limits, however few names they have."""
    most, passes = limits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlay, "MOST", most)
        patch.setattr(overlay, "SHARE", 1)
        patch.setattr(overlay, "PASSES", passes)
        yield
