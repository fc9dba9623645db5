"""What claims draw from: Pools, nodes' places, domains' capacities, PoolClaims, and the epoch of it all.
It frees nothing and asks no API server: what is so in the cluster is the caller's to know."""

import copy
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple, Self

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.api.poolclaim import MOST_UNITS
from berth.errors import BerthError, ContentionError, MovedError, RebuildingError, StoreFailedError
from berth.ledger import capacity as sizes
from berth.ledger import retained
from berth.ledger.follow import Follower
from berth.ledger.model import (
    CLUSTER,
    LOOK,
    NAMESPACE,
    POOL,
    REBUILD,
    UNFENCED,
    Domain,
    Epoch,
    Places,
    PoolClaimSpec,
    RetainedUnits,
    decode_domain,
    decode_epoch,
    decode_pool,
    decode_uids,
    domain_key,
    domain_of,
    encode,
    encode_uids,
    node_key,
    pool_key,
    stripe_keys,
    turn_key,
)
from berth.ledger.transaction import NO_FENCE, BusyError, Commits, Fence, OutdatedError, Writes
from berth.ledger.transitions import Capacity, CapacityChange, Domains
from berth.ledger.turns import Turns
from berth.ledger.view import View
from berth.stores.base import EPOCH, Document, Store, Version

Which = tuple[str, str]
"""A pool and a domain."""

Moving = Mapping[str, RetainedUnits]
"""What is left, by unit, of units that another domain listed before."""

NOTHING_MOVES: Moving = MappingProxyType({})

_HELD = (EPOCH, UNFENCED)


class HeldBack(NamedTuple):
    """Resources of which nothing is given, for pods with these UIDs may be bound by a Binding from before the
    ledger was lost (decision 0026); and the epoch in which that is so."""

    uids: frozenset[str] = frozenset()
    resources: tuple[str, ...] = ()
    epoch: str = ""

    @property
    def body(self) -> bytes | None:
        return encode_uids(self.uids) if self.uids else None


NOTHING_BACK = HeldBack()


