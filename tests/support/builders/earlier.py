"""infra as it was before policies stood without parameters (decision 0023) and a function had one Trigger.

Only what changed since is kept, in earlier/: the policies, which read the ConfigMap, and the eleven Triggers.
The rest of an overlay is today's.
"""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.support.builders.manifests import ADMISSION, INFRA, NAMESPACE, rendered
from tests.support.cluster import Cluster, Object

TRIGGERS = f"/apis/eventing.knative.dev/v1/namespaces/{NAMESPACE}/triggers"
_SUBSCRIPTIONS = f"/apis/messaging.knative.dev/v1/namespaces/{NAMESPACE}/subscriptions"
_FOREGROUND = "foregroundDeletion"
_FOLDER = Path(__file__).with_suffix("")
_UPGRADE = INFRA.parent / "docs" / "upgrade.md"
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


def documented_step() -> list[list[str]]:
    """The commands of docs/upgrade.md that delete what `kubectl apply` leaves; without `kubectl`."""
    text = _UPGRADE.read_text().replace("\\\n", " ")
    block = r"^for trigger in (?P<names>[^\n]*)\ndo\n  kubectl (?P<command>[^\n]*)\ndone$"
    found = re.search(block, text, re.MULTILINE)
    assert found, "docs/upgrade.md does not say how to delete the eleven Triggers"
    return [found["command"].replace("$trigger", name).split() for name in found["names"].split()]


@contextmanager
def garbage_collected(cluster: Cluster) -> Iterator[None]:
    """As kube-controller-manager, which is not here: of a Trigger that is deleted in the foreground first
    the Subscription goes, then the Trigger itself."""
    ended = threading.Event()

    def collect() -> None:
        while not ended.wait(0.1):
            subscriptions = cluster.request("GET", _SUBSCRIPTIONS).body.get("items", [])
            for trigger in cluster.get(TRIGGERS)["items"]:
                if _FOREGROUND in trigger["metadata"].get("finalizers", []):
                    _collect(cluster, trigger["metadata"], subscriptions)

    collector = threading.Thread(target=collect, daemon=True)
    collector.start()
    try:
        yield
    finally:
        ended.set()
        collector.join(60)


def _collect(cluster: Cluster, trigger: Object, subscriptions: list[Object]) -> None:
    owned = [
        each["metadata"]
        for each in subscriptions
        if any(owner["uid"] == trigger["uid"] for owner in each["metadata"]["ownerReferences"])
    ]
    for each in owned:
        if "deletionTimestamp" not in each:
            cluster.request("DELETE", f"{_SUBSCRIPTIONS}/{each['name']}")
    if not owned:
        left = [each for each in trigger["finalizers"] if each != _FOREGROUND]
        cluster.patch(f"{TRIGGERS}/{trigger['name']}", {"metadata": {"finalizers": left}})


def _is_replaced(manifest: Object) -> bool:
    named = (manifest["kind"], manifest["metadata"]["name"])
    return manifest["kind"] == "Trigger" or named == ("ConfigMap", "berth-settings")
