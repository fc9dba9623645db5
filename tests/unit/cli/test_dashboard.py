"""The live view's picture, its waiters, and how it goes on when the ledger or the terminal do not.

On a real pseudo-terminal, with `berth up` below it, it is shown by tests/cli/test_inspect.py.
"""

import io
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from rich.console import Console

from berth.cli import dashboard
from berth.cli.dashboard import LiveView, picture
from berth.cli.waiters import Waiters
from berth.controller.waiting import Reason
from berth.errors import StoreUnavailableError
from berth.ledger.report import PoolRow, pool_rows
from berth.ledger.view import View
from tests.support.builders.objects import pool, pools_of
from tests.unit.cli.test_tables import claim, view_of

IP = pools_of(pool("ip"))
FULL = "0/3 nodes are available: 3 ip: 0 of 1 free, 1 asked."


def lines(
    rows: Sequence[PoolRow], refusals: Sequence[Reason], trouble: str = "", size: tuple[int, int] = (120, 40)
) -> list[str]:
    """A picture as it is on a terminal of this size."""
    out = io.StringIO()
    console = Console(file=out, width=size[0], force_terminal=False)
    console.print(picture(rows, refusals, size, 1000.0, trouble))
    return out.getvalue().splitlines()


def reason(text: str, pods: int, since: float, last: float) -> Reason:
    return Reason(text, pods, *(datetime.fromtimestamp(seconds, UTC) for seconds in (since, last)))


def pod(
    name: str, message: str | None = None, *, since: str = "2026-01-01T00:00:00Z", **spec: Any
) -> dict[str, Any]:
    """A pod that asks for one unit of `ip`, as a watch tells of it."""
    said = {"type": "PodScheduled", "status": "False", "message": message, "lastTransitionTime": since}
    asked = {"resources": {"requests": {"berth.dev/ip": "1"}}}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": f"uid-{name}", "creationTimestamp": None},
        "spec": {"schedulerName": "berth", "containers": [asked], **spec},
        "status": {"phase": "Pending", "conditions": [said] if message else None},
    }


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_picture_shows_pools_their_domains_and_why_pods_wait() -> None:
    rows = pool_rows(view_of({("ip", "n1"): 2}, claim("a", ip=2), pools=("ip",)), {"ip": 3})
    assert lines(rows, [reason(FULL, 3, 700.0, 990.0)]) == [
        "POOL   DOMAIN   CAPACITY   USED   FREE   BINDING   WAITING",
        "ip     <all>    2          2      0      0         3",
        "ip     n1       2          2      0      0         -",
        "",
        "PODS   AGE     WHY THEY WAIT",
        f"3      5m      {FULL}",
    ]


def test_before_there_is_a_pool_the_picture_says_so() -> None:
    assert lines([], [], trouble="the store is away") == [
        "POOL   DOMAIN   CAPACITY   USED   FREE   BINDING   WAITING",
        "no pools yet",
        "the store is away",
    ]


def test_of_more_domains_than_fit_the_fullest_are_shown_and_the_others_counted() -> None:
    capacities: dict[tuple[str, str], int | None] = {("ip", f"n{number}"): 4 for number in range(100)}
    used = [claim(f"p{number}", node=f"n{number}", ip=1 + number % 3) for number in range(0, 60, 10)]
    rows = pool_rows(view_of(capacities, *used, pools=("ip",)), {})
    shown = lines(rows, [], size=(80, 9))
    assert len(shown) == 8
    assert [line.split()[1] for line in shown[1:-1]] == ["<all>", "n0", "n10", "n20", "n40", "n50"]
    assert shown[-1] == "and 95 more domains, less full"


def test_of_more_pools_than_fit_the_others_are_counted() -> None:
    names = tuple(f"p{number}" for number in range(9))
    rows = pool_rows(view_of({(name, "n1"): 1 for name in names}, pools=names), {})
    shown = lines(rows, [], size=(80, 6))
    assert [line.split()[0] for line in shown] == ["POOL", "p0", "p1", "p2", "and"]
    assert shown[-1] == "and 6 more pools"


