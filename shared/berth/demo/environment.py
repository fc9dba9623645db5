"""Environment variables for the time of a block, for the demo and its functions.
They are the whole process's: two blocks must not overlap in different threads."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set these variables."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def without_settings() -> Iterator[None]:
    """Unset BERTH_*: what the demo is run with is not meant for its functions."""
    before = {name: value for name, value in os.environ.items() if name.startswith("BERTH_")}
    for name in before:
        del os.environ[name]
    try:
        yield
    finally:
        _restore(before)


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
