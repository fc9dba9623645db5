"""How long the API server gets for PoolClaims' status when units are freed, and what is written where all is
well. What is written where it is not: tests/features/test_poolclaims_bounds.py."""

from unittest import mock

import pytest

from berth.controller.poolclaims import publish_free
from berth.deadline import Deadline
from berth.errors import StoreUnavailableError
from berth.kube.cluster import Cluster
from berth.ledger.keys import domain_key, pool_key
from berth.ledger.ledger import Ledger
from berth.ledger.model import Domain, Epoch, Holding, PoolClaimSpec, encode
from berth.ledger.view import View
from berth.stores.base import EPOCH
from tests.support.builders.objects import pool

FREED = [Holding("gpu", "n1", 1, claim="erc"), Holding("gpu", "!team/erc", 1)]


def a_ledger() -> mock.Mock:
    view = View()
    claim = encode(Domain(1, poolclaim=PoolClaimSpec(1)))
    key = domain_key("gpu", "!team/erc")
    view.update({EPOCH: encode(Epoch("e", 1.0)), pool_key("gpu"): encode(pool("gpu")), key: claim})
    ledger: mock.Mock = mock.create_autospec(Ledger, instance=True)
    ledger.view.return_value = view
    return ledger


@pytest.mark.parametrize(("deadline", "seconds"), [(None, 2.0), (Deadline(4.8, lambda: 0.0), 4.8)])
def test_each_request_has_two_seconds_or_all_that_is_left(deadline: Deadline | None, seconds: float) -> None:
    cluster = mock.create_autospec(Cluster, instance=True)
    metadata = {"namespace": "team", "name": "erc", "generation": 2}
    document = cluster.pool_claim.return_value = {"metadata": metadata, "spec": {"pool": "gpu"}}
    publish_free(a_ledger(), cluster, FREED, deadline, lambda: 0.0)
    cluster.pool_claim.assert_called_once_with("team", "erc", seconds)
    since = {"lastTransitionTime": "1970-01-01T00:00:00Z", "observedGeneration": 2}
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Available", "message": "a pod can get it", **since},
        {"type": "Bound", "status": "False", "reason": "Available", "message": "", **since},
    ]
    free = {"phase": "Available", "conditions": conditions}
    cluster.set_pool_claim_status.assert_called_once_with(document, free, seconds)


def test_nothing_is_requested_after_the_deadline() -> None:
    cluster = mock.create_autospec(Cluster, instance=True)
    publish_free(a_ledger(), cluster, FREED, Deadline(1.0, lambda: 1.0))
    assert not cluster.mock_calls


def test_the_store_is_asked_only_where_a_poolclaim_was_freed_and_may_be_away() -> None:
    """Who freed the units goes on to wake pods."""
    cluster, ledger = mock.create_autospec(Cluster, instance=True), a_ledger()
    publish_free(ledger, cluster, [Holding("gpu", "n1", 1)])
    assert not ledger.mock_calls
    ledger.view.side_effect = StoreUnavailableError("the store is away")
    publish_free(ledger, cluster, FREED)
    assert not cluster.mock_calls
