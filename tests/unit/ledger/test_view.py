"""What the ledger's View costs and says as documents change and time passes."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from berth.ledger.keys import domain_key, kept_at, node_key
from berth.ledger.model import Claim, Domain, Holding, Rank, RetainedUnits, encode
from berth.ledger.view import View
from tests.properties.bugs import each_update_of_a_document_makes_one_time_more
from tests.support.builders.overlays import LIMITS, limited

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
    assert (list(view.free["ip"]), list(view.domains["ip"]), view._rooms) == ([], [], {})


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


POOLS, OWNER = ("ip", "k80"), "d/w-0"
PLACES = ("n1", "n2", "n3", "zone")
NAMES = (*PLACES, "zone#0", "zone#1", "n1<", "@d", "@d#0", "!d/claim")
NODES = ("n1", "n2", "n3")


HOLDINGS = tuple(Holding(pool, name, 1) for pool in POOLS for name in sorted(NAMES))
CLAIMS = {
    "u1": Claim(uid="u1", namespace="d", name="w-1", node="n1", holdings=HOLDINGS, state="bound"),
    "u2": Claim(uid="u2", namespace="d", name="w-0", node="n2", holdings=HOLDINGS, state="lost"),
}


@st.composite
def _domains(draw: st.DrawFn, pool: str, name: str) -> bytes | None:
    if draw(st.integers(0, 4)) == 0:
        return None
    owners = ("", kept_at(OWNER, pool, "n1") if name in ("n1<", "@d") else OWNER)
    times = st.integers(0, 6).map(float)
    retained = st.builds(
        RetainedUnits, st.just(1), owner=st.sampled_from(owners), rest_until=times, kept_until=times
    )
    domain = Domain(
        draw(st.none() | st.integers(0, 4)),
        {uid: CLAIMS[uid] for uid in draw(st.sets(st.sampled_from(sorted(CLAIMS))))},
        retained=() if "#" in name else tuple(draw(st.lists(retained, max_size=2))),
        stripes={"zone": 2, "@d": 1}.get(name, 0),
        closed=draw(st.booleans()),
    )
    return encode(domain)


@st.composite
def _changes(draw: st.DrawFn) -> dict[str, bytes | None]:
    changes: dict[str, bytes | None] = {}
    for pool, name in draw(st.lists(st.tuples(st.sampled_from(POOLS), st.sampled_from(NAMES)), max_size=4)):
        changes[domain_key(pool, name)] = draw(_domains(pool, name))
    for node in draw(st.lists(st.sampled_from(NODES), max_size=2)):
        places = draw(st.none() | st.dictionaries(st.sampled_from(POOLS), st.sampled_from(("", "zone"))))
        changes[node_key(node)] = None if places is None else encode(places)
    return changes


def _told(view: View, now: float) -> dict[str, object]:
    """All that a View tells, of which nothing is where it tells nothing."""
    shares = {"free": view.free, "unreserved": view.unreserved, "quotas": view.quotas}
    asked = [*NAMES, "d", "nobody"]
    return {
        "domains": {pool: dict(domains) for pool, domains in view.domains.items() if domains},
        **{kind: {pool: dict(free) for pool, free in of.items() if free} for kind, of in shares.items()},
        "places": {pool: dict(places) for pool, places in view.places.items()},
        "nodes": dict(view.nodes),
        "claims": {uid: sorted(map(str, view.claims_of(uid))) for uid in CLAIMS},
        "lost": sorted(map(str, view.lost())),
        "named": {uid: sorted(map(str, view.named(CLAIMS[uid].label, "ip"))) for uid in CLAIMS},
        "kept": [view.kept(pool, now) for pool in POOLS],
        "kept for": view.kept_for([OWNER], now),
        "names": [sorted(view.names(pool)) for pool in POOLS],
        "capacities": view.capacities(),
        "lacking": [
            sorted(of[pool].lacking(asked, count)) if of.get(pool) else sorted(asked)
            for of in shares.values()
            for pool in POOLS
            for count in range(1, 4)
        ],
        "as the pod sees it": [
            (dict(seen.free["ip"]), dict(seen.unreserved["ip"]), dict(seen.quotas["ip"]))
            for uid in CLAIMS
            for seen in [view.free_for(Rank(uid), ["ip"], [OWNER], now)]
        ],
    }


@given(st.lists(st.tuples(_changes(), st.integers(0, 2)), max_size=8), st.booleans(), LIMITS)
def test_after_any_changes_a_view_tells_what_one_tells_that_is_built_anew(
    steps: list[tuple[dict[str, bytes | None], int]], is_asked: bool, limits: tuple[int, int]
) -> None:
    """Also if it was asked in between, and so keeps answers that have to follow."""
    with limited(limits):
        view, documents, now = View(), dict[str, bytes | None](), 0.0
        for changes, seconds in steps:
            now += seconds
            view.update(changes, now)
            view.refresh(now)
            documents |= changes
            if is_asked:
                assert _told(view, now) == _told(_anew(documents, now), now)
        assert _told(view, now) == _told(_anew(documents, now), now)


def _anew(documents: Mapping[str, bytes | None], now: float) -> View:
    view = View()
    view.update({key: body for key, body in documents.items() if body is not None}, now)
    return view
