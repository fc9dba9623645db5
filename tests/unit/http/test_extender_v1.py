"""kube-scheduler's calls as it sends them, in any spelling, and answers in exactly Go's shape."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.errors import BadInputError
from berth.http import extender_v1
from berth.http.endpoint import LongList, joined
from berth.http.extender_v1 import Candidates, Refused
from tests.support.builders.objects import EVENTS, IP
from tests.support.selection import examples

EXTENDER = EVENTS / "extender"
POD = b'"Pod":{"metadata":{"name":"a"}}'
# Whitespace, key order, numbers and escapes that no JSON library would write again the same way.
ODD_NODE = b'{ "z" :1.0e0,\n\t"metadata": {"labels":{"a":"\\u0061"},"name" :"n1"} , "x":[ ],"x":[1 ,2]}'


def recorded(name: str) -> bytes:
    return (EXTENDER / f"{name}.json").read_bytes()


def refusal(body: bytes) -> str:
    with pytest.raises(BadInputError) as caught:
        extender_v1.candidates(body)
    with pytest.raises(BadInputError):
        extender_v1.binding(body)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def answered(call: Candidates, reasons: Mapping[str, str], resolvable: Collection[str] = ()) -> bytes:
    """The whole answer of filter."""
    return joined(extender_v1.filter_answer(call, Refused(reasons, resolvable)))


def full(*nodes: bytes, names: bytes = b"null") -> bytes:
    return b'{%s,"Nodes":{"metadata":{},"items":[%s]},"NodeNames":%s}' % (POD, b",".join(nodes), names)


@pytest.mark.parametrize("name", ["filter-names", "prioritize-names"])
def test_a_recorded_call_by_names_is_understood(name: str) -> None:
    call = extender_v1.candidates(recorded(name))
    assert sorted(call.names) == ["n0", "n1", "n2"]
    assert call.names == json.loads(recorded(name))["NodeNames"]
    assert (call.by_name, call.raw) == (True, None)
    assert call.pod.metadata.uid == "2b8684ba-6308-4af1-b16c-684948142a6b"
    assert (call.pod.spec.containers or [])[0].resources is not None


@pytest.mark.parametrize("name", ["filter-full", "prioritize-full"])
def test_a_recorded_call_with_full_nodes_is_understood_and_echoed_byte_for_byte(name: str) -> None:
    body = recorded(name)
    call = extender_v1.candidates(body)
    assert (call.names, call.by_name) == (["n0", "n1", "n2"], False)
    items = body[body.index(b'"items":') : body.index(b',"NodeNames"')]
    answer = answered(call, {})
    assert b'"Nodes":{"metadata":{},' + items in answer
    assert json.loads(answer)["NodeNames"] is None


def test_a_recorded_bind_call_is_understood() -> None:
    call = extender_v1.binding(recorded("bind"))
    assert (call.namespace, call.name, call.node) == ("default", "a", "n2")
    assert call.uid == "2b8684ba-6308-4af1-b16c-684948142a6b"


@pytest.mark.parametrize("name", ["preempt-names", "preempt-full"])
def test_a_recorded_preempt_call_is_kept_for_the_verb_to_come(name: str) -> None:
    assert json.loads(recorded(name)).keys() >= {"Pod", "NodeNameToVictims"}


@st.composite
def any_case(draw: st.DrawFn, name: str) -> bytes:
    document: dict[str, Any] = json.loads(recorded(name))
    keys = {
        key: "".join(draw(st.sampled_from([each.lower(), each.upper()])) for each in key) for key in document
    }
    return json.dumps({keys[key]: value for key, value in document.items()}).encode()


@given(any_case("filter-names"), any_case("filter-full"), any_case("bind"))
def test_keys_are_taken_in_any_case(by_names: bytes, by_nodes: bytes, bind: bytes) -> None:
    assert extender_v1.candidates(by_names) == extender_v1.candidates(recorded("filter-names"))
    found = extender_v1.candidates(by_nodes)
    assert found.pod == extender_v1.candidates(recorded("filter-full")).pod
    assert found.raw is not None
    assert list(found.raw) == found.names == ["n0", "n1", "n2"]
    assert extender_v1.binding(bind) == extender_v1.binding(recorded("bind"))


@pytest.mark.parametrize(
    ("nodes", "names", "expected", "by_name"),
    [
        (b"null", b'["n2","n1"]', ["n2", "n1"], True),
        (b'{"items":[{"metadata":{"name":"n1"}}]}', b"null", ["n1"], False),
        (b'{"items":[{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}]}', b'["n2"]', ["n2"], True),
        (b"null", b"null", [], False),
        (b"null", b"[]", [], False),
        (b"{}", b"null", [], False),
        (b'{"items":null}', b"null", [], False),
        (b'{"items":[]}', b"null", [], False),
    ],
)
def test_nodes_come_by_name_in_full_both_or_not_at_all(
    nodes: bytes, names: bytes, expected: list[str], by_name: bool
) -> None:
    for body in (
        b'{%s,"Nodes":%s,"NodeNames":%s}' % (POD, nodes, names),
        b'{"nodenames":%s,"nodes":%s,%s}' % (names, nodes, POD.lower()),
    ):
        call = extender_v1.candidates(body)
        assert (call.names, call.by_name) == (expected, by_name)


@pytest.mark.parametrize("key", [b"Nodes", b"NodeNames", b"nodes", b"nodenames"])
def test_one_key_may_be_missing(key: bytes) -> None:
    value = b'["n1"]' if b"ames" in key else b'{"items":[%s]}' % ODD_NODE
    assert extender_v1.candidates(b'{%s,"%s":%s}' % (POD, key, value)).names == ["n1"]
    assert extender_v1.candidates(b"{%s}" % POD).names == []


def test_an_odd_node_is_echoed_byte_for_byte() -> None:
    other = b'{"metadata":{"name":"n2"}}'
    call = extender_v1.candidates(full(ODD_NODE, other))
    assert b'"items":[%s,%s]}' % (ODD_NODE, other) in answered(call, {})
    assert b'"items":[%s]}' % ODD_NODE in answered(call, {"n2": "why"})
    assert b'"items":[]}' in answered(call, {"n1": "why", "n2": "why"})


@pytest.mark.parametrize(
    "node",
    [
        b'{"metadata":{"name":"n-1.a","uid":"u"},"spec":{"name":"other"}}',  # as Go writes it
        b'{"kind":"Node","metadata":{"uid":"u","name":"n-1.a"}}',
        b'{ "metadata" : { "name" : "n-1.a" } }',
        b'{"spec":{"metadata":{"name":"other"}},"metadata":{"labels":{"name":"other"},"name":"n-1.a"}}',
        b'{"metadata":{"name":"n-1\\u002ea"}}',
    ],
)
def test_a_node_s_name_is_read_wherever_it_stands(node: bytes) -> None:
    call = extender_v1.candidates(full(node))
    assert call.names == ["n-1.a"]
    assert bytes((call.raw or {})["n-1.a"]) == node


def test_where_both_were_offered_both_are_answered() -> None:
    call = extender_v1.candidates(full(ODD_NODE, names=b'["n1","only-a-name"]'))
    answer = answered(call, {})
    assert ODD_NODE in answer
    assert b'"NodeNames":["n1","only-a-name"]' in answer


def test_unknown_fields_are_ignored_at_any_depth() -> None:
    extra = b'{"x":[{}],"Pod":{"y":1,"metadata":{"name":"a","z":{}},"spec":{"q":null}},"NodeNames":["n1"]}'
    assert extender_v1.candidates(extra).names == ["n1"]
    bind = json.dumps({**json.loads(recorded("bind")), "Later": [1]}).encode()
    assert extender_v1.binding(bind) == extender_v1.binding(recorded("bind"))


DEEP = b"[" * 100_000
BAD = {
    "empty": b"",
    "not JSON": b"pod=a",
    "cut short": recorded("filter-full")[:-1],
    "two documents": recorded("filter-names") * 2,
    "null": b"null",
    "an array": b"[]",
    "a string": b'"Pod"',
    "a number": b"7",
    "no pod": b'{"NodeNames":["n1"]}',
    "a null pod": b'{"Pod":null,"Nodes":null,"NodeNames":[]}',
    "an array for a pod": b'{"Pod":[],"Nodes":null,"NodeNames":[]}',
    "a pod without metadata": b'{"Pod":{},"Nodes":null,"NodeNames":[]}',
    "an array for Nodes": b'{%s,"Nodes":[],"NodeNames":null}' % POD,
    "a string for NodeNames": b'{%s,"Nodes":null,"NodeNames":"n1"}' % POD,
    "numbers for NodeNames": b'{%s,"Nodes":null,"NodeNames":[1]}' % POD,
    "a number for a node": full(b"1"),
    "a node without metadata": full(b"{}"),
    "a node without a name": full(b'{"metadata":{}}'),
    "a number for a node's name": full(b'{"metadata":{"name":1}}'),
    "nesting": DEEP,
    "nested objects": b'{"Pod":' * 100_000,
    "nesting beside the pod": b'{%s,"x":%s,"Nodes":null,"NodeNames":null}' % (POD, DEEP),
    "balanced nesting": b'{%s,"x":%s,"NodeNames":null}' % (POD, DEEP + b"]" * 100_000),
    "nesting in a node": full(b'{"metadata":{"name":"n1"},"x":%s}' % (DEEP + b"]" * 100_000)),
    "invalid UTF-8": b"\xff\xfe",
    "invalid UTF-8 in a key": b'{"\xff":1}',
    "invalid UTF-8 in a pod": b'{"Pod":{"metadata":{"name":"\xff"}},"Nodes":null,"NodeNames":null}',
    "invalid UTF-8 in a name": b'{%s,"Nodes":null,"NodeNames":["\xff"]}' % POD,
    "invalid UTF-8 in a node": full(b'{"metadata":{"name":"\xff"}}'),
    "half a surrogate": b'{%s,"Nodes":null,"NodeNames":["\\ud800"]}' % POD,
    "a byte order mark": b"\xef\xbb\xbf" + recorded("filter-names"),
    "UTF-16": recorded("filter-names").decode().encode("utf-16"),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_in_one_line(body: bytes) -> None:
    assert refusal(body).startswith("not a call that kube-scheduler makes: ")


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_bind_call_must_say_everything(missing: str) -> None:
    document = json.loads(recorded("bind"))
    with pytest.raises(BadInputError, match=f"^the bind call has an empty {missing}$"):
        extender_v1.binding(json.dumps({**document, missing: ""}).encode())
    wrongs: tuple[object, ...] = (None, 7, ["x"], {})
    for wrong in wrongs:
        with pytest.raises(BadInputError):
            extender_v1.binding(json.dumps({**document, missing: wrong}).encode())
    del document[missing]
    with pytest.raises(BadInputError, match=missing.lower()):
        extender_v1.binding(json.dumps(document).encode())


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["items", "metadata"]), inner)
    ),
)
calls = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("Pod", "Nodes", "NodeNames", "pod", "PodName", "Node", "spec"), anything)
)


def only_bad_input(body: bytes) -> None:
    for decode in (extender_v1.candidates, extender_v1.binding):
        try:
            decode(body)
        except BadInputError as error:
            assert str(error)  # noqa: PT017 - it may also be a good call


@given(st.binary())
def test_any_bytes_are_understood_or_refused(body: bytes) -> None:
    only_bad_input(body)


@pytest.mark.drawn
@settings(max_examples=examples(25, 100))
@given(calls)
def test_any_json_is_understood_or_refused(document: dict[str, Any]) -> None:
    only_bad_input(json.dumps(document).encode())


@given(st.sampled_from(["filter-names", "filter-full", "bind"]), st.integers(0, 3200), st.binary(max_size=3))
def test_a_damaged_call_is_understood_or_refused(name: str, at: int, damage: bytes) -> None:
    body = recorded(name)
    only_bad_input(body[:at] + damage + body[at + len(damage) :])


def test_a_filter_answer_by_names_has_gos_names_and_nothing_in_failed_nodes() -> None:
    call = extender_v1.candidates(b'{%s,"Nodes":null,"NodeNames":["n1","n2","n3"]}' % POD)
    assert answered(call, {"n2": "k80: 0 of 1 free, 1 asked"}) == (
        b'{"Nodes":null,"NodeNames":["n1","n3"],"FailedNodes":{},'
        b'"FailedAndUnresolvableNodes":{"n2":"k80: 0 of 1 free, 1 asked"},"Error":""}'
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.sampled_from(["passed", "refused", "resolvable"])), max_size=80
    ),
    st.sampled_from([(), ("n0", "n5", "only-a-name")]),
)
def test_any_mixture_of_full_nodes_is_answered_as_if_it_were_encoded_at_once(
    offered: list[tuple[int, str]], by_name: tuple[str, ...]
) -> None:
    """Also where the same node is offered twice."""
    nodes = [
        b'{"metadata":{"name":"n%d"},"nth" :%d}' % (number, nth) for nth, (number, _) in enumerate(offered)
    ]
    call = extender_v1.candidates(full(*nodes, names=json.dumps(by_name or None).encode()))
    became = {f"n{number}": what for number, what in offered}
    reasons = {name: f"{what}: why" for name, what in became.items() if what != "passed"}
    resolvable = {name for name, what in became.items() if what == "resolvable"}
    last = {f"n{number}": node for (number, _), node in zip(offered, nodes, strict=True)}
    passed = [name for name in by_name or last if name not in reasons]
    expected = {
        "Nodes": {"metadata": {}, "items": [msgspec.Raw(last[name]) for name in passed if name in last]},
        "NodeNames": passed if by_name else None,
        "FailedNodes": {name: reasons[name] for name in reasons if name in resolvable},
        "FailedAndUnresolvableNodes": {name: reasons[name] for name in reasons if name not in resolvable},
        "Error": "",
    }
    content = extender_v1.filter_answer(call, Refused(reasons, resolvable))
    assert joined(content) == msgspec.json.encode(expected)
    assert len(content) == len(msgspec.json.encode(expected))
    assert isinstance(content, LongList) == (call.raw is not None)


def test_a_filter_answer_to_nothing_offered_is_an_empty_list() -> None:
    answer = json.loads(answered(extender_v1.candidates(b"{%s}" % POD), {}))
    assert (answer["Nodes"], answer["NodeNames"], answer["Error"]) == (None, [], "")


def test_an_error_of_filter_names_no_nodes() -> None:
    assert extender_v1.filter_error('the "ledger"') == (
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":{},"FailedAndUnresolvableNodes":{},'
        b'"Error":"the \\"ledger\\""}'
    )


def test_the_other_answers_have_gos_names_too() -> None:
    scored = [extender_v1.priority("n1", 10), extender_v1.priority("n2", 0)]
    assert extender_v1.priorities(scored) == b'[{"Host":"n1","Score":10},{"Host":"n2","Score":0}]'
    assert extender_v1.priorities([]) == b"[]"
    assert extender_v1.bind_answer() == b'{"Error":""}'
    assert extender_v1.bind_answer("no room") == b'{"Error":"no room"}'


def test_a_number_may_stand_for_a_quantity() -> None:
    spec = json.dumps({"containers": [{"resources": {"requests": {IP: 2}}}]}).encode()
    body = b'{"Pod":{"metadata":{"name":"a"},"spec":%s},"NodeNames":[]}' % spec
    container = (extender_v1.candidates(body).pod.spec.containers or [])[0]
    assert container.resources is not None
    assert container.resources.requests == {IP: 2}
