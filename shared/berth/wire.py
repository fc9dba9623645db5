"""kube-scheduler's extender API v1: its calls decoded to the few fields Berth uses, its answers encoded.
It does not judge what is in them: a pod with a nonsensical quantity decodes, and policy refuses it.

Source: k8s.io/kube-scheduler/extender/v1. Its Go types carry no JSON tags, so kube-scheduler sends Go's
field names; older ones and most examples send lower case, and Go decodes any case. So does this module;
it answers with Go's names.
"""

from collections.abc import Iterable, Mapping
from itertools import filterfalse
from typing import Any, TypeVar

import msgspec

from berth.errors import BadInputError
from berth.objects import Pod

T = TypeVar("T")

HIGHEST_SCORE = 10  # extender/v1 MaxExtenderPriority


class _Named(msgspec.Struct, frozen=True):
    name: str


class _NodeShell(msgspec.Struct, frozen=True):
    metadata: _Named


class RawNodes(msgspec.Struct, frozen=True):
    """A v1 NodeList whose nodes stay bytes, to be echoed as they came."""

    items: list[msgspec.Raw] | None = None


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: Pod
    nodes: RawNodes | msgspec.UnsetType | None = msgspec.UNSET
    node_names: list[str] | msgspec.UnsetType | None = msgspec.UNSET


class Candidates(msgspec.Struct, frozen=True):
    """The pod, and the nodes offered for it by name; `raw` holds them in full where they were sent so."""

    pod: Pod
    names: list[str]
    by_name: bool
    raw: dict[str, msgspec.Raw] | None


class BindingCall(
    msgspec.Struct, frozen=True, rename={"name": "podname", "namespace": "podnamespace", "uid": "poduid"}
):
    """kube-scheduler's bind call: put the pod (by name and UID) on the node."""

    name: str
    namespace: str
    uid: str
    node: str


_args = msgspec.json.Decoder(_Args)
_folded = msgspec.json.Decoder(dict[str, msgspec.Raw])
_shell = msgspec.json.Decoder(_NodeShell)
_encoder = msgspec.json.Encoder()

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def candidates(body: bytes) -> Candidates:
    """Decode a filter or prioritize call (ExtenderArgs). Raises BadInputError."""
    try:
        args = _args.decode(body)
        exact = args.nodes is not msgspec.UNSET and args.node_names is not msgspec.UNSET
    except _UNDECODABLE:
        exact = False
    if not exact:
        # Not kube-scheduler's own spelling, or plain wrong: fold the keys, and let that say which.
        args = _decode(_args, _fold(body, {"pod": "Pod", "nodes": "Nodes", "nodenames": "NodeNames"}))
    nodes = args.nodes or None
    raw = None if nodes is None else {_name_of(node): node for node in nodes.items or ()}
    names = args.node_names or None
    return Candidates(args.pod, names if names is not None else list(raw or ()), names is not None, raw)


def binding(body: bytes) -> BindingCall:
    """Decode a bind call (ExtenderBindingArgs). Raises BadInputError; every field must be set."""
    call = _decode(msgspec.json.Decoder(BindingCall), _fold(body, {}))
    for name, value in (
        ("PodName", call.name),
        ("PodNamespace", call.namespace),
        ("PodUID", call.uid),
        ("Node", call.node),
    ):
        if not value:
            raise BadInputError(f"the bind call has an empty {name}")
    return call


def filter_answer(call: Candidates, refused: Mapping[str, str]) -> bytes:
    """ExtenderFilterResult: the nodes that passed, in the form they were offered in, and why others did not.

    All go to FailedAndUnresolvableNodes: nodes in FailedNodes make kube-scheduler try preemption, which
    can't help here and requeues the pod without end (facts, 5).
    """
    passed = list(filterfalse(refused.__contains__, call.names)) if refused else call.names
    nodes = None
    if call.raw is not None:
        raw = call.raw
        nodes = {"metadata": {}, "items": [raw[name] for name in passed if name in raw]}
    names = passed if call.by_name or call.raw is None else None
    return _filter_result(nodes, names, refused, "")


def filter_error(message: str) -> bytes:
    """ExtenderFilterResult that fails the pod's attempt; the message reaches the pod's event."""
    return _filter_result(None, None, {}, message)


def _filter_result(nodes: object, names: list[str] | None, refused: Mapping[str, str], error: str) -> bytes:
    return _encoder.encode(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": refused,
            "Error": error,
        }
    )


def priorities(scored: Iterable[bytes]) -> bytes:
    """HostPriorityList: a bare list of what `priority` makes."""
    return b"[" + b",".join(scored) + b"]"


def priority(node: str, score: int) -> bytes:
    """HostPriority: a node and its score, from 0 to 10."""
    return b'{"Host":%b,"Score":%d}' % (_encoder.encode(node), score)


def bind_answer(error: str = "") -> bytes:
    """ExtenderBindingResult; an empty error is success."""
    return _encoder.encode({"Error": error})


def error_answer(message: str) -> bytes:
    """The one-line JSON that every answer other than 200 carries."""
    return _encoder.encode({"error": message})


def encode(value: object) -> bytes:
    """Any plain value as compact JSON."""
    return _encoder.encode(value)


def _name_of(node: msgspec.Raw) -> str:
    return _decode(_shell, node).metadata.name


def _fold(body: bytes, known: Mapping[str, str]) -> bytes:
    """The same object with its top-level keys in lower case, or as `known` spells them."""
    fields = {key.lower(): value for key, value in _decode(_folded, body).items()}
    return _encoder.encode({known.get(key, key): value for key, value in fields.items()})


def _decode(decoder: msgspec.json.Decoder[T], body: Any) -> T:
    try:
        return decoder.decode(body)
    except _UNDECODABLE as error:
        raise BadInputError(f"not a call that kube-scheduler makes: {error}") from error
