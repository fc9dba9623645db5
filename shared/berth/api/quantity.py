"""Kubernetes' resource quantities as whole numbers of units.
It does not round: what is not a whole number is an error, because either way of rounding would be wrong."""

import re
from fractions import Fraction
from functools import lru_cache

LARGEST = 2**63 - 1  # apimachinery's own limit: an int64

_SYNTAX = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
)
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_LONGEST = 64  # characters: no real quantity is longer, and huge numbers take long to parse


@lru_cache(maxsize=1024, typed=True)  # 1 is a quantity, and True is none
def units(quantity: str | int | float) -> int:
    """Return the whole number for which a quantity such as 3, "1k", "2Ki" or "1e3" stands.

    Raises ValueError with a text to put behind the quantity: `is not a whole number of units`.
    Source: apimachinery, pkg/api/resource/quantity.go (the syntax is in its package comment).
    """
    text = str(quantity)
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError("is not a quantity")
    number, suffix = match["number"], match["suffix"] or ""
    amount = Fraction(number)
    value = amount * _factor(suffix) if amount else amount
    if value.denominator != 1:
        raise ValueError("is not a whole number of units")
    if value < 0:
        raise ValueError("is negative")
    if value > LARGEST:
        raise ValueError("is too large")
    return value.numerator


def _factor(suffix: str) -> Fraction:
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _LONGEST:
        raise ValueError("is too large" if exponent > 0 else "is not a whole number of units")
    return Fraction(10) ** exponent
