"""`berth up`: all functions locally, fed with events, until Ctrl-C.
For a laptop, a test or a first look at a real cluster; in production Knative runs the same functions."""

import argparse
import contextlib
import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

from berth import settings
from berth.cli import scheduler_config
from berth.cli.processes import Functions, Say, functions_folder
from berth.cli.relay import Relay
from berth.cluster import connect
from berth.ledger import Ledger
from berth.policy.pools import GROUP, parse
from berth.settings import Settings
from berth.steps.stock import documents
from berth.stores import open_store


def run(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM. Raises SettingsError before anything is started."""
    found = settings.from_environment()
    _check_ledger(found.store)
    cluster = connect()
    groups = _groups(found)
    say = _say_json if options.json else _say_text
    if not options.json:
        _print(f"berth: ledger {found.store}")
    folder = Path(options.functions).absolute() if options.functions else functions_folder()
    functions = Functions(folder, options.port, say)
    if options.scheduler_config:
        _write(Path(options.scheduler_config), functions.urls, found, groups, say)
    relay = Relay(cluster, functions.urls, found.scheduler_names, found.pools, say)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        functions.start()
        if functions.wait_ready(stop):
            relay.start()
            if relay.wait_first_reconcile(stop):
                say({"state": "ready"})
                stop.wait()
    finally:
        say({"state": "stopping"})
        try:
            relay.stop()
        finally:
            functions.stop()
    return 0


def _check_ledger(url: str) -> None:
    """Without a ledger nothing would ever be ready. Raises the store's error."""
    store = open_store(url)
    try:
        Ledger(store, while_closed=True).check()
    finally:
        store.close()


def _groups(found: Settings) -> set[str]:
    """The domains of the Pools' resources, as far as they are known before the cluster is asked."""
    if found.pools is None:
        return {GROUP}
    pools = parse(documents(found.pools), str(found.pools))
    return {GROUP, *(pool.resource.partition("/")[0] for pool in pools.values())}


def _write(path: Path, urls: Mapping[str, str], found: Settings, groups: set[str], say: Say) -> None:
    listed = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    kubeconfig = listed.split(os.pathsep)[0]  # kube-scheduler takes one
    document = scheduler_config.configuration(
        urls,
        kubeconfig=str(Path(kubeconfig).absolute()),
        schedulers=found.scheduler_names,
        groups=groups,
        token=found.token,
    )
    scheduler_config.write(path, document)
    say({"schedulerConfig": str(path), "state": "written"})


def _say_json(what: Mapping[str, object]) -> None:
    _print(json.dumps(what, separators=(",", ":")))


def _say_text(what: Mapping[str, object]) -> None:
    subject = what.get("function") or what.get("event") or what.get("watch") or what.get("schedulerConfig")
    more = " ".join(str(what[key]) for key in ("url", "to", "exit", "why") if key in what)
    words = {
        "died": "died, starting it again",
        "ready": "ready" if subject else "ready: all functions answer, the ledger is reconciled",
    }
    state = str(what.get("state"))
    _print(" ".join(filter(None, ("berth:", str(subject or ""), words.get(state, state), more))))


def _print(line: str) -> None:
    """Threads that keep the functions alive say things: a reader that is gone must not end them."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)
