"""HAProxy by its admin socket: drain, undrain, status, and what a reload must not forget."""

from __future__ import annotations

import csv
import os
import re
import socket
from pathlib import Path
from typing import Any, Dict, List, Mapping

from ansible_collections.modelyard.core.plugins.module_utils.gateway.errors import GatewayError
from ansible_collections.modelyard.core.plugins.module_utils.process import layout

SOCKET, STATE = "admin.sock", "servers.state"
BACKEND = "engines"
#: HAProxy's first word on a server -> the words of our own gateway.
STATES = {"UP": "up", "DOWN": "down", "DRAIN": "up", "NOLB": "up", "MAINT": "down", "no": "unknown"}


def ask(run_dir: Path, command: str, limit_s: float = 5.0) -> str:
    """What the admin socket answers. GatewayError when nobody does."""
    # By the folder's descriptor: the whole path may be longer than the 107 bytes that an address can have.
    folder = os.open(str(run_dir), os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(limit_s)
            connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            connection.sendall(command.encode() + b"\n")
            parts: List[bytes] = []
            while True:
                part = connection.recv(65536)
                if not part:
                    return b"".join(parts).decode("utf-8", "replace")
                parts.append(part)
    except OSError as exc:
        raise GatewayError(f"HAProxy does not answer on {run_dir / SOCKET}: {exc}") from exc
    finally:
        os.close(folder)


def servers(text: str) -> List[Dict[str, str]]:
    """The lines of servers in the answer to `show stat`."""
    rows = csv.DictReader(text.lstrip("# ").splitlines())
    return [row for row in rows if row.get("pxname") == BACKEND and row.get("svname") not in ("BACKEND", "FRONTEND", None)]


def described(row: Mapping[str, str], name: str) -> Dict[str, Any]:
    """One line of `show stat` in the words of our own gateway's status. Counts begin anew at each reload."""
    status = row["status"]
    code = {f"{n}xx": int(row.get(f"hrsp_{n}xx") or 0) for n in range(1, 6)}
    state = STATES.get(status.split(" ", 1)[0], "unknown")
    look = ", ".join(filter(None, (row.get("check_desc"), row.get("check_code"), row.get("last_chk")))) or "none yet"
    return {
        "name": name,
        "state": state,
        "why": "" if state == "up" else f"{status}, last look: {look}",
        "draining": row["weight"] == "0",
        "in_flight": int(row["scur"] or 0),
        "peak": int(row["smax"] or 0),
        "picked": int(row["stot"] or 0),
        "waiting": int(row["qcur"] or 0),
        "status": code,
        "errors": {
            "refused": int(row["econ"] or 0),
            "broken": int(row["eresp"] or 0),
            "client_gone": int(row["cli_abrt"] or 0),
        },
    }


def set_weight(run_dir: Path, index: int, weight: int) -> None:
    """0 takes a server out for new requests, 1 takes it in. The same is in the file that the next start reads."""
    said = ask(run_dir, f"set server {BACKEND}/b{index} weight {weight}").strip()
    if said:
        raise GatewayError(f"HAProxy refused to change the weight of b{index}: {said}")
    save(run_dir)


def save(run_dir: Path) -> None:
    """Write down who is out, for the process after a reload or a restart."""
    fresh = run_dir / f".{STATE}.{os.getpid()}"
    fresh.write_text(ask(run_dir, "show servers state"), encoding="utf-8")
    layout.give(fresh)
    fresh.replace(run_dir / STATE)


def worker(run_dir: Path) -> int:
    """The process that answers the admin socket; 0 when there is none. After a reload it is another one."""
    try:
        found = re.search(r"(?m)^Pid: (\d+)$", ask(run_dir, "show info"))
    except GatewayError:
        return 0
    return int(found.group(1)) if found else 0
