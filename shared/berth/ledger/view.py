"""All that the ledger holds, as far as its store's `changes` have told, and what is free by that.
It may lag behind the store, so it advises (filter, scores, where a pod's claims are); reserve decides."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from math import inf

from berth.api.pool import Pool, by_resource
from berth.coalesce import Coalesced
from berth.ledger.due import Due
from berth.ledger.free import Free, Share
from berth.ledger.freed import moment
from berth.ledger.gang_note import GangNote, note_of
from berth.ledger.keys import (
    DOMAIN,
    GANG,
    NODE,
    OVERRUNS,
    POOL,
    REBUILD,
    USAGE,
    domain_key,
    domain_of,
    owner_of_kept,
    parse_domain,
    stripe,
    stripe_keys,
    unreserved_quota,
)
from berth.ledger.model import (
    COPY,
    FIRST,
    Claim,
    Documents,
    Domain,
    Epoch,
    Freed,
    LineHold,
    Places,
    Rank,
    decode_domain,
    decode_epoch,
    decode_places,
    decode_pool,
)
from berth.ledger.overlay import Overlay
from berth.ledger.overruns import Overruns, overruns_of
from berth.stores.base import EPOCH, Changes, Cursor

_EMPTY = Domain()
_NO_DOMAINS = Overlay[Domain]()
_NO_SHARES = Free()
_NO_KEYS: frozenset[str] = frozenset()
_RECENT_SECONDS = 10.0  # for so long it is known what was seen to be freed
_FEW = 200
"""Changed documents that are decoded while others wait: a few milliseconds of work."""


class Index:
    """Sets of keys by whom they belong to: a pod or an owner. Who has none is not in it.

    One thread changes it while others read: sets are replaced, never changed.
    """

    def __init__(self) -> None:
        self._keys: dict[str, frozenset[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys))

    def of(self, who: str) -> frozenset[str]:
        """Return the keys of one; the same object as long as nothing changes."""
        return self._keys.get(who, _NO_KEYS)

    def add(self, pairs: Iterable[tuple[str, str]]) -> None:
        for who, key in pairs:
            known = self._keys.get(who)
            self._keys[who] = frozenset((key,)) if known is None else known | {key}

    def remove(self, pairs: Iterable[tuple[str, str]]) -> None:
        for who, key in pairs:
            if rest := self.of(who) - {key}:
                self._keys[who] = rest
            else:
                self._keys.pop(who, None)


class View:
    """What is in the documents, kept up by `update` and, as time passes, by `refresh`.

    Of each pool: `domains` are its documents, `free` the shares of its places, `unreserved` those of the
    places' units that are not reserved, `quotas` those of the other quotas. `places` say where nodes are, in
    pools whose domains are not nodes; `line_holds` what is held for the first in line, by document; `gangs`
    what is noted of gangs, by namespace/name; `last_freed` when it was seen last that units came free
    while pods waited; `overruns` until when owners are not believed how long their
    pods run.
    """

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self.being_copied = False  # a copy of another ledger that has not ended
        self.pools: dict[str, Pool] = {}
        self.resources: dict[str, Pool] = {}
        self.domains: dict[str, Overlay[Domain]] = {}
        self.free: dict[str, Free] = {}
        self.unreserved: dict[str, Free] = {}
        self.quotas: dict[str, Free] = {}
        self.places: dict[str, dict[str, str]] = {}
        self.nodes: dict[str, Places] = {}
        self.line_holds: dict[str, LineHold] = {}
        self.gangs: dict[str, GangNote] = {}
        self.overruns: Overruns = {}
        self.journal = frozenset[str]()  # keys of what the journal has; it is read when it is asked for
        # Where claims stand, by UID, by the pod's name, and lost ones by UID; where units are kept, by owner;
        # where claims of a gang stand, by its label.
        self._uids, self._labels, self._lost, self._kept = Index(), Index(), Index(), Index()
        self._of_gangs = Index()
        self._rooms: dict[tuple[str, str], int] = {}
        self._wholes: dict[str, tuple[Domain, float, float | None]] = {}
        self.last_freed = -inf
        self._freed: dict[str, dict[str, float]] = {}
        self._due = Due()  # when what is free of a document changes by itself

    @property
    def open(self) -> bool:
        return self.epoch is not None

    @property
    def held(self) -> tuple[str, ...]:
        """Return the resources of which nothing is given now."""
        epoch = self.epoch
        return () if epoch is None else epoch.held

    def update(self, documents: Mapping[str, bytes | None], now: float = 0.0) -> None:
        """Take over documents that changed.

        Only one thread may call this, but others read meanwhile: dicts that they go through are replaced,
        never changed; a claim that moves has a key all the time; and what opens the ledger comes last.
        """
        if not documents:
            return
        changed: dict[str, dict[str, Domain]] = {}
        for key, body in documents.items():
            if key.startswith(DOMAIN):
                pool, name = domain_of(key)
                changed.setdefault(pool, {})[name] = decode_domain(body, key)
            elif key.startswith(POOL):
                self._update_pool(key.removeprefix(POOL), body)
        self._update_places({key: body for key, body in documents.items() if key.startswith(NODE)})
        self._update_gangs({key: body for key, body in documents.items() if key.startswith(GANG)})
        pages = {key: body is not None for key, body in documents.items() if key.startswith(USAGE)}
        if pages:
            self.journal = (self.journal - pages.keys()) | {key for key, there in pages.items() if there}
        old = {pool: {name: self.document(pool, name) for name in names} for pool, names in changed.items()}
        indexes = (self._uids, self._labels, self._lost, self._kept, self._of_gangs)
        entries = list(zip(indexes, _entries(old, changed), _entries(changed, old), strict=True))
        for index, before, after in entries:
            index.add(after - before)
        for pool, domains in changed.items():
            self._update_domains(pool, domains, now)
        for index, before, after in entries:
            gone = before - after
            if index is self._labels:  # another pod of the same name may stay there
                gone = {(label, key) for label, key in gone if not self._bears(label, key)}
            elif index is self._of_gangs:  # and another one of the same gang
                gone = {(gang, key) for gang, key in gone if not self._has_of(gang, key)}
            index.remove(gone)
        if OVERRUNS in documents:
            self.overruns = overruns_of(documents[OVERRUNS])
        if REBUILD in documents:
            self.being_copied = (documents[REBUILD] or b"").startswith(COPY.encode())
        if EPOCH in documents:
            self.epoch = decode_epoch(documents[EPOCH])

    def refresh(self, now: float) -> None:
        """Free the units that have rested, or been kept, long enough; one thread, as for `update`."""
        for pool, keys in groupby(sorted(self._due.take(now)), lambda key: key[0]):
            self._recount(pool, [name for _, name in keys], now)

    def due(self, until: float) -> dict[tuple[str, str], float]:
        """Return when more of documents, as (pool, name), may be given by time alone, until that time. Any
        thread may call it."""
        return self._due.until(until)

    def freed(self, pool: str, now: float) -> dict[str, Freed]:
        """Return what came free just now of the pool's documents while pods waited, by their names. It was
        seen here as short a time ago, too: a clock that is wrong must not make it last."""
        recent: dict[str, Freed] = {}
        for name, seen in list(self._freed.get(pool, {}).items()):
            freed = self.document(pool, name).freed
            if freed is not None and max(now - seen, abs(now - freed.at)) <= moment(freed.waiting):
                recent[name] = freed
        return recent

    # Claims

    def claims_of(self, uid: str) -> list[Claim]:
        """Return the pod's claims; more than one only while two bind calls for it overlap."""
        while True:
            keys = self.keys_of(uid)
            claims = [self.at(key).claims.get(uid) for key in sorted(keys)]
            if self.keys_of(uid) is keys:  # else a claim may have moved to where we did not look
                return _unique(claim for claim in claims if claim is not None)

    def keys_of(self, uid: str) -> frozenset[str]:
        """Return the keys of the domains in which the pod has a claim."""
        return self._uids.of(uid)

    def claims(self) -> list[Claim]:
        domains = [domain for documents in self.domains.values() for domain in documents.values()]
        return _unique(claim for domain in domains for claim in domain.claims.values())

    def lost(self, node: str | None = None) -> list[Claim]:
        """Return claims of pods that are gone, whose units the node (None: any) may still use."""
        claims = (claim for uid in self._lost for claim in self.claims_of(uid))
        return [claim for claim in claims if node in (None, claim.node)]

    def named(self, label: str, pool: str) -> list[Claim]:
        """Return the claims on the pool of the pods with this label; several while one of them leaves."""
        domains = [self.at(key) for key in self._labels.of(label) if domain_of(key)[0] == pool]
        claims = (claim for domain in domains for claim in domain.claims.values())
        return _unique(claim for claim in claims if claim.label == label)

    def gang(self, label: str) -> list[Claim]:
        """Return the claims of the pods of a gang, which is given as namespace/name."""
        domains = [self.at(key) for key in self._of_gangs.of(label)]
        claims = (claim for domain in domains for claim in domain.claims.values())
        return _unique(claim for claim in claims if claim.gang_label == label)

    def _has_of(self, gang: str, key: str) -> bool:
        """Whether a claim in the document of this key is of a pod of this gang."""
        return any(claim.gang_label == gang for claim in self.at(key).claims.values())

    def _bears(self, label: str, key: str) -> bool:
        """Whether a claim in the document of this key is of a pod with this label."""
        return any(claim.label == label for claim in self.at(key).claims.values())

    # Domains

    def at(self, key: str) -> Domain:
        """Return the document of a domain or stripe; an empty one where there is none."""
        return self.document(*domain_of(key))

    def document(self, pool: str, name: str) -> Domain:
        """Return the document of this domain or stripe; an empty one where there is none."""
        return self.domains.get(pool, _NO_DOMAINS).get(name, _EMPTY)

    def keys(self, pool: str, name: str) -> list[str]:
        """Return the keys of a domain and of all its stripes."""
        return [domain_key(pool, name), *stripe_keys(pool, name, self.document(pool, name).stripes)]

    def parts(self, pool: str, name: str) -> dict[str, Domain]:
        """Return the documents that a domain's claims stand in, by their names: itself, or its stripes."""
        count = self.document(pool, name).stripes
        names = [stripe(name, number) for number in range(count)] if count else [name]
        return {part: self.document(pool, part) for part in names}

    def names(self, pool: str) -> list[str]:
        """Return the pool's places, those too that only have claims; no quotas and no stripes."""
        names = map(parse_domain, self.domains.get(pool, ()))
        places = [name.text for name in names if not (name.stripe or name.is_quota)]
        return [
            place
            for place in places
            if self.capacity(pool, place) is not None
            or any(part.claims for part in self.parts(pool, place).values())
        ]

    def capacity(self, pool: str, name: str) -> int | tuple[str, ...] | None:
        """Return a domain's capacity: in a named pool its units' names; None where it has no share."""
        return self.document(pool, name).size

    def capacities(self) -> dict[tuple[str, str], int | tuple[str, ...] | None]:
        """Return capacities by pool and domain, with quotas, and with domains that only have claims."""
        return {
            (pool, name): domain.size
            for pool, domains in self.domains.items()
            for name, domain in domains.items()
            if not parse_domain(name).stripe
        }

    def free_for(
        self, rank: Rank, pools: Iterable[str], owners: Collection[str] = (), now: float = 0.0
    ) -> "Shares":
        """Return the free units of these pools as the pod sees them: neither what it holds itself nor what is
        kept for its owners, or held for it or for one behind it in line, stands in its way."""
        more: dict[str, dict[str, int]] = {pool: {} for pool in pools}
        own: dict[str, int] = {}
        for holding in (holding for claim in self.claims_of(rank.uid) for holding in claim.holdings):
            own[holding.key] = own.get(holding.key, 0) + holding.count
        keys_kept = self._keys_kept(owners)
        for key in {*own, *keys_kept, *self.keys_passed(rank, now)}:
            pool, name = domain_of(key)
            if pool in more:
                domain, whole = self.at(key), parse_domain(name).whole
                whose = owners if key in keys_kept else ()
                mine = domain.room(pool, name, whose, now, own.get(key, 0), rank)
                gained = mine - domain.room(pool, name, (), now)
                more[pool][whole] = more[pool].get(whole, 0) + gained
        places = {(pool, parse_domain(name).whole) for pool, name in map(domain_of, keys_kept)}
        for pool, place in places:
            quota = unreserved_quota(place)
            if pool in more and (kept := self.kept_of_quota(pool, quota, owners, now)):
                more[pool][quota] = more[pool].get(quota, 0) + kept[place]
        return Shares(self, more)

    def kept_for(self, owners: Collection[str], now: float) -> list[tuple[str, str]]:
        """Return where units are kept for these owners that they may have now, as (pool, domain)."""
        places = []
        for key in sorted(self._keys_kept(owners)):
            domain = self.at(key)
            listed = domain.retained_here if domain.capacity is not None else ()
            if any(units.owner in owners and units.rest_until <= now < units.kept_until for units in listed):
                pool, name = domain_of(key)
                places.append((pool, parse_domain(name).whole))
        return places

    def kept_of_quota(self, pool: str, quota: str, owners: Collection[str], now: float) -> dict[str, int]:
        """Return the units that a quota counts because they are kept for these owners, by place: the owners
        take no more of the quota when they take them there."""
        kept: dict[str, int] = {}
        if self._closed(pool, quota):
            return kept
        for name, part in self.parts(pool, quota).items():
            units = part.nameless(pool, name, (), now) if part.retained else ()
            for left, count in zip(part.retained, units, strict=True):
                owner, (_, place) = owner_of_kept(left.owner)
                if owner in owners and left.rest_until <= now:
                    kept[place] = kept.get(place, 0) + count
        return kept

    def kept(self, pool: str, now: float) -> int:
        """Return how many units of the pool only certain owners' pods may have now."""
        kept = 0
        for name, domain in self.domains.get(pool, {}).items():
            if parse_domain(name).is_quota:
                continue
            owners = {left.owner for left in domain.retained if left.rest_until <= now < left.kept_until}
            if owners and not self._closed(pool, name):
                free = domain.room(pool, name, (), now)
                kept += sum(domain.room(pool, name, (owner,), now) - free for owner in owners)
        return kept

    def held_in_line(self, pool: str, now: float) -> int:
        """Return how many units of the pool's places, free else, are held for the first in line."""
        return sum(self.held_at(*domain_of(key), now) for key in self.line_holds if domain_of(key)[0] == pool)

    def held_at(self, pool: str, name: str, now: float) -> int:
        """Return how many units of this document are held for the first in line and in no use; none of a
        quota's."""
        domain = self.document(pool, name)
        if domain.line_hold is None or parse_domain(name).is_quota or self._closed(pool, name):
            return 0
        return domain.room(pool, name, (), now, rank=FIRST) - domain.room(pool, name, (), now)

    def keys_passed(self, rank: Rank, now: float) -> frozenset[str]:
        """Return the keys of domains that are not closed, where units are held for a pod that this one need
        not wait for."""
        held = self.line_holds.items()
        return frozenset(key for key, hold in held if self._passes(key, hold, rank, now))

    def _passes(self, key: str, hold: LineHold, rank: Rank, now: float) -> bool:
        return not (hold.bars(rank, lambda: self._whole_by(key, now)) or self._closed(*domain_of(key)))

    def _whole_by(self, key: str, now: float) -> float | None:
        """Return as Domain.whole_by does; computed once for all pods that are looked at at one time."""
        domain, known = self.at(key), self._wholes.get(key)
        if known is None or known[0] is not domain or known[1] != now:
            known = self._wholes[key] = (domain, now, domain.whole_by(*domain_of(key), now))
        return known[2]

    def _keys_kept(self, owners: Iterable[str]) -> set[str]:
        """Return the keys of domains that are not closed, where units are kept for these owners."""
        keys = {key for owner in owners for key in self._kept.of(owner)}
        return {key for key in keys if not self._closed(*domain_of(key))}

    def _closed(self, pool: str, name: str) -> bool:
        """Whether more is used of the domain than there is: then nothing of it is given, kept or not."""
        return self.document(pool, parse_domain(name).whole).closed

    # Following changes

    def _update_pool(self, name: str, body: bytes | None) -> None:
        pools = {other: pool for other, pool in self.pools.items() if other != name}
        if body is not None:
            pools[name] = decode_pool(name, body)
        self.pools, self.resources = pools, by_resource(pools)

    def _update_gangs(self, documents: Mapping[str, bytes | None]) -> None:
        if documents:
            notes = {key.removeprefix(GANG): body for key, body in documents.items()}
            there = {label: note_of(body) for label, body in notes.items() if body is not None}
            self.gangs = {**{gang: note for gang, note in self.gangs.items() if gang not in notes}, **there}

    def _update_places(self, documents: Mapping[str, bytes | None]) -> None:
        if not documents:
            return
        changed = {key.removeprefix(NODE): decode_places(body, key) for key, body in documents.items()}
        nodes, places = {**self.nodes, **changed}, dict(self.places)
        for pool in {pool for node in changed for pool in (*self.nodes.get(node, ()), *changed[node])}:
            domains = {
                **places.get(pool, {}),
                **{node: of[pool] for node, of in changed.items() if pool in of},
            }
            for node, of in changed.items():
                if pool not in of:
                    domains.pop(node, None)
            places[pool] = domains
        for node, of in changed.items():
            if not of:
                del nodes[node]
        self.nodes, self.places = nodes, {pool: domains for pool, domains in places.items() if domains}

    def _update_domains(self, pool: str, changed: Mapping[str, Domain], now: float) -> None:
        domains = self.domains.get(pool, _NO_DOMAINS).with_changes(
            {name: None if domain.empty else domain for name, domain in changed.items()}
        )
        freed = {name: now for name, one in changed.items() if one.freed != self.document(pool, name).freed}
        if freed:
            known = self._freed.get(pool, {}).items()
            self._freed[pool] = {name: seen for name, seen in known if now - seen < _RECENT_SECONDS} | freed
            self.last_freed = now
        self.domains = {**self.domains, pool: domains}
        self._update_line_holds(pool, changed)
        self._recount(pool, changed, now)

    def _update_line_holds(self, pool: str, changed: Mapping[str, Domain]) -> None:
        holds = {name: None if one.empty else one.line_hold for name, one in changed.items()}
        if self.line_holds or any(holds.values()):
            by_key = {domain_key(pool, name): hold for name, hold in holds.items()}
            merged = {**self.line_holds, **by_key}
            self.line_holds = {key: hold for key, hold in merged.items() if hold is not None}
            self._wholes = {}

    def _recount(self, pool: str, names: Iterable[str], now: float) -> None:
        documents = self.domains[pool]
        for name in names:
            domain = documents.get(name, _EMPTY)
            self._rooms[(pool, name)] = domain.room(pool, name, (), now)
            self._due.set((pool, name), domain.next_change(now))
            if name not in documents:
                del self._rooms[(pool, name)]
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
        free, quotas, unreserved = view.free, view.quotas, view.unreserved
        self.free = {pool: _with(free.get(pool, _NO_SHARES), units) for pool, units in more.items()}
        self.quotas = {pool: _with(quotas.get(pool, _NO_SHARES), units) for pool, units in more.items()}
        self.unreserved = {
            pool: _with(unreserved.get(pool, _NO_SHARES), _unreserved(units)) for pool, units in more.items()
        }


