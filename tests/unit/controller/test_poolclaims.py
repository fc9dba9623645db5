"""How long the API server gets for PoolClaims' status when units are freed."""

from unittest import mock

import pytest

from berth.controller.poolclaims import publish_free
from berth.deadline import Deadline
from berth.kube.cluster import Cluster
from berth.ledger.model import Holding

FREED = [Holding("gpu", "n1", 1, claim="erc"), Holding("gpu", "!team/erc", 1)]


@pytest.mark.parametrize(("deadline", "seconds"), [(None, 2.0), (Deadline(4.8, lambda: 0.0), 4.8)])
def test_each_request_has_two_seconds_or_all_that_is_left(deadline: Deadline | None, seconds: float) -> None:
    cluster = mock.create_autospec(Cluster, instance=True)
    document = cluster.pool_claim.return_value = {"metadata": {"generation": 2}}
    publish_free(cluster, FREED, deadline, lambda: 0.0)
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
    publish_free(cluster, FREED, Deadline(1.0, lambda: 1.0))
    assert not cluster.mock_calls
