"""What is said of a pod that waits, on ledgers made at random: it is what filter says, and what would let the
pod in is known. The words for a person are in tests/cli/test_explain.py."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from berth.kube.types import Gate, Meta, Node, NodeSpec, Pod, PodSpec
from berth.ledger.keys import domain_key, namespace_quota, node_key, pool_key, unreserved_quota
from berth.ledger.model import Claim, Domain, Epoch, Holding, RetainedUnits, encode
from berth.ledger.view import View
from berth.scheduling.explanation import Explanation, explain, without_ledger
from berth.scheduling.fit import evaluate
from tests.support.builders.objects import container, node, pool

NOW = 1000.0
NODES = ("n1", "n2", "n3", "n4")
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": ""}
SEEDS = range(60)


def waiting(random: Random) -> Pod:
    asked = {f"berth.dev/{name}": random.randint(0, 3) for name in ("ip", "rack")}
    spec = PodSpec(scheduler_name="berth", containers=[container(asked)], priority=random.choice((0, 10)))
    return Pod(Meta(name="waits", namespace=random.choice(("a", "b")), uid="u"), spec)


def ledger(random: Random) -> View:
    """Two pools with any of the rules, of which most is held, rests or is kept."""
    ip: dict[str, Any] = {"capacity": {"perDomain": 4}, "suspended": random.choice((False, False, ["n1"]))}
    ip |= {"limits": {"a": 3}} if random.random() < 0.5 else {}
    ip |= {"reserved": {"priorityAtLeast": 10, "units": 1}} if random.random() < 0.5 else {}
    rack: dict[str, Any] = {"capacity": {"perDomain": 4}, "scope": "Topology", "topologyKey": "rack"}
    rack |= {"suspended": random.random() < 0.2}
    documents: dict[str, bytes] = {
        pool_key("ip"): encode(pool("ip", **ip)),
        pool_key("rack"): encode(pool("rack", **rack)),
        **{node_key(name): encode({"rack": rack}) for name, rack in RACKS.items()},
    }
    for name, domains in (("ip", NODES), ("rack", ("r1", "r2"))):
        for domain in domains:
            held = random.randint(1, 5)
            claims = {f"{name}-{domain}": _claim(name, domain, held, random)}
            until = NOW + random.randint(1, 9)
            rests = (RetainedUnits(1, rest_until=until),) if random.random() < 0.3 else ()
            documents[domain_key(name, domain)] = encode(Domain(4, claims=claims, retained=rests))
            if name == "ip" and "reserved" in ip:
                quota = unreserved_quota(domain)
                less = {uid: _claim(name, quota, held, random) for uid in claims}
                documents[domain_key(name, quota)] = encode(Domain(3, claims=less))
    if "limits" in ip and random.random() < 0.5:
        quota = namespace_quota("a")
        documents[domain_key("ip", quota)] = encode(Domain(3, claims={"x": _claim("ip", quota, 2, random)}))
    view = View()
    view.update(documents, NOW)
    view.epoch = Epoch("epoch-1", 1.0)
    return view


def _claim(name: str, domain: str, held: int, random: Random) -> Claim:
    uid = f"{name}-{domain.rstrip('<')}"
    holdings = (Holding(name, domain, held),)
    since = float(random.randint(1, 900))
    return Claim(uid=uid, namespace="b", name=uid, node="n1", holdings=holdings, state="bound", since=since)


def told_of(seed: int) -> tuple[Pod, View, Explanation]:
    random = Random(seed)
    pod, view = waiting(random), ledger(random)
    nodes = [node(name, {"rack": rack} if rack else {}) for name, rack in RACKS.items()]
    return pod, view, explain(pod, view, nodes, NOW)


@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_are_refused_as_filter_refuses_them_and_each_domain_in_filter_s_words(seed: int) -> None:
    pod, view, told = told_of(seed)
    reasons = evaluate(pod, NODES, view, NOW).reasons
    assert {name: group.text for group in told.refused for name in group.nodes} == reasons
    if told.verdict == "nothingAsked":
        assert not reasons
        return
    fitting = set(NODES) - reasons.keys()
    assert (told.verdict == "fits", set(told.fitting)) == (bool(fitting), fitting)
    obstacles = [text for part in told.pools for text in part.refusals]
    for name in NODES:
        alone = evaluate(pod, [name], view, NOW).reasons.get(name, "")
        assert alone == "; ".join(obstacles or filter(None, _texts(told, name)))


@pytest.mark.parametrize("seed", SEEDS)
def test_there_is_always_a_way_in_and_nothing_is_changed_by_looking_for_it(seed: int) -> None:
    pod, view, told = told_of(seed)
    before = _documents(view)
    again = explain(pod, view, [Node(Meta(name=name)) for name in NODES], NOW)
    assert _documents(view) == before
    assert bool(told.remedies) == (told.verdict == "waits") == bool(again.remedies)
    for remedy in told.remedies:
        assert all(step.text for step in remedy.steps)


def test_holders_are_told_the_oldest_first_with_the_median_of_all() -> None:
    _, _, told = told_of(next(seed for seed in SEEDS if told_of(seed)[2].verdict == "waits"))
    for part in told.pools:
        since = [holder.since for holder in part.holders]
        assert since == sorted(since)
        assert (part.oldest_since, part.median_since) == (since[0], since[(len(since) - 1) // 2])


def test_a_pod_that_is_being_deleted_goes_nowhere() -> None:
    meta = Meta(name="a", namespace="d", uid="u", deletion_timestamp="2026-01-01T00:00:00Z")
    told = without_ledger(Pod(meta, PodSpec(scheduler_name="berth", scheduling_gates=[Gate("g")])), ["berth"])
    assert told is not None
    assert (told.verdict, told.summary) == ("ending", "is being deleted, and goes to no node any more")


def test_a_cluster_whose_nodes_take_no_pods_is_told_of() -> None:
    pod, view, _ = told_of(next(seed for seed in SEEDS if told_of(seed)[2].verdict == "fits"))
    assert explain(pod, view, [], NOW).summary == "waits: the cluster has no node that takes pods"
    shut = [Node(Meta(name=name), NodeSpec(unschedulable=True)) for name in NODES]
    told = explain(pod, view, shut, NOW)
    assert told.summary.startswith("waits: only nodes that are cordoned could take it: ")
    assert told.remedies[0].steps[0].command.startswith("kubectl uncordon n")


def _texts(told: Explanation, name: str) -> list[str]:
    """What is said of the node's domains, a text a pool."""
    texts = []
    for part in told.pools:
        domain = name if part.scope == "Node" else RACKS[name]
        by_name: Mapping[str, str] = {row.name: row.refusal for row in part.domains}
        texts.append(by_name[domain] if domain else f"{part.name}: the node has no label rack")
    return texts


def _documents(view: View) -> dict[str, Any]:
    return {
        "domains": {name: dict(domains) for name, domains in view.domains.items()},
        "free": {name: dict(free) for name, free in view.free.items()},
        "pools": dict(view.pools),
        "places": {name: dict(places) for name, places in view.places.items()},
    }
