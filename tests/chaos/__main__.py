"""`python -m tests.chaos`: every fault on every store; `make chaos` writes docs/reliability.md with it.
A quiet machine is the caller's to provide; every process it starts ends with it."""

import argparse
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.chaos.faults import FAULTS
from tests.chaos.page import page, table
from tests.chaos.runs import FAILED, Runs
from tests.chaos.store_faults import STORES
from tests.chaos.world import LONG, SHORT
from tests.support.servers.haproxy import MISSING, haproxy_binary

BINARIES = Path(__file__).resolve().parents[1] / "controlplane" / ".bin"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    if options.short and options.write:
        parser.error("the page is for the full form: its text says what that does")
    if (proxy := haproxy_binary()) is None:
        print(f"chaos: {MISSING}", file=sys.stderr)
        return 1
    form, began = (SHORT if options.short else LONG), time.monotonic()
    print(f"seed {options.seed}", flush=True)
    runs = Runs(BINARIES, proxy, form, options.seed, lambda what: print(what, flush=True))
    runs.run(options.stores, options.faults)
    if options.write:
        before = options.write.read_text() if options.write.exists() else ""
        options.write.write_text(page(runs.outcomes, form, options.seed, time.monotonic() - began, before))
    else:
        print(table(runs.outcomes))
    return int(FAILED in runs.outcomes.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page; else the table is shown")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES), metavar="STORE")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--short", action="store_true", help="the form that `make test` runs")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    return parser


def _stop(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
