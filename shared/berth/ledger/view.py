"""All that the ledger holds, as far as its store's `changes` have told, and what is free by that.
It may lag behind the store, so it advises (filter, scores, where a pod's claims are); reserve decides."""

from collections.abc import Collection, Iterable, Mapping

from berth.api.pool import Pool, by_resource
from berth.ledger.deadlines import Due
from berth.ledger.free import Free, Share
from berth.ledger.index import ClaimIndex, Index
from berth.ledger.keys import (
    DOMAIN,
    NODE,
    POOL,
    REBUILD,
    domain_key,
    domain_of,
    owner_of_kept,
    parse_domain,
    stripe,
    unreserved_quota,
)
from berth.ledger.model import (
    COPY,
    Claim,
    Domain,
    Epoch,
    Places,
    decode_domain,
    decode_epoch,
    decode_places,
    decode_pool,
)
from berth.stores.base import EPOCH

_EMPTY = Domain()
_NO_SHARES = Free()


class View:
    """What is in the documents, kept up by `update` and, as time passes, by `refresh`.

    Of each pool: `domains` are its documents, `free` its domains' shares, `unreserved` those of pods that are
    not important (by domain), `quotas` those of the other quotas. `places` say where nodes are, in pools
    whose domains are not nodes.
    """

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self.being_copied = False  # a copy of another ledger that has not ended
        self.pools: dict[str, Pool] = {}
        self.resources: dict[str, Pool] = {}
        self.domains: dict[str, dict[str, Domain]] = {}
        self.free: dict[str, Free] = {}
        self.unreserved: dict[str, Free] = {}
        self.quotas: dict[str, Free] = {}
        self.places: dict[str, dict[str, str]] = {}
        self.nodes: dict[str, Places] = {}
        self._claims = ClaimIndex()
        self._kept = Index()  # by the owner for whom units are kept there
        self._rooms: dict[tuple[str, str], int] = {}
        self._due = Due()  # when what is free of a document changes by itself

    @property
    def open(self) -> bool:
        return self.epoch is not None

    @property
    def held(self) -> tuple[str, ...]:
        """Resources of which nothing is given now."""
        epoch = self.epoch
        return () if epoch is None else epoch.held

    def update(self, documents: Mapping[str, bytes | None], now: float = 0.0) -> None:
        """Only one thread may, but others read meanwhile: dicts that they go through are replaced, never
        changed, a claim that moves has a key all the time, and what opens the ledger comes last."""
        changed: dict[str, dict[str, Domain]] = {}
        for key, body in documents.items():
            if key.startswith(DOMAIN):
                pool, name = domain_of(key)
                changed.setdefault(pool, {})[name] = decode_domain(body)
            elif key.startswith(POOL):
                self._update_pool(key.removeprefix(POOL), body)
        self._update_places({key: body for key, body in documents.items() if key.startswith(NODE)})
        old = {pool: self._now(pool, names) for pool, names in changed.items()}
        moves = self._claims.moves(old, changed)
        for index, new, _ in moves:
            index.add(new)
        for pool, domains in changed.items():
            self._update_domains(pool, domains, now)
        for index, _, gone in moves:
            index.remove(gone)
        if REBUILD in documents:
            self.being_copied = (documents[REBUILD] or b"").startswith(COPY.encode())
        if EPOCH in documents:
            self.epoch = decode_epoch(documents[EPOCH])

    def refresh(self, now: float) -> None:
        """Units that were left and have rested, or been kept, long enough are free; one thread, as above."""
        over: dict[str, set[str]] = {}
        for pool, name in self._due.take(now):
            over.setdefault(pool, set()).add(name)
        for pool, names in over.items():
            self._recount(pool, names, now)

    # Claims

    def claims_of(self, uid: str) -> list[Claim]:
        """The pod's claims; more than one only while two bind calls for it overlap."""
        while True:
            keys = self.keys_of(uid)
            found = [self.at(key).claims.get(uid) for key in sorted(keys)]
            if self.keys_of(uid) is keys:  # else a claim may have moved to where we did not look
                return _unique(claim for claim in found if claim is not None)

    def keys_of(self, uid: str) -> frozenset[str]:
        """Keys of the domains in which the pod has a claim."""
        return self._claims.uids.of(uid)

    def claims(self) -> list[Claim]:
        domains = [domain for found in self.domains.values() for domain in found.values()]
        return _unique(claim for domain in domains for claim in domain.claims.values())

    def lost(self, node: str | None = None) -> list[Claim]:
        """Claims of pods that are gone, whose units the node (None: any) may still use."""
        claims = (claim for uid in self._claims.lost for claim in self.claims_of(uid))
        return [claim for claim in claims if node in (None, claim.node)]

    def named(self, label: str, pool: str) -> list[Claim]:
        """Claims on the pool of pods of this namespace and name; there are several while one leaves."""
        domains = [self.at(key) for key in self._claims.names.of(label) if domain_of(key)[0] == pool]
        found = (claim for domain in domains for claim in domain.claims.values())
        return _unique(claim for claim in found if claim.label == label)

    # Domains

    def at(self, key: str) -> Domain:
        """The document of a domain or stripe; an empty one where there is none."""
        pool, name = domain_of(key)
        return self.domains.get(pool, {}).get(name, _EMPTY)

    def parts(self, pool: str, name: str) -> dict[str, Domain]:
        """The documents that a domain's claims stand in, by their names: itself, or its stripes."""
        documents = self.domains.get(pool, {})
        count = documents.get(name, _EMPTY).stripes
        names = [stripe(name, number) for number in range(count)] if count else [name]
        return {each: documents.get(each, _EMPTY) for each in names}

    def names(self, pool: str) -> list[str]:
        """The pool's domains, those too that only have claims; no quotas and no stripes."""
        names = map(parse_domain, self.domains.get(pool, ()))
        places = (name.text for name in names if not (name.stripe or name.is_quota))
        return [place for place in places if self._matters(pool, place)]

    def _matters(self, pool: str, name: str) -> bool:
        return self.capacity(pool, name) is not None or any(
            part.claims for part in self.parts(pool, name).values()
        )

    def capacity(self, pool: str, name: str) -> int | tuple[str, ...] | None:
        """A domain's capacity: its units' names in a named pool, None where it has no share of the pool."""
        return self.domains.get(pool, {}).get(name, _EMPTY).size

    def capacities(self) -> dict[tuple[str, str], int | tuple[str, ...] | None]:
        """By pool and domain; quotas, and those that only have claims (None), too."""
        return {
            (pool, name): domain.size
            for pool, domains in self.domains.items()
            for name, domain in domains.items()
            if not parse_domain(name).stripe
        }

    def free_for(
        self, uid: str, pools: Iterable[str], owners: Collection[str] = (), now: float = 0.0
    ) -> "Shares":
        """Free units of these pools as the pod sees them: neither what it holds itself nor what is kept for
        its owners stands in its way."""
        more: dict[str, dict[str, int]] = {pool: {} for pool in pools}
        for each in (each for claim in self.claims_of(uid) for each in claim.holdings):
            self._more(more, each.key, each.count, (), now)
        places = set()
        for key in self._keys_kept(owners):
            self._more(more, key, 0, owners, now)
            pool, name = domain_of(key)
            places.add((pool, parse_domain(name).whole))
        for pool, place in places:
            quota = unreserved_quota(place)
            if pool in more and (seen := self.kept_of_quota(pool, quota, owners, now)):
                more[pool][quota] = more[pool].get(quota, 0) + seen[place]
        return Shares(self, more)

    def _more(
        self, more: dict[str, dict[str, int]], key: str, own: int, owners: Collection[str], now: float
    ) -> None:
        """Add what a document has more for one pod: its `own` units, or what is kept for its owner."""
        pool, name = domain_of(key)
        if pool in more:
            domain, whole = self.at(key), parse_domain(name).whole
            seen = domain.room(pool, name, owners, now, own) - domain.room(pool, name, (), now)
            more[pool][whole] = more[pool].get(whole, 0) + seen

    def kept_for(self, owners: Collection[str], now: float) -> list[tuple[str, str]]:
        """Where units are kept for these owners that they may have now, as (pool, domain)."""
        found = []
        for key in sorted(self._keys_kept(owners)):
            domain = self.at(key)
            there = domain.waiting if domain.capacity is not None else ()
            if any(each.owner in owners and each.rest <= now < each.kept for each in there):
                pool, name = domain_of(key)
                found.append((pool, parse_domain(name).whole))
        return found

    def kept_of_quota(self, pool: str, quota: str, owners: Collection[str], now: float) -> dict[str, int]:
        """Units that a quota counts because they are kept for these owners, by where they are: there the
        owners take no more of it when they take them."""
        found: dict[str, int] = {}
        if self._closed(pool, quota):
            return found
        for name, part in self.parts(pool, quota).items():
            units = part.nameless(pool, name, (), now) if part.left else ()
            for left, count in zip(part.left, units, strict=True):
                owner, (_, place) = owner_of_kept(left.owner)
                if owner in owners and left.rest <= now:
                    found[place] = found.get(place, 0) + count
        return found

    def kept(self, pool: str, now: float) -> int:
        """Units of the pool that some owners' pods may have now, and nobody else."""
        found = 0
        for name, domain in self.domains.get(pool, {}).items():
            if parse_domain(name).is_quota:
                continue
            owners = {left.owner for left in domain.left if left.rest <= now < left.kept}
            if owners and not self._closed(pool, name):
                free = domain.room(pool, name, (), now)
                found += sum(domain.room(pool, name, (owner,), now) - free for owner in owners)
        return found

    def _keys_kept(self, owners: Iterable[str]) -> set[str]:
        """Where units are kept for these owners, and anything is given."""
        keys = {key for owner in owners for key in self._kept.of(owner)}
        return {key for key in keys if not self._closed(*domain_of(key))}

    def _closed(self, pool: str, name: str) -> bool:
        """Whether more is used of the domain than there is: then nothing of it is given, kept or not."""
        return self.domains.get(pool, {}).get(parse_domain(name).whole, _EMPTY).closed

    # Keeping up

    def _now(self, pool: str, names: Iterable[str]) -> dict[str, Domain]:
        return {name: self.domains.get(pool, {}).get(name, _EMPTY) for name in names}

    def _update_pool(self, name: str, body: bytes | None) -> None:
        pools = {other: pool for other, pool in self.pools.items() if other != name}
        if body is not None:
            pools[name] = decode_pool(name, body)
        self.pools, self.resources = pools, by_resource(pools)

    def _update_places(self, documents: Mapping[str, bytes | None]) -> None:
        if not documents:
            return
        nodes = dict(self.nodes)
        for key, body in documents.items():
            nodes[key.removeprefix(NODE)] = decode_places(body)
        places: dict[str, dict[str, str]] = {}
        for node, found in nodes.items():
            for pool, domain in found.items():
                places.setdefault(pool, {})[node] = domain
        self.nodes, self.places = {node: found for node, found in nodes.items() if found}, places

    def _update_domains(self, pool: str, changed: Mapping[str, Domain], now: float) -> None:
        before = _left(self._now(pool, changed), pool)
        domains = {**self.domains.get(pool, {}), **changed}
        for name, domain in changed.items():
            if domain.empty:
                del domains[name]
        self.domains = {**self.domains, pool: domains}
        self._kept.add(_left(changed, pool) - before)
        self._kept.remove(before - _left(changed, pool))
        self._recount(pool, changed, now)

    def _recount(self, pool: str, names: Iterable[str], now: float) -> None:
        documents = self.domains[pool]
        for name in names:
            domain = documents.get(name, _EMPTY)
            self._rooms[(pool, name)] = domain.room(pool, name, (), now)
            self._due.set((pool, name), domain.next_change(now))
        shares: dict[str, dict[str, Share | None]] = {"place": {}, "unreserved": {}, "quota": {}}
        wholes = {parsed.whole: parsed for parsed in map(parse_domain, names)}
        for whole, parsed in wholes.items():
            of_kind = shares[parsed.kind if parsed.place else "quota"]
            of_kind[parsed.place or whole] = self._share(pool, whole)
        self.free = _changed(self.free, pool, shares["place"])
        self.quotas = _changed(self.quotas, pool, shares["quota"])
        self.unreserved = _changed(self.unreserved, pool, shares["unreserved"])

    def _share(self, pool: str, name: str) -> Share | None:
        head = self.domains[pool].get(name, _EMPTY)
        if head.capacity is None:
            return None
        if not head.stripes:
            return self._rooms[(pool, name)], head.capacity
        rooms = (self._rooms.get((pool, stripe(name, number)), 0) for number in range(head.stripes))
        return 0 if head.closed else sum(rooms), head.capacity


