"""A load generator as a child of the runner: started, looked at, ended. Ours is a fork; `vllm bench serve` is a program."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import mmap
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.judge.load import figures
from ansible_collections.modelyard.core.plugins.module_utils.load import bench, generate
from ansible_collections.modelyard.core.plugins.module_utils.process import layout

PR_SET_PDEATHSIG = 1
#: What is asked to end gets so long to write down what it has.
GRACE_S = 3.0
COUNTS = struct.Struct("qq")
ERROR = re.compile(r"(?i)\b[a-z.]*(error|exception)\b\s*:")


def ends_with(parent: int) -> None:
    """End together with the runner, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)


class Own:
    """Our generator, forked: it has a processor of its own, and what it used can be told."""

    name = "modelyard"

    def __init__(self, folder: Path, level: generate.Level) -> None:
        self.level = level
        self.path = folder / f"own-{level.wanted['kind']}-{level.wanted['value']:g}.json"
        self.counts = mmap.mmap(-1, COUNTS.size)
        self.code: Optional[int] = None
        parent = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                ends_with(parent)
                code = self._run()
            finally:
                os._exit(code)

    def _run(self) -> int:
        def stop(*_: Any) -> None:
            self.level.stopped = True
            for task in asyncio.all_tasks(loop):
                task.cancel()

        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # what the runner has made is not looked through again and again
        self.level.tell = lambda done, failed: COUNTS.pack_into(self.counts, 0, done, failed)
        loop = asyncio.new_event_loop()
        loop.add_signal_handler(signal.SIGTERM, stop)
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(self.level.run())
        self.path.write_text(json.dumps(self.level.result()), encoding="utf-8")
        return 0

    def done(self) -> Tuple[int, int]:
        """(requests that are over, failed ones among them)."""
        done, failed = COUNTS.unpack_from(self.counts, 0)
        return int(done), int(failed)

    def ended(self) -> bool:
        """Has it ended?"""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        return self.code is not None

    def stop(self) -> None:
        """End it; what it has measured so far is written down."""
        _end(self.pid, self.ended)

    def result(self) -> Dict[str, Any]:
        """Figures of the level; empty where it left none."""
        found = layout.read_json(self.path)
        with contextlib.suppress(OSError):
            self.path.unlink()
        return figures.of_replies(self.level.wanted, found) if found else {}

    def said(self) -> str:
        """Why there is no result."""
        return f"the load generator ended with {_how(self.code)} (is the disk full?)"


class Bench:
    """`vllm bench serve`."""

    name = bench.NAME

    def __init__(
        self, folder: Path, request: Mapping[str, Any], level: Mapping[str, Any], address: Tuple[str, int], key: str
    ) -> None:
        self.folder, self.request, self.level = folder, request, level
        self.log = folder / f"bench-{level['kind']}-{level['value']:g}.log"
        parent = os.getpid()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                bench.command(request, level, address, folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=bench.environment(os.environ, request["runtime"], key, request["backend"]),
                start_new_session=True,
                preexec_fn=lambda: ends_with(parent),  # noqa: PLW1509  the runner has no threads
            )
        self.pid = self.process.pid

    def done(self) -> Optional[Tuple[int, int]]:
        """It does not tell; the engines' counters do."""
        return None

    def ended(self) -> bool:
        """Has it ended?"""
        return self.process.poll() is not None

    def stop(self) -> None:
        """End it; it leaves no result then."""
        _end(self.pid, self.ended)

    def result(self) -> Dict[str, Any]:
        """Figures of the level; empty where it left none."""
        return bench.result(self.level, self.folder, self.request["bench"])

    def said(self) -> str:
        """Why there is no result: the last error in its output."""
        return f"{self.name} ended with {_how(self.process.poll())}: {telling(_tail(self.log))}"


def _end(pid: int, ended: Any) -> None:
    """SIGTERM, a moment, SIGKILL; only our own child, which nobody else has reaped."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if ended():
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        limit = time.monotonic() + GRACE_S
        while not ended() and time.monotonic() < limit:
            time.sleep(0.02)


def _how(code: Optional[int]) -> str:
    return "no exit code" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


def telling(lines: Sequence[str]) -> str:
    """The line that says most: the last one that names an error, else the last one. Libraries go on to talk after a failure."""
    errors = [line for line in lines if ERROR.search(line)]
    return (errors or list(lines) or ["it said nothing"])[-1][:200]


def _tail(path: Path) -> List[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[-8192:]
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def own(
    folder: Path,
    request: Mapping[str, Any],
    level: Mapping[str, Any],
    addresses: Sequence[Tuple[str, int]],
    key: str,
    words: int,
) -> Own:
    """Our generator at a level."""
    how = (request["shape"], request["model"], addresses, key, words, request["request_limit_s"])
    return Own(folder, generate.Level(level, *how))
