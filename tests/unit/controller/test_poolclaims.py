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
    publish_free(cluster, FREED, deadline)
    cluster.pool_claim.assert_called_once_with("team", "erc", seconds)
    document = cluster.pool_claim.return_value
    cluster.set_pool_claim_status.assert_called_once_with(document, {"phase": "Available"}, seconds)


def test_nothing_is_requested_after_the_deadline() -> None:
    cluster = mock.create_autospec(Cluster, instance=True)
    publish_free(cluster, FREED, Deadline(1.0, lambda: 1.0))
    assert not cluster.mock_calls