class Keeper:
    """What the claims in one store draw from. Every call may raise the store's errors, ContentionError and,
    while the epoch is absent, RebuildingError, or, once it says that the ledger is copied elsewhere,
    PausedError or MovedError; then nothing was changed, or, where a call is given many Pools, domains or
    claims, some of them: the same call again does the rest."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        while_closed: bool = False,
        cluster: Callable[[], str] | None = None,
        name: str = "",
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """`while_closed` is for reconcile, which must work on a ledger that has no epoch (yet).

        `cluster` tells the identity of the cluster that the caller acts for: then whatever decides something
        raises OtherClusterError, and changes nothing, in the ledger of another one. `name` is for its text.
        """
        self._store, self._clock, self._monotonic = store, clock, monotonic
        self._while_closed = while_closed
        self._follower = Follower(store.changes, clock)
        self._commits = Commits(
            store,
            monotonic=monotonic,
            sleep=sleep,
            while_closed=while_closed,
            cluster=cluster,
            name=name,
        )
        self._turns = Turns(store, self._commits, monotonic=monotonic, sleep=sleep, new_id=new_id)
        self._new_id = new_id
        self._turn = ""

    # What is there

    def check(self) -> None:
        """Raise a store error if the store does not answer, MovedError if the ledger is elsewhere now."""
        found = self._store.read([EPOCH]).get(EPOCH)
        epoch = None if found is None else decode_epoch(found.body)
        if epoch is not None and epoch.moved:
            raise MovedError(epoch.to)

    def require_ours(self) -> None:
        """Raise OtherClusterError if the ledger is another cluster's."""
        self._commits.write({})

    def make_ours(self) -> None:
        """The same, and write into a ledger that names no cluster yet that it is this one's."""
        named = CLUSTER in self._store.read([CLUSTER])
        self._commits.write({} if named else self._commits.owner())

    def view(self) -> View:
        """All the ledger holds, as `changes` tells it; see View for what it does not promise. Who works
        `while_closed` may look at one that is paused or was moved."""
        view = self._follower.view()
        if not self._while_closed:
            epoch = view.epoch  # once: another thread may be updating the view
            if epoch is None:
                raise RebuildingError
            if (trouble := epoch.trouble()) is not None:
                raise trouble
        return view

    # Looks at what users wrote

    def look(self, at: str = LOOK) -> Self:
        """This ledger for one look at the Pools (or at PoolClaims: `at` is whose turn it is) that begins now.

        Read them after this call. Whatever is changed by it expects that no look began later: who began later
        has read later, and is not undone. The other then gets OutdatedError, and changes nothing any more.
        """
        mine = self._new_id().encode()
        self._commits.write({at: mine})
        looking = copy.copy(self)
        looking._turn = at
        looking._begin(mine)
        return looking

    def beside_looks(self) -> Self:
        """This ledger for a look at something else by the Pools as they are in it: OutdatedError as soon as a
        look at the Pools begins, or changes them. It stops nobody's look."""
        found = self._store.read([LOOK]).get(LOOK)
        beside = copy.copy(self)
        beside._expect({LOOK: None if found is None else found.version})
        return beside

    def snapshot(self) -> None:
        """Within a look: the next View is read anew, and lags behind nothing that was committed before."""
        self._follower = Follower(self._store.changes, self._clock)

    def _begin(self, mine: bytes) -> None:
        """Expect from now on that the turn is still this one."""
        found = self._store.read([self._turn]).get(self._turn)
        if found is None or found.body != mine:
            raise OutdatedError
        self._expect({self._turn: found.version})

    def _expect(self, fence: Fence) -> None:
        self._commits = self._commits.within(fence)
        self._turns = self._turns.within(self._commits)

    # Pools and nodes

    def pools(self) -> dict[str, Pool]:
        """The Pools as the store has them now, where the View knows of them."""
        found: dict[str, Pool] = {}
        for batch in self._store.batches([pool_key(name) for name in self.view().pools]):
            for key, document in self._store.read(batch).items():
                name = key.removeprefix(POOL)
                found[name] = decode_pool(name, document.body)
        return found

    def apply_pools(self, pools: Mapping[str, Pool]) -> list[str]:
        """Make the ledger's Pools these; the names of those added, changed or removed.

        Within a look the turn is renewed by each commit: what others decided by the Pools of before is too
        late (`beside_looks`).
        """
        known = self.view().pools
        changed = sorted(name for name in {*known, *pools} if known.get(name) != pools.get(name))
        writes = {pool_key(name): encode(pools[name]) if name in pools else None for name in changed}
        # Whoever has the turn to list units of a Pool that goes lists no more; nothing of it stays.
        writes |= {turn_key(name): None for name in changed if name not in pools}
        for batch in self._store.batches(writes):
            mine = self._new_id().encode()
            turn = {self._turn: mine} if self._turn else {}
            self._commits.write({**{key: writes[key] for key in batch}, **turn})
            if turn:
                self._begin(mine)
        return changed

    def set_places(self, wanted: Mapping[str, Places], known: Mapping[str, Places]) -> list[str]:
        """Say where nodes are, by their names; {}: the node is gone. The nodes for which that is news.

        As with capacities, only where it still is what was `known` before the caller looked.
        """
        changed: list[str] = []
        by_key = {
            node_key(node): (node, known.get(node, {}), places)
            for node, places in wanted.items()
            if known.get(node, {}) != places
        }
        for batch in self._store.batches(by_key):
            some = {key: by_key[key] for key in batch}
            changed += self._commits.run_places(some, partial(_placed, some))
        return sorted(changed)

    def set_wants(
        self,
        wanted: Mapping[Which, PoolClaimSpec | None],
        failed: Callable[[Which, BerthError], object] = lambda *_: None,
    ) -> list[Which]:
        """Say what PoolClaims want, by pool and domain; None: there is none any more. Those that changed.

        One that the store can't take is told to `failed`, and is nobody else's trouble: users make them.
        """
        changed: list[Which] = []
        by_key = {domain_key(*which): (which, wants) for which, wants in wanted.items()}
        gone = {key for key, (_, wants) in by_key.items() if wants is None}
        for keys in (gone, by_key.keys() - gone):  # what makes room comes first
            for batch in self._store.batches(keys):
                changed += self._want({key: by_key[key] for key in batch}, failed)
        return changed

    def _want(
        self,
        some: Mapping[str, tuple[Which, PoolClaimSpec | None]],
        failed: Callable[[Which, BerthError], object],
    ) -> list[Which]:
        """These in one commit; if that can't be, in halves, down to those that fail by themselves."""
        try:
            return self._commits.run(some, partial(_wanting, some))
        except (StoreFailedError, BusyError) as error:
            if len(some) == 1:
                failed(next(iter(some.values()))[0], error)
                return []
        ordered = sorted(some)
        parts = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
        return [which for part in parts for which in self._want({key: some[key] for key in part}, failed)]

    # Capacities

    def set_capacities(
        self,
        wanted: Mapping[Which, Capacity],
        known: Mapping[Which, Capacity],
        stripes: Collection[Which] = (),
    ) -> list[CapacityChange]:
        """Set the capacity of domains by (pool, domain), or drop it with None; those that changed. Which of
        them are to be in `stripes` counts when they are made.

        Only where it still is what was `known` before the caller asked the API server: else somebody has set
        it since, by a later look. Holders of a domain whose capacity falls below what they hold stay; nothing
        new is given there. A unit's name that moved to another domain is taken from the one before it is
        given to the other, and there only when no pod holds it any more.
        """
        different = [
            CapacityChange(*which, known.get(which), capacity)
            for which, capacity in wanted.items()
            if known.get(which) != capacity
        ]
        narrowed = [narrow for each in different if (narrow := sizes.narrowed(each)) is not None]
        done = list(self._resize(narrowed, stripes))
        left = [sizes.rest_of(each, narrowed) for each in different]
        left = [each for each in left if each.before != each.after]
        done += self._resize([each for each in left if not isinstance(each.after, tuple)], stripes)
        names = sorted(each for each in left if isinstance(each.after, tuple))
        for pool, some in groupby(names, lambda each: each.pool):
            self._turns.run(pool, partial(self._listed, list(some), stripes, done))
        return done

    def _listed(
        self,
        changes: Collection[CapacityChange],
        stripes: Collection[Which],
        done: list[CapacityChange],
        documents: Mapping[str, Domain],
        fence: Fence,
    ) -> None:
        """The changes made, without names that another domain lists or that a pod holds there."""
        free = sizes.not_elsewhere(changes, {each.pool: documents for each in changes})
        moving = retained.unlisted(documents.values())
        done.extend(
            self._resize([each for each in free if each.before != each.after], stripes, fence, moving)
        )

    def bound_retention(self) -> None:
        """Write down that nothing rests, or is kept, for longer from now than its Pool says; documents that
        told of nothing else go when it is over.

        A wrong clock's times, and those of a Pool that said more, would stand for days. Who only reads them
        can't bound them: at each moment it would be as long again (docs/decisions/0029).
        """
        view, now = self.view(), self._clock()
        wrong = [
            domain_key(pool, name)
            for pool, domains in view.domains.items()
            for name, domain in domains.items()
            if domain.left and retained.bounded(domain, view.pools.get(pool), now) is not domain
        ]
        gone: set[Which] = set()
        for batch in self._store.batches(wrong):
            gone |= self._commits.run(batch, partial(_believed, view.pools, now))
        for pool, domain in sorted({(pool, name.partition("#")[0]) for pool, name in gone if "#" in name}):
            self.reopen((pool, domain))

    def drop_limits(self, namespaces: Collection[str]) -> None:
        """Remove the limits of all namespaces but these, where nobody holds anything and nothing is counted
        that pods left; reserve makes one anew when the namespace's next pod comes."""
        view, now = self.view(), self._clock()
        limits = [
            (pool, name)
            for pool, domains in view.domains.items()
            for name in domains
            if name.startswith(NAMESPACE) and "#" not in name
        ]
        unused = [
            (pool, name)
            for pool, name in limits
            if name.removeprefix(NAMESPACE) not in namespaces
            and not any(_counts(part, now) for part in view.parts(pool, name).values())
        ]
        plain = [domain_key(*each) for each in unused if not view.at(domain_key(*each)).stripes]
        for batch in self._store.batches(plain):
            self._commits.run(batch, partial(_unused, now))
        for which in unused:
            if stripes := view.at(domain_key(*which)).stripes:
                keys = [domain_key(*which), *stripe_keys(*which, stripes)]
                self._commits.run(keys, partial(_unused_whole, which, keys, now))

    def prepare(self, wanted: Mapping[Which, Capacity]) -> None:
        """Make the stripes of domains that are to have these capacities, but give them none yet: so that
        pods can be adopted there before anything is given out."""
        heads = self._read(domain_key(*which) for which in wanted)
        for which, capacity in wanted.items():
            key, count = domain_key(*which), sizes.stripes_for(capacity)
            if not heads[key].stripes:
                self._commits.run([key], partial(_prepared, key, count))

    def reopen(self, which: Which) -> None:
        """Open a closed domain if there is enough of it again, and share out anew what is free."""
        key = domain_key(*which)
        head = self._read([key])[key]
        if head.stripes:
            self._cut(CapacityChange(*which, head.size, head.size))

    # The epoch

    def begin_rebuild(self, rebuild_id: str) -> Version:
        """Say that this caller rebuilds the ledger; the mark that `open` wants. Raises ContentionError."""
        self._commits.write({REBUILD: rebuild_id.encode(), **self._commits.owner()})
        found = self._store.read([REBUILD]).get(REBUILD)
        if found is None or found.body != rebuild_id.encode():
            raise ContentionError("another reconcile is rebuilding berth's ledger; leaving it to that one")
        return found.version

    def is_rebuilding(self, mark: Version) -> bool:
        """Whether the rebuild that has this mark goes on: since then nobody has opened the ledger or begun
        another rebuild, and it was not lost again."""
        found = self._store.read([REBUILD, EPOCH])
        return EPOCH not in found and REBUILD in found and found[REBUILD].version == mark

    def open(self, epoch_id: str, mark: Version, back: HeldBack = NOTHING_BACK) -> None:
        """Let verbs use the ledger: what bound pods hold is in it, and what others may take is held `back`.

        Raises ContentionError where the ledger was lost again, or another reconcile began to rebuild it,
        since the mark was made."""
        epoch = Epoch(epoch_id, self._clock(), held=back.resources)
        writes = {EPOCH: encode(epoch), UNFENCED: back.body, REBUILD: None}
        if not self._store.commit(writes, {EPOCH: None, REBUILD: mark}):
            raise lost_again()

    def held_back(self) -> HeldBack:
        """What is held back now."""
        return _held_back(self._store.read(_HELD))

    def hold_back(self, back: HeldBack, before: HeldBack) -> bool:
        """Hold back this in place of `before`; False, and nothing is changed, if that is no longer so."""
        found = self._store.read(_HELD)
        epoch = decode_epoch(found[EPOCH].body) if EPOCH in found else None
        if epoch is None or _held_back(found) != before:
            return False
        writes = {EPOCH: encode(replace(epoch, held=back.resources)), UNFENCED: back.body}
        return self._store.commit(
            writes, {key: found[key].version if key in found else None for key in _HELD}
        )

    def _read(self, keys: Iterable[str]) -> dict[str, Domain]:
        """Domains as the store has them now."""
        keys = set(keys)
        found: dict[str, Document] = {}
        for batch in self._store.batches(keys):
            found |= self._store.read(batch)
        return {key: decode_domain(found[key].body if key in found else None) for key in keys}

    def _resize(
        self,
        changes: Collection[CapacityChange],
        stripes: Collection[Which],
        fence: Fence = NO_FENCE,
        moving: Moving = NOTHING_MOVES,
    ) -> Iterator[CapacityChange]:
        """Each change that is made, once it is. `moving` are units that rest and that another domain had."""
        if not changes:
            return
        view = self.view()
        whole = {each.which for each in changes if each.which in stripes or view.at(each.key).stripes}
        yield from (each for each in changes if each.which in whole and self._cut(each, fence, moving))
        plain = {each.key: each for each in changes if each.which not in whole}
        for batch in self._store.batches(plain):
            some = {key: plain[key] for key in batch}
            yield from self._commits.run(some, partial(_resized, some, moving), fence)

    def _cut(self, change: CapacityChange, fence: Fence = NO_FENCE, moving: Moving = NOTHING_MOVES) -> bool:
        """Resize one domain that is in stripes; whether it still had the capacity that the change is from."""
        key = change.key
        head = self._read([key])[key]
        count = sizes.stripes_for(change.after, head.stripes)
        keys = stripe_keys(change.pool, change.domain, count)

        def decide(domains: Domains) -> tuple[bool, Writes]:
            head = domains[key]
            if head.size != change.before or head.stripes > count:
                return False, {}
            if head.claims:  # from when it was small, or of another scope: it stays whole until they are gone
                return True, {key: retained.carried(sizes.plain(head, change.after), head, moving)}
            stripes = [domains[each] for each in keys[: head.stripes]]
            now = self._clock()
            changed = sizes.cut(change.pool, change.domain, head, stripes, change.after, moving, now)
            return True, {domain_key(change.pool, name): domain for name, domain in changed.items()}

        return self._commits.run([key, *keys], decide, fence)


