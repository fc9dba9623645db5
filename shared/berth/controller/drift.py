"""Where a ledger differs from the cluster, in words for a person: the ledger as it is beside the ledger as
reconcile would leave it. Pure: it asks nobody and repairs nothing."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from berth.api.annotations import names_in, tells_units, units_told
from berth.api.pool import Pool
from berth.controller.annotation import ALLOCATED, with_annotated_units
from berth.controller.capacity_sync import in_stripes
from berth.errors import few
from berth.kube.types import Pod
from berth.ledger.capacity import Capacity, amount
from berth.ledger.keys import CLUSTER, PoolDomain, domain_key, node_key, parse_domain, pool_key
from berth.ledger.model import Claim, Domain, Holding, PoolClaimSpec, by_whole
from berth.ledger.report import pool_rows
from berth.ledger.unreadable import Unreadable
from berth.ledger.view import View


class Kind(NamedTuple):
    """A kind of difference. `may_pass`: it may be that of a bind, a release or an event that is under way."""

    means: str
    why: str
    fix: str
    repairs: bool = True
    may_pass: bool = True


_few = partial(few, most=8)
_MOST_SAID = 200  # characters of an annotation that a finding repeats
_BY_HAND = "the document was changed by hand, or the store lost it"
_EVENT = "its event was lost, or is late"
_STORE = "see Changing the store in docs/stores/index.md"

KINDS: Mapping[str, Kind] = {
    "leaked": Kind(
        "a claim of a pod that is gone",
        "the event of its deletion was lost, or is late",
        "frees the units; where its node is lost and the Pool says onLostNode: Hold, they stay held",
    ),
    "finished": Kind(
        "a claim of a pod that has finished", "the event of its end was lost, or is late", "frees the units"
    ),
    "unclaimed": Kind(
        "a bound pod without a claim",
        "another scheduler bound it, its bind died, or the ledger lost its claim",
        "writes the claim, by what the pod requests and its annotation says",
    ),
    "misplaced": Kind(
        "a claim on another node, or in other domains, than its pod",
        "a bind died between two nodes, or a node's label or a Pool was changed",
        "moves the claim to where the pod runs",
    ),
    "miscounted": Kind(
        "a claim of other units than its pod has",
        f"a Pool was changed, or {_BY_HAND}",
        "sets the claim to what the pod requests and its annotation says",
    ),
    "stuck": Kind(
        "a claim of a pod that still waits, older than any bind takes",
        "the bind that reserved it died, and reconcile did not run since",
        "writes to the pod, so that no late Binding succeeds, and frees the units",
    ),
    "unconfirmed": Kind(
        "a claim that is only reserved, though its pod is bound",
        "the bind died after the Binding, before it confirmed the claim",
        "marks the claim bound",
    ),
    "doubled-claim": Kind(
        "two claims of one pod",
        "two binds did not see each other's claim, or one died between two commits",
        "keeps the one on the pod's node, and frees the other",
    ),
    "torn": Kind(
        "a claim that stands in other documents than it names: in some only, or in more",
        f"a process died between two commits, or {_BY_HAND}",
        "writes the claim into each document that it names, and takes it from the others",
    ),
    "doubled-unit": Kind(
        "a unit with a name that two pods hold",
        "the ledger was changed by hand, or is older than what was given since",
        "can't repair it: nobody knows which of them uses the unit. Delete one of the pods",
        repairs=False,
    ),
    "misnamed": Kind(
        "a claim of other units, by their names, than its pod's annotation berth.dev/allocated says",
        "the ledger was changed by hand, or somebody wrote the annotation",
        "can't repair it: look which unit the pod uses. Delete the pod, or correct its annotation",
        repairs=False,
    ),
    "mistold": Kind(
        "an annotation that a Pool has written, which tells its pod of other units than the pod holds",
        "somebody changed it after the Binding",
        "can't repair it: look which unit the pod uses, and delete the pod",
        repairs=False,
    ),
    "over-committed": Kind(
        "a domain of which more is used than there is",
        "its capacity was lowered, or pods went round the scheduler",
        "can't repair it, for nothing is taken from pods: raise the capacity, or delete or move pods",
        repairs=False,
        may_pass=False,
    ),
    "capacity": Kind(
        "a domain with another capacity than Pool and nodes say",
        f"the node's or the Pool's event was lost, or is late, or {_BY_HAND}",
        "sets the capacity",
    ),
    "stripes": Kind(
        "a domain in stripes that give more, or fewer, units together than it has",
        f"a process died while it was opened again, or {_BY_HAND}",
        "shares its units out to its stripes anew",
    ),
    "place": Kind(
        "a node that stands in another domain than its label says",
        f"the node's label was changed, and {_EVENT}",
        "moves the node, and what its pods hold with it",
    ),
    "pool": Kind(
        "a Pool in the ledger that is not as the active source has it",
        f"the Pool was changed, and {_EVENT}; or BERTH_POOLS here is not that of the functions",
        "takes over the Pools as they are in the active source",
    ),
    "poolclaim": Kind(
        "a PoolClaim in the ledger that is not as its object is",
        f"the PoolClaim was changed, and {_EVENT}",
        "takes over the PoolClaim",
    ),
    "poolclaim-status": Kind(
        "a PoolClaim whose status does not say what the ledger does",
        "the status could not be written when its pod was bound or went",
        "writes the status",
    ),
    "external": Kind(
        "use outside the cluster that is not counted as the Pool says",
        f"the Pool's spec.external was changed, and {_EVENT}",
        "counts as many as spec.external says",
    ),
    "no-checkout": Kind(
        "a claim of a pod that has checked out no licence for ten minutes, by the last reading",
        "the program does not run or needs none, or the licence server knows the pod by another name",
        "leaves it: delete the pod if it needs no licence, or correct the Pool's externalFrom.match",
        repairs=False,
        may_pass=False,
    ),
    "no-claim": Kind(
        "a licence that a pod has checked out without a claim, or beyond its claim, by the last reading",
        "the pod asks for fewer units than its program takes, or for none",
        "leaves it, and counts it as used by others: let the pod ask for as many as it takes",
        repairs=False,
        may_pass=False,
    ),
    "other-scheduler": Kind(
        "pods that wait for what Berth counts under another schedulerName",
        "the pod names no scheduler, or a wrong one; that scheduler does not ask Berth",
        "leaves them: set spec.schedulerName in what makes the pods",
        repairs=False,
        may_pass=False,
    ),
    "native": Kind(
        "a node's status that shows kube-scheduler other units to preempt by than there are",
        "a kubelet or a person wrote it, or it could not be written when a capacity changed",
        "writes the node's status",
    ),
    "closed": Kind(
        "a ledger without an epoch: nothing is given out of it",
        "it is new, or was lost, and reconcile has not rebuilt it yet",
        "rebuilds it from the pods, and opens it",
    ),
    "unowned": Kind(
        "a ledger that names no cluster", "a berth that wrote none made it", "writes whose it is"
    ),
    "held-back": Kind(
        "units that are not given, because waiting pods could not be written to since the ledger was lost",
        "a webhook or a policy refuses patches of pods/status",
        "tries again to write to these pods; repair what refuses it, or delete the pods",
        may_pass=False,
    ),
    "lost": Kind(
        "a claim of a pod that is gone, held because its node may still use the units (onLostNode: Hold)",
        "the node is not ready, or was deleted",
        "leaves it: wait for the node, or free it with berth release when nothing uses the units any more",
        repairs=False,
        may_pass=False,
    ),
    "unreadable": Kind(
        "a document that can't be read, so that no function can use the ledger",
        "the store was changed by hand or damaged, or a berth of another version wrote the document",
        "throws the document away and closes the ledger, then rebuilds it from the pods",
        may_pass=False,
    ),
    "copying": Kind(
        "a ledger that is being copied, or a copy that has not ended",
        "berth store copy is at work, or died",
        f"does nothing meanwhile: wait, or berth store resume, or the copy again; {_STORE}",
        repairs=False,
        may_pass=False,
    ),
    "moved": Kind(
        "a ledger that another store has now",
        "berth store copy moved it",
        f"does nothing here: set BERTH_STORE to the other store; {_STORE}",
        repairs=False,
        may_pass=False,
    ),
    "other-cluster": Kind(
        "the ledger of another cluster",
        "BERTH_STORE or KUBECONFIG is another cluster's, or the cluster was made anew",
        "does nothing here: correct the variable, or delete the ledger if its cluster is no more",
        repairs=False,
        may_pass=False,
    ),
    "problem": Kind(
        "what reconcile reports and only a person can repair",
        "as the text says",
        "can't repair it: as the text says",
        repairs=False,
        may_pass=False,
    ),
}
"""All kinds of differences, by the word that tells them apart for programs."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One difference: its kind, what it is about, and whether `berth doctor --fix` repairs it."""

    kind: str
    what: str
    why: str
    fix: str
    repairs: bool
    pod: str = ""
    uid: str = ""
    pool: str = ""
    domain: str = ""
    node: str = ""
    units: tuple[str, ...] = ()
    key: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what is the same of one difference at two looks: its text may tell another number."""
        return self.kind, self.pod, self.uid, self.pool, self.domain, self.node, self.key

    @property
    def may_pass(self) -> bool:
        return KINDS[self.kind].may_pass


def finding(kind: str, what: str, **about: Any) -> Finding:
    """Return a finding of this kind, with the kind's own words where `about` has no others."""
    words = KINDS[kind]
    return Finding(
        **{"kind": kind, "what": what, "why": words.why, "fix": words.fix, "repairs": words.repairs, **about}
    )


