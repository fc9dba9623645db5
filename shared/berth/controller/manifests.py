"""Documents of YAML or JSON, as kubectl takes them, and where each stands in its file.
What they mean berth.api judges. Nothing that a file says is dropped: a field that is there twice is wrong."""

import json
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from berth.errors import BadInputError

_ENDINGS = {".yaml", ".yml", ".json"}
_DEEPEST = 200  # levels of a document
_MOST = 1_000_000  # values of a document, if that is more than its text has characters
_HALF = re.compile(r"\\u[dD][89a-fA-F]..")
"""An escape of a surrogate: two may be a character to JSON, one is none that can be written."""


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
    return decode(text_of(path), str(path))


def text_of(path: Path) -> str:
    """Return a file's text. Raises BadInputError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"can't read {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise BadInputError(f"{path} is not YAML: it is not UTF-8 text") from error


def decode(text: str, source: str) -> list[Manifest]:
    """Return the documents of a text, without empty ones. Raises BadInputError that names source and line."""
    manifests, halves = _decoded(text, source), _HALF.search(text)
    for manifest in manifests:
        if not _is_of_size(manifest.document, max(_MOST, len(text))):
            raise BadInputError(
                f"{manifest.place}: it is nested too deeply, or its aliases stand for too much"
            )
        if halves and not _is_text(manifest.document):
            raise BadInputError(
                f"{manifest.place}: an escape in it, such as {halves[0]}, is half a character"
            )
    return manifests


def _decoded(text: str, source: str) -> list[Manifest]:
    try:
        # First: a large cluster's nodes take minutes as YAML.
        if text.lstrip().startswith("{") and (document := _of_json(text)) is not None:
            items = _items(document)
            parts = [document] if items is None else items
            return [Manifest(part, source) for part in parts if part is not None]
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


def _is_text(document: Any) -> bool:
    try:
        json.dumps(document, ensure_ascii=False, skipkeys=True, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_of_size(document: Any, most: int) -> bool:
    """Whether it has no more values than that, and no more levels than any object has: few lines of aliases
    can stand for billions, and one that holds itself for no end of them."""
    level = [document]
    for _ in range(_DEEPEST):
        holders = [value for value in level if type(value) in (dict, list)]
        if not holders:
            return True
        most -= sum(map(len, holders))
        if most < 0:
            return False
        level = [one for value in holders for one in (value.values() if type(value) is dict else value)]
    return False


class _Loader(yaml.SafeLoader):
    """Takes no key twice. A date is text, as to kubectl."""

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


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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
    """Yield a list's objects, else the document itself, with their nodes."""
    items = _items(document)
    if items is None:
        yield document, node
        return
    (nodes,) = [value.value for key, value in node.value if key.value == "items"] or [[node] * len(items)]
    yield from zip(items, nodes, strict=True)


def _items(document: Any) -> list[Any] | None:
    """Return the objects of a List, as `kubectl get` writes one, or of a list of one kind, as the API server
    does: there they may have no kind of their own. None: it is no list."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(document.get("items"), list):
        return None
    if kind == "List":
        return [*document["items"]]
    head = {field: document[field] for field in ("apiVersion",) if field in document}
    head["kind"] = kind.removesuffix("List")
    return [{**head, **item} if isinstance(item, dict) else item for item in document["items"]]


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
