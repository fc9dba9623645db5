"""Options that several subcommands have, and the ledger's store that they name."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from berth.cli.output import FORMATS
from berth.errors import SettingsError
from berth.settings import DEFAULT_STORE
from berth.stores import open_store, redacted
from berth.stores.base import Local, Store

LAST_FIRST_PORT = 65535 - 9  # nine functions and a proxy, one port each


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster to talk to (KUBECONFIG)")
    words = "the context of the kubeconfig (BERTH_CONTEXT; else its current one)"
    parser.add_argument("--context", metavar="NAME", help=words)


def add_store(parser: argparse.ArgumentParser, why: str = "", *, makes: bool = False) -> None:
    """`makes`: the command makes a ledger where there is none; others look for the functions' own."""
    there = DEFAULT_STORE + ("" if makes else " if it is there, or what the cluster's settings name")
    words = f"the ledger's store (BERTH_STORE; else {there}){why}"
    parser.add_argument("--store", metavar="URL", help=words)


def add_pools(parser: argparse.ArgumentParser) -> None:
    words = "the manifests to read, here the active source of Pools (BERTH_POOLS); else the cluster's Pools"
    parser.add_argument("-f", "--pools", metavar="FILE", help=words)


def add_source(parser: argparse.ArgumentParser, writes: str = "") -> None:
    """Add the active source of Pools, for a command that writes to it; `writes` says by what it does."""
    add_kubeconfig(parser)
    words = f"the active source of Pools if it is a file (BERTH_POOLS); its comments are lost{writes}"
    parser.add_argument("--pools", metavar="FILE", help=words)


def add_output(parser: argparse.ArgumentParser, once: str = "") -> None:
    """Add -o; `once` is what `table` was called before, and still may be."""
    choices = (*FORMATS, once) if once else FORMATS
    more = f"{once} is an older name of table; default table" if once else None
    parser.add_argument("-o", "--output", choices=choices, default="table", help=more)


def any_number(text: str) -> int:
    """Return an argument's number, whose range is judged where its meaning is known."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} should be a whole number") from None


def whole_number(least: int, most: int, noun: str = "number") -> Callable[[str], int]:
    """Return an argument's type: a whole number in decimal digits from `least` to `most`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} should be a {noun} from {least} to {most}")
        return int(text)

    return parse


@contextmanager
def existing_ledger(url: str, *, reads_only: bool = False) -> Iterator[Store]:
    """Open the ledger's store, as open_store does. Raises SettingsError where there is none."""
    with closing(open_store(url, reads_only=reads_only)) as store:
        require_ledger(store, url)
        yield store


def require_ledger(store: Store, url: str, name: str = "--store or BERTH_STORE") -> None:
    """Raise SettingsError where there is no ledger, and reading it would make one."""
    if isinstance(store, Local) and not store.is_there():
        raise SettingsError(
            f"there is no ledger at {redacted(url)}: {name} should name the functions' own "
            "(reconcile makes it)"
        )
