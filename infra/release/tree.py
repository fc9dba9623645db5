"""What infra/image/build makes, for each machine that there is an image for."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infra.release.source import Source, run

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What wheels call them, and what images do."""

PLACE = "app"


@contextmanager
def trees(source: Source, wheels: Path | None) -> Iterator[Mapping[str, Path]]:
    """Yield a folder for each architecture, which is gone afterwards. `wheels` has a folder for each machine,
    or gets one; without it they are downloaded for this once."""
    with tempfile.TemporaryDirectory(prefix="berth-release-") as made:
        folders = {}
        for machine, architecture in MACHINES.items():
            folder = folders[architecture] = Path(made) / machine / PLACE
            folder.parent.mkdir()
            python = {"MACHINE": machine, "PLACE": f"/{PLACE}", "PYTHON": sys.executable}
            kept = {} if wheels is None else {"WHEELS": str(wheels.resolve() / machine)}
            script = str(source.folder / "infra" / "image" / "build")
            run([script, str(folder)], source.folder, {**source.environment, **python, **kept})
        yield folders
