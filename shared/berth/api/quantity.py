"""Kubernetes' resource quantities as whole numbers of units.
Units are not rounded: what is not a whole number is an error, because either way of rounding would be wrong.
CPU and memory, which Berth does not give out, are rounded up."""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

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
    value = _amount(quantity)
    if value.denominator != 1:
        raise ValueError("is not a whole number of units")
    if value < 0:
        raise ValueError("is negative")
    if value > LARGEST:
        raise ValueError("is too large")
    return value.numerator


@lru_cache(maxsize=1024, typed=True)
def rounded_up(quantity: str | int | float, parts: int = 1) -> int:
    """Return the quantity in such parts of one (1000: thousandths), rounded up as Kubernetes does it for CPU
    and memory. Raises ValueError as `units` does."""
    value = _amount(quantity)
    if value < 0:
        raise ValueError("is negative")
    return ceil(value * parts)


def _amount(quantity: str | int | float) -> Fraction:
    text = str(quantity)
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError("is not a quantity")
    amount = Fraction(match["number"])
    return amount * _factor(match["suffix"] or "") if amount else amount


def _factor(suffix: str) -> Fraction:
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _LONGEST:
        raise ValueError("is too large" if exponent > 0 else "is not a whole number of units")
    return Fraction(10) ** exponent
