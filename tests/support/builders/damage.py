"""Damage to a ledger, planted by writing its documents through the store's own commit, as a person with the
store's client could; and pods, nodes and Pools of which the ledger was told nothing."""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from berth.controller.checkouts import GRACE_SECONDS
from berth.controller.licence_reading import take_text
from berth.ledger.keys import CLUSTER, UNFENCED, domain_key, node_key, pool_key, stripe
from berth.ledger.model import Claim, Domain, Holding, decode_domain, decode_epoch, encode
from berth.stores.base import EPOCH, Store
from tests.support.builders.copies import pause
from tests.support.builders.pools_stage import PoolsStage

POOLS: dict[str, dict[str, Any]] = {
    "ip": {"capacity": {"perDomain": 2}},
    "k80": {"units": {"n1": ["k80-0", "k80-1"], "n2": ["k80-2"]}},
    "seat": {"scope": "Cluster", "capacity": {"perDomain": 300}, "limits": {"default": 20}, "external": 2},
    "slot": {"scope": "Topology", "topologyKey": "rack", "capacity": {"perDomain": 4}},
    "gpu": {"capacity": {"perDomain": 1}, "preemption": "Native"},
    "flex": {"scope": "Cluster", "capacity": {"perDomain": 9}, "externalFrom": {"feature": "F"}},
    "port": {"units": {"n1": ["p-0", "p-1"]}, "annotations": {"example.com/port": "port {unit}"}},
}
NODES = {"n1": {"rack": "r1"}, "n2": {"rack": "r2"}}
GARBAGE = b"\x00\xffno document"


class Damage(NamedTuple):
    """`plant` does it; `left` are the kinds that a repair leaves."""

    kind: str
    plant: Callable[[PoolsStage], object]
    left: tuple[str, ...] = ()


def write(store: Store, key: str, body: bytes | None) -> None:
    """Write a document as if by hand."""
    there = store.read([key]).get(key)
    assert store.commit({key: body}, {key: None if there is None else there.version})


def domain(store: Store, pool: str, name: str, change: Callable[[Domain], Domain]) -> None:
    """Change a domain's document by hand."""
    key = domain_key(pool, name)
    there = store.read([key]).get(key)
    write(store, key, encode(change(decode_domain(None if there is None else there.body))))


def claims(store: Store, pool: str, name: str, change: Callable[[Claim], Claim | None]) -> None:
    """Change each claim in a domain's document by hand; None takes it away."""

    def changed(there: Domain) -> Domain:
        new = {uid: change(claim) for uid, claim in there.claims.items()}
        return replace(there, claims={uid: claim for uid, claim in new.items() if claim is not None})

    domain(store, pool, name, changed)


def _with(store: Store, claim: Claim) -> None:
    for holding in claim.holdings:
        domain(
            store,
            holding.pool,
            holding.domain,
            lambda there: replace(there, claims={**there.claims, claim.uid: claim}),
        )


def _ghost(stage: PoolsStage) -> None:
    holdings = (Holding("ip", "n1", 1),)
    _with(
        stage.store,
        Claim(uid="ghost", namespace="default", name="ghost", node="n1", holdings=holdings, state="bound"),
    )


def _finished(stage: PoolsStage) -> None:
    stage.finish(stage.bound_pod(ip=1))


def _unclaimed(stage: PoolsStage) -> None:
    stage.bound_pod(ip=1)
    claims(stage.store, "ip", "n1", lambda _: None)


def _elsewhere(claim: Claim) -> Claim:
    return replace(claim, node="n2", holdings=(Holding("ip", "n2", 1),))


def _misplaced(stage: PoolsStage) -> None:
    call = stage.bound_pod(ip=1)
    there = decode_domain(stage.store.read(["domain/ip/n1"])["domain/ip/n1"].body).claims[call.uid]
    claims(stage.store, "ip", "n1", lambda _: None)
    _with(stage.store, _elsewhere(there))


def _doubled(stage: PoolsStage) -> None:
    call = stage.bound_pod(ip=1)
    there = decode_domain(stage.store.read(["domain/ip/n1"])["domain/ip/n1"].body).claims[call.uid]
    _with(stage.store, replace(_elsewhere(there), attempt="other"))


def _miscounted(stage: PoolsStage) -> None:
    stage.bound_pod(ip=1)
    claims(stage.store, "ip", "n1", lambda claim: replace(claim, holdings=(Holding("ip", "n1", 2),)))


def _stuck(stage: PoolsStage) -> None:
    call = stage.pod(ip=1)
    claim = stage.claim(stage.get(call.name), "n1")
    _with(stage.store, replace(claim, since=stage.time() - 60))


def _unconfirmed(stage: PoolsStage) -> None:
    stage.bound_pod(ip=1)
    claims(stage.store, "ip", "n1", lambda claim: replace(claim, state="reserved"))


def _torn(stage: PoolsStage) -> None:
    stage.bound_pod(ip=1, slot=1)
    claims(stage.store, "slot", stripe("r1", 0), lambda _: None)


def _torn_limit(stage: PoolsStage) -> None:
    stage.bound_pod(seat=1)
    claims(stage.store, "seat", "@default", lambda _: None)


