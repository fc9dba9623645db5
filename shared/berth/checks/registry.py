"""All checks and rules, and a run of those that are of use now.
What could not be looked at, for want of a right or an answer, is a finding of its own."""

from collections.abc import Iterator

import msgspec

from berth.checks import admission, clock, nodes, pods, pools, rights, scheduler, store, versions
from berth.checks.finding import Check, Finding, Rule, listed
from berth.checks.inputs import Inputs
from berth.errors import BerthError
from berth.stores import redacted

UNSEEN = Rule(
    id="check.unseen",
    severity="warning",
    meaning="Something could not be looked at, as the message says. What is wrong there is not known.",
    action="Run the check as a user with the rights that are named (docs/access.md#rights has all).",
    more="docs/access.md#rights",
)

CHECKS: tuple[Check, ...] = (
    *versions.CHECKS,
    *clock.CHECKS,
    *rights.CHECKS,
    *scheduler.CHECKS,
    *store.CHECKS,
    *admission.CHECKS,
    *pools.CHECKS,
    *nodes.CHECKS,
    *pods.CHECKS,
)
RULES: tuple[Rule, ...] = (*(rule for check in CHECKS for rule in check.rules), UNSEEN)


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What was found, errors first. `passed` are ids of rules for which was looked, and nothing found;
    `unchecked` are sentences on what was left out, and why. `store_ms` is the median of some reads."""

    cluster: str
    store: str | None
    store_ms: float | None
    errors: int
    warnings: int
    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    unchecked: tuple[str, ...]


def run(inputs: Inputs) -> Report:
    """Look with every check that is of use in this phase."""
    pre, unseen = inputs.options.pre, dict[str, list[str]]()
    checks = [check for check in CHECKS if (check.phase.before if pre else check.phase.after)]
    findings = [finding for check in checks for finding in _looked(check, inputs, unseen)]
    others = {finding.id for finding in findings} | inputs.unlooked
    passed = [rule.id for check in checks for rule in check.rules if rule.id not in others]
    for why, subjects in unseen.items():
        findings.append(UNSEEN.finding(f"could not look: {listed(subjects)}: {why}", *subjects))
    findings.sort(key=lambda finding: finding.severity)  # error, warning
    errors = sum(finding.severity == "error" for finding in findings)
    return Report(
        cluster=inputs.cluster.host,
        store=None if inputs.store_seconds is None else redacted(inputs.store or ""),
        store_ms=None if inputs.store_seconds is None else round(1000 * inputs.store_seconds, 2),
        errors=errors,
        warnings=len(findings) - errors,
        findings=tuple(findings),
        passed=tuple(passed),
        unchecked=tuple(inputs.unchecked),
    )


def _looked(check: Check, inputs: Inputs, unseen: dict[str, list[str]]) -> Iterator[Finding]:
    """Yield what the check finds; what stops it is noted in `unseen` with the check's subject."""
    try:
        yield from check.look(inputs)
    except BerthError as error:
        inputs.leave(*check.rules)
        subjects = unseen.setdefault(str(error), [])
        if check.subject not in subjects:
            subjects.append(check.subject)
