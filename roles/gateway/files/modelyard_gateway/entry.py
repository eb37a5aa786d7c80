"""The port that clients come in by. A keeper may have opened it and handed it down: then another gateway can follow this one.

The keeper holds the same socket, so it stays open when this process lets go of it. Who takes connections writes its number into
`gateway.pid` of the working directory, for the keeper.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import Optional

#: Where a keeper hands it down, as systemd does.
FD = 3
BACKLOG = 4096
TAKES = "gateway.pid"


def inherited(port: int) -> Optional[socket.socket]:
    """The socket that listens on this port already; None where nobody has handed one down."""
    try:
        found = socket.socket(fileno=FD)
    except OSError:
        return None
    with contextlib.suppress(OSError, IndexError, TypeError):
        if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and found.getsockname()[1] == port:
            os.set_inheritable(FD, False)
            found.setblocking(False)
            return found
    found.detach()  # somebody else's
    return None


def shut(listening: Optional[socket.socket]) -> None:
    """Nobody can connect from now on, whoever else holds the socket."""
    if listening is not None:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RD)


def taken(error: OSError) -> bool:
    """Does somebody else listen there?"""
    return error.errno == errno.EADDRINUSE


def say_taking() -> None:
    """Tell the keeper that this process takes connections now. A full disk must not end it: the keeper says what it misses."""
    fresh = Path(f".{TAKES}.{os.getpid()}")
    with contextlib.suppress(OSError):
        fresh.write_text(f"{os.getpid()}\n", encoding="ascii")
        fresh.replace(TAKES)


def forget_taking() -> None:
    """This process takes no connections any more; a file that is another one's stays."""
    with contextlib.suppress(OSError, ValueError):
        if int(Path(TAKES).read_text(encoding="ascii")) == os.getpid():
            Path(TAKES).unlink()
