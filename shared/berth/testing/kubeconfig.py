"""Kubeconfigs that lead to the stand-ins and to control planes on loopback ports."""

import json
from collections.abc import Mapping
from pathlib import Path


def write(path: Path, server: str, user: Mapping[str, str] | None = None, **cluster: str) -> Path:
    """Write a kubeconfig (as JSON, which is YAML) for this server's URL, and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "berth", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "berth", "user": dict(user or {})}],
        "contexts": [{"name": "berth", "context": {"cluster": "berth", "user": "berth"}}],
        "current-context": "berth",
    }
    path.write_text(json.dumps(document, indent=2))
    return path
