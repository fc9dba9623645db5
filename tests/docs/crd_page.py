"""The reference page of a custom resource, made of its CustomResourceDefinition.
It shows descriptions, types, bounds and the messages of rules; patterns stay in the definition."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.docs.text import item, sentences, split
from tests.support.references import ROOT

Schema = Mapping[str, Any]

_PAGE = """\
# {kind}

<!-- Written by `make docs` from {source}: change that file. -->

{description}

- `apiVersion: {group}/{version}`, `kind: {kind}`; {scope}
- short name: `{short}`, category: `{category}`
- `kubectl get {plural}` shows {columns}
- `-o wide` shows also {wide}

## All fields

```yaml
{skeleton}
```
"""
_SCOPES = {"Cluster": "it is in no namespace", "Namespaced": "it is in a namespace"}
_CHOICES = re.compile(r"self in \[(.*)\]")


def page(source: str) -> str:
    """Return the page for the definition in this file, a path from the project's root."""
    spec = yaml.safe_load((ROOT / source).read_text())["spec"]
    (version,) = spec["versions"]
    schema, names = version["schema"]["openAPIV3Schema"], spec["names"]
    head = _PAGE.format(
        kind=names["kind"],
        source=source,
        description=sentences(schema["description"]),
        group=spec["group"],
        version=version["name"],
        scope=_SCOPES[spec["scope"]],
        short=", ".join(names["shortNames"]),
        category=", ".join(names["categories"]),
        plural=names["plural"],
        columns=_columns(version, wide=False),
        wide=_columns(version, wide=True),
        skeleton="\n".join(_skeleton(spec, version["name"], schema)),
    )
    return f"{head}\n{_spec(schema['properties']['spec'])}\n{_status(schema['properties']['status'])}"


def _columns(version: Mapping[str, Any], *, wide: bool) -> str:
    columns = version["additionalPrinterColumns"]
    return ", ".join(column["name"] for column in columns if bool(column.get("priority")) is wide)


def _skeleton(spec: Mapping[str, Any], version: str, schema: Schema) -> Iterator[str]:
    """The fields as YAML, each with its default or its type."""
    yield f"apiVersion: {spec['group']}/{version}"
    yield f"kind: {spec['names']['kind']}"
    yield (
        "metadata: {name: NAME, namespace: NAMESPACE}"
        if spec["scope"] == "Namespaced"
        else "metadata: {name: NAME}"
    )
    yield "spec:"
    yield from _lines(schema["properties"]["spec"], "  ")


def _lines(schema: Schema, indent: str) -> Iterator[str]:
    for name, field in schema["properties"].items():
        if "properties" in field:
            yield f"{indent}{name}:"
            yield from _lines(field, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_example(field)}"


def _example(field: Schema) -> str:
    if "default" in field:
        return _default(field) + _others(field, _default(field))
    if choices := _choices(field):
        return choices[0] + _others(field, choices[0])
    match field.get("type"):
        case "array":
            return f"[{_word(field['items'])}]"
        case "object":
            return f"{{KEY: {_example(field['additionalProperties'])}}}"
    return _word(field)


def _others(field: Schema, first: str) -> str:
    others = [choice for choice in _choices(field) if choice != first]
    return f"  # or {', '.join(others)}" if others else ""


def _word(field: Schema) -> str:
    return str(field.get("type", "…")).upper() if field.get("type") != "object" else "OBJECT"


def _choices(field: Schema) -> list[str]:
    """The values that a field may have, where they are listed."""
    if "enum" in field:
        return [str(choice) for choice in field["enum"]]
    rules = (_CHOICES.fullmatch(rule["rule"]) for rule in field.get("x-kubernetes-validations", ()))
    return next((re.findall(r"'(.*?)'", rule[1]) for rule in rules if rule), [])


def _spec(schema: Schema) -> str:
    text = f"## spec\n\n{sentences(schema['description'])}\n{_rules('How fields go together:', schema)}"
    required = schema.get("required", ())
    return text + "".join(
        f"\n### {name}\n\n{_field(field, needed=name in required)}"
        for name, field in schema["properties"].items()
    )


def _status(schema: Schema) -> str:
    return f"## status\n\n{sentences(schema['description'])}\n\n{''.join(_inner(schema, ''))}"


def _field(schema: Schema, *, needed: bool) -> str:
    text = f"*{_type(schema)}{', required' if needed else ''}*\n\n{_described(schema)}"
    if inner := "".join(_inner(schema, "")):
        text += f"\n{inner}"
    return text + _rules("Refused otherwise:", schema)


def _described(schema: Schema) -> str:
    """The description; what it says of each choice is a list."""
    text, listed = "", False
    for sentence in split(schema["description"]):
        choice, colon, meaning = sentence.partition(": ")
        chosen = bool(colon) and choice in _choices(schema)
        text += "\n" if text and chosen is not listed else ""
        text += item(f"`{choice}`: {meaning}") if chosen else f"{sentences(sentence)}\n"
        listed = chosen
    return text


def _inner(schema: Schema, indent: str) -> Iterator[str]:
    """The fields of a field, as a list in the list of the field above."""
    fields = schema if "properties" in schema else schema.get("items", {})
    for name, field in fields.get("properties", {}).items():
        needed = ", required" if name in fields.get("required", ()) else ""
        yield item(f"`{name}` (*{_type(field)}{needed}*): {field['description']}", indent)
        yield from _inner(field, f"{indent}  ")
    if indent:
        yield from (item(message, indent) for message in _messages(fields))


def _rules(heading: str, schema: Schema) -> str:
    messages = "".join(map(item, _messages(schema)))
    return f"\n{heading}\n\n{messages}" if messages else ""


def _messages(schema: Schema) -> list[str]:
    """What a value is refused with; a rule that only lists the choices says no more than the type."""
    rules = schema.get("x-kubernetes-validations", ())
    return [rule["message"] for rule in rules if not _CHOICES.fullmatch(rule["rule"])]


def _type(schema: Schema) -> str:
    """A field's type, bounds and default in words."""
    if "title" in schema:
        return str(schema["title"])
    words = [_plain(schema)]
    if choices := _choices(schema):
        words = [" or ".join((", ".join(choices[:-1]), choices[-1]))]
    words += _bounds(schema)
    if "default" in schema:
        words.append(f"default {_default(schema)}")
    return ", ".join(words)


def _default(schema: Schema) -> str:
    return str(schema["default"]).lower() if schema["type"] == "boolean" else str(schema["default"])


def _plain(schema: Schema) -> str:
    match schema["type"]:
        case "array":
            return f"list of {_plain(schema['items'])}s"
        case "object" if "additionalProperties" in schema:
            return f"map of {_plain(schema['additionalProperties'])}s".replace("list of strings", "list")
    return str(schema["type"])


def _bounds(schema: Schema) -> Iterator[str]:
    values = schema.get("additionalProperties") or schema
    if "minimum" in values:
        yield f"{values['minimum']} to {values['maximum']}"
    for key, what in (("maxLength", "characters"), ("maxItems", "entries"), ("maxProperties", "entries")):
        if key in schema:
            yield f"at most {schema[key]} {what}"
