"""The line in which pods wait, and who is in it."""

from hypothesis import given
from hypothesis import strategies as st

from berth.controller.line import in_line, lines
from berth.kube.types import Gate, Meta, Pod, PodSpec
from berth.ledger.model import LineHold
from berth.scheduling.demand import rank_of
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


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.integers(0, 3), st.uuids().map(str)),
        min_size=2,
        max_size=8,
        unique_by=lambda drawn: drawn[2],
    )
)
def test_there_is_one_order_whoever_asks(drawn: list[tuple[int, int, str]]) -> None:
    """What is held for one in line bars those who stand behind it in `berth waiting`, and no other."""
    pods = [
        Pod(
            Meta(name=uid, uid=uid, creation_timestamp=f"2026-01-01T00:00:0{second}Z"),
            PodSpec(priority=priority),
        )
        for priority, second, uid in drawn
    ]
    line = in_line(pods)
    assert line == in_line(reversed(pods))
    ranks = [rank_of(pod, VIEW, 0.0) for pod in line]
    for place, rank in enumerate(ranks):
        hold = LineHold(rank.uid, rank.label, 1, rank.priority, rank.made)
        assert [hold.bars(other, lambda: None) for other in ranks] == [
            number > place for number in range(len(ranks))
        ]
