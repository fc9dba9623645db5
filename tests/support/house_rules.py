"""Rules for the project's own text that no linter has: each function says where one source or page breaks it.
Which files have to keep which rule is in tests/project/test_house_rules.py."""

import ast
import re
from collections.abc import Iterator
from functools import cache

LONGEST_FUNCTION = 60
WIDEST_LINE = 120

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


def long_functions(source: str) -> list[str]:
    """Return the functions that are longer than LONGEST_FUNCTION lines."""
    return [
        f"{node.lineno}: {node.name} has {length} lines"
        for node in _nodes(source)
        if isinstance(node, _FUNCTIONS)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    ]


def names_given(source: str, name: str) -> list[str]:
    """Return the places that give this name to a variable, parameter, attribute or function."""
    return [f"{line}: {kind} {name}" for line, kind, given in _given(source) if given == name]


def parameters_and_attributes(source: str, name: str) -> list[str]:
    """Return the places where a parameter or an attribute has this name."""
    kinds = ("parameter", "attribute")
    return [
        f"{line}: {kind} {name}" for line, kind, given in _given(source) if given == name and kind in kinds
    ]


def docstrings_beginning(source: str, words: str) -> list[str]:
    """Return the docstrings that begin with these words."""
    nodes = (node for node in _nodes(source) if isinstance(node, _DOCUMENTED))
    texts = ((getattr(node, "name", "module"), ast.get_docstring(node) or "") for node in nodes)
    return [f"{name}: {text.splitlines()[0]}" for name, text in texts if re.match(rf"{words}\b", text)]


def wide_lines(page: str, *, tables_too: bool = True) -> list[str]:
    """Return the lines of a page, of more than one word, that are wider than WIDEST_LINE columns."""
    return [
        f"{number}: {len(line)} columns"
        for number, line in enumerate(page.splitlines(), 1)
        if len(line) > WIDEST_LINE and " " in line.strip()
        if tables_too or not line.startswith("|")
    ]


@cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(source)))


def _given(source: str) -> Iterator[tuple[int, str, str]]:
    """The names that a source gives: line, kind, name. An attribute is a class's own or one that is set."""
    for node in _nodes(source):
        match node:
            case ast.arg(arg=name):
                yield node.lineno, "parameter", name
            case ast.ClassDef(body=body):
                yield from ((line, "attribute", name) for line, name in _declared(body))
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, "attribute", name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, "variable", name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, "function", name
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                yield node.lineno, "variable", name


def _declared(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """The attributes that a class's body declares."""
    for statement in body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield statement.lineno, name
            case ast.Assign(targets=targets):
                yield from (
                    (statement.lineno, target.id) for target in targets if isinstance(target, ast.Name)
                )
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield statement.lineno, name
