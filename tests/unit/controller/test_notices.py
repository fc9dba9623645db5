"""What is said of pods by events: short, in one line, equal for equal things."""

from typing import Any

import pytest

from berth.controller import notices
from berth.controller.notices import FINISHED, REASONS, SILENT, Subject, Teller, units
from berth.kube.event_queue import PodEvent
from berth.ledger.model import Claim, Holding
from tests.support.references import ROOT

POD = Subject("team", "a", "uid-of-a")


def claim(*holdings: Holding, node: str = "n1", **more: Any) -> Claim:
    return Claim(uid="uid-of-a", namespace="team", name="a", node=node, holdings=holdings, **more)


def told() -> tuple[Teller, list[PodEvent]]:
    events: list[PodEvent] = []
    return Teller(events.append), events


def test_what_a_pod_was_given_is_told_with_its_units_and_its_node() -> None:
    teller, events = told()
    held = claim(
        Holding("ip", "rack-1", 2, ("10.0.0.7", "10.0.0.8")),
        Holding("licence", "*", 1),
        Holding("ip", "@team", 2),
        Holding("k80", "n1", 1, ("k80-0",), "mine"),
    )
    teller.allocated(held)
    assert events == [
        PodEvent(
            *POD,
            "UnitsAllocated",
            "Binding",
            "Has 2 ip (10.0.0.7, 10.0.0.8) of rack-1, 1 k80 (k80-0) by PoolClaim mine, 1 licence on n1",
        )
    ]


def test_stripes_of_a_domain_are_nothing_to_a_person() -> None:
    held = (Holding("ip", "rack-1#0", 1, ("b",)), Holding("ip", "rack-1#3", 1, ("a",)))
    assert units(held, "n1") in ("2 ip (a, b) of rack-1", "2 ip (b, a) of rack-1")


def test_a_pod_that_has_finished_is_told_what_was_freed_and_nothing_where_nothing_was() -> None:
    teller, events = told()
    teller.released(POD, (), "n1", FINISHED)
    teller.released(POD, (Holding("ip", "@team", 1),), "n1", FINISHED)
    assert events == []
    teller.released(POD, (Holding("ip", "n1", 1, ("x",)), Holding("ip", "@team", 1)), "n1", FINISHED)
    assert [event.note for event in events] == ["Freed 1 ip (x): the pod has finished"]


def test_a_failure_is_a_warning_and_the_rest_is_not() -> None:
    teller, events = told()
    teller.failed(POD, "is bound, and its units are not")
    teller.adopted(claim(Holding("ip", "n1", 1)))
    assert [(event.reason, event.warning) for event in events] == [("FailedClaim", True), ("Adopted", False)]


def test_whatever_names_are_a_note_is_one_short_line() -> None:
    teller, events = told()
    many = tuple(f"unit-{number}" for number in range(1000))
    teller.allocated(claim(*(Holding(f"pool-{number}", "n1", 1000, many) for number in range(50))))
    teller.allocated(claim(Holding("x" * 5000, "y\n\x1b[31mWarning\u2028z", 1, ("u\r\n" * 500,), "c" * 999)))
    teller.failed(POD, "why\n" * 5000)
    for event in events:
        assert event.note.isprintable()
        assert len(event.note.encode()) <= 1024
    assert "and 992 more" in events[0].note
    assert events[0].note.endswith("and 44 more on n1")


def test_equal_things_have_equal_words_whenever_they_happen() -> None:
    teller, events = told()
    for since in (1.0, 2.0):
        teller.allocated(claim(Holding("ip", "n1", 1), since=since, attempt=str(since)))
    assert len(set(events)) == 1


def test_where_events_are_off_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "units", lambda *_: pytest.fail("nobody asks for the words"))
    SILENT.allocated(claim(Holding("ip", "n1", 1)))
    SILENT.adopted(claim(Holding("ip", "n1", 1)))
    SILENT.released(POD, (Holding("ip", "n1", 1),), "n1", FINISHED)
    with pytest.raises(pytest.fail.Exception):
        Teller(lambda _: None).allocated(claim(Holding("ip", "n1", 1)))


def test_infra_s_policy_lets_the_accounts_say_these_reasons_and_no_other() -> None:
    policy = (ROOT / "infra" / "base" / "admission" / "events.yaml").read_text()
    assert str(list(REASONS)) in policy
