"""The real kubectl against a test's API server. It prints nothing: what kubectl said comes back."""

import os
import subprocess
from pathlib import Path

from tests.controlplane.plane import ControlPlane
from tests.support.manifests import KUBECTL


class Kubectl:
    """As the control plane's admin; its caches stay in `folder`."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._kubeconfig = plane.kubeconfig(folder / "kubeconfig-of-kubectl")
        self._environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "HOME": str(folder)}

    def __call__(self, *arguments: str | Path, fails: bool = False) -> str:
        """Standard output, or what it complains of if it should fail."""
        command = [str(KUBECTL), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._environment, timeout=300, check=False
        )
        assert bool(done.returncode) == fails, f"{' '.join(command)}: {done.stderr}{done.stdout}"
        return done.stderr if fails else done.stdout
