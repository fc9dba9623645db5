"""The annotations that a Pool has written into the pods that get its units: their keys, templates and texts.
Who reads them (a CNI plugin, the downward API) is nothing to Berth."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from berth.api.names import GROUP, is_key

ONE_UNIT = "{unit}"
_OF_UNITS = (ONE_UNIT, "{units}", "{units:json}")
PLACEHOLDERS = (*_OF_UNITS, "{domain}", "{pool}")
"""What a template may have in braces; other braces, such as those of JSON, stand for themselves."""

MOST, LONGEST = 16, 1024
"""Annotations of a Pool, and characters of a template."""

_PLACEHOLDER = re.compile(r"\{[A-Za-z]+(?::[A-Za-z]+)?\}")
_SPLIT = re.compile(rf"({_PLACEHOLDER.pattern})")
_NAME = re.compile(r"[A-Za-z0-9._:-]+")
_SAID = {
    ONE_UNIT: r"([A-Za-z0-9._:-]*)",
    "{units}": r"([A-Za-z0-9._:,-]*)",
    "{units:json}": r"(\[[^\]]*\])",
}
"""What may stand in a text for the placeholders of units."""

_RESERVED = (GROUP, "kubernetes.io", "k8s.io")  # see docs/decisions/0053


def problems(
    annotations: Mapping[str, str], scope: Literal["Node", "Topology", "Cluster"], *, named: bool
) -> Iterator[str]:
    """Yield what is wrong with a Pool's annotations; infra's CRD has the same rules and words."""
    if len(annotations) > MOST:
        yield f"spec.annotations has {len(annotations)} keys, and {MOST} is the most"
    for key, template in annotations.items():
        where = f"spec.annotations: {key[:64]!r}"
        if not is_key(key):
            yield f"{where} should be an annotation's key, such as example.com/ip"
        elif _is_reserved(key):
            yield f"{where} is of {_RESERVED[0]} or of Kubernetes, which alone write there"
        if not 0 < len(template) <= LONGEST:
            yield f"{where}: a text has 1 to {LONGEST} characters"
        placeholders = _PLACEHOLDER.findall(template)
        for text in sorted({*placeholders} - {*PLACEHOLDERS}):
            yield f"{where}: {text[:64]} means nothing: write {', '.join(PLACEHOLDERS)}"
        if not named and {*placeholders} & {*_OF_UNITS}:
            yield f"{where}: {', '.join(_OF_UNITS)} go with units only"
        if scope == "Cluster" and "{domain}" in placeholders:
            yield f"{where}: {{domain}} means nothing in scope Cluster, which has one domain"


def _is_reserved(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return any(domain == own or domain.endswith(f".{own}") for own in _RESERVED)


def text_of(template: str, pool: str, domain: str, units: Sequence[str]) -> str:
    """Return what a template says for a pod that has these units of the pool in the domain."""
    texts = {
        ONE_UNIT: units[0] if units else "",
        "{units}": ",".join(units),
        "{units:json}": json.dumps(list(units)),
        "{domain}": domain,
        "{pool}": pool,
    }
    return _PLACEHOLDER.sub(lambda placeholder: texts.get(placeholder[0], placeholder[0]), template)


def tells_units(template: str) -> bool:
    """Whether the template tells a pod the names of its units."""
    return any(placeholder in template for placeholder in _OF_UNITS)


def units_told(template: str, pool: str, domain: str, said: str) -> frozenset[str] | None:
    """Return the units of which a text of this template tells; None: it is of another template."""
    known = {"{domain}": domain, "{pool}": pool}
    parts = (_SAID.get(text) or re.escape(known.get(text, text)) for text in _SPLIT.split(template))
    match = re.fullmatch("".join(parts), said, re.DOTALL)
    return None if match is None else frozenset(name for part in match.groups() for name in names_in(part))


def names_in(said: str) -> frozenset[str]:
    """Return what stands in a text and may be a unit's name."""
    return frozenset(_NAME.findall(said))


def takes_one_unit(template: str) -> bool:
    """Whether the template has room for one unit and no more."""
    return ONE_UNIT in template


def is_same_for_all(template: str) -> bool:
    """Whether the template says the same for every pod, so that two Pools may both write it."""
    return _PLACEHOLDER.search(template) is None
