"""Quantities: Kubernetes' whole syntax, as whole numbers of units or a refusal that says why.

The cases follow apimachinery's quantity_test.go; where it rounds, Berth refuses.
"""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.quantity import LARGEST, rounded_up, units

FACTORS = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
    **{f"{letter}{sign}{power}": 10**power for letter in "eE" for sign in ("", "+") for power in range(19)},
}
FRACTIONS = {"n": 10**9, "u": 10**6, "m": 1000, "e-3": 1000, "E-12": 10**12}

WHOLE: dict[int, tuple[str | int | float, ...]] = {
    0: ("0", "-0", "+0", "00", "0.0", "-0.0Ki", "0e65", "0e999999999999", 0, 0.0),
    1: (
        "1",
        "+1",
        "001",
        "1.",
        "1.0",
        "1.000",
        "1000m",
        "1000000u",
        "10E-1",
        "1e-0",
        "1e+0",
        "0.001e3",
        ".001k",
    ),
    2: ("2", "2000000000n", 2, 2.0),
    5: ("5", "5000e-3"),
    512: ("0.5Ki", ".5Ki", "+.5Ki"),
    # What the API server makes of 1000 and 10000 ("1k", "10k"), and what it leaves as written.
    1000: ("1k", "1000", "1e3", "1E3", 1000, 1e3),
    1024: ("1Ki", "1024"),
    1200: ("1.2e3", "1.2k"),
    8100: ("8.1k",),
    10_000: ("10k", "1e4", "0.01M"),
    50_000: ("50k",),
    100_035: ("100.035k",),
    10**6: ("1M", "1E6"),
    1_300_000: ("1.3E+6",),
    10**9: ("1G", "1.G", "1e9"),
    40 * 10**12: ("40T",),
    2 * 10**15: ("2P",),
    10**18: ("1E", "1E18"),
    1_010_000_000_000_000_000: ("1.01E",),
    8 << 10: ("8Ki",),
    512 << 10: ("0.5Mi",),
    7 << 20: ("7Mi",),
    6 << 30: ("6Gi",),
    5 << 40: ("5Ti",),
    4 << 50: ("4Pi",),
    3 << 60: ("3Ei",),
    LARGEST: ("9223372036854775807", "9223372036854775807000m", LARGEST),
}
NOT_WHOLE = (
    *("500m", ".5", "0.5", "1.5", "5n", "4u", "3m", "1E-3", "0.0005k", "0.00050k", "9.01", "0.5e0", "1001m"),
    *("100.035Ki", "0.05Gi", "0.025Ti", "0.000000000001Ki", "3.001n", "1e-999999999", "-.5", 0.5),
)
NEGATIVE = ("-1", "-1k", "-1000m", "-3Ei", "-1e3", "-1.", -1, -2.0)
TOO_LARGE = (
    *("9223372036854775808", "9Ei", "8Ei", "12E", "10E", "1e19", "1e64", "1e65", "1e999999999"),
    *("9223372036854775807Ki", "1e99999999999999999999", 2**63, 1e21),
)
GARBAGE = (
    *(
        "",
        " ",
        " 1",
        "1 ",
        "1 k",
        "1\n",
        "\t1",
        "aoeu",
        "one",
        "+",
        "-",
        ".",
        "k",
        "Ki",
        "+k",
        ".k",
        "e3",
        "E",
    ),
    *(
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        "0.1am",
        ".5i",
        "1i",
        "-3.01i",
        "-3.01e-",
        "1e",
        "1e+",
        "1e3k",
        "1kk",
        "1K",
    ),
    *("1ki", "1KI", "1mi", "1ni", "1g", "1e1.5", "++1", "--1", "+-1", "1,000", "1_000", "0x10", "1/2", "½"),
    *("١", "１", "1\u200b", "NaN", "nan", "inf", "Infinity", float("inf"), float("nan"), True),
)


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [(quantity, number) for number, quantities in WHOLE.items() for quantity in quantities],
    ids=repr,
)
def test_a_whole_quantity_is_its_number_of_units(quantity: str | float, expected: int) -> None:
    assert units(quantity) == expected


@pytest.mark.parametrize("suffix", [*FACTORS, *FRACTIONS])
def test_nothing_is_nothing_whatever_its_suffix(suffix: str) -> None:
    assert units(f"0{suffix}") == units(f"-0{suffix}") == 0


@pytest.mark.parametrize("quantity", NOT_WHOLE, ids=repr)
def test_a_fraction_is_refused_and_never_rounded(quantity: str | float) -> None:
    with pytest.raises(ValueError, match=r"^is not a whole number of units$"):
        units(quantity)


@pytest.mark.parametrize("quantity", NEGATIVE, ids=repr)
def test_less_than_nothing_is_refused(quantity: str | float) -> None:
    with pytest.raises(ValueError, match=r"^is negative$"):
        units(quantity)


@pytest.mark.parametrize("quantity", TOO_LARGE, ids=repr)
def test_more_than_kubernetes_can_count_is_refused(quantity: str | float) -> None:
    with pytest.raises(ValueError, match=r"^is too large$"):
        units(quantity)


@pytest.mark.parametrize("quantity", GARBAGE, ids=repr)
def test_what_is_no_quantity_is_refused(quantity: str | float) -> None:
    with pytest.raises(ValueError, match=r"^is not a quantity$"):
        units(quantity)


@pytest.mark.parametrize("quantity", ["1e999999999", "1e-999999999", "1" * 10**6, "1e" + "9" * 10**6])
def test_a_huge_exponent_or_text_is_refused_at_once(quantity: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=r"^is "):
        units(quantity)
    assert time.process_time() - start < 0.1


@given(st.integers(0, LARGEST), st.sampled_from(sorted(FACTORS)), st.sampled_from(["", "+"]))
def test_any_number_with_any_suffix_is_the_exact_product_or_too_large(
    number: int, suffix: str, sign: str
) -> None:
    text, product = f"{sign}{number}{suffix}", number * FACTORS[suffix]
    if product <= LARGEST:
        assert units(text) == product
    else:
        with pytest.raises(ValueError, match="too large"):
            units(text)


@given(st.integers(0, LARGEST), st.sampled_from(sorted(FRACTIONS)))
def test_any_number_with_a_suffix_below_one_is_the_exact_quotient_or_not_whole(
    number: int, suffix: str
) -> None:
    quotient, rest = divmod(number, FRACTIONS[suffix])
    if rest:
        with pytest.raises(ValueError, match="not a whole number"):
            units(f"{number}{suffix}")
    else:
        assert units(f"{number}{suffix}") == quotient


@given(st.text(max_size=80) | st.integers() | st.floats())
def test_anything_else_is_a_number_or_a_refusal_and_nothing_worse(quantity: str | float) -> None:
    try:
        assert 0 <= units(quantity) <= LARGEST
    except ValueError as error:
        assert str(error).startswith("is ")  # noqa: PT017 - either is right


def test_cpu_and_memory_are_rounded_up_as_kubernetes_does_it() -> None:
    assert [rounded_up(text, 1000) for text in ("500m", "1", 0.25, "100u", "0")] == [500, 1000, 250, 1, 0]
    assert [rounded_up(text) for text in ("1Ki", "1500m", "128Mi")] == [1024, 2, 128 << 20]
    with pytest.raises(ValueError, match="is negative"):
        rounded_up("-1")
    with pytest.raises(ValueError, match="is not a quantity"):
        rounded_up("1 CPU")
