"""`berth demo --real`: the same day on a real etcd, kube-apiserver and kube-scheduler, as a user runs it.
The naive counter's numbers are not the same each time: kube-scheduler chooses among equal nodes by chance."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.harness import BERTH

pytestmark = pytest.mark.long


def test_on_real_kubernetes_the_naive_counter_fails_and_berth_keeps_its_promises(binaries: Path) -> None:
    done = subprocess.run(
        [BERTH, "demo", "--real", "--json", "--binaries", str(binaries)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    naive, berth = result["naive"], result["berth"]
    assert (berth["overAllocated"], berth["leaked"], berth["uncounted"]) == (0, 0, 0)
    assert (berth["bound"], berth["waiting"]) == (9, 8)
    assert naive["overAllocated"] > 0
    assert naive["leaked"] > 0
