"""The accounts of infra/ on a real API server, with infra's rights and no others, and functions that hold
nothing but their own account's token. The policies on what these may write into status are in force as well.
Which rights are needed it does not say: tests/e2e/test_rights.py."""

from pathlib import Path

from tests.controlplane.plane import ControlPlane
from tests.support.builders.manifests import RIGHTS, component, put, rendered, status_policies, token_of
from tests.support.cluster import Cluster, Object

FUNCTIONS = Path(__file__).resolve().parents[3] / "functions"


class Accounts:
    """Each account's kubeconfig is made once, in `folder`."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, folder: Path) -> None:
        self._plane, self._cluster, self._folder = plane, cluster, folder
        put(cluster, [*_rights(), *status_policies()])

    def token(self, name: str) -> str:
        return token_of(self._cluster, f"berth-{name}")

    def kubeconfig(self, name: str) -> Path:
        path = self._folder / f"kubeconfig-of-{name}"
        return path if path.exists() else self._plane.kubeconfig(path, self.token(name))

    def functions(self, folder: Path, base: Path = FUNCTIONS) -> Path:
        """A folder for `berth up --functions`: those of `base`, each as its own account."""
        made = folder / "functions-with-accounts"
        for real in sorted(base.glob("*/main.py")):
            name = real.parent.name
            (made / name).mkdir(parents=True)
            (made / name / "main.py").write_text(_as_itself(real, self.kubeconfig(name)))
        return made


def _as_itself(real: Path, kubeconfig: Path) -> str:
    """A main.py that is the real one, but with its account's kubeconfig in place of the tester's."""
    return (
        f'import os\nos.environ["KUBECONFIG"] = {str(kubeconfig)!r}\n'
        f"exec(compile(open({str(real)!r}).read(), {str(real)!r}, 'exec'))\n"
    )


def _rights() -> list[Object]:
    """Those of both overlays that differ in them and of the component for preemption, each once."""
    there = [rendered("per-verb", *RIGHTS), rendered("single", *RIGHTS), component("native", *RIGHTS)]
    found = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for part in there
        for each in part
    }
    return sorted(found.values(), key=lambda manifest: manifest["kind"] != "Namespace")
