"""A stand-in for the base image, which no registry gives here: an OCI layout with a file for each machine."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

ARCHITECTURES = ("amd64", "arm64")
ENV = ["PATH=/usr/bin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"]
_KIND = "application/vnd.oci.image"


def write(folder: Path) -> Path:
    """Write it, with an index in its index, as `skopeo copy --all` does."""
    (folder / "blobs" / "sha256").mkdir(parents=True)
    index = {"schemaVersion": 2, "manifests": [_manifest(folder, each) for each in ARCHITECTURES]}
    top = {"schemaVersion": 2, "manifests": [_blob(folder, "index.v1+json", index)]}
    (folder / "index.json").write_text(json.dumps(top))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return folder


def _manifest(folder: Path, architecture: str) -> dict[str, Any]:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as layer:
        text = architecture.encode()
        entry = tarfile.TarInfo("etc/base")
        entry.size = len(text)
        layer.addfile(entry, io.BytesIO(text))
    configuration = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": ENV, "Entrypoint": ["/usr/bin/python3"], "User": "nonroot"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain.getvalue()).hexdigest()}"]},
        "history": [{"created_by": "the base"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_KIND}.manifest.v1+json",
        "config": _blob(folder, "config.v1+json", configuration),
        "layers": [_blob(folder, "layer.v1.tar+gzip", gzip.compress(plain.getvalue(), mtime=0))],
    }
    platform = {"platform": {"os": "linux", "architecture": architecture}}
    return {**_blob(folder, "manifest.v1+json", manifest), **platform}


def _blob(folder: Path, kind: str, content: Any) -> dict[str, Any]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs" / "sha256" / digest).write_bytes(data)
    return {"mediaType": f"{_KIND}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}
