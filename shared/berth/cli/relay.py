"""`berth relay`: what `berth up` does in place of Knative Eventing, for functions that run elsewhere.
What was lost while nobody relayed is mended at once: whoever leads begins with a reconcile."""

import argparse
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable

from berth import settings
from berth.cli.shared_options import add_kubeconfig
from berth.cli.states import say_json, say_text
from berth.cli.stopping import stop_signal
from berth.errors import SettingsError
from berth.kube import election
from berth.kube.cluster import connect
from berth.kube.election import Lease
from berth.local.event_relay import EventRelay
from berth.local.processes import Say
from berth.telemetry import traces

log = logging.getLogger("berth.relay")

FUNCTIONS = ("release", "inventory", "reconcile")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    for name in FUNCTIONS:
        parser.add_argument(
            f"--{name}",
            metavar="URL",
            required=True,
            help=f"the function {name}, such as http://{name}.berth",
        )
    parser.add_argument(
        "--lease",
        metavar="NAMESPACE/NAME",
        help="the Lease by which one of several relays leads (else: this one)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Relay until SIGINT, SIGTERM or SIGHUP. Raises SettingsError for a wrong URL or Lease."""
    urls = {name: _url(name, getattr(options, name)) for name in FUNCTIONS}
    lease = election.parsed(options.lease, _holder()) if options.lease else None
    config, cluster = settings.from_environment(), connect()
    traces.configure("berth-relay")
    say = say_text if sys.stdout.isatty() else say_json
    stop = stop_signal()
    turn = _Turn(lambda: EventRelay(cluster, urls, config.scheduler_names, config.pools, say), stop, say)
    if lease is None:
        turn.lead()
    else:
        threading.Thread(target=turn.take_turns, args=[lease], name="election", daemon=True).start()
    stop.wait()
    turn.end()
    traces.flush()
    return 1 if turn.broken else 0


class _Turn:
    """What leads: a new relay each time, for one that was stopped stays so. `broken`: no more turns."""

    def __init__(self, made: Callable[[], EventRelay], stop: threading.Event, say: Say) -> None:
        self._made, self._stop, self._say = made, stop, say
        self._relay = made()
        self.broken = False

    def lead(self) -> None:
        self._say({"relay": "events and ticks", "state": "begins"})
        self._relay.start()
        if self._relay.wait_first_reconcile(self._stop):
            self._say({"relay": "events and ticks", "state": "ready"})

    def end(self) -> None:
        self._relay.stop()

    def take_turns(self, lease: Lease) -> None:
        """Lead and follow in turn until stopped."""
        try:
            while not self._stop.is_set():
                election.take_part(lease, self.lead)
                self.end()
                self._say({"relay": "events and ticks", "state": "ends", "why": "another relay may lead now"})
                self._relay = self._made()
        except Exception as error:
            log.exception("no more turns")
            self._say({"relay": "events and ticks", "state": "ends", "why": str(error)})
            self.broken = True
            self._stop.set()


def _holder() -> str:
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{os.getpid()}"


def _url(name: str, text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise SettingsError(
            f"--{name} {text!r} should be a URL, such as http://{name}.berth.svc.cluster.local"
        )
    return text