class Ledgers(NamedTuple):
    """A ledger as it is, and as reconcile would leave it: documents, and what they say together."""

    bodies: Mapping[str, bytes]
    before: View
    after: View


def of_unreadable(document: Unreadable) -> Finding:
    """Return the finding for a document that can't be read."""
    what = f"document {document.key}: {document.why}"
    if not document.why_kept:
        return finding("unreadable", what, key=document.key)
    fix = (
        f"leaves it: {document.why_kept}. When you know better, berth doctor --fix --forget {document.key} "
        "throws it away, and the ledger is rebuilt from the pods"
    )
    return finding("unreadable", what, key=document.key, fix=fix, repairs=False)


def differences(ledgers: Ledgers, pods: Mapping[str, Pod], damaged: Collection[str]) -> Iterator[Finding]:
    """Yield what reconcile would change in the ledger. `pods` are those that it listed, by UID. What follows
    from documents that are `damaged` (by key) is left out: they are findings themselves."""
    before, after = ledgers.before, ledgers.after
    if CLUSTER not in ledgers.bodies:
        yield finding("unowned", "it may be taken for any cluster's")
    yield from _pools(before.pools, after.pools, damaged)
    for node in sorted({*before.nodes, *after.nodes}):
        if before.nodes.get(node) != after.nodes.get(node) and node_key(node) not in damaged:
            yield _place(node, before, after)
    yield from _capacities(before, after, damaged)
    yield from _claims(before, after, pods, damaged)


