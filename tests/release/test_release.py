"""`make release` twice, in two folders, of one commit: the same bytes, which programs of others check.

The commit is this checkout's files, committed for the test.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage
from securesystemslib.dsse import Envelope
from securesystemslib.signer._key import Key

from berth import __version__
from infra.release import publish
from infra.release.__main__ import PASSWORD, main
from infra.release.image import Layout
from tests.release import base
from tests.support.fixtures import missing
from tests.support.kubernetes import FOLDERS
from tests.support.references import ROOT

pytestmark = [pytest.mark.long, pytest.mark.group("release")]

URL = "https://release.example/v1"
WHEEL = f"berth_scheduler-{__version__}-py3-none-any.whl"
SDIST = f"berth_scheduler-{__version__}.tar.gz"
CHART = f"berth-{__version__}.tgz"
BILL = f"berth-{__version__}.cdx.json"
IMAGE = f"berth-{__version__}-image.tar"
PLUGINS = {each: f"kubectl-berth-{__version__}-linux-{each}.tar.gz" for each in base.ARCHITECTURES}
KREW = "berth.krew.yaml"
MADE = {WHEEL, SDIST, CHART, BILL, IMAGE, KREW, *PLUGINS.values()}
EXTRAS = {
    "": "berth.cli",
    "redis": "berth.stores.redis.connection, redis",
    "dynamodb": "berth.stores.dynamodb.client, boto3",
    "otel": "berth.telemetry.traces, opentelemetry.sdk.trace",
}


def git(folder: Path, *words: str) -> str:
    who = {f"GIT_{role}_{what}": "berth" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    when = {f"GIT_{role}_DATE": "1700000000 +0000" for role in ("AUTHOR", "COMMITTER")}
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**os.environ, **who, **when},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def checkout(folder: Path) -> Path:
    """This checkout's files, committed in a repository of their own."""
    names = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all of it")
    return folder


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("key") / "release.key", ec.generate_private_key(ec.SECP256R1()))


def written(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: str = "") -> Path:
    how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return path


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory, helm: Path, key: Path) -> tuple[Path, Path]:
    """Two, of two checkouts."""
    folder = tmp_path_factory.mktemp("release")
    image = ["--base", str(base.write(folder / "base")), "--wheels", str(folder / "wheels"), "--url", URL]
    for name in ("one", "other"):
        source = checkout(folder / name)
        words = ["--source", str(source), "--out", str(folder / f"{name}-made"), "--key", str(key)]
        assert main([*words, *image, "--helm", str(helm)]) == 0
    return folder / "one-made", folder / "other-made"


@pytest.fixture(scope="module")
def made(releases: tuple[Path, Path]) -> Path:
    return releases[0]


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_two_releases_of_a_commit_have_the_same_bytes(releases: tuple[Path, Path]) -> None:
    one, other = ({each.name: each.read_bytes() for each in folder.iterdir()} for folder in releases)
    signed = {f"{name}.sig" for name in (*MADE, "SHA256SUMS")}
    assert set(one) == {
        *MADE,
        *signed,
        "SHA256SUMS",
        "provenance.json",
        "provenance.intoto.jsonl",
        "release.pub",
    }
    assert [name for name in one if one[name] != other[name]] == []


def test_wheel_and_source_have_good_metadata_and_the_source_makes_the_wheel(
    made: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", made / WHEEL, made / SDIST, folder=tmp_path)
    words = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *words, "--wheel-dir", tmp_path, made / SDIST, folder=tmp_path)
    assert sorted(contents(tmp_path / WHEEL)) == sorted(contents(made / WHEEL))
    assert (made / SDIST).stat().st_size < 2_000_000


def contents(wheel: Path) -> set[tuple[str, str]]:
    folder = wheel.with_suffix(".unpacked")
    shutil.unpack_archive(wheel, folder, "zip")
    return {
        (str(each.relative_to(folder)), hashlib.sha256(each.read_bytes()).hexdigest())
        for each in folder.rglob("*")
        if each.is_file()
    }


