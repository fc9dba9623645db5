"""`berth version`: of this command, of the ledger, of the API server and of the functions in the cluster.
What can't be reached is said and is no failure; it writes nothing."""

import argparse
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from berth import __version__, settings
from berth.cli.output import as_given, note, show
from berth.cli.shared_options import add_kubeconfig, add_output, add_store, existing_ledger
from berth.cli.status import ledger_state
from berth.cli.tables import printable
from berth.controller import infra
from berth.controller.infra import NAMESPACE
from berth.errors import BerthError, NoClusterError
from berth.kube.cluster import Cluster, connect
from berth.kube.configuration import tag_of
from berth.ledger.ledger import Ledger
from berth.stores import redacted

_SECONDS = 3.0  # for each request
Connect = Callable[[], Cluster]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """`why`: why it is not known, or for a ledger, why nothing is given out of it; empty: all is well."""

    why: str = ""


class ClientVersion(_Part, frozen=True, kw_only=True):
    """This command."""

    version: str
    python: str


class LedgerVersion(_Part, frozen=True, kw_only=True):
    """The ledger: its epoch changes whenever it was rebuilt, or moved to another store."""

    store: str
    epoch: str = ""
    since: datetime | None = None


class ClusterVersion(_Part, frozen=True, kw_only=True):
    """The API server."""

    server: str = ""
    version: str = ""


class FunctionVersion(msgspec.Struct, frozen=True):
    """One function in the cluster."""

    name: str
    image: str


class FunctionVersions(_Part, frozen=True, kw_only=True):
    """The functions of the namespace `berth`: Knative Services or Deployments."""

    images: Sequence[FunctionVersion] = ()


class Versions(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of them; with --client only the command's."""

    client: ClientVersion
    ledger: LedgerVersion | None = None
    cluster: ClusterVersion | None = None
    functions: FunctionVersions | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    parser.add_argument("--client", action="store_true", help="only this command's, and ask nobody")
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the versions of what can be reached."""
    client = ClientVersion(version=__version__, python=platform.python_version())
    versions = Versions(client)
    if not options.client:
        versions = Versions(client, ledger(settings.from_environment().store), *in_cluster(connect))
    if options.output != "table":
        show(versions, options.output)
        return 0
    print("\n".join(printable(as_given(line, options)) for line in lines(versions)))
    tags = {tag_of(one.image) for one in versions.functions.images} if versions.functions else set()
    if tags - {__version__, ""}:
        note(f"the functions' tag is {' and '.join(sorted(tags))}, and this command is {__version__}")
    return 0


def lines(versions: Versions) -> list[str]:
    """Return the versions for a person, a line each."""
    texts = [("berth", f"{versions.client.version}, Python {versions.client.python}")]
    if (ledger := versions.ledger) is not None:
        since = (
            "" if ledger.since is None else f", epoch {ledger.epoch} since {ledger.since:%Y-%m-%dT%H:%M:%SZ}"
        )
        texts.append(("ledger", f"{ledger.store}{since}" + (f": {ledger.why}" if ledger.why else "")))
    if (cluster := versions.cluster) is not None:
        known = f"Kubernetes {cluster.version} at {cluster.server}"
        texts.append(("cluster", f"not known: {cluster.why}" if cluster.why else known))
    if (functions := versions.functions) is not None:
        texts += [("functions", text) for text in _function_lines(functions)]
    return [f"{name:<11}{text}" for name, text in texts]


def _function_lines(functions: FunctionVersions) -> list[str]:
    by_image: dict[str, list[str]] = {}
    for one in functions.images:
        by_image.setdefault(one.image, []).append(one.name)
    images = [f"{image} ({', '.join(sorted(names))})" for image, names in sorted(by_image.items())]
    return images or [f"not known: {functions.why}"]


def ledger(url: str) -> LedgerVersion:
    """Return the ledger's epoch, or why it has none that can be read."""
    store = redacted(url)
    try:
        with existing_ledger(url, reads_only=True) as opened:
            view = Ledger(opened, while_closed=True).view()
    except BerthError as error:
        return LedgerVersion(store=store, why=str(error))
    why = ledger_state(url, view).why
    if view.epoch is None:
        return LedgerVersion(store=store, why=why)
    since = datetime.fromtimestamp(int(view.epoch.since), UTC)
    return LedgerVersion(store=store, epoch=view.epoch.id, since=since, why=why)


def in_cluster(connect: Connect) -> tuple[ClusterVersion, FunctionVersions]:
    """Return the API server's version and the functions' images, or why they can't be had. Raises
    SettingsError where a cluster is named by what is no kubeconfig."""
    try:
        cluster = connect()
    except NoClusterError as error:
        return ClusterVersion(why=str(error)), FunctionVersions(why="there is no cluster to ask")
    try:
        version = ClusterVersion(server=cluster.host, version=cluster.version(_SECONDS))
    except BerthError as error:
        why = ClusterVersion(server=cluster.host, why=str(error))
        return why, FunctionVersions(why="the cluster does not answer")
    try:
        functions = infra.functions(cluster, _SECONDS)
    except BerthError as error:
        return version, FunctionVersions(why=str(error))
    images = [FunctionVersion(one.metadata.name, image) for one in functions for image in one.images]
    return version, FunctionVersions(images=images, why="" if images else f"namespace {NAMESPACE} has none")
