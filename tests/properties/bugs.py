"""Bugs as other projects had them (docs/kubernetes.md#what-went-wrong-elsewhere), for tests to switch on.
Each replaces a small part of the product while its block lasts; none is in the product."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import msgspec

from berth.controller import adopt as adoption
from berth.controller import capacity_sync, node_status, retention, settle
from berth.controller.adopt import Adopted, adopt
from berth.controller.annotation import pools_annotations
from berth.controller.settle import Settled
from berth.errors import BerthError, RefusedError, StoreUnavailableError
from berth.handlers import reconcile, release
from berth.handlers.bind import BindAttempt
from berth.handlers.release import Release
from berth.http.cloudevents import Event
from berth.kube.cluster import Cluster
from berth.kube.types import Pod
from berth.kube.writes import PodWrites
from berth.ledger import allocation, capacity, transitions
from berth.ledger import refusals as fit
from berth.ledger.due import Due
from berth.ledger.keys import Kind as DomainKind
from berth.ledger.keys import parse_domain
from berth.ledger.ledger import Ledger
from berth.ledger.model import Claim, Domain, Holding, RetainedUnits
from berth.ledger.transaction import Commits
from berth.ledger.transitions import Domains
from berth.ledger.view import View
from berth.scheduling.fit import Fit
from tests.properties.memory import MemoryStore
from tests.properties.pools import LONG, Kind


def only_the_first_pool_is_counted() -> Any:
    taken = allocation.taken

    def first(holdings: Sequence[Holding], *rest: Any) -> Any:
        held, short = taken(holdings[:1], *rest)
        return (*held, *holdings[1:]), short

    return mock.patch.object(allocation, "taken", first)


def who_writes_last_wins() -> Any:
    """Two that count at the same time both take the last unit."""
    commit = MemoryStore.commit
    return mock.patch.object(MemoryStore, "commit", lambda self, writes, _: commit(self, writes, {}))


def a_claim_is_written_pool_by_pool_and_not_to_its_end() -> Any:
    with_claim = transitions.with_claim

    def first(claim: Claim, domains: Domains) -> Any:
        return dict(list(with_claim(claim, domains).items())[:1])

    return mock.patch.object(transitions, "with_claim", first)


def what_a_dead_bind_reserved_is_left_alone() -> Any:
    return mock.patch("berth.handlers.reconcile.settle", return_value=Settled(None))


def a_delete_event_is_believed() -> Any:
    run = Release.run

    def believing(self: Release, event: Event) -> Any:
        with mock.patch.object(Cluster, "pod", return_value=None):
            return run(self, event)

    return mock.patch.object(Release, "run", believing)


def claims_are_kept_by_the_pods_name() -> Any:
    """A StatefulSet's new pod loses what it holds by the late event of the old one."""
    run = Release.run

    def by_name(self: Release, event: Event) -> Any:
        meta = event.object_as(Pod).metadata
        there = self._cluster.pod(meta.namespace or "", meta.name)
        if not isinstance(there, Pod) or there.finished:
            return run(self, event)
        if there.metadata.uid != meta.uid:
            self._ledger.release(there.metadata.uid)
        return {}

    return mock.patch.object(Release, "run", by_name)


def a_binding_without_an_answer_counts_as_refused() -> Any:
    def settled(self: BindAttempt, error: BerthError) -> bool:
        if self._claim is not None:
            self._ledger.cancel(self._claim)
        raise RefusedError(f"pod {self._call.namespace}/{self._call.name} was not bound: {error}")

    return mock.patch.object(BindAttempt, "_settled", settled)


def a_binding_lands_whatever_was_written_since() -> Any:
    bind = Cluster.bind

    def blind(self: Cluster, pod: Pod, *rest: Any) -> None:
        bind(
            self,
            msgspec.structs.replace(
                pod, metadata=msgspec.structs.replace(pod.metadata, resource_version=None)
            ),
            *rest,
        )

    return mock.patch.object(Cluster, "bind", blind)


def nobody_is_woken_when_a_pod_goes() -> Any:
    return mock.patch.object(release, "wake", return_value=0)


def a_refusal_names_the_node() -> Any:
    refusals = fit.refusals

    def naming(*arguments: Any) -> dict[str, str]:
        return {node: f"{reason} on {node}" for node, reason in refusals(*arguments).items()}

    return mock.patch.object(fit, "refusals", naming)


def pods_that_terminate_are_not_counted_after_a_loss() -> Any:
    def some(ledger: Ledger, cluster: Cluster, pods: Iterable[Pod], *rest: Any) -> Adopted:
        return adopt(ledger, cluster, [pod for pod in pods if pod.metadata.deletion_timestamp is None], *rest)

    return mock.patch("berth.handlers.reconcile.adopt", some)


