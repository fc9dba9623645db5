"""`berth sysdump`: an archive with what a maintainer would ask for, to be read by a person before it is sent.
It only reads, and no Secret but the one that names the store, where nothing else does. What can't be read,
for want of a right or a server, stands in errors.txt and ends nothing."""

import argparse
import contextlib
import io
import os
import platform
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from berth import __version__, settings
from berth.cli.output import say
from berth.cli.shared_options import add_kubeconfig, add_pools, add_store, existing_ledger
from berth.controller.conditions import why_closed
from berth.controller.pool_source import documents
from berth.controller.sysdump import ClusterDump, Which, view_of
from berth.errors import BerthError, ClusterRefusedError, SettingsError
from berth.kube.cluster import connect
from berth.ledger.ledger import Ledger
from berth.ledger.view import View
from berth.redaction import Redactor, shown
from berth.settings import Settings
from berth.stores import redacted

_FOLDER = "berth-sysdump"  # in the archive
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MISTAKES = (BerthError, OSError, ValueError, LookupError, TypeError, AttributeError)
_WELL = {"Ready": "True", "Available": "True", "Suspended": "False", "OverCommitted": "False"}
_SHOWN = ("BERTH_", "KUBECONFIG", "FUNCTION_", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kubeconfig(parser)
    add_store(parser)
    add_pools(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.tar.gz",
        help="the archive to write, which must not be there yet (default: berth-sysdump-TIME.tar.gz here)",
    )
    parser.add_argument(
        "--since", metavar="TIME", type=_seconds, default="1h", help="logs of the last 30s, 10m, 1h, 2d (1h)"
    )
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", default="berth", help="where the functions run (default: berth)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the archive; 0 also if some of it could not be read."""
    now = time.time()
    at = datetime.fromtimestamp(now, UTC)
    path = Path(options.output or f"berth-sysdump-{at:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise SettingsError(f"{path} is there already: name another file with -o")
    dump = Dump(Which(("berth",), options.namespace, options.since), os.environ)
    files = dump.collect(at)
    _write(path, files, now)
    say(f"{path}: {len(files)} files, {-(-path.stat().st_size // 1024)} KiB")
    if dump.missed:
        say(f"{len(dump.missed)} things could not be read: errors.txt in it says which, and why")
    say("read it before you send it: it has names of pods, nodes and namespaces, and logs")
    return 0


class Dump:
    """What is collected for an archive. Each part fails by itself; `missed` has a line for each failure."""

    def __init__(self, which: Which, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.redactor = Redactor()
        self.collected: dict[str, Any] = {}
        self.missed: list[str] = []
        self._settings = self._read_settings()
        self._which = which._replace(schedulers=self._settings.scheduler_names)
        self._unreachable: BerthError | None = None

    def collect(self, at: datetime) -> dict[str, str]:
        """Return the files by name, without secrets."""
        for name, part in PARTS:
            try:
                content = part(self)
                if content is not None:
                    self.collected[name] = dict(content) if isinstance(content, Iterator) else content
            except _MISTAKES as error:
                self.miss(name, str(error) or type(error).__name__)
        files: dict[str, str] = {}
        for name, content in self.collected.items():
            if name.endswith("/"):
                files |= {f"{name}{_file_name(each)}": text for each, text in content.items()}
            else:
                files[name] = content if isinstance(content, str) else _json(content)
        files["errors.txt"] = "".join(f"{line}\n" for line in self.missed) or "all was read\n"
        # Last, because parts that come late know of secrets that may stand in those before.
        files = {name: self.redactor.text(text) for name, text in files.items()}
        head = [f"berth sysdump of {at:%Y-%m-%dT%H:%M:%SZ}", *self._headlines()]
        return {"summary.txt": self.redactor.text(summary(head, self.collected, self.missed, files)), **files}

    def miss(self, what: str, why: str) -> None:
        """Remember what could not be read, and why."""
        line = f"{what}: {why}"
        if line not in self.missed:
            self.missed.append(line)

    @cached_property
    def view(self) -> View:
        """The ledger as it is. Raises store errors, SettingsError."""
        with existing_ledger(self._settings.store, reads_only=True) as store:
            return Ledger(store, while_closed=True).view()

    @property
    def cluster(self) -> ClusterDump:
        """What reads the cluster. Raises cluster errors where nobody answers; that is tried once."""
        if self._unreachable is not None:
            raise self._unreachable
        try:
            return self._cluster
        except BerthError as error:
            self._unreachable = error
            raise

    @cached_property
    def _cluster(self) -> ClusterDump:
        connected = connect()
        try:
            view = self.view
        except BerthError:
            view = View()  # the part `ledger.json` says why
        dump = ClusterDump(connected, view, self._which, self.redactor, self.miss)
        version: Mapping[str, Any] = {}
        try:
            version = dump.version()
        except ClusterRefusedError as error:
            self.miss("cluster-version.json", str(error))
        self.collected["cluster-version.json"] = {"host": connected.host, **version}
        return dump

    def versions(self) -> object:
        """Return the versions of Berth and of what it runs on."""
        return {"berth": __version__, "python": platform.python_version(), "system": platform.platform()}

    def settings(self) -> object:
        """Return the variables that Berth reads, without secrets."""
        named = {name: text for name, text in self._environment.items() if name.startswith(_SHOWN)}
        return {name: shown(name, named[name]) for name in sorted(named)}

    def ledger(self) -> object:
        """Return all that the ledger holds."""
        return view_of(self.view)

    def pools_file(self) -> object:
        """Return the documents in BERTH_POOLS' file, if Pools come from one."""
        return None if self._settings.pools is None else documents(self._settings.pools)

    def said(self, *arguments: str) -> str:
        """Return what another command prints, as a person would see it."""
        from berth.cli.arguments import parsed

        out, remarks = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(remarks):
            try:
                options = parsed(arguments)
                code = options.run(options)
            except SystemExit as leaving:
                code = leaving.code
            except BerthError as error:
                code = 1
                remarks.write(f"berth: {error}\n")
                self.miss(f"berth {' '.join(arguments)}", str(error))
        end = f"(exit code {code})\n" if code else ""
        return f"$ berth {' '.join(arguments)}\n{out.getvalue()}{remarks.getvalue()}{end}"

    def _headlines(self) -> list[str]:
        """Return a line for each of what runs, the ledger, its claims and our pods."""
        cluster, pods = self.collected.get("cluster-version.json"), self.collected.get("pods.json")
        where = (
            f"Kubernetes {cluster.get('gitVersion', '?')} at {cluster['host']}" if cluster else "no cluster"
        )
        ledger, claims = "not known", "not known"
        if "ledger.json" in self.collected:
            ledger = why_closed(self.view) or "open"
            states = [claim.state for claim in self.view.claims()]
            claims = ", ".join(f"{states.count(state)} {state}" for state in ("bound", "reserved", "lost"))
        ours = "not known"
        if pods is not None:
            waiting = sum(not pod["spec"].get("nodeName") for pod in pods)
            ours = f"{len(pods)}, {waiting} of them without a node"
        return [
            f"berth {__version__}, Python {platform.python_version()}; {where}",
            f"ledger in {redacted(self._settings.store)}: {ledger}",
            f"claims: {claims}",
            f"pods of ours: {ours}",
        ]

    def _read_settings(self) -> Settings:
        ours = {name: text for name, text in self._environment.items() if name.startswith(("BERTH_", "AWS_"))}
        self.redactor.learn_settings(ours)
        try:
            config = settings.from_environment(self._environment)
        except SettingsError as error:
            self.miss("settings", str(error))
            return Settings(store=self._environment.get("BERTH_STORE") or settings.DEFAULT_STORE)
        self.redactor.learn([config.access.token, config.external.token, config.events.token])
        return config


def _said(*arguments: str) -> Callable[[Dump], object]:
    return lambda dump: dump.said(*arguments)


def _of_cluster(read: Callable[[ClusterDump], object]) -> Callable[[Dump], object]:
    return lambda dump: read(dump.cluster)


PARTS: tuple[tuple[str, Callable[[Dump], object]], ...] = (
    ("version.json", Dump.versions),
    ("settings.json", Dump.settings),
    ("ledger.json", Dump.ledger),
    ("pools-file.json", Dump.pools_file),
    ("status.txt", _said("status")),
    ("claims.txt", _said("claims")),
    ("units.txt", _said("claims", "--units")),
    ("waiting.txt", _said("waiting")),
    ("doctor.txt", _said("doctor")),
    ("version.txt", _said("version")),
    ("pools.json", _of_cluster(ClusterDump.pools)),
    ("poolclaims.json", _of_cluster(ClusterDump.poolclaims)),
    ("pods.json", _of_cluster(ClusterDump.pods)),
    ("nodes.json", _of_cluster(ClusterDump.nodes)),
    ("crds.json", _of_cluster(ClusterDump.definitions)),
    ("workloads.json", _of_cluster(ClusterDump.workloads)),
    ("function-pods.json", _of_cluster(ClusterDump.function_pods)),
    ("events.json", _of_cluster(ClusterDump.events)),
    ("configmaps/", _of_cluster(ClusterDump.config_maps)),
    ("logs/", _of_cluster(ClusterDump.logs)),
)
"""The archive's files and what collects each: text, what JSON can have, or the files of a folder by name.
One more command's screen is one more line with `_said`; but not `check`, which reads Secrets."""


def summary(
    head: Sequence[str], collected: Mapping[str, Any], missed: Sequence[str], files: Mapping[str, str]
) -> str:
    """Return what a person reads first; `head` are its first lines."""
    lines = [
        *head,
        *_section("what is not well", _unwell(collected)),
        *_section("berth doctor", collected.get("doctor.txt", "").splitlines()),
        *_section("what could not be read (errors.txt)", missed),
        *_section("berth status", collected.get("status.txt", "").splitlines()),
        *_section("files", [f"{len(text.encode()):>9} {name}" for name, text in files.items()]),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {line}" for line in lines or ["nothing"])]


def _unwell(collected: Mapping[str, Any]) -> list[str]:
    """Return a line for each condition that is not as it should be, and for what nobody could look at."""
    parts = {"Pool": "pools.json", "PoolClaim": "poolclaims.json", "Node": "nodes.json"}
    listed = [(kind, one) for kind, part in parts.items() for one in collected.get(part) or ()]
    workloads = (collected.get("workloads.json") or {}).items()
    listed += [(kind, one) for kind, documents in workloads for one in documents]
    lines = [f"not known: {part}" for part in (*parts.values(), "workloads.json") if part not in collected]
    for kind, document in listed:
        name = "/".join(filter(None, (document["metadata"].get("namespace"), document["metadata"]["name"])))
        for condition in (document.get("status") or {}).get("conditions") or ():
            if condition["status"] != _WELL.get(condition["type"], condition["status"]):
                why = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                lines.append(f"{kind} {name}: {condition['type']} is {condition['status']}: {why}")
    return lines


def _json(content: object) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _file_name(name: str) -> str:
    """Return a name for a file in the archive; it comes from the cluster."""
    return "/".join(re.sub(r"[^\w.-]", "_", part).lstrip(".") or "_" for part in name.split("/"))


def _write(path: Path, files: Mapping[str, str], now: float) -> None:
    """Write the archive, for its owner's eyes. Raises OSError or SettingsError, and leaves no half of one."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            body = text.encode()
            member = tarfile.TarInfo(f"{_FOLDER}/{name}")
            member.size, member.mtime, member.mode = len(body), int(now), 0o600
            archive.addfile(member, io.BytesIO(body))
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(packed.getvalue())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SettingsError(f"can't write {path}: {error.strerror}") from error
        raise


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} should be a time such as 30s, 10m, 1h or 2d")
    return int(match[1]) * _UNITS[match[2]]
