"""The options of a store's URL: NAME=VALUE, joined by &, each at most once.
What a value means is the store's; `wrong` makes its error of a text."""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qsl

from berth.errors import SettingsError

Wrong = Callable[[str], SettingsError]

MOST_SECONDS = 3
"""For one answer of a store: a function has to tell kube-scheduler of one that is down, and that waits 5."""


def options(query: str, known: Sequence[str], wrong: Wrong) -> dict[str, str]:
    """Raises SettingsError for an option that is not `known`, stands in it twice or can't be read."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise wrong("its options can't be read: they are NAME=VALUE, joined by &") from None
    for name in (name for name, _ in pairs if name not in known):
        raise wrong(f"there is no option {name!r}; there are {', '.join(known[:-1])} and {known[-1]}")
    if len(pairs) > len(dict(pairs)):
        raise wrong("an option stands in it twice")
    return dict(pairs)


def number(option: str, text: str, least: int, most: int, wrong: Wrong) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise wrong(f"{option}={text} should be a whole number from {least} to {most}")
    return int(text)


def seconds(found: Mapping[str, str], wrong: Wrong) -> float:
    """The option `timeout`: how long a store may take to answer; a second if it is not among those found."""

    def too_long(what: str) -> SettingsError:
        return wrong(f"{what} seconds, since kube-scheduler waits for 5")

    return float(number("timeout", found.get("timeout", "1"), 1, MOST_SECONDS, too_long))
