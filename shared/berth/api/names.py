"""Names: the groups of Berth's kinds and resources, and what Kubernetes accepts as a name.
How long a name may be in one place is for whoever uses it there."""

import re
from typing import TypeGuard

GROUP = "berth.dev"
API_VERSION = f"{GROUP}/v1alpha1"
NATIVE = f"native.{GROUP}"  # kube-scheduler counts this group too, and evicts for it (decision 0016)

LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""A namespace's name, or one part of a DNS domain."""

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Most objects' names: Kubernetes does not limit the length of each part."""

WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A label's value, or what stands behind the slash of a qualified name."""

_NAME = re.compile(SUBDOMAIN)
_KEY = re.compile(rf"((?=[^/]{{1,253}}/){SUBDOMAIN}/)?{WORD}")
# In a quota `requests.` stands before the domain, which may have 253 characters then.
_RESOURCE = re.compile(rf"(?=[^/]{{1,244}}/){SUBDOMAIN}/{WORD}")


def is_ours(resource: str) -> bool:
    """Whether a resource is of one of Berth's own groups. It need have no Pool: a typo must not pass as no
    demand."""
    return resource.partition("/")[0] in (GROUP, NATIVE)


def is_name(name: str, longest: int = 253) -> bool:
    """Whether an object of Kubernetes may have this name (a DNS subdomain)."""
    return len(name) <= longest and _NAME.fullmatch(name) is not None


def is_key(name: str) -> bool:
    """Whether a label or an annotation may have this key (a qualified name)."""
    return _KEY.fullmatch(name) is not None


def is_pool_name(name: object) -> TypeGuard[str]:
    """Whether a Pool may have this name, which stands in the name of its resource."""
    return isinstance(name, str) and is_name(name, longest=63)


def is_extended_resource(name: str) -> bool:
    """Whether Kubernetes accepts this as the name of an extended resource.

    See IsExtendedResourceName in https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/v1/helper/helpers.go
    """
    if name.startswith("requests.") or "kubernetes.io/" in name:
        return False
    return _RESOURCE.fullmatch(name) is not None
