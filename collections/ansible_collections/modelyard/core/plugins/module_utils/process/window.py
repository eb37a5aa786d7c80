"""What runs in the window of a screen session: starts the keeper beside itself and shows the engine's log.

The window is for looking only. Whatever happens to it (Ctrl-C, a terminal that stands still, the end of screen) happens to no
engine.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Optional

from ansible_collections.modelyard.core.plugins.module_utils.process import keeper, logfile

STEP_S = 0.3
CHUNK = 65536
#: When the log has grown by more than this since the last look, the window goes on near its end.
BEHIND_BYTES = 4 * CHUNK
HINT = b"\r\n--- this window only shows the log; to stop the engine use stop.sh, to leave press Ctrl-A D ---\r\n"


def run(folder: Path, name: str) -> int:
    """Start the keeper, show the log until it has ended; exit code of the keeper."""
    terminal = os.dup(1)
    pid = os.fork()
    if pid == 0:
        os._exit(_keep(folder, name))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, lambda *_: _write(terminal, HINT))
    os.set_blocking(terminal, False)
    shown = _Shown(folder / "logs" / logfile.CURRENT, terminal)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        shown.more()
        if done:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1
        time.sleep(STEP_S)


def _keep(folder: Path, name: str) -> int:
    """The keeper, without the terminal; what it has to say goes to run/keeper.err."""
    try:
        os.setsid()
        errors = os.open(str(folder / "run" / "keeper.err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for number, handle in ((0, null), (1, errors), (2, errors)):
            os.dup2(handle, number)
        os.closerange(3, 256)
        os.chdir(str(folder / "run"))
        return keeper.run(folder, keeper.Orders("screen", name))
    except Exception as exc:
        sys.stderr.write(f"keeper: {exc}\n")
        sys.stderr.flush()
        return 1


class _Shown:
    """A log as far as it was shown. Never waits for the terminal: what does not fit is left out."""

    def __init__(self, link: Path, terminal: int) -> None:
        self.link = link
        self.terminal = terminal
        self.inode: Optional[int] = None
        self.place = 0

    def more(self) -> None:
        """Show what has come since."""
        try:
            with self.link.open("rb", buffering=0) as stream:
                seen = os.fstat(stream.fileno())
                if seen.st_ino != self.inode:
                    self.inode, self.place = seen.st_ino, 0
                if self.place > seen.st_size or seen.st_size - self.place > BEHIND_BYTES:
                    self.place = max(0, seen.st_size - CHUNK)
                stream.seek(self.place)
                piece = stream.read(CHUNK) or b""
        except OSError:
            return
        if piece:
            self.place += _write(self.terminal, piece)


def _write(terminal: int, text: bytes) -> int:
    """As much as the terminal takes now; all of it counts as shown when the terminal is gone."""
    try:
        if not select.select([], [terminal], [], 0)[1]:
            return 0
        return os.write(terminal, text)
    except BlockingIOError:
        return 0
    except OSError:
        return len(text)


def session() -> str:
    """The full id of the screen session that we run in; empty outside of one."""
    return os.environ.get("STY", "")
