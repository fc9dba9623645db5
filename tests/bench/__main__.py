"""`python -m tests.bench`: filter and prioritize as users run them, against a minimal extender in Go.
A quiet machine is the caller's to provide; every process it starts ends with it."""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from berth.errors import BerthError
from tests.bench import (
    binds,
    costs,
    figures,
    foreign,
    life,
    marks,
    proxied,
    reconciles,
    report,
    scheduled,
    seats,
    signals,
    starts,
)
from tests.bench.client import CallError
from tests.bench.contender_processes import BenchError
from tests.bench.contenders import OWN, SERVERS, Tree, functions, the_floor
from tests.bench.figures import CALLS
from tests.bench.rounds import Contender, Measured, cases, measure, usual_cases
from tests.bench.store_costs import LATE, STORES, USUAL

VERBS = ("filter", "prioritize")
_NODES = 5000
_SIZES = ("nodes", "pods in all", "pods of ours", "claims that are missing, and pods that are gone")
_MISSED = 3
"""The exit code where a mark is missed by more than its leeway."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    what = options.what or CALLS
    try:
        measured = _MEASURE[what](options)
    except (BenchError, BerthError, CallError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    found = {"what": what, "machine": report.machine(), **measured}
    print(figures.markdown(found))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    missed = found.get("missed", ())
    assert isinstance(missed, Sequence)
    for line in missed:
        print(f"bench: missed by more than a fifth: {line}", file=sys.stderr)
    return _MISSED if missed else 0


def _calls(options: argparse.Namespace) -> dict[str, object]:
    measured = _run(options)
    judged = marks.judged(measured) if options.nodes == _NODES else []
    return {"rows": report.rows(measured), "missed": _missed(judged)}


def _missed(judged: Sequence[tuple[str, bool]]) -> list[str]:
    """Print what was judged. Return the lines of what is missed by more than the leeway."""
    for line, _ in judged:
        print(f"bench: {line}", file=sys.stderr)
    return [line for line, is_missed in judged if is_missed]


def _costs(options: argparse.Namespace) -> dict[str, object]:
    cycles, sizes = costs.measure(options.stores, options.nodes, options.rounds, options.seconds)
    return {"cycles": cycles, "sizes": sizes}


def _seats(options: argparse.Namespace) -> dict[str, object]:
    return {"rows": seats.measure(options.stores, options.rounds, options.seconds)}


def _binds(options: argparse.Namespace) -> dict[str, object]:
    return {"rows": binds.measure(options.stores, options.source or [], options.rounds, options.pods)}


def _life(options: argparse.Namespace) -> dict[str, object]:
    trees = options.source or [OWN]
    return {"rows": life.measure(options.stores, trees, options.rounds, options.pods, options.nodes)}


def _foreign(options: argparse.Namespace) -> dict[str, object]:
    return {"rows": foreign.measure(options.events)}


def _reconcile(options: argparse.Namespace) -> dict[str, object]:
    size = reconciles.Size(options.nodes, options.pods, options.ours, options.broken)
    rows = reconciles.measure(options.stores, options.source or [], options.rounds, size)
    return {"rows": rows, "missed": _missed(marks.judged_reconciles(rows, size))}


def _start(options: argparse.Namespace) -> dict[str, object]:
    rows = starts.measure(options.stores, options.starts, options.domains)
    return {"rows": rows, "missed": _missed(marks.judged_starts(rows))}


def _proxy(options: argparse.Namespace) -> dict[str, object]:
    return {"rows": proxied.measure(options.rounds, options.pods)}


def _scheduled(options: argparse.Namespace) -> dict[str, object]:
    trees = options.source or [OWN]
    rows = scheduled.measure(options.stores, trees, options.rounds, options.pods, options.nodes)
    return {"rows": rows, "missed": _missed(marks.judged_rates(rows))}


def _signals(options: argparse.Namespace) -> dict[str, object]:
    return {"rows": signals.measure(options.calls)}


_MEASURE: Mapping[str, Callable[[argparse.Namespace], dict[str, object]]] = {
    CALLS: _calls,
    "costs": _costs,
    "seats": _seats,
    "binds": _binds,
    "life": _life,
    "foreign": _foreign,
    "reconcile": _reconcile,
    "start": _start,
    "proxy": _proxy,
    "scheduled": _scheduled,
    "signals": _signals,
}


def _run(options: argparse.Namespace) -> list[Measured]:
    known, measured = cases(options.nodes), []
    late = [store for store in options.stores if store in LATE]
    if late and (changed := [name for name in options.cases if known[name].changed]):
        raise BenchError(
            f"a reader of {late[0]} may learn of a change late, so nobody can say what is right at once: "
            f"leave {changed[0]} out of --cases"
        )
    with _contenders(options) as contenders:
        for full in (False, True):  # by themselves: what they leave in a process's memory is nobody else's
            some = [known[name] for name in options.cases if known[name].full == full]
            for verb in options.verbs if some else ():
                print(f"bench: {verb}, {'; '.join(case.name for case in some)}", file=sys.stderr, flush=True)
                measured += measure(some, verb, contenders, options.rounds, options.calls)
    return measured


@contextmanager
def _contenders(options: argparse.Namespace) -> Iterator[list[Contender]]:
    with ExitStack() as stack:
        found = [stack.enter_context(the_floor(options.verbs))] if options.floor else []
        for store in options.stores:
            for tree in options.source or [OWN]:
                print(f"bench: filling a ledger in {store} {tree.label}", file=sys.stderr, flush=True)
                up = functions(tree, store, options.servers, options.verbs, options.nodes)
                found += stack.enter_context(up)
        yield found


def _stop(number: int, _: FrameType | None) -> NoReturn:
    # Once: a second Ctrl-C must not cut off the ending of processes.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=_count, default=15, help="rounds, each with every contender in it")
    parser.add_argument(
        "--calls", type=_count, default=40, help="calls of a contender in a round (full nodes: a twentieth)"
    )
    parser.add_argument("--nodes", type=_count, default=_NODES, help="nodes, and domains of the ledger")
    for name, known, usual in (
        ("cases", tuple(cases(_NODES)), tuple(usual_cases(_NODES))),
        ("verbs", VERBS, VERBS),
        ("stores", STORES, USUAL),
    ):
        what = f"some of {','.join(known)} (default: {'all' if usual is known else ','.join(usual)})"
        parser.add_argument(f"--{name}", type=_some(known), default=usual, help=what, metavar="A,B")
    parser.add_argument(
        "--servers", type=_some(SERVERS), default=SERVERS[:1], help=",".join(SERVERS), metavar="A,B"
    )
    _add_source(parser)
    parser.add_argument("--no-floor", dest="floor", action="store_false", help="without Go: no ratios then")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    others = parser.add_subparsers(dest="what", title="instead of filter and prioritize", metavar="")
    _add_costs(others)
    _add_seats(others)
    _add_binds(others)
    _add_life(others)
    _add_foreign(others)
    _add_reconcile(others)
    _add_start(others)
    _add_proxy(others)
    _add_scheduled(others)
    _add_signals(others)
    return parser


def _add_costs(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parsers.add_parser(
        "costs", help="what a claim costs in each store (costs --help)", description=costs.__doc__
    )
    parser.add_argument("--rounds", type=_count, default=3, help="rounds, each with every store in it")
    parser.add_argument("--seconds", type=_seconds, default=1.5, help="how long each cell of a round takes")
    parser.add_argument("--nodes", type=_count, default=1000, help="domains of the ledger, of 10 units each")
    parser.add_argument("--stores", type=_some(STORES), default=STORES, help=",".join(STORES), metavar="A,B")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_seats(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = parsers.add_parser(
        "seats", help="a cluster-wide pool of 10,000 units (seats --help)", description=seats.__doc__
    )
    parser.add_argument("--rounds", type=_count, default=3, help="rounds, each with every cell in it")
    parser.add_argument("--seconds", type=_seconds, default=3.0, help="how long each cell of a round takes")
    parser.add_argument(
        "--stores", type=_some(STORES), default=seats.USUAL, help=",".join(STORES), metavar="A,B"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_binds(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "a bind from its call to its answer (binds --help)"
    parser = parsers.add_parser("binds", help=what, description=binds.__doc__)
    parser.add_argument("--rounds", type=_count, default=5, help="rounds, each with every cell in it")
    parser.add_argument("--pods", type=_count, default=1000, help="pods that are bound in a cell of a round")
    parser.add_argument("--stores", type=_some(STORES), default=USUAL, help=",".join(STORES), metavar="A,B")
    _add_source(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_life(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "the processor's work for a pod, from filter to the end of its claim (life --help)"
    parser = parsers.add_parser("life", help=what, description=life.__doc__)
    parser.add_argument("--rounds", type=_count, default=15, help="rounds, each with every store in it")
    parser.add_argument("--pods", type=_count, default=100, help="pods of a contender in a round")
    parser.add_argument("--nodes", type=_count, default=500, help="nodes, about all of which verbs are asked")
    parser.add_argument("--stores", type=_some(STORES), default=USUAL, help=",".join(STORES), metavar="A,B")
    _add_source(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        type=_tree,
        action="append",
        metavar="LABEL=DIR",
        help="a folder of functions, shared/ beside it, instead of this tree's; again for another one",
    )


def _add_foreign(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "what release pays for events of other schedulers' pods (foreign --help)"
    parser = parsers.add_parser("foreign", help=what, description=foreign.__doc__)
    parser.add_argument("--events", type=_count, default=10_000, help="events of each kind of pod")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_reconcile(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "reconcile of a large cluster (reconcile --help)"
    parser = parsers.add_parser("reconcile", help=what, description=reconciles.__doc__)
    parser.add_argument("--rounds", type=_count, default=3, help="rounds, each with a new process a store")
    for name, count, words in zip(reconciles.Size._fields, reconciles.MARKED, _SIZES, strict=True):
        parser.add_argument(f"--{name}", type=_count, default=count, help=words)
    parser.add_argument("--stores", type=_some(STORES), default=USUAL, help=",".join(STORES), metavar="A,B")
    _add_source(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_start(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "filter's start and its memory (start --help)"
    parser = parsers.add_parser("start", help=what, description=starts.__doc__)
    parser.add_argument("--starts", type=_count, default=9, help="starts on each ledger")
    parser.add_argument(
        "--domains", type=_count, nargs="+", default=(starts.FEW, starts.MANY), help="of each ledger"
    )
    parser.add_argument("--stores", type=_some(STORES), default=USUAL, help=",".join(STORES), metavar="A,B")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_proxy(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "pods a second with the token in the URLs, and by way of the proxy (proxy --help)"
    parser = parsers.add_parser("proxy", help=what, description=proxied.__doc__)
    parser.add_argument("--rounds", type=_count, default=7, help="rounds, each with both ways in it")
    parser.add_argument("--pods", type=_count, default=400, help="pods of a round, all created at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_scheduled(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "pods a second of a real kube-scheduler, beside an extender in Go (scheduled --help)"
    parser = parsers.add_parser("scheduled", help=what, description=scheduled.__doc__)
    parser.add_argument("--rounds", type=_count, default=3, help="rounds, each with every contender in it")
    parser.add_argument("--pods", type=_count, default=2000, help="pods of a contender in a round")
    parser.add_argument("--nodes", type=_count, default=1000, help="nodes, of 10 units each")
    parser.add_argument("--stores", type=_some(STORES), default=USUAL, help=",".join(STORES), metavar="A,B")
    _add_source(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _add_signals(parsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "what metrics, lines of the log and spans add to a filter call (signals --help)"
    parser = parsers.add_parser("signals", help=what, description=signals.__doc__)
    parser.add_argument("--calls", type=_count, default=3000, help="calls of a contender")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        if (seconds := float(text)) > 0:
            return seconds
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} should be seconds above 0")


def _some(known: Sequence[str]) -> Callable[[str], list[str]]:
    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {unknown[0]!r} here, only {', '.join(known)}")
        return names

    return chosen


def _tree(text: str) -> Tree:
    label, separator, folder = text.partition("=")
    functions = Path(folder).absolute()
    if not separator or not (functions / "filter" / "main.py").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} should be LABEL=DIR, and DIR hold filter/main.py")
    return Tree(label, functions)


if __name__ == "__main__":
    sys.exit(main())
