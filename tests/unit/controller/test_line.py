"""The line in which pods wait, and who is in it."""

from berth.controller.line import in_line, lines
from berth.kube.types import Gate, Meta, Pod, PodSpec
from tests.support.builders.objects import container
from tests.unit.cli.test_tables import claim, view_of

MADE = "2026-01-01T00:00:00Z"
VIEW = view_of({("ip", "n1"): 2, ("seat", "n1"): 3}, claim("bound", ip=1), claim("binding", "reserved", ip=1))


def pod(name: str, priority: int | None = None, made: str = MADE, *, node: str = "", **asked: int) -> Pod:
    requests = {f"berth.dev/{pool}": count for pool, count in (asked or {"ip": 1}).items()}
    gates = [Gate("example.com/later")] if name == "gated" else None
    spec = PodSpec(
        node_name=node, priority=priority, containers=[container(requests)], scheduling_gates=gates
    )
    return Pod(Meta(name=name, uid=f"uid-{name}", creation_timestamp=made), spec)


def named(*pods: Pod) -> dict[str, list[str]]:
    return {pool: [pod.metadata.name for pod in line] for pool, line in lines(pods, VIEW).items()}


def test_the_most_important_is_first_and_among_equals_the_oldest() -> None:
    pods = [
        pod("young", made="2026-01-01T00:00:09Z"),
        pod("old"),
        pod("urgent", 1000, "2026-01-01T00:00:30Z"),
        pod("later", -1),
    ]
    assert [pod.metadata.name for pod in in_line(pods)] == ["urgent", "old", "young", "later"]


def test_each_pool_has_a_line_of_its_own() -> None:
    pods = pod("a"), pod("b", ip=2, seat=1), pod("c", 7, seat=1), pod("d", -1)
    assert named(*pods) == {"seat": ["c", "b"], "ip": ["a", "b", "d"]}


def test_who_can_be_given_nothing_and_who_has_its_units_is_in_no_line() -> None:
    elsewhere = pod("bound"), pod("binding"), pod("gated"), pod("runs", node="n1")
    assert named(*elsewhere, pod("refused", 9, ip=1, typo=1), pod("first")) == {"ip": ["first"]}
