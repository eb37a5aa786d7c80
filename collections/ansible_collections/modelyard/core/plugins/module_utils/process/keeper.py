"""Keeps one engine: starts launch.sh in a session of its own, adopts and reaps what it leaves behind, writes down what happened.

It starts nothing again by itself and, unless a supervisor that starts anew waits for its end, signals nobody. As a child
subreaper it becomes the parent of engine processes whose parent died, so none of them stays as a zombie under a PID 1 that does
not reap, and it ends when the last of them has ended. All imports stand at the top: the program's file may be replaced while it
runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import entry, history, layout, logfile, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.succession import Succession
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

PR_SET_CHILD_SUBREAPER = 36
MIB = 2**20
#: How often the log's size and, until it answers, the engine's /health are looked at.
LOOK_S = 1.0
#: The same while another program is to take the place of the one that runs.
HURRY_S = 0.05
HEALTH_EVERY_S, HEALTH_LIMIT_S = 5.0, 2.0
#: How long the rest of an engine may take to end by itself when its API server has ended, before it is stopped.
REST_S = 20.0
#: How long such a stop may take in all, before systemd is left to end what is in the unit.
STOP_LIMIT_S = 300.0
DEFAULT_LOGS = {"cap_mib": 256, "keep": 20}


class Orders(NamedTuple):
    """How a supervisor wants it. `name`: what people find it under ("368558.qwen3", a unit). `ends_rest`: stop what an API server
    left behind, because the supervisor starts anew when the keeper ends.
    """

    kind: str
    name: str = ""
    ends_rest: bool = False


class Keeper:
    """One run of the keeper over one engine."""

    def __init__(self, folder: Path, orders: Orders) -> None:
        self.folder = folder
        self.orders = orders
        self.state: Dict[str, Any] = {}
        self.starts: List[Dict[str, Any]] = []
        self.unwritten = False
        self.ready_at: Optional[float] = None
        self.asked_at = 0.0  # when /health was asked last
        self.ended_at: Optional[float] = None  # monotonic
        self.stopper: Optional[int] = None
        self.entry: Optional[socket.socket] = None  # where clients come in; none for engines, which listen themselves
        self.succession = Succession(self)

    # -- starting --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine and write down what was started; raises OSError or ValueError, then nothing runs."""
        request = layout.request(self.folder)
        if request is None:
            raise ValueError(f"{self.folder / layout.REQUEST_FILE} is not there or not readable: deploy the service again")
        run = self.folder / "run"
        run.mkdir(exist_ok=True)
        self.starts = history.whole(layout.read_json(run / "starts.json"))
        ordered = (run / "ordered").exists()
        if request.get("entry"):
            self.entry = entry.listen(request["host"], int(request["port"]))
        path, pid = self.launch(request)
        self.log = path
        me = proc.identity(os.getpid())
        leader = proc.identity(pid)
        self.state = {
            "keeper": {"pid": me[0], "start": me[1]},
            "leader": {"pid": leader[0], "start": leader[1]},
            "supervised": {"kind": self.orders.kind, "name": self.orders.name},
            "machine": socket.gethostname(),
            "boot": proc.boot_id(),
            "log": str(path),
            "started_at": round(time.time(), 3),
            "ready_at": None,
            "request": request,
            "ended": None,
            "entry": self.entry is not None,
            "retired": [],
        }
        try:
            layout.write_json(run / "state.json", self.state)
        except OSError:
            # An engine that nobody knows of is worse than none.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self.starts.append(history.entry(path.name, self.state["started_at"], ordered))
        self.write()
        with contextlib.suppress(OSError):
            (run / "ordered").unlink()

    def launch(self, request: Dict[str, Any]) -> Tuple[Path, int]:
        """Start launch.sh with a log of its own; the log and the pid."""
        logs = {**DEFAULT_LOGS, **(request.get("logs") or {})}
        self.cap = int(logs["cap_mib"] * MIB)
        path, log = logfile.create(self.folder / "logs", int(logs["keep"]), self.starts)
        try:
            return path, _launch(self.folder, log, request.get("words") or [], self.entry)
        finally:
            os.close(log)

    def follows(self, log: Path) -> None:
        """Another program is the one that counts now."""
        self.log, self.ready_at, self.asked_at, self.ended_at = log, None, 0.0, None

    # -- keeping ---------------------------------------------------------------------------------------------------

    def keep(self) -> int:
        """Reap until nothing is left; exit code."""
        while True:
            received = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, HURRY_S if self.succession.pending else LOOK_S)
            if received and received.si_signo == signal.SIGTERM and self.orders.ends_rest:
                self._pass_on()
            if not self._reap():
                if self.unwritten:
                    self.write()
                return 0
            if self.entry is not None:
                self.succession.look()
            logfile.trim(self.log, self.cap)
            self._health()
            if self.unwritten:
                self.write()
            if self._given_up():
                return 1

    def _reap(self) -> bool:
        """Take the ends of all that have ended; False when there is no child left."""
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if child == 0:
                return True
            if child == self.state["leader"]["pid"]:
                self._leader_ended(status)
            else:
                self.succession.reaped(child, status)

    def _leader_ended(self, status: int) -> None:
        self.ended_at = time.monotonic()
        if not self.succession.pending:
            self.close_entry()
        end = history.end(status, time.time())
        self.state["ended"] = {"at": end["ended_at"], "code": end["code"], "signal": end["signal"]}
        self.starts[-1].update(
            **end,
            asked=layout.was_asked_to_stop(self.folder, self.state),
            served_s=self.served_s(),
        )
        self.write()

    def served_s(self) -> float:
        """For how long it has answered."""
        until = time.monotonic() if self.ended_at is None else self.ended_at
        return round(until - self.ready_at, 1) if self.ready_at is not None else 0.0

    def close_entry(self) -> None:
        """A port behind which nobody works would let clients wait."""
        if self.entry is not None:
            self.entry.close()
            self.entry = None

    def write(self) -> None:
        """A full disk must not end the keeper: it goes on reaping, and tries again."""
        self.unwritten = True
        with contextlib.suppress(OSError):
            layout.write_json(self.folder / "run" / "state.json", self.state)
            layout.write_json(self.folder / "run" / "starts.json", {"starts": self.starts[-history.STARTS_KEPT :]})
            self.unwritten = False

    def _health(self) -> None:
        """Note when it answers for the first time, and when it has done so for long: then no later end is a failed start."""
        now = time.monotonic()
        if self.ready_at is not None:
            if self.starts[-1]["served_s"] == 0.0 and self.ended_at is None and now - self.ready_at >= history.HEALTHY_S:
                self.starts[-1]["served_s"] = history.HEALTHY_S
                self.write()
            return
        if self.ended_at is not None or now - self.asked_at < HEALTH_EVERY_S:
            return
        self.asked_at = now
        request = self.state["request"]
        if http.status((request["host"], int(request["port"])), "/health", HEALTH_LIMIT_S) == 200:
            self.ready_at = now
            self.state["ready_at"] = round(time.time(), 3)
            self.write()

    # -- for a supervisor that starts anew ---------------------------------------------------------------------------

    def _pass_on(self) -> None:
        """systemd asks the keeper to end when its careful stop is over or was not possible: ask the engine."""
        layout.asked_to_stop(self.folder)
        if self.ended_at is None:
            os.kill(self.state["leader"]["pid"], signal.SIGTERM)  # a child that was not reaped: the number is its own

    def _given_up(self) -> bool:
        """Stop what lives on without its API server; True when that has failed and the supervisor must do it."""
        if not self.orders.ends_rest or self.ended_at is None:
            return False
        since = time.monotonic() - self.ended_at
        if self.stopper is None and since > REST_S:
            # Only the processes: as soon as the keeper has ended systemd calls the whole stop, which looks at the cards.
            words = [sys.executable, sys.argv[0], "stop", str(self.folder), "--for-supervisor", "--only-signals"]
            with contextlib.suppress(OSError):
                self.stopper = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd="/", preexec_fn=_usual_signals).pid  # noqa: PLW1509
        return since > REST_S + STOP_LIMIT_S


def _usual_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _launch(folder: Path, log: int, words: List[str], listening: Optional[socket.socket]) -> int:
    """Start launch.sh with its output in the log, and with the port where there is one; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        entry.hand_down(listening)
        _usual_signals()
        os.execv("/bin/bash", ["bash", str(folder / "launch.sh"), *words])
    except BaseException as exc:
        os.write(2, f"keeper: launch.sh could not be started: {exc}\n".encode())
    os._exit(127)


def _become_subreaper() -> None:
    """Orphaned descendants come to us and not to PID 1. Linux 3.4 or newer."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def run(folder: Path, orders: Orders) -> int:
    """Start, write down, reap until nothing is left."""
    if os.getpid() != os.getsid(0):
        os.setsid()
    # A shell's Ctrl-C or a closed terminal must not end the keeper before the engine: it ends last, by itself.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Never ignored, only held back: a number that is ignored would never be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    _become_subreaper()
    keeper = Keeper(folder, orders)
    keeper.start()
    return keeper.keep()
