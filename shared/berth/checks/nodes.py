"""Nodes that show Berth's resources themselves, and programs that add nodes without knowing those."""

from collections.abc import Iterator

from berth.api.names import NATIVE
from berth.checks.finding import Check, Finding, Rule, listed
from berth.checks.inputs import Inputs

_AUTOSCALERS = ("cluster-autoscaler", "karpenter")

RESOURCE = Rule(
    id="nodes.resource",
    severity="error",
    meaning=(
        "A node shows a resource that Berth counts. Two count the same: other schedulers place pods by it, "
        "and the kubelet refuses pods beyond it."
    ),
    action="Stop what shows it (a device plugin, a script), or give the Pool another spec.resource.",
    more="docs/kubernetes.md#resources-that-no-node-has",
)
AUTOSCALER = Rule(
    id="nodes.autoscaler",
    severity="warning",
    meaning=(
        "An autoscaler is in the cluster. It does not call extenders: for pods that wait for units alone it "
        "may add nodes in vain, or none."
    ),
    action="Exclude Berth's pods from it, or scale the nodes of Pools by hand.",
    more="docs/concepts/lost-nodes.md#scale-down",
)


def _resource(inputs: Inputs) -> Iterator[Finding]:
    showing: dict[str, list[str]] = {}
    for node in inputs.nodes:
        for resource in {*(node.status.capacity or ()), *(node.status.allocatable or ())}:
            if inputs.is_ours(resource) and not resource.startswith(f"{NATIVE}/"):
                showing.setdefault(resource, []).append(node.metadata.name)
    for resource, nodes in sorted(showing.items()):
        yield RESOURCE.finding(f"{listed(sorted(nodes))} shows {resource}", resource, *sorted(nodes))


def _autoscaler(inputs: Inputs) -> Iterator[Finding]:
    if names := inputs.deployments_of(_AUTOSCALERS):
        yield AUTOSCALER.finding(f"Deployment {listed(names)}", *names)


CHECKS = (
    Check("the nodes' resources", _resource, (RESOURCE,)),
    Check("autoscalers", _autoscaler, (AUTOSCALER,)),
)
