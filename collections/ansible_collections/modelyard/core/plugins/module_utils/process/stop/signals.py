"""Signals that reach one very process or nobody, and waiting for the end of one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import Iterable, Iterator, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

#: GONE: it has ended, or its number belongs to another process now. DENIED: this user may not signal it.
SENT, GONE, DENIED = "sent", "gone", "denied"


def send(pid: int, start: int, number: int) -> str:
    """Signal the process that has this number and this start time; SENT, GONE or DENIED."""
    try:
        if not hasattr(os, "pidfd_open"):
            return _send(pid, start, number)
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return GONE
    except OSError:  # a kernel before 5.3, a container's filter that does not know the call, or no descriptor is free
        return _send(pid, start, number)
    try:
        # The descriptor holds the process; if its start time is right now, the signal cannot reach another one.
        if not proc.alive(pid, start):
            return GONE
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return GONE
    except OSError:  # no right, or such a filter again: kill tells which
        return _send(pid, start, number)
    finally:
        os.close(handle)
    return SENT


def _send(pid: int, start: int, number: int) -> str:
    if not proc.alive(pid, start):
        return GONE
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return GONE
    except PermissionError:
        return DENIED
    return SENT


def wait_for_an_end(pids: Iterable[int], seconds: float) -> None:
    """Return as soon as one of these living processes has ended, after `seconds` at the latest.

    Only a hint when to look again: a number that belongs to another process by now does no harm. Where the kernel has no such
    descriptors, or none is free, all the time is waited.
    """
    with contextlib.ExitStack() as held:
        ends = select.poll()
        for pid in pids if hasattr(os, "pidfd_open") else ():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            except OSError:
                break
            held.callback(os.close, handle)
            ends.register(handle, select.POLLIN)
        else:
            ends.poll(seconds * 1000)
            return
    time.sleep(seconds)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C, a terminal that goes away and SIGTERM wait until the block has ended; a Ctrl-C is forgotten then.

    For the last step of a stop: there is nothing left to break off. Only in the main thread, which gets the signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: Set[int] = set()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {number: signal.signal(number, lambda got, _: came.add(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for late in came - {int(signal.SIGINT)}:
            signal.raise_signal(late)
