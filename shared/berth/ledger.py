"""Claims: reserve, confirm, cancel, release, adopt; and what they draw from: Pools, capacities, the epoch.
Written once for all stores. It never asks the API server: whether a pod is gone is the caller's to know."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import msgspec

from berth import decisions
from berth.commits import Commits, Writes
from berth.decisions import CapacityChange, Domains, ElsewhereError, MissingClaimError, SupersededError
from berth.documents import (
    CLUSTER,
    REBUILD,
    Claim,
    Epoch,
    Holding,
    View,
    decode_epoch,
    domain_key,
    encode,
    pool_key,
)
from berth.errors import ContentionError, MovedError, RebuildingError
from berth.follow import Follower
from berth.policy.pools import Pool
from berth.stores.base import EPOCH, Store, Version


class Ledger:
    """The claims in one store. Every call may raise the store's errors, ContentionError and, while the
    epoch is absent, RebuildingError, or, once it says that the ledger is copied elsewhere, PausedError or
    MovedError; then nothing was changed, or, where a call is given many Pools, domains or claims, some of
    them: the same call again does the rest."""

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
    ) -> None:
        """`while_closed` is for reconcile, which must work on a ledger that has no epoch (yet).

        `cluster` tells the identity of the cluster that the caller acts for: then whatever decides something
        raises OtherClusterError, and changes nothing, in the ledger of another one. `name` is for its text.
        """
        self._store, self._clock, self._while_closed = store, clock, while_closed
        self._follower = Follower(store.changes)
        self._commits = Commits(
            store,
            monotonic=monotonic,
            sleep=sleep,
            while_closed=while_closed,
            cluster=cluster,
            name=name,
        )

    # What is there

    def check(self) -> None:
        """Raise a store error if the store does not answer, MovedError if the ledger is elsewhere now."""
        found = self._store.read([EPOCH]).get(EPOCH)
        epoch = None if found is None else decode_epoch(found.body)
        if epoch is not None and epoch.moved:
            raise MovedError(epoch.to)

    def require_ours(self) -> None:
        """Raise OtherClusterError if the ledger is another cluster's."""
        self._commits.run((), lambda _: (None, {}))

    def make_ours(self) -> None:
        """The same, and write into a ledger that names no cluster yet that it is this one's."""
        named = CLUSTER in self._store.read([CLUSTER])
        self._commits.run((), lambda _: (None, {} if named else self._commits.owner()))

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

    # Claims

    def reserve(self, wanted: Claim, *, after: str | None = None) -> Claim:
        """Hold `wanted.holdings` for the pod, all or nothing; the claim as it then stands.

        `after` names the attempt that this one goes on from. Each call needs an attempt of its own: cancel
        drops what it was shown, and must miss a reservation renewed since. Raises RefusedError where units
        are short, ElsewhereError while the pod has a claim for another node, SupersededError (with `after`).
        """
        other = next(
            (claim for claim in self.view().claims_of(wanted.uid) if claim.node != wanted.node), None
        )
        if other is not None:
            raise ElsewhereError(other) if after is None else SupersededError(wanted)

        def decide(domains: Domains) -> tuple[Claim, Writes]:
            found = decisions.standing(wanted, domains)
            if after is not None and (found is None or found.attempt != after):
                raise SupersededError(wanted)
            if found is not None and (found.node, found.holdings) != (wanted.node, wanted.holdings):
                raise ElsewhereError(found)
            if found is not None and found.state == "bound":
                return found, {}
            # A repeated call takes the reservation over: only the newest attempt may cancel it.
            if found is None:
                decisions.require_room(wanted.holdings, domains)
            return wanted, decisions.with_claim(wanted, domains)

        return self._commits.run({holding.key for holding in wanted.holdings}, decide)

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
            return None, decisions.with_claim(msgspec.structs.replace(claim, state="bound"), domains)

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
            return (claim.holdings if mine else ()), decisions.without(claim.uid, mine)

        return self._commits.run({holding.key for holding in claim.holdings}, decide)

    def release(
        self, uid: str, label: str | None = None, also: Iterable[Holding] = ()
    ) -> tuple[Holding, ...]:
        """Drop every claim of a pod that the caller knows to be gone or finished; what was freed.

        With `label` (namespace/name) only claims that bear it: a forged event may pair a name that is gone
        with the UID of a pod that lives. `also` are holdings that the caller knows of: the view, by which
        claims are found, may lag behind those that were made a moment before.
        """

        def decide(domains: Domains) -> tuple[tuple[Holding, ...], Writes]:
            found = [claim for domain in domains.values() if (claim := domain.claims.get(uid)) is not None]
            if label is not None and any(claim.label != label for claim in found):
                return (), {}
            return decisions.released(uid, domains)

        return self._commits.run({*self.view().keys_of(uid), *(each.key for each in also)}, decide)

    def adopt(
        self, claim: Claim, *, anew: bool = True, also: Iterable[Holding] = ()
    ) -> tuple[Holding, ...] | None:
        """Make `claim` the pod's only one, room or not: the pod runs there. None if nothing had to change,
        else what was freed elsewhere. `also` as for `release`.

        With `anew` False only in place of a claim that stands: if there is none any more, the pod has gone
        and was released since the caller looked.
        """
        places = _places(claim, self.view()) | {each.key for each in also}
        return self._commits.run(places, partial(decisions.adopted, claim, anew))

    def adopt_all(self, claims: Collection[Claim]) -> set[str]:
        """Adopt these claims, one a pod, in few commits; the UIDs of those for which something changed."""
        view = self.view()
        places = {claim.uid: _places(claim, view) for claim in claims}
        batches = list(self._store.batches({key for keys in places.values() for key in keys}))
        batch_of = {key: number for number, batch in enumerate(batches) for key in batch}
        groups: dict[int, list[Claim]] = {}
        changed: set[str] = set()
        for claim in claims:
            numbers = {batch_of[key] for key in places[claim.uid]}
            if len(numbers) == 1:
                groups.setdefault(numbers.pop(), []).append(claim)
            elif self.adopt(claim) is not None:
                changed.add(claim.uid)
        for number, group in groups.items():
            changed |= self._commits.run(batches[number], partial(decisions.all_adopted, group))
        return changed

    # What claims draw from

    def apply_pools(self, pools: Mapping[str, Pool]) -> list[str]:
        """Make the ledger's Pools these; the names of those added, changed or removed."""
        known = self.view().pools
        changed = sorted(name for name in {*known, *pools} if known.get(name) != pools.get(name))
        writes = {pool_key(name): encode(pools[name]) if name in pools else None for name in changed}
        for batch in self._store.batches(writes):
            some = {key: writes[key] for key in batch}
            self._commits.run((), partial(_just, some))
        return changed

    def set_capacities(
        self, wanted: Mapping[tuple[str, str], int | None], known: Mapping[tuple[str, str], int | None]
    ) -> list[CapacityChange]:
        """Set the capacity of domains by (pool, domain), or drop it with None; those that changed.

        Only where it still is what was `known` before the caller asked the API server: else somebody has set
        it since, by a later look. Holders of a domain whose capacity falls below what they hold stay; nothing
        new is given there.
        """
        changes: list[CapacityChange] = []
        different = {
            domain_key(*which): CapacityChange(*which, known.get(which), capacity)
            for which, capacity in wanted.items()
            if known.get(which) != capacity
        }
        for batch in self._store.batches(different):
            some = {key: different[key] for key in batch}
            changes += self._commits.run(some, partial(decisions.resized, some))
        return changes

    # The epoch

    def begin_rebuild(self, rebuild_id: str) -> Version:
        """Say that this caller rebuilds the ledger; the mark that `open` wants. Raises ContentionError."""
        self._commits.run((), lambda _: (None, {REBUILD: rebuild_id.encode(), **self._commits.owner()}))
        found = self._store.read([REBUILD]).get(REBUILD)
        if found is None or found.body != rebuild_id.encode():
            raise ContentionError("another reconcile is rebuilding berth's ledger; leaving it to that one")
        return found.version

    def open(self, epoch_id: str, mark: Version) -> None:
        """Let verbs use the ledger: what bound pods hold is in it. Raises ContentionError where the ledger
        was lost again, or another reconcile began to rebuild it, since the mark was made."""
        body = encode(Epoch(epoch_id, self._clock()))
        if not self._store.commit({EPOCH: body, REBUILD: None}, {EPOCH: None, REBUILD: mark}):
            raise ContentionError(
                "berth's ledger was lost again or is being rebuilt by another reconcile; try again"
            )


def _places(claim: Claim, view: View) -> set[str]:
    """Keys of the domains where the claim is to stand, and of those where the pod has one."""
    return {holding.key for holding in claim.holdings} | view.keys_of(claim.uid)


def _just(writes: Writes, _: Domains) -> tuple[None, Writes]:
    """A decision that is none: these documents, whatever the domains hold."""
    return None, writes
