"""What a maintainer would ask for about a cluster with Berth, cut down to what may leave the house.
It only reads, and no Secret. Of users' pods it takes neither environment nor commands, labels or images."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from berth.api.names import GROUP
from berth.errors import BerthError
from berth.kube.cluster import POOL_CLAIMS, POOLS, Cluster
from berth.ledger.view import View
from berth.redaction import GONE, Redactor, is_secret, shown

Json = dict[str, Any]

LOG_BYTES, LOG_LINES = 4 * 1024 * 1024, 10_000
"""The most of one container's log: so many lines from its end, unless they are that long."""

MOST_EVENTS = 2000

_IDENTITY = (
    "name",
    "namespace",
    "uid",
    "generation",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
)
_WORKLOADS = {
    "deployments": "/apis/apps/v1",
    "services": "/apis/serving.knative.dev/v1",
    "triggers": "/apis/eventing.knative.dev/v1",
    "brokers": "/apis/eventing.knative.dev/v1",
    "apiserversources": "/apis/sources.knative.dev/v1",
    "pingsources": "/apis/sources.knative.dev/v1",
}
_NOT_SERVED = "the cluster serves no such resource"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Which(NamedTuple):
    """What the dump is about: the schedulers whose pods are ours, the functions' namespace, and how many
    seconds of their logs are wanted."""

    schedulers: tuple[str, ...]
    namespace: str
    since: int


class ClusterDump:
    """What is read of the cluster, each thing once. What can't be read raises BerthError; of a part of it
    that can't, `missed` is told why."""

    def __init__(
        self,
        cluster: Cluster,
        view: View,
        which: Which,
        redactor: Redactor,
        missed: Callable[[str, str], None],
    ) -> None:
        self._cluster, self._view, self._which = cluster, view, which
        self._redactor, self._missed = redactor, missed

    def version(self) -> Json:
        """Return the API server's version."""
        return self._cluster.one(Json, "/version") or {}

    def pools(self) -> list[Json]:
        """Return the Pool objects, whole but for their annotations and labels."""
        return [_whole(pool) for pool in self._listed(POOLS)]

    def poolclaims(self) -> list[Json]:
        """Return all namespaces' PoolClaims, as the Pools."""
        there = self._cluster.poolclaims()
        if there is None:
            self._missed(POOL_CLAIMS, _NOT_SERVED)
        return [_whole(claim) for claim in there or ()]

    def nodes(self) -> list[Json]:
        """Return the nodes: names, labels, taints, capacities, conditions."""
        return [node_of(node) for node in self._nodes]

    def pods(self) -> list[Json]:
        """Return our pods: who they are, what they ask for, where they are and why not."""
        return [pod_of(pod, self._redactor) for pod in self._pods]

    def workloads(self) -> dict[str, list[Json]]:
        """Return what runs the functions and brings them events, by kind."""
        return {
            kind: [workload_of(document, self._redactor) for document in documents]
            for kind, documents in self._workloads.items()
        }

    def function_pods(self) -> list[Json]:
        """Return the pods in the functions' namespace, with their containers' states."""
        return [function_pod_of(pod, self._redactor) for pod in self._function_pods]

    def events(self) -> list[Json]:
        """Return the newest events about our pods, and those in the functions' namespace."""
        uids = {pod["metadata"]["uid"] for pod in self._pods}

        def wanted(event: Json) -> bool:
            about = event.get("involvedObject") or {}
            return about.get("uid") in uids or event["metadata"].get("namespace") == self._which.namespace

        there = [event_of(event, self._redactor) for event in self._listed("/api/v1/events", wanted)]
        return sorted(there, key=lambda event: str(event["last"]))[-MOST_EVENTS:]

    def definitions(self) -> list[Json]:
        """Return which versions the CustomResourceDefinitions have, and their conditions."""
        names = (f"pools.{GROUP}", f"poolclaims.{GROUP}")
        there = (self._cluster.one(Json, f"{_DEFINITIONS}/{name}") for name in names)
        return [definition_of(document) for document in there if document is not None]

    def config_maps(self) -> Iterator[tuple[str, str]]:
        """Yield the ConfigMaps that the workloads mount or take settings from, by the name of a file each. A
        scheduler's configuration that is in a Secret is not among them."""
        namespace = self._which.namespace
        names = {
            name for documents in self._workloads.values() for one in documents for name in _mounted(one)
        }
        for name in sorted(names):
            try:
                there = self._cluster.one(Json, f"/api/v1/namespaces/{namespace}/configmaps/{name}")
            except BerthError as error:
                self._missed(f"configmaps/{name}", str(error))
                continue
            if there is None:
                self._missed(f"configmaps/{name}", "it is named, and not there")
                continue
            data: dict[str, str] = there.get("data") or {}
            self._redactor.learn_settings(data)
            for key, text in data.items():
                value = shown(key, text) if _VARIABLE.fullmatch(key) else text
                yield f"{name}/{key}", self._redactor.free_text(value)

    def logs(self) -> Iterator[tuple[str, str]]:
        """Yield what the containers in the functions' namespace wrote lately, by the name of a file each.
        Where one was started again, there is also what the one before wrote."""
        namespace = self._which.namespace
        most = {"limitBytes": str(LOG_BYTES), "tailLines": str(LOG_LINES)}
        bounds = {"sinceSeconds": str(self._which.since), **most, "timestamps": "true"}
        for pod in self._function_pods:
            name, status = pod["metadata"]["name"], pod.get("status") or {}
            again = {one["name"] for one in _statuses(status) if one.get("restartCount")}
            for container in _containers(pod):
                for query in ({}, {"previous": "true"}) if container["name"] in again else ({},):
                    file = f"{name}/{container['name']}{'.previous' if query else ''}.log"
                    wanted = {**bounds, "container": container["name"], **query}
                    try:
                        text = self._cluster.log(namespace, name, wanted)
                    except BerthError as error:
                        self._missed(f"logs/{file}", str(error))
                        continue
                    yield file, self._redactor.free_text(text)

    @cached_property
    def _nodes(self) -> list[Json]:
        return self._listed("/api/v1/nodes")

    @cached_property
    def _pods(self) -> list[Json]:
        """Our pods: those of our schedulers, those with a claim, and those that ask for a pool's resource."""
        held = {claim.uid for claim in self._view.claims()}
        asked = self._view.resources.keys()

        def ours(pod: Json) -> bool:
            spec = pod.get("spec") or {}
            return (
                pod["metadata"]["uid"] in held
                or spec.get("schedulerName") in self._which.schedulers
                or any(asked & _limits(one).keys() for one in _containers(pod))
            )

        return self._listed("/api/v1/pods", ours)

    @cached_property
    def _function_pods(self) -> list[Json]:
        return self._listed(f"/api/v1/namespaces/{self._which.namespace}/pods")

    @cached_property
    def _workloads(self) -> dict[str, list[Json]]:
        there: dict[str, list[Json]] = {}
        for kind, group in _WORKLOADS.items():
            try:
                there[kind] = self._listed(f"{group}/namespaces/{self._which.namespace}/{kind}")
            except BerthError as error:
                self._missed(kind, str(error))
                there[kind] = []
        for document in (document for documents in there.values() for document in documents):
            for volume in _template(document).get("volumes") or ():
                if name := (volume.get("secret") or {}).get("secretName"):
                    self._missed(f"secrets/{name}", "no Secret is read for a dump")
            for container in _template(document).get("containers") or ():
                self._redactor.learn_settings(
                    {one["name"]: one.get("value") or "" for one in container.get("env") or ()}
                )
        return there

    def _listed(self, path: str, wanted: Callable[[Json], bool] | None = None) -> list[Json]:
        there = self._cluster.collection(Json, path, wanted)
        if there is None:
            self._missed(path, _NOT_SERVED)
        return there or []


