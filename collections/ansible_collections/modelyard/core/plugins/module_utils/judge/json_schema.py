"""Does a value fit a JSON Schema? The part of the standard that people write for engines, and nothing silently ignored.

Hosts have the standard library only, so the well-known library cannot be asked there; a test holds this against it.
"""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, List, Mapping

TYPES: Dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: (
        (isinstance(v, int) and not isinstance(v, bool)) or (isinstance(v, float) and math.isfinite(v) and v.is_integer())
    ),
}
#: Keywords that say nothing about a value.
NOTES = {"title", "description", "default", "examples", "$schema", "$id", "$comment"}
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SCHEMAS = ("anyOf", "oneOf", "allOf")
_PLACES = ("properties", "$defs", "definitions")
KNOWN = {"type", "required", "items", "additionalProperties", "enum", "const", "pattern", "uniqueItems", "$ref"}
KNOWN |= {*_COUNTS, *_LIMITS, *_SCHEMAS, *_PLACES}
DEEPEST = 64
_REFERENCE = re.compile(r"#(?:/(?:\$defs|definitions)/[^/~%]+)?")


def problems(schema: Any, root: Any = None, path: str = "$", level: int = 0) -> List[str]:
    """Why a schema cannot be used here, with the places; empty for one that `errors` can check a value against."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, dict):
        return [f"{path}: {schema!r:.40} is no schema"]
    found = [f"{path}: the keyword {key} is not known here" for key in schema if key not in KNOWN | NOTES]
    if level > DEEPEST:
        return [f"{path}: nested too deeply"]
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        found += [f"{path}: there is no type {kind!r:.40}"] if not isinstance(kind, str) or kind not in TYPES else []
    for key, value in schema.items():
        if key in (*_COUNTS, *_LIMITS) and not TYPES["number"](value):
            found.append(f"{path}: {key} is no number")
        elif key == "required" and not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
            found.append(f"{path}: required is no list of names")
        elif key == "enum" and not isinstance(value, list):
            found.append(f"{path}: enum is no list")
        elif key == "pattern":
            found += _pattern(value, path)
        elif key == "$ref":
            whole = isinstance(value, str) and _REFERENCE.fullmatch(value) and _target(value, root) is not None
            found += [] if whole else [f"{path}: {value!r:.60} is not a place of this schema ($defs)"]
        elif key in ("items", "additionalProperties"):
            found += problems(value, root, f"{path}.{key}", level + 1)
        elif key in _SCHEMAS:
            whole = isinstance(value, list) and bool(value)
            found += [] if whole else [f"{path}: {key} is no list of schemas"]
            for place, one in enumerate(value if whole else ()):
                found += problems(one, root, f"{path}.{key}[{place}]", level + 1)
        elif key in _PLACES:
            whole = isinstance(value, dict)
            found += [] if whole else [f"{path}: {key} holds no schemas by name"]
            for name, one in value.items() if whole else ():
                found += problems(one, root, f"{path}.{name}", level + 1)
    return found


def _pattern(value: Any, path: str) -> List[str]:
    try:
        re.compile(value)
    except (re.error, TypeError, OverflowError):
        return [f"{path}: the pattern {value!r:.60} cannot be read"]
    return []


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.split("/")[1:]:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, (dict, bool)) else None


def errors(value: Any, schema: Any, path: str = "$", root: Any = None, level: int = 0) -> List[str]:
    """Every way in which the value does not fit, with its place; raises ValueError for a schema that has `problems`."""
    if root is None:
        wrong = problems(schema)
        if wrong:
            raise ValueError("; ".join(wrong))
        root = schema
    if isinstance(schema, bool):
        return [] if schema else [f"{path}: nothing is allowed here"]
    if level > DEEPEST:
        return [f"{path}: nested too deeply to be checked"]
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if kinds and not any(TYPES[kind](value) for kind in kinds):
        return [f"{path}: {value!r:.60} is not of type {' or '.join(kinds)}"]
    found = _named(value, schema, path) + _combined(value, schema, path, root, level + 1)
    if TYPES["number"](value):
        found += _number(value, schema, path)
    elif isinstance(value, str):
        found += _text(value, schema, path)
    elif isinstance(value, list):
        found += _list(value, schema, path, root, level + 1)
    elif isinstance(value, dict):
        found += _object(value, schema, path, root, level + 1)
    return found


def _same(one: Any, other: Any) -> bool:
    """As JSON has it: 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _named(value: Any, schema: Mapping[str, Any], path: str) -> List[str]:
    found = []
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        found.append(f"{path}: {value!r:.60} is not one of {schema['enum']}")
    if "const" in schema and not _same(value, schema["const"]):
        found.append(f"{path}: {value!r:.60} is not {schema['const']!r}")
    return found


def _combined(value: Any, schema: Mapping[str, Any], path: str, root: Any, level: int) -> List[str]:
    found = []
    if "$ref" in schema:
        found += errors(value, _target(schema["$ref"], root), path, root, level)
    for one in schema.get("allOf", ()):
        found += errors(value, one, path, root, level)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            count = sum(not errors(value, one, path, root, level) for one in schema[word])
            fits = count == 1 or (count > 1 and word == "anyOf")
            found += [] if fits else [f"{path}: {value!r:.60} fits {count} of the {len(schema[word])} schemas of {word}"]
    return found


def _number(value: Any, schema: Mapping[str, Any], path: str) -> List[str]:
    found = []
    if value < schema.get("minimum", value):
        found.append(f"{path}: {value} is less than {schema['minimum']}")
    if value > schema.get("maximum", value):
        found.append(f"{path}: {value} is greater than {schema['maximum']}")
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        found.append(f"{path}: {value} is not above {schema['exclusiveMinimum']}")
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        found.append(f"{path}: {value} is not below {schema['exclusiveMaximum']}")
    return found


def _text(value: str, schema: Mapping[str, Any], path: str) -> List[str]:
    found = []
    if len(value) > schema.get("maxLength", len(value)):
        found.append(f"{path}: longer than {schema['maxLength']} characters")
    if len(value) < schema.get("minLength", 0):
        found.append(f"{path}: shorter than {schema['minLength']} characters")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path}: {value!r:.60} does not match {schema['pattern']}")
    return found


def _list(value: List[Any], schema: Mapping[str, Any], path: str, root: Any, level: int) -> List[str]:
    found = []
    if len(value) > schema.get("maxItems", len(value)):
        found.append(f"{path}: more than {schema['maxItems']} items")
    if len(value) < schema.get("minItems", 0):
        found.append(f"{path}: fewer than {schema['minItems']} items")
    if schema.get("uniqueItems") is True and any(_same(one, other) for n, one in enumerate(value) for other in value[:n]):
        found.append(f"{path}: two items are the same")
    if "items" in schema:
        found += [line for n, item in enumerate(value) for line in errors(item, schema["items"], f"{path}[{n}]", root, level)]
    return found


def _object(value: Dict[str, Any], schema: Mapping[str, Any], path: str, root: Any, level: int) -> List[str]:
    properties = schema.get("properties", {})
    found = [f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    more = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            found += errors(item, properties[name], f"{path}.{name}", root, level)
        elif more is False:
            found.append(f"{path}: {name} is not allowed")
        elif more is not True:
            found += errors(item, more, f"{path}.{name}", root, level)
    return found
