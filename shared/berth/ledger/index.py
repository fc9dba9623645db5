"""Which documents belong to whom: keys by pod, or by owner, as the ledger's View keeps them.
One thread changes it while others read: sets are replaced, never changed."""

from collections.abc import Iterable, Iterator, Mapping

from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, Domain

Domains = Mapping[str, Mapping[str, Domain]]
"""Documents by pool and name."""

_Standing = list[tuple[Claim, str]]

_NONE: frozenset[str] = frozenset()


class Index:
    """Sets of keys by who they are of; who has none is not in it."""

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys))

    def of(self, who: str) -> frozenset[str]:
        """The very same object as long as nothing changes."""
        return self._keys.get(who, _NONE)

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        for who, key in pairs:
            known = self._keys.get(who)
            self._keys[who] = frozenset((key,)) if known is None else known | {key}

    def remove(self, pairs: Iterable[tuple[str, str]]) -> None:
        for who, key in pairs:
            left = self.of(who) - {key}
            if left:
                self._keys[who] = left
            else:
                self._keys.pop(who, None)


Move = tuple[Index, set[tuple[str, str]], set[tuple[str, str]]]
"""What is new in an index, and what is gone from it."""


class ClaimIndex:
    """Where claims stand: by their pods' UIDs, by their pods' names (`namespace/name`), and the lost ones by
    UID. What is new is added before the documents are replaced, and what is gone removed after."""

    def __init__(self) -> None:
        self.uids, self.names, self.lost = Index(), Index(), Index()

    def moves(self, before: Domains, after: Domains) -> list[Move]:
        """What changes where these documents do."""
        old, new = _standing(before), _standing(after)
        found = [
            (self.uids, _by_uid(old), _by_uid(new)),
            (self.names, _by_name(old), _by_name(new)),
            (self.lost, _by_uid(_lost(old)), _by_uid(_lost(new))),
        ]
        return [(index, now - then, then - now) for index, then, now in found]


def _standing(domains: Domains) -> _Standing:
    """Claims, each with the key of a document in which it stands."""
    return [
        (claim, domain_key(pool, name))
        for pool, found in domains.items()
        for name, domain in found.items()
        for claim in domain.claims.values()
    ]


def _by_uid(standing: _Standing) -> set[tuple[str, str]]:
    return {(claim.uid, key) for claim, key in standing}


def _by_name(standing: _Standing) -> set[tuple[str, str]]:
    return {(claim.label, key) for claim, key in standing}


def _lost(standing: _Standing) -> _Standing:
    return [(claim, key) for claim, key in standing if claim.state == "lost"]