class Shares:
    """Free units as one pod sees them: the View's, and `more` that are only for it."""

    def __init__(self, view: View, more: Mapping[str, Mapping[str, int]]) -> None:
        self.free = {pool: _with(view.free.get(pool, _NO_SHARES), found) for pool, found in more.items()}
        self.quotas = {pool: _with(view.quotas.get(pool, _NO_SHARES), found) for pool, found in more.items()}
        self.unreserved = {
            pool: _with(
                view.unreserved.get(pool, _NO_SHARES),
                {
                    name.place: units
                    for name, units in ((parse_domain(name), units) for name, units in found.items())
                    if name.kind == "unreserved"
                },
            )
            for pool, found in more.items()
        }


def _changed(shares: dict[str, Free], pool: str, changes: Mapping[str, Share | None]) -> dict[str, Free]:
    return {**shares, pool: shares.get(pool, _NO_SHARES).with_changes(changes)} if changes else shares


def _with(free: Free, more: Mapping[str, int]) -> Free:
    changes = {
        name: (min(free[name][0] + units, free[name][1]), free[name][1])
        for name, units in more.items()
        if name in free
    }
    return free.with_changes(changes) if changes else free


def _left(domains: Mapping[str, Domain], pool: str) -> set[tuple[str, str]]:
    """For whom units are kept where, as (owner, key of the domain)."""
    return {
        (left.owner, domain_key(pool, name))
        for name, domain in domains.items()
        for left in domain.left
        if left.owner and not parse_domain(name).is_quota
    }


def _unique(claims: Iterable[Claim]) -> list[Claim]:
    """One per pod and attempt: a claim over several domains is found in each."""
    return list({(claim.uid, claim.node, claim.attempt): claim for claim in claims}.values())
