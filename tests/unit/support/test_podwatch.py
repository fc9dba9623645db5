"""The watch that judges the end-to-end tests: what it does where an API server forgets what came before.

That it counts rightly on a real API server is shown in tests/controlplane.
"""

import json
import threading
from typing import Any

import pytest
import urllib3

from tests.support.podwatch import Gap, PodWatch

Pod = dict[str, Any]


def pod(name: str, version: int, node: str = "", units: int = 1) -> Pod:
    limits = {"berth.dev/ip": str(units)}
    spec = {"nodeName": node, "containers": [{"resources": {"limits": limits}}]}
    metadata = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": spec, "status": {}}


class Scripted(urllib3.PoolManager):
    """Lists and watches as they were written down, in their order; the last watch goes on until it is ended.
    A list is (resourceVersion, pods), a watch (status, events)."""

    def __init__(self, lists: list[tuple[int, list[Pod]]], watches: list[tuple[int, list[Pod]]]) -> None:
        super().__init__()
        self._lists, self._watches = lists, watches
        self.cursors: list[str] = []
        self.asked_again = threading.Event()

    def request(self, method: str, url: str, *_: Any, fields: Any = None, **__: Any) -> Any:  # noqa: ARG002
        if fields is None:
            version, pods = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
            listed = {"metadata": {"resourceVersion": str(version)}, "items": pods}
            return urllib3.HTTPResponse(json.dumps(listed).encode(), status=200)
        self.cursors.append(fields["resourceVersion"])
        if not self._watches:
            self.asked_again.set()
            raise urllib3.exceptions.ProtocolError
        status, events = self._watches.pop(0)
        return _Answer(status, [json.dumps(event).encode() for event in events])


class _Answer:
    def __init__(self, status: int, lines: list[bytes]) -> None:
        self.status, self._lines = status, lines

    def __iter__(self) -> Any:
        return iter(self._lines)

    def close(self) -> None:
        """Nothing is open."""

    shutdown = close


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}
BEFORE = [pod("stays", 1, "n1"), pod("goes", 2, "n1"), pod("waits", 3)]
AFTER = [pod("comes", 9, "n1"), pod("stays", 1, "n1"), pod("waits", 8, "n2", 3)]


@pytest.mark.parametrize("watch", [(200, [GONE]), (410, [])])
def test_a_watch_that_cannot_go_on_lists_anew_and_says_what_it_may_have_missed(
    watch: tuple[int, list[Pod]],
) -> None:
    events = [{"type": "MODIFIED", "object": pod("waits", 12, "n2", 3)}]
    http = Scripted([(4, BEFORE), (10, AFTER)], [watch, (200, events)])
    with PodWatch(http, "http://api", "token", "berth.dev/ip") as seen:
        assert http.asked_again.wait(30)
    assert seen.gaps == [Gap("4", "10", 3)]
    assert http.cursors[:3] == ["4", "10", "12"]
    # The pod that had gone was counted out before the one that came was counted in.
    assert seen.peak == {"n1": 2, "n2": 3}
    assert seen.held == {"n1": 2, "n2": 3}
    assert set(seen.bound_at) == {"stays", "goes", "comes", "waits"}


def test_an_api_server_that_is_away_is_asked_again_from_the_same_place() -> None:
    cut = (200, [{"type": "ADDED", "object": pod("new", 5, "n1")}])
    http = Scripted([(4, BEFORE), (6, [*BEFORE, pod("new", 5, "n1")])], [cut, (503, [])])
    with PodWatch(http, "http://api", "token", "berth.dev/ip") as seen:
        assert http.asked_again.wait(30)
    assert not seen.gaps
    assert http.cursors[:3] == ["4", "5", "5"]
    assert seen.peak == {"n1": 3}


def test_a_nomination_that_goes_is_counted_but_not_with_its_pod_or_a_binding() -> None:
    def nominated(name: str, version: int, to: str = "", node: str = "") -> Pod:
        return pod(name, version, node) | {"status": {"nominatedNodeName": to} if to else {}}

    names = ("cleared", "bound", "deleted", "moved")
    cleared, bound, deleted, moved = (nominated(name, number, "n1") for number, name in enumerate(names, 1))
    events = [
        ("MODIFIED", nominated("cleared", 5)),
        ("MODIFIED", nominated("cleared", 6, "n2")),
        ("MODIFIED", nominated("cleared", 7)),
        ("MODIFIED", nominated("bound", 8, node="n1")),
        ("DELETED", nominated("deleted", 9)),
        ("MODIFIED", nominated("moved", 10, "n2")),
    ]
    lines = [{"type": kind, "object": changed} for kind, changed in events]
    after = [each for kind, each in events[2:] if kind != "DELETED"]
    http = Scripted([(4, [cleared, bound, deleted, moved]), (10, after)], [(200, lines)])
    with PodWatch(http, "http://api", "token", "berth.dev/ip") as seen:
        assert http.asked_again.wait(30)
        assert seen.unnominated == {"cleared": 2}
