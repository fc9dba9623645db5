"""Named units: what a user's list stands for, and sets of names and addresses against sets written out."""

import sys
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api import addresses
from berth.api.units import Units, normal

NAMES = [f"k80-{number}" for number in range(6)] + ["0000:3b:00.0", "10.0.3", "a-b"]
# Around both ends of each family, where arithmetic goes wrong first, and in the middle.
PLACES = [
    *(
        str(IPv4Address(number))
        for number in (*range(6), *range(2**32 - 6, 2**32), *range(167772920, 167772934))
    ),
    *(str(IPv6Address(number)) for number in (*range(6), *range(2**128 - 6, 2**128))),
    *(f"fd00::{number:x}" for number in range(1, 15)),
]
AS_GIVEN = {name: number for number, name in enumerate(NAMES)}


def sorted_units(units: Iterable[str]) -> list[str]:
    """The order of canonical entries, written down a second time: names as given here, IPv4, IPv6."""

    def key(unit: str) -> tuple[int, int]:
        if unit in AS_GIVEN:
            return 0, AS_GIVEN[unit]
        address = ip_address(unit)
        return address.version, int(address)

    return sorted(units, key=key)


def expanded(units: Units) -> list[str]:
    """Every unit, read from the canonical entries and not by what is tested here."""
    found = []
    for entry in units.entries():
        first, dash, last = entry.partition("-")
        if entry in AS_GIVEN:
            found.append(entry)
            continue
        kind = IPv6Address if ":" in entry else IPv4Address
        ends = int(kind(first)), int(kind(last if dash else first))
        found += [str(kind(number)) for number in range(ends[0], ends[1] + 1)]
    return found


few = st.lists(st.sampled_from(NAMES + PLACES), unique=True, max_size=24).map(sorted_units)
counts = st.integers(min_value=-1, max_value=30)


def refusal(*entries: str) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        Units.parse(entries)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def entries(*given: str) -> tuple[str, ...]:
    return Units.parse(given).entries()


def test_names_keep_their_order_and_addresses_follow_ascending_ipv4_first() -> None:
    given = ("k80-1", "fd00::5", "10.0.3.17", "k80-0", "9.255.255.255", "a:b_c.d")
    assert entries(*given) == ("k80-1", "k80-0", "a:b_c.d", "9.255.255.255", "10.0.3.17", "fd00::5")


def test_adjacent_addresses_and_ranges_are_joined() -> None:
    assert entries("10.0.3.3", "10.0.3.1", "10.0.3.2", "10.0.3.9") == ("10.0.3.1-10.0.3.3", "10.0.3.9")
    assert entries("10.0.3.8/31", "10.0.3.10-10.0.3.12") == ("10.0.3.8-10.0.3.12",)


def test_the_last_ipv4_and_the_first_ipv6_address_are_not_adjacent() -> None:
    assert entries("::", "255.255.255.255") == ("255.255.255.255", "::")


@pytest.mark.parametrize("cidr", ["10.0.3.0/28", "10.0.3.0/30", "10.0.3.4/31", "10.0.3.7/32", "10.0.2.0/23"])
def test_an_ipv4_cidr_stands_for_its_host_addresses(cidr: str) -> None:
    hosts = [str(address) for address in ip_network(cidr).hosts()]
    assert expanded(Units.parse([cidr])) == hosts


@pytest.mark.parametrize(
    ("cidr", "hosts"),
    [
        ("fd00::10/124", [f"fd00::{number:x}" for number in range(0x11, 0x20)]),
        ("fd00::4/126", ["fd00::5", "fd00::6", "fd00::7"]),
        ("fd00::4/127", ["fd00::4", "fd00::5"]),
        ("fd00::4/128", ["fd00::4"]),
    ],
)
def test_an_ipv6_cidr_leaves_out_the_routers_address_but_no_broadcast(cidr: str, hosts: list[str]) -> None:
    assert expanded(Units.parse([cidr])) == hosts


@pytest.mark.parametrize("spelling", ["FD00::5", "fd00:0:0::5", "fd00:0000:0000:0000:0000:0000:0000:0005"])
def test_two_spellings_of_an_address_are_one_unit(spelling: str) -> None:
    assert normal(spelling) == "fd00::5"
    assert entries(spelling) == ("fd00::5",)
    assert spelling in Units.parse(["fd00::/120"])
    assert Units.parse(["fd00::5"]).free(1, [spelling]) == ()
    assert Units.parse(["fd00::5"]).free(1, [], [spelling]) == ("fd00::5",)


