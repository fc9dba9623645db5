"""kubectl-berth as one file for each architecture, and krew's manifest of them
(https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/)."""

import gzip
import io
import shutil
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from infra.release.provenance import sha256
from infra.release.source import Source, run

NAME = "kubectl-berth"


def plugins(source: Source, out: Path, trees: Mapping[str, Path]) -> dict[str, Path]:
    """Write an archive for each architecture, with a zipapp that unpacks itself when it first runs. It needs
    the Python of this minor version."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    made = {}
    for architecture, tree in trees.items():
        (site,) = tree.glob("venv/lib/python*/site-packages")
        app = tree.with_name(NAME)
        words = ["--site-packages", str(site), "--reproducible", "--entry-point", "berth.cli:main"]
        words += ["--python", f"/usr/bin/env {minor}", "--output-file", str(app)]
        run([sys.executable, "-m", "shiv", *words], source.folder, source.environment)
        made[architecture] = out / f"{NAME}-{source.version}-linux-{architecture}.tar.gz"
        _pack(made[architecture], {NAME: app, "LICENSE": source.folder / "LICENSE"}, source.time)
        app.unlink()
    return made


def _pack(path: Path, files: Mapping[str, Path], time: int) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = file.stat().st_size, time, 0o755 if name == NAME else 0o644
            with file.open("rb") as content:
                archive.addfile(entry, content)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        shutil.copyfileobj(io.BytesIO(plain.getvalue()), packed)


def manifest(source: Source, archives: Mapping[str, Path], url: str) -> str:
    """Return krew's manifest; the archives are below this URL."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": f"{url.rstrip('/')}/{archive.name}",
            "sha256": sha256(archive),
            "bin": NAME,
            "files": [{"from": name, "to": "."} for name in (NAME, "LICENSE")],
        }
        for architecture, archive in archives.items()
    ]
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "berth"},
        "spec": {
            "version": f"v{source.version}",
            "homepage": url,
            "shortDescription": "Explain who holds and who waits for scarce units",
            "description": "Shows addresses, licences and devices, who holds what, and why a pod waits.\n"
            f"It needs Python {sys.version_info.major}.{sys.version_info.minor}.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
