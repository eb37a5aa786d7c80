"""Run a command and take over what it leaves behind, until that has ended too.

usage: reap.py COMMAND [ARGUMENT ...]

Containers and kept ssh connections have helper processes that outlive their parents and fall to process 1. On some CI machines
process 1 never asks for their exit status, so each would stay as a zombie for good. Exit status: that of the command.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
#: Seconds that what is left behind gets to end by itself.
PATIENCE_S = 5


def reap(flags: int) -> "tuple[int, int] | None":
    """(pid, status) of a child that has ended, (0, 0) if none has; None if there are no children."""
    try:
        return os.waitpid(-1, flags)
    except ChildProcessError:
        return None


def main() -> int:
    """Exit status of the command; 128 and the signal's number if a signal ended it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    command = subprocess.Popen(sys.argv[1:])
    # Ctrl-C reaches the command as well, which then cleans up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: command.send_signal(number))
    status = None
    while status is None:
        ended = reap(0)
        assert ended is not None
        if ended[0] == command.pid:
            status = os.waitstatus_to_exitcode(ended[1])
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit and (ended := reap(os.WNOHANG)) is not None:
        if ended[0] == 0:
            time.sleep(0.05)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