def test_an_address_is_spelled_the_same_by_every_python() -> None:
    assert normal("::ffff:10.0.0.1") == "::ffff:a00:1"
    assert normal("::ffff:0:0") == "::ffff:0:0"


@pytest.mark.parametrize(
    "name", ["a-b", "k80-0", "10.0.3", "1", "00:1b:44:11:3a:b7", "0000:3b:00.0", "x" * 63]
)
def test_what_does_not_read_as_an_address_is_a_name_and_stays_as_it_is(name: str) -> None:
    assert normal(name) == name
    assert entries(name) == (name,)
    assert Units.of([name]) == Units.parse([name])


ODD = {
    "empty": "",
    "long": "x" * 10**6,
    "long and like an address": "1" * 10**6 + "...",
    "nul": "\x00",
    "surrogate": "\ud800::",
    "CIDR": "10.0.3.0/28",
    "zone": "fd00::5%eth0",
    "leading zero": "10.0.3.017",
    "other digits": "٣.1.1.1",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_any_text_may_be_looked_for(text: str) -> None:
    assert normal(text) == text
    assert text not in Units.parse(["0.0.0.0/0", "fd00::/8", "k80-0"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["10.0.3.1/28"], "10.0.3.1/28 has host bits set: write 10.0.3.0/28"),
        (["fd00::5/64"], "fd00::5/64 has host bits set: write fd00::/64"),
        (["k80/0"], "'k80/0' is not a CIDR such as 10.0.3.0/28, and no name holds a /"),
        (["10.0.3.0/33"], "'10.0.3.0/33' is not a CIDR such as 10.0.3.0/28, and no name holds a /"),
        (
            ["10.0.3.0/255.255.255.240"],
            "'10.0.3.0/255.255.255.240' is not a CIDR such as 10.0.3.0/28, and no name holds a /",
        ),
        (["fe80::%eth0/64"], "'fe80::%eth0/64' is not a CIDR such as 10.0.3.0/28, and no name holds a /"),
        (["k80-0", "k80-1", "k80-0"], "k80-0 is listed twice"),
        (["10.0.3.1", "10.0.3.1"], "10.0.3.1 is listed twice"),
        (["10.0.3.5", "10.0.3.0/28"], "10.0.3.5 is listed twice: 10.0.3.0/28 and 10.0.3.5 overlap"),
        (["fd00::5", "FD00::5"], "fd00::5 is listed twice: FD00::5 and fd00::5 overlap"),
        (["10.0.3.9-10.0.3.1"], "10.0.3.9-10.0.3.1 is no range: its ends are of one family, the lower first"),
        (["10.0.3.9-fd00::1"], "10.0.3.9-fd00::1 is no range: its ends are of one family, the lower first"),
        (["10.0.3.1-5"], "'10.0.3.1-5' is neither an address nor a range such as 10.0.3.1-10.0.3.5"),
        (["10.0.3.256"], "'10.0.3.256' is neither an address nor a range such as 10.0.3.1-10.0.3.5"),
        (["10.0.3.017"], "'10.0.3.017' is neither an address nor a range such as 10.0.3.1-10.0.3.5"),
        (["fd00::12345"], "'fd00::12345' is neither an address nor a range such as 10.0.3.1-10.0.3.5"),
        (["::ffff:10.0.3.1"], "::ffff:10.0.3.1 stands for IPv4 addresses: write those"),
        (["::ffff:0:0/96"], "::ffff:0:0/96 stands for IPv4 addresses: write those"),
        ([""], "a unit's name is empty"),
        (["seat 1"], "'seat 1' is no unit's name: write letters, digits and . - _ :"),
        (["seat\n"], "'seat\\n' is no unit's name: write letters, digits and . - _ :"),
        (["sitz-ä"], "'sitz-ä' is no unit's name: write letters, digits and . - _ :"),
        (["x" * 64], f"'{'x' * 63}…' is too long for a unit's name: 63 characters at most"),
    ],
)
def test_a_wrong_entry_is_refused_by_its_name(given: list[str], told: str) -> None:
    assert refusal(*given) == told


def test_an_overlap_is_found_whatever_lies_between() -> None:
    assert "overlap" in refusal("10.0.0.0/16", "10.0.3.7", "k80-0", "10.1.0.0/24")
    assert "overlap" in refusal("10.0.0.5-10.0.0.9", "10.0.0.9-10.0.0.12")


