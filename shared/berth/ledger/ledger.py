"""Claims (reserve, confirm, cancel, release, adopt), then what claims draw from, then the epoch.
Written once for all stores. It asks no API server: whether a pod is gone is for the caller to know."""

import copy
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Literal, Self

from msgspec.structs import replace

from berth.api.gang import label_before
from berth.api.pool import EVERYWHERE, Pool
from berth.errors import (
    BerthError,
    ContentionError,
    MovedError,
    RebuildingError,
    RefusedError,
    StoreFailedError,
)
from berth.ledger import allocation, capacity, last_reading, overruns, refusals, retained, transitions
from berth.ledger.allocation import STRIPE, At, Requester, Short, StripeFullError
from berth.ledger.capacity import Capacity, CapacityChange
from berth.ledger.freed import NO_WAITERS, Waiters
from berth.ledger.gang_note import GangNote, GangSeen, claims_now, encode_note, note_of
from berth.ledger.journal import Journal
from berth.ledger.keys import (
    CLUSTER,
    LOOK,
    OVERRUNS,
    POOL,
    REBUILD,
    RECONCILED,
    UNFENCED,
    PoolDomain,
    domain_key,
    domain_of,
    gang_key,
    node_key,
    parse_domain,
    pool_key,
    reading_key,
    stripe_keys,
    turn_key,
)
from berth.ledger.last_reading import LastReading
from berth.ledger.last_reconcile import LastReconcile, body_of, last_reconcile_of
from berth.ledger.model import (
    EXTERNAL,
    EXTERNAL_NAME,
    HELD_BACK_KEYS,
    NOTHING_HELD_BACK,
    Claim,
    Domain,
    Epoch,
    HeldBack,
    Holding,
    LineHold,
    Places,
    PoolClaimSpec,
    Rank,
    Reading,
    decode_domain,
    decode_pool,
    encode,
    epoch_of,
    held_back_of,
    in_order,
)
from berth.ledger.readings import head_key, why_held
from berth.ledger.retained import NOTHING_RETAINED, RetainedByUnit
from berth.ledger.seats import GangLargeError, Member, Seat, seated, without_claim
from berth.ledger.transaction import (
    MOST_KEYS,
    NOTHING,
    BusyError,
    Commits,
    Drawn,
    Fence,
    LostAgainError,
    OutdatedError,
    OvertakenError,
    Writes,
    versions_of,
)
from berth.ledger.transitions import (
    Domains,
    ElsewhereError,
    MissingClaimError,
    ReleasePolicy,
    SupersededError,
)
from berth.ledger.turns import in_turn
from berth.ledger.unlisted import Believed, Unit, believed
from berth.ledger.view import Follower, View
from berth.metrics import UNCOUNTED, Metrics
from berth.settings import DEFAULT_USAGE_MONTHS
from berth.skew import MOST_APART
from berth.stores.base import EPOCH, Changes, Cursor, Document, Prompt, Store, Version


