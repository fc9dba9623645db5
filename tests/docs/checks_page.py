"""docs/reference/checks.md: each rule of `berth check`, from the rules themselves."""

from itertools import groupby

from berth.checks.finding import Rule
from berth.checks.registry import CHECKS, RULES
from tests.docs.text import sentences

_HEAD = """\
# Checks

<!-- Written by `make docs` from shared/berth/checks: change the rules there. -->

What [`berth check`](cli.md#berth-check) looks for.
Each finding has the id of a rule, which is a heading here.
The command ends with 1 if a finding is an error, and with 0 if there are none, or warnings alone.
`berth check --pre` is for before the installation, and leaves out what can only be seen after it.
It changes nothing.
What it may not look at is a finding too, and the rest is looked at all the same.
"""


def page() -> str:
    """Return the page for all rules, by their nouns."""
    ordered = sorted(RULES, key=_noun)
    return _HEAD + "".join(
        f"\n## {noun.capitalize()}\n{''.join(map(_rule, rules))}"
        for noun, rules in groupby(ordered, key=_noun)
    )


def _noun(rule: Rule) -> str:
    return rule.id.partition(".")[0]


def _rule(rule: Rule) -> str:
    path = rule.more.removeprefix("docs/")
    more = f"See [{path.partition('#')[0]}](../{path}).\n" if path else ""
    return (
        f"\n### {rule.id}\n\n*{rule.severity}{_phase(rule)}*\n\n{sentences(rule.meaning)}\n\n"
        f"{sentences(f'What to do: {rule.action}')}\n{more}"
    )


def _phase(rule: Rule) -> str:
    """When it is looked for, if not always."""
    phase = next((check.phase for check in CHECKS if rule in check.rules), None)
    if phase is None or (phase.before and phase.after):
        return ""
    return ", with --pre alone" if phase.before else ", not with --pre"
