"""inventory's path /external: somebody who may says how many units are in use outside the cluster.
It writes that into the Pool object and takes it over at once. Its callers are its own: they may not bind."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import msgspec

from berth.api.units import MOST
from berth.controller.external_use import only_cluster
from berth.controller.pool_source import amend
from berth.errors import BadInputError
from berth.http import authentication
from berth.http.endpoint import Content, Endpoint, Reply, error_reply
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger
from berth.ledger.report import pool_rows
from berth.ledger.transaction import OutdatedError
from berth.settings import Settings
from berth.telemetry import calls
from berth.telemetry.traces import Facts

log = logging.getLogger("berth.external")

CLOSED = (
    "nobody may call {}: name the accounts that may in BERTH_EXTERNAL_ACCOUNTS, "
    "or set a token of its own in BERTH_EXTERNAL_TOKEN or BERTH_EXTERNAL_TOKEN_FILE"
)
_LARGEST = 64 * 1024  # bytes of a call
_IN_A_FILE = "the Pools are in a file (BERTH_POOLS): set spec.external there, or say berth external POOL N"

_LOOKS = 3
"""So many more are begun where later ones overtake the first."""


class _Use(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pool: str
    external: Annotated[int, msgspec.Meta(ge=0, le=MOST)]


def endpoint(ledger: Ledger, cluster: Cluster, settings: Settings, take: Callable[[], object]) -> Endpoint:
    """Return the endpoint; `take` takes Pools over into the ledger, from their source as it is now."""

    authenticator = authentication.authenticator(settings.external)

    def answer(_: Mapping[str, str], body: Content) -> Reply:
        if authenticator is None:
            return error_reply(403, CLOSED.format("/external"))
        if settings.pools is not None:
            return error_reply(409, _IN_A_FILE)
        return Reply(200, msgspec.json.encode(run(ledger, cluster, bytes(body), take)))

    return Endpoint(
        name="inventory/external",
        answer=answer,
        failed=lambda message, retryable: error_reply(503 if retryable else 500, message),
        health=ledger.check,
        body_limit=min(settings.body_limit, _LARGEST),
        limited_by="it is a line of JSON",
        authenticator=authenticator,
    )


def run(ledger: Ledger, cluster: Cluster, body: bytes, take: Callable[[], object]) -> dict[str, object]:
    """Return the pool, its external use, and the units over its capacity. Raises BadInputError, store and
    cluster errors; OutdatedError where later looks overtake this one again and again."""
    use = _read(body)
    ledger.require_cluster()
    before, pool = amend(None, lambda: cluster, use.pool, partial(only_cluster, use.external))
    if before != pool:
        # Even if the event of that very write was faster: it may have the status to write yet. A call with
        # the same number as before comes each minute, and costs no look at all nodes and pods.
        take()
    looks = _LOOKS
    while (view := ledger.view()).pools.get(pool.name) != pool:
        if not looks:
            raise OutdatedError
        looks -= 1
        take()  # a later look overtook the first, and has not taken the Pool over yet
    (row,) = pool_rows(view, None, pool.name)
    if before != pool:
        facts: Facts = {"pool": pool.name, "external": use.external}
        said = "pool %s: %d units are in use outside the cluster"
        calls.decided(log, "changed", facts, said, pool.name, use.external)
    return {"pool": pool.name, "external": use.external, "overCommitted": row.over_committed}


def _read(body: bytes) -> _Use:
    try:
        return msgspec.json.decode(body, type=_Use)
    except msgspec.DecodeError as error:
        said = " ".join(str(error).split())
        raise BadInputError(f'not a call such as {{"pool": "licence", "external": 3}}: {said}') from error
