"""A rule (what may be wrong, what to do), a finding (where it is so), and a check that looks for findings.
A rule's id never changes: people search for it, and docs/reference/checks.md has a heading for each."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from berth.errors import few

if TYPE_CHECKING:
    from berth.checks.inputs import Inputs

Severity = Literal["error", "warning"]
PAGE = "docs/reference/checks.md"
_SHOWN = 5  # names in a finding's text; `names` has all of them


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """What is wrong, at what, and what to do about it. `docs` is a page of the project and a heading."""

    id: str
    severity: Severity
    names: tuple[str, ...]
    message: str
    action: str
    docs: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Something that should not be. `more` is the page of docs/ that gives the reason."""

    id: str
    severity: Severity
    meaning: str
    action: str
    more: str = ""

    @property
    def docs(self) -> str:
        return f"{PAGE}#{self.id.replace('.', '')}"

    def finding(self, message: str, *names: str, severity: Severity | None = None) -> Finding:
        """Return what is said where it is so; `severity` where it is another than usual."""
        return Finding(self.id, severity or self.severity, names, message, self.action, self.docs)


class Phase(NamedTuple):
    """When a check is of use: before anything is installed (--pre), and after."""

    before: bool
    after: bool


BEFORE, AFTER, ALWAYS = Phase(True, False), Phase(False, True), Phase(True, True)


class Check(NamedTuple):
    """One look for the findings of some rules; `subject` says at what."""

    subject: str
    look: "Callable[[Inputs], Iterable[Finding]]"
    rules: tuple[Rule, ...]
    phase: Phase = ALWAYS


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    return few(names, _SHOWN)