class Follower:
    """The View of one store, which follows its `changes`; threads that ask at the same time share one look.

    Whoever asks sees what the store tells of when they asked, but not that nothing has changed since.
    """

    def __init__(
        self,
        changes: Callable[[Cursor | None], Changes],
        clock: Callable[[], float] = time.time,
        at_once: Callable[[Cursor], Changes | None] | None = None,
    ) -> None:
        """`at_once` is as in stores.base.Prompt, where the store can do that."""
        self._changes, self._clock, self._at_once = changes, clock, at_once
        self.last = View()  # after the last look
        self._cursor: Cursor | None = None
        self._shared = Coalesced(self._look)

    def view(self) -> View:
        """Return the View after a look that began after the call. Raises the store's errors."""
        return self._shared()

    def view_at_once(self) -> View | None:
        """Return the View as `view` does if that takes next to no time; None: ask `view`, which may wait.
        Raises the store's errors."""
        return None if self._at_once is None else self._shared.at_once(self._look_at_once)

    def _look_at_once(self) -> View | None:
        changes = self._at_once(self._cursor) if self._at_once is not None and self._cursor else None
        if changes is None or changes.snapshot or len(changes.documents) > _FEW:
            return None
        return self._followed(changes)

    def _look(self) -> View:
        return self._followed(self._changes(self._cursor))

    def _followed(self, changes: Changes) -> View:
        # Whoever waited for the last look may take the View only now: it must not be one that is half read.
        view, now = View() if changes.snapshot else self.last, self._clock()
        view.update(changes.documents, now)
        view.refresh(now)
        self.last, self._cursor = view, changes.cursor
        return view


