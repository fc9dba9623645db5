"""The instructions of infra/Containerfile, for what is made without an engine."""

import shlex
from pathlib import Path
from typing import Any

import yaml

Instructions = list[tuple[str, str]]


def instructions(file: Path) -> Instructions:
    """Return them in order, each with its arguments on one line."""
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    lines = (line.partition(" ") for line in text.replace("\\\n", " ").splitlines() if line.strip())
    return [(name.upper(), " ".join(rest.split())) for name, _, rest in lines]


def last(said: Instructions, name: str) -> str:
    """Return the arguments of the last such instruction: those of the image itself."""
    return [rest for each, rest in said if each == name][-1]


def config(said: Instructions, base: dict[str, Any]) -> dict[str, Any]:
    """Return the `config` of an image's configuration: the base's, changed by the last stage's
    instructions."""
    env = {name: value for name, _, value in (each.partition("=") for each in base.get("Env") or ())}
    env |= {
        name: value for name, _, value in (each.partition("=") for each in shlex.split(last(said, "ENV")))
    }
    labels = dict(each.split("=", 1) for each in shlex.split(last(said, "LABEL")))
    made = {
        **base,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "User": last(said, "USER"),
        "WorkingDir": last(said, "WORKDIR"),
        "ExposedPorts": {f"{last(said, 'EXPOSE')}/tcp": {}},
        "Entrypoint": yaml.safe_load(last(said, "ENTRYPOINT")),
        "Cmd": yaml.safe_load(last(said, "CMD")),
        "Labels": {**(base.get("Labels") or {}), **labels},
    }
    return {name: value for name, value in made.items() if value != []}
