"""Requests at an engine, counted from outside: the gateway's TCP connections to it.

HAProxy and nginx are set up to use one connection for one request and to keep none, so both numbers are the same. Their own
figures would miss what a process before the last reload still carries.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Dict, List, Set, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc

#: ESTABLISHED, SYN_SENT, FIN_WAIT1, FIN_WAIT2: the engine has not closed its side yet.
OPEN = {"01", "02", "04", "05"}


def family(leader: int, root: Path = proc.PROC) -> Dict[int, proc.Process]:
    """A process and all that descend from it."""
    table = proc.processes(root)
    found: Dict[int, proc.Process] = {}
    fresh = {leader}
    while fresh:
        found.update({pid: table[pid] for pid in fresh if pid in table})
        fresh = {pid for pid, process in table.items() if process.ppid in fresh and pid not in found}
    return found


def to(host: str, port: int, leader: int, root: Path = proc.PROC) -> int:
    """How many connections to an engine the processes of a gateway have. GatewayError where they may not be looked into."""
    wanted = _addresses(host, port)
    seen = opened.handles(family(leader, root), root)
    if seen.denied:
        raise GatewayError(f"the connections of process {min(seen.denied)} of the gateway may not be read; run as its user")
    inodes = {target for targets in seen.targets.values() for target in targets if target.startswith("socket:")}
    return sum(1 for inode in _sockets(wanted, root) if f"socket:[{inode}]" in inodes)


def _sockets(wanted: Set[Tuple[str, int]], root: Path) -> List[str]:
    found = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (root / "net" / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] in OPEN:
                address, _, port = fields[2].rpartition(":")
                if (address, int(port, 16)) in wanted:
                    found.append(fields[9])
    return found


def _addresses(host: str, port: int) -> Set[Tuple[str, int]]:
    """As /proc/net/tcp writes them: words of 32 bits in the machine's order."""
    found = set()
    for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        packed = ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).packed
        words = [packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4)]
        found.add(("".join(words), port))
    return found
