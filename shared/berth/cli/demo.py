"""`berth demo`: a day in the life of a cluster, beside a naive counter; it fails if a promise is broken.
The functions and the ledger are real; the rest are stand-ins, or with --real it is real, too."""

import argparse
import contextlib
import io
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from berth.cli.output import can_draw, note, say
from berth.cli.shared_options import LAST_FIRST_PORT, whole_number
from berth.demo.control_planes import binaries, control_plane
from berth.demo.stage import Kit, ledger_url, staged, stand_ins
from berth.demo.story import WRONG, Measured, Story, require_kept
from berth.errors import BerthError, SettingsError
from berth.ledger.ledger import Ledger
from berth.local.event_relay import Observe
from berth.stores import open_store

if TYPE_CHECKING:
    from rich.console import Console

_STEP = re.compile(r"^\d+\. .*(\n {3}(?!naive counter:|berth:).*)?", re.MULTILINE)
_LOG_LINES = 100  # shown if the demo could not be played

Show = Callable[[str], None]

_WORLDS = """\
Two worlds get the same pods, events and faults: in one Berth counts the
units, in the other one number a node does, as in many schedulers: INCR
at bind, DECR at the delete event. Each pod asks for one unit.
After each step Berth's reconcile runs, as it does every minute; the
counter has none.
"""
_PLAYED = """
Real: Berth's functions and the naive counter's (processes of the
functions-framework), their HTTP calls, the SQLite ledger. Played: the
API servers (a small stand-in each) and kube-scheduler (a driver that
makes its calls). With --real those are the real ones, too."""
_REAL = """
Real: Berth's functions and the naive counter's (processes of the
functions-framework), the SQLite ledger, and in each world an etcd,
kube-apiserver and kube-scheduler of its own. Played: Knative, which
brings the events; there are no kubelets. Unlike in the plain demo
kube-scheduler filters the next pod before the last one's bind is
through, and chooses among equal nodes by chance: the counter's numbers
vary.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=whole_number(0, LAST_FIRST_PORT),
        default=0,
        help=f"first port for the functions, 0 to {LAST_FIRST_PORT} (default: any free ones)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print only the measured result, as one JSON line"
    )
    parser.add_argument(
        "--real",
        action="store_true",
        help="on a real etcd, kube-apiserver and kube-scheduler; a checkout builds them first, once, "
        "with Go: about 6 minutes on 2 cores",
    )
    parser.add_argument(
        "--binaries", metavar="DIR", help="the folder that has them, instead of building them (--real)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play the demo. Raises BrokenPromiseError if a promise was broken."""
    if options.binaries and not options.real:
        raise SettingsError("--binaries is for --real: give both, or neither")
    show = _silent if options.json else say
    kit: Kit = _real_kit(options, show) if options.real else stand_ins
    show(_WORLDS + (_REAL if options.real else _PLAYED))
    scratch = tempfile.TemporaryDirectory(prefix="berth-demo-")
    with _ending_tidily() as go_on, _stderr_held_back(), scratch as folder:
        naive, berth = _played(Path(folder), options, kit, go_on)
    if options.json:
        say(msgspec.json.encode({"naive": naive, "berth": berth}).decode())
    else:
        _colouring(say)(f"\n{_sentence(naive, berth)}")
    require_kept(berth)
    return 0


def _played(
    folder: Path, options: argparse.Namespace, kit: Kit, go_on: Callable[[], None]
) -> tuple[Measured, Measured]:
    display = nullcontext((_silent, None)) if options.json else _displayed(folder)
    with display as (show, observe), staged(folder, options.port, kit, go_on, observe) as (naive, berth):
        Story(naive, berth, show).play()
        return naive.measured, berth.measured


@contextmanager
def _displayed(folder: Path) -> Iterator[tuple[Show, Observe | None]]:
    """Show Berth's pools below the story on a terminal, in a table that follows it; else plain lines."""
    from berth.cli import dashboard  # rich takes 0.1 s to import

    if not dashboard.possible():
        yield say, None
        return
    with contextlib.closing(open_store(ledger_url(folder))) as store:
        ledger = Ledger(store, while_closed=True)
        with dashboard.LiveView(ledger.view, lambda _: "", console=_console()) as view:
            view.show("The table below is Berth's ledger, as it changes.\n")
            yield view.show, view.observe


def _console() -> "Console":
    """Return a console that colours what went wrong, unless NO_COLOR says otherwise."""
    from rich.console import Console
    from rich.text import Text

    class Colouring(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            for text in objects:
                if isinstance(text, Text):
                    text.highlight_regex(WRONG, "red")
                    text.highlight_regex(_STEP, "bold")
            super().print(*objects, **options)

    return Colouring(force_terminal=True, force_interactive=True, highlight=False, markup=False, emoji=False)


def _colouring(plain: Show) -> Show:
    """Return what shows lines in colour on a terminal, and as `plain` does elsewhere."""
    from rich.text import Text

    from berth.cli import dashboard

    return (lambda text: _console().print(Text(text))) if dashboard.possible() else plain


def _real_kit(options: argparse.Namespace, show: Show) -> Kit:
    with _progress() as tell:
        programs = binaries(options.binaries, tell)
    return partial(control_plane, programs, show)


@contextmanager
def _progress() -> Iterator[Show]:
    """Yield what tells who waits, on standard error: lines, and on a terminal how long it has taken, too."""
    if not can_draw(sys.stderr):
        yield note
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    console = Console(stderr=True, markup=False, highlight=False)
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("looking for etcd, kube-apiserver and kube-scheduler", total=None)

        def tell(line: str) -> None:
            shown.console.print(line)
            shown.update(task, description=line)

        yield tell


def _sentence(naive: Measured, berth: Measured) -> str:
    """The measured numbers, a line for each world."""
    return "\n".join(
        f"{name + ':':15}{each.over_allocated} over-allocated, {each.leaked} leaked, waiter: {_wake(each)}"
        for name, each in (("naive counter", naive), ("berth", berth))
    )


def _wake(measured: Measured) -> str:
    if measured.wake_seconds is None:
        return "after 5 minutes"
    return f"{max(0.1, measured.wake_seconds):.1f} s"


@contextmanager
def _stderr_held_back() -> Iterator[None]:
    """Hold standard error back, and show its end only if the demo could not be played."""
    try:
        with contextlib.redirect_stderr(io.StringIO()) as log:
            yield
    except BerthError:
        with contextlib.suppress(OSError, AttributeError):
            sys.stderr.writelines(log.getvalue().splitlines(keepends=True)[-_LOG_LINES:])
        raise


@contextmanager
def _ending_tidily() -> Iterator[Callable[[], None]]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does; a second signal does not interrupt the cleaning up.

    The function that it yields raises what the signal raised, again: Python drops an exception that is raised
    in a destructor.
    """
    received: list[int] = []

    def go_on() -> None:
        if received:
            raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(128 + received[0])

    def end(number: int, _: FrameType | None) -> None:
        received.append(number)
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        go_on()

    # A signal that our parent ignores (nohup, a job in the background) stays ignored.
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    if threading.current_thread() is not threading.main_thread():
        before = {}  # Python lets only the main thread handle signals
    for number in before:
        signal.signal(number, end)
    try:
        yield go_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silent(_: str) -> None:
    """For --json, which says only how it ended."""
