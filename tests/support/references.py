"""What the project's comments, docstrings and pages refer to: files, headings, tests, decision records.
It reads no program's strings: whether they are right is shown by running the program."""

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "shared/berth"

_NO_COMMENTS = {".png", ".db", ".json", ".lock", ".sum"}
_COMMENT = {".lua": "--", ".go": "//", ".mod": "//"}  # all others: #
_FOLDERS = r"docs|tests|infra|shared|functions|\.ci|events/\w+"
_FILE = re.compile(
    rf"(?<![\w/.<{{-])(?P<path>(?:{_FOLDERS})/[\w./*-]*[\w*]|(?:README|CHANGELOG|CONTRIBUTING|SECURITY)\.md)"
    r"(?:::(?P<test>\w+))?(?:#(?P<anchor>[\w-]+))?"
)
_BARE = re.compile(r"(?<![\w/.*<{-])\w+\.py\b")
_MODULE = re.compile(r"`(?P<path>[a-z]+/[a-z_]+)(?:\.py)?`")
_LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)\s#]*)(?:#(?P<anchor>[^)\s]+))?\)")
_NUMBERS = r"s?[\s/]+(\d{1,4}(?:(?:,|,?\s+and|,?\s+or)\s+\d{1,4}\b)*)"
_OUTSIDE = re.compile(
    r"\bfacts,?\s+\d|\bdesign\s+\d|\bfacts:|\(facts\b|\bthe design's\b|\b(?:facts|design|layout|style)\.md\b"
    r"|\bstep\s+\d+\b|\bissue\s+#?\d+\b(?!\]\(https://)",
    re.IGNORECASE,
)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)


class Reference(NamedTuple):
    """What one file names; `path` is from the project's root."""

    path: str
    anchor: str = ""
    test: str = ""

    def __str__(self) -> str:
        test, anchor = self.test and f"::{self.test}", self.anchor and f"#{self.anchor}"
        return f"{self.path}{test}{anchor}"


@cache
def committed() -> frozenset[str]:
    """Files of the project, from its root: those that git knows, and new ones that it does not ignore."""
    # Whoever owns the folder: a container's user is often another one.
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return frozenset(name for name in listed.splitlines() if (ROOT / name).is_file())


@cache
def prose() -> dict[str, str]:
    """What each file says to people: a page whole, of a program the comments and docstrings."""
    names = sorted(name for name in committed() if PurePosixPath(name).suffix not in _NO_COMMENTS)
    return {name: prose_of(name, (ROOT / name).read_text()) for name in names}


def prose_of(name: str, text: str) -> str:
    """What a file with this name and text says to people."""
    suffix = PurePosixPath(name).suffix
    if suffix == ".md":
        return text
    if suffix == ".py":
        return "\n".join(passage for _, passage in sorted(_said_in_python(text)))
    return "\n".join(re.findall(rf"(?:^|(?<=\s)){_COMMENT.get(suffix, '#')} ?(.*)", text, re.MULTILINE))


def _said_in_python(source: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings, attributes' too, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as said)):
                yield node.lineno, said


def references_in(name: str, text: str) -> set[Reference]:
    """The files that this file's prose names, and where its links lead if it is a page."""
    found = {
        Reference(each["path"], each["anchor"] or "", each["test"] or "") for each in _FILE.finditer(text)
    }
    found |= {Reference(f"*/{each}") for each in _BARE.findall(text)}
    found |= {Reference(_path_of(each)) for each in _MODULE.findall(text) if _is_ours(each)}
    if name.endswith(".md"):
        for link in _LINK.finditer(_FENCED.sub("", text)):
            found.add(Reference(_resolved(name, link["path"]), link["anchor"] or ""))
    return found


def _is_ours(module: str) -> bool:
    """Whether it is written as a module of ours: `controller/requeue`, in a folder of the package."""
    return _is_folder(f"{PACKAGE}/{module.partition('/')[0]}")


def _path_of(module: str) -> str:
    package = f"{PACKAGE}/{module}"
    return package if _is_folder(package) else f"{package}.py"


def _is_folder(path: str) -> bool:
    return any(name.startswith(f"{path.rstrip('/')}/") for name in committed())


def _resolved(page: str, target: str) -> str:
    """A link's target, from the project's root."""
    if not target:
        return page
    whole = (ROOT / page).parent.joinpath(target).resolve()
    return whole.relative_to(ROOT).as_posix() if whole.is_relative_to(ROOT) else target


def is_there(reference: Reference) -> bool:
    """Whether the file, its heading and its test exist. `docs/decisions/0016` is a record's short name."""
    path = reference.path
    if "*" in path:
        return any(fnmatchcase(name, path) for name in committed())
    if re.fullmatch(r"docs/decisions/\d{4}", path):
        return int(path[-4:]) in records()
    if path not in committed():
        return _is_folder(path) and not (reference.anchor or reference.test)
    if reference.anchor and reference.anchor not in anchors((ROOT / path).read_text()):
        return False
    return not reference.test or reference.test in _definitions((ROOT / path).read_text())


def _definitions(source: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


def anchors(page: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_FENCED.sub("", page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@cache
def records() -> frozenset[int]:
    """The numbers of the decision records."""
    named = (re.fullmatch(r"docs/decisions/(\d{4})-[\w-]+\.md", name) for name in committed())
    return frozenset(int(each[1]) for each in named if each)


@cache
def promises() -> frozenset[int]:
    """The numbers of the promises in docs/promises.md."""
    page = (ROOT / "docs" / "promises.md").read_text()
    return frozenset(int(number) for number in re.findall(r"^## (\d+)\. ", page, re.MULTILINE))


def numbers(word: str, text: str) -> set[int]:
    """The numbers that follow a word: 7 and 19 in "decision 0007" and "decisions 7, 0019"."""
    found = re.findall(rf"\b{word}{_NUMBERS}", text, re.IGNORECASE)
    return {int(number) for each in found for number in re.findall(r"\d+", each)}


def notes_outside(text: str) -> list[str]:
    """Return what a text cites of notes that are not in the repository. An issue's number may link to it."""
    return _OUTSIDE.findall(text)
