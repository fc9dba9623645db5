"""`berth up`: all functions locally, fed with events, until Ctrl-C.
For a laptop, a test or a first look at a real cluster; in production Knative runs the same functions."""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from berth import settings
from berth.cli import scheduler_config
from berth.cli.processes import Functions, Say, functions_folder
from berth.cli.relay import Relay
from berth.cluster import connect
from berth.policy.pools import GROUP, parse
from berth.settings import Settings
from berth.steps.stock import documents
from berth.stores import open_store


def run(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM. Raises SettingsError before anything is started."""
    found = settings.from_environment()
    open_store(found.store).close()
    cluster = connect()
    groups = _groups(found)
    say = _say_json if options.json else _say_text
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
        relay.stop()
        functions.stop()
    return 0


def _groups(found: Settings) -> set[str]:
    """The domains of the Pools' resources, as far as they are known before the cluster is asked."""
    if found.pools is None:
        return {GROUP}
    pools = parse(documents(found.pools), str(found.pools))
    return {GROUP, *(pool.resource.partition("/")[0] for pool in pools.values())}


def _write(path: Path, urls: Mapping[str, str], found: Settings, groups: set[str], say: Say) -> None:
    kubeconfig = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
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
    sys.stdout.write(json.dumps(what, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _say_text(what: Mapping[str, object]) -> None:
    subject = what.get("function") or what.get("event") or what.get("watch") or what.get("schedulerConfig")
    more = " ".join(str(what[key]) for key in ("url", "to", "exit", "why") if key in what)
    words = {
        "died": "died, starting it again",
        "ready": "ready" if subject else "ready: all functions answer, the ledger is reconciled",
    }
    state = str(what.get("state"))
    sys.stdout.write(
        " ".join(filter(None, ("berth:", str(subject or ""), words.get(state, state), more))) + "\n"
    )
    sys.stdout.flush()