def _entries(documents: Documents, others: Documents) -> list[set[tuple[str, str]]]:
    """Return whose these documents are, with their keys: what each of a View's indexes has of them. Claims
    that are the same in `others`, those documents at another time, are left out."""
    keyed = [
        (domain_key(pool, name), domain, others[pool][name].claims)
        for pool, domains in documents.items()
        for name, domain in domains.items()
    ]
    claims = [
        (claim, key)
        for key, domain, known in keyed
        for claim in domain.claims.values()
        if known.get(claim.uid) != claim
    ]
    return [
        {(claim.uid, key) for claim, key in claims},
        {(claim.label, key) for claim, key in claims},
        {(claim.uid, key) for claim, key in claims if claim.state == "lost"},
        {
            (left.owner, key)
            for key, domain, _ in keyed
            for left in domain.retained
            if left.owner and not parse_domain(domain_of(key)[1]).is_quota
        },
        {(claim.gang_label, key) for claim, key in claims if claim.gang},
    ]


def _changed(shares: dict[str, Free], pool: str, changes: Mapping[str, Share | None]) -> dict[str, Free]:
    return {**shares, pool: shares.get(pool, _NO_SHARES).with_changes(changes)} if changes else shares


def _with(free: Free, more: Mapping[str, int]) -> Free:
    changes = {
        name: (min(free[name][0] + units, free[name][1]), free[name][1])
        for name, units in more.items()
        if name in free
    }
    return free.with_changes(changes) if changes else free


def _unreserved(units: Mapping[str, int]) -> dict[str, int]:
    """Return those of the units, by domain, that are of places' unreserved units; by place."""
    names = {parse_domain(name): count for name, count in units.items()}
    return {name.place: count for name, count in names.items() if name.kind == "unreserved"}


def _unique(claims: Iterable[Claim]) -> list[Claim]:
    """Return one claim per pod and attempt: a claim over several domains stands in all of them."""
    return list({(claim.uid, claim.node, claim.attempt): claim for claim in claims}.values())
