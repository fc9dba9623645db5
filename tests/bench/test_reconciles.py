"""What reconcile takes of a large cluster, in miniature: see `make bench BENCH_ARGS=reconcile`.
What it did is looked for in the ledger, and what it asked is the API server's own count."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import msgspec
import pytest

from berth.kube.types import Pod
from berth.stores import open_store
from berth.stores.base import Store
from tests.bench import marks, reconciles
from tests.bench.bodies import ROOT
from tests.bench.contender_processes import BenchError
from tests.bench.contents import node_names
from tests.bench.keeper import fill
from tests.bench.listed import Lists
from tests.bench.reconciles import Size

pytestmark = pytest.mark.long

SECONDS = 120.0
SIZE = Size(nodes=6, pods=30, ours=12, broken=2)
NOTHING = {"rebuilt": False, "released": 0, "settled": 0, "adopted": 0, "capacities": 0, "woken": 0}


@pytest.mark.usefixtures("redis_installed")
def test_reconcile_mends_what_was_broken_and_nothing_else_and_lists_all_pods_once(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = [word for name, count in SIZE._asdict().items() for word in (f"--{name}", str(count))]
    command = [
        sys.executable,
        "-m",
        "tests.bench",
        "reconcile",
        "--rounds",
        "1",
        *words,
        "--json",
        str(figures),
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=SECONDS)
    told = json.loads(figures.read_text())
    cases = ("first", "again", "missing", "gone")
    assert [(row["reconcile"], row["case"]) for row in told["rows"]] == [*product(("sqlite", "redis"), cases)]
    assert all(row["seconds"] > 0 and row["read"] > 30 * 4096 for row in told["rows"])
    assert all(row["asked"]["GET /api/v1/pods"] == 1 for row in told["rows"])
    asked = [row["asked"].get("GET /api/v1/namespaces/default/pods/NAME", 0) for row in told["rows"]]
    assert asked == [0, 0, SIZE.broken, 0] * 2  # only who was adopted is looked at once more
    assert told["missed"] == []  # there is no mark for a cluster of this size


def test_the_pods_that_are_listed_are_as_large_as_real_ones_and_told_in_pages() -> None:
    lists, pods, token = Lists(6, 40, 12), list[Pod](), ""
    for _ in range(4):
        more = f"&continue={token}" if token else ""
        status, body = lists.answer("GET", f"/api/v1/pods?limit=12{more}", b"")
        page = msgspec.json.decode(body)
        assert status == 200
        pods += msgspec.convert(page["items"], list[Pod])
        assert all(4096 <= len(msgspec.json.encode(item)) <= 8192 for item in page["items"])
        token = page["metadata"].get("continue", "")
    assert not token
    assert len({pod.metadata.uid for pod in pods}) == len(pods) == 40
    assert [pod.spec.scheduler_name for pod in pods] == ["berth"] * 12 + ["default-scheduler"] * 28
    assert all(pod.spec.node_name in node_names(6) for pod in pods)
    (_, asked) = lists.answer("GET", "/asked", b"")
    assert msgspec.json.decode(asked)["calls"] == {"GET /api/v1/pods": 4}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path}/ledger.db")) as opened:
        fill(opened, node_names(SIZE.nodes))
        yield opened


def test_a_reconcile_that_did_not_do_what_it_should_ends_the_bench(store: Store) -> None:
    reconciles._put(store, SIZE, set(), set())
    reconciles.check(NOTHING, NOTHING, store, SIZE)
    with pytest.raises(BenchError, match="should have done"):
        reconciles.check({**NOTHING, "adopted": 1}, NOTHING, store, SIZE)
    with pytest.raises(BenchError, match="should have done"):
        reconciles.check({**NOTHING, "problems": ["n1"]}, NOTHING, store, SIZE)
    for missing, more, words in (({3}, set[int](), "1 claims are missing"), (set[int](), {40}, "1 too many")):
        reconciles._put(store, SIZE, missing, more)
        with pytest.raises(BenchError, match=words):
            reconciles.check(NOTHING, NOTHING, store, SIZE)


@pytest.mark.parametrize(
    ("seconds", "megabytes", "missed"), [(4.9, 299, 0), (5.1, 301, 0), (6.1, 299, 1), (6.1, 400, 2)]
)
def test_what_is_above_its_mark_is_not_met_and_ends_the_bench_if_it_is_a_fifth_above(
    seconds: float, megabytes: int, missed: int
) -> None:
    row = {"reconcile": "redis", "ledger": "healthy", "seconds": seconds, "peak": megabytes * 1e6}
    lines = marks.judged_reconciles([row], reconciles.MARKED)
    assert [line.endswith(": met") for line, _ in lines] == [seconds <= 5, megabytes <= 300]
    assert sum(is_missed for _, is_missed in lines) == missed
    assert marks.judged_reconciles([row], SIZE) == []
