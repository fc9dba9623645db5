"""Which files were made of what, and by what: a statement of in-toto with SLSA's predicate, version 1."""

import hashlib
import json
import platform
from collections.abc import Iterable
from pathlib import Path

from infra.release.source import LOCKS, Source

BUILD_TYPE = "https://berth.dev/release/v1"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sums(files: Iterable[Path]) -> str:
    """Return a line for each file, as sha256sum writes and checks them."""
    return "".join(f"{sha256(file)}  {file.name}\n" for file in files)


def statement(source: Source, files: Iterable[Path], base: str | None) -> bytes:
    """Return the statement about these files, as JSON; the same for the same files, commit and base (the
    SHA-256 of its index.json)."""
    subject = [{"name": file.name, "digest": {"sha256": sha256(file)}} for file in files]
    commit = {"uri": "git+berth", "digest": {"gitCommit": source.commit}}
    locks = [{"uri": f"file:{name}", "digest": {"sha256": sha256(source.folder / name)}} for name in LOCKS]
    bases = [] if base is None else [{"uri": "oci:base", "digest": {"sha256": base}}]
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": source.version, "target": "make release"},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [commit, *locks, *bases],
            },
            "runDetails": {"builder": {"id": f"{BUILD_TYPE}/make"}},
        },
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
