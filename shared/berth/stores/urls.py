"""The options of a store's URL: NAME=VALUE, joined by &, none of them twice.
What a value means is the store's own matter; `wrong` makes the store's error of a text."""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qsl

from berth.errors import SettingsError

Wrong = Callable[[str], SettingsError]

MOST_SECONDS = 3
"""The most for one answer of a store: kube-scheduler waits for 5, and must learn that a store is down."""


def options(query: str, known: Sequence[str], wrong: Wrong) -> dict[str, str]:
    """Return the options. Raises SettingsError for one that is unknown, is given twice or can't be read."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise wrong("its options can't be read: they are NAME=VALUE, joined by &") from None
    for name in (name for name, _ in pairs if name not in known):
        raise wrong(f"there is no option {name!r}; there are {', '.join(known[:-1])} and {known[-1]}")
    if len(pairs) > len(dict(pairs)):
        raise wrong("an option is given twice")
    return dict(pairs)


def number(option: str, text: str, least: int, most: int, wrong: Wrong) -> int:
    """Return the option's number. Raises SettingsError unless it is a whole one within the bounds."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise wrong(f"{option}={text} should be a whole number from {least} to {most}")
    return int(text)


def seconds(given: Mapping[str, str], wrong: Wrong) -> float:
    """Return the option `timeout`: how long a store may take to answer; a second if it is not given."""
    text, why = given.get("timeout", "1"), "seconds, since kube-scheduler waits for 5"
    return float(number("timeout", text, 1, MOST_SECONDS, lambda what: wrong(f"{what} {why}")))
