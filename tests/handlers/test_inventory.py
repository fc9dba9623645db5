"""inventory at events of Pools, beside the stand-in API server. In a cluster: tests/e2e/test_crd.py."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.support.builders.places import Place
from tests.support.builders.stage import Stage, staged


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with staged(tmp_path, place) as made:
        yield made


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_pool_of_which_only_the_status_was_written_causes_no_look_at_nodes_or_pods(stage: Stage) -> None:
    with mock.patch.object(stage.cluster, "nodes") as nodes, mock.patch.object(stage.cluster, "pods") as pods:
        assert stage.inventory_of_pool(seen=True) == {"changed": 0, "woken": 0}
    assert (nodes.call_count, pods.call_count) == (0, 0)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_pool_that_changed_is_taken_over_with_its_capacity(stage: Stage) -> None:
    assert stage.settings.pools is not None
    text = stage.settings.pools.read_text()
    stage.settings.pools.write_text(text.replace("perDomain: 1", "perDomain: 3"))
    assert stage.inventory_of_pool()["changed"] == 2
    calls = [stage.add_pod("3"), stage.add_pod("1")]
    assert [bool(stage.bind(call, "n1")) for call in calls] == [False, True]
