"""kube-scheduler's extender API v1: its calls decoded to the few fields Berth uses, its answers encoded.
It does not judge their content: a pod with a nonsensical quantity is decoded, and refused later.

Source: k8s.io/kube-scheduler/extender/v1. Its Go types carry no JSON tags, so kube-scheduler sends Go's
field names; older ones and most examples send lower case, and Go decodes any case. So does this module;
it answers with Go's names.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import filterfalse
from typing import Any, TypeVar

import msgspec

from berth.errors import BadInputError
from berth.http.endpoint import Content, LongList
from berth.kube.types import Pod, PodToBind

T = TypeVar("T")


class _Named(msgspec.Struct, frozen=True):
    name: str


class _NodeShell(msgspec.Struct, frozen=True):
    metadata: _Named


class RawNodes(msgspec.Struct, frozen=True):
    """A v1 NodeList whose nodes stay bytes, to be echoed as they came."""

    items: list[msgspec.Raw] | None = None


class _Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: PodToBind
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


class Victims(msgspec.Struct, frozen=True):
    """The pods, by UID, that kube-scheduler would evict on a node."""

    uids: tuple[str, ...]
    violations: int = 0  # of PodDisruptionBudgets


class PreemptionCall(msgspec.Struct, frozen=True):
    """The pod that waits, and kube-scheduler's candidates: the victims on each node."""

    pod: Pod
    victims: Mapping[str, Victims]


class Refused(msgspec.Struct, frozen=True):
    """Why nodes can't take the pod, by name. Those in `resolvable` might, if pods there were gone."""

    reasons: Mapping[str, str] = {}
    resolvable: Collection[str] = ()


class _Identified(msgspec.Struct, frozen=True):
    uid: str = ""


class _PodShell(msgspec.Struct, frozen=True):
    metadata: _Identified = _Identified()


class _Victims(msgspec.Struct, frozen=True):
    pods: list[msgspec.Raw] | None = None
    numpdbviolations: int = 0


_NAMED_FIRST = re.compile(rb'\{"metadata":\{"name":"([a-z0-9.-]+)"')
"""How Go writes a node: the fields in the order of its types, of which a node in a list has no kind to tell.
Source: k8s.io/api/core/v1, Node; k8s.io/apimachinery/pkg/apis/meta/v1, ObjectMeta."""

_args = msgspec.json.Decoder(_Args)
_folded = msgspec.json.Decoder(dict[str, msgspec.Raw])
_shell = msgspec.json.Decoder(_NodeShell)
_pod = msgspec.json.Decoder(Pod)
_by_node = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_victims = msgspec.json.Decoder(_Victims)
_identified = msgspec.json.Decoder(_Identified)
_whole_pod = msgspec.json.Decoder(_PodShell)
_encoder = msgspec.json.Encoder()

_NODES = b'{"Nodes":{"metadata":{},"items":[', b"]},"
"""What is around the nodes of a filter result."""

_FILTER_RESULT: Mapping[str, object] = {
    "NodeNames": None,
    "FailedNodes": {},
    "FailedAndUnresolvableNodes": {},
    "Error": "",
}
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def candidates(body: Content) -> Candidates:
    """Decode a filter or prioritize call (ExtenderArgs). Raises BadInputError."""
    try:
        args = _args.decode(body)
        exact = args.nodes is not msgspec.UNSET and args.node_names is not msgspec.UNSET
    except _UNDECODABLE:
        exact = False
    if not exact:
        # Not kube-scheduler's own spelling, or wrong: decoding with lower-case keys tells which.
        args = _decode(_args, _fold(body, {"pod": "Pod", "nodes": "Nodes", "nodenames": "NodeNames"}))
    nodes = args.nodes or None
    raw = None if nodes is None else {_name(node): node for node in nodes.items or ()}
    names = args.node_names or None
    return Candidates(args.pod, names if names is not None else list(raw or ()), names is not None, raw)


def binding(body: Content) -> BindingCall:
    """Decode a bind call (ExtenderBindingArgs). Raises BadInputError; every field must be set."""
    call = _decode(msgspec.json.Decoder(BindingCall), _fold(body, {}))
    names = ("PodName", "PodNamespace", "PodUID", "Node")
    for name, value in zip(names, msgspec.structs.astuple(call), strict=True):
        if not value:
            raise BadInputError(f"the bind call has an empty {name}")
    return call


