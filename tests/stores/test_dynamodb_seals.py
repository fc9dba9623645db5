"""Commits that meet in DynamoDB: which are made in the end, and which an epoch that changed stops.

moto lets all transactions through, one after the other: motodynamo.py cancels those that meet, as AWS does.
"""

from berth.stores.base import EPOCH
from berth.stores.dynamodb.transaction import SEALS
from tests.support.builders.races import in_threads
from tests.support.servers.dynamo import Table


def test_commits_that_meet_are_all_made_in_the_end(table: Table) -> None:
    """DynamoDB cancels a transaction that meets another on an item, be it only checked: all these expect the
    epoch and the cluster, by any of the seals."""
    stores = [table.store() for _ in range(4)]
    assert stores[0].commit({EPOCH: b"e", "cluster": b"c"}, {})
    expected = {key: each.version for key, each in stores[0].read([EPOCH, "cluster"]).items()}
    table.server.collide(table.name)
    done: list[bool] = []

    def commit(number: int) -> None:
        done.extend(stores[number].commit({f"{number}": b"%d" % i}, expected) for i in range(10))

    in_threads(commit, len(stores))
    assert done == [True] * 40
    assert {key: found.body for key, found in stores[0].read(["0", "3"]).items()} == {"0": b"9", "3": b"9"}


def test_an_epoch_that_changes_stops_every_commit_that_expected_it(table: Table) -> None:
    """Whichever seal it checks."""
    first, second = table.store(), table.store()
    assert first.commit({EPOCH: b"e", "cluster": b"c"}, {})
    expected = {key: each.version for key, each in second.read([EPOCH, "cluster"]).items()}
    assert first.commit({EPOCH: b"paused"}, {EPOCH: expected[EPOCH]})
    for _ in range(2 * SEALS):
        assert not second.commit({"b": b"late"}, expected)
        assert not second.commit({"b": b"late"}, {EPOCH: None})
    assert first.commit({EPOCH: None}, {"cluster": expected["cluster"]})
    for _ in range(2 * SEALS):
        assert not second.commit({"b": b"late"}, expected)
        assert second.commit({"b": b"closed"}, {EPOCH: None, "cluster": expected["cluster"]})
