"""Pools that are wrong, or that have no units by the nodes as they are."""

from collections.abc import Iterator

import msgspec

from berth.api.pool import parse
from berth.checks.finding import Check, Finding, Rule, listed
from berth.checks.inputs import Inputs
from berth.controller.capacity_sync import problems, supply_of
from berth.errors import BadInputError

_SMALLEST = 30  # bits of a subnet's prefix: one of two hosts joins two routers, and has none beside them

WRONG = Rule(
    id="pools.wrong",
    severity="error",
    meaning="A Pool can't be taken as it is. Berth goes on with the Pools that it had before.",
    action="Correct the field that is named.",
    more="docs/reference/pool.md",
)
SELECTOR = Rule(
    id="pools.selector",
    severity="warning",
    meaning="A Pool selects no node, so no pod gets its units.",
    action="Correct spec.nodeSelector, or label the nodes (control planes need includeControlPlane: true).",
    more="docs/reference/pool.md#nodeselector",
)
LABEL = Rule(
    id="pools.label",
    severity="warning",
    meaning="No node of a Pool of scope Topology has the label of its topologyKey, so no pod gets its units.",
    action="Correct spec.topologyKey, or label the nodes.",
    more="docs/reference/pool.md#topologykey",
)
EMPTY = Rule(
    id="pools.empty",
    severity="warning",
    meaning="A Pool has no units at all.",
    action="Set spec.capacity or spec.units, unless it is to be withdrawn.",
    more="docs/reference/pool.md#capacity",
)
ANNOTATION = Rule(
    id="pools.annotation",
    severity="warning",
    meaning="A node's annotation that says its capacity can't be read. The node has no units.",
    action="Correct the annotation on the node.",
    more="docs/reference/pool.md#capacity",
)

GATEWAY = Rule(
    id="pools.gateway",
    severity="warning",
    meaning=(
        "A Pool gives out the first address of a subnet, and excludes none. It is often the router's; then a "
        "pod and the router have the same address."
    ),
    action="Set spec.exclude to the addresses that are in use; to an empty list, if none is.",
    more="docs/reference/pool.md#exclude",
)


def _wrong(inputs: Inputs) -> Iterator[Finding]:
    try:
        documents = inputs.pool_documents
    except BadInputError as error:
        yield WRONG.finding(str(error), inputs.pool_source)
        return
    wrong = False
    for document in documents:
        try:
            parse([document], inputs.pool_source)
        except BadInputError as error:
            wrong = True
            metadata = document.get("metadata") if isinstance(document, dict) else None
            name = metadata.get("name") if isinstance(metadata, dict) else None
            yield WRONG.finding(str(error), str(name or inputs.pool_source))
    if not wrong:
        try:
            parse(documents, inputs.pool_source)
        except BadInputError as error:
            yield WRONG.finding(str(error), inputs.pool_source)


def _units(inputs: Inputs) -> Iterator[Finding]:
    if not inputs.nodes:
        return
    for pool in inputs.pools.values():
        domains = {pool.domain_of(node) for node in inputs.nodes} - {None}
        if not domains:
            yield SELECTOR.finding(f"Pool {pool.name} selects none of {len(inputs.nodes)} nodes", pool.name)
        elif domains == {""}:
            key = pool.spec.topology_key
            yield LABEL.finding(f"Pool {pool.name}: no node has the label {key}", pool.name)
        elif pool.capacity_is_read:
            continue  # how many there are, the licence server says
        elif not any(supply_of({pool.name: pool}, inputs.nodes).capacities.values()):
            yield EMPTY.finding(f"Pool {pool.name} has no units", pool.name)


def _gateways(inputs: Inputs) -> Iterator[Finding]:
    for pool in inputs.pools.values():
        if pool.spec.exclude is not msgspec.UNSET:
            continue
        subnets = [entry for entries in pool.spec.units.values() for entry in entries if _is_subnet(entry)]
        if subnets:
            yield GATEWAY.finding(
                f"Pool {pool.name} gives out the first address of {listed(subnets)}", pool.name
            )


def _is_subnet(entry: str) -> bool:
    """Whether the entry is a CIDR of IPv4 with room for a router."""
    _, slash, length = entry.partition("/")
    return bool(slash) and "." in entry and int(length) < _SMALLEST


def _annotation(inputs: Inputs) -> Iterator[Finding]:
    for problem in problems(inputs.pools.values(), inputs.nodes):
        yield ANNOTATION.finding(problem, problem.partition(":")[0])


CHECKS = (
    Check("the Pools", _wrong, (WRONG,)),
    Check("the Pools' units", _units, (SELECTOR, LABEL, EMPTY)),
    Check("the Pools' subnets", _gateways, (GATEWAY,)),
    Check("the nodes' annotations", _annotation, (ANNOTATION,)),
)
