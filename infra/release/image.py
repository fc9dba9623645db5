"""The image for each machine, upon a base that is there as an OCI layout, in one archive of that form
(https://github.com/opencontainers/image-spec, version 1.1). No engine and no registry is asked."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.release.containerfile import config, instructions
from infra.release.source import ReleaseError, Source
from infra.release.tree import PLACE

_KIND = "application/vnd.oci.image"
_INDEX, _MANIFEST, _CONFIG = f"{_KIND}.index.v1+json", f"{_KIND}.manifest.v1+json", f"{_KIND}.config.v1+json"
_LAYER = f"{_KIND}.layer.v1.tar+gzip"
_LISTS = (_INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")

Json = dict[str, Any]


class Layout:
    """A folder with an OCI layout. Raises ReleaseError where it is none, or not whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._index: Json = json.loads((folder / "index.json").read_bytes())
        except (OSError, ValueError) as error:
            raise ReleaseError(f"the base {folder} is no OCI layout: index.json can't be read") from error

    @property
    def digest(self) -> str:
        """What its index is, for the provenance."""
        return hashlib.sha256((self._folder / "index.json").read_bytes()).hexdigest()

    def blob(self, digest: str) -> bytes:
        """Return a blob, once its bytes are what its digest says."""
        algorithm, _, value = digest.partition(":")
        try:
            content = (self._folder / "blobs" / algorithm / value).read_bytes()
        except OSError as error:
            raise ReleaseError(f"the base {self._folder} has no blob {digest}") from error
        if algorithm != "sha256" or hashlib.sha256(content).hexdigest() != value:
            raise ReleaseError(f"the base {self._folder}: the blob {digest} has other bytes than that")
        return content

    def manifest(self, architecture: str) -> tuple[Json, Json]:
        """Return the manifest for Linux on this architecture, and its configuration."""
        for descriptor in self._descriptors(self._index):
            manifest = json.loads(self.blob(descriptor["digest"]))
            configuration = json.loads(self.blob(manifest["config"]["digest"]))
            if (configuration.get("os"), configuration.get("architecture")) == ("linux", architecture):
                return manifest, configuration
        raise ReleaseError(f"the base {self._folder} has no image for linux/{architecture}")

    def _descriptors(self, index: Json) -> Iterator[Json]:
        """Yield those of images: an index may name another one."""
        for descriptor in index["manifests"]:
            if descriptor.get("mediaType") in _LISTS:
                yield from self._descriptors(json.loads(self.blob(descriptor["digest"])))
            elif (descriptor.get("platform") or {}).get("architecture") != "unknown":  # else an attestation
                yield descriptor


class _Archive:
    """An OCI layout in a tar file, under way."""

    def __init__(self, time: int) -> None:
        self._time, self._files = time, dict[str, bytes]()

    def add(self, kind: str, content: bytes) -> Json:
        digest = hashlib.sha256(content).hexdigest()
        self._files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def write(self, path: Path, index: Json) -> None:
        self._files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
        self._files["index.json"] = _json(index)
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(self._files):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(self._files[name]), self._time, 0o644
                archive.addfile(entry, io.BytesIO(self._files[name]))


def image(source: Source, path: Path, base: Layout, trees: Mapping[str, Path]) -> None:
    """Write the archive, of a tree for each architecture."""
    archive = _Archive(source.time)
    said = instructions(source.folder / "infra" / "Containerfile")
    manifests = []
    for architecture, tree in trees.items():
        manifest, configuration = base.manifest(architecture)
        plain = _layer(tree)
        layers = [archive.add(one["mediaType"], base.blob(one["digest"])) for one in manifest["layers"]]
        created = datetime.fromtimestamp(source.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        step = {"created": created, "created_by": "make release", "comment": f"berth {source.version}"}
        configuration["config"] = config(said, configuration.get("config") or {})
        configuration["created"] = created
        configuration["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
        configuration["history"] = [*(configuration.get("history") or ()), step]
        made = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": archive.add(_CONFIG, _json(configuration)),
            "layers": [*layers, archive.add(_LAYER, gzip.compress(plain, 9, mtime=0))],
        }
        platform = {"os": "linux", "architecture": architecture}
        manifests.append({**archive.add(_MANIFEST, _json(made)), "platform": platform})
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    name = {"org.opencontainers.image.ref.name": source.version}
    top = {**archive.add(_INDEX, _json(index)), "annotations": name}
    archive.write(path, {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [top]})


def _layer(tree: Path) -> bytes:
    """Return the tree as a layer that is not packed."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for path in (tree, *sorted(tree.rglob("*"))):
            entry = layer.gettarinfo(path, f"{PLACE}/{path.relative_to(tree)}".removesuffix("/."))
            entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, "", ""
            with path.open("rb") if entry.isreg() else io.BytesIO() as content:
                layer.addfile(entry, content)
    return plain.getvalue()


def _json(document: Json) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