def an_annotation_of_the_last_holder_is_written() -> Any:
    """What was told once of a node is told there to the next pod as well."""
    told: dict[str, dict[str, str]] = {}

    def remembered(claim: Claim, pools: Any) -> dict[str, str]:
        return told.setdefault(claim.node, pools_annotations(claim, pools))

    return mock.patch.object(settle, "pools_annotations", remembered)


def a_store_that_does_not_answer_is_taken_for_a_yes() -> Any:
    reserve = Ledger.reserve

    def hopeful(self: Ledger, wanted: Claim, **how: Any) -> Claim:
        try:
            return reserve(self, wanted, **how)
        except StoreUnavailableError:
            return wanted

    return mock.patch.object(Ledger, "reserve", hopeful)


def two_stripes_give_the_same_units() -> Any:
    return mock.patch.object(
        capacity, "_listed", lambda parts, whole: [part._replace(units=whole) for part in parts]
    )


def a_full_stripe_is_taken_for_a_full_pool() -> Any:
    parts = allocation._parts

    def first(holding: Holding, count: int, *rest: Any) -> Any:
        found = parts(holding, count, *rest)
        return found if found == [allocation._in(holding, allocation._first(rest[1].uid, count))] else None

    return mock.patch.object(allocation, "_parts", first)


def _never_short(kind: DomainKind) -> Any:
    """Quotas of this kind are read by filter, in its View, and not looked at by bind."""
    there = allocation._room

    def enough(holding: Holding, *rest: Any) -> int:
        return holding.count if holding.name.kind == kind else there(holding, *rest)

    return mock.patch.object(allocation, "_room", enough)


def a_poolclaim_has_as_many_holders_as_come_at_once() -> Any:
    return _never_short("poolclaim")


def a_limit_is_looked_at_in_the_view_alone() -> Any:
    return _never_short("namespace")


def a_unit_that_rests_is_given_all_the_same() -> Any:
    return mock.patch.object(RetainedUnits, "bars", return_value=False)


def a_capacity_that_falls_closes_nothing() -> Any:
    cut = capacity.cut

    def open_still(*arguments: Any) -> Any:
        changed = cut(*arguments)
        return {name: msgspec.structs.replace(domain, closed=False) for name, domain in changed.items()}

    return mock.patch.object(capacity, "cut", open_still)


def a_lost_node_is_taken_for_one_that_is_gone() -> Any:
    """And what its pods used is given to others while they may still run."""
    return mock.patch.object(retention, "may_run", return_value=False)


def a_lost_ledger_forgets_which_units_pods_have() -> Any:
    return mock.patch("berth.controller.adopt.with_annotated_units", lambda claim, *_: claim)


def two_holdings_of_a_claim_are_counted_one_by_one() -> Any:
    """A pod that asks for more than its PoolClaim gives takes the last unit twice."""
    return mock.patch.object(allocation, "_besides", lambda at, *_: at)


def what_rests_takes_room_though_it_is_listed_no_more() -> Any:
    return mock.patch.object(Domain, "retained_here", property(lambda self: self.retained))


def what_a_wrong_clock_wrote_is_believed() -> Any:
    """A unit that was freed under a clock a year ahead rests for a year."""
    return mock.patch.object(Ledger, "cap_retention")


def a_reservation_from_the_future_is_young() -> Any:
    return mock.patch.object(reconcile, "abs", lambda seconds: seconds, create=True)


def the_limits_of_namespaces_stay() -> Any:
    return mock.patch.object(Ledger, "drop_limits")


def what_rests_is_forgotten_when_its_node_is_registered_anew() -> Any:
    def empty(domain: Domain) -> bool:
        return domain.capacity is None and not (domain.claims or domain.stripes)

    return mock.patch.object(Domain, "empty", property(empty))


def a_pod_that_has_a_claim_is_not_looked_at_again() -> Any:
    """What runs is not counted by a Pool that comes in the place of another one."""

    def unknown(ledger: Ledger, cluster: Cluster, pods: Iterable[Pod], *rest: Any) -> Adopted:
        new = [pod for pod in pods if not ledger.view().claims_of(pod.metadata.uid)]
        return adopt(ledger, cluster, new, *rest)

    return mock.patch("berth.handlers.reconcile.adopt", unknown)


def waiters_are_woken_for_what_a_cordoned_node_has() -> Any:
    anywhere = Fit.anywhere
    return mock.patch.object(Fit, "anywhere", lambda self, _: anywhere(self))


def a_rack_is_taken_for_the_node_of_the_same_name() -> Any:
    def is_of_node(which: tuple[str, str], node: str, _: object) -> bool:
        return parse_domain(which[1]).place == node

    return mock.patch.object(capacity_sync, "_is_of_node", is_of_node)


