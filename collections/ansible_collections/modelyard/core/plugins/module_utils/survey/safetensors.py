"""The header of a .safetensors file: which tensors it holds, of which type and size. No tensor is read.

Layout of such a file: 8 bytes little-endian, the length of the header; the header, JSON; the tensors one after the other. The
header says of each tensor its `dtype`, `shape` and `data_offsets` (begin and end, counted from the end of the header).
Source: the format's own description (safetensors 0.6, README and `SafeTensors::read_metadata`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

#: The library itself refuses longer headers.
LONGEST = 100_000_000
#: Bits of a number, by name. Sub-byte types are packed.
BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
#: Names of a layer's place: `model.layers.12.mlp` -> 12. The first one counts: experts have numbers, too.
LAYER = re.compile(r"\.(?:layers|h|blocks|block)\.([0-9]+)\.")
_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.|$)")


class Tensor(NamedTuple):
    """`bytes`: as they lie in the file."""

    dtype: str
    shape: Tuple[int, ...]
    bytes: int


class Header(NamedTuple):
    """What a file says of itself. `problem` names what is damaged; `tensors` then holds what could be read."""

    tensors: Mapping[str, Tensor]
    problem: str
    metadata: Mapping[str, Any] = {}


def read(path: Path) -> Header:
    """The header of a file. An OSError goes to the caller."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        first = stream.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8:
            return Header({}, f"it has {size} bytes, too few for a header")
        if length > LONGEST:
            return Header({}, f"its header would be {length} bytes long: it is no .safetensors file, or its beginning is damaged")
        return parsed(stream.read(length), length, size)


def parsed(text: bytes, length: int, size: int) -> Header:
    """What the header `text` of a file of `size` bytes says; `length`: as its first 8 bytes have it. Pure."""
    if len(text) < length:
        return Header({}, f"it ends inside its header: {size} bytes are there, {8 + length} is where the header ends")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return Header({}, "its header is no JSON: its beginning is damaged")
    if not isinstance(said, dict):
        return Header({}, "its header is no table of tensors")
    tensors: Dict[str, Tensor] = {}
    metadata = said.pop("__metadata__", None)
    for name, entry in said.items():
        found = _tensor(entry)
        if found is None:
            return Header(tensors, f"its header says nothing that can be used of {name[:120]}")
        tensors[name] = found[0]
    ends = [entry["data_offsets"][1] for entry in said.values()]
    wanted = 8 + length + max(ends, default=0)
    problem = ""
    if size != wanted:
        words = "it is cut off" if size < wanted else "it has more than its header says"
        problem = f"{words}: {size} bytes are there, the header speaks of {wanted}"
    return Header(tensors, problem, metadata if isinstance(metadata, dict) else {})


def _tensor(entry: Any) -> Optional[Tuple[Tensor]]:
    """One entry of a header; None for what the format does not allow."""
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), _numbers(entry.get("shape")), _numbers(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        return None
    size = offsets[1] - offsets[0]
    if size < 0 or (dtype in BITS and size * 8 != _count(shape) * BITS[dtype]):
        return None
    return (Tensor(dtype, tuple(shape), size),)


def _numbers(value: Any) -> Optional[List[int]]:
    """A list of whole numbers from 0 on; None for anything else."""
    whole = isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value)
    return value if whole else None


def _count(shape: Iterable[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def summed(tensors: Iterable[Tuple[str, Tensor]], layers: Optional[int]) -> List[Dict[str, Any]]:
    """Tensors of the same name but for numbers, type and rank as one entry: a model of 90 000 tensors has a few dozen. Pure.

    {name, dtype, dims, count, numbers, bytes, beyond}: `name` has `*` for each number; `dims`: of the shape, `numbers`: how many
    numbers all of them hold; `beyond`: they belong to a layer from number `layers` on, which config.json does not count.
    """
    found: Dict[Tuple[str, str, int, bool], Dict[str, Any]] = {}
    for name, tensor in tensors:
        place = LAYER.search(f".{name}")
        beyond = bool(place and layers and int(place.group(1)) >= layers)
        key = (_NUMBER.sub("*", name), tensor.dtype, len(tensor.shape), beyond)
        entry = found.setdefault(
            key, {"name": key[0], "dtype": key[1], "dims": key[2], "count": 0, "numbers": 0, "bytes": 0, "beyond": beyond}
        )
        entry["count"] += 1
        entry["numbers"] += _count(tensor.shape)
        entry["bytes"] += tensor.bytes
    return [found[key] for key in sorted(found)]
