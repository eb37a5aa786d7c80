"""Keeps HAProxy or nginx in our gateway's place: the same signals, the same result log.

usage: python -m modelyard_gateway.proxy PROXY.JSON

SIGTERM or SIGINT: no new connections, requests end, at the latest after drain_s; a second one ends all at once. SIGHUP: read the
configuration anew; requests that run stay with the process that has them. SIGUSR1: another gateway takes the connections now; as
SIGTERM, but the port stays open, and a SIGTERM after it is the first one.

The child's standard output is a pipe to this process, because neither of the two rotates its log: lines of requests go to the
result log, everything else to standard error. A full disk costs lines and never a request. When this process is killed, its child
ends as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from modelyard_gateway import entry, proxy_lines
from modelyard_gateway.result_log import ResultLog

PIPE_BYTES = 2**20
OPEN_FILES = 65536
PR_SET_PDEATHSIG = 1
#: How each wants to be told: reload, end when the requests have ended, end now.
SIGNALS = {
    "haproxy": (signal.SIGUSR2, signal.SIGUSR1, signal.SIGTERM),
    "nginx": (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM),
}
#: So long a child must live before it counts as one that takes connections: a configuration that it refuses shows before.
SETTLE_S = 0.5


def inherited(spec: Dict[str, Any]) -> Tuple[Optional[socket.socket], Dict[str, str]]:
    """The port that a keeper has opened, and the words by which HAProxy (haproxy.cfg) and nginx know of it."""
    found = entry.inherited(int(spec["port"]))
    if found is None:
        return None, {}
    return found, {"MODELYARD_ENTRY": str(entry.FD)} if spec["kind"] == "haproxy" else {"NGINX": f"{entry.FD};"}


def command(spec: Dict[str, Any]) -> List[str]:
    """The command line of the child."""
    if spec["kind"] == "haproxy":
        return [spec["program"], "-W", "-db", "-f", spec["config"]]
    return [spec["program"], "-e", "stderr", "-p", spec["run_dir"], "-c", spec["config"]]


class Proxy:
    """The child, its signals and its log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.asked = 0
        self.retired = False
        self.entry: Optional[socket.socket] = None
        self.child: subprocess.Popen[bytes]
        self.log: ResultLog

    def run(self) -> int:
        """Start, relay signals, wait; the child's exit status, 0 when it was asked to end."""
        reading, writing = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writing, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
        run_dir = Path(self.spec["run_dir"])
        anew = SIGNALS[self.spec["kind"]][0]
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: lambda *_: self.reload(anew)}
        handlers[signal.SIGUSR1] = self.retire
        self.entry, more = inherited(self.spec)
        # Held back until there is a child to tell.
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        self.child = subprocess.Popen(
            command(self.spec),
            cwd=run_dir,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            env={**os.environ, **more},
            pass_fds=(entry.FD,) if self.entry is not None else (),
            preexec_fn=_as_child,  # noqa: PLW1509  no thread has been started yet
        )
        os.close(writing)
        log = self.spec["log"]
        self.log = ResultLog(log["path"], int(log["limit_mb"] * 2**20), log["keep"])
        reader = threading.Thread(target=self.read, args=(reading,), daemon=True)
        reader.start()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(SETTLE_S)
        if self.child.returncode is None:
            entry.say_taking()
        status = self.child.wait()
        reader.join(5)
        self.log.close(5)
        entry.forget_taking()
        return 0 if self.asked or self.retired else status if status >= 0 else 128 - status

    def stop(self, *_: Any) -> None:
        """The first time gently, then at once."""
        gently, now = SIGNALS[self.spec["kind"]][1:]
        self.asked += 1
        if self.asked == 1:
            entry.shut(self.entry)
        self.child.send_signal(gently if self.asked == 1 else now)
        self._limit(now)

    def retire(self, *_: Any) -> None:
        """Another one takes the connections."""
        gently, now = SIGNALS[self.spec["kind"]][1:]
        self.child.send_signal(gently)
        self._limit(now)
        self.retired = True
        if self.entry is not None:
            self.entry.close()  # not ours to shut any more
            self.entry = None

    def _limit(self, now: int) -> None:
        if self.asked + self.retired > 1:
            return
        limit = threading.Timer(self.spec["drain_s"], self.child.send_signal, (now,))
        limit.daemon = True
        limit.start()

    def reload(self, number: int) -> None:
        """Names of engines may have changed as well."""
        with contextlib.suppress(OSError, ValueError):
            self.spec["names"] = json.loads(self.path.read_text(encoding="utf-8"))["names"]
        self.child.send_signal(number)

    def read(self, pipe: int) -> None:
        """Everything that the child says on its standard output, until all of its processes have ended."""
        with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                entry = proxy_lines.read(self.spec["kind"], line, self.spec["names"])
                if entry:
                    self.log.write(entry)
                else:
                    sys.stderr.write(line)
                    sys.stderr.flush()


def _as_child() -> None:
    """In the child: end with the parent, many open files, no signal held back."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main(arguments: List[str]) -> int:
    """For the command line; 2 when the file cannot be used."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        proxy = Proxy(Path(arguments[0]))
    except (OSError, ValueError, KeyError) as exc:
        print(f"{arguments[0]}: cannot be used: {exc}", file=sys.stderr)
        return 2
    try:
        return proxy.run()
    except FileNotFoundError as exc:
        print(f"{proxy.spec['kind']} cannot be started: {exc}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