@given(few)
def test_what_is_written_reads_the_same_again(units: list[str]) -> None:
    found = Units.parse(units)
    assert Units.parse(found.entries()) == Units.of(found.entries()) == found
    assert expanded(found) == units
    assert found.size == len(units)


@given(few, few)
def test_sets_are_joined_shared_and_taken_from_each_other_as_if_written_out(
    one: list[str], other: list[str]
) -> None:
    here, there = Units.parse(one), Units.parse(other)
    assert sorted_units(expanded(here.joined(there))) == sorted_units({*one, *other})
    for found, units in ((here.shared(there), {*one} & {*other}), (here.without(there), {*one} - {*other})):
        assert expanded(found) == sorted_units(units)
        assert found == Units.parse(found.entries())
    assert here.joined(there).spans == Units.parse(sorted_units({*one, *other})).spans


@given(few, few)
def test_sets_meet_where_they_share_any(one: list[str], other: list[str]) -> None:
    here, there = Units.parse(one), Units.parse(other)
    assert here.meets(there) == there.meets(here) == bool({*one} & {*other})


@given(few)
def test_membership_is_that_of_the_set_written_out(units: list[str]) -> None:
    found = Units.parse(units)
    assert [unit for unit in NAMES + PLACES if unit in found] == [
        each for each in NAMES + PLACES if each in units
    ]


@given(few, counts)
def test_taking_splits_into_the_first_and_the_rest(units: list[str], count: int) -> None:
    head, rest = Units.parse(units).take(count)
    assert expanded(head) == units[: max(count, 0)]
    assert expanded(rest) == units[max(count, 0) :]


@given(few, few, st.lists(st.sampled_from(NAMES + PLACES), max_size=6), counts)
def test_the_free_are_the_first_not_held_and_the_preferred_before_them(
    units: list[str], held: list[str], first: list[str], count: int
) -> None:
    preferred = dict.fromkeys(unit for unit in first if unit in units and unit not in held)
    others = (unit for unit in units if unit not in held and unit not in preferred)
    expected = (*preferred, *others)[: max(count, 0)]
    assert Units.parse(units).free(count, held, first) == expected


def test_two_lists_of_names_are_joined_in_their_order() -> None:
    joined = Units.parse(["b", "a"]).joined(Units.parse(["c", "a"]))
    assert joined.entries() == ("b", "a", "c")


def test_a_network_of_two_to_the_64_is_one_range() -> None:
    units = Units.parse(["fd00::/64"])
    assert units.entries() == ("fd00::1-fd00::ffff:ffff:ffff:ffff",)
    assert units.size == 2**64 - 1
    assert "fd00::1:2:3:4" in units
    assert "fd00:0:0:1::" not in units


@pytest.mark.parametrize("cidr", ["fd00::/64", "fd00::/8", "::/0", "0.0.0.0/0"])
def test_a_large_network_is_split_and_cut_as_ranges(cidr: str) -> None:
    units = Units.parse([cidr])
    head, rest = units.take(128)
    assert (head.size, rest.size) == (128, units.size - 128)
    assert head.joined(rest) == units
    assert (units.without(head), units.shared(rest), head.shared(rest)) == (rest, rest, Units())
    middle = units.take(units.size // 2)[1].take(1)[0]
    assert len(units.without(middle).entries()) == 2
    assert units.take(units.size + 1) == (units, Units())
    assert units.take(0) == (Units(), units)


def test_the_free_of_a_large_network_are_looked_for_among_no_more_than_are_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    walk = addresses.walk

    def counted(spans: tuple[addresses.Span, ...]) -> Iterable[int]:
        nonlocal looked_at
        for place in walk(spans):
            looked_at += 1
            yield place

    monkeypatch.setattr(addresses, "walk", counted)
    held = [f"fd00::{number:x}" for number in range(1, 129) if number != 7]
    assert Units.parse(["fd00::/64"]).free(3, held) == ("fd00::7", "fd00::81", "fd00::82")
    assert looked_at == len(held) + 3


def test_a_large_network_lies_in_memory_as_one_pair_of_numbers() -> None:
    units = Units.parse(["::/0"])
    assert units.spans == ((addresses.IPV6 + 1, addresses.END - 1),)
    assert sys.getsizeof(units.entries()) < 100
    assert list(islice(addresses.walk(units.spans), 2)) == [addresses.IPV6 + 1, addresses.IPV6 + 2]
