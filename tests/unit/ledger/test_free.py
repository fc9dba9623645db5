"""Free: what is kept of earlier questions is what a fresh look would say, whatever changed since."""

from hypothesis import given
from hypothesis import strategies as st

from berth.ledger.free import Free, Share
from tests.support.builders.overlays import LIMITS, limited

NAMES = [f"n{number}" for number in range(6)]
ASKED = [*NAMES, "nobody"]

shares = st.integers(0, 5).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size)))
steps = st.tuples(st.dictionaries(st.sampled_from(NAMES), st.none() | shares), st.booleans())


def told(name: str, share: Share) -> str:
    return f"{name} {share}"


@given(st.dictionaries(st.sampled_from(NAMES), shares), st.lists(steps), LIMITS)
def test_answers_follow_every_change(
    start: dict[str, Share], steps: list[tuple[dict[str, Share | None], bool]], limits: tuple[int, int]
) -> None:
    with limited(limits):
        _follow(start, steps)


def _follow(start: dict[str, Share], steps: list[tuple[dict[str, Share | None], bool]]) -> None:
    free, plain = Free(start), dict(start)
    for step, is_walked in steps:
        earlier, before = free, plain
        for asked in range(7):
            free.lacking(ASKED, asked)
        free.by_domain(told)
        free = free.with_changes(step)
        plain = {name: share for name, share in {**plain, **step}.items() if share is not None}
        assert free.pick(ASKED) == [plain.get(name) for name in ASKED]
        for asked in range(7):
            lacking = [name for name in ASKED if plain.get(name, (-1, 0))[0] < asked]
            assert sorted(free.lacking(ASKED, asked)) == lacking
        assert free.by_domain(told).pick(ASKED) == Free(plain).by_domain(told).pick(ASKED)
        earlier_lacking = [name for name in ASKED if before.get(name, (-1, 0))[0] < 1]
        assert sorted(earlier.lacking(ASKED, 1)) == earlier_lacking
        if is_walked:  # which makes them one dict, one set
            assert earlier == before
            assert free == plain
            assert free.by_domain(told) == Free(plain).by_domain(told)
            for asked in range(7):
                assert free.enough(asked) == Free(plain).enough(asked)


def test_only_so_many_numbers_asked_are_kept_in_mind_and_all_are_answered() -> None:
    free = Free({"n1": (30, 30)})
    assert [list(free.lacking(["n1"], asked)) for asked in range(40)] == [[]] * 31 + [["n1"]] * 9
    assert len(free._enough) == 16