def lost_again() -> ContentionError:
    return ContentionError(
        "berth's ledger was lost again or is being rebuilt by another reconcile; try again"
    )


def _held_back(found: Mapping[str, Document]) -> HeldBack:
    epoch = decode_epoch(found[EPOCH].body) if EPOCH in found else None
    if epoch is None or not epoch.held:
        return NOTHING_BACK
    uids = decode_uids(found[UNFENCED].body if UNFENCED in found else None)
    return HeldBack(uids, epoch.held, epoch.id)


def _resized(
    wanted: Mapping[str, CapacityChange], moving: Moving, domains: Domains
) -> tuple[list[CapacityChange], Domains]:
    """Those of the wanted changes (by key) whose domain still has the capacity they start from."""
    changes = {key: each for key, each in wanted.items() if domains[key].size == each.before}
    resized = {key: sizes.plain(domains[key], each.after) for key, each in changes.items()}
    carried = {key: retained.carried(each, domains[key], moving) for key, each in resized.items()}
    return list(changes.values()), carried


def _believed(pools: Mapping[str, Pool], now: float, domains: Domains) -> tuple[set[Which], Domains]:
    """Nothing rests or is kept for longer than its Pool says; the domains that say nothing then."""
    believed = {
        key: retained.bounded(each, pools.get(domain_of(key)[0]), now) for key, each in domains.items()
    }
    changed = {key: each for key, each in believed.items() if each is not domains[key]}
    return {domain_of(key) for key, each in changed.items() if each.empty}, changed


