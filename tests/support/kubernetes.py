"""Which Kubernetes the tests run on: the newest, or by BERTH_TEST_KUBERNETES the `previous` minor version
or the `oldest` that Berth is for (`make test-previous`, `make test-oldest`). It builds nothing: the fixture
`binaries` does."""

import os
import re
from pathlib import Path

import pytest

CONTROLPLANE = Path(__file__).resolve().parents[1] / "controlplane"
_OLDER = ("previous", "oldest")
FOLDERS = {"newest": CONTROLPLANE} | {which: CONTROLPLANE / which for which in _OLDER}
BINARIES = {"newest": CONTROLPLANE / ".bin"} | {which: CONTROLPLANE / f".bin-{which}" for which in _OLDER}
ASKED = os.environ.get("BERTH_TEST_KUBERNETES", "newest")
if ASKED not in FOLDERS:
    raise pytest.UsageError(f"BERTH_TEST_KUBERNETES is {ASKED!r}; known: {', '.join(FOLDERS)}")


def go_mod(which: str = ASKED) -> str:
    return (FOLDERS[which] / "go.mod").read_text()


def version(which: str = ASKED) -> str:
    """As the API server says it: v1.37.2."""
    found = re.search(r"^(?:require)?\s*k8s\.io/kubernetes (v\S+)", go_mod(which), re.MULTILINE)
    assert found, f"{FOLDERS[which] / 'go.mod'} names no k8s.io/kubernetes"
    return found[1]


def has(release: str) -> bool:
    """Whether it is that release (1.36) or a newer one."""
    return _numbers(version()) >= _numbers(release)


def since(release: str, why: str) -> pytest.MarkDecorator:
    """Leaves a test out on an older Kubernetes; the summary says why."""
    return pytest.mark.skipif(not has(release), reason=f"needs Kubernetes {release}: {why}")


def _numbers(named: str) -> list[int]:
    return [int(part) for part in named.removeprefix("v").split(".")]


# The default, and the one for API servers that have no MutatingAdmissionPolicy v1.
OVERLAY = "per-verb" if has("1.36") else "below-1.36"
# How soon who was woken is bound. Below 1.33 kube-scheduler has a pod sit out its back-off, 10 s at most, and
# looks once a second whose is over.
AT_ONCE = 1.0 if has("1.33") else 12.0
# Kubernetes names gangs by PodGroups: their version, and the flag that turns them on (not in 1.32).
POD_GROUPS = "scheduling.k8s.io/v1beta1" if has("1.37") else "scheduling.k8s.io/v1alpha2"
POD_GROUPS_ON = f"--feature-gates=GenericWorkload=true{'' if has('1.37') else ',GangScheduling=true'}"
