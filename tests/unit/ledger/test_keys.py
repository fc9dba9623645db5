"""Names of domains as ledgers hold them: what each says, and that it is written as it was."""

import pytest

from berth.ledger.keys import (
    DomainName,
    domain_key,
    domain_of,
    kept_at,
    namespace_quota,
    owner_of_kept,
    parse_domain,
    poolclaim_quota,
    stripe,
    unreserved_quota,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("node-7", DomainName("node-7", "node-7", "", "place", "node-7")),
        ("*", DomainName("*", "*", "", "place", "*")),
        ("?", DomainName("?", "?", "", "place", "?")),
        (stripe("zone-a", 3), DomainName("zone-a#3", "zone-a", "3", "place", "zone-a")),
        (unreserved_quota("node-7"), DomainName("node-7<", "node-7<", "", "unreserved", "node-7")),
        (stripe(unreserved_quota("*"), 0), DomainName("*<#0", "*<", "0", "unreserved", "*")),
        (namespace_quota("team-a"), DomainName("@team-a", "@team-a", "", "namespace", "", "team-a")),
        (stripe("@team-a", 12), DomainName("@team-a#12", "@team-a", "12", "namespace", "", "team-a")),
        (
            poolclaim_quota("team-a/k80"),
            DomainName("!team-a/k80", "!team-a/k80", "", "poolclaim", "", "team-a", "k80"),
        ),
    ],
)
def test_a_name_says_what_it_is_of(text: str, name: DomainName) -> None:
    assert parse_domain(text) == name
    assert name.text == text
    assert name.is_quota == (text[0] in "@!" or "<" in text)
    assert domain_of(domain_key("ip", text)) == ("ip", text)


def test_only_the_share_of_a_place_has_a_name_elsewhere() -> None:
    names = [parse_domain(text).at("b") for text in ("a", "a#1", "a<", "a<#1", "@a", "!a/c")]
    assert names == ["b", "b", "b<", "b<", "@a", "!a/c"]


def test_the_owner_of_kept_units_is_read_as_it_was_written() -> None:
    assert owner_of_kept(kept_at("d/ReplicaSet:web", "ip", "zone/a")) == (
        "d/ReplicaSet:web",
        ("ip", "zone/a"),
    )
    assert kept_at("", "ip", "n1") == ""
    assert owner_of_kept("d/web-0")[0] == ""
