"""`make publish`: image, chart and files of a release go to where users take them, signed by cosign without a
key (https://docs.sigstore.dev/cosign/signing/overview/). The programs skopeo, cosign, helm and gh do it."""

import argparse
import json
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from infra.release.__main__ import HELM
from infra.release.source import ReleaseError


def main(arguments: Sequence[str]) -> int:
    """Publish, or say the commands. Returns 1, with a line to standard error, where one fails."""
    parser = argparse.ArgumentParser(prog="make publish PUBLISH_ARGS=…", description=__doc__)
    parser.add_argument("--dist", type=Path, default=Path("dist"), help="what make release made (dist)")
    parser.add_argument("--image", required=True, help="the image's name, such as registry.example/berth")
    parser.add_argument("--charts", required=True, help="the charts' folder, such as registry.example/charts")
    parser.add_argument("--helm", type=Path, default=HELM, help="the program helm")
    parser.add_argument("--dry-run", action="store_true", help="only say the commands")
    options = parser.parse_args(arguments)
    try:
        for command in commands(options.dist, options.image.lower(), options.charts.lower(), options.helm):
            print(shlex.join(command), flush=True)
            if not options.dry_run:
                _run(command)
    except (ReleaseError, OSError) as error:
        print(f"publish: {error}", file=sys.stderr)
        return 1
    return 0


def _run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise ReleaseError(f"{command[0]} failed: what was published before stays; it may be done again")


def commands(dist: Path, image: str, charts: str, helm: Path) -> Iterator[list[str]]:
    """Yield them in order. Raises ReleaseError where the folder has no release with an image."""
    archives = sorted(dist.glob("berth-*-image.tar"))
    if len(archives) != 1:
        raise ReleaseError(f"{dist} has no release with an image: run make release with --base first")
    (archive,) = archives
    version = archive.name.removeprefix("berth-").removesuffix("-image.tar")
    target = f"docker://{image}:{version}"
    yield ["skopeo", "copy", "--all", "--preserve-digests", f"oci-archive:{archive}:{version}", target]
    yield ["cosign", "sign", "--yes", "--recursive", f"{image}@{digest(archive)}"]
    yield [str(helm), "push", str(dist / f"berth-{version}.tgz"), f"oci://{charts}"]
    files = [file for file in sorted(dist.iterdir()) if not file.name.endswith(".sigstore.json")]
    for file in files:
        yield ["cosign", "sign-blob", "--yes", "--bundle", f"{file}.sigstore.json", str(file)]
    told = [str(each) for file in files for each in (file, f"{file}.sigstore.json")]
    yield ["gh", "release", "create", f"v{version}", "--verify-tag", "--title", version, *told]


def digest(archive: Path) -> str:
    """Return the digest of the image's index."""
    with tarfile.open(archive) as files:
        index = files.extractfile("index.json")
        if index is None:
            raise ReleaseError(f"{archive} is no OCI archive")
        found: str = json.loads(index.read())["manifests"][0]["digest"]
        return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
