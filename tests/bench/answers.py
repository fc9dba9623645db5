"""What each extender should answer to each call, and whether it did.
An answer to another question is no figure: the bench ends with the first one that is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tests.bench.client import CallError
from tests.bench.contents import NO_POOL_CLAIM, Contents

_FLOORS_SCORE = 5
_ONE_IN = 50  # so many nodes is one compared whole: all of them would take longer than the call


@dataclass(frozen=True)
class Asked:
    """What was sent: the nodes by name, in full if they were sent so."""

    verb: str
    names: Sequence[str]
    full: Mapping[str, bytes] | None = None


class Expected(Protocol):
    """What one extender should say, of all nodes that it may be asked about: why some are refused, and how
    each scores."""

    @property
    def refused(self) -> Mapping[str, str]: ...

    @property
    def scores(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Fixed:
    """What does not change with each claim."""

    refused: Mapping[str, str]
    scores: Mapping[str, int]


def of_the_floor(names: Sequence[str]) -> Expected:
    """It lets every node pass and scores all alike, whatever the pod is and the ledger contains."""
    return Fixed({}, dict.fromkeys(names, _FLOORS_SCORE))


def without_its_claim(contents: Contents) -> Expected:
    """To a pod whose PoolClaim is not there. prioritize scores what it is asked about all the same."""
    text = f"there is no PoolClaim {NO_POOL_CLAIM} in the pod's namespace"
    return Fixed(dict.fromkeys(contents.held, text), contents.scores)


class _Nodes(msgspec.Struct):
    items: list[msgspec.Raw]


class _Metadata(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    metadata: _Metadata


class _Filtered(msgspec.Struct, rename="pascal"):
    nodes: _Nodes | None
    node_names: list[str] | None
    failed_nodes: dict[str, str] | None
    failed_and_unresolvable_nodes: dict[str, str] | None
    error: str


class _Score(msgspec.Struct, rename="pascal"):
    host: str
    score: int


_filtered = msgspec.json.Decoder(_Filtered)
_scored = msgspec.json.Decoder(list[_Score])
_node = msgspec.json.Decoder(_Node)


def check(asked: Asked, expected: Expected, body: bytes) -> int:
    """How many nodes the answer lets pass, or scores. Raises CallError where it is not what is expected."""
    try:
        if asked.verb == "filter":
            return _check_filtered(asked, expected.refused, _filtered.decode(body))
        return _check_scored(asked, expected.scores, _scored.decode(body))
    except msgspec.DecodeError as error:
        raise CallError(f"the answer to {asked.verb} is none of an extender: {error}") from error


def _check_filtered(asked: Asked, expected: Mapping[str, str], answer: _Filtered) -> int:
    if answer.error:
        raise CallError(f"filter answered with the error: {answer.error}")
    refused = answer.failed_and_unresolvable_nodes or {}
    passed = answer.node_names if asked.full is None else _echoed(asked.full, answer.nodes)
    if passed is None or (answer.nodes if asked.full is None else answer.node_names) is not None:
        raise CallError("filter answered with nodes in another form than it was offered them")
    _same(passed, [name for name in asked.names if name not in expected], "to pass", refused)
    if answer.failed_nodes:
        raise CallError(f"filter says that evicting pods would help on {_some(answer.failed_nodes)}")
    reasons = {(name, expected[name]) for name in asked.names if name in expected}
    _same(refused.items(), reasons, "to be refused")
    return _once(passed)


def _echoed(sent: Mapping[str, bytes], nodes: _Nodes | None) -> list[str] | None:
    """The names of the nodes that came back, none of them changed."""
    if nodes is None:
        return None
    names = [_node.decode(each).metadata.name for each in nodes.items]
    for name, node in list(zip(names, nodes.items, strict=True))[::_ONE_IN]:
        if name in sent and msgspec.json.decode(node) != msgspec.json.decode(sent[name]):
            raise CallError(f"{name} came back from filter as another node")
    return names


def _check_scored(asked: Asked, scores: Mapping[str, int], answer: Sequence[_Score]) -> int:
    told = {(each.host, each.score) for each in answer}
    _same(told, {(name, scores[name]) for name in asked.names}, "to have these scores")
    return _once([each.host for each in answer])


def _once(names: Sequence[str]) -> int:
    if len(set(names)) < len(names):
        raise CallError("the answer has a node twice")
    return len(names)


def _same(
    found: Iterable[object], expected: Iterable[object], what: str, reasons: Mapping[str, str] | None = None
) -> None:
    there, wanted = set(found), set(expected)
    if there == wanted:
        return
    why = f", with the reasons {sorted(set(reasons.values()))}" if reasons else ""
    raise CallError(
        f"a wrong answer: {len(wanted)} nodes were expected {what}; {len(wanted - there)} of them did not "
        f"({_some(wanted - there)}){why}, and {len(there - wanted)} others did ({_some(there - wanted)})"
    )


def _some(names: Iterable[object]) -> str:
    shown = sorted(map(str, names))
    return ", ".join(shown[:2]) + (" …" if len(shown) > 2 else "") or "none"
