"""What the ledger keeps in its store: the epoch, Pools, and domains with the claims on them.
Counts are derived here from claims, each time a document is read; none is ever stored."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from berth.errors import MovedError, PausedError, StoreFailedError
from berth.policy.free import Free, Share
from berth.policy.pools import Pool, by_resource
from berth.stores.base import EPOCH

REBUILD = "rebuild"  # who is rebuilding the ledger; a loss changes its version, which stops a late opening
COPY = "copy "  # begins the mark where it is a copy that fills the ledger
CLUSTER = "cluster"  # the identity of the cluster whose pods hold the claims
_POOL, _DOMAIN = "pool/", "domain/"
_NOWHERE: frozenset[str] = frozenset()


# Without gc: there are tens of thousands, they hold no cycles, and Python's collector would go through all of
# them every few calls (26 ms for 25,000 claims, ten times what a filter call costs).


class Holding(msgspec.Struct, frozen=True, gc=False):
    """Units of one pool in one domain."""

    pool: str
    domain: str
    count: int

    @property
    def key(self) -> str:
        return domain_key(self.pool, self.domain)


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one pod holds, all or nothing; it stands in every domain it draws from, naming all.

    `attempt` names the bind call that reserved it last, `since` when (Unix seconds).
    """

    uid: str
    namespace: str
    name: str
    node: str
    holdings: tuple[Holding, ...]
    state: Literal["reserved", "bound"] = "reserved"
    attempt: str = ""
    since: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"


