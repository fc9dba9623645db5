"""What is wrong with a decoded document, field by field, in words for who wrote it.
msgspec judges, but ends at the first mistake and speaks of Python's types: this finds and tells them all."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from berth.errors import did_you_mean

_WORDS = {int: "a whole number", bool: "true or false", str: "text", dict: "an object", tuple: "a list"}
_TRUTH = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
_LONGEST = 64  # characters of a value that a message repeats


def mistakes(value: object, kind: Any, path: str) -> list[str]:
    """Return what keeps the value from being of this type, a line for each field; `path` is its own field."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return list(_inside(value, kind, path)) or [_whole(value, kind, path, error)]
    return []


def _inside(value: object, kind: Any, path: str) -> Iterator[str]:
    """Yield the mistakes in the value's own parts."""
    for member in _members(kind):
        if isinstance(value, Mapping) and _is_struct(member):
            yield from _of_struct(value, member, path)
        elif isinstance(value, Mapping) and get_origin(member) is dict:
            yield from _of_names(value, get_args(member)[1], path)
        elif isinstance(value, list | tuple) and get_origin(member) is tuple:
            for number, item in enumerate(value):
                yield from mistakes(item, get_args(member)[0], f"{path}[{number}]")


def _of_struct(value: Mapping[Any, object], kind: Any, path: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, item in value.items():
        if name in fields:
            yield from mistakes(item, fields[name].type, f"{path}.{name}")
        else:
            above = [field for field in fields if _has(fields[field].type, name)]
            yield f"{path}: {_unknown(name, [*fields], [f'{path}.{field}' for field in above])}"
    for name, field in fields.items():
        if field.required and name not in value:
            yield f"{path}.{name} is missing: it should be {_wanted(field.type)}"


def _has(kind: Any, name: object) -> bool:
    """Whether an object of this type has such a field."""
    structs = filter(_is_struct, _members(kind))
    return any(field.encode_name == name for struct in structs for field in msgspec.structs.fields(struct))


def _unknown(field: object, known: list[str], above: list[str]) -> str:
    if above:
        return f"unknown field {_short(field)}: it goes under {' or '.join(above)}"
    near = did_you_mean(str(field), known)
    return f"unknown field {_short(field)}" + (near or f": the fields are {', '.join(known)}")


def _of_names(value: Mapping[Any, object], kind: Any, path: str) -> Iterator[str]:
    for name, item in value.items():
        if not isinstance(name, str):
            yield f'{path}: the name {_got(name)} should be text: put it in quotation marks, "{_short(name)}"'
        yield from mistakes(item, kind, f"{path}.{_short(name)}")


def _whole(value: object, kind: Any, path: str, error: msgspec.ValidationError) -> str:
    """Return what is wrong with a value whose parts are right by themselves."""
    if isinstance(error.__cause__, ValueError):  # of the type's own rules
        return f"{path}: {error.__cause__}"
    members = _members(kind)
    choices = [choice for member in members for choice in _choices(member)]
    if choices and isinstance(value, str):
        near = did_you_mean(value, choices)
        return f"{path} {value[:_LONGEST]!r} should be one of {', '.join(choices)}{near}"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and any(_plain(member) is int for member in members):
        return f"{path} {_short(value)} should be {_wanted(kind)}"
    return f"{path} must be {_wanted(kind)}, not {_got(value)}{_advice(value, members)}"


def _members(kind: Any) -> list[Any]:
    """Return the types of which the value may be one, without null and what stands for a missing field."""
    union = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return [member for member in union if member not in (type(None), msgspec.UnsetType)]


def _wanted(kind: Any) -> str:
    return " or ".join(map(_wanted_one, _members(kind)))


def _wanted_one(member: Any) -> str:
    if choices := _choices(member):
        return f"one of {', '.join(choices)}"
    if get_origin(member) is Annotated and _plain(member) is int:
        return f"a number from {get_args(member)[1].ge} to {get_args(member)[1].le}"
    plain = dict if _is_struct(member) else _plain(member)
    return _WORDS.get(plain, getattr(plain, "__name__", str(plain)))


def _plain(member: Any) -> Any:
    if get_origin(member) is Annotated:
        return get_args(member)[0]
    return get_origin(member) or member


def _choices(member: Any) -> tuple[str, ...]:
    return tuple(map(str, get_args(member))) if get_origin(member) is Literal else ()


def _is_struct(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, msgspec.Struct)


def _got(value: object) -> str:
    match value:
        case str():
            return f"the text {value[:_LONGEST]!r}"
        case None:
            return "null"
        case bool() | int() | float():
            return _short(value)
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    return f"a {type(value).__name__}"


def _advice(value: object, members: list[Any]) -> str:
    plain = [_plain(member) for member in members]
    if isinstance(value, str) and int in plain and value.strip().removeprefix("-").isdecimal():
        return ": leave out the quotation marks"
    if isinstance(value, str) and bool in plain and value.lower() in _TRUTH:
        return f": write {_TRUTH[value.lower()]}, without quotation marks"
    if str in plain and isinstance(value, int | float):
        return ": put it in quotation marks"
    return ""


def _short(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text[:_LONGEST]