@pytest.mark.parametrize("height", range(1, 14))
@pytest.mark.parametrize("width", [1, 20, 80])
def test_a_picture_is_never_higher_than_the_terminal(height: int, width: int) -> None:
    capacities: dict[tuple[str, str], int | None] = {
        (name, f"n{number}"): 4 for name in ("ip", "seat", "gpu") for number in range(20)
    }
    rows = pool_rows(view_of(capacities, pools=("ip", "seat", "gpu")), {})
    refusals = [reason(f"{FULL} {number}", 1, 0.0, 0.0) for number in range(9)]
    shown = lines(rows, refusals, size=(width, height), trouble="t" * 200)
    assert len(shown) <= max(2, height)
    assert max(map(len, shown)) <= width


def test_a_long_refusal_goes_on_below_itself_to_its_last_word_as_far_as_there_is_room() -> None:
    text = (
        f"{FULL} underlay-ip: held back since berth's ledger was lost ({'because of this ' * 9}run berth fix)"
    )
    found = [reason(text, 3, 700.0, 990.0), reason("another", 1, 700.0, 980.0)]
    shown = lines([], found, size=(60, 40))
    assert max(map(len, shown)) <= 58
    assert " ".join(line[15:] for line in shown[4:-1]) == text
    assert shown[-1] == "1      5m      another"
    few = lines([], found, size=(60, 10))
    assert len(few) <= 9
    assert few[-2].endswith("…")
    assert few[-1].endswith("another")


def test_a_refusal_is_shown_as_it_is_without_markup_or_control_signs() -> None:
    shown = lines([], [reason("[red]a[/] \x1b[2J :smile:", 1, 999.0, 999.0)])
    assert shown[-1] == "1      1s      [red]a[/]  [2J :smile:"


def test_equal_refusals_are_one_with_the_age_of_the_first_and_the_newest_is_first() -> None:
    clock = Clock()
    waiters = Waiters(clock)
    waiters.observe("ADDED", pod("a", "old"))
    clock.now += 10
    waiters.observe("ADDED", pod("b", "new"))
    clock.now += 10
    waiters.observe("MODIFIED", pod("c", f"new preemption: {clock.now} nodes"))
    waiters.observe("MODIFIED", pod("a", "old"))
    assert waiters.refusals() == [reason("new", 2, 1010.0, 1020.0), reason("old", 1, 1000.0, 1000.0)]
    assert waiters.asking(IP) == {"ip": 3}


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("DELETED", pod("a", FULL)),
        ("MODIFIED", pod("a", FULL, nodeName="n1")),
        ("MODIFIED", pod("a", FULL, schedulingGates=[{"name": "later"}])),
        ("LISTED", {"schedulerName": "berth", "items": []}),
    ],
)
def test_a_pod_that_waits_no_more_is_forgotten_with_its_refusal(kind: str, item: Mapping[str, Any]) -> None:
    waiters = Waiters()
    waiters.observe("ADDED", pod("a", FULL))
    assert waiters.asking(IP) == {"ip": 1}
    waiters.observe(kind, item)
    assert (waiters.asking(IP), waiters.refusals()) == ({}, [])


def test_a_list_of_one_schedulers_pods_says_nothing_of_anothers() -> None:
    waiters = Waiters()
    waiters.observe("ADDED", pod("a", FULL, schedulerName="other"))
    waiters.observe("LISTED", {"schedulerName": "berth", "items": [pod("b")]})
    assert waiters.asking(IP) == {"ip": 2}


def test_a_pod_that_was_there_before_has_waited_since_its_status_says_so() -> None:
    waiters = Waiters(Clock())
    items = [pod("a", FULL, since="1970-01-01T00:05:00Z"), pod("b", "else", since="yesterday")]
    waiters.observe("LISTED", {"schedulerName": "berth", "items": items})
    assert [(each.text, each.since.timestamp()) for each in waiters.refusals()] == [
        ("else", 1000.0),
        (FULL, 300.0),
    ]


def test_a_pod_that_cannot_be_read_is_left_out_and_the_others_are_shown() -> None:
    waiters = Waiters()
    items = [{"metadata": {"uid": 7}}, {}, pod("a", FULL), {**pod("b"), "status": {"conditions": "x"}}]
    waiters.observe("LISTED", {"schedulerName": "berth", "items": items})
    assert waiters.asking(IP) == {"ip": 1}


def _words(what: Mapping[str, object]) -> str:
    return f"berth: {what['state']}" if "state" in what else ""


def _shown(view: LiveView, out: io.StringIO) -> str:
    """What was written once the view has ended."""
    with view:
        view.say({"state": "ready"})
        view.say({"nothing": "to say"})
        view.show("two\nlines [b]x[/b]")
        view.observe("ADDED", pod("a", FULL))
    return out.getvalue()


