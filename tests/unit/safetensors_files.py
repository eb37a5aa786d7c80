"""Files in the form of .safetensors, made by hand: whole ones, and damaged in every way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "U8": 1, "F8_E4M3": 1}


def header(tensors: dict[str, tuple[str, list[int]]]) -> tuple[bytes, int]:
    """(the header as JSON, bytes of the tensors) of tensors by name with type and shape."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for length in shape:
            size *= length
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    return json.dumps(entries).encode(), place


def write(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> Path:
    """A whole file; its tensors are zeros."""
    text, size = header(tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path
