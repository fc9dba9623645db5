"""Conditions of an object's status: which are written, and since when they are so."""

from typing import Any

from berth.controller.conditions import Condition, merged

READY = Condition("Ready", "True", "Counted", "all is well")
OURS = ("Ready", "Suspended")
LATER, FIRST = "1970-01-01T00:01:00Z", "1970-01-01T00:00:00Z"


def document(*conditions: dict[str, Any], generation: int = 2) -> dict[str, Any]:
    return {"metadata": {"generation": generation}, "status": {"conditions": list(conditions)}}


def written(found: Condition, standing: dict[str, Any], now: float = 60.0) -> list[dict[str, Any]]:
    return merged([found], OURS, standing, now)


def test_what_stands_there_and_is_right_is_equal_to_what_would_be_written() -> None:
    first = written(READY, document(), now=0.0)
    assert first == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Counted",
            "message": "all is well",
            "lastTransitionTime": FIRST,
            "observedGeneration": 2,
        }
    ]
    assert written(READY, document(*first)) == first


def test_the_time_changes_with_the_status_alone() -> None:
    first = written(READY, document(), now=0.0)
    (again,) = written(READY._replace(reason="Other", message="x"), document(*first, generation=3))
    assert (again["lastTransitionTime"], again["observedGeneration"]) == (FIRST, 3)
    (other,) = written(READY._replace(status="False"), document(*first))
    assert other["lastTransitionTime"] == LATER


def test_a_message_is_cut_where_the_api_server_would_refuse_it() -> None:
    (one,) = merged([Condition("Ready", "False", "Invalid", "x" * 40_000)], ["Ready"], {"metadata": {}}, 0.0)
    assert one["message"] == "x" * 32_768


def test_a_condition_of_others_stays_and_one_of_ours_that_is_no_more_goes() -> None:
    theirs = {"type": "example.com/Seen", "status": "True"}
    suspended = {"type": "Suspended", "status": "True"}
    kinds = [one["type"] for one in written(READY, document(theirs, suspended))]
    assert kinds == ["Ready", "example.com/Seen"]


def test_a_condition_may_tell_of_an_earlier_generation_than_the_object_has() -> None:
    (earlier,) = written(READY._replace(generation=1), document())
    assert earlier["observedGeneration"] == 1
    (unknown,) = written(READY, {"metadata": {}})
    assert "observedGeneration" not in unknown
