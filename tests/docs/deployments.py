"""Functions as Deployments, for clusters without Knative, made of the Services that Knative takes.
What Knative adds to a Service is said here: how many there are, how a pod ends, how it is reached."""

from typing import Any

import yaml

from tests.support.references import ROOT

Object = dict[str, Any]
PAGES = {
    "infra/components/deployments/functions.yaml": (
        "base/services/release.yaml",
        "base/services/inventory.yaml",
        "base/services/reconcile.yaml",
        "components/status/status.yaml",
    ),
    "infra/components/deployments-verbs/functions.yaml": tuple(
        f"components/verbs/{name}.yaml" for name in ("filter", "prioritize", "preempt", "bind")
    ),
    "infra/components/deployments-extender/functions.yaml": ("components/extender/extender.yaml",),
}
_HEAD = "# Written by `make docs` from the Services for Knative, for clusters without it.\n"
_SCALE = "autoscaling.knative.dev/"
_MOST = 4  # where Knative has no bound
_KNATIVES = ("containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds")
# A pod that ends is called for as long as its address is still known, some seconds on a large cluster.
_KNOWN_SECONDS = 5
# A process computes on one core: past this another is of use.
_BUSY = "600m"


def page(name: str) -> str:
    """Return the manifest of this path: of each a Deployment, a Service and, for several, an autoscaler."""
    documents = []
    for source in PAGES[name]:
        documents += objects(yaml.safe_load((ROOT / "infra" / source).read_text()))
    body = "---\n".join(yaml.safe_dump(each, sort_keys=False, width=110) for each in documents)
    return _HEAD + body


def objects(service: Object) -> list[Object]:
    """Return what stands for one Service of Knative."""
    name, template = service["metadata"]["name"], service["spec"]["template"]
    scale = {
        key.removeprefix(_SCALE): value
        for key, value in template["metadata"]["annotations"].items()
        if key.startswith(_SCALE)
    }
    least, most = max(1, int(scale["min-scale"])), int(scale.get("max-scale", _MOST))
    made = [_deployment(name, template, least if least == most else None), _service(name)]
    return made if least == most else [*made, _autoscaler(name, least, most)]


def _meta(name: str) -> Object:
    labels = {"app.kubernetes.io/part-of": "berth", "app.kubernetes.io/component": "function"}
    return {"name": name, "namespace": "berth", "labels": labels}


def _deployment(name: str, template: Object, replicas: int | None) -> Object:
    spec = {key: value for key, value in template["spec"].items() if key not in _KNATIVES}
    (container,) = spec["containers"]
    container["ports"] = [{"name": "user-port", "containerPort": 8080}]  # Knative's name for it
    container["readinessProbe"]["httpGet"]["port"] = "user-port"
    container["lifecycle"] = {"preStop": {"sleep": {"seconds": _KNOWN_SECONDS}}}
    spec["terminationGracePeriodSeconds"] = template["spec"]["timeoutSeconds"] + _KNOWN_SECONDS
    labels = {"app.kubernetes.io/name": name, **template["metadata"]["labels"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(name),
        "spec": {
            **({"replicas": replicas} if replicas else {}),  # else the autoscaler's
            # The new one is there before the old one goes: a scheduler without bind places no pod.
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _service(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(name),
        "spec": {
            "selector": {"app.kubernetes.io/name": name, "app.kubernetes.io/component": "function"},
            "ports": [{"name": "http", "port": 80, "targetPort": "user-port"}],
        },
    }


def _autoscaler(name: str, least: int, most: int) -> Object:
    busy = {"name": "cpu", "target": {"type": "AverageValue", "averageValue": _BUSY}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _meta(name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": busy}],
        },
    }
