"""The real kubectl against a test's API server. It prints nothing: what kubectl said comes back."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.controlplane.plane import ControlPlane
from tests.support.builders.manifests import KUBECTL


class Kubectl:
    """As the control plane's admin; its caches stay in `folder`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._kubeconfig = plane.kubeconfig(folder / "kubeconfig-of-kubectl")
        self._environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "HOME": str(folder)}

    def __call__(self, *arguments: str | Path, fails: bool = False) -> str:
        """Standard output, or what it complains of if it should fail."""
        done = self._run(arguments)
        assert bool(done.returncode) == fails, f"{' '.join(done.args)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def complaint(self, *arguments: str | Path) -> str:
        """What it complains of; empty if it does not fail."""
        done = self._run(arguments)
        return done.stderr if done.returncode else ""

    def _run(self, arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        command = [str(KUBECTL), *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, env=self._environment, timeout=300, check=False
        )
