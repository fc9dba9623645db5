"""What the ledger's View costs and says as documents change and time passes."""

from berth.ledger.keys import domain_key
from berth.ledger.model import Claim, Domain, Holding, RetainedUnits, encode
from berth.ledger.view import View
from tests.properties.bugs import each_update_of_a_document_makes_one_time_more

KEY = domain_key("ip", "n1")


def resting(count: int, first: float) -> tuple[RetainedUnits, ...]:
    return tuple(RetainedUnits(1, (f"u{number}",), rest_until=first + number) for number in range(count))


def changed_often() -> View:
    """A View of a domain whose units rest, and that has changed 3,000 times."""
    view, units = View(), tuple(f"u{number}" for number in range(100))
    for number in range(3000):
        left = resting(50, 1000.0 + number / 100)
        view.update({KEY: encode(Domain(100, units=units, retained=left))}, number / 100)
    return view


def test_that_it_notes_each_change_is_seen() -> None:
    with each_update_of_a_document_makes_one_time_more():
        assert len(changed_often()._due._queue) == 3000


def test_a_domain_with_units_that_rest_is_noted_once_however_often_it_changes() -> None:
    view = changed_often()
    assert len(view._due._queue) <= 10
    view.refresh(31.0)
    assert view.free["ip"]["n1"] == (50, 100)


def test_units_that_rest_are_free_one_after_the_other_when_they_have_rested() -> None:
    view = View()
    view.update(
        {
            KEY: encode(
                Domain(
                    4,
                    retained=(
                        *resting(3, 10.0),
                        RetainedUnits(1, owner="d/w", rest_until=9.0, kept_until=20.0),
                    ),
                )
            )
        },
        1.0,
    )
    free = []
    for now in (8.0, 9.0, 10.0, 11.0, 12.0, 19.0, 20.0):
        view.refresh(now)
        free.append(view.free["ip"]["n1"][0])
    assert free == [0, 0, 1, 2, 3, 3, 4]


def test_nothing_is_due_or_kept_of_a_domain_that_is_gone() -> None:
    view = View()
    for number in range(100):
        view.update({domain_key("ip", f"n{number}"): encode(Domain(1, retained=resting(1, 10.0)))}, 1.0)
    view.update({domain_key("ip", f"n{number}"): None for number in range(100)}, 1.0)
    assert len(view._due._queue) <= 10
    assert (view.free["ip"], view.domains["ip"], view._rooms) == ({}, {}, {})


def test_units_that_are_kept_where_nobody_can_have_them_draw_nobody_there() -> None:
    view, kept = View(), (RetainedUnits(1, ("u1",), "d/web-0", kept_until=60.0),)
    view.update(
        {
            KEY: encode(Domain(1, units=("u2",), retained=kept)),
            domain_key("ip", "n2"): encode(Domain(None, retained=kept)),
            domain_key("ip", "n3"): encode(Domain(1, units=("u1",), retained=kept)),
        },
        1.0,
    )
    assert view.kept_for(["d/web-0"], 1.0) == [("ip", "n3")]


def test_a_pod_is_found_by_its_name_when_the_one_before_it_has_left_the_same_domain() -> None:
    """A StatefulSet's next pod may be bound before the claim of the one before is released."""
    view, units = View(), (Holding("ip", "n1", 1),)
    before, after = (
        Claim(uid=uid, namespace="d", name="web-0", node="n1", holdings=units) for uid in ("before", "after")
    )
    view.update({KEY: encode(Domain(2, claims={"before": before, "after": after}))})
    view.update({KEY: encode(Domain(2, claims={"after": after}))})
    assert view.named("d/web-0", "ip") == [after]
    view.update({KEY: encode(Domain(2))})
    assert [*view._labels] == []
