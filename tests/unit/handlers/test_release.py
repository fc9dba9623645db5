"""What release answers out of an event alone: nobody is asked about a pod that can't have ended."""

from typing import Any, cast

import pytest

from berth.handlers.release import Release
from berth.http import cloudevents
from tests.bench.foreign import told_of
from tests.support.fakes.apiserversource import binary, structured

POD = {"name": "mine", "namespace": "default", "uid": "00000000-0000-4000-8000-000000000001"}


@pytest.mark.parametrize("mode", [binary, structured])
@pytest.mark.parametrize("event", ["pod-add", "pod-update-graceful-deletion"])
def test_an_event_of_our_own_pod_that_is_not_over_asks_neither_the_store_nor_the_api_server(
    event: str, mode: Any
) -> None:
    release = Release(cast("Any", None), cast("Any", None), ("berth",))  # each is an error if it is asked
    headers, body = mode(told_of(event, POD, "berth", {"berth.dev/ip": "1"}))
    done = release.run(cloudevents.decode(headers, body))
    assert done == {"released": 0, "why": "the pod is neither deleted nor finished"}


@pytest.mark.parametrize("event", ["pod-update-finished", "pod-delete"])
def test_an_event_of_our_own_pod_that_may_be_over_is_believed_only_by_the_api_server(event: str) -> None:
    asked: list[str] = []

    class Cluster:
        def pod(self, namespace: str, name: str, *, uid: str) -> Any:
            asked.append(f"{namespace}/{name} {uid}")
            raise LookupError

    release = Release(cast("Any", None), cast("Any", Cluster()), ("berth",))
    headers, body = binary(told_of(event, POD, "berth", {"berth.dev/ip": "1"}))
    with pytest.raises(LookupError):
        release.run(cloudevents.decode(headers, body))
    assert asked == [f"default/mine {POD['uid']}"]
