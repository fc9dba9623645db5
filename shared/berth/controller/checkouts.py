"""Where claims and licences that are checked out don't go together, in words for a person: by what the last
readings said, beside the ledger. Pure: it asks nobody and repairs nothing."""

from collections.abc import Iterable, Iterator, Mapping

from berth.api.pool import ExternalFrom
from berth.controller.drift import Finding, finding
from berth.controller.licence_reading import claimed_of
from berth.kube.types import Pod
from berth.ledger.keys import reading_key
from berth.ledger.last_reading import LastReading, last_reading_of
from berth.ledger.model import Claim
from berth.ledger.view import View
from berth.licences.checkouts import known_as

GRACE_SECONDS = 600.0
"""So long a pod may hold its claim without a checkout: it is started, and loads its data."""

Readings = Mapping[str, tuple[ExternalFrom, LastReading]]
"""By pool: from where what others use is read, and the last reading."""


def readings_of(view: View, bodies: Mapping[str, bytes]) -> Readings:
    """Return the last readings of pools, by the ledger's documents."""
    readings: dict[str, tuple[ExternalFrom, LastReading]] = {}
    for name, pool in sorted(view.pools.items()):
        last, source = last_reading_of(bodies.get(reading_key(name))), pool.external_from
        if source is not None and last is not None:
            readings[name] = source, last
    return readings


def may_be_other(pod: Pod, readings: Readings) -> bool:
    """Whether a checkout that no claim counts may be this pod's."""
    name = pod.metadata.name
    return any(known_as(name, source.match) in last.others for source, last in readings.values())


def checkout_findings(view: View, readings: Readings, pods: Iterable[Pod]) -> Iterator[Finding]:
    """Yield pods that hold claims and have checked out nothing, and pods with checkouts that no claim counts;
    `pods` are those that `may_be_other`."""
    others = list(pods)
    for pool, (source, last) in readings.items():
        claims = [claim for claim in view.claims() if not claim.is_external and claim.at_places(pool)]
        for claim in sorted(claims, key=lambda claim: claim.label):
            yield from _idle(claim, pool, last)
        yield from _beyond(view, pool, source, last, claims)
        holders = {claim.uid for claim in claims}
        for pod in others:
            units = last.others.get(known_as(pod.metadata.name, source.match), 0)
            runs = bool(pod.spec.node_name) and not pod.finished
            if units and runs and pod.metadata.uid not in holders:
                what = f"pod {pod.label} has {units} of {pool} checked out, and holds no claim"
                yield finding("no-claim", what, pod=pod.label, uid=pod.metadata.uid, pool=pool)


def _idle(claim: Claim, pool: str, last: LastReading) -> Iterator[Finding]:
    held = last.at - claim.since
    if claim.state == "bound" and claim.name in last.idle and held > GRACE_SECONDS:
        units = sum(holding.count for holding in claim.at_places(pool))
        what = f"pod {claim.label} holds {units} of {pool} for {int(held)} s, and has checked out nothing"
        yield finding("no-checkout", what, pod=claim.label, uid=claim.uid, node=claim.node, pool=pool)


def _beyond(
    view: View, pool: str, source: ExternalFrom, last: LastReading, claims: Iterable[Claim]
) -> Iterator[Finding]:
    claimed = claimed_of(view, pool)
    for claim in claims:
        units = last.beyond.get(known_as(claim.name, source.match), 0)
        if units:
            held = min(claimed[claim.name])
            what = f"pod {claim.label} has {held + units} of {pool} checked out, and holds {held}"
            yield finding("no-claim", what, pod=claim.label, uid=claim.uid, node=claim.node, pool=pool)
