"""What a function's endpoint is made of: its ledger, its cluster, who may call it, how it answers errors.
A function that acts on a cluster does nothing in the ledger of another one (docs/decisions/0007)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from berth.http import authentication
from berth.http.endpoint import Content, Endpoint, LongList, Reply, error_reply, event_message
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.metrics import UNCOUNTED, Metrics
from berth.settings import Settings
from berth.stores import open_store, redacted
from berth.stores.base import Store

if TYPE_CHECKING:
    from berth.controller.notices import Teller
    from berth.kube.cluster import Cluster

Look = Callable[[], View]
"""Returns the View of a look that began after the call. Raises as Ledger.view."""


def verb(
    name: str,
    ledger: Ledger,
    settings: Settings,
    answer: Callable[[Content], bytes | LongList],
    error_answer: Callable[[str], bytes] | None = None,
) -> Endpoint:
    """Return the endpoint of one of kube-scheduler's calls: `answer` takes and returns a body.

    `error_answer` makes the body of a failure that the pod's event is to show; without it a failure is a 503.
    """

    def failed(message: str, retryable: bool) -> Reply:
        if error_answer is None:
            return error_reply(503, message)
        # Only Error in a 200 answer reaches the pod's event (docs/kubernetes.md#errors).
        return Reply(200, error_answer(event_message(message, retryable)))

    return Endpoint(
        name=name,
        answer=lambda _, body: Reply(200, answer(body)),
        failed=failed,
        health=ledger.check,
        body_limit=settings.body_limit,
        authenticator=authentication.authenticator(settings.access),
    )


def advice(
    name: str,
    ledger: Ledger,
    settings: Settings,
    answer: Callable[[Look, Content], bytes | LongList],
    error_answer: Callable[[str], bytes] | None = None,
) -> Endpoint:
    """Return the endpoint of a call that asks for nothing but one look at the ledger; else as `verb`."""

    def at_once(_: Mapping[str, str], body: Content) -> Reply | None:
        view = ledger.view_at_once()
        return None if view is None else Reply(200, answer(lambda: view, body))

    endpoint = verb(name, ledger, settings, partial(answer, ledger.view), error_answer)
    return replace(endpoint, at_once=at_once)


def ledger_to_read(settings: Settings, metrics: Metrics = UNCOUNTED) -> Ledger:
    """Return the ledger for what only advises. Raises SettingsError; nothing is opened yet."""
    return Ledger(open_store(settings.store, reads_only=True), metrics=metrics)


def ledger_and_cluster(
    settings: Settings, metrics: Metrics = UNCOUNTED, *, while_closed: bool = False
) -> "tuple[Ledger, Cluster]":
    """Return the ledger and the cluster for what acts on them; `while_closed` as in Ledger. Raises
    SettingsError; nothing is opened yet."""
    from berth.kube.cluster import connect  # the verbs that only advise start without its libraries

    store, cluster = open_store(settings.store), connect()
    return ledger_of(cluster, settings, store, metrics, while_closed=while_closed), cluster


def ledger_of(
    cluster: "Cluster",
    settings: Settings,
    store: Store,
    metrics: Metrics = UNCOUNTED,
    *,
    while_closed: bool,
) -> Ledger:
    """Return the cluster's ledger in a store that is open already."""
    name = redacted(settings.store)
    return Ledger(
        store,
        clock=cluster.now,
        while_closed=while_closed,
        cluster=cluster.identity,
        name=name,
        metrics=metrics,
    )


def teller(cluster: "Cluster", settings: Settings, function: str, metrics: Metrics = UNCOUNTED) -> "Teller":
    """Return what tells of pods by Kubernetes Events, as this function, as long as the process lives; no
    request is sent yet."""
    from berth.controller.notices import SILENT, Teller
    from berth.kube.event_recorder import EventRecorder, recorder_until_exit

    if not settings.pod_events:
        return SILENT
    recorder = EventRecorder(cluster.aside(), function, told=metrics.told)
    return Teller(recorder_until_exit(recorder).record)


@contextmanager
def telling(cluster: "Cluster", settings: Settings, function: str) -> "Iterator[Teller]":
    """Yield what tells of pods until the end of the block, as `teller` does until that of the process."""
    from berth.controller.notices import SILENT, Teller
    from berth.kube.event_recorder import EventRecorder

    if not settings.pod_events:
        yield SILENT
        return
    recorder = EventRecorder(cluster.aside(), function)
    try:
        yield Teller(recorder.record)
    finally:
        recorder.close()
