"""rocminfo: agents of the HSA runtime. Those that are no CPU are the devices, counted from 0 in their order."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import fields, values

_AGENT = re.compile(r"\s*Agent\s+[0-9]{1,9}\s*\Z", re.IGNORECASE)
_POOL = re.compile(r"\s*Pool\s+[0-9]{1,9}\s*\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\s*([0-9]{1,9})\s*(?:\(0x[0-9a-f]{1,8}\))?\s*\Z", re.IGNORECASE)
# Without what stands behind it the number may be cut.
_SIZE = re.compile(r"\s*([0-9]{1,19})\s*(?:\(0x[0-9a-f]{1,16}\)|(?=[kmg]))\s*([kmg]i?b)?\s*\Z", re.IGNORECASE)


def devices(lines: Sequence[str]) -> List[Tuple[int, fields.Fields]]:
    """Name, ids and memory of each agent whose `Device Type` is given and is not `CPU`."""
    agents: List[List[str]] = []
    for line in lines:
        if _AGENT.match(line):
            agents.append([])
        elif agents:
            agents[-1].append(line)
    found: List[fields.Fields] = []
    for agent in agents:
        own, pools = _keys(agent)
        kind = values.word(own.get("device type", ""))
        if kind and kind.upper() != "CPU":
            found.append(_fields(own, pools))
    return [*enumerate(found)]


def _keys(agent: Sequence[str]) -> Tuple[Dict[str, str], List[Dict[str, str]]]:
    """Keys of the agent itself and of each of its memory pools. Of a key that comes twice the first is the agent's."""
    own: Dict[str, str] = {}
    pools: List[Dict[str, str]] = []
    current = own
    for line in agent:
        name, colon, value = line.partition(":")
        key = fields.key(name)
        if _POOL.match(line):
            current = {}
            pools.append(current)
        elif key == "isa info":
            # What follows describes instruction sets, which have names and sizes of their own.
            current = {}
        elif colon:
            current.setdefault(key, value)
    return own, pools


def _fields(own: Dict[str, str], pools: Sequence[Dict[str, str]]) -> fields.Fields:
    memory = next((pool.get("size", "") for pool in pools if pool.get("segment", "").strip().upper().startswith("GLOBAL")), "")
    read = {
        "name": values.word(own.get("marketing name", "")),
        "unique_id": values.word(own.get("uuid", "")),
        "bus_id": _bus(own.get("bdfid", ""), own.get("domain", "")),
        "memory_total_mib": _mib(memory),
    }
    return {name: value for name, value in read.items() if value is not None}


def _bus(bdfid: str, domain: str) -> Optional[str]:
    """BDFID is bus << 8 | device << 3 | function, in decimal."""
    number = _NUMBER.match(bdfid)
    if number is None:
        return None
    bdf = int(number.group(1))
    where = _NUMBER.match(domain)
    return f"{int(where.group(1)) if where else 0:04x}:{bdf >> 8:02x}:{(bdf >> 3) & 31:02x}.{bdf & 7}"


def _mib(size: str) -> Optional[int]:
    """`67092480(0x3ffc000) KB` in MiB."""
    found = _SIZE.match(size)
    return values.mib(f"{found.group(1)} {found.group(2) or ''}", "kb") if found else None
