#!/usr/bin/env python3
"""Keeps one engine: starts launch.sh in a session of its own, adopts and reaps what it leaves behind, writes down what happened.

usage: keeper.py INSTANCE_DIR      (run/request.json says what was asked for; run/state.json says what is)

The plain supervisor of Modelyard: for hosts where neither systemd nor screen may be used. It starts nothing again by
itself and signals nobody. As a child subreaper it becomes the parent of engine processes whose parent died, so none of
them stays as a zombie under a PID 1 that does not reap, and it ends when the last of them has ended.
Standard library only.
"""

import ctypes
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LOGS_KEPT = 20


def start_ticks(pid):
    """Start time of a process in clock ticks since boot: with the pid it names the process for good."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def boot_id():
    """Changes with every boot: start times are counted from it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def write_state(path, state):
    """Write whole or not at all."""
    fresh = path.with_name(".state.json.keeper")
    fresh.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(path)


def open_log(folder):
    """A new log file for this start; the newest LOGS_KEPT stay."""
    folder.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for attempt in range(100):
        path = folder / (f"{stamp}.log" if attempt == 0 else f"{stamp}-{attempt}.log")
        try:
            handle = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
            break
        except FileExistsError:
            continue
    else:
        raise SystemExit(f"no free log name in {folder}")
    link = folder / "current.log"
    fresh = folder / ".current.log.new"
    if fresh.is_symlink():
        fresh.unlink()
    fresh.symlink_to(path.name)
    fresh.replace(link)
    logs = sorted((p for p in folder.glob("*.log") if not p.is_symlink() and p != path), key=lambda p: p.stat().st_mtime)
    for old in logs[: -(LOGS_KEPT - 1)]:
        old.unlink()
    return path, handle


def become_subreaper():
    """Orphaned descendants come to us and not to PID 1. Linux 3.4 or newer."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def launch(folder, log):
    """Start launch.sh with its output in the log; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.execv("/bin/bash", ["bash", str(folder / "launch.sh")])
    except BaseException as exc:
        os.write(2, f"keeper: launch.sh could not be started: {exc}\n".encode())
    os._exit(127)


def main():
    """Start, write down, reap until nothing is left."""
    folder = Path(sys.argv[1]).resolve()
    state_path = folder / "run" / "state.json"
    if os.getpid() != os.getsid(0):
        os.setsid()
    # A shell's Ctrl-C or a closed terminal must not end the keeper before the engine: it ends last, by itself.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    become_subreaper()
    request = json.loads((folder / "run" / "request.json").read_text(encoding="utf-8"))
    log_path, log = open_log(folder / "logs")
    pid = launch(folder, log)
    os.close(log)
    state = {
        "keeper": {"pid": os.getpid(), "start": start_ticks(os.getpid())},
        "leader": {"pid": pid, "start": start_ticks(pid)},
        "machine": socket.gethostname(),
        "boot": boot_id(),
        "log": str(log_path),
        "started_at": round(time.time(), 3),
        "request": request,
        "ended": None,
    }
    try:
        write_state(state_path, state)
    except OSError:
        # An engine that nobody knows of is worse than none.
        os.kill(pid, signal.SIGKILL)
        raise
    unwritten = False
    while True:
        try:
            child, status = os.wait()
        except ChildProcessError:
            return
        if child == pid:
            killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            state["ended"] = {"at": round(time.time(), 3), "code": code, "signal": killed_by}
            unwritten = True
        if unwritten:
            # A full disk must not end the keeper: it goes on reaping, and tries again at the next child.
            try:
                write_state(state_path, state)
                unwritten = False
            except OSError:
                pass  # standard error lies on the same disk


if __name__ == "__main__":
    main()