def _pools(
    before: Mapping[str, Pool], after: Mapping[str, Pool], damaged: Collection[str]
) -> Iterator[Finding]:
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name) or pool_key(name) in damaged:
            continue
        if name not in before:
            what = f"Pool {name} is not in the ledger"
        elif name not in after:
            what = f"Pool {name} is in the ledger, and the active source has it no more"
        else:
            what = f"Pool {name} is older in the ledger than in the active source"
        yield finding("pool", what, pool=name)


def _place(node: str, before: View, after: View) -> Finding:
    def said(view: View) -> str:
        places = view.nodes.get(node, {})
        return ", ".join(f"{pool}: {place or 'no label'}" for pool, place in sorted(places.items())) or "none"

    return finding("place", f"node {node}: {said(before)}; by its labels {said(after)}", node=node)


# Capacities


def _capacities(before: View, after: View, damaged: Collection[str]) -> Iterator[Finding]:
    was, now = before.capacities(), after.capacities()
    for which in sorted({*was, *now}):
        pool, text = which
        name = parse_domain(text)
        if domain_key(*which) in damaged:
            continue
        if name.kind == "poolclaim":
            yield from _poolclaim(which, before.document(*which), after.document(*which))
        elif name.kind == "namespace" and (was.get(which) is None or now.get(which) is None):
            continue  # made with a namespace's first claim, and taken away some time after its last
        elif was.get(which) != now.get(which):
            has, due = _said(was.get(which)), _said(now.get(which))
            what = f"{pool}: {_where(text)} has {has}; by Pool and nodes {due}"
            yield finding("capacity", what, pool=pool, domain=text, node=_node(name.place, pool, after))
        elif not any(key in damaged for key in before.keys(pool, text)) and (
            why := _uneven(pool, text, before)
        ):
            yield finding("stripes", f"{pool}: {_where(text)} {why}", pool=pool, domain=text)


