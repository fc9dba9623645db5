"""PodGroups are read once for the binds of all their pods, and anew before a pod is refused by one."""

from typing import Any

import pytest

from berth.api.gang import GANG, GANG_SIZE, Gang, gang_of
from berth.controller.pod_groups import BELIEVED_SECONDS, PodGroups
from berth.errors import RefusedError
from berth.kube.types import GangPolicy, Meta, Pod, PodGroup, PodGroupSpec, PodSpec, SchedulingGroup
from berth.kube.types import SchedulingPolicy as Policy


class Served:
    """An API server with one PodGroup of this size; None: without it."""

    def __init__(self, size: int | None) -> None:
        self.size, self.reads, self.now = size, 0, 0.0

    def pod_group(self, namespace: str, name: str, _: float) -> PodGroup | None:
        self.reads += 1
        meta = Meta(name=name, namespace=namespace)
        return None if self.size is None else PodGroup(meta, PodGroupSpec(Policy(GangPolicy(self.size))))

    def groups(self) -> PodGroups:
        cluster: Any = self
        return PodGroups(cluster, lambda: self.now)


def pod(size: int = 0) -> Pod:
    noted = {GANG: "train", GANG_SIZE: str(size)} if size else None
    spec = PodSpec(scheduling_group=SchedulingGroup("train"))
    return Pod(Meta(name="a", namespace="default", annotations=noted), spec)


def gang(size: int = 0) -> Gang:
    named = gang_of(pod(size))
    assert named is not None
    return named


def test_a_pod_group_is_read_once_for_the_binds_of_a_moment() -> None:
    served = Served(3)
    groups = served.groups()
    assert [groups.gang(pod(), gang(), 1.0).size for _ in range(4)] == [3] * 4
    assert served.reads == 1
    served.now, served.size = BELIEVED_SECONDS, 5
    assert groups.gang(pod(), gang(), 1.0).size == 5


def test_what_was_read_before_refuses_nobody() -> None:
    served = Served(3)
    groups = served.groups()
    with pytest.raises(RefusedError, match="its PodGroup 3"):
        groups.gang(pod(2), gang(2), 1.0)
    served.size = 2
    assert groups.gang(pod(2), gang(2), 1.0).size == 2


def test_a_pod_group_that_is_made_is_seen_at_once() -> None:
    served = Served(None)
    groups = served.groups()
    with pytest.raises(RefusedError, match="there is no PodGroup of this name"):
        groups.gang(pod(), gang(), 1.0)
    served.size = 2
    assert groups.gang(pod(), gang(), 1.0).size == 2
