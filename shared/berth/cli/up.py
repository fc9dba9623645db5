"""`berth up`: run all functions on this machine, with events from the cluster, until Ctrl-C.
It is for a laptop, a test or a first look at a cluster; in production Knative runs the same functions."""

import argparse
import contextlib
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from berth import settings
from berth.api.names import GROUP, NATIVE
from berth.api.pool import Pool, by_resource
from berth.cli.scheduler_config import PROXY_TLS, refuse_a_token
from berth.cli.shared_options import LAST_FIRST_PORT, add_kubeconfig, add_pools, add_store, whole_number
from berth.cli.states import print_line, say_json, say_text, words
from berth.cli.stopping import stop_signal
from berth.controller.pool_source import read_pools
from berth.errors import BerthError, ClusterRefusedError, ClusterUnavailableError, SettingsError
from berth.handlers.wiring import ledger_of
from berth.kube.client import CONTEXT, current_context, kubeconfigs
from berth.kube.cluster import Cluster, connect
from berth.ledger.ledger import Ledger
from berth.local.event_relay import EventRelay
from berth.local.ports import free_port
from berth.local.processes import ORDER, Functions, Say, functions_folder
from berth.scheduler_config import haproxy, kube_scheduler
from berth.scheduler_config.haproxy import Proxy
from berth.scheduler_config.kube_scheduler import Calls
from berth.settings import Settings
from berth.stores import open_store, redacted
from berth.telemetry import traces

if TYPE_CHECKING:
    from berth.cli.dashboard import LiveView

