"""Where a pod fits: it keeps to what was kept for it."""

from berth.kube.types import Meta, Pod
from berth.ledger.keys import domain_key, pool_key
from berth.ledger.model import Domain, RetainedUnits, encode
from berth.ledger.view import View
from berth.scheduling.demand import Demand
from berth.scheduling.fit import Fit
from tests.support.builders.objects import pool

POD = Pod(Meta(name="web-0", namespace="d", uid="u"))
DEMAND = Demand({"ip": 1, "slot": 1})


def view_of(**kept_on: str) -> View:
    """Two units of each pool on three nodes, one of them kept for d/web-0 on the node that is named."""
    view = View()
    documents = {pool_key(name): encode(pool(name=name)) for name in kept_on}
    for name, kept in kept_on.items():
        for node in ("n1", "n2", "n3"):
            left = (RetainedUnits(1, owner="d/web-0", kept_until=60.0),) if node == kept else ()
            documents[domain_key(name, node)] = encode(Domain(2, retained=left))
    view.update(documents, 0.0)
    return view


def kept(view: View, *names: str, now: float = 1.0) -> set[str] | None:
    return Fit(POD, DEMAND, view, now).keeps_to(iter(names))


def test_a_pod_keeps_to_the_node_where_units_are_kept_for_it() -> None:
    assert kept(view_of(ip="n2", slot="n2"), "n1", "n2", "n3") == {"n2"}


def test_it_keeps_to_what_is_offered_of_several_nodes_where_units_are_kept_for_it() -> None:
    view = view_of(ip="n1", slot="n3")
    assert kept(view, "n2", "n3") == {"n3"}
    assert kept(view, "n1", "n2") == {"n1"}


def test_it_may_go_anywhere_where_none_of_them_is_offered_or_the_time_is_over() -> None:
    view = view_of(ip="n1", slot="n1")
    assert kept(view, "n2", "n3") is None
    assert kept(view, "n1", "n2", now=60.0) is None
