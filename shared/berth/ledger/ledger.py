"""Claims: reserve, confirm, cancel, release, adopt. Written once for all stores.
It never asks the API server: whether a pod is gone is the caller's to know."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from typing import Literal

from msgspec.structs import replace

from berth.api.pool import Pool
from berth.errors import RefusedError
from berth.ledger import allocation, capacity, refusals, transitions
from berth.ledger.allocation import STRIPE, At, Requester, Short, StripeFullError
from berth.ledger.keeper import Keeper
from berth.ledger.model import NAMESPACE, Claim, Holding, RetainedUnits, domain_key, in_order, stripe_keys
from berth.ledger.transaction import MOST_KEYS, PATIENCE_SECONDS, BusyError, Drawn, Writes
from berth.ledger.transitions import (
    Domains,
    ElsewhereError,
    MissingClaimError,
    ReleasePolicy,
    SupersededError,
)
from berth.ledger.unlisted import Told, Unit, told
from berth.ledger.view import View


class Ledger(Keeper):
    """The claims in one store, and what they draw from; errors as in Keeper."""

    def reserve(self, wanted: Claim, *, after: str | None = None) -> Claim:
        """Hold `wanted.holdings`, of whole domains, for the pod, all or nothing; the claim as it then stands.

        `after` names the attempt that this one goes on from. Each call needs an attempt of its own: cancel
        drops what it was shown, and must miss a reservation renewed since. Raises RefusedError where units
        are short, ElsewhereError while the pod has a claim for another node, SupersededError (with `after`).
        """
        view = self.view()
        mine = view.claims_of(wanted.uid)
        other = next((claim for claim in mine if claim.node != wanted.node), None)
        if other is not None:
            raise ElsewhereError(other) if after is None else SupersededError(wanted)
        requester, until = self._requester(wanted, view.pools), self._patience()
        same = next((claim.holdings for claim in mine if claim.logical() == wanted.logical()), None)
        at: At = view.at
        for look in count():
            self._make_limits(wanted, view, at)
            holdings, short = (same, []) if same is not None else allocation.plan(wanted, at, requester)
            decide, keys = (
                partial(self._reserved, wanted, holdings, after, view, requester),
                allocation.keys(holdings),
            )
            try:
                if not short and len(keys) <= MOST_KEYS:
                    return self._commits.run(keys, decide, drawn=_drawn(wanted, view))
                _require_limits(short, view)
                if look:
                    texts = [each.text() for each in short] or [
                        refusals.scattered(each.pool for each in holdings)
                    ]
                    raise RefusedError("; ".join(texts))
            except StripeFullError as error:
                if self._monotonic() >= until:
                    raise BusyError from error
            # A stripe was full when it came to it, or all seemed to be: look at all as they are now.
            same, at = None, self._look(wanted, view)
        raise AssertionError

    def _reserved(
        self,
        wanted: Claim,
        holdings: tuple[Holding, ...],
        after: str | None,
        view: View,
        requester: Requester,
        domains: Domains,
    ) -> tuple[Claim, Writes]:
        found = transitions.standing(wanted, holdings, domains)
        if after is not None and (found is None or found.attempt != after):
            raise SupersededError(wanted)
        if found is not None and (found.node, found.logical()) != (wanted.node, wanted.logical()):
            raise ElsewhereError(found)
        if found is not None and found.state == "bound":
            return found, {}
        if found is None:
            allocation.require_whole(holdings, domains.__getitem__)
        # A repeated call takes the reservation over: only the newest attempt may cancel it.
        held = found.holdings if found is not None else self._taken(holdings, view, requester, domains)
        claim = replace(wanted, holdings=held)
        return claim, transitions.with_claim(claim, domains)

    def _taken(
        self, holdings: tuple[Holding, ...], view: View, requester: Requester, domains: Domains
    ) -> tuple[Holding, ...]:
        suspended = sorted({each.pool for each in holdings if _suspended(each, view)})
        if suspended:
            raise RefusedError("; ".join(map(refusals.suspended, suspended)))
        taken, short = allocation.taken(holdings, domains.__getitem__, requester)
        _require_limits(short, view)
        transitions.refuse(short)
        return taken

    def confirm(self, claim: Claim) -> None:
        """Mark the claim bound: its Binding was made. Raises MissingClaimError, and changes nothing then."""

        def decide(domains: Domains) -> tuple[None, Writes]:
            found = [domain.claims.get(claim.uid) for domain in domains.values()]
            if any(each is None or each.holdings != claim.holdings for each in found):
                raise MissingClaimError(
                    f"pod {claim.label}: no claim to confirm; reconcile will adopt it from the pod"
                )
            if all(each is not None and each.state == "bound" for each in found):
                return None, {}
            return None, transitions.with_claim(replace(claim, state="bound"), domains)

        self._commits.run({holding.key for holding in claim.holdings}, decide)

    def cancel(self, claim: Claim) -> tuple[Holding, ...]:
        """Drop the claim unless it was taken over by a newer attempt, or confirmed, since; what was freed.

        Only for a pod that is fenced or gone: a Binding that lands later would hold units without a claim.
        """

        def decide(domains: Domains) -> tuple[tuple[Holding, ...], Writes]:
            mine = {
                key: domain
                for key, domain in domains.items()
                if (found := domain.claims.get(claim.uid)) is not None
                and (found.attempt, found.state) == (claim.attempt, claim.state)
            }
            freed = tuple(each for each in claim.holdings if each.key in mine)
            return freed, transitions.without(claim.uid, mine)

        freed: list[Holding] = []
        for keys in self._parts(claim.uid, {holding.key for holding in claim.holdings}):
            freed += self._commits.run(keys, decide)
        self._reopen(freed)
        return tuple(freed)

    def release(
        self,
        uid: str,
        label: str | None = None,
        also: Iterable[Holding] = (),
        keep: Collection[str] = (),
        keep_as: Literal["bound", "lost"] = "lost",
    ) -> tuple[Holding, ...]:
        """Drop every claim of a pod that the caller knows to be gone or finished; what was freed. Units of
        the pools in `keep` stay held, by a claim in state `keep_as`.

        With `label` (namespace/name) only claims that bear it: a forged event may pair a name that is gone
        with the UID of a pod that lives. `also` are holdings that the caller knows of: the view, by which
        claims are found, may lag behind those that were made a moment before.
        """

        view = self.view()

        def decide(domains: Domains) -> tuple[tuple[Holding, ...], Writes]:
            found = [claim for domain in domains.values() if (claim := domain.claims.get(uid)) is not None]
            if label is not None and any(claim.label != label for claim in found):
                return (), {}
            how = ReleasePolicy(partial(self._leave, view), self._clock(), keep, keep_as)
            return transitions.released(uid, domains, how)

        freed: list[Holding] = []
        for keys in self._parts(uid, {*view.keys_of(uid), *_stripes_too(also, view)}):
            freed += self._commits.run(keys, decide)
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
        claim, view, until = _whole(claim), self.view(), self._patience()
        at: At = view.at
        while True:
            bound = self._bound(claim, view, at, pools)
            places = _places(bound, view) | _stripes_too(also, view)
            try:
                freed = self._adopted(bound, anew, places, unlisted)
            except StripeFullError as error:
                if self._monotonic() >= until:
                    raise BusyError from error
                view = self.view()
                at = self._look(claim, view)
                continue
            if freed is None:
                return None
            opened = self._reopen_closed([*freed, *bound.holdings])
            return (*freed, *(each for each in bound.holdings if each in opened))

    def _adopted(
        self, bound: Claim, anew: bool, places: Collection[str], unlisted: Collection[Unit]
    ) -> tuple[Holding, ...] | None:
        """In one commit if that can take all these documents; else what the pod has elsewhere goes after."""
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
        """In as many commits as it takes, each of which counts more of it; None for no change.

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
        """These documents, in parts that one commit can take; if they are too many, only those where the pod
        has a claim. What it has in one of them can go before the rest does: reconcile would find that."""
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
        claims, unlisted = self._told(claims, pools)
        view = self.view()
        claims = [self._bound(claim, view, view.at, pools) for claim in claims]
        places = {claim.uid: _places(claim, view) for claim in claims}
        freed: dict[str, tuple[Holding, ...]] = {}
        for group in self._groups(claims, places):
            go_on()
            freed |= self._all_adopted(group, places, pools, unlisted)
        bound = (each for claim in claims if claim.uid in freed for each in claim.holdings)
        self._reopen_closed([*bound, *chain.from_iterable(freed.values())])
        return {*freed}

    def _groups(
        self, claims: Iterable[Claim], places: Mapping[str, Collection[str]]
    ) -> Iterator[Sequence[Claim]]:
        """These claims in groups that are adopted together: those first whose documents lie together in the
        store."""
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
                return self._commits.run(keys, partial(transitions.all_adopted, group, unlisted=unlisted))
        except (StripeFullError, BusyError):
            pass  # a document of theirs is in stripes now, or in many hands
        freed = {each.uid: self.adopt(each, pools=pools, unlisted=unlisted) for each in group}
        return {uid: found for uid, found in freed.items() if found is not None}

    def _told(self, claims: Collection[Claim], pools: Mapping[str, Pool] | None) -> Told:
        """See Told. Who holds such a unit must not be missed because the View lags behind."""
        view = self.view()
        found = told(claims, view.pools if pools is None else pools, view.pools, view.domains)
        if found.unlisted and view.open:
            self.snapshot()
            view = self.view()
            found = told(claims, view.pools if pools is None else pools, view.pools, view.domains)
        return found

    def _bound(self, claim: Claim, view: View, at: At, pools: Mapping[str, Pool] | None) -> Claim:
        """The claim of a pod that runs, by documents: of each pool as it stands, or where there is room."""
        state = "bound" if claim.state == "reserved" else claim.state
        now = view.pools if pools is None else pools
        reshaped = {
            name for name, pool in view.pools.items() if name in now and now[name].shape != pool.shape
        }
        known = transitions.known_of(view.claims_of(claim.uid), claim, now, reshaped)
        # The View may lag behind what `at` has read.
        known = {pool: held for pool, held in known.items() if allocation.whole(held, at)}
        rest = replace(claim, holdings=tuple(each for each in claim.holdings if each.pool not in known))
        found = [
            *allocation.anyhow(rest, at, self._requester(claim, now)),
            *(each for held in known.values() for each in held),
        ]
        if len(allocation.keys(found)) > self._commits.most_keys:
            found = [*allocation.gathered(found, claim.uid, at)]
        return replace(claim, state=state, holdings=in_order(found))

    def _requester(self, claim: Claim, pools: Mapping[str, Pool]) -> Requester:
        owners = tuple(filter(None, (claim.label, claim.owner)))
        places = allocation.places_of(claim)
        retaining = {name for name in places if name in pools and pools[name].retains}
        return Requester(claim.uid, claim.namespace, owners, self._clock(), places, retaining)

    def _look(self, wanted: Claim, view: View) -> At:
        """The domains that the claim is to draw from, with their stripes, as the store has them now."""
        found = self._read(each.key for each in wanted.holdings)
        for keys in allocation.all_keys(wanted.holdings, found.__getitem__):
            found |= self._read(keys)
        return lambda key: found[key] if key in found else view.at(key)

    def _patience(self) -> float:
        return self._monotonic() + PATIENCE_SECONDS

    def _make_limits(self, wanted: Claim, view: View, at: At) -> None:
        """A namespace's limit becomes a document when its first pod comes."""
        for each in wanted.holdings:
            limit = _limit(each, view)
            if limit is None or at(each.key).capacity is not None:
                continue
            which = (each.pool, each.domain)
            self.set_capacities({which: limit}, {which: None}, {which} if (limit or 0) > STRIPE else ())

    def _leave(self, view: View, claim: Claim, holding: Holding) -> RetainedUnits | None:
        pool, now = view.pools.get(holding.pool), self._clock()
        if pool is None:
            return None
        # A PoolClaim remembers by itself what it had.
        sticky = None if holding.claim else pool.spec.sticky
        rest = now + pool.spec.reuse_after_seconds
        if sticky is None:
            return None if rest == now else RetainedUnits(holding.count, holding.units, rest=rest)
        owner = claim.label if sticky.by == "Pod" else claim.owner
        kept = now + sticky.for_seconds if owner else 0.0
        return RetainedUnits(holding.count, holding.units, owner, rest if rest > now else 0.0, kept)

    def _reopen_closed(self, changed: Collection[Holding]) -> set[Holding]:
        """What `_reopen` does, after a commit that may itself have closed a domain in stripes: the View does
        not know of that yet."""
        if any(each.place != each.domain for each in changed):
            self.view()
        return self._reopen(changed)

    def _reopen(self, freed: Iterable[Holding]) -> set[Holding]:
        """Open the closed domains of these again where there is room; those that are of one."""
        view, parts = self._follower.last, [each for each in freed if each.place != each.domain]
        heads = {each: view.at(domain_key(each.pool, each.place)) for each in parts}
        # A head that is closed, or that has no share any more and goes with its last claim.
        over = {
            each for each, head in heads.items() if head.closed or (head.stripes and head.capacity is None)
        }
        # Room that no unit is for: the pod held one that is listed no more. It is another stripe's now.
        more = {each for each in parts if capacity.beside(view.at(each.key), each)}
        for which in sorted({(each.pool, each.place) for each in over | more}):
            self.reopen(which)
        return {each for each in over if heads[each].closed}


