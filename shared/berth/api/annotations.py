"""The annotations that a Pool has written into the pods that get its units: their keys, templates and texts.
Who reads them (a CNI plugin, the downward API) is nothing to Berth."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from berth.api.names import GROUP, SUBDOMAIN, WORD

ONE_UNIT = "{unit}"
_OF_UNITS = (ONE_UNIT, "{units}", "{units:json}")
PLACEHOLDERS = (*_OF_UNITS, "{domain}", "{pool}")
"""What a template may have in braces; other braces, such as those of JSON, stand for themselves."""

MOST, LONGEST = 16, 1024
"""Annotations of a Pool, and characters of a template."""

_PLACEHOLDER = re.compile(r"\{[A-Za-z]+(?::[A-Za-z]+)?\}")
_NAME = re.compile(r"[A-Za-z0-9._:-]+")
_KEY = re.compile(rf"({SUBDOMAIN}/)?{WORD}")
_RESERVED = (GROUP, "kubernetes.io", "k8s.io")  # see docs/decisions/0053


def problems(
    annotations: Mapping[str, str], scope: Literal["Node", "Topology", "Cluster"], *, named: bool
) -> Iterator[str]:
    """Yield what is wrong with a Pool's annotations; infra's CRD has the same rules and words."""
    if len(annotations) > MOST:
        yield f"spec.annotations has {len(annotations)} keys, and {MOST} is the most"
    for key, template in annotations.items():
        where = f"spec.annotations: {key[:64]!r}"
        if not _KEY.fullmatch(key):
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


def names_in(text: str) -> frozenset[str]:
    """Return what stands in an annotation's text and may be a unit's name."""
    return frozenset(_NAME.findall(text))


def tells_units(template: str) -> bool:
    """Whether the template tells a pod the names of its units."""
    return any(placeholder in template for placeholder in _OF_UNITS)


def takes_one_unit(template: str) -> bool:
    """Whether the template has room for one unit and no more."""
    return ONE_UNIT in template


def is_same_for_all(template: str) -> bool:
    """Whether the template says the same for every pod, so that two Pools may both write it."""
    return _PLACEHOLDER.search(template) is None