def _doubled_unit(stage: PoolsStage) -> None:
    stage.bound_pod("a", k80=1)
    stage.bound_pod("b", k80=1)
    stage.note("b", stage.get("a").metadata.annotations or {})
    claims(
        stage.store,
        "k80",
        "n1",
        lambda claim: replace(claim, holdings=(Holding("k80", "n1", 1, ("k80-0",)),)),
    )


def _misnamed(stage: PoolsStage) -> None:
    stage.bound_pod("a", k80=1)
    claims(
        stage.store,
        "k80",
        "n1",
        lambda claim: replace(claim, holdings=(Holding("k80", "n1", 1, ("k80-1",)),)),
    )


def _mistold(stage: PoolsStage) -> None:
    stage.bound_pod("a", port=1)
    stage.note("a", {"example.com/port": "port p-1"})


def _over_committed(stage: PoolsStage) -> None:
    for _ in range(3):
        stage.pod(node="n1", ip=1)
    stage.reconcile()


def _capacity(stage: PoolsStage) -> None:
    domain(stage.store, "ip", "n1", lambda there: replace(there, capacity=99))


def _no_domain(stage: PoolsStage) -> None:
    write(stage.store, domain_key("ip", "n2"), None)


def _domain_of_no_node(stage: PoolsStage) -> None:
    write(stage.store, domain_key("ip", "n9"), encode(Domain(capacity=2)))


def _units_of_a_domain(stage: PoolsStage) -> None:
    domain(stage.store, "k80", "n2", lambda there: replace(there, units=("k80-7",)))


def _stripe_lost(stage: PoolsStage) -> None:
    write(stage.store, domain_key("seat", stripe("*", 2)), None)


def _stripe_grown(stage: PoolsStage) -> None:
    domain(stage.store, "seat", stripe("*", 2), lambda there: replace(there, capacity=500))


def _closed_stripes(stage: PoolsStage) -> None:
    domain(stage.store, "seat", "*", lambda there: replace(there, closed=True))


def _place(stage: PoolsStage) -> None:
    write(stage.store, node_key("n1"), encode({"slot": "r2"}))


def _pool_missing(stage: PoolsStage) -> None:
    write(stage.store, pool_key("ip"), None)


def _pool_changed(stage: PoolsStage) -> None:
    stage.write_pools(ip={"capacity": {"perDomain": 2}, "score": "Pack"})


def _poolclaim(stage: PoolsStage) -> None:
    stage.claim_object("mine", "k80")
    stage.reconcile()
    write(stage.store, domain_key("k80", "!default/mine"), None)


def _poolclaim_extra(stage: PoolsStage) -> None:
    stage.claim_object("mine", "k80")
    stage.reconcile()
    del stage.objects.documents["default", "mine"]


def _poolclaim_status(stage: PoolsStage) -> None:
    stage.claim_object("mine", "k80")
    stage.reconcile()
    document = stage.objects.documents["default", "mine"]
    stage.objects.put({**document, "status": {"phase": "Bound", "pod": "ghost"}})


def _external(stage: PoolsStage) -> None:
    stage.write_pools(seat={**POOLS["seat"], "external": 5})
    key = pool_key("seat")
    body = stage.store.read([key])[key].body
    write(stage.store, key, body.replace(b'"external":2', b'"external":5'))


def _read(stage: PoolsStage, **hosts: int) -> None:
    """A licence server says who has how many of `flex`."""
    lines = "".join(
        f"    u {host} :0 (v1) (s/27000 1), start Wed 1/1 0:00, {count} licenses\n"
        for host, count in hosts.items()
    )
    text = (
        f"Users of F:  (Total of 9 licenses issued;  Total of {sum(hosts.values())} licenses in use)\n{lines}"
    )
    (pool,) = (pool for pool in stage.ledger().view().pools.values() if pool.name == "flex")
    assert pool.external_from is not None
    take_text(stage.ledger(), pool, pool.external_from, text.encode(), stage.time())


def _no_checkout(stage: PoolsStage) -> None:
    _read(stage)
    stage.bound_pod("idle", flex=2)
    stage.time.now += GRACE_SECONDS + 1
    _read(stage, desk=3)


def _beyond(stage: PoolsStage) -> None:
    _read(stage)
    stage.bound_pod("greedy", flex=1)
    _read(stage, greedy=3)


def _no_claim(stage: PoolsStage) -> None:
    stage.pod("stranger", node="n1")
    _read(stage, stranger=1)


def _of_another_scheduler(stage: PoolsStage) -> None:
    stage.pod("lost", scheduler="default-scheduler", ip=1)
    stage.pod("lost-too", scheduler="default-scheduler", ip=1)
    stage.pod("running", scheduler="default-scheduler", node="n1", ip=1)  # which has a claim, once it is seen
    stage.reconcile()


def _native(stage: PoolsStage) -> None:
    stage.cluster.set_node_status("n1", {"capacity": {"native.berth.dev/gpu": "7"}})


def _closed(stage: PoolsStage) -> None:
    stage.bound_pod(ip=1)
    write(stage.store, EPOCH, None)


