"""What takes a node into a pool: what is told is what the Pool would say of the node, and its commands work.

That each remedy lets the pod in: test_explanation.py; the words in all situations: tests/cli/test_explain.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from berth.kube.types import Meta, Node, Pod, PodSpec
from berth.ledger.keys import domain_key, node_key, pool_key
from berth.ledger.model import Domain, Epoch, encode
from berth.ledger.view import View
from berth.scheduling.remedy import remedies
from tests.support.builders.objects import container, node, pool

RACKS: Mapping[str, Any] = {"scope": "Topology", "topologyKey": "rack", "capacity": {"perDomain": 4}}
SEEN = "; inventory or reconcile must see it first"
POD = Pod(Meta(name="p", uid="u"), PodSpec(containers=[container({"berth.dev/ip": 2})]))


def told(
    its: Node | Sequence[Node], racks: Mapping[str, int] | None = None, place: str | None = None, **spec: Any
) -> list[Any]:
    """The steps of each remedy with these nodes alone, in a ledger where these racks have so many units."""
    documents = {pool_key("ip"): encode(pool("ip", **spec))}
    documents |= {domain_key("ip", name): encode(Domain(units)) for name, units in (racks or {}).items()}
    nodes = {it.metadata.name: it for it in ([its] if isinstance(its, Node) else its)}
    documents |= {} if place is None else {node_key(name): encode({"ip": place}) for name in nodes}
    view = View()
    view.update(documents)
    view.epoch = Epoch("e", 1.0)
    found = remedies(POD, view, nodes, (), 0.0)
    return [[(step.text.removesuffix(SEEN), step.command) for step in each.steps] for each in found]


def selector(**labels: str) -> dict[str, Any]:
    return {"nodeSelector": {"matchLabels": labels}}


def test_a_label_that_is_there_is_overwritten() -> None:
    net = selector(net="underlay", tier="1")
    text = "node n1 in Pool ip, whose nodeSelector wants net=underlay, tier=1"
    command = "kubectl label node n1 net=underlay --overwrite"
    assert told(node("n1", {"net": "old", "tier": "1"}), **net) == [[(text, command)]]
    assert told(node("n1"), **net) == [[(text, "kubectl label node n1 net=underlay tier=1")]]


def test_labels_alone_take_no_control_plane_node_into_a_pool() -> None:
    master = node("n1", {"node-role.kubernetes.io/control-plane": ""})
    wants = "whose nodeSelector wants net=underlay, with includeControlPlane: true"
    assert told(master, **selector(net="underlay")) == [[(f"node n1 in Pool ip, {wants}", "")]]
    assert told(master) == [[("node n1 in Pool ip, with includeControlPlane: true", "")]]


def test_of_nodes_outside_a_pool_those_are_told_first_that_a_label_takes_in() -> None:
    nodes = [node("n1", {"node-role.kubernetes.io/control-plane": ""}), node("n2"), node("n3")]
    plain, shut = told(nodes, **selector(net="yes"))
    text = "node n2 in Pool ip, whose nodeSelector wants net=yes"
    assert plain == [(text, "kubectl label node n2 net=yes")]
    assert "includeControlPlane" in shut[0][0]
    racks = [node("n1", {"rack": "r1"}), node("n2", {"rack": "r2"})]
    (first, *_) = told(racks, {"r1": 1, "r2": 4}, **RACKS, **selector(net="yes"))
    assert [command for _, command in first] == ["kubectl label node n2 net=yes"]


def test_a_node_joins_in_the_domain_that_its_labels_name() -> None:
    racks = {"r1": 1, "r2": 4}
    join = "node n1 in Pool ip, whose nodeSelector wants net=yes", "kubectl label node n1 net=yes"
    net = selector(net="yes")
    assert told(node("n1", {"rack": "r2"}), racks, **RACKS, **net) == [[join]]
    larger = "a capacity of ip in r1 of at least 2 (now 1)", ""
    assert told(node("n1", {"rack": "r1"}), racks, **RACKS, **net) == [[join, larger]]
    label = "label rack=r2 on node n1 (r2 has 4 of 4 ip free)", "kubectl label node n1 rack=r2"
    assert told(node("n1", {"x": "y"}), racks, **RACKS, **net) == [[join, label]]
    assert told(node("n1", {"rack": "r3"}), racks, **RACKS, **net) == [[join]]


def test_a_node_that_the_ledger_has_not_seen_is_counted_by_reconcile() -> None:
    counted = "node n1 is counted in Pool ip, as its labels say", "berth reconcile"
    assert told(node("n1")) == [[counted]]
    assert told(node("n1", {"rack": "r1"}), {"r1": 4}, "", **RACKS) == [[counted]]
    assert told(node("n1"), capacity={"perDomain": 1}) == []


def test_nothing_is_told_of_a_node_whose_labels_are_not_known() -> None:
    unknown = Node(Meta(name="n1"))
    assert told(unknown, **selector(net="yes")) == []
    label = "label rack=r1 on node n1 (r1 has 4 of 4 ip free)", "kubectl label node n1 rack=r1"
    assert told(unknown, {"r1": 4}, "", **RACKS, **selector(net="yes")) == [[label]]