def _drawn(claim: Claim, view: View) -> Drawn:
    pools = {each.pool for each in claim.holdings} & view.pools.keys()
    return {view.pools[pool].resource: pool for pool in pools}


def _suspended(holding: Holding, view: View) -> bool:
    pool = view.pools.get(holding.pool)
    return pool is not None and not holding.bound and pool.suspends(holding.place)


def _limit(holding: Holding, view: View) -> int | None:
    """The namespace's limit that the holding is of; None if it is of none."""
    pool = view.pools.get(holding.pool)
    if pool is None or not holding.domain.startswith(NAMESPACE):
        return None
    return pool.limit(holding.domain.removeprefix(NAMESPACE))


def _require_limits(short: Iterable[Short], view: View) -> None:
    """Raise StripeFullError where a limit's document is missing: it goes while nobody holds any."""
    if any(each.capacity is None and _limit(each.holding, view) is not None for each in short):
        raise StripeFullError("a namespace's limit is to be made first")


def _packed(
    claims: Collection[Claim], places: Mapping[str, Collection[str]], most: int
) -> Iterator[list[Claim]]:
    """These claims in groups that one commit takes: each of no more documents than that, but for a claim that
    is of more by itself.

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
    """By whole domains, with the names of units that are known."""
    return replace(claim, holdings=tuple(replace(each, domain=each.place) for each in claim.holdings))


def _places(claim: Claim, view: View) -> set[str]:
    """Keys of the domains where the claim is to stand, and of those where the pod has one."""
    return allocation.keys(claim.holdings) | view.keys_of(claim.uid)


def _stripes_too(holdings: Iterable[Holding], view: View) -> set[str]:
    """Keys of these holdings' documents; of all stripes where a whole domain is named that has some."""
    found = set()
    for each in holdings:
        found |= {each.key, *stripe_keys(each.pool, each.domain, view.at(each.key).stripes)}
    return found