def preemption(body: Content) -> PreemptionCall:
    """Decode a preempt call (ExtenderPreemptionArgs), its victims in full or by UID. Raises BadInputError."""
    fields = _decode(_folded, _fold(body, {}))
    if "pod" not in fields:
        raise BadInputError("not a call that kube-scheduler makes: it names no Pod")
    victims = {}
    for key, by_uid in (("nodenametometavictims", True), ("nodenametovictims", False)):
        by_node = _decode(_by_node, fields[key]) if key in fields else None
        if by_node is not None:
            victims = {node: _victims_of(node, raw, by_uid) for node, raw in by_node.items()}
            break
    return PreemptionCall(_decode(_pod, fields["pod"]), victims)


def preemption_answer(victims: Mapping[str, Victims]) -> bytes:
    """Encode ExtenderPreemptionResult, by UID. A node without victims would fail the whole preemption."""
    meta = {
        node: {"Pods": [{"UID": uid} for uid in on_node.uids], "NumPDBViolations": on_node.violations}
        for node, on_node in victims.items()
        if on_node.uids
    }
    return _encoder.encode({"NodeNameToMetaVictims": meta})


def _victims_of(node: str, body: msgspec.Raw, by_uid: bool) -> Victims:
    victims = _decode(_victims, _fold(body, {}))
    pods = victims.pods or ()
    uids = (
        [_decode(_identified, _fold(pod, {})).uid for pod in pods]
        if by_uid
        else [_decode(_whole_pod, pod).metadata.uid for pod in pods]
    )
    if not all(uids):
        raise BadInputError(f"not a call that kube-scheduler makes: a victim on {node} has no UID")
    return Victims(tuple(uids), victims.numpdbviolations)


def filter_answer(call: Candidates, refused: Refused) -> bytes | LongList:
    """Encode ExtenderFilterResult: the nodes that passed, in the form they were offered in, and why others
    did not.

    All but the resolvable go to FailedAndUnresolvableNodes: nodes in FailedNodes make kube-scheduler try
    preemption, which can't help there and requeues the pod without end
    (docs/kubernetes.md#refusals-that-come-again-and-again).
    """
    reasons, resolvable, raw = refused.reasons, refused.resolvable, call.raw
    passed = list(filterfalse(reasons.__contains__, call.names)) if reasons else call.names
    result: dict[str, object] = {**_FILTER_RESULT, "FailedAndUnresolvableNodes": reasons}
    if call.by_name or raw is None:
        result["NodeNames"] = passed
    if resolvable:
        final = {name: why for name, why in reasons.items() if name not in resolvable}
        failed = {name: why for name, why in reasons.items() if name in resolvable}
        result |= {"FailedNodes": failed, "FailedAndUnresolvableNodes": final}
    if raw is None:
        return _encoder.encode({"Nodes": None, **result})
    before, after = _NODES
    nodes = [raw[name] for name in passed if name in raw]
    return LongList(before, nodes, after + _encoder.encode(result)[1:])


def filter_error(message: str) -> bytes:
    """Encode an ExtenderFilterResult that fails the pod's attempt; the message reaches the pod's event."""
    return _encoder.encode({"Nodes": None, **_FILTER_RESULT, "Error": message})


def priorities(scored: Iterable[bytes]) -> bytes:
    """Encode HostPriorityList: a bare list of what `priority` returns."""
    return b"[" + b",".join(scored) + b"]"


def priority(node: str, score: int) -> bytes:
    """Encode HostPriority: a node and its score, from 0 to 10."""
    return b'{"Host":%b,"Score":%d}' % (_encoder.encode(node), score)


def bind_answer(error: str = "") -> bytes:
    """Encode ExtenderBindingResult; an empty error is success."""
    return _encoder.encode({"Error": error})


def _name(node: msgspec.Raw) -> str:
    """Return a node's name: from its first bytes where they are as kube-scheduler writes them, since to read
    some 10 KB for it takes ten times as long."""
    first = _NAMED_FIRST.match(node)
    return _decode(_shell, node).metadata.name if first is None else first[1].decode()


def _fold(body: Content | msgspec.Raw, known: Mapping[str, str]) -> bytes:
    """Return the object with its top-level keys in lower case, or as `known` spells them."""
    fields = {key.lower(): value for key, value in _decode(_folded, body).items()}
    return _encoder.encode({known.get(key, key): value for key, value in fields.items()})


def _decode(decoder: msgspec.json.Decoder[T], body: Any) -> T:
    try:
        return decoder.decode(body)
    except _UNDECODABLE as error:
        raise BadInputError(f"not a call that kube-scheduler makes: {error}") from error
