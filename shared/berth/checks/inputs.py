"""What the checks look at, each read once and when it is first asked for.
A read that fails raises the store's or the cluster's own error each time; the caller says so."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from berth.api.names import is_ours
from berth.api.pool import Pool, by_resource, parse
from berth.checks.finding import Rule
from berth.controller import infra
from berth.controller.infra import CORE, NAMESPACE
from berth.controller.manifests import decode
from berth.controller.pool_source import documents
from berth.errors import BadInputError
from berth.kube.cluster import Cluster
from berth.kube.configuration import (
    Definition,
    Named,
    PodWithVolumes,
    SchedulerConfiguration,
    Source,
    Workload,
)
from berth.kube.types import Node, Pod
from berth.scheduling.demand import resources
from berth.settings import from_environment

FUNCTIONS = (
    *("filter", "prioritize", "preempt", "bind", "extender"),
    *("release", "inventory", "reconcile", "status"),
)
PART_OF = "app.kubernetes.io/part-of"
KNATIVE = {
    "services.serving.knative.dev": "v1",
    "apiserversources.sources.knative.dev": "v1",
    "pingsources.sources.knative.dev": "v1",
    "brokers.eventing.knative.dev": "v1",
    "triggers.eventing.knative.dev": "v1",
}
"""The kinds of Knative's that an overlay has, and their versions."""

_APPS = "/apis/apps/v1"
_SOURCES = f"/apis/sources.knative.dev/v1/namespaces/{NAMESPACE}/apiserversources"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SCHEDULER = "berth-scheduler"
_KIND = "KubeSchedulerConfiguration"
_LEVELS = 6  # down to a plugin's arguments; below may be anything, even itself by a YAML alias


class Scheduler(NamedTuple):
    """A scheduler's configuration, and where it was read. `configuration` None: it can't be read, as
    `trouble` says. `replicas` None: nothing says how many run."""

    source: str
    configuration: SchedulerConfiguration | None
    trouble: str = ""
    replicas: int | None = None


class Options(NamedTuple):
    """What the command was given. `environment` has the variables of docs/reference/settings.md."""

    environment: Mapping[str, str]
    scheduler_file: Path | None = None
    pre: bool = False


