"""Does a value fit a JSON Schema? The part of the standard that the probes' own schemas use, and nothing silently ignored.

Hosts have the standard library only, so the well-known library cannot be asked there; a test holds this against it.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List

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
KNOWN = {"type", "properties", "required", "additionalProperties", "enum", "minimum", "maximum", "maxLength"}


def errors(value: Any, schema: Dict[str, Any], path: str = "$") -> List[str]:
    """Every way in which the value does not fit, with its place; raises ValueError for a keyword that is not known here."""
    unknown = set(schema) - KNOWN
    if unknown:
        raise ValueError(f"keywords that this validator does not know: {', '.join(sorted(unknown))}")
    if "type" in schema and not TYPES[schema["type"]](value):
        return [f"{path}: {value!r:.60} is not of type {schema['type']}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r:.60} is not one of {schema['enum']}")
    if TYPES["number"](value):
        if value < schema.get("minimum", value):
            found.append(f"{path}: {value} is less than {schema['minimum']}")
        if value > schema.get("maximum", value):
            found.append(f"{path}: {value} is greater than {schema['maximum']}")
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        found.append(f"{path}: longer than {schema['maxLength']} characters")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        found += [f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, item in value.items():
            if name in properties:
                found += errors(item, properties[name], f"{path}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{path}: {name} is not allowed")
    return found