class Domain(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A domain's capacity (None: the pool has no share here any more) and its claims by pod UID."""

    capacity: int | None = None
    claims: dict[str, Claim] = {}

    def used(self, pool: str, domain: str) -> int:
        return sum(
            holding.count
            for claim in self.claims.values()
            for holding in claim.holdings
            if holding.pool == pool and holding.domain == domain
        )


class Epoch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The mark that the ledger may be trusted; `since` in Unix seconds.

    `to` names the store that a copy of the ledger goes to, as it may be shown: claims are paused meanwhile.
    `moved` means that the copy is what counts now. Every commit expects the epoch as it was: what was decided
    before is refused.
    """

    id: str
    since: float
    to: str = ""
    moved: bool = False

    @property
    def paused(self) -> bool:
        return bool(self.to) and not self.moved

    def trouble(self) -> PausedError | MovedError | None:
        """Why nothing may be claimed or freed here."""
        if self.moved:
            return MovedError(self.to)
        return PausedError(self.to) if self.paused else None


_epoch = msgspec.json.Decoder(Epoch)
_domain = msgspec.json.Decoder(Domain)
_pool = msgspec.json.Decoder(Pool)
_encoder = msgspec.json.Encoder()


def domain_key(pool: str, domain: str) -> str:
    return f"{_DOMAIN}{pool}/{domain}"  # a pool's name holds no slash, so this can be taken apart again


def pool_key(pool: str) -> str:
    return f"{_POOL}{pool}"


def encode(document: Domain | Pool | Epoch) -> bytes:
    return _encoder.encode(document)


def decode_domain(body: bytes | None) -> Domain:
    try:
        return Domain() if body is None else _domain.decode(body)
    except msgspec.DecodeError as error:
        raise _other_version("a domain", error) from error


def decode_epoch(body: bytes | None) -> Epoch | None:
    try:
        return None if body is None else _epoch.decode(body)
    except msgspec.DecodeError as error:
        raise _other_version("its epoch", error) from error


def _decode_pool(name: str, body: bytes) -> Pool:
    try:
        return _pool.decode(body)
    except msgspec.ValidationError as error:
        raise _other_version(f"Pool {name}", error) from error


def _other_version(what: str, error: msgspec.DecodeError) -> StoreFailedError:
    return StoreFailedError(
        f"berth's ledger holds {what} as another version wrote it: run one version ({error})"
    )


class View:
    """All the ledger holds, as far as `changes` has told; kept up by `update`.

    It may lag behind the store, so it advises (filter, scores, where a pod's claims are); reserve decides.
    """

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self.being_copied = False  # a copy of another ledger that has not ended
        self.pools: dict[str, Pool] = {}
        self.resources: dict[str, Pool] = {}
        self.domains: dict[str, dict[str, Domain]] = {}
        self.free: dict[str, Free] = {}
        self._keys: dict[str, frozenset[str]] = {}

    def update(self, documents: Mapping[str, bytes | None]) -> None:
        """Only one thread may, but others read meanwhile: dicts that they go through are replaced, never
        changed, a claim that moves has a key all the time, and what opens the ledger comes last."""
        changed: dict[str, dict[str, Domain]] = {}
        for key, body in documents.items():
            if key.startswith(_DOMAIN):
                pool, name = _parts(key)
                changed.setdefault(pool, {})[name] = decode_domain(body)
            elif key.startswith(_POOL):
                self._update_pool(key.removeprefix(_POOL), body)
        before = _places({pool: self._now(pool, names) for pool, names in changed.items()})
        after = _places(changed)
        for uid, key in after - before:
            self._keys[uid] = self._keys.get(uid, _NOWHERE) | {key}
        for pool, domains in changed.items():
            self._update_domains(pool, domains)
        for uid, key in before - after:
            self._keys[uid] -= {key}
            if not self._keys[uid]:
                del self._keys[uid]
        if REBUILD in documents:
            self.being_copied = (documents[REBUILD] or b"").startswith(COPY.encode())
        if EPOCH in documents:
            self.epoch = decode_epoch(documents[EPOCH])

    @property
    def open(self) -> bool:
        return self.epoch is not None

    def claims_of(self, uid: str) -> list[Claim]:
        """The pod's claims; more than one only while two bind calls for it overlap."""
        while True:
            keys = self.keys_of(uid)
            found = [self._domain_at(key).claims.get(uid) for key in sorted(keys)]
            if self.keys_of(uid) is keys:  # else a claim may have moved to where we did not look
                return _unique(claim for claim in found if claim is not None)

    def keys_of(self, uid: str) -> frozenset[str]:
        """Keys of the domains in which the pod has a claim."""
        return self._keys.get(uid, _NOWHERE)

    def claims(self) -> list[Claim]:
        domains = [domain for found in self.domains.values() for domain in found.values()]
        return _unique(claim for domain in domains for claim in domain.claims.values())

    def free_for(self, uid: str, pools: Iterable[str]) -> dict[str, Free]:
        """Free units of these pools as the pod sees them: what it holds itself does not stand in its way."""
        free = {pool: self.free.get(pool, Free()) for pool in pools}
        for holding in (holding for claim in self.claims_of(uid) for holding in claim.holdings):
            capacity = self._domain_at(holding.key).capacity
            if holding.pool in free and capacity is not None:
                used = self._domain_at(holding.key).used(holding.pool, holding.domain) - holding.count
                seen = (max(0, capacity - used), capacity)
                free[holding.pool] = free[holding.pool].with_changes({holding.domain: seen})
        return free

    def capacities(self) -> dict[tuple[str, str], int | None]:
        """By pool and domain, those that only have claims (None) too."""
        return {
            (pool, name): domain.capacity
            for pool, found in self.domains.items()
            for name, domain in found.items()
        }

    def _now(self, pool: str, names: Iterable[str]) -> dict[str, Domain]:
        return {name: self.domains.get(pool, {}).get(name, Domain()) for name in names}

    def _update_pool(self, name: str, body: bytes | None) -> None:
        pools = {other: pool for other, pool in self.pools.items() if other != name}
        if body is not None:
            pools[name] = _decode_pool(name, body)
        self.pools, self.resources = pools, by_resource(pools)

    def _update_domains(self, pool: str, changed: Mapping[str, Domain]) -> None:
        domains = {**self.domains.get(pool, {}), **changed}
        for name, domain in changed.items():
            if domain.capacity is None and not domain.claims:
                del domains[name]
        shares = {name: _share(pool, name, domain) for name, domain in changed.items()}
        free = self.free.get(pool, Free()).with_changes(shares)
        self.domains, self.free = {**self.domains, pool: domains}, {**self.free, pool: free}

    def _domain_at(self, key: str) -> Domain:
        pool, name = _parts(key)
        return self.domains.get(pool, {}).get(name, Domain())


def _share(pool: str, name: str, domain: Domain) -> Share | None:
    if domain.capacity is None:
        return None
    return max(0, domain.capacity - domain.used(pool, name)), domain.capacity


def _parts(key: str) -> tuple[str, str]:
    pool, _, name = key.removeprefix(_DOMAIN).partition("/")
    return pool, name


def _places(domains: Mapping[str, Mapping[str, Domain]]) -> set[tuple[str, str]]:
    """Which pod has a claim where, as (UID, key of the domain)."""
    return {
        (uid, domain_key(pool, name))
        for pool, found in domains.items()
        for name, domain in found.items()
        for uid in domain.claims
    }


def _unique(claims: Iterable[Claim]) -> list[Claim]:
    """One per pod and attempt: a claim over several domains is found in each."""
    return list({(claim.uid, claim.node, claim.attempt): claim for claim in claims}.values())
