"""What is counted is counted once: by many threads, by several processes, and by those that are killed."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.values import close_all_multiprocess_files

from berth.metrics import FOLDER, METRICS, MOST_PENDING, UNCOUNTED, Metrics

_COUNTER = """
import sys
from pathlib import Path
from berth.metrics import Metrics

metrics = Metrics(Path(sys.argv[1])).of("bind")
for _ in range(int(sys.argv[2])):
    metrics.called("bind", "answered", 0.001)
    metrics.changed("reserved", 2)
print("counted", flush=True)
sys.stdin.read()
"""


def samples(page: bytes) -> dict[tuple[str, frozenset[str]], float]:
    """A scrape's values, by name and label values."""
    families = text_string_to_metric_families(page.decode())
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@contextmanager
def counting(folder: Path, times: int) -> "Iterator[subprocess.Popen[str]]":
    """A process that has counted so many times, and waits; it is killed at the end."""
    command = [sys.executable, "-c", _COUNTER, str(folder), str(times)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "counted\n"
        yield process
        process.kill()


def scraped(folder: Path) -> dict[tuple[str, frozenset[str]], float]:
    """What a process that has counted nothing tells."""
    told = "import sys; from pathlib import Path; from berth.metrics import Metrics; "
    told += "sys.stdout.buffer.write(Metrics(Path(sys.argv[1])).page()[1])"
    page = subprocess.run([sys.executable, "-c", told, str(folder)], capture_output=True, check=True).stdout
    return samples(page)


def test_three_processes_of_which_two_are_killed_have_counted_together(tmp_path: Path) -> None:
    with counting(tmp_path, 100):
        with counting(tmp_path, 100), counting(tmp_path, 100):
            pass
        told = scraped(tmp_path)
    assert told["berth_call_duration_seconds_count", frozenset({"bind", "answered"})] == 300
    assert told["berth_changes_total", frozenset({"bind", "reserved"})] == 600


def test_who_comes_after_a_dead_process_goes_on_with_its_file(tmp_path: Path) -> None:
    for times in (1, 2, 3):
        with counting(tmp_path, times):
            assert len(list(tmp_path.glob("*.db"))) == 2, "one for counters, one for histograms"
    assert scraped(tmp_path)["berth_changes_total", frozenset({"bind", "reserved"})] == 12


def test_a_file_that_a_process_has_just_made_or_died_as_it_did_fails_no_scrape(tmp_path: Path) -> None:
    with counting(tmp_path, 3):
        (tmp_path / "counter_9.db").touch()
        assert scraped(tmp_path)["berth_changes_total", frozenset({"bind", "reserved"})] == 6


def test_a_fork_counts_in_a_file_of_its_own(tmp_path: Path) -> None:
    forked = """
import os, sys
from pathlib import Path
from berth.metrics import Metrics

metrics = Metrics(Path(sys.argv[1])).of("bind")
metrics.called("bind", "answered", 0.001)
for _ in range(4):
    if os.fork() == 0:
        for _ in range(500):
            metrics.changed("reserved")
        os._exit(0)
for _ in range(4):
    os.wait()
metrics.changed("reserved")
"""
    subprocess.run([sys.executable, "-c", forked, str(tmp_path)], check=True)
    assert scraped(tmp_path)["berth_changes_total", frozenset({"bind", "reserved"})] == 2001


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    yield Metrics(tmp_path, store="redis").of("filter")
    close_all_multiprocess_files()  # type: ignore[no-untyped-call]


def test_threads_lose_no_count_also_while_the_library_is_imported(metrics: Metrics) -> None:
    def count() -> None:
        for _ in range(50):
            metrics.refused("ip", "short")
        metrics.called("filter", "answered", 0.1)
        for _ in range(50):
            metrics.refused("ip", "short")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert samples(metrics.page()[1])["berth_refused_pods_total", frozenset({"ip", "short"})] == 800


def test_before_the_first_answer_it_keeps_a_bounded_number_of_counts(metrics: Metrics) -> None:
    for _ in range(MOST_PENDING + 50):
        metrics.committed("committed")
    told = samples(metrics.page()[1])
    assert told["berth_ledger_commits_total", frozenset({"redis", "committed"})] == MOST_PENDING


def test_nothing_is_counted_where_there_is_no_folder() -> None:
    UNCOUNTED.of("bind").called("bind", "answered", 1.0)
    assert UNCOUNTED.page() == ("text/plain; version=0.0.4", b"")


def test_names_and_labels_are_as_prometheus_wants_them() -> None:
    for name, metric in METRICS.items():
        assert name.startswith("berth_")
        assert not name.endswith("_total"), "the library adds it"
        assert metric.kind in ("counter", "histogram")
        assert name.endswith("_seconds") == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.help
        assert not metric.help.endswith(".")