@pytest.mark.parametrize("architecture", base.ARCHITECTURES)
def test_skopeo_checks_the_image_and_finds_berth_on_the_base(
    made: Path, tmp_path: Path, skopeo_program: Path, architecture: str
) -> None:
    """It compares each blob with its digest when it copies."""
    words = (skopeo_program, "--insecure-policy", "--override-os", "linux", "--override-arch", architecture)
    run(
        *words, "copy", "--quiet", f"oci-archive:{made / IMAGE}:{__version__}", f"dir:{tmp_path}", folder=made
    )
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    said = json.loads(blob(tmp_path, manifest["config"]))
    assert said["architecture"] == architecture
    assert base.ENV[1] in said["config"]["Env"]
    assert "PATH=/app/venv/bin:/usr/local/bin:/usr/bin:/bin" in said["config"]["Env"]
    assert said["config"]["User"] == "65532:65532"
    assert said["config"]["Cmd"] == ["python", "-m", "berth.http.server"]
    assert "Entrypoint" not in said["config"]
    of_base, own = (gzip.decompress(blob(tmp_path, layer)) for layer in manifest["layers"])
    assert [hashlib.sha256(each).hexdigest() for each in (of_base, own)] == [
        each.removeprefix("sha256:") for each in said["rootfs"]["diff_ids"]
    ]
    with tarfile.open(fileobj=io.BytesIO(own)) as layer:
        entries = {each.name: each for each in layer}
        script = layer.extractfile("app/venv/bin/berth")
        assert script is not None
        assert script.readline() == b"#!/app/venv/bin/python\n"
    assert {(each.uid, each.gid, each.mtime) for each in entries.values()} == {(0, 0, 1700000000)}
    assert not [name for name, each in entries.items() if each.mode & 0o022 and not each.issym()]
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[architecture]
    native = {name.split(".")[-2] for name in entries if name.endswith(".so") and "cpython" in name}
    assert {name for name in native if not name.endswith(f"{machine}-linux-gnu")} == set()
    assert native
    assert "app/functions/bind/main.py" in entries


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of krew and actionlint; without Go their tests are skipped."""
    if shutil.which("go") is None:
        missing("no go here: krew and actionlint can't be built")
    folder = tmp_path_factory.mktemp("tools")
    names = ("sigs.k8s.io/krew/cmd/krew", "github.com/rhysd/actionlint/cmd/actionlint")
    run("go", "build", "-o", f"{folder}/", *names, folder=ROOT / "tests" / "release" / "tools")
    return folder


def test_krew_installs_the_plugin_and_it_answers(made: Path, tools: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KREW_ROOT": str(tmp_path / "krew")}
    (tmp_path / "berth.yaml").write_bytes((made / KREW).read_bytes())
    local = [f"--manifest={tmp_path / 'berth.yaml'}", f"--archive={made / PLUGINS['amd64']}"]
    command: list[str | Path] = [tools / "krew", "install", *local]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    plugin = tmp_path / "krew" / "bin" / "kubectl-berth"
    for words, said in ((("version", "--client"), f"berth      {__version__}"), (("--help",), "usage: ")):
        done = subprocess.run(
            [plugin, *words], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.stdout.startswith(said), done.stdout + done.stderr


def test_the_workflow_is_right_and_runs_nothing_but_targets_of_make(tools: Path) -> None:
    workflow = ROOT / ".github" / "workflows" / "release.yaml"
    run(tools / "actionlint", "-no-color", workflow, folder=ROOT)
    steps = yaml.safe_load(workflow.read_text())["jobs"]["release"]["steps"]
    commands = [each["run"] for each in steps if "run" in each]
    assert [each.split()[:2] for each in commands] == [
        ["make", "release-base"],
        ["make", "release"],
        ["make", "publish"],
    ]


def test_each_night_the_longest_tests_run_and_the_others_on_every_older_kubernetes(tools: Path) -> None:
    workflow = ROOT / ".github" / "workflows" / "nightly.yaml"
    run(tools / "actionlint", "-no-color", workflow, folder=ROOT)
    job = yaml.safe_load(workflow.read_text())["jobs"]["tests"]
    assert {*job["strategy"]["matrix"]["tests"]} == {"nightly", *FOLDERS} - {"newest"}
    assert [step["run"] for step in job["steps"] if "run" in step] == ['make "test-$TESTS"']


def test_the_base_that_make_fetches_is_one_for_a_release(tmp_path: Path, skopeo_program: Path) -> None:
    assert skopeo_program.is_file()
    (copy := tmp_path / "copy").mkdir()
    shutil.copy(ROOT / "Makefile", copy)
    (copy / "tests" / "support").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "support" / "install", copy / "tests" / "support")
    there = base.write(tmp_path / "there")
    run("make", "release-base", f"BASE=oci:{there}", folder=copy)
    for architecture in base.ARCHITECTURES:
        _, configuration = Layout(copy / "build" / "base").manifest(architecture)
        assert configuration["config"]["Env"] == base.ENV


def test_what_is_published_is_all_of_it_each_file_signed(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands alone: no registry and no signer can be reached here."""
    words = ["--dist", str(made), "--image", "registry.example/Berth", "--charts", "registry.example/charts"]
    assert publish.main([*words, "--helm", "helm", "--dry-run"]) == 0
    said = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [each[:2] for each in said[:3]] == [["skopeo", "copy"], ["cosign", "sign"], ["helm", "push"]]
    assert said[0][-2:] == [
        f"oci-archive:{made / IMAGE}:{__version__}",
        f"docker://registry.example/berth:{__version__}",
    ]
    assert re.fullmatch(r"registry.example/berth@sha256:[0-9a-f]{64}", said[1][-1])
    files = {str(each) for each in made.iterdir()}
    signed = [each for each in said if each[:2] == ["cosign", "sign-blob"]]
    assert {each[-1] for each in signed} == files
    assert said[-1][:4] == ["gh", "release", "create", f"v{__version__}"]
    assert set(said[-1][7:]) == files | {f"{each}.sigstore.json" for each in files}
    assert publish.main([*words[:1], str(made / "none"), *words[2:]]) == 1
    assert "has no release with an image" in capsys.readouterr().err


