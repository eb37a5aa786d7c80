"""Seeing a host: readers of vendor tools, and one look at the whole machine.

The readers can be had from here: `read_nvidia_smi(text, request)`, `read_hy_smi(text, command)`,
`read_rocm_smi(text, command)`. They are loaded when they are asked for: Ansible sends along with a module all that its packages
import, and most modules need none of them.
"""

from __future__ import annotations

import importlib
from typing import Any, List

_READERS = {
    "read_nvidia_smi": "nvidia_smi",
    "read_hy_smi": "rocm_smi",
    "read_rocm_smi": "rocm_smi",
}


def __getattr__(name: str) -> Any:
    if name in _READERS:
        return getattr(importlib.import_module(f"{__name__}.{_READERS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted([*globals(), *_READERS])