def node_of(node: Mapping[str, Any]) -> Json:
    """Return what a dump has of a node."""
    status, spec = node.get("status") or {}, node.get("spec") or {}
    labels = (node["metadata"].get("labels")) or {}
    return {
        "metadata": {**_identity(node), "labels": labels},
        "spec": _only(spec, "unschedulable", "taints"),
        "status": _only(status, "capacity", "allocatable", "conditions"),
    }


def pod_of(pod: Mapping[str, Any], redactor: Redactor) -> Json:
    """Return what a dump has of a user's pod: no environment, command or image, and our annotations alone."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations = meta.get("annotations") or {}
    owners = [_only(owner, "kind", "name", "controller") for owner in meta.get("ownerReferences") or ()]
    said = _only(status, "phase", "reason", "nominatedNodeName", "startTime")
    return {
        "metadata": {
            **_identity(pod),
            "annotations": {key: text for key, text in annotations.items() if key.startswith(f"{GROUP}/")},
            "ownerReferences": owners,
        },
        "spec": {
            **_only(spec, "schedulerName", "nodeName", "priority", "priorityClassName", "preemptionPolicy"),
            **_only(spec, "schedulingGates", "overhead", "terminationGracePeriodSeconds"),
            **{
                field: [_only(one, "name", "resources", "restartPolicy") for one in spec[field]]
                for field in ("containers", "initContainers")
                if spec.get(field)
            },
        },
        "status": {**said, "conditions": _conditions(status, redactor)},
    }


def function_pod_of(pod: Mapping[str, Any], redactor: Redactor) -> Json:
    """Return what a dump has of a pod in the functions' namespace: also its images and containers' states."""
    common, status = pod_of(pod, redactor), pod.get("status") or {}
    images = {one["name"]: one.get("image") for one in _containers(pod)}
    states = [_only(one, "name", "ready", "restartCount", "state", "lastState") for one in _statuses(status)]
    return {**common, "images": images, "containerStatuses": _free(states, redactor)}


def workload_of(document: Mapping[str, Any], redactor: Redactor) -> Json:
    """Return what a dump has of a Deployment, a Knative Service, a Trigger or a source. Of a container's
    variables the names are told, and the values of ours, without secrets."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    template = _template(document)
    containers = [
        {
            **_only(one, "name", "image", "resources", "ports", "readinessProbe", "livenessProbe", "envFrom"),
            "env": [_variable(variable) for variable in one.get("env") or ()],
        }
        for one in (*(template.get("initContainers") or ()), *(template.get("containers") or ()))
    ]
    plain = (
        "replicas",
        "broker",
        "filter",
        "subscriber",
        "delivery",
        "sink",
        "resources",
        "mode",
        "schedule",
    )
    return {
        "metadata": _identity(document),
        "spec": {
            **_only(spec, *plain, "namespaceSelector"),
            **_only(template, "serviceAccountName", "containerConcurrency", "timeoutSeconds"),
            **({"containers": containers} if containers else {}),
        },
        "status": {
            **_only(status, "observedGeneration", "replicas", "readyReplicas", "updatedReplicas", "url"),
            **_only(
                status, "latestReadyRevisionName", "latestCreatedRevisionName", "subscriberUri", "sinkUri"
            ),
            "conditions": _conditions(status, redactor),
        },
    }


