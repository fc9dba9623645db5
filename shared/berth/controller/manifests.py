"""Documents of YAML or JSON, as kubectl takes them, and where each stands in its file.
What they mean berth.api judges. Nothing that a file says is dropped: a field that is there twice is wrong."""

import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from berth.errors import BadInputError

_ENDINGS = {".yaml", ".yml", ".json"}


class Manifest(NamedTuple):
    """A document, and where it begins."""

    document: Any
    source: str
    line: int = 1

    @property
    def place(self) -> str:
        """Return file and line, as editors take them."""
        return f"{self.source}:{self.line}"


def files_in(path: Path) -> list[Path]:
    """Return the path, or the manifests in it if it is a folder. Raises BadInputError for one without any."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS and file.is_file())
    if not files:
        raise BadInputError(f"{path} has no file that ends in {', '.join(sorted(_ENDINGS))}")
    return files


def read(path: Path) -> list[Manifest]:
    """Return the documents of a file, without empty ones. Raises BadInputError that names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"can't read {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise BadInputError(f"{path} is not YAML: it is not UTF-8 text") from error
    return decode(text, str(path))


def decode(text: str, source: str) -> list[Manifest]:
    """Return the documents of a text, without empty ones. Raises BadInputError that names source and line."""
    # First: a large cluster's nodes take minutes as YAML.
    if text.lstrip().startswith("{") and (document := _of_json(text)) is not None:
        return [Manifest(part, source) for part in _listed(document) if part is not None]
    try:
        return list(_of_yaml(text, source))
    except yaml.MarkedYAMLError as error:
        what = "can't be taken" if isinstance(error, yaml.constructor.ConstructorError) else "is not YAML"
        raise BadInputError(f"{source} {what}{_where(error)}") from error
    except (LookupError, AttributeError) as error:  # which is what PyYAML raises for `!!bool x`
        raise BadInputError(f"{source} is not YAML: a value is not what its tag says") from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadInputError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise BadInputError(f"{source} is not YAML that Berth takes: it is nested too deeply") from error


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value} is there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _of_yaml(text: str, source: str) -> Iterator[Manifest]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            document = loader.construct_document(node)
            for part, at in _parts(document, node):
                if part is not None:
                    yield Manifest(part, source, at.start_mark.line + 1)
    finally:
        loader.dispose()


def _parts(document: Any, node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a List's documents, as `kubectl get` writes one, else the document itself, with their nodes."""
    items = _listed(document)
    if items != [document]:
        (nodes,) = [value.value for key, value in node.value if key.value == "items"] or [[node] * len(items)]
        yield from zip(items, nodes, strict=True)
    else:
        yield document, node


def _listed(document: Any) -> list[Any]:
    items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
    return items if isinstance(items, list) else [document]


def _of_json(text: str) -> Any:
    """Return the document of a JSON text; None: it is none. Indented by tabs it is JSON, and no YAML."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except ValueError:
        return None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a field is there twice")
    return dict(pairs)


def _where(error: yaml.MarkedYAMLError) -> str:
    """Return the line, what is wrong there, and the line's text with a mark below it."""
    what = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f": {what}"
    tab = " (indent by blanks, not by tabs)" if "'\\t'" in what else ""
    snippet = f"\n{mark.get_snippet(indent=4)}" if mark.buffer else ""
    return f", line {mark.line + 1}: {what}{tab}{snippet}"
