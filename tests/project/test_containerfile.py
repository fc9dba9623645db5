"""What infra/Containerfile and the image's locks promise, as they are written.

tests/e2e/test_image.py makes the tree. That an engine takes the Containerfile is not shown.
"""

import json
import re
import tomllib
from pathlib import Path

from tests.support.builders.image import PLACE, ROOT, containers, copies, functions, instructions, last

IMAGE, BUILD, ALL = "requirements-image.lock", "requirements-build.lock", "requirements.lock"


def name_of(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """By name: the pinned requirement, and the hashes that its wheels may have."""
    whole = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [line.split() for line in whole.splitlines() if re.match(r"\w", line)]
    hashes = [frozenset(each for each in line if each.startswith("--hash=sha256:")) for line in lines]
    return {name_of(line[0]): (line[0], some) for line, some in zip(lines, hashes, strict=True)}


def copied() -> list[str]:
    """What is copied from the checkout."""
    return [source for sources, _ in copies() for source in sources]


def test_both_base_images_are_named_by_digests_that_have_no_default() -> None:
    arguments = [rest for name, rest in instructions() if name == "ARG"]
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert len(bases) == 2
    for base in bases:
        found = re.fullmatch(r"\$\{(\w+)\}@\$\{(\w+_DIGEST)\}", base)
        assert found, base
        assert found[2] in arguments


def test_all_that_is_run_is_the_script_that_the_tests_run_and_a_look_at_its_result() -> None:
    runs = [json.loads(rest) for name, rest in instructions() if name == "RUN"]
    assert runs == [["/source/infra/image/build", PLACE], ["berth", "--version"]]
    assert not [name for name, _ in instructions() if name in {"ADD", "SHELL", "ONBUILD", "VOLUME"}]


def test_what_it_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied()
    assert [each for each in copied() if not (ROOT / each).exists()] == []
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == set(copied())
    assert "*" in ignored


def test_it_runs_as_the_user_in_the_folder_and_on_the_port_that_the_manifests_name() -> None:
    user, group = last("USER").split(":")
    for each in containers():
        security = each["securityContext"]
        assert str(security.get("runAsUser", user)) == user
        assert str(security.get("runAsGroup", group)) == group
        assert security["readOnlyRootFilesystem"] is True
        assert {str(port["containerPort"]) for port in each.get("ports", [])} <= {last("EXPOSE")}
    assert int(user) > 0
    assert last("WORKDIR") == PLACE
    assert {Path(values["FUNCTION_SOURCE"]).parts for values in functions().values()} == {
        path.relative_to(ROOT).parts for path in ROOT.glob("functions/*/main.py")
    }


def test_its_locks_pin_what_the_tests_run_with() -> None:
    everything = pins(ALL)
    for lock in (IMAGE, BUILD):
        assert {name: pin for name, pin in pins(lock).items() if everything[name] != pin} == {}


def test_its_locks_depend_on_no_version_or_machine() -> None:
    """The first image's Python chooses wheels, the second's runs them, and may be of an older patch."""
    for lock in (IMAGE, BUILD):
        text = (ROOT / lock).read_text()
        assert ";" not in text
        assert "://" not in text
        assert not re.search(r"(^|[\s=])/\w", text)


def test_it_holds_what_the_package_asks_for_with_every_stores_driver_and_none_of_the_tests_tools() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    drivers = project["optional-dependencies"].values()
    wanted = {name_of(each) for some in (project["dependencies"], *drivers) for each in some}
    assert wanted - pins(IMAGE).keys() == set()
    assert not {"pytest", "moto", "mypy", "ruff", "hatchling"} & pins(IMAGE).keys()
    assert "hatchling" in pins(BUILD)
