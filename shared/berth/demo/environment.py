"""Environment variables for the time of a block, for the demo and its functions.
They are the whole process's: two blocks must not overlap in different threads."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, and unset other BERTH_*: what the demo is run with is not for its functions."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("BERTH_"):
            del os.environ[name]
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
