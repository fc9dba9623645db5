"""Tests side by side (`pytest -n 4`, as in `make test`); beside one marked `alone` run quiet ones at most.
Also what tests have measured, told at the end of any run. One process alone runs them as pytest does."""

import fcntl
import json
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from berth.local.ports import FIRST, LAST

MEASURED = "measured: "  # begins a line that a test prints for whoever reads the run
_FOLDER = "berth-neighbours"  # what a process is told: where the locks and the groups are
# The longest first: with them at the end one process would wait for the other. Other folders are between.
_FIRST = (
    *("knative", "dynamodb_local", "e2e", "chaos", "controlplane", "testing", "bench", "properties"),
    *("project", "local", "cli", "http", "stores"),
)
_LAST = "unit"
_ONE_PROCESS = ("knative", "dynamodb_local")  # a session of theirs stands for minutes
# What takes seconds of a core to start, and some of one to stand there: one is enough for all processes.
_SERVERS = {"configmap_server": "configmap", "moto_server": "dynamodb", "redis_cluster": "redis-cluster"}


class _Measured:
    """Gathers the measured lines of all tests, in whichever process they ran."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":  # the last one; it has all that was printed since the setup
            self._lines += [line for line in report.capstdout.splitlines() if line.startswith(MEASURED)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section("measured")
            for line in self._lines:
                terminalreporter.line(line.removeprefix(MEASURED))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: states a time, which a busy machine would falsify")
    config.addinivalue_line("markers", "group(name): never beside another test of this group")
    if (told := _told(config)) is None:
        config.pluginmanager.register(_Measured())
    else:
        os.environ["BERTH_PORTS"] = _ports(told)


# In the process that leads the run


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Hands out test by test, in the order they were collected in; those of a group to one process.

    xdist's own `loadgroup` finds no group under pytest 9.
    """

    def __init__(self, config: pytest.Config, log: Any, folder: Path) -> None:
        super().__init__(config, log)
        self._folder = folder
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            self._groups = json.loads((self._folder / "groups").read_text())
        return self._groups.get(nodeid, nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist's, called for each process before it starts."""
    node.workerinput[_FOLDER] = str(_shared(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    config.option.loadscopereorder = False
    return _ByGroup(config, log, _shared(config))


def _shared(config: pytest.Config) -> Path:
    if not hasattr(config.option, _FOLDER):
        folder = tempfile.TemporaryDirectory(prefix="berth-neighbours-")
        config.add_cleanup(folder.cleanup)
        setattr(config.option, _FOLDER, folder.name)
    return Path(getattr(config.option, _FOLDER))


# In the processes that run the tests


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (told := _told(config)) is None:
        return
    items.sort(key=lambda item: (_is_alone(item), _is_quiet(item), _rank(item)))
    groups = {item.nodeid: group for item in items if (group := _group(item))}
    fresh = Path(told[_FOLDER]) / f"groups-{told['workerid']}"
    fresh.write_text(json.dumps(groups))
    fresh.rename(fresh.with_name("groups"))  # each process writes the same


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if (told := _told(item.config)) is None:
        return (yield)
    if _is_quiet(item):
        return (yield)
    with _turn(Path(told[_FOLDER]), alone=_is_alone(item)):
        return (yield)


def _told(config: pytest.Config) -> Mapping[str, Any] | None:
    """What the leading process told this one; None in that one, and where there is but one."""
    told: Mapping[str, Any] | None = getattr(config, "workerinput", None)
    return told


def _ports(told: Mapping[str, Any]) -> str:
    """A share of the ports for each process: two that draw at the same time could draw the same."""
    number, count = int(told["workerid"].removeprefix("gw")), told["workercount"]
    share = (LAST + 1 - FIRST) // count
    return f"{FIRST + number * share}-{FIRST + (number + 1) * share - 1}"


def _group(item: pytest.Item) -> str:
    """Tests of one group run in one process: what they share is then set up only once."""
    if _is_alone(item):
        return "alone"
    if _is_quiet(item):
        return "quiet"
    if (named := item.get_closest_marker("group")) is not None:
        return str(named.args[0])
    if _folder(item) in _ONE_PROCESS:
        return _folder(item)
    if not isinstance(item, pytest.Function):
        return ""
    scopes = {fixture.scope for named in item._fixtureinfo.name2fixturedefs.values() for fixture in named}
    if "package" in scopes:
        return str(item.path.parent)
    if "module" in scopes:
        return str(item.path)
    return _server(item)


def _server(item: pytest.Function) -> str:
    """The store whose server the test shares with others; empty if it has none, or one that costs little."""
    place = item.callspec.params.get("place") if hasattr(item, "callspec") else None
    named = (_SERVERS[name] for name in item.fixturenames if name in _SERVERS)
    return f"on {place}" if place in _SERVERS.values() else next((f"on {name}" for name in named), "")


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def _is_quiet(item: pytest.Item) -> bool:
    """Whether it may run beside one that is alone: a single process runs all of these, on one core."""
    return _folder(item) == _LAST and item.get_closest_marker("fast") is not None


def _rank(item: pytest.Item) -> int:
    folder = _folder(item)
    return _FIRST.index(folder) if folder in _FIRST else len(_FIRST) + (folder == _LAST)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath / "tests").parts[0]


@contextmanager
def _turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Among others, or alone. Who waits to be alone holds the door, so that nobody goes in before him."""
    with ExitStack() as stack:
        with _locked(folder / "door", fcntl.LOCK_EX):
            stack.enter_context(_locked(folder / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)
