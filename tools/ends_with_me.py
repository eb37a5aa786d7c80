"""What a benchmark starts ends with it, however the benchmark ends: its ports and cores are free again."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def child() -> Callable[[], None]:
    """For Popen's preexec_fn: the kernel sends the program SIGTERM when the benchmark's main thread has ended. Linux.

    SIGTERM and not SIGKILL, because some of them have children of their own that they end then.
    """
    parent, libc = os.getpid(), ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)

    return before_exec


def clean_up_on_signals() -> None:
    """A plain kill and a closed terminal end the benchmark like Ctrl-C: what is in `finally` is done."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
