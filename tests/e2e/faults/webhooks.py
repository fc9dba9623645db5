"""A webhook that is down: the API server answers 500 to each write that it would have to ask it about.
Nothing else is refused, so the pods can be bound and deleted."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cluster import ApiError, Cluster, wait

STUCK = {"example.com/stuck": "true"}
_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_NAME = "status.stuck.example.com"


@contextmanager
def webhook_down(cluster: Cluster, pod: str) -> Iterator[None]:
    """As long as the block lasts, nobody can write to the status of pods labelled STUCK; `pod` is one."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    webhook = {
        "name": _NAME,
        "clientConfig": {"service": {"namespace": "default", "name": "nobody"}},
        "rules": [rule],
        "objectSelector": {"matchLabels": STUCK},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": _NAME},
        "webhooks": [webhook],
    }
    cluster.call("POST", _PATH, document)
    try:
        wait(lambda: not _writable(cluster, pod), 30, "the webhook is asked")
        yield
    finally:
        cluster.call("DELETE", f"{_PATH}/{_NAME}")
    wait(lambda: _writable(cluster, pod), 30, "the webhook is asked no more")


def _writable(cluster: Cluster, pod: str) -> bool:
    """A dry run: it changes nothing and wakes nobody."""
    path = f"/api/v1/namespaces/default/pods/{pod}/status?dryRun=All"
    condition = {"type": "example.com/Probe", "status": "False"}
    try:
        cluster.patch(path, {"status": {"conditions": [condition]}}, "strategic")
    except ApiError as error:
        if error.status not in (404, 500):
            raise
        return error.status == 404
    return True
