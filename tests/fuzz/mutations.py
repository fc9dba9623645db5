"""Bytes that are almost what is expected: a document with parts replaced, cut, doubled or turned over.
Hypothesis chooses and shrinks; nothing here is random by itself."""

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

_DEEP: Any = []
for _ in range(400):
    _DEEP = [_DEEP]
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 1e308, 0.5),
    *(
        "",
        " ",
        "0",
        "-1",
        "1e3",
        "1e999999999",
        "9" * 5000,
        "1k",
        "1Ki",
        "0.5",
        "500m",
        "NaN",
        "*",
        "#",
        "@",
        "<",
    ),
    *(
        "a" * 70_000,
        "\x00",
        "\u2028",
        "🐖" * 300,
        "a,b",
        "," * 5000,
        "../..",
        "@team-a",
        "!ns/claim",
        "n1#3",
        "<b>",
    ),
    *("0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.9-10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "1" * 300),
    *(
        [],
        {},
        [None],
        [[]],
        {"": None},
        [{}] * 300,
        _DEEP,
        {"a": _DEEP},
        ["x"] * 2000,
        {"matchLabels": {"": ""}},
    ),
)
"""Values that stand in for others."""

_small = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def mutated(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes made of one or two of these."""
    seed = st.sampled_from(seeds)
    return st.one_of(
        _with_values(seed), _with_values(seed), _with_bytes(seed), _spliced(seed), st.binary(max_size=300)
    )


@st.composite
def _with_values(draw: st.DrawFn, seeds: st.SearchStrategy[bytes]) -> bytes:
    """JSON in which some values, or keys, are others; any other text as it is."""
    try:
        document = json.loads(draw(seeds))
    except ValueError:
        return draw(_with_bytes(seeds))
    for _ in range(draw(st.integers(1, 3))):
        paths = list(_paths(document))
        document = _changed(draw, copy.deepcopy(document), paths[draw(st.integers(0, len(paths) - 1))])
    return json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


def _paths(document: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    if isinstance(document, dict | list) and len(at) < 30:
        keys = document if isinstance(document, dict) else range(min(len(document), 20))
        for key in keys:
            yield from _paths(document[key], (*at, key))


def _changed(draw: st.DrawFn, document: Any, path: Path) -> Any:
    value = draw(st.sampled_from(NASTY) | _small)
    if not path:
        return value
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    how = draw(st.integers(0, 3))
    if isinstance(holder, dict) and how == 0:
        del holder[path[-1]]
    elif isinstance(holder, dict) and how == 1:
        holder[draw(st.text(max_size=300) | st.sampled_from([str(path[-1]).upper(), "x" * 300]))] = value
    elif isinstance(holder, list) and how == 0:
        holder *= draw(st.integers(0, 300))
    else:
        holder[path[-1]] = value
    return document


@st.composite
def _with_bytes(draw: st.DrawFn, seeds: st.SearchStrategy[bytes]) -> bytes:
    found = bytearray(draw(seeds))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(found)))
        end = min(len(found), start + draw(st.integers(0, 40)))
        found[start:end] = draw(st.one_of(st.binary(max_size=8), st.just(bytes(found[start:end] * 50))))
    return bytes(found)


@st.composite
def _spliced(draw: st.DrawFn, seeds: st.SearchStrategy[bytes]) -> bytes:
    one, other = draw(seeds), draw(seeds)
    return one[: draw(st.integers(0, len(one)))] + other[draw(st.integers(0, len(other))) :]
