"""What the tests of failing binds share: names, a bind caught on its way, what must hold afterwards.
It makes nothing; the fixtures are in conftest.
"""

from tests.e2e.faults.fault_world import Background, World
from tests.e2e.harness import settled
from tests.support.cluster import Object
from tests.support.fakes.proxy import Rule, held, wait_reached

A, B = "node-a", "node-b"
UNITS = 8
BINDING = r"/pods/pod/binding$"
POD = "/api/v1/namespaces/default/pods/pod"
HOLD_SECONDS = 30.0  # beyond anything that a test does meanwhile; `resume` ends it
AGED_SECONDS = 60.0  # in which a reservation outgrows bind's deadline, and reconcile may look at it


def assert_on(world: World, pod: Object, node: str) -> None:
    """The pod and its one claim are on that node, at once and after a reconcile."""
    assert world.node_of(pod) == node
    assert world.claims_of(pod) == [(node, "bound")]
    settled(world)
    assert world.claims_of(pod) == [(node, "bound")]


def assert_nowhere(world: World, pod: Object) -> None:
    """The pod is bound to no node (or gone) and holds nothing, at once and after a reconcile."""
    assert not any(found["spec"].get("nodeName") for found in world.cluster.list_pods())
    assert world.claims_of(pod) == []
    assert world.free() == {A: UNITS, B: UNITS}
    settled(world)
    assert world.claims_of(pod) == []


def caught(world: World, pod: Object, node: str = A) -> tuple[Rule, Background]:
    """A bind call whose Binding is on its way, held until the rule's `resume`."""
    rule = world.proxy.on("POST", BINDING, held(HOLD_SECONDS), times=1)
    call = Background(lambda: world.bind(pod, node))
    wait_reached(rule)
    return rule, call