def _unowned(stage: PoolsStage) -> None:
    write(stage.store, CLUSTER, None)


def _held_back(stage: PoolsStage) -> None:
    call = stage.pod(ip=1)
    epoch = decode_epoch(stage.store.read([EPOCH])[EPOCH].body)
    assert epoch is not None
    write(stage.store, EPOCH, encode(replace(epoch, held=("berth.dev/ip",))))
    write(stage.store, UNFENCED, f'["{call.uid}"]'.encode())


def _lost(stage: PoolsStage) -> None:
    call = stage.bound_pod(k80=1)
    stage.write_node("n1", ready=False)
    stage.gone(call)


def _moved(stage: PoolsStage) -> None:
    pause(stage.store, moved=True)


def _copying(stage: PoolsStage) -> None:
    pause(stage.store)


def _problem(stage: PoolsStage) -> None:
    assert stage.settings.pools is not None
    stage.settings.pools.write_text("# to be written\n")


def garbage(key: str, body: bytes = GARBAGE) -> Callable[[PoolsStage], None]:
    """Return what puts this into a document, while a pod holds one `ip` on n1."""

    def plant(stage: PoolsStage) -> None:
        stage.bound_pod(ip=1)
        write(stage.store, key, body)

    return plant


DAMAGES = {
    "a claim of a pod that is gone": Damage("leaked", _ghost),
    "a claim of a finished pod": Damage("finished", _finished),
    "a bound pod without a claim": Damage("unclaimed", _unclaimed),
    "a claim on another node": Damage("misplaced", _misplaced),
    "a claim of other counts": Damage("miscounted", _miscounted),
    "an old reservation": Damage("stuck", _stuck),
    "a claim that was not confirmed": Damage("unconfirmed", _unconfirmed),
    "two claims of a pod": Damage("doubled-claim", _doubled),
    "half a claim": Damage("torn", _torn),
    "a claim that is missing in a limit": Damage("torn", _torn_limit),
    "a unit held twice": Damage("doubled-unit", _doubled_unit, ("doubled-unit",)),
    "a unit of another name": Damage("misnamed", _misnamed, ("misnamed",)),
    "another unit in a Pool's annotation": Damage("mistold", _mistold, ("mistold",)),
    "more used than there is": Damage("over-committed", _over_committed, ("over-committed",)),
    "another capacity": Damage("capacity", _capacity),
    "no document of a domain": Damage("capacity", _no_domain),
    "a domain of a node that is gone": Damage("capacity", _domain_of_no_node),
    "other units of a domain": Damage("capacity", _units_of_a_domain),
    "a stripe that was lost": Damage("stripes", _stripe_lost),
    "a stripe that has too many": Damage("stripes", _stripe_grown),
    "stripes that are closed": Damage("stripes", _closed_stripes),
    "a node in another domain": Damage("place", _place),
    "a Pool that is missing": Damage("pool", _pool_missing),
    "a Pool that is stale": Damage("pool", _pool_changed),
    "a PoolClaim that is missing": Damage("poolclaim", _poolclaim),
    "a PoolClaim that is gone": Damage("poolclaim", _poolclaim_extra),
    "a PoolClaim of another phase": Damage("poolclaim-status", _poolclaim_status),
    "other use outside the cluster": Damage("external", _external),
    "a claim and no checkout": Damage("no-checkout", _no_checkout, ("no-checkout",)),
    "more checked out than is claimed": Damage("no-claim", _beyond, ("no-claim",)),
    "a checkout and no claim": Damage("no-claim", _no_claim, ("no-claim",)),
    "pods of another scheduler": Damage("other-scheduler", _of_another_scheduler, ("other-scheduler",)),
    "a node that shows other units": Damage("native", _native),
    "no epoch": Damage("closed", _closed),
    "no cluster": Damage("unowned", _unowned),
    "units held back": Damage("held-back", _held_back),
    "units of a lost node": Damage("lost", _lost, ("lost",)),
    "garbage in a domain": Damage("unreadable", garbage("domain/ip/n1")),
    "garbage in a Pool": Damage("unreadable", garbage("pool/slot")),
    "garbage in a node": Damage("unreadable", garbage("node/n1")),
    "garbage in the epoch": Damage("unreadable", garbage(EPOCH), ("unreadable",)),
    "garbage where units may be in use": Damage("unreadable", garbage("domain/k80/n1"), ("unreadable",)),
    "another version's document": Damage(
        "unreadable", garbage("domain/ip/n2", b'{"capacity":"two"}'), ("unreadable",)
    ),
    "a cluster that is no text": Damage("unreadable", garbage(CLUSTER), ("unreadable",)),
    "a ledger that was moved": Damage("moved", _moved, ("moved",)),
    "a ledger that is copied": Damage("copying", _copying, ("copying",)),
    "another cluster's ledger": Damage(
        "other-cluster", lambda stage: write(stage.store, CLUSTER, b"another"), ("other-cluster",)
    ),
    "a wrong source of Pools": Damage("problem", _problem, ("problem",)),
}
"""By what they are: all kinds of damage that a ledger, or what is around it, can have."""
