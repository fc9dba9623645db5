"""The table of pools, domains, waiters and refusals that `berth up`, `demo` and `top` refresh in place.
It only reads; trouble is a line of the table, and it raises nothing."""

import contextlib
import io
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, Self

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from berth.api.pool import Pool
from berth.cli import tables
from berth.cli.output import can_draw, is_terminal
from berth.cli.waiters import Waiters
from berth.controller.waiting import Reason
from berth.errors import BerthError
from berth.ledger.report import DomainRow, PoolRow, headline, natural, pool_rows
from berth.ledger.view import View

_REFRESH_SECONDS = 0.5  # of the ledger's rows, and of the picture
_END_SECONDS = 3.0  # that the end waits for a ledger or a terminal that hangs
_MOST_LINES = 10_000  # that wait for a terminal that was stopped; then the oldest are dropped
_REFUSALS = 5
_REFUSAL_LINES = 8  # of one refusal: kube-scheduler's texts have some 500 characters at most
MARGIN = 2  # columns for the terminal's own ^C: on a full line it would go on to the next one
_NOT_READ = "the ledger is being read"
_CLOSED = "the ledger is new or being rebuilt, within a minute (at once: berth reconcile)"


def possible() -> bool:
    """Whether standard output is a terminal that can move its cursor; else plain lines are better."""
    return can_draw(sys.stdout)


