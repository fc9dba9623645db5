"""One bug or two for each promise, as they were seen in the field (facts, 9), to be switched on in a test.
Each replaces a small part of the product while its block lasts; none is in the product."""

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import msgspec

from berth import decisions
from berth.cluster import Cluster
from berth.decisions import Domains
from berth.documents import Claim
from berth.errors import BerthError, RefusedError, StoreUnavailableError
from berth.events import Event
from berth.ledger import Ledger
from berth.objects import Pod
from berth.policy import fit
from berth.steps.adopt import adopt
from berth.steps.claims import Settled
from berth.verbs import release
from berth.verbs.bind import Bind
from tests.contract.properties.api import NAMESPACE
from tests.contract.properties.memory import MemoryStore


def only_the_first_pool_is_counted() -> Any:
    require_room = decisions.require_room
    return mock.patch.object(
        decisions, "require_room", lambda holdings, domains: require_room(tuple(holdings)[:1], domains)
    )


def who_writes_last_wins() -> Any:
    """Two that count at the same time both take the last unit."""
    commit = MemoryStore.commit
    return mock.patch.object(MemoryStore, "commit", lambda self, writes, _: commit(self, writes, {}))


def a_claim_is_written_pool_by_pool_and_not_to_its_end() -> Any:
    with_claim = decisions.with_claim

    def first(claim: Claim, domains: Domains) -> Any:
        return with_claim(claim, dict(list(domains.items())[:1]))

    return mock.patch.object(decisions, "with_claim", first)


def what_a_dead_bind_reserved_is_left_alone() -> Any:
    return mock.patch("berth.verbs.reconcile.settle", return_value=Settled(None))


def a_delete_event_is_believed() -> Any:
    run = release.run

    def believing(ledger: Ledger, cluster: Cluster, *rest: Any) -> Any:
        with mock.patch.object(Cluster, "pod", return_value=None):
            return run(ledger, cluster, *rest)

    return mock.patch.object(release, "run", believing)


def claims_are_kept_by_the_pods_name() -> Any:
    """A StatefulSet's new pod loses what it holds by the late event of the old one."""
    run = release.run

    def by_name(ledger: Ledger, cluster: Cluster, schedulers: Any, event: Event, *rest: Any) -> Any:
        if (
            not isinstance(found := cluster.pod(NAMESPACE, event.about(Pod).metadata.name), Pod)
            or found.finished
        ):
            return run(ledger, cluster, schedulers, event, *rest)
        if found.metadata.uid != event.about(Pod).metadata.uid:
            ledger.release(found.metadata.uid)
        return {}

    return mock.patch.object(release, "run", by_name)


def a_binding_without_an_answer_counts_as_refused() -> Any:
    def settled(self: Bind, call: Any, claim: Claim | None, _: float, error: BerthError) -> bool:
        if claim is not None:
            self._ledger.cancel(claim)
        raise RefusedError(f"pod {call.namespace}/{call.name} was not bound: {error}")

    return mock.patch.object(Bind, "_settled", settled)


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

    return mock.patch("berth.verbs.filter.refusals", naming)


def pods_that_terminate_are_not_counted_after_a_loss() -> Any:
    def some(ledger: Ledger, cluster: Cluster, pods: Iterable[Pod], *rest: Any) -> int:
        return adopt(ledger, cluster, [pod for pod in pods if pod.metadata.deletion_timestamp is None], *rest)

    return mock.patch("berth.verbs.reconcile.adopt", some)


def a_store_that_does_not_answer_is_taken_for_a_yes() -> Any:
    reserve = Ledger.reserve

    def hopeful(self: Ledger, wanted: Claim, **how: Any) -> Claim:
        try:
            return reserve(self, wanted, **how)
        except StoreUnavailableError:
            return wanted

    return mock.patch.object(Ledger, "reserve", hopeful)


BUGS: list[tuple[int, Callable[[], Any]]] = [
    (1, only_the_first_pool_is_counted),
    (1, who_writes_last_wins),
    (2, a_claim_is_written_pool_by_pool_and_not_to_its_end),
    (3, what_a_dead_bind_reserved_is_left_alone),
    (4, a_delete_event_is_believed),
    (4, claims_are_kept_by_the_pods_name),
    (5, a_binding_without_an_answer_counts_as_refused),
    (5, a_binding_lands_whatever_was_written_since),
    (6, nobody_is_woken_when_a_pod_goes),
    (7, a_refusal_names_the_node),
    (8, pods_that_terminate_are_not_counted_after_a_loss),
    (9, a_store_that_does_not_answer_is_taken_for_a_yes),
]