def _poolclaim(which: PoolDomain, before: Domain, after: Domain) -> Iterator[Finding]:
    """Yield the finding for a PoolClaim's document; what its last holder had is nobody's difference."""

    def spec(domain: Domain) -> PoolClaimSpec | None:
        return None if domain.poolclaim is None else replace(domain.poolclaim, domain="", had=())

    was, now, label = spec(before), spec(after), parse_domain(which[1]).label
    if (was, before.capacity) != (now, after.capacity):
        what = f"PoolClaim {label} of {which[0]}"
        if was is None:
            what += " is not in the ledger"
        elif now is None:
            what += " is in the ledger, and there is no such object"
        else:
            what += " is in the ledger as it was before"
        yield finding("poolclaim", what, pool=which[0], domain=which[1])


def _uneven(pool: str, name: str, view: View) -> str:
    """Return what is wrong with a domain's stripes; empty: nothing."""
    head = view.document(pool, name)
    if not head.stripes or head.capacity is None:
        return ""
    used = sum(part.used(pool, own) for own, part in view.parts(pool, name).items())
    if head.closed:
        opens = used <= head.capacity
        return f"is closed, though {used} of its {head.capacity} units are used" if opens else ""
    together = in_stripes(view, pool, name)
    return f"has {head.capacity}; its stripes have {together}" if together != head.capacity else ""


def _where(text: str) -> str:
    name = parse_domain(text)
    if name.kind == "namespace":
        return f"the limit of namespace {name.namespace}"
    if name.kind == "unreserved":
        return f"what is not reserved in {name.place}"
    return f"domain {name.whole}"


def _said(capacity: Capacity) -> str:
    if capacity is None:
        return "no share"
    return str(amount(capacity)) + (f" by name ({_few(capacity)})" if isinstance(capacity, tuple) else "")


def _node(place: str, pool: str, view: View) -> str:
    scope = view.pools[pool].spec.scope if pool in view.pools else ""
    return place if scope == "Node" else ""


# Claims


class _Standing(NamedTuple):
    """A pod's claims in a ledger, and the documents in which they stand."""

    claims: list[Claim]
    keys: frozenset[str]


def _claims(
    before: View, after: View, pods: Mapping[str, Pod], damaged: Collection[str]
) -> Iterator[Finding]:
    uids = {claim.uid: claim.label for view in (after, before) for claim in view.claims()}
    for uid in sorted(uids, key=lambda uid: (uids[uid], uid)):
        was, now = (_Standing(view.claims_of(uid), view.keys_of(uid)) for view in (before, after))
        if was != now and not any(key in damaged for key in was.keys ^ now.keys):
            yield _of_claim(was, now, pods.get(uid))


def _of_claim(was: _Standing, now: _Standing, pod: Pod | None) -> Finding:
    one = (was.claims or now.claims)[0]
    what = f"pod {one.label} (UID {one.uid})"
    about: dict[str, Any] = {"pod": one.label, "uid": one.uid, "node": one.node, **_about(one.holdings)}
    had = " and ".join(f"{_holds(claim.holdings)} on {claim.node}" for claim in was.claims)
    if one.is_external:
        due = _holds(now.claims[0].holdings) if now.claims else "none"
        about["pod"] = ""
        said = _holds(one.holdings) if was.claims else "none"
        return finding(
            "external", f"outside the cluster: the ledger counts {said}, the Pool says {due}", **about
        )
    kind = _kind_of(was, now, pod)
    if kind in ("leaked", "finished", "stuck", "unconfirmed", "doubled-claim"):
        return finding(kind, f"{what} holds {had}", **about)
    due = f"{_holds(now.claims[0].holdings)} on {now.claims[0].node}" if now.claims else "nothing"
    if kind == "unclaimed":
        return finding(kind, f"{what} uses {due}", **about)
    if kind == "torn":
        stands, names = _few(sorted(was.keys)), _few(sorted(_keys(one)))
        return finding(kind, f"{what}: its claim of {had} stands in {stands}, and names {names}", **about)
    return finding(kind, f"{what}: the ledger says {had}; the pod has {due}", **about)