def event_of(event: Mapping[str, Any], redactor: Redactor) -> Json:
    """Return what a dump has of an event."""
    about = _only(event.get("involvedObject") or {}, "kind", "namespace", "name", "uid")
    series = event.get("series") or {}
    return {
        "about": about,
        **_only(event, "type", "reason", "reportingComponent"),
        "message": redactor.free_text(str(event.get("message") or "")),
        "count": series.get("count") or event.get("count") or 1,
        "first": event.get("firstTimestamp") or event.get("eventTime") or "",
        "last": series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "",
    }


def definition_of(document: Mapping[str, Any]) -> Json:
    """Return what a dump has of a CustomResourceDefinition."""
    spec, status = document["spec"], document.get("status") or {}
    versions = [_only(version, "name", "served", "storage") for version in spec["versions"]]
    said = _only(status, "conditions", "storedVersions")
    return {"metadata": _identity(document), "versions": versions, "status": said}


def view_of(view: View) -> Json:
    """Return all that the ledger holds: its epoch, Pools, the nodes' domains, domains and claims."""
    return {
        "epoch": view.epoch,
        "beingCopied": view.being_copied,
        "pools": view.pools,
        "nodes": view.nodes,
        "domains": {pool: dict(domains.items()) for pool, domains in view.domains.items()},
        "claims": view.claims(),
    }


def _whole(document: Mapping[str, Any]) -> Json:
    return {"metadata": _identity(document), **_only(document, "spec", "status")}


def _identity(document: Mapping[str, Any]) -> Json:
    return _only(document["metadata"], *_IDENTITY)


def _only(document: Mapping[str, Any], *fields: str) -> Json:
    return {field: document[field] for field in fields if document.get(field) is not None}


def _conditions(status: Mapping[str, Any], redactor: Redactor) -> list[Json]:
    conditions: list[Json] = _free(status.get("conditions") or [], redactor)
    return conditions


def _free(value: Any, redactor: Redactor) -> Any:
    """Return a value with all text in it as what somebody else wrote."""
    if isinstance(value, str):
        return redactor.free_text(value)
    if isinstance(value, dict):
        return {key: _free(part, redactor) for key, part in value.items()}
    return [_free(part, redactor) for part in value] if isinstance(value, list) else value


def _containers(pod: Mapping[str, Any]) -> list[Json]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get("limits") or {}


def _statuses(status: Mapping[str, Any]) -> list[Json]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _template(document: Mapping[str, Any]) -> Json:
    """Return the spec of the pods that a workload makes."""
    template: Json = ((document.get("spec") or {}).get("template") or {}).get("spec") or {}
    return template


def _variable(variable: Mapping[str, Any]) -> Json:
    name, value = variable["name"], variable.get("value")
    if value is None:
        return _only(variable, "name", "valueFrom")
    ours = name.startswith(("BERTH_", "FUNCTION_")) and not is_secret(name)
    return {"name": name, "value": shown(name, value) if ours else GONE}


def _mounted(workload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the ConfigMaps that a workload mounts or takes variables from."""
    template = _template(workload)
    parts: Iterable[Any] = (
        *(volume.get("configMap") for volume in template.get("volumes") or ()),
        *(
            one.get("configMapRef")
            for container in (*(template.get("initContainers") or ()), *(template.get("containers") or ()))
            for one in container.get("envFrom") or ()
        ),
    )
    for part in parts:
        if part and part.get("name"):
            yield part["name"]
