"""This control node and this run of ansible-playbook, so that a lock can name its holder."""

from __future__ import annotations

import getpass
import os
import socket
import time
from pathlib import Path
from typing import Any

from ansible import context
from ansible_collections.modelyard.core.plugins.module_utils.process import proc


def node() -> str:
    """This machine since its last boot, and the process numbers that are valid here: a container has its own."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    return f"{socket.gethostname()} {proc.boot_id()} {numbers}"


def run_id() -> str:
    """This run: the ansible-playbook process, whose worker we are, with its start time."""
    pid, start = proc.identity(os.getppid())
    return f"{node()} {pid} {start}"


def holder(what: str) -> dict[str, Any]:
    """What the lock file says about this run."""
    return {
        "run": run_id(),
        "what": what,
        "by": f"{getpass.getuser()} on {socket.gethostname()}, ansible-playbook pid {os.getppid()}",
        "since": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
    }


def deployer() -> dict[str, str]:
    """Who runs this playbook, and where: for what is written down about a deploy."""
    named = context.CLIARGS.get("args") or ()
    playbook = Path(str(named[0])).name if named else ""
    return {"by": getpass.getuser(), "from": socket.gethostname(), "playbook": playbook}


def has_died(lock: dict[str, Any] | None) -> bool:
    """True only when the holder ran on this very control node and its process is gone."""
    if not lock:
        return False
    where, _, rest = str(lock.get("run", "")).rpartition(" ")
    where, _, pid = where.rpartition(" ")
    if where != node() or not pid.isdigit() or not rest.isdigit():
        return False
    return not proc.alive(int(pid), int(rest))
