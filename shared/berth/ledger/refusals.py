"""What fits where, and why not: one reason per refused node, equal for equal causes (promise 7).
It does not decide who gets a unit; the ledger's reserve does, because two pods can both fit the last one."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from berth.ledger.free import Free, Share

_TEXTS = 4  # more kinds of refusal than this are told in general, to keep the pod's condition short

_MOST_SIZES = 3  # of the pods of one gang, that a refusal names

KEPT = "units are kept for this pod on other nodes"
"""Said of nodes that could take a pod which finds the units it had before elsewhere."""

REFUSALS: Mapping[str, str] = {
    "unlisted": "it names units that the Pool does not list",
    "forbidden": "the Pool's claimableBy lets its namespace claim no such units",
}
"""Why a PoolClaim gives nobody anything, by documents' words for it."""

_Has = Share | str | None
"""A node's share; None where it has none; or a text: why it can't be had there."""

_Words = Callable[[str, Share | None, int], str]


class Requirement(NamedTuple):
    """So many units of a pool, each node from its own domain.

    `places` are the nodes' domains, None where each node is its own; a domain in `not_here` can't give any,
    for the reason that stands there. `words` say what is short, but where units are `held` for another pod:
    what is said there stands there.
    """

    pool: str
    asked: int
    free: Free
    places: Mapping[str, str] | None
    words: _Words
    unlabelled: str = ""
    not_here: Mapping[str, str] = {}
    held: Mapping[str, str] = {}

    def domain(self, node: str) -> str | None:
        """Return the node's domain; None: it has none; empty: it lacks the label for it."""
        if self.places is not None:
            return self.places.get(node)
        return node if node in self.free else None

    def enough(self) -> frozenset[str]:
        """Return the domains that can give them."""
        enough = self.free.enough(self.asked)
        return enough.difference(self.not_here) if self.not_here else enough

    def nodes(self) -> frozenset[str]:
        """Return the nodes that are known to be in a domain that can give them."""
        enough = self.enough()
        if self.places is None or not enough:
            return enough
        return frozenset(node for node, domain in self.places.items() if domain in enough)

    def short(self, names: Collection[str]) -> Iterable[str]:
        """Return those of these nodes that can't give them."""
        if self.places is None:
            return self._lacking(names)
        domains = list(map(self.places.get, names, repeat("")))
        lacking = set(self._lacking(domains))
        return (name for name, domain in zip(names, domains, strict=True) if domain in lacking)

    def has(self, names: Collection[str]) -> Sequence[_Has]:
        """Return what each of these nodes has."""
        if self.places is None and not (self.not_here or self.held):
            return self.free.pick(names)
        return list(map(self._has, names))

    def refusal(self, domain: str) -> str:
        """Return why this domain can't give them, in the words that its nodes are refused with; empty if it
        can."""
        has = self._of_domain(domain) if domain in self.free else None
        if isinstance(has, tuple) and has[0] >= self.asked:
            return ""
        return _exact((self.pool, self.words, has, self.asked))

    def _lacking(self, domains: Collection[str]) -> Iterable[str]:
        lacking = self.free.lacking(domains, self.asked)
        return chain(lacking, filter(self.not_here.__contains__, domains)) if self.not_here else lacking

    def _has(self, name: str) -> _Has:
        domain = name if self.places is None else self.places.get(name)
        if domain == "":
            return self.unlabelled
        if domain is None or domain not in self.free:
            return None
        return self._of_domain(domain)

    def _of_domain(self, domain: str) -> Share | str:
        return self.not_here.get(domain) or self.held.get(domain) or self.free[domain]

    def gives(self, name: str) -> bool:
        """Whether the node has a share of the pool, of which some may be had."""
        domain = self.domain(name)
        return domain in self.free and domain not in self.not_here


_Cause = tuple[str, _Words, _Has, int]


def refusals(names: Collection[str], requirements: Collection[Requirement]) -> dict[str, str]:
    """Return why each node that can't give all that is wanted can't; nodes that can are left out.

    kube-scheduler groups equal texts and tries again when they change, so a text holds no node, no time, and
    no pod but the one that is first in line, and there are at most a few of them.
    """
    refused = list(
        dict.fromkeys(chain.from_iterable(requirement.short(names) for requirement in requirements))
    )
    # What each has of all the pools. No loop over the names: there may be thousands, with few such kinds.
    has = list(zip(*(requirement.has(refused) for requirement in requirements), strict=True))
    causes = {kind: _cause(kind, requirements) for kind in set(has)}
    texts = _texts(set(causes.values()))
    reasons = {kind: texts[cause] for kind, cause in causes.items()}
    return dict(zip(refused, map(reasons.__getitem__, has), strict=True))


def absent(pool: str, which: str = "this") -> str:
    """Return the words for a node that has no domain in the pool; `which` is any where no node has one."""
    return f"{pool}: none on {which} node"


