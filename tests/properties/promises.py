"""The promises of docs/promises.md, each looked at where it can be broken: after every commit and Binding, at
the end of every call, and at rest (nothing under way, one reconcile later). A test may ask for a few."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from berth.controller.annotation import ALLOCATED
from berth.ledger import refusals
from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, LineHold, Rank
from tests.properties import pools
from tests.properties.api import Api, bound_node, finished
from tests.properties.calls import Call
from tests.properties.kept import Kept, is_before
from tests.properties.lefts import Lefts
from tests.properties.model import Model
from tests.properties.newer import Newer
from tests.properties.pools import (
    CLAIMED,
    EVERYWHERE,
    LIMIT,
    NODES,
    NOWHERE,
    UNRESERVED,
    Domain,
    NodeIs,
    resource_of,
    told_key,
)
from tests.properties.rest import Rest, held_for_the_node, resources_of, summed
from tests.properties.seen import Seen, kinds
from tests.support.builders.ledgers import Time

ALL = range(1, 13)
REBUILDING = "berth's ledger is being rebuilt"
_REASON = re.compile(
    r"(ip|seat)(-b|-c)?: (none on this node|the node has no label zone|suspended, no new pods"
    r"|\d+ of \d+ free, \d+ asked|\d+ of \d+ free that are not reserved for a higher priority, \d+ asked"
    r"|\d+ of the \d+ that namespace (default|other) may hold are free, \d+ asked"
    r"( \(what its pods left counts while it rests or is kept\))?"
    r"|held back since berth's ledger was lost: .*"
    r"|what the last pod of this name had is not free yet"
    r"|PoolClaim erc is refused: it names units that the Pool does not list"
    r"|another pod holds PoolClaim erc|the units of PoolClaim erc are not here, or not free)"
    r"|berth\.dev/(ip|seat): no Pool has this resource|there are: ([a-z., /]+)"
    r"|\d+ more (is|are) held for (default|other)/[a-z0-9-]+, first in line"
    r"(, or a pod that says it is done in time \(berth\.dev/runs-for\))?"
    rf"|there is no PoolClaim erc in the pod's namespace|{refusals.KEPT}"
)


class Promises:
    """`broken` is the first promise that was found broken, and how; only those of `numbers` are looked at."""

    def __init__(self, api: Api, model: Model, lefts: Lefts, time: Time, numbers: Collection[int]) -> None:
        self._api, self._model, self._lefts, self._time = api, model, lefts, time
        self._numbers = numbers
        self.broken = ""
        self._late = 0.0  # seconds that a seat may wait beyond what its stamp says, by the clocks until now
        self.around: set[str] = set()  # bound by others than berth
        self.went_to: dict[str, str] = {}  # the node that each pod was bound to
        self.told: dict[str, dict[str, set[str]]] = {}  # which units it was told that it has, by resource
        self._newer = Newer(api, model, self.keep)

    def keep(self, number: int, kept: bool, said: str) -> None:
        if not kept and number in self._numbers and not self.broken:
            self.broken = f"promise {number}: {said}"

    def seen(
        self, ledger: Kept, uid: str, *, sure: bool = True, filters: bool = True, holds: bool = True
    ) -> Seen:
        """The ledger as a pod sees it now, in filter or bind; see `RetainedUnits` for what is sure. Not
        `holds`: as if nothing were held for the first in line."""
        name = self._lefts.who("Pod", uid)
        rank = self._model.rank(uid)
        return Seen(ledger, self._model, self._lefts, self._time(), uid, name, rank, sure, filters, holds)

    def changed(self) -> None:
        """Pools or nodes are others now."""
        self._newer.changed()

    def begun(self, call: Call) -> None:
        if call.ahead:
            self._late = pools.SKEW
        self._newer.begun(call)

    def at_rest(self, ledger: Kept) -> None:
        def keep(kept: bool, said: str) -> None:
            self.keep(3, kept, said)

        Rest(self._api, self._model, self.told, self._api.refused, keep).look(
            ledger, self._time(), self._late
        )
        self._model.rested(self._api.nodes())

    # After a commit

    def committed(self, call: Call, before: Kept, after: Kept) -> None:
        pods, now = self._api.pods(), self._time() + call.ahead
        holders = self._model.holders(pods, sure=True)
        self._nothing_given_beyond_capacity(before, after, now)
        self._no_unit_has_two_holders(after)
        self._nothing_is_taken_of_what_is_held(before, after)
        self._gangs_get_all_or_none(before, after)
        self._newer.committed(call, before, after)
        for uid, claims in after.claims.items():
            if uid in pods and not finished(pods[uid]):
                self.keep(2, self._whole(uid, claims), f"{uid} has half a claim: {claims}")
        for uid, claims in before.claims.items():
            stays = self._model.holds(uid, pods[uid], sure=True) if uid in pods else frozenset()
            if uid not in holders and not call.paused:
                stays = held_for_the_node(claims[0], self._model, self._api.nodes(), sure=True)
            had, has = (
                resources_of(claims, holders.get(uid)),
                resources_of(after.claims.get(uid, ()), holders.get(uid)),
            )
            self.keep(4, had & stays <= has, f"{call.kind} freed of {uid} what it holds: {claims}")
        if not before.open:
            self.keep(8, call.kind == "reconcile", f"{call.kind} wrote to a ledger that is closed")
        if after.open and not before.open:
            for uid in holders.keys() - self.around:
                self.keep(8, uid in after.claims, f"opened without the claim of {uid}")
        sure = not (call.paused or call.lags or call.ahead)
        bounds = call.kind in ("reconcile", "inventory")
        alive = self._model.holders(pods)

        def ended(uid: str) -> bool:
            return uid in self.went_to and uid not in alive

        self._lefts.follow(before, after, ended, now, sure=sure, bounds=bounds)
        if before.open and after.open:
            fits = {uid for uid in self.waiting(after) if self._fits(uid, after)}
            call.owed |= {uid for uid in fits if not self._fits(uid, before)}

    def _nothing_given_beyond_capacity(self, before: Kept, after: Kept, now: float) -> None:
        for where, held in after.holdings.items():
            known = before.holdings.get(where, {})
            # What is bound was adopted: it runs, whatever the capacity.
            given = [uid for uid in held if uid not in known and after.state(uid) == "reserved"]
            most, used = self._model.most.get(where, 0), after.used(where)
            self.keep(1, not given or used <= most, f"{used} of {most} units of {where} are claimed")
            for uid in given:
                barred, units = self._lefts.barred(where, uid, now, after, sure=True)
                self.keep(1, used + barred <= most, f"{uid} has units of {where} that rest or are kept")
                early = units & {unit for each in held[uid] for unit in each.units}
                self.keep(1, not early, f"{uid} has {early} of {where}, which rest or are kept")

    def _nothing_is_taken_of_what_is_held(self, before: Kept, after: Kept) -> None:
        """Who reserves leaves what is held for pods before it in line; what may be lent does not count."""
        for where, parts in before.wholes.items():
            for name, part in parts.items():
                hold, now = part.line_hold, after.domains.get(domain_key(where[0], name))
                if hold is None or now is None or hold.rests is not None:
                    continue
                new = [now.claims[uid] for uid in now.claims.keys() - part.claims.keys()]
                # Of a gang that is served some may be before whom it is held for.
                given = [claim for claim in new if self._is_behind(claim, hold)]
                key = domain_key(where[0], name)
                theirs = sum(each.count for claim in given for each in claim.holdings if each.key == key)
                took = min(theirs, before.spare(where, name) - after.spare(where, name))
                spare = max(0, before.spare(where, name) - before.lacks(where, name))
                who = [claim.uid for claim in given]
                self.keep(
                    11, not given or took <= spare, f"{who} took of {name} what is held for {hold.label}"
                )

    def _is_behind(self, claim: Claim, hold: LineHold) -> bool:
        """Whether the pod was given what it has, and comes after the one that units are held for."""
        uid = claim.uid
        rank = self._model.rank(uid) if uid in self._model.wishes else Rank(priority=2**31)
        is_first = is_before(rank, hold) or self._model.are_mates(uid, hold.uid) or uid == hold.uid
        return claim.state == "reserved" and not is_first

    def _gangs_get_all_or_none(self, before: Kept, after: Kept) -> None:
        """Of the pods of a gang that agree, and are of one owner, nobody gets units before the others."""
        pods, wishes = self._api.pods(), self._model.wishes
        begun = {wishes[uid].mates for uid in before.claims if uid in wishes}
        for uid in after.claims.keys() - before.claims.keys():
            wish = wishes.get(uid)
            if wish is None or not wish.together or wish.mates in begun or after.state(uid) != "reserved":
                continue
            mates = [other for other in pods if wishes[other].mates == wish.mates]
            without = [other for other in mates if not self._is_served(other, pods, after)]
            served = len(mates) - len(without)
            self.keep(
                12,
                served >= wish.size,
                f"{uid} is served, and {served} of {wish.size}; {without} of its gang are not",
            )

    def _is_served(self, uid: str, pods: Mapping[str, Any], ledger: Kept) -> bool:
        pod = pods[uid]
        runs = bool(bound_node(pod)) and pod["status"]["phase"] != "Failed"
        return uid in ledger.claims or runs or pod["status"]["phase"] == "Succeeded"

    def _no_unit_has_two_holders(self, after: Kept) -> None:
        for pool, spec in after.pools.items():
            if not pools.named(spec):
                continue
            units = [
                unit
                for where, held in after.holdings.items()
                for found in (held.values() if where[0] == pool else ())
                for each in found
                for unit in each.units
            ]
            twice = {unit for unit in units if units.count(unit) > 1}
            self.keep(1, not twice, f"{twice} of {pool} have two holders")

    def _whole(self, uid: str, claims: list[Claim]) -> bool:
        """One claim, or those for two nodes, in each document that it names, for all the pod asks."""
        different = set(claims)
        keys = {holding.key for claim in different for holding in claim.holdings}
        return len(claims) == len(keys) and all(self._is_whole(uid, claim) for claim in different)

    def _is_whole(self, uid: str, claim: Claim) -> bool:
        """What it has of Pools that are gone, beside what it is to have, does not count."""
        found: dict[Domain, int] = {}
        for each in claim.holdings:
            kind = kinds((each.pool, each.whole), each.count)
            found[kind[0]] = found.get(kind[0], 0) + kind[1]
        asked = self._model.units(uid, lambda _: "")
        steady = {name for name in self._model.pools if self._model.steady(resource_of(name))}
        if _of_pools(found, steady) != _of_pools(asked, steady):
            return False
        for resource, count in self._model.wishes[uid].units.items():
            amounts = {n for (name, at), n in found.items() if resource_of(name) == resource and not at}
            if self._model.always(resource, lambda _: True) and count not in amounts:
                return False
        return not self._model.claimed or found.get(CLAIMED) == asked.get(CLAIMED)

    # When a Binding of berth's lands, and when it wakes a pod

    def landed(self, call: Call, uid: str, notes: Mapping[str, str], ledger: Kept) -> None:
        node = call.node
        call.landed, call.lost_since_landing = True, 0
        self.went_to[uid] = node
        self._fits_in(uid, node)
        claim = next((claim for claim in ledger.claims.get(uid, []) if claim.node == node), None)
        if ledger.open and self._model.wishes[uid].units:
            said = f"a Binding of {uid} to {node} landed without a claim"
            self.keep(9, claim is not None or not call.lost_by_store, f"{said} after the store failed")
            self.keep(5, claim is not None, said)
        told = msgspec.json.decode(notes.get(ALLOCATED, "[]"))
        found = summed(_sort(each["pool"], each["domain"], each["count"]) for each in told)
        wanted = self._model.wishes[uid].units
        self.keep(2, found == {(pool, ""): count for pool, count in wanted.items()}, f"{uid} is told {told}")
        self._names(uid, told)
        for pool in filter(self._tells, {each["pool"] for each in told}):
            units = [unit for each in told if each["pool"] == pool for unit in each.get("units", ())]
            text = notes.get(told_key(resource_of(pool)), "")
            # The Pool's units may have had no names, or may have none any more.
            self.keep(
                10, text in (pool, f"{pool} {','.join(units)}"), f"{uid} has {told} and is told {text!r}"
            )

    def _tells(self, pool: str) -> bool:
        """Whether the Pools of its resource have annotations; those of some examples have none."""
        resource = resource_of(pool)
        specs = [spec for name, spec in self._model.pools.items() if resource_of(name) == resource]
        return any(told_key(resource) in spec.get("annotations", {}) for spec in specs)

    def _fits_in(self, uid: str, node: str) -> None:
        """The pods that berth has bound have room where the pod is now; not in zones, which nodes change. By
        what they ask for, whatever the name of the Pool that gave it."""
        held: dict[Domain, int] = {}
        pods = self._api.pods()
        for other, at in self._model.holders(pods).items():
            counted = other not in self.around and at in self._api.nodes()
            has = self._model.holds(other, pods[other]) if counted else ()
            for where, count in self._units(other, at).items():
                if resource_of(where[0]) in has and not self._is_listed_elsewhere(pods[other], where):
                    held[where] = held.get(where, 0) + count
        for where in self._units(uid, node):
            resource, domain = where
            counts = self._model.claimed if where == CLAIMED else not domain.startswith(NOWHERE)
            if domain in (node, EVERYWHERE):
                counts = self._model.steady(resource, "scope", "topologyKey")
            elif where != CLAIMED:
                counts &= self._model.steady(resource, "scope", "topologyKey", "limits", "reserved")
            most = self._model.most.get(CLAIMED, 0) if where == CLAIMED else self._model.most_of(where)
            self.keep(
                1,
                not counts or held.get(where, 0) <= most,
                f"{held.get(where)} of {most} of {where} are bound",
            )

    def _is_listed_elsewhere(self, pod: Mapping[str, Any], where: Domain) -> bool:
        """Whether the pod was told units by name that another domain lists by now, and counts."""
        resource, domain = where
        told = msgspec.json.decode(pod["metadata"].get("annotations", {}).get(ALLOCATED, "[]"))
        mine = {
            unit for each in told if resource_of(each["pool"]) == resource for unit in each.get("units", ())
        }
        specs = [spec for name, spec in self._model.pools.items() if resource_of(name) == resource]
        lists = [units for spec in specs for name, units in spec.get("units", {}).items() if name != domain]
        return any(mine & {*units} for units in lists)

    def _units(self, uid: str, node: str) -> dict[Domain, int]:
        """By resource, and the domain of this node."""
        found = self._model.units(uid, partial(self._place, node))
        return {(resource_of(pool), domain): count for (pool, domain), count in found.items()}

    def _place(self, node: str, pool: str) -> str:
        spec = self._model.pools[pool]
        return NOWHERE if "topologyKey" in spec else pools.place(spec, node, NodeIs({}, ""))

    def _names(self, uid: str, told: list[Mapping[str, Any]]) -> None:
        """Which units the pod is told are no other running pod's."""
        mine: dict[str, set[str]] = {}
        for each in told:
            mine.setdefault(resource_of(str(each["pool"])), set()).update(each.get("units", ()))
        for resource, count in self._model.wishes[uid].units.items():
            if self._model.always(resource, pools.named):
                self.keep(2, len(mine.get(resource, ())) == count, f"{uid} is told of {mine}")
        for other, pod in self._api.pods().items():
            for resource in self._model.holds(other, pod) if other != uid else ():
                both = self.told.get(other, {}).get(resource, set()) & mine.get(resource, set())
                self.keep(1, not both, f"{uid} and {other} are both told that they have {both} of {resource}")
        self.told[uid] = mine

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
            # Its answer may get lost, and the fence too, if it is not refused: then bind looks at the pod.
            borne = 1 if call.uid in self._api.refused else 2
            there = call.uid in self._api.pods() and not call.paused and call.lost_since_landing <= borne
            self.keep(5, not (call.heard or there), f"{what} landed, and the answer is {call.answer!r}")

    def _filter_told(self, call: Call, ledger: Kept) -> None:
        reasons = call.result if isinstance(call.result, dict) else {}
        if self._model.wishes[call.uid].together and any("gang " in reason for reason in reasons.values()):
            return  # what its gang lacks, is not told here
        for node, reason in reasons.items():
            clear = node in NODES and all(map(_REASON.fullmatch, reason.split("; ")))
            self.keep(7, clear, f"filter refused {node}: {reason}")
        if not (call.disturbed or call.answer):
            for node in call.offered:
                wanted = self._refusals(call.uid, node, ledger, filters=True)
                said = set(filter(None, reasons.get(node, "").split("; ")))
                kept = said == {refusals.KEPT} and (
                    len(reasons) < len(NODES) or len(call.offered) < len(NODES)
                )
                right = said <= wanted[0] | wanted[1] and bool(said) in map(bool, wanted)
                right = right or ledger.nameless  # then nobody can tell which of them rest
                self.keep(7, right or kept, f"filter said of {node} {said}, and the ledger {wanted}")

    def agree(self, of_all: Call, alone: Sequence[Call]) -> None:
        """What filter refuses among all nodes, because units are kept elsewhere or are short, it refuses to a
        pod that is nominated there and offered it alone."""
        if any(call.disturbed or call.answer for call in (of_all, *alone)):
            return
        if self._model.wishes[of_all.uid].together:
            return
        for call in alone:
            (node,) = call.offered
            first, then = (found.result if isinstance(found.result, dict) else {} for found in (of_all, call))
            self.keep(
                7, node not in first or node in then, f"filter refused {node}: {first}, and alone {then}"
            )

    def _refusals(self, uid: str, node: str, ledger: Kept, *, filters: bool) -> tuple[set[str], set[str]]:
        """Why the pod can't be had there: all that may be said, however many of the units that may be left
        are; and what is said by those that surely are."""
        every, sure = (self.seen(ledger, uid, sure=sure, filters=filters) for sure in (False, True))
        first, last = self._model.refusal(uid, node, every), self._model.refusal(uid, node, sure)
        if first == last:
            return first, last
        between = (replace(every, over=number) for number in range(1, self._lefts.units))
        return first.union(*(self._model.refusal(uid, node, each) for each in between)), last

    def _undisturbed(self, call: Call, ledger: Kept) -> None:
        left = {uid for uid in call.owed & self.waiting(ledger) if self._could_run(uid, ledger)}
        self.keep(6, not left, f"{call.kind} made room for {left} and woke {call.woken}")
        if call.kind == "reconcile" and not call.answer:
            fits = self.fitting(ledger)
            self.keep(6, fits <= call.woken, f"{fits} fit, and reconcile woke {call.woken}")
        if call.expected is not None:
            number, wanted = call.expected
            said = f"{call.kind} of {call.uid} to {call.node} answered {call.answer!r} and not {wanted!r}"
            answer = call.answer or ""
            right = all(part.startswith(tuple(wanted)) for part in answer.split("; "))
            self.keep(number, right if wanted and answer else bool(answer) == bool(wanted), said)

    def expected(self, uid: str, node: str, ledger: Kept) -> tuple[int, set[str]] | None:
        """What a bind call that nothing disturbs must answer, and the promise that says so."""
        pod = self._api.pods().get(uid)
        if pod is None or (bound_node(pod) and bound_node(pod) != node):
            return None
        if bound_node(pod):
            return 5, set()
        if uid not in self._model.waiters({uid: pod}) or not self._model.wishes[uid].units:
            return None
        if not ledger.open:
            return 8, {REBUILDING}
        if self._model.wishes[uid].together:
            return None
        if uid in ledger.claims and (uid in self._api.refused or self._model.wishes[uid].claim):
            return None
        if any(claim.node == node for claim in ledger.claims.get(uid, ())):
            return None if self._moved(uid, ledger) else (5, set())
        every, sure = self._refusals(uid, node, ledger, filters=False)
        if bool(every) != bool(sure) or (ledger.nameless and (self._model.wishes[uid].claim or sure)):
            return None
        return (7, every | sure) if sure else (5, set())

    def _moved(self, uid: str, ledger: Kept) -> bool:
        """Whether it is to hold other units now than when it was reserved."""
        seen, claim = self.seen(ledger, uid), ledger.claims[uid][0]
        found = summed(((each.pool, each.whole), each.count) for each in claim.holdings)
        return found != self._model.units(uid, lambda pool: seen.place(pool, claim.node), seen.pools)

    def waiting(self, ledger: Kept) -> set[str]:
        """Those that no bind call has in its hands; who waits for its gang is not told here."""
        wishes = self._model.wishes
        waiters = self._model.waiters(self._api.pods()) - set(ledger.claims)
        return {uid for uid in waiters if wishes[uid].units and not wishes[uid].together}

    def _fits(self, uid: str, ledger: Kept) -> bool:
        seen = self.seen(ledger, uid, sure=False)
        return any(not self._model.refusal(uid, node, seen) for node in NODES)

    def fitting(self, ledger: Kept, *, sure: bool = False) -> set[str]:
        """Waiting pods that are to be woken; `sure`: or that may be, for what was left may be free."""
        return {uid for uid in self.waiting(ledger) if self._could_run(uid, ledger, sure=sure)}

    def _could_run(self, uid: str, ledger: Kept, *, sure: bool = False) -> bool:
        """Whether it is to be woken: it fits on a node that takes pods, and somebody can write to it."""
        seen, nodes = self.seen(ledger, uid, sure=sure), self._api.nodes()
        usable = [node for node, it in nodes.items() if not it.cordoned]
        return uid not in self._api.refused and any(
            not self._model.refusal(uid, node, seen) for node in usable
        )


def _of_pools(units: Mapping[Domain, int], names: Collection[str]) -> dict[Domain, int]:
    """What of it is of these Pools, but for the PoolClaim's."""
    return {where: count for where, count in units.items() if where[0] in names and where != CLAIMED}


def _sort(pool: str, domain: str, count: int) -> tuple[Domain, int]:
    """By what is asked for, and what kind of share it is, whatever the Pool's name and the place."""
    if (pool, domain) == CLAIMED:
        return CLAIMED, count
    resource = resource_of(pool)
    if domain.startswith(LIMIT):
        return (resource, domain), count
    return (resource, UNRESERVED if domain.endswith(UNRESERVED) else ""), count
