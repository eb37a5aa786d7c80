"""Lines such as `HCU[0] : HCU use (%): 0.0`, and the line with the driver's version."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, screen, values

_DRIVER = re.compile(r"\s*driver version\s*:\s*(\S+)", re.IGNORECASE)
_MODULE = re.compile(r"\b(?:amdgpu|hycu|hydcu) version:\s*(\S+)", re.IGNORECASE)


def devices(lines: Sequence[str], sensors: Sequence[str]) -> List[Tuple[int, fields.Fields]]:
    """One device for each index in brackets, also when none of its keys is known."""
    pairs: Dict[int, List[Tuple[str, str]]] = {}
    for line in lines:
        found = screen.LABEL.match(line)
        if found:
            # Values hold colons (`PCI Bus: 0000:05:00.0`), known keys do not.
            name, _, value = line[found.end() :].partition(":")
            pairs.setdefault(int(found.group(1)), []).append((name, value))
    return [(index, fields.read(fields.raw_of(printed), sensors)) for index, printed in pairs.items()]


def driver_version(lines: Sequence[str]) -> Optional[str]:
    """The whole word behind `Driver version:` or amd-smi's `amdgpu version:`; None where neither is printed."""
    for line in lines:
        found = _DRIVER.match(line) or _MODULE.search(line)
        if found and values.word(found.group(1).rstrip("|")):
            return values.word(found.group(1).rstrip("|"))
    return None