def blob(folder: Path, descriptor: dict[str, str]) -> bytes:
    return (folder / descriptor["digest"].removeprefix("sha256:")).read_bytes()


def test_sha256sum_checks_all_files(made: Path) -> None:
    said = run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=made)
    assert said.splitlines() == [f"{name}: OK" for name in sorted(MADE)]


def test_openssl_checks_each_signature_and_refuses_another_file(made: Path, tmp_path: Path) -> None:
    """What cosign's `verify-blob --key release.pub --signature FILE.sig` checks."""
    for name in (*MADE, "SHA256SUMS"):
        raw = tmp_path / "raw"
        raw.write_bytes(base64.b64decode((made / f"{name}.sig").read_text()))
        check: list[str | Path] = [
            "openssl",
            "dgst",
            "-sha256",
            "-verify",
            made / "release.pub",
            "-signature",
            raw,
        ]
        assert "Verified OK" in run(*check, made / name, folder=tmp_path)
    done = subprocess.run([*check, made / WHEEL], capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_in_totos_own_library_checks_the_provenance(made: Path) -> None:
    envelope = Envelope.from_dict(json.loads((made / "provenance.intoto.jsonl").read_text()))
    public = (made / "release.pub").read_text()
    scheme = "ecdsa-sha2-nistp256"
    envelope.verify(
        [Key.from_dict("", {"keytype": "ecdsa", "scheme": scheme, "keyval": {"public": public}})], 1
    )
    assert envelope.payload == (made / "provenance.json").read_bytes()
    statement = json.loads(envelope.payload)
    parsed = Statement.copy_from_pb(ParseDict(statement, StatementMessage()))
    parsed.validate()
    ParseDict(statement["predicate"], provenance_pb2.Provenance())  # an unknown field is an error
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert subjects == {name: hashlib.sha256((made / name).read_bytes()).hexdigest() for name in MADE}
    commit = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"]
    assert re.fullmatch(r"[0-9a-f]{40}", commit)


def test_cyclonedxs_own_library_checks_the_bill_of_materials(made: Path) -> None:
    text = (made / BILL).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    named = {each["name"].lower() for each in json.loads(text)["components"]}
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements-image.lock").read_text(), re.M)
    assert named == {name.lower() for name in locked}


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_is_enough_for_what_it_is_for(made: Path, tmp_path: Path, extra: str) -> None:
    """In a new environment, with the locked versions."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pins = re.findall(r"^[A-Za-z0-9._-]+==\S+", (ROOT / "requirements-image.lock").read_text(), re.M)
    (tmp_path / "pins").write_text("\n".join(pins))
    wanted = f"{made / WHEEL}[{extra}]" if extra else str(made / WHEEL)
    words = (
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--constraint",
        tmp_path / "pins",
        wanted,
    )
    run(sys.executable, "-m", "pip", "--python", python, "install", *words, folder=tmp_path)
    run(python, "-c", f"import {EXTRAS[extra]}", folder=tmp_path)
    run(sys.executable, "-m", "pip", "--python", python, "check", folder=tmp_path)
    assert run(tmp_path / "venv/bin/berth", "version", "--client", folder=tmp_path).startswith("berth ")


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main([str(word) for word in words]) == 1
    return capsys.readouterr().err


def test_what_can_not_be_released_is_said_in_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = checkout(tmp_path / "source")
    (out := tmp_path / "out").mkdir()
    usual = ("--source", source, "--out", out)
    assert "there is no helm at" in refusal(capsys, *usual, "--helm", tmp_path / "none")
    assert "is no OCI layout" in refusal(capsys, *usual, "--base", tmp_path)
    (source / "README.md").write_text("another")
    assert "README.md is not committed" in refusal(capsys, *usual)
    assert "can't be read" in refusal(capsys, *usual, "--key", tmp_path / "none")
    (wrong := tmp_path / "wrong").write_text("-----BEGIN nothing-----")
    assert "is no private key" in refusal(capsys, *usual, "--key", wrong)
    written(wrong, rsa.generate_private_key(65537, 2048))
    assert "should be one for ECDSA on P-256" in refusal(capsys, *usual, "--key", wrong)
    written(wrong, ec.generate_private_key(ec.SECP256R1()), password="open")
    assert "its password is another" in refusal(capsys, *usual, "--key", wrong)
    monkeypatch.setenv(PASSWORD, "open")
    assert "README.md is not committed" in refusal(capsys, *usual, "--key", wrong)
    assert list(out.iterdir()) == []
    (out / "old").touch()
    assert "is not empty (it has old)" in refusal(capsys, *usual)