class Ledger:
    """The claims in one store, and what they draw from.

    Each call may raise the store's errors and ContentionError; RebuildingError while the epoch is absent;
    PausedError or MovedError once the epoch says that the ledger is copied elsewhere. Then nothing was
    changed. A call that is given many Pools, domains or claims may have changed some of them: repeat it, and
    it does the rest.
    """

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
        metrics: Metrics = UNCOUNTED,
    ) -> None:
        """`while_closed` is for reconcile, which must work on a ledger that has no epoch (yet).

        `cluster` tells the identity of the cluster that the caller acts for: then whatever decides something
        raises OtherClusterError, and changes nothing, in the ledger of another one. `name` is for its text.
        `metrics` count commits and what becomes of claims.
        """
        self.metrics = metrics
        self._store, self._clock = store, clock
        self._follower = Follower(store.changes, clock, _at_once(store))
        commits = Commits(store, monotonic, sleep, while_closed, cluster, name, metrics=metrics)
        self._commits = commits.shared()
        self._turn = ""

    # Claims

    def reserve(
        self, wanted: Claim, *, after: str | None = None, view: View | None = None, rank: Rank | None = None
    ) -> Claim:
        """Hold `wanted.holdings`, of whole domains, for the pod, all or nothing; the claim as it then stands.

        `after` names the attempt that this one goes on from. Each call needs an attempt of its own: cancel
        drops what it was shown, and must miss a reservation renewed since. Raises RefusedError where units
        are short, ElsewhereError while the pod has a claim for another node, SupersededError (with `after`).
        `view` is the one by which the caller has just made `wanted`; without it, this looks by itself.
        What is held for the first in line is free for who is before it by `rank`.
        """
        view = self.view() if view is None else view
        mine = view.claims_of(wanted.uid)
        other = next((claim for claim in mine if claim.node != wanted.node), None)
        if other is not None:
            raise ElsewhereError(other) if after is None else SupersededError(wanted, other)
        requester = self._requester(wanted, view.pools)._replace(rank=rank or Rank(wanted.uid))
        deadline = self._commits.deadline()
        same = next((claim.holdings for claim in mine if claim.logical() == wanted.logical()), None)
        at: At = view.at
        looked = False
        while True:
            self._make_limits(wanted.holdings, view, at)
            holdings, short = (same, []) if same is not None else allocation.plan(wanted, at, requester)
            try:
                if not short and len(keys := allocation.keys(holdings)) <= MOST_KEYS:
                    decide = partial(self._reserved, wanted, holdings, after, view, requester)
                    places = {holding.key for holding in holdings}
                    claim = self._commits.run(places, decide, drawn=_drawn(wanted, view), beside=keys)
                    self.metrics.changed("reserved")
                    return claim
                _require_limits(short, view)
                if looked:
                    scattered = refusals.scattered(holding.pool for holding in holdings)
                    lacks = _unread(wanted.holdings, view, at, requester.now) or [
                        lack.text() for lack in short
                    ]
                    raise RefusedError("; ".join(lacks) or scattered)
            except StripeFullError as error:
                if deadline.left() <= 0:
                    raise BusyError from error
            # A stripe was full when it came to it, or all seemed to be: look at all as they are now.
            same, at, looked = None, self._look(wanted, view), True

    def _reserved(
        self,
        wanted: Claim,
        holdings: tuple[Holding, ...],
        after: str | None,
        view: View,
        requester: Requester,
        domains: Domains,
    ) -> tuple[Claim, Writes]:
        standing = transitions.standing(wanted, holdings, domains)
        if after is not None and (standing is None or standing.attempt != after):
            raise SupersededError(wanted, standing)
        if standing is not None and (standing.node, standing.logical()) != (wanted.node, wanted.logical()):
            raise ElsewhereError(standing)
        if standing is not None and standing.state == "bound":
            return standing, {}
        if standing is None:
            allocation.require_whole(holdings, domains.__getitem__)
        # A repeated call takes the reservation over: only the newest attempt may cancel it.
        if standing is None:
            held, ends = self._taken(holdings, view, requester, domains), wanted.ends
        else:
            held, ends = standing.holdings, allocation.renewed(standing, wanted, after, domains, requester)
        claim = replace(wanted, holdings=held, ends=ends)
        return claim, transitions.with_claim(claim, domains)

    def _taken(
        self, holdings: tuple[Holding, ...], view: View, requester: Requester, domains: Domains
    ) -> tuple[Holding, ...]:
        suspended = sorted({holding.pool for holding in holdings if _suspended(holding, view)})
        if suspended:
            raise RefusedError("; ".join(map(refusals.suspended, suspended)))
        if unread := _unread(holdings, view, domains.__getitem__, requester.now):
            raise RefusedError("; ".join(unread))
        taken, short = allocation.taken(holdings, domains.__getitem__, requester)
        _require_limits(short, view)
        transitions.refuse(short)
        return taken

    def confirm(self, claim: Claim) -> None:
        """Mark the claim bound: its Binding was made. Raises MissingClaimError, and changes nothing then."""

        def decide(domains: Domains) -> tuple[None, Writes]:
            standing = [domain.claims.get(claim.uid) for domain in domains.values()]
            if any(there is None or there.holdings != claim.holdings for there in standing):
                raise MissingClaimError(
                    f"pod {claim.label}: no claim to confirm; reconcile will adopt it from the pod"
                )
            if all(there is not None and there.state == "bound" for there in standing):
                return None, {}
            return None, transitions.with_claim(replace(claim, state="bound"), domains)

        self._commits.run({holding.key for holding in claim.holdings}, decide)
        self.metrics.changed("confirmed")

    def cancel(self, claim: Claim) -> tuple[Holding, ...]:
        """Drop the claim unless it was taken over by a newer attempt, or confirmed, since; what was freed.
        It is a seat again while its gang's seats wait for their pods.

        Only for a pod that is fenced or gone: a Binding that lands later would hold units without a claim.
        """

        def decide(domains: Domains) -> tuple[tuple[Holding, ...], Writes]:
            return transitions.cancelled(claim, self._clock(), domains)

        freed = self._free(claim.uid, {holding.key for holding in claim.holdings}, decide)
        self.metrics.changed("cancelled", bool(freed))
        return freed

    def release(
        self,
        uid: str,
        label: str | None = None,
        also: Iterable[Holding] = (),
        hold: Collection[str] = (),
        hold_as: Literal["bound", "lost"] = "lost",
        elsewhere: Collection[str] = (),
        view: View | None = None,
        ended: float | None = None,
        bound: bool = False,
        rests: bool = True,
        waiting: Waiters = NO_WAITERS,
    ) -> tuple[Holding, ...]:
        """Drop every claim of a pod that the caller knows to be gone or finished; what was freed. Units of
        the pools in `hold` stay held, by a claim in state `hold_as`; not those on the nodes `elsewhere`.

        With `label` (namespace/name) only claims that bear it: a forged event may pair a name that is gone
        with the UID of a pod that lives. `also` are holdings that the caller knows of: the view, by which
        claims are found, may lag behind those that were made a moment before. It is the one by which the
        caller has just judged what to hold; without it, this looks by itself. `ended` is when the pod's use
        ended (None: now), which is noted for the journal in the same commit; `bound`: the pod was bound, also
        where its claim says that it is reserved. Without `rests` nothing of the pod ran, and its units need
        no rest. `waiting` says how many pods wait for units: what comes free is left to those that
        are woken for it, for a moment.
        """

        view = self.view() if view is None else view

        def decide(domains: Domains) -> tuple[tuple[Holding, ...], Writes]:
            standing = [claim for domain in domains.values() if (claim := domain.claims.get(uid)) is not None]
            if label is not None and any(claim.label != label for claim in standing):
                return (), {}
            now = self._clock()
            over = now if ended is None else min(now, ended)
            how = ReleasePolicy(view.pools, now, hold, hold_as, elsewhere, over, bound, rests, waiting)
            return transitions.released(uid, domains, how)

        freed = self._free(uid, {*view.keys_of(uid), *_stripes_too(also, view)}, decide)
        self.metrics.changed("released", bool(freed))
        return freed

    # Gangs

    def gang(self, label: str) -> GangSeen:
        """Return what is known of a gang, by its label, and the claims of its pods: all that was reserved for
        it until now. Earlier versions of Berth reserved by its name alone, whatever workload it was of: such
        claims are among them, also those of other workloads' pods."""
        key, labels = gang_key(label), {label, label_before(label)}
        documents = self._store.read([gang_key(each) for each in labels])
        notes = {name: note_of(document.body) for name, document in documents.items()}
        note, view = notes.get(key, GangNote()), self.view()
        known = [claim for each in labels for claim in view.gang(each)]
        seats = self._read(place for each in notes.values() for place in each.seats)
        return GangSeen(label, note, versions_of(documents, [key]), claims_now(labels, known, seats))

    def reserve_gang(self, seen: GangSeen, members: Sequence[Member]) -> list[Claim]:
        """Hold units for all of these pods of a gang in one commit, or for none: the claims. The first is of
        the pod that is being bound, the others are seats.

        Raises NoSeatError where there is no room for all, RefusedError, and OvertakenError where another call
        was first: look at the gang anew then.
        """
        for member in (one for one in members if one.nodes):
            self.make_limits(member.on(member.nodes[0]).holdings)
        view = self.view()

        def requester(claim: Claim, rank: Rank) -> Requester:
            return self._requester(claim, view.pools)._replace(rank=rank)

        picked = seated(members, view.at, requester)
        holdings = [holding for seat in picked for holding in seat.claim.holdings]
        places, keys = {holding.key for holding in holdings}, allocation.keys(holdings)
        if len(keys) >= self._commits.most_keys:
            raise GangLargeError(refusals.gang_large(seen.name, len(picked), self._commits.most_keys - 1))
        note = GangNote(self._clock(), seats=tuple(sorted(places | seen.reserved)), vain=seen.note.vain)
        decide = partial(self._seated, picked, view, {gang_key(seen.label): encode_note(note)})
        drawn = {resource: pool for seat in picked for resource, pool in _drawn(seat.claim, view).items()}
        try:
            claims = self._commits.run(places, decide, seen.version, drawn, keys)
        except StripeFullError as error:
            raise OvertakenError(f"what is free changed while gang {seen.name} was reserved") from error
        self.metrics.changed("reserved", len(claims))
        return claims

    def _seated(
        self, picked: Sequence[Seat], view: View, note: Writes, domains: Domains
    ) -> tuple[list[Claim], Writes]:
        claims: list[Claim] = []
        changed: dict[str, Domain] = {}
        for claim, requester in picked:
            now = {**domains, **changed}
            if any(claim.uid in domain.claims for domain in domains.values()):
                raise StripeFullError(f"pod {claim.label} has a claim already")
            allocation.require_whole(claim.holdings, now.__getitem__)
            claims.append(replace(claim, holdings=self._taken(claim.holdings, view, requester, now)))
            changed |= transitions.with_claim(claims[-1], now)
        return claims, {**changed, **note}

    def take_seat(self, wanted: Claim, seat: Claim, rank: Rank, seen: GangSeen | None = None) -> Claim:
        """Take the seat for a bind of its pod, on its node or on another that has room: the claim. Raises
        RefusedError, and the seat stays; OvertakenError where it is no seat any more, or has to move and
        another call was first. Where it moves to is noted of the gang, as it was `seen`."""
        view = self.view()
        requester = self._requester(wanted, view.pools)._replace(rank=rank)
        # Whatever became of the Pool meanwhile, unless its units have come to have names.
        stays = seat.is_for(wanted, view.pools) and not _unnamed(seat, view)
        at: At = without_claim(wanted.uid, view.at)
        for left in (1, 0):
            holdings, short = (seat.holdings, []) if stays else allocation.plan(wanted, at, requester)
            try:
                if not short:
                    moved = seen and seen.moved_to({holding.key for holding in holdings})
                    note = {gang_key(seen.label): encode_note(moved)} if seen and moved else {}
                    decide = partial(self._seat_taken, wanted, seat, holdings, view, requester, note)
                    places = {holding.key for holding in (*seat.holdings, *holdings)}
                    beside, fence = allocation.keys(holdings), seen.version if seen and note else NOTHING
                    return self._commits.run(places, decide, fence, _drawn(wanted, view), beside)
                transitions.refuse(short)
            except StripeFullError as error:
                if not left:
                    raise BusyError from error
            at = without_claim(wanted.uid, self._look(wanted, view))
        raise BusyError

    def _seat_taken(
        self,
        wanted: Claim,
        seat: Claim,
        holdings: tuple[Holding, ...],
        view: View,
        requester: Requester,
        note: Writes,
        domains: Domains,
    ) -> tuple[Claim, Writes]:
        if any(domains[holding.key].claims.get(seat.uid) != seat for holding in seat.holdings):
            raise OvertakenError(f"the seat of pod {seat.label} has gone, or was taken; try again")
        changed = dict(transitions.without(seat.uid, domains))
        if holdings is not seat.holdings:  # else it stays, as it is
            allocation.require_whole(holdings, domains.__getitem__)
            holdings = self._taken(holdings, view, requester, {**domains, **changed})
        seated = seat.held_since if holdings is seat.holdings else 0.0
        claim = replace(wanted, holdings=holdings, seat_until=seat.seat_until, seated=seated)
        return claim, {**changed, **transitions.with_claim(claim, {**domains, **changed}), **note}

    def note_gang(self, seen: GangSeen, note: GangNote | None) -> None:
        """Note of a gang why it could not be had; None: there is nothing to note any more. Raises
        OvertakenError where somebody has noted something, or reserved for it, since it was seen."""
        after = None if note is None else note.after(seen.note)
        is_known = after is not None and seen.note.is_as(after)
        writes = {} if is_known else {gang_key(seen.label): None if after is None else encode_note(after)}
        self._commits.run((), lambda _: (None, writes), seen.version)

    def hold_in_line(self, wanted: Mapping[str, LineHold]) -> bool:
        """Hold units of these domains (by key, a stripe's too) for the first in line, all or nothing. Return
        False, and change nothing, where something is held already."""
        return self._commits.run(wanted, partial(transitions.with_line_holds, wanted))

    def lend_line_hold(self, uid: str, after: Mapping[str, int | None]) -> None:
        """Lend what is held for this pod in these documents (by key), where units rest for so many seconds
        after their pods; None: lend nothing."""
        self._commits.run(after, partial(transitions.with_returns, uid, after))

    def leave_to_all(self, pool: str, now: float) -> int:
        """Leave units that came free of the pool just now, by this time, to all who ask: the pods that they
        were left to went. Return how many units."""
        recent = self._follower.last.freed(pool, now)
        if recent:
            self._commits.run([domain_key(pool, name) for name in recent], transitions.without_freed)
        return sum(freed.count for freed in recent.values())

    def drop_line_hold(
        self, uid: str, but: Collection[str] = (), gang: str = "", label: str | None = None
    ) -> tuple[Holding, ...]:
        """Hold nothing for this pod any more: it is bound, or gone; nor for its gang, where that has its
        units. Return what was held.

        It goes by the last View, and does not look: of one that it does not know, reconcile knows later.
        `but` are the documents of a claim that was confirmed: there nothing is held any more. With `label`
        (namespace/name) only what is held for a pod of that name: a forged event may pair the name of a pod
        that is gone with the UID of the first in line.
        """
        holds = self._follower.last.line_holds.items()
        mine = {key: hold for key, hold in holds if hold.is_for(uid, gang) and key not in but}
        keys = [key for key, hold in mine.items() if label in (None, hold.label)]
        if not keys:
            return ()
        return self._commits.run(keys, partial(transitions.without_line_hold, uid, gang))

    def _free(
        self, uid: str, keys: Collection[str], decide: Callable[[Domains], tuple[tuple[Holding, ...], Writes]]
    ) -> tuple[Holding, ...]:
        """Free what is decided of these documents, in as many commits as it takes; what was freed."""
        freed: list[Holding] = []
        for part in self._parts(uid, keys):
            freed += self._commits.run(part, decide)
        self._reopen(freed)
        return tuple(freed)

    def adopt(
        self,
        claim: Claim,
        *,
        anew: bool = True,
        also: Iterable[Holding] = (),
        pools: Mapping[str, Pool] | None = None,
        unlisted: Collection[Unit] = (),
    ) -> tuple[Holding, ...] | None:
        """Make `claim` the pod's only one, room or not: the pod runs there. None if nothing had to change,
        else what was freed elsewhere, and what stands in a domain that was closed and is open again: who was
        refused there is to be woken. `also` as for `release`.

        With `anew` False only in place of a claim that stands: if there is none any more, the pod has gone
        and was released since the caller looked. `pools` as for `adopt_all`; `unlisted` are units that may be
        believed to be the pod's though their domain does not list them.
        """
        claim, view, deadline = _whole(claim), self.view(), self._commits.deadline()
        at: At = view.at
        while True:
            bound = self._bound(claim, view, at, pools)
            places = _places(bound, view) | _stripes_too(also, view)
            try:
                freed = self._adopted(bound, anew, places, unlisted)
            except StripeFullError as error:
                if deadline.left() <= 0:
                    raise BusyError from error
                view = self.view()
                at = self._look(claim, view)
                continue
            if freed is None:
                return None
            self.metrics.changed("adopted")
            opened = self._reopen_closed([*freed, *bound.holdings])
            return (*freed, *(holding for holding in bound.holdings if holding in opened))

    def _adopted(
        self, bound: Claim, anew: bool, places: Collection[str], unlisted: Collection[Unit]
    ) -> tuple[Holding, ...] | None:
        """Adopt in one commit if that can take all these documents; else what the pod has elsewhere goes
        after."""
        if len(places) <= self._commits.most_keys:
            return self._commits.run(places, partial(transitions.adopted, bound, anew, unlisted=unlisted))
        mine = allocation.keys(bound.holdings)
        others = [keys for keys in self._parts(bound.uid, {*places} - mine) if keys]
        anew = anew or bool(others)
        if len(mine) <= self._commits.most_keys:
            freed = self._commits.run(mine, partial(transitions.adopted, bound, anew, unlisted=unlisted))
        else:
            freed = self._adopted_in_parts(bound, anew, mine, unlisted)
        for keys in others:
            more = self._commits.run(keys, partial(transitions.released, bound.uid))
            freed = (*(freed or ()), *more)
        return freed

    def _adopted_in_parts(
        self, bound: Claim, anew: bool, keys: Collection[str], unlisted: Collection[Unit]
    ) -> tuple[()] | None:
        """Adopt in as many commits as it takes, each of which counts more of it; None for no change.

        A death between two leaves a claim that is not whole, or not the same everywhere. The last document by
        its key is written last, and by that one the View goes: so the next reconcile adopts the pod again.
        """
        there = self._read(keys)
        if not anew and not any(bound.uid in domain.claims for domain in there.values()):
            return None
        claim = transitions.known_to(bound, there, unlisted)
        changed = [
            self._commits.run(part, partial(transitions.adopted_in, claim, unlisted=unlisted))
            for part in allocation.parted(claim.holdings, self._commits.most_keys)
        ]
        return () if any(changed) else None

    def _parts(self, uid: str, keys: Collection[str]) -> list[list[str]]:
        """Return these documents, in parts that one commit can take; if they are too many, only those where
        the pod has a claim. What it has in one of them can go before the rest does: reconcile would find
        that."""
        if len(keys) > self._commits.most_keys:
            keys = [key for key, domain in self._read(keys).items() if uid in domain.claims]
        ordered = sorted(keys)
        return [
            ordered[start : start + self._commits.most_keys]
            for start in range(0, len(ordered), self._commits.most_keys)
        ] or [[]]

    def adopt_all(
        self,
        claims: Collection[Claim],
        pools: Mapping[str, Pool] | None = None,
        go_on: Callable[[], object] = lambda: None,
    ) -> set[str]:
        """Adopt these claims, one a pod, in few commits; the UIDs of those for which something changed.

        `go_on` is called before each commit, and may raise: what is adopted by then stands.

        `pools` are the Pools by which they were made, where a look has read others than the ledger has. What
        is held of those that have another shape is placed anew; units that they list are believed to be the
        pods' before any document lists them.
        """
        claims, unlisted = self._believed(claims, pools)
        view = self.view()
        claims = [self._bound(claim, view, view.at, pools) for claim in claims]
        places = {claim.uid: _places(claim, view) for claim in claims}
        freed: dict[str, tuple[Holding, ...]] = {}
        for group in self._groups(claims, places):
            go_on()
            freed |= self._all_adopted(group, places, pools, unlisted)
        bound = (holding for claim in claims if claim.uid in freed for holding in claim.holdings)
        self._reopen_closed([*bound, *chain.from_iterable(freed.values())])
        return {*freed}

    def _groups(
        self, claims: Iterable[Claim], places: Mapping[str, Collection[str]]
    ) -> Iterator[Sequence[Claim]]:
        """Yield these claims in groups that are adopted together: those first whose documents lie together in
        the store."""
        batches = self._store.batches({key for keys in places.values() for key in keys})
        batch_of = {key: number for number, batch in enumerate(batches) for key in batch}
        near: dict[int, list[Claim]] = {}
        far: list[Claim] = []
        for claim in claims:
            numbers = {batch_of[key] for key in places[claim.uid]}
            group = near.setdefault(numbers.pop(), []) if len(numbers) == 1 else far
            group.append(claim)
        yield from near.values()
        yield from _packed(far, places, self._commits.most_keys)

    def _all_adopted(
        self,
        group: Sequence[Claim],
        places: Mapping[str, Collection[str]],
        pools: Mapping[str, Pool] | None,
        unlisted: Collection[Unit],
    ) -> dict[str, tuple[Holding, ...]]:
        """Adopt these in one commit, or one by one if that can't be; what was freed elsewhere, by UID, of
        those for which something changed."""
        keys = {key for claim in group for key in places[claim.uid]}
        try:
            if len(keys) <= self._commits.most_keys:
                adopted = self._commits.run(keys, partial(transitions.all_adopted, group, unlisted=unlisted))
                self.metrics.changed("adopted", len(adopted))
                return adopted
        except (StripeFullError, BusyError):
            pass  # a document of theirs is in stripes now, or in many hands
        freed = {claim.uid: self.adopt(claim, pools=pools, unlisted=unlisted) for claim in group}
        return {uid: holdings for uid, holdings in freed.items() if holdings is not None}

    def _believed(self, claims: Collection[Claim], pools: Mapping[str, Pool] | None) -> Believed:
        """Return these claims as they are believed. A View that lags must not hide who holds a unit."""
        view = self.view()
        result = believed(claims, view.pools if pools is None else pools, view.pools, view.domains)
        if result.unlisted and view.open:
            self.snapshot()
            view = self.view()
            result = believed(claims, view.pools if pools is None else pools, view.pools, view.domains)
        return result

    def _bound(self, claim: Claim, view: View, at: At, pools: Mapping[str, Pool] | None) -> Claim:
        """Return the claim of a pod that runs, or a seat that is to follow its Pools, by documents: of each
        pool as it stands, or where there is room."""
        state = "bound" if claim.state == "reserved" and not claim.is_awaited else claim.state
        now = view.pools if pools is None else pools
        reshaped = {
            name for name, pool in view.pools.items() if name in now and now[name].shape != pool.shape
        }
        known = transitions.known_of(view.claims_of(claim.uid), claim, now, reshaped)
        # The View may lag behind what `at` has read.
        known = {pool: held for pool, held in known.items() if allocation.whole(held, at)}
        rest = replace(
            claim, holdings=tuple(holding for holding in claim.holdings if holding.pool not in known)
        )
        holdings = [
            *allocation.anyhow(rest, at, self._requester(claim, now)),
            *(holding for held in known.values() for holding in held),
        ]
        if len(allocation.keys(holdings)) > self._commits.most_keys:
            holdings = [*allocation.gathered(holdings, claim.uid, at)]
        return replace(claim, state=state, holdings=in_order(holdings))

    def _requester(self, claim: Claim, pools: Mapping[str, Pool]) -> Requester:
        owners = tuple(filter(None, (claim.label, claim.owner)))
        places = allocation.places_of(claim)
        retaining = {name for name in places if name in pools and pools[name].retains}
        return Requester(claim.uid, claim.namespace, owners, self._clock(), places, retaining)

    def _look(self, wanted: Claim, view: View) -> At:
        """Return the domains that the claim is to draw from, with their stripes, as they are in the store."""
        heads = self._read(holding.key for holding in wanted.holdings)
        domains = dict(heads)
        for key, head in heads.items():
            if head.stripes:
                domains |= self._read([key, *stripe_keys(*domain_of(key), head.stripes)])
        return lambda key: domains[key] if key in domains else view.at(key)

    def make_limits(self, holdings: Iterable[Holding]) -> bool:
        """Make the documents of the namespaces' limits among these holdings. Return whether any was made."""
        view = self._follower.last
        return self._make_limits(holdings, view, view.at)

    def _make_limits(self, holdings: Iterable[Holding], view: View, at: At) -> bool:
        """Make the document of a namespace's limit, when its first pod comes."""
        made = False
        for holding in holdings:
            limit = _limit(holding, view)
            if limit is None or at(holding.key).capacity is not None:
                continue
            which = (holding.pool, holding.domain)
            self.set_capacities({which: limit}, {which: None}, {which} if (limit or 0) > STRIPE else ())
            made = True
        return made

    def _reopen_closed(self, changed: Collection[Holding]) -> set[Holding]:
        """Reopen as `_reopen` does, after a commit that may itself have closed a domain in stripes: the View
        does not know of that yet."""
        if any(holding.whole != holding.domain for holding in changed):
            self.view()
        return self._reopen(changed)

    def _reopen(self, freed: Iterable[Holding]) -> set[Holding]:
        """Open the closed domains of these holdings again where there is room. Return the holdings of such
        domains."""
        view, parts = self._follower.last, [holding for holding in freed if holding.whole != holding.domain]
        heads = {part: view.at(domain_key(part.pool, part.whole)) for part in parts}
        # A head that is closed, or that has no share any more and goes with its last claim.
        over = {
            part for part, head in heads.items() if head.closed or (head.stripes and head.capacity is None)
        }
        # Room that no unit is for: the pod held one that is listed no more. It is another stripe's now.
        more = {part for part in parts if capacity.beside(view.at(part.key), part)}
        for which in sorted({(part.pool, part.whole) for part in over | more}):
            self.reopen(which)
        return {part for part in over if heads[part].closed}

    # What others use, as it was read

    def take_reading(self, pool: str, units: int, reading: Reading, last: LastReading) -> bool:
        """Count so many units of a pool of scope Cluster as used by others, as of this reading, in one
        commit, room or not; `last` says who has them. Return False, and change nothing, where a later reading
        stands."""
        claim = Claim(
            uid=f"{EXTERNAL}{pool}",
            namespace="",
            name=EXTERNAL_NAME,
            node="",
            holdings=(Holding(pool, EVERYWHERE, units),) if units else (),
            state="bound",
            since=reading.at,
        )
        view, deadline, head = self.view(), self._commits.deadline(), head_key(pool)
        also = {reading_key(pool): last_reading.body_of(last)}
        at: At = view.at
        while True:
            bound = self._bound(claim, view, at, None)
            decide = partial(_read, bound, head, reading, self._clock(), also)
            try:
                freed = self._commits.run(_places(bound, view) | {head}, decide)
                break
            except StripeFullError as error:
                if deadline.left() <= 0:
                    raise BusyError from error
                view = self.view()
                at = self._look(claim, view)
        self._reopen_closed([*(freed or ()), *bound.holdings])
        return freed is not None

    def note_failed_reading(self, pool: str, why: str) -> None:
        """Say why what others use of the pool could not be read; the last reading stands."""
        head = head_key(pool)
        self._commits.run([head], partial(transitions.with_failed_reading, head, why))

    def forget_readings(self, pools: Collection[str]) -> None:
        """Forget when it was read what others use of these pools."""
        for batch in self._store.batches([head_key(pool) for pool in pools]):
            self._commits.run(batch, partial(transitions.without_reading, batch))
        keys = [reading_key(pool) for pool in pools]
        for batch in self._store.batches(keys):
            self._commits.write(dict.fromkeys(batch))

    # What is there

    def check(self) -> None:
        """Raise a store error if the store does not answer, MovedError if the ledger is elsewhere now."""
        epoch = epoch_of(self._store.read([EPOCH]))
        if epoch is not None and epoch.moved:
            raise MovedError(epoch.to)

    def require_cluster(self) -> None:
        """Raise OtherClusterError if the ledger is another cluster's."""
        self._commits.write({})

    def record_cluster(self) -> None:
        """Write whose the ledger is, if it names no cluster yet. Raises as `require_cluster`."""
        named = CLUSTER in self._store.read([CLUSTER])
        self._commits.write({} if named else self._commits.owner())

    def view(self) -> View:
        """Return all that the ledger holds, as `changes` tells it; see View for what it does not promise. Who
        works `while_closed` may look at one that is paused or was moved."""
        view = self._follower.view()
        if not self._commits.while_closed and (trouble := _trouble(view)) is not None:
            raise trouble
        return view

    def view_at_once(self) -> View | None:
        """Return what `view` returns, for who must not wait; None: it would take a wait, or there is trouble,
        which `view` meets and tells."""
        try:
            view = self._follower.view_at_once()
        except BerthError:
            return None
        return None if view is None or _trouble(view) is not None else view

    # Looks at what users wrote

    def look(self, at: str = LOOK) -> Self:
        """Return this ledger for one look at the Pools (or at PoolClaims: `at` is whose turn it is) that
        begins now.

        Read them after this call. Whatever is changed by it expects that no look began later: who began later
        has read later, and is not undone. The other then gets OutdatedError, and changes nothing any more.
        """
        looking = copy.copy(self)
        looking._turn = at
        looking._take_turn({})
        return looking

    def beside_looks(self) -> Self:
        """Return this ledger for a look at something else by the Pools as they are in it: OutdatedError as
        soon as a look at the Pools begins, or changes them. It stops nobody's look."""
        beside = copy.copy(self)
        beside._commits = self._commits._replace(fence=versions_of(self._store.read([LOOK]), [LOOK]))
        return beside

    def snapshot(self) -> None:
        """Read the next View anew, within a look: it lags behind nothing that was committed before."""
        self._follower = Follower(self._store.changes, self._clock, _at_once(self._store))

    def _take_turn(self, writes: Writes) -> None:
        """Write these documents, and expect from now on that the turn to look is still ours."""
        version = self._commits.write_mark(self._turn, writes)
        if version is None:
            raise OutdatedError
        self._commits = self._commits._replace(fence={self._turn: version})

    # Pools and nodes

    def pools(self) -> dict[str, Pool]:
        """Return the Pools as the store has them now, where the View knows of them."""
        pools: dict[str, Pool] = {}
        for batch in self._store.batches([pool_key(name) for name in self.view().pools]):
            for key, document in self._store.read(batch).items():
                name = key.removeprefix(POOL)
                pools[name] = decode_pool(name, document.body)
        return pools

    def apply_pools(self, pools: Mapping[str, Pool]) -> list[str]:
        """Make the ledger's Pools these; the names of those added, changed or removed.

        Within a look the turn is renewed by each commit: what others decided by the Pools of before is too
        late (`beside_looks`).
        """
        known = self.view().pools
        changed = sorted(name for name in {*known, *pools} if known.get(name) != pools.get(name))
        writes = {pool_key(name): encode(pools[name]) if name in pools else None for name in changed}
        # Whoever has the turn to list units of a Pool that goes lists no more; nothing of it stays.
        gone = [name for name in changed if name not in pools]
        writes |= {key: None for name in gone for key in (turn_key(name), reading_key(name))}
        for batch in self._store.batches(writes):
            write = self._take_turn if self._turn else self._commits.write
            write({key: writes[key] for key in batch})
        return changed

    def set_places(self, wanted: Mapping[str, Places], known: Mapping[str, Places]) -> list[str]:
        """Say where nodes are, by their names; {}: the node is gone. The nodes for which that is news.

        As with capacities, only where it still is what was `known` before the caller looked.
        """
        changed: list[str] = []
        different = [node_key(node) for node, places in wanted.items() if known.get(node, {}) != places]
        for batch in self._store.batches(different):
            changed += self._commits.run_bodies(batch, partial(transitions.placed, wanted, known))
        return sorted(changed)

    def set_poolclaims(
        self,
        specs: Mapping[PoolDomain, PoolClaimSpec | None],
        failed: Callable[[PoolDomain, BerthError], object] = lambda *_: None,
    ) -> list[PoolDomain]:
        """Say what PoolClaims are for, by pool and domain; None: there is none any more. Those that changed.

        One that the store can't take is told to `failed`, and is nobody else's trouble: users make them.
        """
        changed: list[PoolDomain] = []
        by_key = {domain_key(*which): spec for which, spec in specs.items()}
        gone = {key for key, spec in by_key.items() if spec is None}
        for keys in (gone, by_key.keys() - gone):  # what makes room comes first
            for batch in self._store.batches(keys):
                changed += self._set_poolclaims({key: by_key[key] for key in batch}, failed)
        return changed

    def _set_poolclaims(
        self,
        specs: Mapping[str, PoolClaimSpec | None],
        failed: Callable[[PoolDomain, BerthError], object],
    ) -> list[PoolDomain]:
        """Set these in one commit; if that can't be, in halves, down to those that fail by themselves."""
        try:
            return self._commits.run(specs, partial(transitions.with_specs, specs))
        except (StoreFailedError, BusyError) as error:
            if len(specs) == 1:
                failed(domain_of(*specs), error)
                return []
        keys, half = sorted(specs), len(specs) // 2
        return [
            which
            for part in (keys[:half], keys[half:])
            for which in self._set_poolclaims({key: specs[key] for key in part}, failed)
        ]

    # Capacities

    def set_capacities(
        self,
        wanted: Mapping[PoolDomain, Capacity],
        known: Mapping[PoolDomain, Capacity],
        stripes: Collection[PoolDomain] = (),
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
        narrowed = [narrow for change in different if (narrow := capacity.narrowed(change)) is not None]
        done = list(self._resize(narrowed, stripes))
        left = [capacity.rest_of(change, narrowed) for change in different]
        left = [change for change in left if change.before != change.after]
        done += self._resize([change for change in left if not isinstance(change.after, tuple)], stripes)
        names = sorted(change for change in left if isinstance(change.after, tuple))
        for pool, some in groupby(names, lambda change: change.pool):
            in_turn(self._commits, pool, partial(self._listed, pool, list(some), stripes, done))
        return done

    def _listed(
        self,
        pool: str,
        changes: Collection[CapacityChange],
        stripes: Collection[PoolDomain],
        done: list[CapacityChange],
        documents: Mapping[str, Domain],
        fence: Fence,
    ) -> None:
        """Make the changes, without names that another domain lists or that a pod holds there."""
        free = capacity.not_elsewhere(pool, changes, documents)
        free = [change for change in free if change.before != change.after]
        done += self._resize(free, stripes, fence, retained.unlisted(documents.values()))

    def cap_retention(self) -> None:
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
            if domain.retained and retained.capped(domain, view.pools.get(pool), now) is not domain
        ]
        gone: set[PoolDomain] = set()
        for batch in self._store.batches(wrong):
            gone |= self._commits.run(batch, partial(retained.all_capped, view.pools, now))
        names = ((pool, parse_domain(name)) for pool, name in gone)
        for which in sorted({(pool, name.whole) for pool, name in names if name.stripe}):
            self.reopen(which)

    def drop_limits(self, namespaces: Collection[str]) -> None:
        """Remove the limits of all namespaces but these, where nobody holds anything and nothing is counted
        that pods left; reserve makes one anew when the namespace's next pod comes."""
        view, now = self.view(), self._clock()
        names = ((pool, parse_domain(name)) for pool, domains in view.domains.items() for name in domains)
        limits = [(pool, name) for pool, name in names if name.kind == "namespace" and not name.stripe]
        unused = {
            (pool, name.text): view.keys(pool, name.text)
            for pool, name in limits
            if name.namespace not in namespaces
            and not any(capacity.counts(part, now) for part in view.parts(pool, name.text).values())
        }
        plain = {keys[0]: which for which, keys in unused.items() if len(keys) == 1}
        for batch in self._store.batches(plain):
            some = {plain[key]: [key] for key in batch}
            self._commits.run(batch, partial(capacity.without_unused, some, now))
        for which, keys in unused.items():
            if len(keys) > 1:
                self._commits.run(keys, partial(capacity.without_unused, {which: keys}, now))

    def prepare(self, wanted: Mapping[PoolDomain, Capacity]) -> None:
        """Make the stripes of domains that are to have these capacities, but give them none yet: so that
        pods can be adopted there before anything is given out."""
        heads = self._read(domain_key(*which) for which in wanted)
        for which, size in wanted.items():
            key, count = domain_key(*which), capacity.stripes_for(size)
            if not heads[key].stripes:
                self._commits.run([key], partial(capacity.prepared, key, count))

    def reopen(self, which: PoolDomain) -> None:
        """Open a closed domain if there is enough of it again, and share out anew what is free."""
        key = domain_key(*which)
        head = self._read([key])[key]
        if head.stripes:
            self._cut(CapacityChange(*which, head.size, head.size))

    def _resize(
        self,
        changes: Collection[CapacityChange],
        stripes: Collection[PoolDomain],
        fence: Fence = NOTHING,
        elsewhere: RetainedByUnit = NOTHING_RETAINED,
    ) -> Iterator[CapacityChange]:
        """Yield each change once it is made. `elsewhere` are retained units that another domain had."""
        if not changes:
            return
        view = self.view()
        whole = {change.which for change in changes if change.which in stripes or view.at(change.key).stripes}
        yield from (
            change for change in changes if change.which in whole and self._cut(change, fence, elsewhere)
        )
        plain = {change.key: change for change in changes if change.which not in whole}
        for batch in self._store.batches(plain):
            some = {key: plain[key] for key in batch}
            yield from self._commits.run(some, partial(capacity.resized, some, elsewhere), fence)

    def _cut(
        self, change: CapacityChange, fence: Fence = NOTHING, elsewhere: RetainedByUnit = NOTHING_RETAINED
    ) -> bool:
        """Resize one domain that is in stripes. Return whether it still had the capacity that the change is
        from."""
        key = change.key
        head = self._read([key])[key]
        count = capacity.stripes_for(change.after, head.stripes)
        keys = stripe_keys(change.pool, change.domain, count)

        def decide(domains: Domains) -> tuple[bool, Writes]:
            head = domains[key]
            if head.size != change.before or head.stripes > count:
                return False, {}
            if head.claims:  # from when it was small, or of another scope: it stays whole until they are gone
                return True, {key: retained.carried(capacity.plain(head, change.after), head, elsewhere)}
            stripes = [domains[part] for part in keys[: head.stripes]]
            now = self._clock()
            changed = capacity.cut(change.pool, change.domain, head, stripes, change.after, elsewhere, now)
            return True, {domain_key(change.pool, name): domain for name, domain in changed.items()}

        return self._commits.run([key, *keys], decide, fence)

    # The journal

    def journal(self, months: int = DEFAULT_USAGE_MONTHS) -> Journal:
        """Return the journal of use, as far as it is known by now; so many months of it are kept."""
        return Journal(self._commits, self._store.batches, self.view().journal, months)

    # The epoch

    def begin_rebuild(self, rebuild_id: str) -> Version:
        """Say that this caller rebuilds the ledger; the mark that `open` wants. Raises ContentionError."""
        version = self._commits.write_mark(REBUILD, self._commits.owner(), rebuild_id)
        if version is None:
            raise ContentionError("another reconcile is rebuilding berth's ledger; leaving it to that one")
        return version

    def is_rebuilding(self, mark: Version) -> bool:
        """Whether the rebuild that has this mark goes on: since then nobody has opened the ledger or begun
        another rebuild, and it was not lost again."""
        documents = self._store.read([REBUILD, EPOCH])
        return versions_of(documents, [REBUILD, EPOCH]) == {REBUILD: mark, EPOCH: None}

    def open(self, epoch_id: str, mark: Version, back: HeldBack = NOTHING_HELD_BACK) -> None:
        """Let verbs use the ledger: what bound pods hold is in it, and what others may take is held `back`.

        Raises ContentionError where the ledger was lost again, or another reconcile began to rebuild it,
        since the mark was made."""
        epoch = Epoch(epoch_id, self._clock(), held=back.resources)
        writes = {EPOCH: encode(epoch), UNFENCED: back.body, REBUILD: None}
        if not self._store.commit(writes, {EPOCH: None, REBUILD: mark}):
            raise LostAgainError

    def held_back(self) -> HeldBack:
        """Return what is held back now."""
        return held_back_of(self._store.read(HELD_BACK_KEYS))

    def hold_back(self, back: HeldBack, before: HeldBack) -> bool:
        """Hold back this in place of `before`; False, and nothing is changed, if that is no longer so."""
        documents = self._store.read(HELD_BACK_KEYS)
        epoch = epoch_of(documents)
        if epoch is None or held_back_of(documents) != before:
            return False
        writes = {EPOCH: encode(replace(epoch, held=back.resources)), UNFENCED: back.body}
        return self._store.commit(writes, versions_of(documents, HELD_BACK_KEYS))

    # The last reconcile

    def note_reconcile(self, last: LastReconcile) -> None:
        """Write down what a reconcile mended and left, in place of what the one before did."""
        self._commits.write({RECONCILED: body_of(last)})

    def last_reconcile(self) -> LastReconcile | None:
        """Return what the last reconcile mended and left; None: there was none, or nobody can read it."""
        return last_reconcile_of(self._store.read([RECONCILED]).get(RECONCILED))

    def note_overruns(self, seen: Mapping[str, float]) -> Collection[str]:
        """Remember that pods of these owners were seen, at these times, to run longer than they had said.
        Return the owners of whom that is news."""
        now = self._clock()
        stored = self.view().overruns
        known = overruns.believed(stored, now)
        news = overruns.news(known, seen)
        if news or any(until > known[owner] + MOST_APART for owner, until in stored.items()):
            standing = {owner: until for owner, until in known.items() if until > now}
            self._commits.write({OVERRUNS: overruns.body_of({**standing, **news})})
        return news.keys()

    def _read(self, keys: Iterable[str]) -> dict[str, Domain]:
        """Return domains as the store has them now."""
        keys = set(keys)
        documents: dict[str, Document] = {}
        for batch in self._store.batches(keys):
            documents |= self._store.read(batch)
        return {key: decode_domain(documents[key].body if key in documents else None, key) for key in keys}


