"""Versions: of Kubernetes, of its scheduler, of Knative's and Berth's kinds, and of the functions' image.
It asks no image and no function: what runs is what the objects name."""

from collections.abc import Iterator
from typing import Any

import msgspec

from berth import __version__
from berth.api.pool import PoolSpec
from berth.checks.finding import AFTER, BEFORE, Check, Finding, Rule, listed
from berth.checks.inputs import Inputs
from berth.kube.configuration import minor_of, tag_of

_OLDEST, _LABELS = (1, 32), (1, 36)
_SUPPORTED = "docs/install.md#kubernetes-versions"
_ADMISSION = "admissionregistration.k8s.io/v1"
_OURS = ("pools.berth.dev", "poolclaims.berth.dev")
_VERSION = "v1alpha1"

KUBERNETES = Rule(
    id="versions.kubernetes",
    severity="error",
    meaning=(
        "Kubernetes is older than 1.32. kube-scheduler does not notice when Berth wakes a pod, and the API "
        "server may have no admission policies."
    ),
    action="Upgrade Kubernetes to 1.32 or newer.",
    more=_SUPPORTED,
)
OVERLAY = Rule(
    id="versions.overlay",
    severity="warning",
    meaning=(
        "The API server has no MutatingAdmissionPolicy v1 (it is there from 1.36). Of the overlays for "
        "Knative only below-1.36 does without."
    ),
    action="Install infra/overlays/below-1.36 or the chart, or leave components/label out of yours.",
    more=_SUPPORTED,
)
SCHEDULER = Rule(
    id="versions.scheduler",
    severity="error",
    meaning=(
        "kube-scheduler is older than 1.32 and does not notice when Berth wakes a pod; or it is newer than "
        "the API server, which Kubernetes does not support."
    ),
    action="Name kube-scheduler's image with the version of your cluster.",
    more="docs/kubernetes.md#wake",
)
KNATIVE_MISSING = Rule(
    id="versions.knative",
    severity="error",
    meaning=(
        "A kind of Knative's is missing. The functions' Services or the events' sources can't be made, so "
        "only what does without Knative can be installed: before that it is a warning."
    ),
    action="Install infra/overlays/without-knative or the chart; or Knative Serving and Eventing first.",
    more="docs/install.md#without-knative",
)
KINDS = Rule(
    id="versions.kinds",
    severity="error",
    meaning=(
        "The cluster's Pool or PoolClaim is not of this version. Fields that this version knows would be "
        "dropped or refused by the API server."
    ),
    action="Apply the CRDs of this version (infra/base/crds).",
    more="docs/upgrade.md",
)
IMAGE = Rule(
    id="versions.image",
    severity="warning",
    meaning="The functions' image is of another version than this command.",
    action="Use the command of the functions' version, or upgrade the image.",
    more="docs/upgrade.md",
)


def _kubernetes(inputs: Inputs) -> Iterator[Finding]:
    minor = minor_of(inputs.release)
    if minor == (0, 0):
        inputs.skip("Kubernetes' version", f"it says {inputs.release!r}", KUBERNETES, SCHEDULER)
    elif minor < _OLDEST:
        yield KUBERNETES.finding(f"the API server is {inputs.release}", inputs.release)


def _overlay(inputs: Inputs) -> Iterator[Finding]:
    if inputs.missing_of_knative:
        inputs.leave(OVERLAY)  # what does without Knative has no label
    elif "mutatingadmissionpolicies" not in inputs.cluster.served(_ADMISSION):
        yield OVERLAY.finding(f"the API server {inputs.release} serves no MutatingAdmissionPolicy v1")


def _scheduler(inputs: Inputs) -> Iterator[Finding]:
    deployment = inputs.scheduler_deployment
    if deployment is None:
        inputs.leave(SCHEDULER)
        return
    for image in deployment.images:
        minor, server = minor_of(tag_of(image)), minor_of(inputs.release)
        if "kube-scheduler" in image and minor != (0, 0) and (minor < _OLDEST or minor > server > (0, 0)):
            said = f"kube-scheduler's image is {image}, and the API server is {inputs.release}"
            yield SCHEDULER.finding(said, image)


def _knative(inputs: Inputs) -> Iterator[Finding]:
    pre = inputs.options.pre
    if not pre and (not inputs.installed or inputs.without_knative):
        inputs.leave(KNATIVE_MISSING)
    elif missing := inputs.missing_of_knative:
        said = f"no {listed(missing)} is served in v1"
        yield KNATIVE_MISSING.finding(said, *missing, severity="warning" if pre else None)


def _kinds(inputs: Inputs) -> Iterator[Finding]:
    for name in _OURS:
        definition = inputs.definitions.get(name)
        served = None if definition is None else definition.served(_VERSION)
        if definition is None:
            if inputs.installed:
                yield KINDS.finding(f"there is no CustomResourceDefinition {name}", name)
        elif served is None:
            yield KINDS.finding(f"{name} is not served as {_VERSION}", name)
        elif not inputs.options.pre and (missing := _unknown_fields(name, served.schema)):
            yield KINDS.finding(f"{name} does not know {listed(missing)}", name)


def _unknown_fields(name: str, schema: dict[str, Any] | None) -> list[str]:
    """Return the fields of this version that the definition lacks."""
    properties = (schema or {}).get("openAPIV3Schema", {}).get("properties", {})
    spec = properties.get("spec", {}).get("properties", {})
    fields: tuple[str, ...] = ("pool", "count", "units")
    if name == _OURS[0]:
        fields = tuple(field.encode_name for field in msgspec.structs.fields(PoolSpec))
    return sorted(f"spec.{field}" for field in fields if field not in spec)


def _image(inputs: Inputs) -> Iterator[Finding]:
    if not inputs.functions:
        inputs.leave(IMAGE)
    for function in inputs.functions:
        for image in function.images:
            tag = tag_of(image).removeprefix("v")
            if tag and minor_of(tag) != (0, 0) and tag != __version__:
                said = f"{function.label} runs {image}, and this command is {__version__}"
                yield IMAGE.finding(said, function.label)


CHECKS = (
    Check("Kubernetes' version", _kubernetes, (KUBERNETES,)),
    Check("Kubernetes' version", _overlay, (OVERLAY,), BEFORE),
    Check("kube-scheduler's version", _scheduler, (SCHEDULER,), AFTER),
    Check("Knative's kinds", _knative, (KNATIVE_MISSING,)),
    Check("Berth's kinds", _kinds, (KINDS,)),
    Check("the functions' image", _image, (IMAGE,), AFTER),
)
