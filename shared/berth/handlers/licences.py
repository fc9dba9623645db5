"""inventory's path /licences: the text of a licence server, as its own program prints it, for one Pool.
What others use by it is counted at once, and who fits then is woken. Its callers are those of /external."""

import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

import msgspec

from berth.api.pool import ExternalFrom, Pool
from berth.controller.alarm import Alarm
from berth.controller.licence_reading import note_failed, take_text
from berth.controller.requeue import free_in, wake
from berth.errors import BadInputError, alternatives
from berth.handlers.external import CLOSED
from berth.http import authentication
from berth.http.endpoint import QUERY, Content, Endpoint, Reply, error_reply
from berth.kube.cluster import Cluster
from berth.ledger.ledger import Ledger
from berth.ledger.report import pool_rows
from berth.licences.checkouts import LARGEST_OF_A_FUNCTION
from berth.settings import Settings


def endpoint(
    ledger: Ledger,
    cluster: Cluster,
    settings: Settings,
    clock: Callable[[], float] = time.time,
    alarm: Alarm | None = None,
) -> Endpoint:
    """Return the endpoint, which is closed while no caller is named. It takes one text at a time: a large one
    needs five times its size while it is read."""
    authenticator, one_at_a_time = authentication.authenticator(settings.external), threading.Lock()

    def answer(headers: Mapping[str, str], body: Content) -> Reply:
        if authenticator is None:
            return error_reply(403, CLOSED.format("/licences"))
        at = clock()  # before others' texts are read
        with one_at_a_time:
            told = run(ledger, cluster, settings, headers.get(QUERY, ""), bytes(body), at, alarm)
        return Reply(200, msgspec.json.encode(told))

    return Endpoint(
        name="inventory/licences",
        answer=answer,
        failed=lambda message, retryable: error_reply(503 if retryable else 500, message),
        health=ledger.check,
        body_limit=min(settings.body_limit, LARGEST_OF_A_FUNCTION),
        limited_by="the most that a licence server's text may have",
        authenticator=authenticator,
        queried=True,
    )


def run(
    ledger: Ledger,
    cluster: Cluster,
    settings: Settings,
    query: str,
    body: bytes,
    now: float,
    alarm: Alarm | None = None,
) -> dict[str, object]:
    """Return the pool, its licences, those that others use, and the units over its capacity. Raises
    BadInputError, store and cluster errors; then the last reading stands."""
    ledger.require_cluster()
    pool, source = _pool(query, ledger.view().pools)
    try:
        taken = take_text(ledger, pool, source, body, now)
    except BadInputError as error:
        note_failed(ledger, pool, error)
        raise
    if taken.room:
        room = free_in(ledger.view(), [pool.name], now)
        staged = None if alarm is None else alarm.later()
        wake(ledger, cluster, settings.scheduler_names, room, now, staged=staged)
    (row,) = pool_rows(ledger.view(), None, pool.name, now)
    return {
        "pool": pool.name,
        "issued": taken.issued,
        "external": row.external,
        "overCommitted": row.over_committed,
    }


def _pool(query: str, pools: Mapping[str, Pool]) -> tuple[Pool, ExternalFrom]:
    """Return the Pool that the query names, and what is read for it. Raises BadInputError."""
    names = parse_qs(query).get("pool", [])
    if len(names) != 1:
        raise BadInputError("name one Pool in the URL, such as /licences?pool=matlab")
    read = sorted(name for name, pool in pools.items() if pool.external_from is not None)
    pool = pools.get(names[0])
    if pool is None or pool.external_from is None:
        raise BadInputError(f"no Pool {names[0][:100]!r} has externalFrom; {alternatives(names[0], read)}")
    return pool, pool.external_from
