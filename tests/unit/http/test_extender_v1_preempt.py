"""preempt's call and answer on the wire: victims by UID or in full, keys in any case, Go's names back."""

import json
from typing import Any

import pytest

from berth.errors import BadInputError
from berth.http import extender_v1
from berth.http.endpoint import joined
from berth.http.extender_v1 import Refused, Victims
from tests.support.builders.objects import EVENTS

POD = {"metadata": {"name": "a", "namespace": "default", "uid": "u"}, "status": {"nominatedNodeName": "n9"}}
META = {"n1": {"Pods": [{"UID": "v1"}, {"UID": "v2"}], "NumPDBViolations": 1}}


def call(**fields: Any) -> extender_v1.PreemptionCall:
    return extender_v1.preemption(json.dumps({"Pod": POD, **fields}).encode())


def refusal(body: Any) -> str:
    with pytest.raises(BadInputError) as caught:
        extender_v1.preemption(body if isinstance(body, bytes) else json.dumps(body).encode())
    return str(caught.value)


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EVENTS / f"extender/preempt-{name}.json").read_bytes())
    return found


def test_the_recorded_call_by_uid_has_every_candidate_with_its_victims() -> None:
    found = extender_v1.preemption(json.dumps(recorded("names")).encode())
    assert found.pod.metadata.name == "z"
    expected = recorded("names")["NodeNameToMetaVictims"]
    assert {node: list(each.uids) for node, each in found.victims.items()} == {
        node: [pod["UID"] for pod in each["Pods"]] for node, each in expected.items()
    }
    assert json.loads(extender_v1.preemption_answer(found.victims)) == {"NodeNameToMetaVictims": expected}


def test_the_recorded_call_with_victims_in_full_is_answered_by_uid() -> None:
    found = extender_v1.preemption(json.dumps(recorded("full")).encode())
    expected = recorded("full")["NodeNameToVictims"]
    assert {node: list(each.uids) for node, each in found.victims.items()} == {
        node: [pod["metadata"]["uid"] for pod in each["Pods"]] for node, each in expected.items()
    }
    assert len(found.victims) == 3


def test_budgets_that_would_be_violated_come_back_as_they_came() -> None:
    found = call(NodeNameToVictims=None, NodeNameToMetaVictims=META)
    assert found.victims == {"n1": Victims(("v1", "v2"), 1)}
    assert extender_v1.preemption_answer(found.victims) == (
        b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v1"},{"UID":"v2"}],"NumPDBViolations":1}}}'
    )


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase])
def test_keys_may_be_in_any_case_at_every_level(change: Any) -> None:
    victims = {change("Pods"): [{change("UID"): "v1"}], change("NumPDBViolations"): 2}
    body = {change("Pod"): POD, change("NodeNameToMetaVictims"): {"Node-1": victims}}
    found = extender_v1.preemption(json.dumps(body).encode())
    assert found.victims == {"Node-1": Victims(("v1",), 2)}
    full = {change("Pods"): [{"metadata": {"uid": "v1"}}]}
    body = {change("Pod"): POD, change("NodeNameToVictims"): {"Node-1": full}}
    assert extender_v1.preemption(json.dumps(body).encode()).victims == {"Node-1": Victims(("v1",))}


def test_the_nominated_node_is_read() -> None:
    assert call().pod.status.nominated_node_name == "n9"


@pytest.mark.parametrize("fields", [{}, {"NodeNameToMetaVictims": None}, {"NodeNameToVictims": {}}])
def test_a_call_without_candidates_has_none(fields: dict[str, Any]) -> None:
    assert call(**fields).victims == {}
    assert extender_v1.preemption_answer({}) == b'{"NodeNameToMetaVictims":{}}'


@pytest.mark.parametrize("victims", [{}, {"Pods": None}, {"Pods": []}])
def test_a_node_without_victims_is_left_out_because_it_would_fail_the_whole_preemption(
    victims: dict[str, Any],
) -> None:
    found = call(NodeNameToMetaVictims={**META, "n2": victims})
    assert found.victims["n2"] == Victims(())
    assert list(json.loads(extender_v1.preemption_answer(found.victims))["NodeNameToMetaVictims"]) == ["n1"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        {},
        {"NodeNameToMetaVictims": META},
        {"Pod": None},
        {"Pod": POD, "NodeNameToMetaVictims": []},
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": []}},
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": None}},
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": 1}]}}},
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"Pods": [None]}}},
        {"Pod": POD, "NodeNameToMetaVictims": {"n1": {"NumPDBViolations": "1"}}},
        {"Pod": POD, "NodeNameToVictims": {"n1": {"Pods": [{"metadata": []}]}}},
    ],
    ids=str,
)
def test_what_is_no_such_call_is_refused(body: Any) -> None:
    assert refusal(body).startswith("not a call that kube-scheduler makes: ")


@pytest.mark.parametrize(
    "fields",
    [
        {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v1"}, {"UID": ""}]}}},
        {"NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"name": "x"}}]}}},
    ],
)
def test_a_victim_without_a_uid_is_refused_because_nobody_knows_what_it_holds(fields: dict[str, Any]) -> None:
    assert refusal({"Pod": POD, **fields}).endswith("a victim on n1 has no UID")


def test_refused_nodes_where_an_eviction_could_help_stand_in_failed_nodes() -> None:
    offered = extender_v1.candidates(json.dumps({"Pod": POD, "NodeNames": ["n1", "n2", "n3"]}).encode())
    refused = Refused({"n1": "full", "n2": "none here"}, {"n1"})
    answer = json.loads(joined(extender_v1.filter_answer(offered, refused)))
    assert answer["NodeNames"] == ["n3"]
    assert (answer["FailedNodes"], answer["FailedAndUnresolvableNodes"]) == (
        {"n1": "full"},
        {"n2": "none here"},
    )
