"""Listening TCP sockets and who holds them. A reader of /proc, nothing else. Standard library only; runs on managed hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple

from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc

TCP_LISTEN = "0A"


class Listener(NamedTuple):
    """A listening TCP socket."""

    address: str
    port: int
    inode: int
    uid: int


def listeners(root: Path = proc.PROC) -> List[Listener]:
    """Every listening TCP socket of this network namespace, IPv4 and IPv6."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in (proc.read_text(root / "net" / name) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == TCP_LISTEN:
                address, _, port = fields[1].rpartition(":")
                found.append(Listener(address, int(port, 16), int(fields[9]), int(fields[7])))
    return found


def socket_owners(seen: opened.Handles) -> Dict[int, int]:
    """Inode of a socket -> the first (oldest) pid that holds it, for all sockets that may be seen."""
    owners: Dict[int, int] = {}
    for pid in sorted(seen.targets, reverse=True):
        for target in seen.targets[pid]:
            if target.startswith("socket:[") and target[8:-1].isdigit():
                owners[int(target[8:-1])] = pid
    return owners