def _kind_of(was: _Standing, now: _Standing, pod: Pod | None) -> str:
    if not was.claims:
        return "unclaimed"
    if pod is None or pod.finished:
        return "leaked" if pod is None else "finished"
    if not pod.spec.node_name:
        return "stuck"
    if len(was.claims) > 1:
        return "doubled-claim"
    one, due = was.claims[0], now.claims[0] if now.claims else was.claims[0]
    if one.node != due.node:
        return "misplaced"
    if was.keys != _keys(one):
        return "torn"
    if one.logical() == due.logical():
        return "miscounted" if one.state == due.state or not one.units >= due.units else "unconfirmed"
    moved = _amounts(one) == _amounts(due)
    return "misplaced" if moved else "miscounted"


def _keys(claim: Claim) -> set[str]:
    """Return the documents that a claim names."""
    return {holding.key for holding in claim.holdings}


def _amounts(claim: Claim) -> Counter[tuple[str, str, str]]:
    """Return what a claim is of, wherever that is."""
    amounts: Counter[tuple[str, str, str]] = Counter()
    for holding in claim.holdings:
        amounts[(holding.pool, holding.name.kind, holding.claim)] += holding.count
    return amounts


def _about(holdings: Iterable[Holding]) -> dict[str, Any]:
    """Return the fields of a finding about what a pod holds: of the first of its pools."""
    places = [holding for holding in by_whole(holdings) if not holding.is_quota]
    if not places:
        return {}
    first = places[0]
    return {"pool": first.pool, "domain": first.domain, "units": first.units}


def _holds(holdings: Iterable[Holding]) -> str:
    """Return what is held, for a person; quotas are nothing to one."""
    places = [holding for holding in by_whole(holdings) if not holding.is_quota]
    parts = (
        f"{holding.count} {holding.pool} in {holding.domain}"
        + (f" ({_few(holding.units)})" if holding.units else "")
        for holding in places
    )
    return ", ".join(parts) or "nothing"


# What reconcile leaves as it is


def remaining(ledgers: Ledgers, pods: Mapping[str, Pod], problems: Iterable[str]) -> Iterator[Finding]:
    """Yield what is wrong and stays so: what reconcile leaves, and the `problems` that it reports."""
    after = ledgers.after
    yield from _doubled_units(after)
    for claim in after.claims():
        if claim.uid in pods:
            yield from _misnamed(claim, pods[claim.uid], after.pools)
            yield from _mistold(claim, pods[claim.uid], after.pools)
    for row in pool_rows(after):
        for domain in row.domains:
            if domain.over and domain.capacity is not None:
                what = f"{row.name}: {domain.used} of {domain.capacity} used in domain {domain.name}"
                yield finding("over-committed", what, pool=row.name, domain=domain.name)
    for claim in sorted(after.lost(), key=lambda claim: (claim.node, claim.label)):
        what = f"pod {claim.label} (UID {claim.uid}) held {_holds(claim.holdings)} on node {claim.node}"
        yield finding("lost", what, pod=claim.label, uid=claim.uid, node=claim.node, **_about(claim.holdings))
    if ledgers.before.held:
        yield finding("held-back", f"nothing is given of {_few(ledgers.before.held)}")
    for problem in problems:
        yield finding("problem", problem)


