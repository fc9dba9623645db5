"""`berth top` and `berth status --watch`: the status again and again, until Ctrl-C ends it with 130.
On a terminal it is a table in place; elsewhere each change is a block of lines. It only reads."""

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from berth import settings
from berth.cli.output import note
from berth.cli.shared_options import add_kubeconfig, add_output, add_store
from berth.cli.status import Source, Status, opened, show_status, status_lines
from berth.errors import BerthError, RetryableError

if TYPE_CHECKING:
    from berth.cli.dashboard import LiveView

_SECONDS = 2.0
_LEAST, _MOST = 0.5, 3600.0
Wait = Callable[[float], object]
T = TypeVar("T")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    parser.add_argument("--pool", metavar="NAME", help="only this one (default: all)")
    add_output(parser)
    _add_interval(parser)
    parser.set_defaults(run=run)


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="show each change, until Ctrl-C")
    _add_interval(parser)


def _add_interval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=_SECONDS,
        help=f"between two looks while it goes on, {_LEAST:g} to {_MOST:g} (default {_SECONDS:g})",
    )


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if _LEAST <= (seconds := float(text)) <= _MOST:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} should be a number of seconds from {_LEAST:g} to {_MOST:g}")


def run(options: argparse.Namespace) -> int:
    """Show the status until Ctrl-C, which raises KeyboardInterrupt. It returns 1 at once where the ledger is
    elsewhere now, or another cluster's."""
    from berth.cli import dashboard  # rich takes 0.1 s to import

    with opened(settings.from_environment(), options.pool) as source, ended_by_signals():
        if options.output == "table" and dashboard.possible():
            return on_terminal(source, options.interval, time.sleep)
        return in_blocks(source, options.output, options.interval, time.sleep)


def changes(look: Callable[[], tuple[T, str]], interval: float, wait: Wait) -> Iterator[tuple[T, bool]]:
    """Yield what is seen at each change of it, and whether it is the first. `look` returns it, and what is
    not known of it; `wait` takes the seconds to the next look, and what it raises ends the whole.

    While a store or the cluster is away all is as it was. That, and what is not known, is noted once.
    """
    last: T | None = None
    told = ""
    while True:
        try:
            seen, trouble = look()
        except RetryableError as error:
            if last is None:
                raise
            seen, trouble = last, str(error)
        if trouble not in ("", told):
            note(trouble)
        told = trouble
        if seen != last:
            yield seen, last is None
            last = seen
        wait(interval)


def in_blocks(
    source: Source, output: str, interval: float, wait: Wait, clock: Callable[[], float] = time.time
) -> int:
    """Print the status at each change of it, for a person with the time in front of its headline."""

    def look() -> tuple[tuple[Status, bool], str]:
        report, unknown, looked = source.look()
        return (report, looked), unknown

    for (report, looked), first in changes(look, interval, wait):
        _print(report, output, clock(), first=first)
        if not looked:
            return 1
    return 0


def separate(output: str, *, first: bool) -> None:
    """Print what stands between two reports; a JSON document ends with its line."""
    if not first and output != "json":
        print("---" if output == "yaml" else "")


def stamp(now: float) -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print(report: Status, output: str, now: float, *, first: bool) -> None:
    separate(output, first=first)
    if output == "table":
        headline, *others = status_lines(report)
        print("\n".join([f"{stamp(now)} {headline}", *others]))
    else:
        show_status(report, output)
    print(end="", flush=True)


def on_terminal(source: Source, interval: float, wait: Wait) -> int:
    """Show the status in place. The pods that wait are asked for at each look."""
    report, _, looked = source.look()
    if not looked:
        show_status(report, "table")
        return 1
    from berth.cli import dashboard

    live = dashboard.LiveView(source.view, lambda _: "", only=source.pool, heading=True, every=interval)
    live.unknown = _list(source, live)  # before it shows how many wait
    with live:
        while True:
            wait(interval)
            live.unknown = _list(source, live)


def _list(source: Source, live: "LiveView") -> str:
    """Tell of the pods that have no node. Return why it is not known who waits; empty: it is."""
    try:
        pods = source.cluster.pending_pods()
    except BerthError as error:
        return f"who waits is not known: {error}"
    live.listed(source.config.scheduler_names, pods)
    return ""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Treat SIGTERM and a terminal that is closed as Ctrl-C: the cursor is given back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
