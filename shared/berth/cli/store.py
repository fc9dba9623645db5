"""`berth store`: copy the ledger to another store, let claims go on after a copy that died, make a table.
It changes no setting: functions use another store once BERTH_STORE names it."""

import argparse
import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import closing

import msgspec

from berth.cli.output import note, say, show
from berth.cli.shared_options import add_output, require_ledger
from berth.errors import SettingsError
from berth.ledger.migrate import Copy, resume
from berth.stores import absolute, open_store, redacted
from berth.stores.base import EPOCH, Makeable, Store

_VARIABLE = "env:"


def add_options(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="store_command", required=True, metavar="COMMAND")
    copy = commands.add_parser(
        "copy",
        help="copy the ledger to another store, which takes its place",
        description="Pause claims, copy all documents to an empty store, verify them by count and content, "
        "mark the old ledger as moved and open the new one. Then set BERTH_STORE to it wherever functions "
        "run: until then they answer that they should use it. If it fails, claims go on in the old one.",
        epilog="Exit codes: 0 moved (or moved before), 1 not, 2 wrong usage. A copy that was killed is made "
        "again, or ended by `berth store resume FROM`. `ps` shows arguments: name a URL that holds a "
        "password by its variable, as env:BERTH_STORE.",
    )
    copy.add_argument("source", metavar="FROM", help="the URL of the store that functions use now")
    copy.add_argument(
        "target", metavar="TO", help="the URL of an empty store, or of a ledger that was moved away"
    )
    add_output(copy, "text")
    copy.set_defaults(run=_copy)
    go_on = commands.add_parser(
        "resume",
        help="let claims go on in a ledger whose copy died",
        description="End the pause of a copy that died. A copy that is still at work stops then, and a "
        "ledger that was moved stays moved.",
        epilog="Exit codes: 0 claims go on, 1 they can't, 2 wrong usage.",
    )
    go_on.add_argument("url", metavar="URL", help="the URL of the store that was to be copied")
    go_on.set_defaults(run=_resume)
    init = commands.add_parser(
        "init",
        help="make what a store needs before its first use: DynamoDB's table",
        description="Make the table of a dynamodb:// store, with on-demand billing and point-in-time "
        "recovery; one that is there gets what it lacks. Other stores are only asked whether they answer; "
        "ConfigMaps need their namespace and Role before.",
        epilog="Exit codes: 0 it can be used, 1 it can't, 2 wrong usage.",
    )
    init.add_argument("url", metavar="URL", help="the store's URL, as in BERTH_STORE")
    init.add_argument("--protect", action="store_true", help="protect the table from being deleted")
    init.set_defaults(run=_init)


def _copy(options: argparse.Namespace) -> int:
    source, target = _url(options.source), _url(options.target)
    names = redacted(source), redacted(target)
    if source == target:
        raise SettingsError(f"{names[0]} can't be copied onto itself: name another store to copy to")
    with _undone_when_ended(), _opened(source, "FROM") as old, _opened(target, "TO") as new:
        require_ledger(old, source, "FROM")
        for store in (old, new):
            store.read([EPOCH])  # a copy would wait for a store that is away
        tell = note if options.output in ("json", "yaml") else say
        done = Copy((old, names[0]), (new, names[1]), tell=tell).run()
    result = {"from": names[0], "to": names[1], **msgspec.to_builtins(done)}
    if options.output == "json":
        say(msgspec.json.encode(result).decode())
    elif options.output == "yaml":
        show(result, options.output)
    return 0


def _resume(options: argparse.Namespace) -> int:
    url = _url(options.url)
    with _opened(url, "URL") as store:
        require_ledger(store, url, "URL")
        resumed = resume(store, redacted(url))
    say(f"claims go on in {redacted(url)}" if resumed else f"claims in {redacted(url)} were not paused")
    return 0


def _init(options: argparse.Namespace) -> int:
    url = _url(options.url)
    with _opened(url, "URL") as store:
        if isinstance(store, Makeable):
            for line in store.make(protect=options.protect):
                say(line)
            return 0
        if options.protect:
            raise SettingsError(f"--protect is for the table of a dynamodb:// store, not for {redacted(url)}")
        store.read([EPOCH])
    say(f"{redacted(url)} answers, and needs nothing made")
    return 0


def _url(text: str) -> str:
    """Return the URL that the argument is, or that the variable holds which it names as env:VARIABLE.

    A URL with a password should not be shown by `ps`.
    """
    name = text.removeprefix(_VARIABLE)
    if name == text:
        return absolute(text)
    if not (url := os.environ.get(name)):
        raise SettingsError(f"{text}: the environment has no variable {name}: set it to a store's URL")
    return absolute(url)


@contextlib.contextmanager
def _opened(url: str, what: str) -> Iterator[Store]:
    try:
        store = open_store(url)
    except SettingsError as error:
        raise SettingsError(str(error).replace("BERTH_STORE", what)) from error
    with closing(store):
        yield store


@contextlib.contextmanager
def _undone_when_ended() -> Iterator[None]:
    """Treat SIGTERM (kill, or a pod that is stopped) as Ctrl-C: the copy undoes what it did."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
