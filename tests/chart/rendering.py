"""What helm makes of the chart for some values, and how it is compared with what kustomize makes."""

import base64
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from tests.support.builders.manifests import INFRA
from tests.support.cluster import Object

CHART = INFRA / "chart"
KNATIVE = ("--set", "runtime=Knative", "--set", "events.label=true")
CHOICES: dict[str, Sequence[str]] = {
    "per-verb": KNATIVE,
    "direct": (*KNATIVE, "--set", "events.broker=false"),
    "below-1.36": (*KNATIVE, "--set", "events.label=false"),
    "https": (*KNATIVE, "--set", "scheduler.https=true"),
    "redis": (*KNATIVE, "--set", "store.kind=Secret"),
    "single": (*KNATIVE, "--set", "calls=Single", "--set", "scheduler.resources={berth.dev/underlay-ip}"),
    "without-knative": ("--set", "runtime=Deployments"),
}
"""The values that choose what an overlay of kustomize has."""

_HASHED = re.compile(r"\b(berth-scheduler-(?:proxy|config))-[a-z0-9]{10}\b")
_HOOK = "helm.sh/hook"
_BERTH = ("Namespace", "", "berth")  # helm makes it itself

Key = tuple[str, str, str]
"""Kind, namespace, name."""


def commands() -> list[str]:
    """Those of the chart's README."""
    (block,) = re.findall(r"^```sh\n(.*?)^```$", (CHART / "README.md").read_text(), re.M | re.S)
    found: list[str] = block.splitlines()
    return found


def run(helm: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)


def templated(helm: Path, *values: str) -> list[Object]:
    """The objects of the chart for these values, without those that only `helm test` makes."""
    where = ("berth", str(CHART), "--namespace", "berth", "--kube-version", "1.37.2")
    done = run(helm, "template", *where, *values)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return [each for each in found if _HOOK not in each["metadata"].get("annotations", {})]


def refused(helm: Path, *values: str, namespace: str = "berth") -> str:
    """Why helm does not take these values."""
    done = run(helm, "template", "berth", CHART, "--namespace", namespace, *values)
    assert done.returncode != 0, done.stdout
    return done.stderr


def compared(objects: Iterable[Object]) -> dict[Key, Object]:
    """The objects without what the two say in different ways: a file's hash, which kustomize puts into a name
    and helm into an annotation, and what helm is to keep."""
    found: dict[Key, Object] = {}
    for each in objects:
        one = json.loads(_HASHED.sub(r"\1", json.dumps(each)))
        meta = one["metadata"]
        annotations = meta.get("annotations", {})
        annotations.pop("helm.sh/resource-policy", None)
        if not annotations:
            meta.pop("annotations", None)
        if (one["kind"], meta["name"]) == ("Deployment", "berth-scheduler"):
            one["spec"]["template"]["metadata"].pop("annotations", None)
        if one["kind"] == "Secret":
            one["data"] = {key: _document(value) for key, value in one["data"].items()}
        key = (one["kind"], meta.get("namespace", ""), meta["name"])
        key = (f"{one['apiVersion']} {key[0]}", *key[1:])
        assert key not in found, f"{key} is there twice"
        found[key] = one
    return {key: one for key, one in found.items() if (key[0].split()[1], *key[1:]) != _BERTH}


def _document(encoded: str) -> Object:
    found: Object = yaml.safe_load(base64.b64decode(encoded))
    return found
