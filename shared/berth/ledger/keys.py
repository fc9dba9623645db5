"""Keys of the ledger's documents, and the names of domains in them: written and parsed here, nowhere else.
Ledgers are full of these strings: none of them may change."""

from functools import lru_cache
from typing import Literal

import msgspec

REBUILD = "rebuild"  # who is rebuilding the ledger; a loss changes its version, which stops a late opening
UNFENCED = "unfenced"  # pods that may still be bound by a Binding from before the ledger was lost
CLUSTER = "cluster"  # the identity of the cluster whose pods hold the claims
RECONCILED = "reconciled"  # what the last reconcile mended and left
OVERRUNS = "overruns"  # owners whose pods ran longer than they had said
POOL, DOMAIN, NODE, TURN = "pool/", "domain/", "node/", "turn/"  # how keys begin
READING = "reading/"  # how keys begin of what was read last of others' use
USAGE = "usage/"  # how keys of the journal begin
GANG = "gang/"  # how keys of what is noted of gangs begin
RELEASES = f"{USAGE}releases"  # the latest, for people
COUNTED = f"{USAGE}until"  # how far the journal is in all pools
LOOK = f"{TURN}*"  # whose look at the Pools counts; no pool is called so
CLAIMS_LOOK = f"{TURN}!"  # whose look at PoolClaims counts

NOWHERE = "?"  # where a pod runs that runs in no domain of the pool

_NAMES = 2**17  # that are kept parsed: all that a large ledger has

PoolDomain = tuple[str, str]
"""A pool and the name of one of its domains."""

Kind = Literal["place", "namespace", "poolclaim", "unreserved"]


class DomainName(msgspec.Struct, frozen=True, gc=False):
    """A domain's name, taken apart. No node's name, label value or `*` looks like the name of a quota.

    A domain is a place (`node-7`, `zone-a`, `*`) or a quota, which limits who may hold how much: what the
    pods of a namespace may hold (`@team-a`), a PoolClaim, which one pod may hold (`!team-a/k80-erc`), or what
    pods that are not important may hold of a place (`node-7<`). Each may be in stripes (`zone-a#3`).
    """

    text: str
    whole: str  # the domain, of which the name may be a stripe
    stripe: str
    kind: Kind
    place: str = ""  # that it is, or whose quota it is
    namespace: str = ""
    poolclaim: str = ""

    @property
    def is_quota(self) -> bool:
        return self.kind != "place"

    @property
    def label(self) -> str:
        """Return a PoolClaim's namespace and name, as people write them."""
        return f"{self.namespace}/{self.poolclaim}"

    def at(self, place: str) -> str:
        """Return the name of the same share of another place; a quota of no place keeps its name."""
        if self.kind == "unreserved":
            return unreserved_quota(place)
        return place if self.kind == "place" else self.text


@lru_cache(_NAMES)
def parse_domain(text: str) -> DomainName:
    """Return the name taken apart; parsed once."""
    whole, _, stripe = text.partition("#")
    if whole.startswith("@"):
        return DomainName(text, whole, stripe, "namespace", namespace=whole[1:])
    if whole.startswith("!"):
        namespace, _, claim = whole[1:].partition("/")
        return DomainName(text, whole, stripe, "poolclaim", namespace=namespace, poolclaim=claim)
    if whole.endswith("<"):
        return DomainName(text, whole, stripe, "unreserved", whole[:-1])
    return DomainName(text, whole, stripe, "place", whole)


def namespace_quota(namespace: str) -> str:
    return f"@{namespace}"


def poolclaim_quota(label: str) -> str:
    """Return the domain of a PoolClaim, which is given as namespace/name."""
    return f"!{label}"


def unreserved_quota(place: str) -> str:
    return f"{place}<"


def stripe(domain: str, number: int) -> str:
    return f"{domain}#{number}"


def domain_key(pool: str, domain: str) -> str:
    return f"{DOMAIN}{pool}/{domain}"  # a pool's name holds no slash, so this can be taken apart again


def domain_of(key: str) -> PoolDomain:
    """Return the pool and the domain (or stripe) of a domain's key."""
    pool, _, name = key.removeprefix(DOMAIN).partition("/")
    return pool, name


def stripe_keys(pool: str, domain: str, count: int) -> list[str]:
    return [domain_key(pool, stripe(domain, number)) for number in range(count)]


def pool_key(pool: str) -> str:
    return f"{POOL}{pool}"


def node_key(node: str) -> str:
    return f"{NODE}{node}"


def turn_key(pool: str) -> str:
    """Return the key of the document that says who may list the names of the pool's units now."""
    return f"{TURN}{pool}"


def gang_key(label: str) -> str:
    """Return the key of what is noted of a gang, which is given as namespace/name."""
    return f"{GANG}{label}"


def reading_key(pool: str) -> str:
    """Return the key of the document that says who had what of the pool by its last reading."""
    return f"{READING}{pool}"


def kept_at(owner: str, pool: str, place: str) -> str:
    """Return the owner as a quota's document names it: for whom units are kept, and where they are.

    Who takes those it had takes no more of the quota than before; who takes others does.
    """
    return f"{owner}@{pool}/{place}" if owner else ""


def owner_of_kept(text: str) -> tuple[str, PoolDomain]:
    """Return the owner, the pool and the place that `kept_at` joined; no owner in other texts."""
    owner, _, where = text.rpartition("@")
    pool, _, place = where.partition("/")
    return owner, (pool, place)


def usage_key(month: str, pool: str) -> str:
    """Return the key of the journal's page on a pool for a month, such as 2026-11.

    Its last segment has both: a store that places documents by that (stores/configmap) would put all of a
    pool's months together, beside claims, which then would cost more to write.
    """
    return f"{USAGE}{month}.{pool}"


def usage_of(key: str) -> tuple[str, str]:
    """Return the month and the pool of a page's key; no pool for what is no page."""
    month, _, pool = key.removeprefix(USAGE).partition(".")
    return month, pool
