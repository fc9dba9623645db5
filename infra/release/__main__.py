"""`make release`: wheel, sdist, chart, image, kubectl's plugin, what they are made of, signatures."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from infra.release import provenance
from infra.release.image import Layout, image
from infra.release.plugin import manifest, plugins
from infra.release.signing import Key
from infra.release.source import ReleaseError, Source, read, run
from infra.release.tree import trees

ROOT = Path(__file__).resolve().parents[2]
HELM = ROOT / "tests" / "controlplane" / ".bin-helm" / "helm"
PASSWORD = "BERTH_RELEASE_KEY_PASSWORD"


def main(arguments: Sequence[str]) -> int:
    """Make the release. Returns 1, with a line to standard error, where it can't be made."""
    parser = argparse.ArgumentParser(prog="make release RELEASE_ARGS=…", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="an empty folder (default dist)")
    parser.add_argument(
        "--key", type=Path, help=f"sign with this private key, ECDSA on P-256 in PEM (password: {PASSWORD})"
    )
    parser.add_argument(
        "--base", type=Path, help="the image's base, as an OCI layout; without it no image is made"
    )
    parser.add_argument(
        "--wheels", type=Path, help="a folder for wheels of image and plugin: they are downloaded once"
    )
    parser.add_argument("--url", help="where the files will be, for krew's manifest; without it none is made")
    parser.add_argument("--source", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--helm", type=Path, default=HELM, help="the program helm")
    options = parser.parse_args(arguments)
    try:
        begin(options.out)
        with tempfile.TemporaryDirectory(prefix="berth-release-") as made:
            make(options, Path(made))
            for file in Path(made).iterdir():
                shutil.move(file, options.out)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(sorted(file.name for file in options.out.iterdir())))
    return 0


def make(options: argparse.Namespace, out: Path) -> None:
    """Make all of it in a folder. Raises ReleaseError where something can't be made."""
    key = Key(options.key, os.environ.get(PASSWORD, "")) if options.key else None
    base = Layout(options.base) if options.base else None
    source = read(options.source.resolve())
    if shutil.which(options.helm) is None:
        raise ReleaseError(f"there is no helm at {options.helm}: tests/controlplane/build --helm builds it")
    with trees(source, options.wheels) as made:
        archives = plugins(source, out, made)
        if base:
            image(source, out / f"berth-{source.version}-image.tar", base, made)
    if options.url:
        (out / "berth.krew.yaml").write_text(manifest(source, archives, options.url))
    files = release(source, out, options.helm, base.digest if base else None)
    if key:
        sign(files, key, out)


def begin(out: Path) -> None:
    """Make the folder. Raises ReleaseError where something is in it."""
    out.mkdir(parents=True, exist_ok=True)
    if left := sorted(each.name for each in out.iterdir()):
        raise ReleaseError(f"{out} is not empty (it has {left[0]}): name another folder by --out")


def release(source: Source, out: Path, helm: Path, base: str | None) -> list[Path]:
    """Make the other files, and return all. `base` is its digest. Raises ReleaseError where one can't be
    made."""
    python, folder, environment = sys.executable, source.folder, source.environment
    run([python, "-m", "hatchling", "build", "--directory", str(out.resolve())], folder, environment)
    run([str(helm), "package", "infra/chart", "--destination", str(out.resolve())], folder, environment)
    materials = out / f"berth-{source.version}.cdx.json"
    bill = [python, "-m", "cyclonedx_py", "requirements", "--output-reproducible", "--output-format", "JSON"]
    run([*bill, "--output-file", str(materials.resolve()), "requirements-image.lock"], folder, environment)
    files = sorted(out.iterdir())
    (out / "provenance.json").write_bytes(provenance.statement(source, files, base))
    (out / "SHA256SUMS").write_text(provenance.sums(files))
    return files


def sign(files: Sequence[Path], key: Key, out: Path) -> None:
    """Write a signature beside each file, the signed provenance, and the public key."""
    for file in (*files, out / "SHA256SUMS"):
        Path(f"{file}.sig").write_text(f"{key.signature(file.read_bytes())}\n")
    (out / "provenance.intoto.jsonl").write_text(key.envelope((out / "provenance.json").read_bytes()))
    (out / "release.pub").write_bytes(key.public())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
