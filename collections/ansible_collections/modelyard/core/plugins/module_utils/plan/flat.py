"""Groups of settings as one row of names and texts, for comparing. Pure functions."""

from __future__ import annotations

from typing import Any, Dict, Mapping


def flat(values: Mapping[str, Any], before: str = "") -> Dict[str, str]:
    """{log: {keep: 3}} as {log.keep: "3"}, for comparing."""
    found: Dict[str, str] = {}
    for key, value in values.items():
        found.update(flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": str(value)})
    return found
