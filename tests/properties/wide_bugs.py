"""Bugs of the line and of waking, for tests to switch on, with what is then seen in
wide worlds. Each replaces a small part of the product while its block lasts; none is in the product."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest import mock

from berth.ledger import refusals
from berth.ledger.model import FIRST, Domain, LineHold
from berth.scheduling import assumed, fit
from berth.scheduling.assumed import AssumedPods
from tests.properties.wide_world import Kind

# The line


def bind_knows_nothing_of_what_is_held() -> Any:
    return mock.patch.object(Domain, "_held_in_line", return_value=0)


def a_hold_is_for_whoever_comes() -> Any:
    return mock.patch.object(LineHold, "bars", return_value=False)


# Waking


def a_refusal_varies() -> Any:
    lacking, numbers = refusals.lacking, count()

    def varied(*arguments: Any) -> str:
        return f"{lacking(*arguments)} (look {next(numbers)})"

    return mock.patch.object(refusals, "lacking", varied)


def filter_knows_nothing_of_what_is_held() -> Any:
    """And sends pods on to bind, which refuses them, again and again."""
    return mock.patch.object(fit, "rank_of", lambda pod, *_: FIRST._replace(uid=pod.metadata.uid))


@contextmanager
def pods_that_came_to_nothing_are_assumed_for_ever() -> Iterator[None]:
    with (
        mock.patch.object(AssumedPods, "forget"),
        mock.patch.multiple(assumed, ASSUMED_SECONDS=math.inf, IN_VAIN_SECONDS=math.inf),
    ):
        yield


LINE = Kind()
BUGS: list[tuple[Callable[[], Any], str, Kind]] = [
    (bind_knows_nothing_of_what_is_held, "promise 11: .* took of", LINE),
    (a_hold_is_for_whoever_comes, "promise 11: .* took of", LINE),
    (a_refusal_varies, "asked about pods too often", LINE),
    (filter_knows_nothing_of_what_is_held, "asked about pods too often", LINE),
    (pods_that_came_to_nothing_are_assumed_for_ever, "promise 11: units idle", Kind(trouble=True)),
]
