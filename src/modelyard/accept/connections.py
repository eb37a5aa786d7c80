"""The SSH connections of a run. Ansible leaves each open for a minute, in a folder that all runs of a user share.

A run of a timer may not share them: systemd ends what is left of a unit, and a deploy that somebody plays at the same time would
lose its hosts in the middle of a task. So each run has a folder of its own, and closes what lies there.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: A connection is closed by its process, which answers at once.
LIMIT_S = 5.0


@contextlib.contextmanager
def own() -> Iterator[Path | None]:
    """A folder for the sockets of this run; None where there is no room for one. Its path is short: those of sockets must be."""
    folder = None
    for parent in (tempfile.gettempdir(), "/dev/shm"):
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="modelyard-", dir=parent))
            break
    try:
        yield folder
    finally:
        if folder:
            for socket in [path for path in folder.iterdir() if path.is_socket()]:
                close(socket)
            shutil.rmtree(folder, ignore_errors=True)


def close(socket: Path) -> None:
    """Ask the process behind a socket to close its connection and to end. One that does not answer ends within its minute."""
    command = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "closed"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=LIMIT_S
        )