_FIRST_PORT = 8080
_MOST_REPLICAS = 9
_LOOK_SECONDS = 2.0
_LEDGER_LOST = {
    "state": "closed",
    "why": "it was lost or may be older than it was; reconcile rebuilds it from the pods within a minute, "
    "berth reconcile at once",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser, makes=True)
    add_pools(parser)
    parser.add_argument(
        "--port",
        type=whole_number(0, LAST_FIRST_PORT),
        default=_FIRST_PORT,
        help=f"filter's port, 0 to {LAST_FIRST_PORT} (0: any free ones; default %(default)s); others follow",
    )
    parser.add_argument(
        "--scheduler-config", metavar="OUT", help="write a file that kube-scheduler --config takes"
    )
    parser.add_argument(
        "--proxy",
        metavar="FILE",
        help="protect the functions by a token, and write the configuration of an HAProxy that adds it to "
        "the scheduler's calls (with --scheduler-config)",
    )
    parser.add_argument("--proxy-tls", metavar="FOLDER", help=PROXY_TLS)
    parser.add_argument(
        "--single",
        action="store_true",
        help="serve the scheduler's calls under one URL: it makes none for pods that ask for no Pool",
    )
    parser.add_argument(
        "--replicas",
        type=whole_number(1, _MOST_REPLICAS),
        default=1,
        metavar="N",
        help=f"processes of each function, 1 to {_MOST_REPLICAS}; each call goes to the next of them in turn",
    )
    parser.add_argument(
        "--functions", metavar="DIR", help="take the functions from this folder, not Berth's own"
    )
    parser.add_argument("--json", action="store_true", help="print each change of state as a line of JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP. Raises SettingsError before anything is started."""
    _make_token(options)
    config = settings.from_environment()
    _check_access(config, options)
    traces.configure("berth-up")
    _check_ledger(config)
    cluster = connect()
    _check_cluster(config, cluster)
    written = Path(options.scheduler_config) if options.scheduler_config else None
    # The cluster may not have the kind yet: its Pools are read only if they are needed.
    needed = config.pools is not None or (options.single and written is not None)
    pools = read_pools(config.pools, cluster) if needed else {}
    store = open_store(config.store)
    ledger = Ledger(store, while_closed=True)
    troubles = Troubles()
    table = None if options.json else _live_table(ledger, troubles)
    say = troubles.noting(table.say) if table else say_json if options.json else say_text
    if not options.json:
        print_line(f"berth: ledger {redacted(config.store)}")
    folder = Path(options.functions).absolute() if options.functions else functions_folder()
    functions = Functions(folder, options.port, say, single=options.single, replicas=options.replicas)
    managed = sorted(by_resource(pools)) if options.single else None
    if written is not None:
        proxy = _write_proxy(options, functions.urls, say) if options.proxy else None
        calls = Calls(functions.urls, proxy and proxy.url, tls=proxy and proxy.tls)
        _write(written, calls, config, pools, managed, say)
    relay = EventRelay(
        cluster,
        functions.urls,
        config.scheduler_names,
        config.pools,
        say,
        observe=table.observe if table else None,
        hung=functions.end,
    )
    with closing(store):
        look = _looker(ledger, redacted(config.store), managed if written else None, say)
        stop = stop_signal()
        with table or contextlib.nullcontext():
            _run_until(stop, functions, relay, say, look)
    return 0


class Troubles:
    """What is wrong at the moment, by what was said: it stays on the screen until it is mended."""

    def __init__(self) -> None:
        self._lock, self._away, self._problems = threading.Lock(), "", list[str]()

    def noting(self, say: Say) -> Say:
        """Return a function that says what it is given, and keeps what is wrong in mind."""

        def said(what: Mapping[str, object]) -> None:
            self._note(what)
            say(what)

        return said

    def text(self) -> str:
        """Return a line about what is wrong now; empty: nothing is."""
        with self._lock:
            wrong = [*filter(None, [self._away]), *self._problems]
        more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
        return f"{wrong[0].splitlines()[0]}{more}" if wrong else ""

    def _note(self, what: Mapping[str, object]) -> None:
        state, why = what.get("state"), str(what.get("why", ""))
        with self._lock:
            if state in ("away", "back"):
                self._away = words(what).removeprefix("berth: ") if state == "away" else ""
            elif state == "problem":
                self._problems.append(why)
            elif state == "mended" and why in self._problems:
                self._problems.remove(why)


def _live_table(ledger: Ledger, troubles: Troubles) -> "LiveView | None":
    """Return the table of the ledger, if standard output is a terminal that can show it."""
    from berth.cli import dashboard  # rich takes 0.1 s to import

    class View(dashboard.LiveView):
        def _look(self) -> dashboard._Read:
            seen = super()._look()
            return seen._replace(trouble=seen.trouble or troubles.text())

    return View(ledger.view, words) if dashboard.possible() else None


def _run_until(
    stop: threading.Event, functions: Functions, relay: EventRelay, say: Say, look: Callable[[], None]
) -> None:
    try:
        functions.start()
        if functions.wait_ready(stop):
            relay.start()
            if relay.wait_first_reconcile(stop):
                say({"state": "ready"})
                while not stop.wait(_LOOK_SECONDS):
                    look()
    finally:
        say({"state": "stopping"})
        try:
            relay.stop()
        finally:
            functions.stop()
            traces.flush()


def _check_ledger(config: Settings) -> None:
    """Raise the store's error if it has no ledger for us: nothing would ever be ready."""
    with closing(open_store(config.store)) as store:
        Ledger(store, while_closed=True).check()


def _check_cluster(config: Settings, cluster: Cluster) -> None:
    """Raise OtherClusterError if the ledger is another cluster's."""
    # Reconcile reports an API server that is away, or refuses us.
    trouble = contextlib.suppress(ClusterUnavailableError, ClusterRefusedError)
    with closing(open_store(config.store)) as store, trouble:
        ledger_of(cluster, config, store, while_closed=True).require_cluster()


def _looker(ledger: Ledger, name: str, managed: Iterable[str] | None, say: Say) -> Callable[[], None]:
    """Return a function to be called now and then, which reports when the ledger is lost and when it is back.

    Where kube-scheduler sends only pods of `managed` resources, it reports a Pool that came later, too.
    """
    known = None if managed is None else set(managed)
    was_open = True

    def look() -> None:
        nonlocal was_open
        try:
            view = ledger.view()
        except BerthError:
            return  # reconcile reports a store that is down
        if view.open != was_open:
            was_open = view.open
            say({"ledger": name, "state": "open"} if was_open else {"ledger": name, **_LEDGER_LOST})
        if known is None:
            return
        for resource in sorted(view.resources.keys() - known):
            known.add(resource)
            again = "start berth up anew and restart kube-scheduler"
            say({"state": "problem", "why": f"kube-scheduler's configuration lacks {resource}: {again}"})

    return look


def _make_token(options: argparse.Namespace) -> None:
    """Make a token in a file, for the functions and the proxy that adds it, where none is set."""
    if options.proxy and not {"BERTH_AUTH_TOKEN", "BERTH_AUTH_TOKEN_FILE"} & os.environ.keys():
        os.environ["BERTH_AUTH_TOKEN_FILE"] = _token_file(options.proxy, secrets.token_urlsafe(32))


def _token_file(proxy: str, token: str) -> str:
    path = Path(f"{proxy}.token").absolute()
    kube_scheduler.write(path, f"{token}\n", "--proxy")
    return str(path)


def _check_access(config: Settings, options: argparse.Namespace) -> None:
    """Raise SettingsError where kube-scheduler, or we, could not call the functions."""
    if config.events.accounts:
        raise SettingsError(
            "BERTH_EVENTS_ACCOUNTS is for events that Knative sends; berth up sends its own, "
            "without a token: unset it"
        )
    if options.proxy and not options.scheduler_config:
        raise SettingsError(
            "--proxy is for kube-scheduler: name its configuration by --scheduler-config, too"
        )
    if options.proxy_tls is not None and not (options.proxy and options.proxy_tls):
        raise SettingsError("--proxy-tls is a folder, for the proxy: name that by --proxy")
    if options.proxy and not re.fullmatch(r"[\w.~+/-]+=*", config.access.token or "", re.ASCII):
        raise SettingsError(
            "the token has characters that a proxy can't send (RFC 6750): letters, digits and -._~+/ will do"
        )
    if options.scheduler_config and not options.proxy:
        refuse_a_token(config.access)


def _write_proxy(options: argparse.Namespace, urls: Mapping[str, str], say: Say) -> Proxy:
    """Write the proxy's configuration, and its token unless that has a file."""
    token = os.environ.get("BERTH_AUTH_TOKEN_FILE")
    if token is None:
        token = _token_file(options.proxy, os.environ["BERTH_AUTH_TOKEN"])
    port = options.port + len(ORDER) if options.port else free_port()
    tls = str(Path(options.proxy_tls).absolute()) if options.proxy_tls else None
    proxy = Proxy(port, str(Path(token).absolute()), tls=tls)
    haproxy.write(Path(options.proxy), haproxy.haproxy(proxy, urls, None, Calls(urls).timeout))
    say({"proxy": options.proxy, "state": "written", "url": proxy.url})
    return proxy


def _write(
    path: Path,
    calls: Calls,
    config: Settings,
    pools: Mapping[str, Pool],
    managed: Sequence[str] | None,
    say: Say,
) -> None:
    document = kube_scheduler.configuration(
        calls,
        kubeconfig=_kubeconfig_of_scheduler(),
        schedulers=config.scheduler_names,
        groups={GROUP, *(pool.resource.partition("/")[0] for pool in pools.values())} - {NATIVE},
        managed=managed,
    )
    kube_scheduler.write(path, kube_scheduler.as_yaml(document), "--scheduler-config")
    say({"schedulerConfig": str(path), "state": "written"})


def _kubeconfig_of_scheduler() -> str:
    """Return the path of the kubeconfig for kube-scheduler, which takes one, and its current context.

    Raises SettingsError where that is not the context that we use."""
    listed = kubeconfigs()
    path = listed.split(os.pathsep)[0]
    context = os.environ.get(CONTEXT) or current_context(listed)
    if context != current_context(path):
        raise SettingsError(
            f"--scheduler-config: kube-scheduler takes one kubeconfig and its current context, and that of "
            f"{path} is not {context}: make one by kubectl config view --minify --flatten "
            f"--context {context} > FILE, and name it by --kubeconfig"
        )
    return str(Path(path).absolute())