def _counts(limit: Domain, now: float) -> bool:
    """Whether a namespace's limit, or a stripe of it, counts anything."""
    return bool(limit.claims) or any(left.stands(now) for left in limit.left)


def _unused(now: float, domains: Domains) -> tuple[None, Domains]:
    """Those of the domains that count nothing have no capacity any more."""
    unused = {key: each for key, each in domains.items() if not _counts(each, now) and not each.stripes}
    return None, {key: sizes.plain(each, None) for key, each in unused.items()}


def _unused_whole(which: Which, keys: Sequence[str], now: float, domains: Domains) -> tuple[None, Domains]:
    """The same of one domain, whose documents are its head and stripes."""
    head, *stripes = (domains[key] for key in keys)
    if head.stripes != len(stripes) or any(_counts(each, now) for each in stripes):
        return None, {}
    changed = sizes.cut(*which, head, stripes, None)
    return None, {domain_key(which[0], name): each for name, each in changed.items()}


def _placed(
    wanted: Mapping[str, tuple[str, Places, Places]], places: Mapping[str, Places]
) -> tuple[list[str], Writes]:
    """Those of the wanted (by key: a node, where it was, where it is) that still are where they were."""
    changed = {key: each for key, each in wanted.items() if places[key] == each[1]}
    writes = {key: encode(now) if now else None for key, (_, _, now) in changed.items()}
    return [node for node, *_ in changed.values()], writes


def _prepared(key: str, count: int, domains: Domains) -> tuple[None, Domains]:
    there = domains[key].stripes or domains[key].claims
    return None, {} if there else {key: replace(domains[key], stripes=count)}


def _wanting(
    wanted: Mapping[str, tuple[Which, PoolClaimSpec | None]], domains: Domains
) -> tuple[list[Which], Domains]:
    changed: dict[str, Domain] = {}
    for key, (_, wants) in wanted.items():
        now = domains[key].wants or PoolClaimSpec(0)
        new = None if wants is None else replace(wants, domain=now.domain, had=now.had[:MOST_UNITS])
        if new != domains[key].wants:
            capacity = None if new is None else 0 if new.refused else 1
            changed[key] = replace(domains[key], wants=new, capacity=capacity)
    return [wanted[key][0] for key in changed], changed