def _at_once(store: Store) -> Callable[[Cursor], Changes | None] | None:
    return store.changes_at_once if isinstance(store, Prompt) else None


def _trouble(view: View) -> BerthError | None:
    """Return why nothing may be decided by this View; None: it may."""
    epoch = view.epoch  # once: another thread may be updating the view
    return RebuildingError() if epoch is None else epoch.trouble()


def _drawn(claim: Claim, view: View) -> Drawn:
    pools = {holding.pool for holding in claim.holdings} & view.pools.keys()
    return {view.pools[pool].resource: pool for pool in pools}


def _suspended(holding: Holding, view: View) -> bool:
    pool = view.pools.get(holding.pool)
    return pool is not None and not holding.is_quota and pool.suspends(holding.whole)


def _read(
    claim: Claim, key: str, reading: Reading, now: float, also: Writes, domains: Domains
) -> tuple[tuple[Holding, ...] | None, Writes]:
    """Decide as transitions.with_reading, and write `also` where that changes something."""
    freed, changed = transitions.with_reading(claim, key, reading, now, domains)
    return freed, {**changed, **also} if freed is not None else {}


def _unread(holdings: Iterable[Holding], view: View, at: At, now: float) -> list[str]:
    """Return why nothing new is given of pools of which nobody knows what others use."""
    names = sorted({holding.pool for holding in holdings if not holding.is_quota} & view.pools.keys())
    read = [view.pools[name] for name in names if view.pools[name].external_from is not None]
    return [why for pool in read if (why := why_held(pool, at(head_key(pool.name)), now))]


