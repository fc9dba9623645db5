"""Paths of the Kubernetes API, with names from calls and events, which may try to name something else.
It knows no server and sends nothing."""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from berth.errors import BadInputError

BERTH_API = "/apis/berth.dev/v1alpha1"
POOLS = f"{BERTH_API}/pools"
POOL_CLAIMS = f"{BERTH_API}/poolclaims"


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(name)}"


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{_segment(name)}"


def pool_claim_path(namespace: str, name: str) -> str:
    return f"{BERTH_API}/namespaces/{_segment(namespace)}/poolclaims/{_segment(name)}"


def with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _segment(name: str) -> str:
    """A name as one segment of a path."""
    if name in ("", ".", ".."):
        raise BadInputError(f"{name!r} is not the name of a Kubernetes object")
    return quote(name, safe="")
