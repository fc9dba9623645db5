"""The annotations that a Pool has written into the pods that get its units: their keys, templates and texts.
Who reads them (a CNI plugin, the downward API) is nothing to Berth."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal

from berth.api.names import GROUP, SUBDOMAIN, WORD
from berth.api.units import Units

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

_KEY = re.compile(rf"((?=[^/]{{1,253}}/){SUBDOMAIN}/)?{WORD}")
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


def tells_others(
    template: str, said: str, pool: str, domain: str, units: Collection[str], listed: Callable[[], Units]
) -> bool:
    """Whether a text that may be of this template tells of other units of the pool than these.

    One of another template, as the Pool may have had it, does so where it names another unit that the Pool
    lists: `listed` returns those, which may be many lists.
    """
    if not any(placeholder in template for placeholder in _OF_UNITS):
        return False
    pattern = ""
    for text in _SPLIT.split(template):
        known = {"{domain}": domain, "{pool}": pool}.get(text, text)
        pattern += _SAID.get(text) or re.escape(known)
    match = re.fullmatch(pattern, said, re.DOTALL)
    if match is not None:
        return any({*_NAME.findall(part)} != {*units} for part in match.groups())
    others = {*_NAME.findall(said)} - {*units}
    return bool(others) and any(map(listed().__contains__, others))


def takes_one_unit(template: str) -> bool:
    """Whether the template has room for one unit and no more."""
    return ONE_UNIT in template


def is_same_for_all(template: str) -> bool:
    """Whether the template says the same for every pod, so that two Pools may both write it."""
    return _PLACEHOLDER.search(template) is None
