"""Installs all wheels of a folder into a virtual environment: python install.py FOLDER VENV INTERPRETER.
It runs nothing of them, so they may be another machine's. INTERPRETER is what their scripts begin with."""

import sys
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile


def main(folder: Path, venv: Path, interpreter: str) -> None:
    (site,) = venv.glob("lib/python*/site-packages")
    places = {
        "purelib": site,
        "platlib": site,
        "headers": venv / "include",
        "scripts": venv / "bin",
        "data": venv,
    }
    scheme = {name: str(place) for name, place in places.items()}
    destination = SchemeDictionaryDestination(scheme, interpreter, "posix")
    for file in sorted(folder.glob("*.whl")):
        with WheelFile.open(file) as wheel:
            install(wheel, destination, {"INSTALLER": b"installer\n"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