class Inputs:
    """One cluster, and what is configured for it. `clock` is in Unix seconds."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.cluster, self.options, self.clock, self.monotonic = cluster, options, clock, monotonic
        self.unchecked: dict[str, None] = {}  # sentences, in order
        self.unlooked: set[str] = set()  # ids of rules for which a check did not look
        self.store_seconds: float | None = None  # what a read of the store takes, once that is known

    def skip(self, what: str, why: str, *rules: Rule) -> None:
        """Note what could not be checked, though nothing is wrong, and for which rules."""
        self.unchecked[f"{what} could not be checked: {why}"] = None
        self.leave(*rules)

    def leave(self, *rules: Rule) -> None:
        """Note rules for which a check did not look, or not everywhere: they have not passed."""
        self.unlooked.update(rule.id for rule in rules)

    @cached_property
    def release(self) -> str:
        return self.cluster.version()

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """The cluster's CustomResourceDefinitions of Berth's and Knative's groups, by name."""
        ours = ("berth.dev", "knative.dev")
        listed = self.cluster.all(Definition, _DEFINITIONS, lambda kind: kind.spec.group.endswith(ours))
        return {definition.metadata.name: definition for definition in listed}

    @cached_property
    def accounts(self) -> tuple[str, ...]:
        """The functions whose accounts infra has made; none: infra is not installed."""
        listed = self.cluster.all(Named, f"{CORE}/serviceaccounts")
        names = {account.metadata.name for account in listed}
        return tuple(name for name in (*FUNCTIONS, "events") if f"berth-{name}" in names)

    @property
    def installed(self) -> bool:
        return bool(self.accounts)

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The ConfigMap that infra's functions read."""
        return infra.settings(self.cluster)

    @cached_property
    def scheduler_names(self) -> tuple[str, ...]:
        """The schedulerNames of our pods, as the environment says, else infra's settings."""
        key = "BERTH_SCHEDULER_NAMES"
        given = self.options.environment.get(key) or self.settings.get(key)
        return from_environment({key: given} if given else {}).scheduler_names

    @cached_property
    def store(self) -> str | None:
        """The URL of the ledger's store, as the environment says, else infra's settings; None: none does."""
        given = self.options.environment.get("BERTH_STORE") or self.settings.get("BERTH_STORE")
        if given or not self.functions:
            return given or None
        store = infra.store(self.cluster, self.settings)
        return None if store is None else store.url

    @cached_property
    def functions(self) -> list[Workload]:
        """What runs the functions: Knative Services or Deployments."""
        there = [*infra.services(self.cluster), *self._without_knative]
        return [one for one in there if one.metadata.name in FUNCTIONS]

    @property
    def without_knative(self) -> bool:
        """Whether functions are Deployments."""
        return bool(self._without_knative)

    @cached_property
    def _without_knative(self) -> list[Workload]:
        return infra.deployments(self.cluster)

    @cached_property
    def missing_of_knative(self) -> list[str]:
        """The kinds of Knative's that the cluster does not serve, though an overlay has them."""
        there = {name: self.definitions.get(name) for name in KNATIVE}
        return [name for name, one in there.items() if one is None or one.served(KNATIVE[name]) is None]

    @cached_property
    def sources(self) -> list[Source]:
        return self.cluster.all(Source, _SOURCES)

    @cached_property
    def deployments(self) -> list[Workload]:
        """The Deployments of all namespaces."""
        return self.cluster.all(Workload, f"{_APPS}/deployments")

    def deployments_of(self, programs: Iterable[str]) -> list[str]:
        """Return the Deployments that run one of these programs, by their names or their images."""
        return sorted(
            each.label
            for each in self.deployments
            if any(name in text for name in programs for text in (each.metadata.name, *each.images))
        )

    @cached_property
    def scheduler_deployment(self) -> Workload | None:
        """infra's kube-scheduler."""
        return self.cluster.one(Workload, f"{_APPS}/namespaces/{NAMESPACE}/deployments/{_SCHEDULER}")

    @cached_property
    def nodes(self) -> list[Node]:
        return self.cluster.nodes()

    @cached_property
    def pool_source(self) -> str:
        path = self.options.environment.get("BERTH_POOLS")
        return path or "the cluster"

    @cached_property
    def pool_documents(self) -> list[Any]:
        """The Pools of the active source as documents. Raises BadInputError for a file that is no YAML."""
        path = self.options.environment.get("BERTH_POOLS")
        if path:
            return [document for document in documents(Path(path)) if document is not None]
        fields = ("apiVersion", "kind", "metadata", "spec")
        return [{key: pool.get(key) for key in fields} for pool in self.cluster.pools() or ()]

    @cached_property
    def pools(self) -> dict[str, Pool]:
        """The Pools that can be read, by name: of those that are wrong another check tells."""
        pools: dict[str, Pool] = {}
        with suppress(BadInputError):
            for document in self.pool_documents:
                with suppress(BadInputError):
                    pools |= parse([document], self.pool_source)
        return pools

    @cached_property
    def resources(self) -> dict[str, Pool]:
        return by_resource(self.pools)

    def is_ours(self, resource: str) -> bool:
        """Whether Berth counts it: by its group, or because a Pool names it."""
        return is_ours(resource) or resource in self.resources

    @cached_property
    def pods(self) -> list[PodWithVolumes]:
        """The pods that have not finished and ask for a resource of ours, or are functions."""

        def concerns(pod: Pod) -> bool:
            ours = any(map(self.is_ours, resources(pod))) or is_function(pod)
            return ours and not pod.finished

        return self.cluster.all(PodWithVolumes, "/api/v1/pods", concerns)

    @cached_property
    def schedulers(self) -> tuple[Scheduler, ...]:
        """The schedulers' configurations: the file that was named, else what infra's scheduler mounts."""
        if self.options.scheduler_file is not None:
            path = self.options.scheduler_file
            return (_read(str(path), path.read_text(encoding="utf-8", errors="replace"), None),)
        deployment = self.scheduler_deployment
        if deployment is None:
            return ()
        replicas = 1 if deployment.spec.replicas is None else deployment.spec.replicas
        read = (_read(source, text, replicas) for source, text in self._mounted(deployment))
        return tuple(scheduler for scheduler in read if scheduler.configuration or scheduler.trouble)

    def _mounted(self, deployment: Workload) -> Iterator[tuple[str, str]]:
        """Yield the texts of the Secrets and ConfigMaps that the pods mount, with where they are from."""
        for volume in deployment.spec.template.spec.volumes or ():
            if volume.secret is not None:
                name = volume.secret.secret_name
                for key, content in infra.secret(self.cluster, name).items():
                    yield f"Secret {NAMESPACE}/{name}, {key}", content.decode(errors="replace")
            if volume.config_map is not None:
                name = volume.config_map.name
                for key, text in infra.config_map(self.cluster, name).items():
                    yield f"ConfigMap {NAMESPACE}/{name}, {key}", text


def is_function(pod: Pod) -> bool:
    labels = pod.metadata.labels or {}
    ours = (PART_OF, "berth") in labels.items() and infra.FUNCTION in labels.items()
    return ours and pod.metadata.namespace == NAMESPACE


def _read(source: str, text: str, replicas: int | None) -> Scheduler:
    """Return the configuration in the text; of a mounted text that is no such thing, neither configuration
    nor trouble."""
    mounted = replicas is not None
    if mounted and _KIND not in text:
        return Scheduler(source, None)
    try:
        return Scheduler(source, _configuration(text), "", replicas)
    except BadInputError as error:
        why, _, _ = error.problems[0].partition("\n")  # the line that is shown below may hold a login
        return Scheduler(source, None, why, replicas)


def _configuration(text: str) -> SchedulerConfiguration:
    """Return the configuration. Raises BadInputError for a text that is none, or a wrong one."""
    documents = decode(text, "it")
    if len(documents) != 1:
        raise BadInputError(f"it holds {len(documents)} documents, and should hold one")
    try:
        configuration = msgspec.convert(_set(documents[0].document), SchedulerConfiguration)
    except msgspec.ValidationError as error:
        raise BadInputError(str(error)) from error
    if configuration.kind != _KIND:
        kind = configuration.kind or "nothing"
        raise BadInputError(f"its kind is {kind[:64]}, and should be {_KIND}")
    return configuration


def _set(value: Any, levels: int = _LEVELS) -> Any:
    """Return the value without the fields that are null or an empty list: kube-scheduler takes its defaults
    for those."""
    if levels and isinstance(value, dict):
        return {key: _set(part, levels - 1) for key, part in value.items() if part not in (None, [])}
    if levels and isinstance(value, list):
        return [_set(part, levels - 1) for part in value]
    return value
