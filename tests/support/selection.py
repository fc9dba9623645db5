"""Which tests `make test` leaves to `make test-long`, which of these are for the night (`make test-nightly`),
and which are for `make test-fast`. pytest by itself runs them all.

What is said of every store, `make test` and `make test-long` show on SQLite, and `make test-nightly` on the
others; what is marked `every_store`, and tests/stores, `make test` shows on all of them.
`make test-fast` runs what needs no server, no process of Berth's and no second of a core.
`python -m tests.support.selection` writes their names into tests/LONG.md.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

IS_LONG = os.environ.get("BERTH_TEST_LONG") == "1"
TIMES = int(os.environ.get("BERTH_TEST_EXAMPLES", "1"))
"""How many times as many random examples: `BERTH_TEST_EXAMPLES=10 make test-long`."""
LIST = Path(__file__).parents[1] / "LONG.md"
COLLECTED = pytest.StashKey[dict[str, set[str]]]()
"""By file that was collected, the tests in it that are marked `long`."""
_NEAREST = "sqlite"  # a file: no server to start, none to ask
_FAST_FOLDERS = {"unit", "stores", "ledger", "handlers", "features"}
_NEVER_FAST = ("long", "nightly", "slow", "alone")
_OTHER_STORES = {"configmap", "dynamodb", "redis", "cluster"}
_SERVERS = {"binaries", "redis_installed", "moto_server", "haproxy_program"}  # fixtures that start or build
SUITES = ("knative", "dynamodb_local", "fuzz")
"""Folders that are collected when they are named alone."""
_NIGHTLY = " (nightly)"  # after a test's id, in the list
_HEAD = """# Tests that only `make test-long` and `make test-nightly` run

Written by `python -m tests.support.selection`; tests/project/test_long.py compares it with the marks.
In brackets: the parameters with which a test runs there; with others it runs in `make test`.
What is marked `(nightly)` runs in `make test-nightly` alone: a kind of test of which another one runs in
`make test-long`.
The suites `tests/knative`, `tests/dynamodb_local` and `tests/fuzz` run there, too.
What is marked `drawn` runs in all of them: there with more random examples, steps or rounds.
"""

# A busy laptop is no failure: what an example costs is not what these tests are about. With every change they
# are the same, so that none fails for what another brought; who asks for more draws others each time.
settings.register_profile("berth", deadline=None, derandomize=TIMES == 1, print_blob=True)
settings.load_profile("berth")


def examples(short: int, full: int) -> int:
    """How many random examples a test draws, or rounds it makes: `full` in `make test-long`, twice as many in
    `make test-nightly`, and TIMES as many where somebody asks for more."""
    return TIMES * full if IS_LONG else short


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "long: runs in `make test-long` alone",
        "nightly: runs in `make test-nightly` alone: one of its kind runs with every change",
        "drawn: tries more in `make test-long`: examples at random, steps, rounds",
        "every_store: runs on every store in `make test`, too",
        "suite: of a folder that pytest collects when it is named alone",
        "slow: takes a second of a core or more, or waits for so long: not in `make test-fast`",
        "fast: runs in `make test-fast`; who may, is found out",
    ):
        config.addinivalue_line("markers", line)


@pytest.hookimpl(tryfirst=True)  # before pytest looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _folder(item) in SUITES:
            item.add_marker("suite")
        elif _is_on_another_store(item) and item.get_closest_marker("every_store") is None:
            item.add_marker("nightly")
        elif _is_fast(item):
            item.add_marker("fast")
        if item.get_closest_marker("nightly") is not None:
            item.add_marker("long")
    names = {_listed(item) for item in items if item.get_closest_marker("long") is not None}
    config.stash[COLLECTED] = {
        path: {name for name in names if name.startswith(f"{path}::")} for path in _files(items)
    }


def _listed(item: pytest.Item) -> str:
    return f"{item.nodeid}{_NIGHTLY if item.get_closest_marker('nightly') is not None else ''}"


def _files(items: list[pytest.Item]) -> set[str]:
    return {item.nodeid.partition("::")[0] for item in items}


def _is_on_another_store(item: pytest.Item) -> bool:
    return _store(item) != _NEAREST and _folder(item) != "stores"


def _is_fast(item: pytest.Item) -> bool:
    if _folder(item) not in _FAST_FOLDERS or any(item.get_closest_marker(name) for name in _NEVER_FAST):
        return False
    fixtures = set(getattr(item, "fixturenames", ()))
    return not fixtures & _SERVERS and (_folder(item) == "unit" or not _OTHER_STORES & _words(item))


def _words(item: pytest.Item) -> set[str]:
    """Those in the test's parameters, as in `[configmap-to-dynamodb]`."""
    return set(item.name.partition("[")[2].rstrip("]").split("-"))


def _store(item: pytest.Item) -> object:
    return item.callspec.params.get("place", _NEAREST) if hasattr(item, "callspec") else _NEAREST


def _folder(item: pytest.Item) -> str:
    tests = item.config.rootpath / "tests"
    return item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""


def page(ids: Iterable[str]) -> str:
    """The list of these tests, by file and name."""
    files: dict[str, list[str]] = defaultdict(list)
    for name in sorted(ids):
        files[name.partition("::")[0]].append(name)
    return _HEAD + "".join(f"\n## {path}\n\n{section(files[path])}" for path in sorted(files))


def section(ids: Iterable[str]) -> str:
    """The tests of one file: a line a name, with the parameters in lines of their own."""
    with_what: dict[str, list[str]] = defaultdict(list)
    for test in sorted(name.partition("::")[2] for name in ids):
        name, nightly, _ = test.partition(_NIGHTLY)
        function, _, parameters = name.partition("[")
        if parameters:
            with_what[function].append(f"  [{parameters}{nightly}\n")
        else:
            with_what[function + nightly] += []
    return "".join(f"- {function}\n{''.join(lines)}" for function, lines in with_what.items())


def sections(text: str) -> dict[str, str]:
    """What the list says of each file."""
    parts = (part.partition("\n\n") for part in text.split("\n## ")[1:])
    return {path: said.rstrip("\n") + "\n" for path, _, said in parts}


class _Lister:
    """Takes the ids of the tests that a run would collect."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config) -> None:
        self.ids = set().union(*config.stash[selection.COLLECTED].values())


if __name__ == "__main__":
    from tests.support import selection  # pytest's own, which has the key

    lister = _Lister()
    options = ["--collect-only", "-qqq", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported above
    if pytest.main(options, plugins=[lister]):
        raise SystemExit("the tests can't be collected")
    LIST.write_text(page(lister.ids))
