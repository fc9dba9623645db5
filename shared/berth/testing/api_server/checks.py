"""The reasons why the API server refuses a write, with its own codes and words (kube-apiserver 1.36.3).
The words are for people; tests compare only the codes, and which check comes first, with the real one."""

from __future__ import annotations

from dataclasses import dataclass

from berth.testing.api_server.rules import KINDS, Json, StatusError, bad_request, conflict, invalid

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True)
class Key:
    """Which object is meant; a node's namespace is empty."""

    resource: str
    namespace: str
    name: str


def check_identity(key: Key, old: Json, claimed: Json) -> None:
    """Refuse a write to another object; a stale resourceVersion (409) comes before a wrong UID (422)."""
    if claimed.get("name") not in (None, "", key.name):
        raise bad_request(
            f"the name of the object ({claimed['name']}) does not match the name on the URL ({key.name})"
        )
    if claimed.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
        raise conflict(key.resource, key.name, MODIFIED)
    if claimed.get("uid") not in (None, "", old["metadata"]["uid"]):
        why = f'Invalid value: "{claimed["uid"]}": field is immutable'
        raise invalid(key.resource, key.name, "metadata.uid", why)


def bound_to(key: Key, binding: Json) -> str:
    """Return the node that a Binding names."""
    if (binding.get("metadata") or {}).get("name") != key.name:
        raise bad_request("name in URL does not match name in Binding object")
    node = (binding.get("target") or {}).get("name")
    # 500 is the real one's answer, though the caller is at fault.
    if not isinstance(node, str) or not node:
        raise StatusError(500, "", "target.name: Required value")
    return node


def check_binding(key: Key, pod: Json, metadata: Json) -> None:
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        want, have = metadata.get(field), pod["metadata"][field]
        if want and want != have:
            place = f"Key: /registry/pods/{key.namespace}/{key.name}, ResourceVersion: 0"
            why = f"Precondition failed: {word} in precondition: {want}, {word} in object meta: {have}"
            raise conflict(
                "pods", key.name, f"StorageError: invalid object, Code: 4, {place}, AdditionalErrorMsg: {why}"
            )
    subject = "pods/binding"
    if "deletionTimestamp" in pod["metadata"]:
        raise conflict(subject, key.name, f"pod {key.name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        why = f'pod {key.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict(subject, key.name, why)
    if pod["spec"].get("schedulingGates"):
        raise conflict(subject, key.name, f"pod {key.name} has non-empty .spec.schedulingGates")


def check_preconditions(key: Key, old: Json, preconditions: Json) -> None:
    for field, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        want, have = preconditions.get(field), old["metadata"][field]
        if want and want != have:
            why = f"the {word} in the precondition ({want}) does not match the {word} in record ({have})"
            raise conflict(KINDS[key.resource], key.name, why)


def grace_of(pod: Json, asked: int | None) -> int:
    """Return the grace period of a deletion; one that has begun can only shrink.

    A pod that is not bound, or has finished, goes at once."""
    begun: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    if begun is not None:
        return begun if asked is None else min(asked, begun)
    if not pod["spec"].get("nodeName") or pod["status"]["phase"] in ("Succeeded", "Failed"):
        return 0
    default: int = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return default if asked is None else asked
