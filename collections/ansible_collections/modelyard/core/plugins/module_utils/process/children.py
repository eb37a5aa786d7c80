"""Running programs that must not run for ever: a deadline each, many at once, and nothing of them stays behind.

Every program has a session of its own and gets its input, here its own text, through a pipe. It ends together with the
process that started it. Only own children, and what they leave behind, are ever signalled. Linux; no threads beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import subprocess
import time
from typing import Any, Callable, Collection, List, Mapping, NamedTuple, Optional, Sequence, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import proc

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.05
#: What SIGKILL has not ended after so long hangs in the kernel.
STUCK_S = 5.0
#: When one of those that wait for each other has failed, the others get so long to end by themselves.
TOGETHER_S = 10.0
KEPT_BYTES = 64 * 1024  # of each output: its end

ENDED, LATE, STOPPED, NOT_STARTED = "ended", "late", "stopped", "not started"


class Program(NamedTuple):
    """What to run. `cores`: where it may run; empty for anywhere. `text` is its standard input."""

    words: Sequence[str]
    text: str
    environment: Mapping[str, str]
    cores: Sequence[int]
    limit_s: float


class End(NamedTuple):
    """How it went.

    `how`: ENDED by itself; LATE, ended by us at its deadline; STOPPED, because one that it waited for had failed;
    NOT_STARTED, `err` says why. `code`: exit code, negative for a signal, None when it was not started or is still there.
    `left`: its pid if it is still there, although it was killed.
    """

    how: str
    code: Optional[int]
    out: str
    err: str
    seconds: float
    left: Optional[int]


class Child:
    """A program that runs; `end` is None until it has ended or was given up."""

    def __init__(self, program: Program, selector: selectors.BaseSelector) -> None:
        self.end: Optional[End] = None
        self.began = time.monotonic()
        self.deadline = self.began + program.limit_s
        self.how = ENDED
        self.killed_at = 0.0
        self.kept = {"out": b"", "err": b""}
        self.unsent = program.text.encode()
        self.selector = selector
        try:
            self.process = _start(program)
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            self.end = End(NOT_STARTED, None, "", str(exc), 0.0, None)
            return
        self.streams: List[Any] = [self.process.stdin, self.process.stdout, self.process.stderr]
        for stream in self.streams:
            os.set_blocking(stream.fileno(), False)
        self.readers = [self._reader("out", self.process.stdout), self._reader("err", self.process.stderr)]
        selector.register(self.streams[0], selectors.EVENT_WRITE, self._feed)
        for stream, read in zip(self.streams[1:], self.readers):
            selector.register(stream, selectors.EVENT_READ, read)

    def look(self) -> None:
        """Has it ended, is it late, or does it not end at all? To be called again and again."""
        now = time.monotonic()
        if self._over():
            self._signal_group()  # those it left: the leader's number is still its own, because nobody has reaped it yet
            for read in self.readers:
                for _ in range(16):  # not to the end: one of another session may have it open and go on writing
                    if not read():
                        break
            self._finish(self.process.wait())
        elif self.how == ENDED and now >= self.deadline:
            self.kill(LATE)
        elif self.how != ENDED and now - self.killed_at > STUCK_S:
            self._finish(None)

    def kill(self, how: str) -> None:
        """Kill it and what it has started."""
        self.how, self.killed_at = how, time.monotonic()
        self._signal_group()

    def _over(self) -> bool:
        """Looks without reaping, so that its number is given to nobody else before the group is signalled."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal_group(self) -> None:
        seen = proc.read(self.process.pid)
        if seen is not None and seen.ppid == os.getpid() and seen.pgid == seen.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(seen.pid, signal.SIGKILL)

    def _finish(self, code: Optional[int]) -> None:
        for stream in self.streams:
            self._close(stream)
        out, err = (self.kept[name].decode("utf-8", "replace") for name in ("out", "err"))
        left = self.process.pid if code is None else None
        self.end = End(self.how, code, out, err, round(time.monotonic() - self.began, 2), left)

    def _feed(self) -> bool:
        try:
            self.unsent = self.unsent[self.streams[0].write(self.unsent[:4096]) or 0 :]
        except OSError:  # it does not read, or has ended: its output will tell
            self.unsent = b""
        if not self.unsent:
            self._close(self.streams[0])
        return bool(self.unsent)

    def _reader(self, name: str, stream: Any) -> Callable[[], bool]:
        def read() -> bool:
            """Keep the end of what came; False when there is nothing to read."""
            piece = None if stream.closed else stream.read(KEPT_BYTES)
            if piece:
                self.kept[name] = (self.kept[name] + piece)[-KEPT_BYTES:]
            elif piece is not None:
                self._close(stream)
            return bool(piece)

        return read

    def _close(self, stream: Any) -> None:
        if not stream.closed:
            self.selector.unregister(stream)
            with contextlib.suppress(OSError):
                stream.close()


def run(programs: Sequence[Program], parallel: int, together: bool = False) -> List[End]:
    """Run all of them, so many at once, until each has ended or was given up; in the same order.

    `together`: they wait for each other, so when one has failed (exit code other than 0) the others are stopped soon.
    """
    started: List[Child] = []
    waiting = list(programs)
    running: List[Child] = []
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and len(running) < max(1, parallel):
                    started.append(Child(waiting.pop(0), selector))
                    running.append(started[-1])
                for key, _ in selector.select(POLL_S):
                    key.data()
                for child in running:
                    if child.end is None:
                        child.look()
                running = [child for child in running if child.end is None]
                if together:
                    _stop_the_others(started, running)
        finally:
            for child in running:  # only when this process is asked to end
                if child.end is None:
                    child.kill(STOPPED)
    return [child.end for child in started if child.end is not None]


def _stop_the_others(started: Sequence[Child], running: Sequence[Child]) -> None:
    failed = [child.began + child.end.seconds for child in started if child.end is not None and child.end.code != 0]
    if failed and time.monotonic() > min(failed) + TOGETHER_S:
        for child in running:
            if child.how == ENDED:
                child.kill(STOPPED)


def _start(program: Program) -> subprocess.Popen[bytes]:
    parent, libc = os.getpid(), ctypes.CDLL(None)
    allowed = os.sched_getaffinity(0)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash on an accelerator would leave gigabytes
        if os.getppid() != parent:
            os._exit(127)

    try:
        if program.cores:
            os.sched_setaffinity(0, program.cores)  # a child begins where its parent may run
        return subprocess.Popen(
            program.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=dict(program.environment),
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509  there are no threads
        )
    finally:
        os.sched_setaffinity(0, allowed)


def adopt() -> None:
    """Become the parent of processes whose parent, a child of ours, has ended: `end_all_but` then finds them. Linux 3.4."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # were it ignored, the kernel would reap children and say nothing
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pids() -> Set[int]:
    """All children of this process."""
    me = os.getpid()
    return {p.pid for p in proc.processes().values() if p.ppid == me}


def end_all_but(known: Collection[int]) -> List[int]:
    """End all children but the `known` ones, and what they leave behind in turn; returns the pids that were signalled."""
    signalled: List[int] = []
    limit = time.monotonic() + STUCK_S
    while time.monotonic() < limit:
        left = pids() - set(known)
        if not left:
            break
        for pid in left:
            if pid not in signalled:
                with contextlib.suppress(PermissionError):
                    os.kill(pid, signal.SIGKILL)  # a child that nobody has reaped: its number is its own
                signalled.append(pid)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)
    return signalled