def held_in_line(pool: str, share: Share, asked: int, held: int, first: str, lent: bool = False) -> str:
    """Return the words for a domain of which some units are held for the pod that is first in line; `lent`:
    and for others that are done before that has all of them. When that is, would not last in a text."""
    more = ", or a pod that says it is done in time (berth.dev/runs-for)" if lent else ""
    return f"{lacking(pool, share, asked)}{_held_for(held, first)}{more}"


def _held_for(held: int, first: str) -> str:
    """Return the words for units that are held for the pod that is first in line; none for no units."""
    return f"; {held} more {'is' if held == 1 else 'are'} held for {first}, first in line" if held else ""


def too_late(pool: str, first: str) -> str:
    """Return the words for a pod whose reservation has become too old for what it had reserved."""
    return f"{pool}: what it had reserved is held for {first}, first in line; it would be done too late now"


def lacking(pool: str, share: Share | None, asked: int) -> str:
    """Return what a domain lacks, in the words of promise 7."""
    return absent(pool) if share is None else f"{pool}: {share[0]} of {share[1]} free, {asked} asked"


def limited(
    pool: str,
    namespace: str,
    share: Share | None,
    asked: int,
    retained: bool = False,
    held: int = 0,
    first: str = "",
) -> str:
    """Return what is short of a namespace's limit; `retained`: of a pool where units rest, or are kept for
    pods. `held` of it are for the pod that is `first` in line."""
    free, limit = share or (0, 0)
    left = " (what its pods left counts while it rests or is kept)" if retained else ""
    lacks = f"{pool}: {free} of the {limit} that namespace {namespace} may hold are free, {asked} asked"
    return f"{lacks}{left}{_held_for(held, first)}"


def unreserved(pool: str, share: Share | None, asked: int) -> str:
    """Return what is short of the units that are not kept for important pods."""
    if share is None:
        return absent(pool)
    return f"{pool}: {share[0]} of {share[1]} free that are not reserved for a higher priority, {asked} asked"


def claimed(pool: str, claim: str, share: Share | None, refused: str = "") -> str:
    """Return why a PoolClaim can't be had; `refused` says why nobody can have it."""
    if refused:
        return f"{pool}: PoolClaim {claim} is refused: {REFUSALS[refused]}"
    return no_claim(claim) if share is None else f"{pool}: another pod holds PoolClaim {claim}"


def no_claim(claim: str) -> str:
    return f"there is no PoolClaim {claim} in the pod's namespace"


def elsewhere(pool: str, claim: str) -> str:
    """Return the words for a domain that lacks the units that a PoolClaim is for."""
    return f"{pool}: the units of PoolClaim {claim} are not here, or not free"


def scattered(pools: Iterable[str]) -> str:
    """Return the words for units that lie in more documents than one commit takes."""
    names = ", ".join(sorted(set(pools)))
    return f"{names}: what is free lies in too many parts of berth's ledger for one pod; ask for fewer units"


def leaving(pool: str) -> str:
    """Return the words for the time in which the units of the last pod of this name are being freed."""
    return f"{pool}: what the last pod of this name had is not free yet"


def brought(pool: str, key: str) -> str:
    """Return the words for a pod that comes with an annotation which only Berth may write."""
    return f"{pool}: the pod has the annotation {key}, which berth writes: leave it out"


def one_unit(pool: str, key: str, asked: int) -> str:
    """Return the words for a pod that asks for more units than an annotation can tell it."""
    return f"{pool}: {asked} asked, and the annotation {key} is for one unit: ask for 1"


def both_write(one: str, other: str, key: str) -> str:
    """Return the words for a pod that asks for two pools which would write the same annotation."""
    return f"{one}, {other}: both write the annotation {key}: ask for one of them"


_ANNOTATE = "or give its pods the annotations berth.dev/gang and berth.dev/gang-size"

MADE_IN_TURN = "a StatefulSet makes its pods one by one unless its podManagementPolicy is Parallel"
RUN_UNKNOWN = "pods without a controller that had succeeded before may be of an earlier run, and do not count"
OTHER_WORKLOADS = "pods that another controller made are another gang, though they have its name"


def gang_absent(gang: str, there: int, size: int, because: str = "") -> str:
    """Return the words for a gang of which some pods are missing, or can't be scheduled yet."""
    text = f"gang {gang}: {there} of its {size} pods {'is' if there == 1 else 'are'} there"
    return f"{text}; {because}" if because else text


def gang_updated(sizes: Collection[int]) -> str:
    """Return the words for what a gang lacks that has pods of another size, of its template before."""
    return (
        f"its controller has pods of gang size {_listed(sizes)} as well, and replaces them one by one: scale "
        "it down to 0 and up again"
    )


def gang_disagrees(gang: str, sizes: Collection[int]) -> str:
    """Return the words for a gang whose pods say different sizes."""
    return (
        f"gang {gang}: its pods say different sizes ({_listed(sizes)}): give all of them the same "
        "berth.dev/gang-size, or those that are not of it another berth.dev/gang"
    )


def _listed(sizes: Collection[int]) -> str:
    """Return the smallest of these numbers, as a text."""
    first = [str(size) for size in sorted(sizes)[:_MOST_SIZES]]
    if len(sizes) > len(first):
        return f"{', '.join(first)} and more"
    return " and ".join(filter(None, (", ".join(first[:-1]), first[-1])))


