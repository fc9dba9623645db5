"""What a function has loaded once it has answered a call: a heavy library makes it start late.

Seen in a process of its own; import-linter sees the same in the source, but not what a library pulls in.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support.builders.objects import EVENTS
from tests.support.fakes.podsown import TOKEN, Pod

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"kubernetes", "boto3", "botocore", "redis", "rich", "opentelemetry"}
INSTALLED = packages_distributions().keys()

_CALLED = """
import os, runpy, sys
from pathlib import Path
from flask import Request
from werkzeug.test import EnvironBuilder

main, sample = sys.argv[1:]
HEADERS = {"Authorization": f"Bearer {os.environ['TOKEN']}"} if "TOKEN" in os.environ else {}
call = EnvironBuilder(path="/", method="POST", data=Path(sample).read_bytes(), headers=HEADERS)
body, _, _ = runpy.run_path(main)[Path(main).parent.name](Request(call.get_environ()))
assert b"ledger is being rebuilt" in body, body  # so the store was asked
"""
_SERVED = """
import sys
from pathlib import Path
from berth.http import server

server.load(sys.argv[1], Path(sys.argv[1]).parent.name).target
"""
_STARTED = {
    *("berth", "functions_framework", "gunicorn", "httptools", "msgspec", "tenacity"),
    # What functions_framework takes along.
    *("flask", "werkzeug", "jinja2", "markupsafe", "itsdangerous", "click", "blinker"),
    *("cloudevents", "deprecation", "packaging", "typing_extensions"),
}
"""What a process of filter, prioritize or preempt imports before its first call, of what is installed. Each
new name makes a cold start longer: `python -X importtime -m berth.http.server …` tells by how much."""

_AS_A_POD = """
import os
from pathlib import Path
import berth.kube.client
berth.kube.client._ACCOUNT = Path(os.environ["ACCOUNT"])
"""
_IMPORTED = "import importlib, sys; importlib.import_module(sys.argv[1])"


def loaded(
    script: str, *arguments: str, store: str = "", environment: Mapping[str, str] = MappingProxyType({})
) -> set[str]:
    """The top-level packages that the script had loaded at its end."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nprint('loaded', *sys.modules)", *arguments],
        env=own | {"BERTH_STORE": store, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *names = done.stdout.splitlines()[-1].split()
    assert first == "loaded"
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("name", ["filter", "prioritize", "preempt"])
def test_filter_prioritize_and_preempt_answer_without_any_heavy_library(name: str, tmp_path: Path) -> None:
    main, sample = ROOT / "functions" / name / "main.py", EVENTS / "extender" / f"{name}-names.json"
    found = loaded(_CALLED, str(main), str(sample), store=f"sqlite:///{tmp_path}/ledger.db")
    assert {"berth", "functions_framework"} <= found
    assert found & HEAVY == set()


def test_filter_reviews_who_calls_by_its_pod_s_own_account_without_any_heavy_library(tmp_path: Path) -> None:
    main, sample = ROOT / "functions/filter/main.py", EVENTS / "extender/filter-names.json"
    store = f"sqlite:///{tmp_path}/ledger.db"
    with Pod(tmp_path) as pod:
        script = _AS_A_POD + _CALLED
        found = loaded(script, str(main), str(sample), store=store, environment=pod.environment)
    assert pod.reviewed == [TOKEN]
    assert found & HEAVY == set()


def test_serve_loads_no_heavy_library() -> None:
    assert loaded(_IMPORTED, "berth.http.function") & HEAVY == set()


@pytest.mark.parametrize("name", ["extender", "bind", "release", "reconcile"])
def test_what_talks_to_the_cluster_loads_no_heavy_library_before_it_knows_where_that_is(name: str) -> None:
    assert loaded(_IMPORTED, f"berth.handlers.{name}") & HEAVY == set()


def test_a_command_that_draws_nothing_in_place_loads_no_heavy_library() -> None:
    script = "import sys, berth.cli.explain, berth.cli.inspect, berth.cli.waiting"
    assert loaded(script) & HEAVY == set()


@pytest.mark.parametrize("name", ["filter", "prioritize", "preempt"])
def test_what_a_verb_imports_to_start_is_listed(name: str, tmp_path: Path) -> None:
    main, store = ROOT / "functions" / name / "main.py", f"sqlite:///{tmp_path}/ledger.db"
    found = loaded(_SERVED, str(main), store=store) - loaded(
        "import sys"
    )  # what every Python here starts with
    assert found & INSTALLED == _STARTED
