"""infra as it was before policies stood without parameters (decision 0023) and a function had one Trigger.

Only what changed since is kept, in earlier/: the policies, which read the ConfigMap, and the eleven Triggers.
The rest of an overlay is today's.
"""

import re
import shlex
from pathlib import Path

import yaml

from tests.support.cluster import Object
from tests.support.manifests import ADMISSION, INFRA, NAMESPACE, rendered

_FOLDER = Path(__file__).with_suffix("")
_OPERATIONS = INFRA.parent / "docs" / "operations.md"
_CHANGES: dict[str, dict[str, tuple[str, ...]]] = {
    "release": {"Pod": ("update", "delete")},
    "inventory": dict.fromkeys(("Node", "Pool", "PoolClaim"), ("add", "update", "delete")),
}


def triggers() -> list[Object]:
    """The eleven: one for each change that a function looks at."""
    return [
        _trigger(function, kind, change)
        for function, kinds in _CHANGES.items()
        for kind, changes in kinds.items()
        for change in changes
    ]


def _trigger(function: str, kind: str, change: str) -> Object:
    service = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": function}
    attributes = {"type": f"dev.knative.apiserver.resource.{change}", "kind": kind}
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": f"{function}-{kind.lower()}-{change}", "namespace": NAMESPACE},
        "spec": {"broker": "berth", "filter": {"attributes": attributes}, "subscriber": {"ref": service}},
    }


def earlier(overlay: str) -> list[Object]:
    """The overlay's objects as they were."""
    today = [each for each in rendered(overlay) if each["kind"] not in ADMISSION and not _is_replaced(each)]
    labels = any(each["kind"] == "MutatingAdmissionPolicy" for each in rendered(overlay))
    files = ("settings", "admission", *(["label"] if labels else []))
    found = [
        each for name in files for each in yaml.safe_load_all((_FOLDER / f"{name}.yaml").read_text()) if each
    ]
    (settings,) = (each for each in rendered(overlay, "ConfigMap") if _is_replaced(each))
    found[0]["data"] = {**settings["data"], **found[0]["data"]}  # where the ledger is
    return today + found + triggers()


def documented_step() -> list[str]:
    """The command of docs/operations.md that deletes what `kubectl apply` leaves; without `kubectl`."""
    text = _OPERATIONS.read_text()
    found = re.search(
        r"^From a version with eleven Triggers:.*?^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    assert found, "docs/operations.md does not say how to delete the eleven Triggers"
    program, *arguments = shlex.split(found[1].replace("\\\n", " "))
    assert program == "kubectl"
    return arguments


def _is_replaced(each: Object) -> bool:
    named = (each["kind"], each["metadata"]["name"])
    return each["kind"] == "Trigger" or named == ("ConfigMap", "berth-settings")