def picture(
    pools: Sequence[PoolRow],
    refusals: Sequence[Reason],
    size: tuple[int, int],
    now: float,
    trouble: str = "",
    heading: str = "",
) -> Group:
    """Return lines that fit into `size` (columns, lines): totals of pools, their fullest domains, refusals.

    A refusal goes on in further lines, for what to do about it stands at its end; any other line that is too
    wide is cut.
    """
    room = size[1] - 1 - bool(trouble) - bool(heading)
    latest = refusals[: min(_REFUSALS, max(0, (room - 3) // 3))]
    why = _refusal_lines(latest, size[0] - MARGIN, max(len(latest), (room - 3) // 2), now)
    lines = [_line(heading)] if heading else []
    lines += _pool_lines(pools, room - (len(why) + 1 if why else 0))
    if why:
        lines += [_line(""), _line(why[0], "bold"), *map(_line, why[1:])]
    if trouble:
        lines.append(_line(trouble, "red"))
    for line in lines:
        line.truncate(max(1, size[0] - MARGIN), overflow="ellipsis")
    return Group(*lines)


def _refusal_lines(refusals: Sequence[Reason], width: int, room: int, now: float) -> list[str]:
    """Return a header and at most `room` lines: at least one for each refusal, so the first may have more."""
    lines = tables.reason_lines([], width)[:1] if refusals else []
    for left, refusal in zip(range(len(refusals) - 1, -1, -1), refusals, strict=True):
        header = len(tables.reason_lines([], width))
        shown = tables.reason_lines([(refusal.pods, now - refusal.since.timestamp(), refusal.text)], width)[
            header:
        ]
        most = min(_REFUSAL_LINES, room - (len(lines) - 1) - left)
        lines += shown if len(shown) <= most else [*shown[: most - 1], f"{shown[most - 1]}…"]
    return lines


def _pool_lines(pools: Sequence[PoolRow], room: int) -> list[Text]:
    rows = room - 1 - len(pools)
    named = pools if rows >= 0 else pools[: max(0, room - 2)]
    every = [(pool.name, domain) for pool in pools for domain in pool.domains]
    shown = every if len(every) <= rows else sorted(every, key=_fullest)[: max(0, rows - 1)]
    chosen = {(pool, domain.name) for pool, domain in shown}
    cells, styles = [], []
    for pool in named:
        domains = [domain for domain in pool.domains if (pool.name, domain.name) in chosen]
        cells += [tables.total_cells(pool), *(tables.domain_cells(pool.name, row) for row in domains)]
        styles += [_style(pool.over_committed), *(_style(domain.over) for domain in domains)]
    header, *others = tables.aligned_pools(cells)
    lines = [_line(header, "bold"), *map(_line, others, styles)]
    if not pools:
        lines.append(_line("no pools yet"))
    elif len(named) < len(pools) and room > 1:
        lines.append(_line(f"and {len(pools) - len(named)} more pools"))
    elif len(every) > len(shown) and rows > 0:
        lines.append(_line(f"and {len(every) - len(shown)} more domains, less full"))
    return lines


def _fullest(pool_and_domain: tuple[str, DomainRow]) -> tuple[bool, float, int, object]:
    _, domain = pool_and_domain
    return not domain.used, domain.free / (domain.capacity or 1), -domain.used, natural(domain.name)


def _style(over: int) -> str:
    return "red" if over else ""


def _line(text: str, style: str = "") -> Text:
    return Text(tables.printable(text), style, no_wrap=True, overflow="ellipsis")


class _Read(NamedTuple):
    """What was read of the ledger: the View's own dicts, by which a change is known (none: nothing was read
    yet), and the rows."""

    seen: tuple[object, ...] = ()
    rows: Sequence[PoolRow] = ()
    resources: Mapping[str, Pool] = {}
    trouble: str = _NOT_READ


class LiveView:
    """Use as `with LiveView(ledger.view, words) as live:`; `say`, `show` and `observe` are for any thread.

    One thread looks at the ledger and one writes to the terminal, so that neither a store nor a terminal
    that hangs holds up those who say something. Meanwhile lines for a standard error that is a terminal
    too go above the table.
    """

    def __init__(
        self,
        view: Callable[[], View],
        words: Callable[[Mapping[str, object]], str],
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
        only: str | None = None,
        heading: bool = False,
        every: float = _REFRESH_SECONDS,
    ) -> None:
        """`view` may raise Berth's errors, and is called `every` so many seconds; `words` is the line for
        what `say` is given, empty for none. `only`: the one pool to show; `heading`: how all is, in a line.
        """
        self._view, self._words, self._clock = view, words, clock
        self._only, self._heading, self._every = only, heading, every
        self.unknown = ""  # why nobody can say who waits
        self._console = console or Console(
            force_terminal=True, force_interactive=True, highlight=False, markup=False, emoji=False
        )
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._waiters = Waiters(clock)
        self.observe = self._waiters.observe  # takes what an EventRelay reports about our pods
        self.listed = self._waiters.listed
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._last = _Read()
        self._drawn: object = None
        self._wake, self._reading_over = threading.Event(), threading.Event()
        self._painting_over = threading.Event()
        self._reader = threading.Thread(target=self._read, name="live-reader", daemon=True)
        self._painter = threading.Thread(target=self._paint, name="live-painter", daemon=True)
        self._stderr, self._above = sys.stderr, _Above(self.show)

    def say(self, what: Mapping[str, object]) -> None:
        """Show a change of state, as a line above the table."""
        if words := self._words(what):
            self.show(words)

    def show(self, text: str) -> None:
        """Show lines above the table."""
        self._lines.extend(text.split("\n"))
        self._wake.set()

    def __enter__(self) -> Self:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        with contextlib.suppress(OSError):
            self._live.start()
        self._stderr = sys.stderr
        if is_terminal(sys.stderr):
            sys.stderr = self._above
        self._reader.start()
        self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._reading_over.set()
            self._reader.join(_END_SECONDS)
            sys.stderr = self._stderr
            self._above.finish()
            self._painting_over.set()
            self._wake.set()
            self._painter.join(_END_SECONDS)
        finally:
            sys.stderr = self._stderr
            # A terminal that takes nothing holds up the painter, and would hold up us, too.
            if not self._painter.is_alive():
                with contextlib.suppress(OSError, ValueError):
                    self._live.stop()

    # The ledger

    def _read(self) -> None:
        while not self._reading_over.is_set():
            began = time.thread_time()
            self._last = self._look()
            self._reading_over.wait(max(self._every, _pause(began)))
        self._last = self._look()

    def _look(self) -> _Read:
        try:
            view = self._view()
            trouble = _CLOSED if view.epoch is None else str(view.epoch.trouble() or "")
            # A View's dicts are replaced when something changes.
            seen = (view.domains, view.pools, view.free, view.epoch)
            if any(one is not other for one, other in zip_longest(seen, self._last.seen)):
                rows = pool_rows(view, {}, self._only, self._clock())
                return _Read(seen, rows, view.resources, trouble)
            return self._last._replace(trouble=trouble)
        except BerthError as error:
            return self._last._replace(trouble=str(error))
        except Exception as error:  # noqa: BLE001 (a view must not end what it shows)
            return self._last._replace(trouble=f"the ledger can't be shown: {type(error).__name__}: {error}")

    # The terminal

    def _paint(self) -> None:
        due = 0.0
        while True:
            began = time.thread_time()
            over = self._painting_over.is_set()
            self._wake.clear()
            # SystemExit is how rich answers a reader that is gone.
            with contextlib.suppress(OSError, ValueError, SystemExit):
                self._print_lines()
                if over or time.monotonic() >= due:
                    self._refresh()
                    due = time.monotonic() + _pause(began)
            if over:
                return
            self._wake.wait(_REFRESH_SECONDS)

    def _print_lines(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if lines:
            text = "\n".join(tables.printable(line.expandtabs()) for line in lines)
            self._console.print(Text(text), soft_wrap=True)

    def _refresh(self) -> None:
        last, size, now = self._last, self._console.size, self._clock()
        waiting, refusals = self._waiters.asking(last.resources), self._waiters.refusals()
        texts = [
            (refusal.text, refusal.pods, tables.age(now - refusal.since.timestamp())) for refusal in refusals
        ]
        trouble = last.trouble or self.unknown
        if (last, size, waiting, texts, trouble) != self._drawn:
            self._drawn = (last, size, waiting, texts, trouble)
            known = {row.name: None if self.unknown else waiting.get(row.name, 0) for row in last.rows}
            rows = [msgspec.structs.replace(row, waiting=known[row.name]) for row in last.rows]
            heading = headline(rows, self._in_all(known)) if self._heading else ""
            shown = picture(rows, refusals, size, now, trouble, heading)
            self._live.update(shown if last.seen else _line(trouble), refresh=True)

    def _in_all(self, known: Mapping[str, int | None]) -> int | None:
        """Return how many pods wait for what is shown; None where that is not known."""
        if self.unknown:
            return None
        return self._waiters.in_all(self._last.resources) if self._only is None else known.get(self._only)


class _Above(io.TextIOBase):
    """In place of standard error: whole lines go above the table."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._rest, self._lock = show, "", threading.Lock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._show(line)
        return len(text)

    def finish(self) -> None:
        """Show what was written without the end of its line."""
        if self._rest:
            self.write("\n")


def _pause(began: float) -> float:
    """Return the seconds to pause, so that reading takes a tenth of the interpreter's time at most.

    Calls and events need it, too, and 5,000 domains take 0.1 s.
    """
    return max(_REFRESH_SECONDS, 9 * (time.thread_time() - began))