def gang_short(pool: str, gang: str, free: int, asked: int, pods: int) -> str:
    """Return the words for a gang of which so many pods ask for more than there is for all of them."""
    return f"{pool}: {free} free, {asked} asked by {pods} pods of gang {gang} together"


def gang_limited(limited: str, gang: str, pods: int) -> str:
    """Return the words for a gang of which so many pods ask for more than their namespace may hold."""
    return f"{limited} by {pods} pods of gang {gang} together"


def gang_rests(gang: str) -> str:
    """Return the words for a gang for which units were reserved that its pods have not taken."""
    return (
        f"gang {gang}: its pods have not taken what was reserved for them; it has to wait before the next try"
    )


def gang_seatless(gang: str, pods: int, pod: str, why: str) -> str:
    """Return the words for a gang whose pods find no room side by side; `why` one of them does not."""
    return f"gang {gang}: no room for {pods} pods of it at once ({pod}: {why or 'it may go to no node'})"


def gang_refused(gang: str, pod: str, why: str) -> str:
    """Return the words for a gang of which one pod can be served nowhere."""
    return f"gang {gang}: its pod {pod} can't be served: {why}"


def gang_slow(gang: str) -> str:
    """Return the words for a gang whose pods are too different for one bind to look where all may go."""
    return (
        f"gang {gang}: its pods select or tolerate too many different things to look in time where all of "
        "them may go: make them alike, or the gang smaller"
    )


def gang_large(gang: str, pods: int, most: int) -> str:
    """Return the words for a gang whose pods would stand in more documents than one commit takes."""
    return (
        f"gang {gang}: {pods} pods of it would stand in more than {most} documents of berth's ledger, which "
        "are the most at once: make the gang smaller"
    )


def group_absent(gang: str) -> str:
    """Return the words for a gang whose pods name a PodGroup that is not there."""
    return f"gang {gang}: there is no PodGroup of this name, so its size is not known: make one, {_ANNOTATE}"


def group_unread(gang: str, *, may_not: bool) -> str:
    """Return the words for a gang whose PodGroup could not be read."""
    if may_not:
        why, action = "Berth may not read its PodGroup", "let Berth get podgroups of scheduling.k8s.io"
    else:
        why, action = "its PodGroup can't be read", "look at Berth's log"
    return f"gang {gang}: {why}, so its size is not known: {action}, {_ANNOTATE}"


def group_disagrees(gang: str, size: int, count: int) -> str:
    """Return the words for a gang of which pods and PodGroup say different sizes."""
    return (
        f"gang {gang}: its pods say that it has {size} pods (berth.dev/gang-size), and its PodGroup {count} "
        "(minCount): make them equal, or leave out the annotations"
    )


def group_large(gang: str, count: int, most: int) -> str:
    """Return the words for a gang whose PodGroup wants more pods at once than a gang may have."""
    return f"gang {gang}: its PodGroup wants {count} pods at once (minCount), and a gang has {most} at most"


def suspended(pool: str) -> str:
    return f"{pool}: suspended, no new pods"


def unread(pool: str, limit: int | None) -> str:
    """Return the words for a pool of which nobody knows what others use: the last reading is older than so
    many seconds; None: there is none."""
    if limit is None:
        return f"{pool}: what others use of it is not known yet; nothing new is given until it is read"
    return f"{pool}: what others use of it was not read for {limit} s; nothing new is given until it is"


def held_back(pool: str) -> str:
    """Return the words for a pool of which a Binding from before the ledger was lost may still take units."""
    return (
        f"{pool}: held back since berth's ledger was lost: a pod that waits for it could not be written to "
        "(berth reconcile says which and why)"
    )


def unlabelled(pool: str, label: str) -> str:
    """Return the words for a node without the label that would name its domain."""
    return f"{pool}: the node has no label {label}"


def _cause(has: tuple[_Has, ...], requirements: Collection[Requirement]) -> tuple[_Cause, ...]:
    return tuple(
        (requirement.pool, requirement.words, share, requirement.asked)
        for share, requirement in zip(has, requirements, strict=True)
        if not isinstance(share, tuple) or share[0] < requirement.asked
    )


def _texts(causes: set[tuple[_Cause, ...]]) -> dict[tuple[_Cause, ...], str]:
    for wording in (_exact, _general, _short):
        texts = {cause: "; ".join(dict.fromkeys(map(wording, cause))) for cause in causes}
        if len(set(texts.values())) <= _TEXTS:
            return texts
    pools = sorted({pool for cause in causes for pool, *_ in cause})
    return dict.fromkeys(causes, f"fewer free than asked of at least one of {', '.join(pools)}")


def _exact(cause: _Cause) -> str:
    pool, words, share, asked = cause
    return share if isinstance(share, str) else words(pool, share, asked)


def _general(cause: _Cause) -> str:
    return _short(cause) if isinstance(cause[2], tuple) else _exact(cause)


def _short(cause: _Cause) -> str:
    return f"{cause[0]}: fewer free than the {cause[3]} asked"