def _console(out: io.StringIO) -> Console:
    return Console(file=out, width=100, height=30, force_terminal=True, color_system=None)


def test_lines_and_the_last_state_are_written_before_the_view_ends_and_the_cursor_is_given_back() -> None:
    out = io.StringIO()
    ledger = view_of({("ip", "n1"): 2}, claim("a", ip=2), pools=("ip",))
    text = _shown(LiveView(lambda: ledger, _words, console=_console(out), clock=Clock()), out)
    assert text.index("berth: ready\n") < text.index("two\n") < text.index("lines [b]x[/b]\n")
    assert "nothing" not in text
    last = text.rpartition("POOL   DOMAIN")[2]
    assert "ip     <all>    2          2      0      0         1" in last
    assert f"1      0s      {FULL}" in last
    assert text.index("\x1b[?25l") < text.index("POOL") < text.rindex("\x1b[?25h")
    assert "new or being rebuilt" not in last


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StoreUnavailableError("berth's ledger x is away"), "berth's ledger x is away"),
        (RuntimeError("a bug"), "the ledger can't be shown: RuntimeError: a bug"),
    ],
)
def test_a_ledger_that_fails_is_one_line_of_the_view_and_what_was_known_stays(
    error: Exception, line: str
) -> None:
    out = io.StringIO()
    looks = iter([view_of({("ip", "n1"): 2}, pools=("ip",))])
    seen, failed = threading.Event(), threading.Event()

    def look() -> View:
        found = next(looks, None)
        (failed if found is None else seen).set()
        if found is None:
            raise error
        return found

    with LiveView(look, _words, console=_console(out)):
        assert seen.wait(30)
        assert failed.wait(30)
    last = out.getvalue().rpartition("POOL   DOMAIN")[2]
    assert line in last
    assert "ip     n1" in last


def test_before_the_ledger_was_read_nothing_is_said_of_it() -> None:
    out, read = io.StringIO(), threading.Event()

    def look() -> View:
        assert read.wait(30)
        return view_of({("ip", "n1"): 2}, pools=("ip",))

    class Live(LiveView):
        def _refresh(self) -> None:
            super()._refresh()
            read.set()

    with Live(look, _words, console=_console(out)):
        assert read.wait(30)
    first, _, rest = out.getvalue().partition("POOL   DOMAIN")
    assert "the ledger is being read" in first
    assert "no pools" not in first
    assert "ip     n1" in rest


def test_a_ledger_that_is_closed_is_said_to_be() -> None:
    out = io.StringIO()
    with LiveView(View, _words, console=_console(out)):
        pass
    assert "the ledger is new or being rebuilt" in out.getvalue()


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    with LiveView(View, _words, console=_console(Gone())) as view:
        view.say({"state": "ready"})
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("live-")] == []


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_standard_error_goes_above_the_table_only_while_it_is_a_terminal_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream, above in ((Tty(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        out = io.StringIO()
        with LiveView(View, _words, console=_console(out)):
            sys.stderr.write("filter | half ")
            sys.stderr.write("a line\nrest")
        assert sys.stderr is stream
        # Between two lines the table may have been written.
        assert [line in out.getvalue() for line in ("filter | half a line\n", "rest\n")] == [above, above]
        assert stream.getvalue() == ("" if above else "filter | half a line\nrest")


@pytest.mark.parametrize(
    ("stream", "term", "possible"),
    [
        (Tty(), "xterm", True),
        (Tty(), "dumb", False),
        (Tty(), "", False),
        (io.StringIO(), "xterm", False),
        (None, "xterm", False),
    ],
)
def test_the_view_wants_a_terminal_that_can_move_its_cursor(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None, term: str, possible: bool
) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setitem(os.environ, "TERM", term)
    assert dashboard.possible() == possible


def test_without_colours_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    rows = pool_rows(view_of({("ip", "n1"): 1}, claim("a", ip=2), pools=("ip",)), {})
    for wanted in (True, False):
        out = io.StringIO()
        console = Console(
            file=out,
            width=90,
            force_terminal=True,
            color_system="standard",
            no_color=None if wanted else False,
        )
        console.print(picture(rows, [], (90, 30), 0.0))
        assert ("\x1b[31m" in out.getvalue()) != wanted
        assert msgspec.structs.asdict(rows[0])["over_committed"] == 1
