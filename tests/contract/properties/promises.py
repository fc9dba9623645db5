"""The promises of design 5, each looked at where it can be broken: after every commit and Binding, at the end
of every call, and at rest (nothing under way, one reconcile later). A test may ask for some by number."""

import re
from collections.abc import Collection, Mapping

import msgspec

from berth.documents import Claim, Domain, decode_domain
from berth.steps.claims import ALLOCATED
from berth.stores.base import EPOCH
from tests.contract.properties.api import NODES, POOLS, Api, bound_node
from tests.contract.properties.calls import Call
from tests.contract.properties.model import Model, Shares

ALL = range(1, 10)
REBUILDING = "berth's ledger is being rebuilt"
_REASON = re.compile(r"(ip|seat): (none on this node|\d+ of \d+ free, \d+ asked)")
_DOMAIN = "domain/"


class Kept:
    """What the store took, as it took it: the ledger without asking a store that may be down or lost."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.domains: dict[tuple[str, str], Domain] = {}

    @property
    def open(self) -> bool:
        return EPOCH in self.documents

    @property
    def shares(self) -> Shares:
        """Units free and capacity by pool and node."""
        return {
            where: (max(0, domain.capacity - domain.used(*where)), domain.capacity)
            for where, domain in self.domains.items()
            if domain.capacity is not None
        }

    def shares_for(self, uid: str) -> Shares:
        """The same as the pod sees them: what it holds itself does not stand in its way."""
        return self.without(uid).shares

    def without(self, uid: str) -> "Kept":
        other = Kept()
        other.domains = {
            where: Domain(domain.capacity, {one: each for one, each in domain.claims.items() if one != uid})
            for where, domain in self.domains.items()
        }
        return other

    def claims(self) -> dict[str, list[Claim]]:
        """By UID, one for each domain that they stand in."""
        found: dict[str, list[Claim]] = {}
        for _, domain in sorted(self.domains.items()):
            for uid, claim in domain.claims.items():
                found.setdefault(uid, []).append(claim)
        return found

    def after(self, writes: Mapping[str, bytes | None]) -> "Kept":
        later = Kept()
        later.documents = {
            **self.documents,
            **{key: body for key, body in writes.items() if body is not None},
        }
        later.domains = dict(self.domains)
        for key, body in writes.items():
            if body is None:
                later.documents.pop(key, None)
            if key.startswith(_DOMAIN):
                pool, _, node = key.removeprefix(_DOMAIN).partition("/")
                later.domains[pool, node] = decode_domain(body)
        return later


class Promises:
    """`broken` is the first promise that was found broken, and how; only those of `numbers` are looked at."""

    def __init__(self, api: Api, model: Model, numbers: Collection[int]) -> None:
        self._api, self._model, self._numbers = api, model, numbers
        self.broken = ""
        self.around: set[str] = set()  # bound by others than berth
        self.went_to: dict[str, str] = {}  # the node that each pod was bound to

    def keep(self, number: int, kept: bool, said: str) -> None:
        if not kept and number in self._numbers and not self.broken:
            self.broken = f"promise {number}: {said}"

    # After a commit

    def committed(self, call: Call, before: Kept, after: Kept) -> None:
        pods = self._api.pods()
        self._nothing_given_beyond_capacity(before, after)
        for uid, claims in after.claims().items():
            self.keep(2, self._whole(claims), f"{uid} has half a claim: {claims}")
        for uid, node in self._model.holders(pods).items():
            held = any(claim.node == node for claim in before.claims().get(uid, []))
            holds = any(claim.node == node for claim in after.claims().get(uid, []))
            self.keep(4, holds or not held, f"{call.kind} freed what {uid} holds on {node}")
        if not before.open:
            self.keep(8, call.kind == "reconcile", f"{call.kind} wrote to a ledger that is closed")
        if after.open and not before.open:
            for uid in self._model.holders(pods).keys() - self.around:
                self.keep(8, uid in after.claims(), f"opened without the claim of {uid}")
        if before.open and after.open:
            fits = {uid for uid in self._waiting(after) if self._fits(uid, after.shares)}
            call.owed |= {uid for uid in fits if not self._fits(uid, before.shares)}

    def _nothing_given_beyond_capacity(self, before: Kept, after: Kept) -> None:
        for where, domain in after.domains.items():
            known = before.domains[where].claims if where in before.domains else {}
            # What is bound was adopted: it runs, whatever the capacity.
            given = [
                uid for uid, each in domain.claims.items() if uid not in known and each.state == "reserved"
            ]
            most, used = self._model.most.get(where, 0), domain.used(*where)
            self.keep(1, not given or used <= most, f"{used} of {most} units of {where} are claimed")

    def _whole(self, claims: list[Claim]) -> bool:
        """The same claim, or those for two nodes, in each domain that it names, for all that the pod asks."""
        units = {
            (holding.pool, holding.domain): holding.count for claim in claims for holding in claim.holdings
        }
        asked = [self._model.units(claims[0].uid, node) for node in sorted({claim.node for claim in claims})]
        whole = {where: count for each in asked for where, count in each.items()}
        return units == whole and len(claims) == len(units) and len(set(claims)) == len(asked)

    # When a Binding of berth's lands, and when it wakes a pod

    def landed(self, call: Call, uid: str, notes: Mapping[str, str], ledger: Kept) -> None:
        node = call.node
        call.landed, call.lost_since_landing = True, 0
        self.went_to[uid] = node
        pods = self._api.pods()
        ours = {one: at for one, at in self._model.holders(pods).items() if one not in self.around}
        used = self._model.used(ours)
        for where in self._model.units(uid, node):
            most = self._model.most.get(where, 0)
            self.keep(1, used[where] <= most, f"pods with {used[where]} of {most} units of {where} are bound")
        claim = next((claim for claim in ledger.claims().get(uid, []) if claim.node == node), None)
        if ledger.open and self._model.asks[uid]:
            said = f"a Binding of {uid} to {node} landed without a claim"
            self.keep(9, claim is not None or not call.lost_by_store, f"{said} after the store failed")
            self.keep(5, claim is not None, said)
        told = msgspec.json.decode(notes.get(ALLOCATED, "[]"))
        units = {(each["pool"], each["domain"]): each["count"] for each in told}
        self.keep(2, units == self._model.units(uid, node), f"{uid} on {node} is told that it has {told}")

    def woke(self, call: Call, uid: str) -> None:
        call.woken.add(uid)
        call.owed.discard(uid)

    # At the end of a call

    def ended(self, call: Call, ledger: Kept) -> None:
        if call.unexpected is not None and not self.broken:
            self.broken = f"{call.kind} raised {call.unexpected!r}"
        if call.answer is None:
            return
        if call.kind == "bind":
            self._bind_told(call)
        if call.kind == "filter":
            self._filter_told(call, ledger)
        if call.kind != "bind" and call.kind != "reconcile":
            self.keep(
                9, bool(call.answer) or not call.lost_by_store, f"{call.kind} hid that its store failed"
            )
        if not call.disturbed:
            self._undisturbed(call, ledger)

    def _bind_told(self, call: Call) -> None:
        what = f"bind of {call.uid} to {call.node}"
        if not call.answer:
            self.keep(5, self.went_to.get(call.uid) == call.node, f"{what} is a success, and it is not there")
        elif call.landed:
            there = call.uid in self._api.pods() and not call.paused and call.lost_since_landing == 1
            self.keep(5, not (call.heard or there), f"{what} landed, and the answer is {call.answer!r}")

    def _filter_told(self, call: Call, ledger: Kept) -> None:
        reasons = call.result if isinstance(call.result, dict) else {}
        for node, reason in reasons.items():
            clear = node in NODES and all(map(_REASON.fullmatch, reason.split("; ")))
            self.keep(7, clear, f"filter refused {node}: {reason}")
        if not (call.disturbed or call.answer):
            shares = ledger.shares_for(call.uid)
            wanted = {node: why for node in NODES if (why := self._model.refusal(call.uid, node, shares))}
            self.keep(7, reasons == wanted, f"filter said {reasons}, and the ledger {wanted}")

    def _undisturbed(self, call: Call, ledger: Kept) -> None:
        left = {uid for uid in call.owed & self._waiting(ledger) if self._fits(uid, ledger.shares)}
        self.keep(6, not left, f"{call.kind} made room for {left} and woke {call.woken}")
        if call.kind == "reconcile" and not call.answer:
            fit = {uid for uid in self._waiting(ledger) if self._fits(uid, ledger.shares)}
            self.keep(6, fit <= call.woken, f"{fit} fit, and reconcile woke {call.woken}")
        if call.expected is not None:
            number, wanted = call.expected
            said = f"{call.kind} of {call.uid} to {call.node} answered {call.answer!r} and not {wanted!r}"
            answer = call.answer or ""
            self.keep(number, answer.startswith(wanted) and bool(answer) == bool(wanted), said)

    def expected(self, uid: str, node: str, ledger: Kept) -> tuple[int, str] | None:
        """What a bind call that nothing disturbs must answer, and the promise that says so."""
        pod = self._api.pods().get(uid)
        if pod is None or (bound_node(pod) and bound_node(pod) != node):
            return None
        if bound_node(pod):
            return 5, ""
        if uid not in self._model.waiters({uid: pod}) or not self._model.asks[uid]:
            return None
        if not ledger.open:
            return 8, REBUILDING
        mine = any(claim.node == node for claim in ledger.claims().get(uid, []))
        refusal = "" if mine else self._model.refusal(uid, node, ledger.shares_for(uid))
        return (7, refusal) if refusal else (5, "")

    # At rest

    def at_rest(self, ledger: Kept) -> None:
        holders = self._model.holders(self._api.pods())
        held = {uid: {(claim.node, claim.state) for claim in found} for uid, found in ledger.claims().items()}
        wanted = {uid: {(node, "bound")} for uid, node in holders.items()}
        self.keep(3, held == wanted, f"the ledger has {held}, and the pods {wanted}")
        used = {where: count for where, domain in ledger.domains.items() if (count := domain.used(*where))}
        self.keep(3, used == self._model.used(holders), f"the ledger counts {used}")
        capacities = {where: capacity for where, (_, capacity) in ledger.shares.items()}
        nodes = self._api.nodes().items()
        given = {(pool, node): has[pool] for node, has in nodes for pool in POOLS}
        self.keep(3, capacities == given, f"the ledger has capacities {capacities}, and the nodes {given}")
        self._model.most = given

    def _waiting(self, ledger: Kept) -> set[str]:
        """Those that no bind call has in its hands."""
        return {uid for uid in self._model.waiters(self._api.pods()) if self._model.asks[uid]} - set(
            ledger.claims()
        )

    def _fits(self, uid: str, shares: Shares) -> bool:
        return any(not self._model.refusal(uid, node, shares) for node in NODES)