def _unnamed(claim: Claim, view: View) -> bool:
    """Whether the claim holds units without a name of a pool whose units have names."""
    named = {name for name, pool in view.pools.items() if pool.named}
    held = (holding for holding in claim.holdings if holding.pool in named and not holding.is_quota)
    return any(len(holding.units) < holding.count for holding in held)


def _limit(holding: Holding, view: View) -> int | None:
    """Return the namespace's limit that the holding is of; None if it is of none."""
    pool = view.pools.get(holding.pool)
    if pool is None or holding.name.kind != "namespace":
        return None
    return pool.limit(holding.name.namespace)


def _require_limits(short: Iterable[Short], view: View) -> None:
    """Raise StripeFullError where a limit's document is missing: it goes while nobody holds any."""
    if any(lack.capacity is None and _limit(lack.holding, view) is not None for lack in short):
        raise StripeFullError("a namespace's limit is to be made first")


def _packed(
    claims: Collection[Claim], places: Mapping[str, Collection[str]], most: int
) -> Iterator[list[Claim]]:
    """Return these claims in groups that one commit takes: each of no more documents than that, but for a
    claim that is of more by itself.

    Those of a document that many want, such as a stripe of a limit, lie side by side: it is written a few
    times then, and not once for each pod.
    """
    wanted = Counter(key for claim in claims for key in places[claim.uid])

    def rarest_last(claim: Claim) -> list[str]:
        return sorted(places[claim.uid], key=lambda key: (-wanted[key], key))

    group: list[Claim] = []
    keys: set[str] = set()
    for claim in sorted(claims, key=rarest_last):
        if group and len(keys.union(places[claim.uid])) > most:
            yield group
            group, keys = [], set()
        group.append(claim)
        keys.update(places[claim.uid])
    if group:
        yield group


def _whole(claim: Claim) -> Claim:
    """Return the claim by whole domains, with the names of units that are known."""
    return replace(
        claim, holdings=tuple(replace(holding, domain=holding.whole) for holding in claim.holdings)
    )


def _places(claim: Claim, view: View) -> set[str]:
    """Return keys of the domains where the claim is to stand, and of those where the pod has one."""
    return allocation.keys(claim.holdings) | view.keys_of(claim.uid)


def _stripes_too(holdings: Iterable[Holding], view: View) -> set[str]:
    """Return keys of these holdings' documents; of all stripes where a whole domain has some."""
    return {key for holding in holdings for key in view.keys(holding.pool, holding.domain)}