def _misnamed(claim: Claim, pod: Pod, pools: Mapping[str, Pool]) -> Iterator[Finding]:
    """Yield a finding for each pool of which the pod's annotation names other units than its claim has."""
    if not _is_told(pod):
        return
    said = with_annotated_units(replace(claim, holdings=claim.logical()), pod, pools).units
    for pool in sorted({pool for pool, _ in said}):
        mine = _names_of(claim, pool)
        names = sorted(unit for of, unit in said if of == pool)
        whole = len(mine) == sum(holding.count for holding in claim.at_places(pool))
        if whole and not mine.issuperset(names):
            yield _told_otherwise("misnamed", claim, pool, f"its annotation says {_few(names)}")


def _mistold(claim: Claim, pod: Pod, pools: Mapping[str, Pool]) -> Iterator[Finding]:
    """Yield a finding for each annotation of a Pool that tells a bound pod of other units than it holds."""
    there = pod.metadata.annotations or {}
    for name in sorted({name for name, _ in claim.units} & pools.keys()) if _is_told(pod) else ():
        pool, domain = pools[name], claim.at_places(name)[0].whole
        for key, template in pool.annotations.items():
            said = there.get(key)
            if said is not None and tells_units(template) and _is_wrong(said, template, claim, pool, domain):
                words = f"its annotation {key} says {said[:_MOST_SAID]}"
                yield _told_otherwise("mistold", claim, name, words)


def _is_wrong(said: str, template: str, claim: Claim, pool: Pool, domain: str) -> bool:
    """Whether the text tells of other units than the pod holds. One of another template, as the Pool may have
    had it, does so where it names another unit of the pool."""
    mine = _names_of(claim, pool.name)
    units = units_told(template, pool.name, domain, said)
    if units is not None:
        return units != mine
    others = names_in(said) - mine
    return bool(others) and any(map(pool.all_units.__contains__, others))


def _is_told(pod: Pod) -> bool:
    """Whether a Binding of ours has told the pod what it holds."""
    return bool(pod.spec.node_name) and ALLOCATED in (pod.metadata.annotations or {})


def _names_of(claim: Claim, pool: str) -> frozenset[str]:
    return frozenset(unit for of, unit in claim.units if of == pool)


def _told_otherwise(kind: str, claim: Claim, pool: str, said: str) -> Finding:
    mine = sorted(_names_of(claim, pool))
    return finding(
        kind,
        f"pod {claim.label} (UID {claim.uid}): the ledger says {_few(mine)} of {pool}; {said}",
        pod=claim.label,
        uid=claim.uid,
        node=claim.node,
        pool=pool,
        units=tuple(mine),
    )


def _doubled_units(view: View) -> Iterator[Finding]:
    holders: dict[tuple[str, str], dict[str, Claim]] = defaultdict(dict)
    for claim in view.claims():
        for which in claim.units:
            holders[which][claim.uid] = claim
    for (pool, unit), claims in sorted(holders.items()):
        if len(claims) > 1:
            pods = " and ".join(sorted(claim.label for claim in claims.values()))
            yield finding(
                "doubled-unit", f"{pool}: {unit} is held by {pods}", pool=pool, units=(unit,), key=unit
            )


def statuses(writes: Iterable[tuple[str, tuple[Any, ...]]]) -> Iterator[Finding]:
    """Yield what differs in the status of nodes and PoolClaims, by the writes that a reconcile would make."""
    for name, arguments in writes:
        if name == "set_node_status":
            node, status = arguments[:2]
            shown = ", ".join(
                f"{resource}: {units or 'none'}" for resource, units in status["capacity"].items()
            )
            yield finding("native", f"node {node}: its status should show {shown}", node=node)
        elif name == "set_pool_claim_status":
            yield from _poolclaim_status(*arguments[:2])


_SAID = ("phase", "node", "domain", "units", "pod", "podUID")


def _poolclaim_status(document: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Finding]:
    meta, shown = document["metadata"], document.get("status") or {}
    differ = [field for field in _SAID if shown.get(field) != status.get(field)]
    if differ:
        said = ", ".join(f"{field} is {shown.get(field)!r}, not {status.get(field)!r}" for field in differ)
        label = f"{meta['namespace']}/{meta['name']}"
        yield finding("poolclaim-status", f"PoolClaim {label}: {said}", key=label)
