"""infra's admission policies: whether each is there, is bound, and refuses what it should.
It compares what can be told at a glance (EXPECTED), not each rule's expression."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from berth.checks.finding import AFTER, Check, Finding, Rule, listed
from berth.checks.inputs import Inputs
from berth.kube.configuration import Policy, PolicyBinding

_API = "/apis/admissionregistration.k8s.io/v1"
_SHIPPED = "docs/install.md#what-is-in-it"
LABEL = "berth.dev/scheduled"


class Expected(NamedTuple):
    """A policy as infra has it. `rules` is how many validations or mutations it has; `open` what happens
    without it."""

    rules: int
    failure_policy: str = "Fail"
    mutates: bool = False
    open: str = ""


EXPECTED: Mapping[str, Expected] = {
    "pods.berth.dev": Expected(6, open="mistakes in pods show late"),
    "bindings.berth.dev": Expected(1, open="whoever may bind pods may say what they hold"),
    "annotations.berth.dev": Expected(
        2, "Ignore", open="whoever may change a pod may change the address that its CNI plugin reads there"
    ),
    "pod-status.berth.dev": Expected(
        4, open="the functions' accounts may change any pod's status and labels"
    ),
    "pod-events.berth.dev": Expected(3, open="accounts of functions may tell anything of any object"),
    "statefulsets.berth.dev": Expected(
        1, "Ignore", open="a StatefulSet is taken that makes the pods of a gang one by one, which never run"
    ),
    "pool-external.berth.dev": Expected(2, open="inventory's account may give any Pool more units"),
}
"""What every overlay has, by the policy's name."""

OVERHEAD = {
    "overhead.berth.dev": Expected(1, open="a pod's overhead alone may ask for units that nobody counts")
}
NODE_STATUS = {
    "node-status.berth.dev": Expected(3, open="accounts of functions may change any node's status")
}
SCHEDULED = {
    "scheduled.berth.dev": Expected(1, "Ignore", True, "no pod has the label by which events are sent")
}

MISSING = Rule(
    id="admission.missing",
    severity="error",
    meaning="An admission policy of Berth's, or its binding, is missing. What it refuses is taken.",
    action="Apply the overlay again.",
    more="docs/install.md#without-the-admission-policies",
)
CHANGED = Rule(
    id="admission.changed",
    severity="warning",
    meaning="An admission policy of Berth's is not as it is shipped. It may refuse less, or more.",
    action="Apply the overlay again, or change the policy in a kustomization of your own and know why.",
    more=_SHIPPED,
)
NAMES = Rule(
    id="admission.names",
    severity="error",
    meaning=(
        "The policies know other schedulers than the functions. They refuse pods that Berth would place, or "
        "leave out their label."
    ),
    action="Set BERTH_SCHEDULER_NAMES in infra/base/settings.yaml, and apply the overlay again.",
    more=_SHIPPED,
)


def _expected(inputs: Inputs) -> dict[str, Expected]:
    """Return the policies that this installation should have."""
    expected = dict(EXPECTED)
    configurations = [scheduler.configuration for scheduler in inputs.schedulers]
    extenders = [
        each for configuration in configurations if configuration for each in configuration.extenders or ()
    ]
    if any(extender.managed_resources for extender in extenders):
        expected |= OVERHEAD
    if any(pool.spec.preemption == "Native" for pool in inputs.pools.values()):
        expected |= NODE_STATUS
    if _selects_by_label(inputs):
        expected |= SCHEDULED
    return expected


def _selects_by_label(inputs: Inputs) -> bool:
    resources = [resource for source in inputs.sources for resource in source.spec.resources or ()]
    return any(LABEL in ((each.selector or {}).get("matchLabels") or {}) for each in resources)


class _Policies(NamedTuple):
    policies: dict[str, Policy]
    bindings: dict[str, PolicyBinding]


def _policies(inputs: Inputs) -> _Policies:
    """Return the policies by name, and their bindings by the policy's name."""
    policies: dict[str, Policy] = {}
    bindings: dict[str, PolicyBinding] = {}
    for kind in ("validating", "mutating"):
        listed_policies = inputs.cluster.all(Policy, f"{_API}/{kind}admissionpolicies")
        policies |= {policy.metadata.name: policy for policy in listed_policies}
        for binding in inputs.cluster.all(PolicyBinding, f"{_API}/{kind}admissionpolicybindings"):
            bindings.setdefault(binding.spec.policy_name, binding)
    return _Policies(policies, bindings)


def _admission(inputs: Inputs) -> Iterator[Finding]:
    if not inputs.installed:
        inputs.leave(MISSING, CHANGED, NAMES)
        return
    there = _policies(inputs)
    for name, expected in _expected(inputs).items():
        policy, binding = there.policies.get(name), there.bindings.get(name)
        if policy is None or binding is None:
            what = "policy" if policy is None else "binding"
            yield MISSING.finding(f"{what} {name} is not there: {expected.open}", name)
            continue
        if changes := [*_changes(policy, expected), *_binding_changes(binding, expected)]:
            yield CHANGED.finding(f"{name}: {', '.join(changes)}", name)
        yield from _names(policy, inputs.scheduler_names)


def _changes(policy: Policy, expected: Expected) -> Iterator[str]:
    spec = policy.spec
    rules = len((spec.mutations if expected.mutates else spec.validations) or ())
    if spec.failure_policy != expected.failure_policy:
        yield f"failurePolicy is {spec.failure_policy}"
    if rules != expected.rules:
        yield f"it has {rules} rules, and {expected.rules} are shipped"
    if spec.match_constraints.narrows:
        yield "its matchConstraints leave objects out"


def _binding_changes(binding: PolicyBinding, expected: Expected) -> Iterator[str]:
    actions = binding.spec.validation_actions or []
    if not expected.mutates and actions != ["Deny"]:
        yield f"its binding's validationActions are {listed(actions) or 'none'}"
    if binding.spec.match_resources is not None and (
        binding.spec.match_resources.narrows or binding.spec.match_resources.resource_rules
    ):
        yield "its binding's matchResources leave objects out"


def _names(policy: Policy, schedulers: tuple[str, ...]) -> Iterator[Finding]:
    for variable in policy.spec.variables or ():
        if variable.name == "schedulers":
            quoted = variable.expression.split("'")[1:2]
            names = quoted[0].replace(",", " ").split() if quoted else []
            if sorted(names) != sorted(schedulers):
                known = f"{policy.metadata.name} knows {listed(names) or 'none'}"
                yield NAMES.finding(f"{known}; Berth's are {listed(schedulers)}", policy.metadata.name)


CHECKS = (Check("the admission policies", _admission, (MISSING, CHANGED, NAMES), AFTER),)
