"""All that the ledger holds, as far as its store's `changes` have told, and what is free by that.
It may lag behind the store, so it advises (filter, scores, where a pod's claims are); reserve decides."""

from collections.abc import Collection, Iterable, Mapping

from berth.api.pool import Pool, by_resource
from berth.ledger.deadlines import Due
from berth.ledger.free import Free, Share
from berth.ledger.index import ClaimIndex, Index
from berth.ledger.model import (
    COPY,
    DOMAIN,
    NODE,
    POOL,
    REBUILD,
    UNRESERVED,
    Claim,
    Domain,
    Epoch,
    Places,
    decode_domain,
    decode_epoch,
    decode_places,
    decode_pool,
    domain_key,
    domain_of,
    is_bound,
    stripe,
)
from berth.stores.base import EPOCH

_EMPTY = Domain()
_NO_SHARES = Free()


class View:
    """What is in the documents, kept up by `update` and, as time passes, by `refresh`.

    Of each pool: `domains` are its documents, `free` its domains' shares, `ordinary` those of pods that are
    not important (by domain), `bounds` all others that are no place. `places` say where nodes are, in pools
    whose domains are not nodes.
    """

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self.being_copied = False  # a copy of another ledger that has not ended
        self.pools: dict[str, Pool] = {}
        self.resources: dict[str, Pool] = {}
        self.domains: dict[str, dict[str, Domain]] = {}
        self.free: dict[str, Free] = {}
        self.ordinary: dict[str, Free] = {}
        self.bounds: dict[str, Free] = {}
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
        """The pool's domains, those too that only have claims; no bounds and no stripes."""
        found = (name for name in self.domains.get(pool, {}) if "#" not in name and not is_bound(name))
        return [name for name in found if self._matters(pool, name)]

    def _matters(self, pool: str, name: str) -> bool:
        return self.capacity(pool, name) is not None or any(
            part.claims for part in self.parts(pool, name).values()
        )

    def capacity(self, pool: str, name: str) -> int | tuple[str, ...] | None:
        """A domain's capacity: its units' names in a named pool, None where it has no share of the pool."""
        return self.domains.get(pool, {}).get(name, _EMPTY).size

    def capacities(self) -> dict[tuple[str, str], int | tuple[str, ...] | None]:
        """By pool and domain; bounds, and those that only have claims (None), too."""
        names = ((pool, name) for pool, found in self.domains.items() for name in found if "#" not in name)
        return {(pool, name): self.capacity(pool, name) for pool, name in names}

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
            places.add((domain_of(key)[0], domain_of(key)[1].partition("#")[0]))
        for pool, place in places:
            if pool in more and (seen := self.kept_of_bound(pool, f"{place}{UNRESERVED}", owners, now)):
                more[pool][f"{place}{UNRESERVED}"] = more[pool].get(f"{place}{UNRESERVED}", 0) + seen[place]
        return Shares(self, more)

    def _more(
        self, more: dict[str, dict[str, int]], key: str, own: int, owners: Collection[str], now: float
    ) -> None:
        """Add what a document has more for one pod: its `own` units, or what is kept for its owner."""
        pool, name = domain_of(key)
        if pool in more:
            domain, place = self.at(key), name.partition("#")[0]
            seen = domain.room(pool, name, owners, now, own) - domain.room(pool, name, (), now)
            more[pool][place] = more[pool].get(place, 0) + seen

    def kept_for(self, owners: Collection[str], now: float) -> list[tuple[str, str]]:
        """Where units are kept for these owners that they may have now, as (pool, domain)."""
        found = []
        for key in sorted(self._keys_kept(owners)):
            domain = self.at(key)
            there = domain.waiting if domain.capacity is not None else ()
            if any(each.owner in owners and each.rest <= now < each.kept for each in there):
                pool, name = domain_of(key)
                found.append((pool, name.partition("#")[0]))
        return found

    def kept_of_bound(self, pool: str, bound: str, owners: Collection[str], now: float) -> dict[str, int]:
        """Units that a bound counts because they are kept for these owners, by where they are: there the
        owners take no more of it when they take them."""
        found: dict[str, int] = {}
        if self._closed(pool, bound):
            return found
        for name, part in self.parts(pool, bound).items():
            units = part.nameless(pool, name, (), now) if part.left else ()
            for left, count in zip(part.left, units, strict=True):
                owner, _, where = left.owner.rpartition("@")
                if owner in owners and left.rest <= now:
                    place = where.partition("/")[2]
                    found[place] = found.get(place, 0) + count
        return found

    def kept(self, pool: str, now: float) -> int:
        """Units of the pool that some owners' pods may have now, and nobody else."""
        found = 0
        places = {name: each for name, each in self.domains.get(pool, {}).items() if not is_bound(name)}
        for name, domain in places.items():
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
        return self.domains.get(pool, {}).get(name.partition("#")[0], _EMPTY).closed

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
        shares = {place: self._share(pool, place) for place in {name.partition("#")[0] for name in names}}
        ordinary = {name: share for name, share in shares.items() if name.endswith(UNRESERVED)}
        bounds = {name: share for name, share in shares.items() if is_bound(name) and name not in ordinary}
        free = {name: share for name, share in shares.items() if not is_bound(name)}
        self.free = _changed(self.free, pool, free)
        self.bounds = _changed(self.bounds, pool, bounds)
        self.ordinary = _changed(
            self.ordinary, pool, {name.removesuffix(UNRESERVED): share for name, share in ordinary.items()}
        )

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
        self.bounds = {pool: _with(view.bounds.get(pool, _NO_SHARES), found) for pool, found in more.items()}
        self.ordinary = {
            pool: _with(
                view.ordinary.get(pool, _NO_SHARES),
                {name[:-1]: units for name, units in found.items() if name.endswith(UNRESERVED)},
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
        if left.owner and not is_bound(name)
    }


def _unique(claims: Iterable[Claim]) -> list[Claim]:
    """One per pod and attempt: a claim over several domains is found in each."""
    return list({(claim.uid, claim.node, claim.attempt): claim for claim in claims}.values())
