"""Builds the bench's extenders in Go from the tests' Go module, unless they are there already: the floor, and
the counter. It installs no Go."""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

from tests.bench.bodies import ROOT
from tests.bench.contender_processes import BenchError

MODULE = ROOT / "tests" / "controlplane"
BIN = MODULE / ".bin"


def binary(name: str) -> Path:
    """The program, built if it is not there or its source has changed. Raises BenchError."""
    BIN.mkdir(exist_ok=True)
    program, stamp = BIN / name, BIN / f"{name}.stamp"
    with (BIN / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the control plane's own build holds it: one Go build at a time
        if not (program.is_file() and stamp.is_file() and stamp.read_text() == _fingerprint(name)):
            stamp.unlink(missing_ok=True)
            _build(program)
            stamp.write_text(_fingerprint(name))
    return program


def go_version() -> str:
    """Which Go compiles them."""
    return _go("env", "GOVERSION")


def _build(program: Path) -> None:
    _go("build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(program), f"./{program.name}")


def _fingerprint(name: str) -> str:
    sources = [MODULE / "go.mod", MODULE / "go.sum", *sorted((MODULE / name).glob("*.go"))]
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()


def _go(*arguments: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH")}
    environment = {**kept, "GO111MODULE": "on", "GOWORK": "off"}
    try:
        done = subprocess.run(["go", *arguments], cwd=MODULE, env=environment, capture_output=True, text=True)
    except OSError:
        raise BenchError(
            "no Go found, and what Berth is measured against is written in Go: install it, or measure "
            "filter and prioritize with --no-floor"
        ) from None
    if done.returncode:
        raise BenchError(f"Go could not build the extender: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
