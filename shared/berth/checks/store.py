"""The ledger's store: whether it answers, how quickly, and whether its server keeps what it is given.
It reads one document some times, and writes nothing."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

from berth import stores
from berth.checks.clock import MOST, apart
from berth.checks.finding import Check, Finding, Rule
from berth.checks.inputs import Inputs
from berth.errors import SettingsError, StoreFailedError, StoreUnavailableError
from berth.kube.configuration import Named, minor_of
from berth.ledger.model import epoch_of
from berth.stores import open_store, redacted
from berth.stores.base import EPOCH, Described, Document, Local, ServerFacts, Store

_READS, _SLOW = 7, 0.010
_SQLITE = "sqlite:///"
_MOUNTS = Path("/proc/self/mounts")
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "ceph", "fuse.glusterfs", "lustre", "afs")
_REDIS = "docs/stores/redis.md#settings-of-the-server"

UNREACHABLE = Rule(
    id="store.unreachable",
    severity="error",
    meaning=(
        "The store does not answer from here, or its URL is wrong. While functions can't reach it nothing "
        "is bound."
    ),
    action="See what the message names: the URL, the network, the login.",
    more="docs/runbook.md#what-a-pods-event-says-and-what-to-do",
)
ABSENT = Rule(
    id="store.absent",
    severity="warning",
    meaning=(
        "There is no ledger in the store, or it is being rebuilt. No pod is bound until reconcile has "
        "opened it."
    ),
    action="Wait a minute, or run berth reconcile; see that BERTH_STORE is the functions' own.",
    more="docs/promises.md#8-the-ledger-can-be-thrown-away",
)
CLOSED = Rule(
    id="store.closed",
    severity="error",
    meaning="The ledger was moved to another store, or is being copied to one: nothing is given out of it.",
    action="Set BERTH_STORE to the store that is named, or end the pause (berth store resume).",
    more="docs/stores/index.md",
)
SLOW = Rule(
    id="store.slow",
    severity="warning",
    meaning="The store takes more than 10 ms to answer from here. Each call of the scheduler waits for it.",
    action="Put the store near the functions; see what else uses its machine.",
    more="docs/capacity-planning.md#the-store",
)
EVICTION = Rule(
    id="store.eviction",
    severity="error",
    meaning=(
        "Redis drops keys when its memory is full (maxmemory-policy). Each time it does, the ledger is lost."
    ),
    action="Set maxmemory-policy noeviction.",
    more=_REDIS,
)
PERSISTENCE = Rule(
    id="store.persistence",
    severity="warning",
    meaning="Redis keeps nothing over a restart. The ledger is rebuilt from the pods each time.",
    action="Set appendonly yes.",
    more=_REDIS,
)
CLOCK = Rule(
    id="store.clock",
    severity="warning",
    meaning="The store's clock and this machine's are more than two seconds apart.",
    action="Let both machines take their time from a time server (NTP).",
    more="docs/stores/redis.md",
)
VERSION = Rule(
    id="store.version",
    severity="error",
    meaning="Redis is older than 7. Berth's scripts are not tried there.",
    action="Upgrade to Redis 7 or Valkey.",
    more="docs/stores/redis.md",
)
RECOVERY = Rule(
    id="store.recovery",
    severity="warning",
    meaning="The DynamoDB table has no point-in-time recovery.",
    action="Run berth store init with the table's URL.",
    more="docs/stores/dynamodb.md",
)
NAMESPACE = Rule(
    id="store.namespace",
    severity="error",
    meaning="The namespace of the ledger's ConfigMaps is not there.",
    action="Make it: the component configmap has it, with the functions' rights in it.",
    more="docs/stores/configmap.md",
)
LOCAL = Rule(
    id="store.local",
    severity="error",
    meaning="The functions run in a cluster, and the ledger is a file: each pod would have its own.",
    action="Name another store: ConfigMaps, Redis or DynamoDB.",
    more="docs/stores/index.md",
)
FOLDER = Rule(
    id="store.folder",
    severity="error",
    meaning="The ledger's folder can't be written. SQLite makes files beside the ledger's.",
    action="Give this user the right to write it, or name another folder.",
    more="docs/stores/sqlite.md",
)
NETWORK = Rule(
    id="store.network",
    severity="error",
    meaning=(
        "The ledger's file is on a network file system, where SQLite's locks do not hold. Units are given "
        "twice."
    ),
    action="Put it on a disk of this machine, or take another store.",
    more="docs/stores/sqlite.md",
)

SQLITE = Rule(
    id="store.sqlite",
    severity="warning",
    meaning=(
        "Python's SQLite is older than 3.51.3: where one program copies the log into the file while another "
        "commits, the file can be damaged. Berth never does both at once; another program might."
    ),
    action="Let no other program write the ledger's file, and take a newer SQLite when Python has it.",
    more="docs/stores/sqlite.md#the-log-and-its-checkpoints",
)


def _place(inputs: Inputs) -> Iterator[Finding]:
    """What can be told of the URL without a call."""
    url = inputs.store
    if url is None:
        inputs.skip("the store", "nothing names it (--store)", *_OF_PLACE)
        return
    if url.startswith(_SQLITE):
        yield from _file(inputs, url)
    if inputs.options.pre:
        inputs.leave(NAMESPACE)
    elif url.startswith("configmap://"):
        namespace = url.removeprefix("configmap://").partition("/")[0]
        if inputs.cluster.one(Named, f"/api/v1/namespaces/{namespace}") is None:
            yield NAMESPACE.finding(f"there is no namespace {namespace}", namespace)


def _file(inputs: Inputs, url: str) -> Iterator[Finding]:
    if inputs.functions:
        yield LOCAL.finding(f"the store is {url}, and the functions run in the cluster", url)
    folder = Path(url.removeprefix(_SQLITE)).absolute().parent
    nearest = next(parent for parent in (folder, *folder.parents) if os.access(parent, os.F_OK))
    if not os.access(nearest, os.W_OK | os.X_OK) or not nearest.is_dir():
        yield FOLDER.finding(f"{nearest} can't be written", str(nearest))
    if caution := stores.caution(url):
        yield SQLITE.finding(caution, url)
    kind = file_system(nearest, _mounts())
    if kind in _SHARED:
        yield NETWORK.finding(f"{nearest} is on {kind}", str(nearest))


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return ""


def file_system(path: Path, mounts: str) -> str:
    """Return the kind of the file system that has the path, by the lines of /proc/self/mounts; empty where
    they do not say."""
    fields = [line.split() for line in mounts.splitlines()]
    kinds = {Path(field[1].replace("\\040", " ")): field[2] for field in fields if len(field) > 2}
    real = path.resolve()
    return next((kinds[parent] for parent in (real, *real.parents) if parent in kinds), "")


def _answers(inputs: Inputs) -> Iterator[Finding]:
    url = inputs.store
    if url is None or (url.startswith(_SQLITE) and inputs.functions):
        inputs.leave(*_OF_STORE, *_OF_LEDGER)
        return
    if inputs.options.pre:
        inputs.leave(ABSENT)
    try:
        with closing(open_store(url, reads_only=True)) as store:
            if isinstance(store, Local) and not store.is_there():
                inputs.leave(*_OF_LEDGER)
                if not inputs.options.pre:
                    yield ABSENT.finding(f"there is no ledger at {redacted(url)}", redacted(url))
                return
            yield from _read(inputs, store, redacted(url))
            facts = store.facts() if isinstance(store, Described) else ServerFacts()
            yield from _described(inputs, facts, redacted(url))
    except (SettingsError, StoreUnavailableError, StoreFailedError) as error:
        inputs.leave(*_OF_STORE, *_OF_LEDGER)
        yield UNREACHABLE.finding(str(error), redacted(url))


def _read(inputs: Inputs, store: Store, name: str) -> Iterator[Finding]:
    times = []
    there: Mapping[str, Document] = {}
    for _ in range(_READS):
        before = inputs.monotonic()
        there = store.read([EPOCH])
        times.append(inputs.monotonic() - before)
    inputs.store_seconds = median(times)
    if inputs.store_seconds > _SLOW:
        yield SLOW.finding(f"{name}: {1000 * inputs.store_seconds:.0f} ms a read (median of {_READS})", name)
    if not there and not inputs.options.pre:
        yield ABSENT.finding(f"the ledger in {name} is new or being rebuilt", name)
    epoch = epoch_of(there)
    if epoch is not None and (trouble := epoch.trouble()) is not None:
        yield CLOSED.finding(str(trouble), name)


def _described(inputs: Inputs, facts: ServerFacts, name: str) -> Iterator[Finding]:
    """What a server says of itself."""
    told: dict[Rule, object] = {
        VERSION: facts.version,
        EVICTION: facts.eviction,
        PERSISTENCE: facts.persistent,
    }
    told |= {CLOCK: facts.clock, RECOVERY: facts.recovery}
    inputs.leave(*(rule for rule, fact in told.items() if fact in (None, "")))
    for unknown in facts.unknown:
        inputs.skip(name, unknown)
    if facts.version and minor_of(facts.version) < (7, 0):
        yield VERSION.finding(f"{name} is Redis {facts.version}", name)
    if facts.eviction.startswith("allkeys"):
        yield EVICTION.finding(f"{name}: maxmemory-policy is {facts.eviction}", name)
    if facts.persistent is False:
        yield PERSISTENCE.finding(f"{name}: neither appendonly nor save is set", name)
    if facts.recovery is False:
        yield RECOVERY.finding(f"{name}: point-in-time recovery is off", name)
    if facts.clock is not None:
        now = inputs.clock()
        seconds = apart(facts.clock, now, now)
        if seconds > MOST:
            yield CLOCK.finding(f"{name}: its clock and this machine's are {seconds:.0f} s apart", name)


_OF_PLACE = (LOCAL, FOLDER, NETWORK, NAMESPACE, SQLITE)
_OF_STORE = (UNREACHABLE, ABSENT)
_OF_LEDGER = (CLOSED, SLOW, EVICTION, PERSISTENCE, CLOCK, VERSION, RECOVERY)

CHECKS = (
    Check("the store's place", _place, _OF_PLACE),
    Check("the store", _answers, (*_OF_STORE, *_OF_LEDGER)),
)