def an_older_look_at_pools_undoes_a_newer_one() -> Any:
    return mock.patch.object(Commits, "_replace", lambda self, **_: self)  # no fence is kept


def a_pod_that_nobody_can_write_to_stops_reconcile() -> Any:
    return mock.patch.object(PodWrites, "attempt", lambda _, namespace, name, what, write, *__: write())  # noqa: ARG005


def units_kept_on_another_node_keep_nobody_from_the_one_that_is_offered() -> Any:
    return mock.patch.object(Fit, "kept_elsewhere", return_value=False)


def what_runs_on_a_node_that_is_gone_is_not_the_clusters() -> Any:
    """A licence that such a pod uses is given to another one."""
    return mock.patch.object(adoption, "_everywhere", lambda claim, _: claim)


def a_pod_with_two_claims_that_are_bound_is_taken_for_well() -> Any:
    """By the one of them that is looked at, whatever stands in other stripes. Chance lets two binds seldom
    choose two stripes: tests/ledger/test_lagging_view.py shows it."""

    def stands(claim: Claim, view: View) -> bool:
        there = next(iter(view.claims_of(claim.uid)), None)
        same = there is not None and (there.node, there.logical()) == (claim.node, claim.logical())
        return there is not None and same and there.state == "bound" and claim.units <= there.units

    return mock.patch.object(adoption, "stands", stands)


def a_node_shows_its_capacity_though_its_pods_hold_more() -> Any:
    """A kubelet that starts again ends running pods then. The worlds have none, and Pools of another group of
    resources: tests/unit/controller/test_node_status.py shows it."""
    return mock.patch.object(node_status, "_held", return_value=0)


def each_update_of_a_document_makes_one_time_more() -> Any:
    """And a process that lives long has millions of them in memory. It is a cost, and breaks no promise:
    tests/unit/ledger/test_view.py shows it."""

    def pushed(self: Due, key: tuple[str, str], time: float | None) -> None:
        if time is not None:
            self._times[key] = time
            heapq.heappush(self._queue, (time, key))

    return mock.patch.object(Due, "set", pushed)


PLAIN, SHARED = Kind(0, {}), Kind(2, {})
RESTS = Kind(3, {"reuseAfterSeconds": LONG})
LIMITED = Kind(0, {"limits": {"*": 1}})
"""So that a bug is found soon: most need no more than units on nodes; some need a pool for the cluster."""

BUGS: list[tuple[int, Callable[[], Any], Kind | None]] = [
    (1, only_the_first_pool_is_counted, PLAIN),
    (1, who_writes_last_wins, PLAIN),
    (1, two_stripes_give_the_same_units, Kind(4, {})),
    (1, a_poolclaim_has_as_many_holders_as_come_at_once, None),
    (1, a_limit_is_looked_at_in_the_view_alone, LIMITED),
    (1, a_unit_that_rests_is_given_all_the_same, None),
    (1, two_holdings_of_a_claim_are_counted_one_by_one, None),
    (2, a_claim_is_written_pool_by_pool_and_not_to_its_end, PLAIN),
    (3, what_a_dead_bind_reserved_is_left_alone, PLAIN),
    (3, a_lost_ledger_forgets_which_units_pods_have, None),
    (4, a_delete_event_is_believed, PLAIN),
    (4, claims_are_kept_by_the_pods_name, PLAIN),
    (4, a_lost_node_is_taken_for_one_that_is_gone, None),
    (5, a_full_stripe_is_taken_for_a_full_pool, SHARED),
    (5, a_binding_without_an_answer_counts_as_refused, PLAIN),
    (5, a_binding_lands_whatever_was_written_since, PLAIN),
    (6, nobody_is_woken_when_a_pod_goes, PLAIN),
    (7, a_refusal_names_the_node, PLAIN),
    (5, what_rests_takes_room_though_it_is_listed_no_more, RESTS),
    (3, the_limits_of_namespaces_stay, Kind(1, {"limits": {"*": 3}})),
    (3, a_pod_that_has_a_claim_is_not_looked_at_again, SHARED),
    (6, waiters_are_woken_for_what_a_cordoned_node_has, PLAIN),
    (6, a_rack_is_taken_for_the_node_of_the_same_name, Kind(1, {})),
    (1, an_older_look_at_pools_undoes_a_newer_one, SHARED),
    (3, a_pod_that_nobody_can_write_to_stops_reconcile, SHARED),
    (3, what_runs_on_a_node_that_is_gone_is_not_the_clusters, SHARED),
    (9, a_store_that_does_not_answer_is_taken_for_a_yes, PLAIN),
    (10, an_annotation_of_the_last_holder_is_written, Kind(3, {})),
]
