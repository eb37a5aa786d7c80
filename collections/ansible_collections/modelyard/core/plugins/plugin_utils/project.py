"""This checkout: the version that is deployed from it."""

from __future__ import annotations

import functools
from pathlib import Path

import tomllib

PYPROJECT = Path(__file__).resolve().parents[6] / "pyproject.toml"


@functools.cache
def version(path: Path = PYPROJECT) -> str:
    """The project's version; `unknown` where the checkout does not say."""
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return "unknown"
