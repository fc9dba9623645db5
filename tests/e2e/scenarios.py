"""A page of docs/scenarios as a test runs it: its YAML blocks as files, its commands as they stand there.
What needs a controller or a kubelet (a Deployment's pods) is stood in for here."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.plane import ControlPlane
from tests.e2e.harness import System
from tests.support.cluster import Cluster, Object, wait
from tests.support.kubectl import Kubectl

SCENARIOS = Path(__file__).resolve().parents[2] / "docs" / "scenarios"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PODS = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0"
_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_POLICIES = [
    f"/apis/admissionregistration.k8s.io/v1/validatingadmission{kind}"
    for kind in ("policybindings", "policies")
]
_OURS = ["/apis/berth.dev/v1alpha1/namespaces/default/poolclaims", "/apis/berth.dev/v1alpha1/pools"]
_NAMED = re.compile(r"# ([\w-]+\.yaml)\n")


@cache
def text_of(page: str) -> str:
    return (SCENARIOS / page).read_text()


def files_of(page: str) -> dict[str, str]:
    """The YAML blocks by the file's name in their first line."""
    blocks = (text for kind, text in _BLOCK.findall(text_of(page)) if kind == "yaml")
    named = ((_NAMED.match(text), text) for text in blocks)
    return {found[1]: text for found, text in named if found}


def documents_of(page: str, file: str) -> list[Any]:
    return list(yaml.safe_load_all(files_of(page)[file]))


def commands_of(page: str) -> list[str]:
    """The lines of the page's sh blocks, without what is said about them."""
    blocks = "".join(text for kind, text in _BLOCK.findall(text_of(page)) if kind == "sh")
    lines = (line.partition("  #")[0].strip() for line in blocks.replace("\\\n", " ").splitlines())
    return [" ".join(line.split()) for line in lines if line]


class Scenario:
    """A page on a system whose Pools are the page's; its commands find its files."""

    def __init__(self, page: str, system: System) -> None:
        self._page, self._system = page, system
        self._folder = system.berth.folder / "page"
        self._folder.mkdir()
        for name, text in files_of(page).items():
            (self._folder / name).write_text(text)
        self._kubectl = Kubectl(system.plane, self._folder)

    def run(self, command: str, ends_with: int = 0) -> str:
        """One of the page's commands, of kubectl or of berth, which ends with this code; what it printed."""
        assert command in commands_of(self._page), f"{self._page} has no command: {command}"
        files = files_of(self._page)
        program, *words = shlex.split(command)
        arguments = [str(self._folder / word) if word in files else word for word in words]
        if program == "kubectl":
            return self._kubectl(*arguments)
        done = self._system.berth.run(*arguments)
        assert (program, done.returncode) == ("berth", ends_with), done.stdout + done.stderr
        return done.stdout

    def event(self, pod: str, *texts: str) -> str:
        """The event of the pod that says all that the page shows; it is waited for."""
        for text in texts:
            assert text in text_of(self._page), f"{self._page} does not show: {text}"

        def found() -> str:
            events = self._system.cluster.events_of(pod)
            return next((said for said in events if all(text in said for text in texts)), "")

        return wait(found, 60, f"an event of {pod} that says {texts}")

    def scheduler_config(self, name: str, changes: Object) -> Path:
        """A configuration of the page's, with the functions' URLs here."""
        document = dict(changes)
        document["extenders"] = [self._here(each) for each in document["extenders"]]
        del document["clientConnection"]
        return self._system.scheduler_config(name, **document)

    def _here(self, extender: Object) -> Object:
        verb = next(key.removesuffix("Verb") for key in extender if key.endswith("Verb"))
        return {**extender, "urlPrefix": self._system.berth.urls[verb]}

    def pods_of(self, deployment: str) -> list[str]:
        """Makes the missing pods as a Deployment's controller does, but one after the other: each new one
        is bound before the next is made, but for the last. All names, the oldest first."""
        cluster = self._system.cluster
        spec = cluster.get(f"{_DEPLOYMENTS}/{deployment}")["spec"]
        names = [f"{deployment}-{number}" for number in range(1, spec["replicas"] + 1)]
        there = {pod["metadata"]["name"] for pod in cluster.list_pods()}
        for name in names:
            if name not in there:
                metadata = {**spec["template"]["metadata"], "name": name}
                body = {"metadata": metadata, "spec": spec["template"]["spec"]}
                cluster.call("POST", _PODS.partition("?")[0], body)
            if name != names[-1]:
                cluster.wait_bound(name)
        return names

    def remove_pods(self) -> None:
        """All of them, as the garbage collector does after their Deployment."""
        self._system.cluster.call("DELETE", _PODS)


def stop_schedulers(plane: ControlPlane) -> None:
    for component in plane.components:
        if component.name.startswith("kube-scheduler"):
            component.stop()


def emptied(plane: ControlPlane) -> None:
    """Nothing is left that a page made."""
    cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
    for path in (_PODS, _DEPLOYMENTS, "/api/v1/nodes", *_POLICIES):
        cluster.call("DELETE", path)
    for path in _OURS:
        cluster.request("DELETE", path)  # where a page has had them served
    wait(lambda: not cluster.get("/api/v1/pods")["items"], 60, "no pods")
    cluster.close()
