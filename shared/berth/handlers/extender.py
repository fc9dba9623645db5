"""functions/extender: all four verbs under one URL, on one ledger with one View.
For a scheduler with managedResources; it imports the kubernetes client, so it starts as slowly as bind."""

from msgspec.structs import replace

from berth.handlers import bind, filter, preempt, prioritize  # noqa: A004 - the verb's name
from berth.handlers.wiring import ledger_and_cluster
from berth.http.endpoint import Router
from berth.metrics import UNCOUNTED, Metrics
from berth.settings import Settings

_ALIASES = {"predicates": "filter", "priorities": "prioritize"}  # as kube-scheduler's own examples call them


def router(settings: Settings, *, metrics: Metrics = UNCOUNTED) -> Router:
    """Return all verbs, by the last part of the path."""
    metrics = metrics.of("extender")
    ledger, cluster = ledger_and_cluster(settings, metrics)
    verbs = (
        filter.endpoint(settings, ledger, metrics=metrics),
        prioritize.endpoint(settings, ledger, metrics=metrics),
        preempt.endpoint(settings, ledger, metrics=metrics),
        bind.on(ledger, cluster, settings),
    )
    endpoints = {verb.name: replace(verb, name=f"extender/{verb.name}") for verb in verbs}
    aliases = {alias: endpoints[name] for alias, name in _ALIASES.items()}
    return Router(name="extender", endpoints={**endpoints, **aliases}, health=ledger.check)
