"""Free: what is kept of earlier questions is what a fresh look would say, whatever changed since."""

from hypothesis import given
from hypothesis import strategies as st

from berth.ledger.free import Free, Share

NAMES = [f"n{number}" for number in range(6)]

shares = st.integers(0, 5).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size)))
changes = st.lists(st.dictionaries(st.sampled_from(NAMES), st.none() | shares))


def told(name: str, share: Share) -> str:
    return f"{name} {share}"


@given(st.dictionaries(st.sampled_from(NAMES), shares), changes)
def test_answers_follow_every_change(start: dict[str, Share], steps: list[dict[str, Share | None]]) -> None:
    free, plain = Free(start), dict(start)
    for step in steps:
        earlier, before = free, dict(free)
        for asked in range(7):
            free.enough(asked)
        free.by_domain(told)
        free = free.with_changes(step)
        plain = {name: share for name, share in {**plain, **step}.items() if share is not None}
        assert earlier == before
        assert free == plain
        for asked in range(7):
            assert free.enough(asked) == Free(plain).enough(asked)
        assert free.by_domain(told) == Free(plain).by_domain(told)


def test_only_so_many_numbers_asked_are_kept_in_mind_and_all_are_answered() -> None:
    free = Free({"n1": (30, 30)})
    assert [len(free.enough(asked)) for asked in range(40)] == [1] * 31 + [0] * 9
    assert len(free._enough) == 16
