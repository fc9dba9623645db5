"""`make audit`: known faults and licences of what is locked, and secrets in the checkout; 1 if any is wrong.

Faults are asked of the package index's advisories. Where nobody can be asked that is said, and is no failure
unless AUDIT is `required`: no list of faults is kept here, for it would be old. The rest needs no network.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
SHIPPED, LOCKS = "requirements-image.lock", ("requirements.lock", "requirements-audit.lock")

ACCEPTED: Mapping[str, str] = {}
"""Known faults that are no danger here, by their id, and why."""

LICENCES = re.compile(
    r"\b(apache|bsd|isc|mit|mpl|mozilla|psf|python software foundation|unlicense|zero)\b", re.IGNORECASE
)
"""What may be given on with Berth: each of a package's licences has one of these words."""

PLACEHOLDER = r"(?i)^(token|secret|s3c?r?[e3]+t|s3%[0-9a-f]{2}.*|%2f.*|/:#%)$"
"""What stands for a secret in manifests, docs and tests."""

KNOWN = {
    ("Private Key", "shared/berth/testing/control_plane.py"),  # made anew for each control plane
    ("Hex High Entropy String", "tests/bench/bodies.py"),  # a node's machineID, made up
    ("Hex High Entropy String", "tests/support/builders/certificates.py"),  # object identifiers
}


def main() -> int:
    wrong = 0
    for what, lines in (
        ("secrets in the checkout", secrets(scanned(tracked()))),
        (f"licences of {SHIPPED}", licences(declared(names(SHIPPED)), names(SHIPPED))),
        *((f"known faults of {lock}", faults(asked(lock), required=required())) for lock in LOCKS),
    ):
        found = list(lines)
        wrong += sum(not line.startswith("note: ") for line in found)
        print("\n  ".join([f"{what}:", *(found or ["nothing wrong"])]))
    return min(wrong, 1)


def required() -> bool:
    return os.environ.get("AUDIT") == "required"


# Secrets


def tracked() -> list[str]:
    files = _run("git", "ls-files", tool=False).stdout.splitlines()
    # What stores held is hashes and random marks, of clusters that are gone.
    return [
        name for name in files if not (name.endswith((".lock", "go.sum")) or name.startswith("tests/data/"))
    ]


def scanned(files: list[str]) -> Mapping[str, Any]:
    options = ["--no-verify", "--disable-plugin", "KeywordDetector", "--exclude-secrets", PLACEHOLDER]
    done = _run("detect-secrets", "scan", *options, *files)
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def secrets(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each place that looks like a secret and is not known."""
    for file, places in sorted(found["results"].items()):
        for each in places:
            if (each["type"], file) not in KNOWN:
                yield f"{file}:{each['line_number']} looks like a secret ({each['type']})"


# Licences


def names(lock: str) -> list[str]:
    return re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / lock).read_text(), re.MULTILINE)


def declared(packages: Iterable[str]) -> list[Mapping[str, str]]:
    """The licence of each of these that is installed for the tests."""
    python = ROOT / ".venv" / "bin" / "python"
    done = _run(
        "pip-licenses", "--python", str(python), "--from", "mixed", "--format", "json", "-p", *packages
    )
    found: list[Mapping[str, str]] = json.loads(done.stdout)
    return found


def licences(found: Collection[Mapping[str, str]], wanted: Iterable[str] = ()) -> Iterator[str]:
    """A line for each licence that may not be given on, and a note for each package not looked at."""
    there = {_normal(each["Name"]) for each in found}
    for name in (each for each in wanted if _normal(each) not in there):
        yield f"note: {name} is not installed here, so nobody looked at its licence"
    for each in found:
        if not all(LICENCES.search(part) for part in re.split(r";| AND ", each["License"])):
            yield f"{each['Name']} {each['Version']} has the licence {each['License']!r}"


def _normal(name: str) -> str:
    """A package's name as all spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


# Known faults


def asked(lock: str) -> list[Mapping[str, Any]] | str:
    """What the index says of each package, or why it could not be asked."""
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = _run("pip-audit", *options, "--requirement", lock)
    try:
        found: list[Mapping[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return (done.stderr.strip().splitlines() or ["no answer"])[-1]
    return found


def faults(found: list[Mapping[str, Any]] | str, *, required: bool) -> Iterator[str]:
    """A line for each fault, and for what is not known: that is a mere note unless it is `required`."""
    mere = "" if required else "note: "
    if isinstance(found, str) or all("skip_reason" in each for each in found):
        why = found if isinstance(found, str) else "the index here has no advisories"
        yield f"{mere}nobody could be asked ({why})"
        return
    for each in found:
        if "skip_reason" in each:
            yield f"{mere}{each['name']}: {each['skip_reason']}"
        for fault in each.get("vulns", ()):
            if fault["id"] not in ACCEPTED and not ACCEPTED.keys() & {*fault.get("aliases", ())}:
                fixed = ", ".join(fault["fix_versions"]) or "no version yet"
                yield f"{each['name']} {each['version']}: {fault['id']}, mended in {fixed}"


def _run(program: str, *arguments: str, tool: bool = True) -> subprocess.CompletedProcess[str]:
    command = [str(TOOLS / program) if tool else program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
