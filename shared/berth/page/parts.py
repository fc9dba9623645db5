"""A long table in parts, each with a link to the one before and after it.
Pure. Rows may come and go between two parts: it keeps no state."""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from berth.errors import BadInputError

T = TypeVar("T")


class Part(NamedTuple, Generic[T]):
    """Rows of a table, which part they are, and the addresses of its neighbours (empty: there is none)."""

    rows: Sequence[T]
    number: int
    pages: int
    total: int
    before: str
    after: str


def part(rows: Sequence[T], query: Mapping[str, str], path: str, most: int) -> Part[T]:
    """Return the part that the query's `page` names. Raises BadInputError where that is no number."""
    given = query.get("page", "1")
    if not (given.isascii() and given.isdecimal()) or len(given) > len("1000000"):
        raise BadInputError(f"page is {given[:20]!r}: it should be a number, such as 2")
    pages = max(1, -(-len(rows) // most))
    number = min(max(1, int(given)), pages)

    def at(other: int) -> str:
        return f"{path}?{urlencode({**query, 'page': str(other)})}" if 1 <= other <= pages else ""

    return Part(
        rows[(number - 1) * most : number * most], number, pages, len(rows), at(number - 1), at(number + 1)
    )
