"""Running a vendor's tool under a limit: such tools can hang in the kernel, crash, or print for ever."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

#: How much of each output is kept; the rest is read and thrown away.
OUTPUT_BYTES = 256 * 1024
#: How long a tool may take to die of SIGKILL before it is left to itself.
DEATH_S = 2.0
#: How often the pipes of a dead tool are emptied: more than enough for all that they can hold.
REST_READS = 64
#: How often a running tool is looked at when it prints nothing.
STEP_S = 0.05
CHUNK = 65536
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class _Output:
    """One pipe of a tool: its first `keep` bytes."""

    def __init__(self, descriptor: int, keep: int) -> None:
        self.descriptor = descriptor
        self.keep = keep
        self.kept = bytearray()
        self.is_cut = False

    def read(self) -> bool:
        """Take what is there now; False at the end of the pipe."""
        try:
            chunk = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        room = self.keep - len(self.kept)
        self.kept += chunk[:room]
        self.is_cut = self.is_cut or len(chunk) > room
        return bool(chunk)

    @property
    def text(self) -> str:
        """What was kept, whatever its bytes."""
        return self.kept.decode("utf-8", "replace")


class _Running(NamedTuple):
    """A tool that was started, and its two pipes."""

    process: subprocess.Popen[bytes]
    outputs: List[_Output]


def find(tool: str, places: Sequence[str], path: str) -> str:
    """The first program of that name that this user may run: in one of the folders `places`, then on `path` (as in $PATH).

    Empty when there is none. Folders that are not absolute are passed over.
    """
    for folder in [*places, *path.split(":")]:
        candidate = f"{folder.rstrip('/')}/{tool}"
        if folder.startswith("/") and os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return ""


def environment(extra: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """What a tool gets: our environment without proxies, other languages and our own Python's settings; system folders on PATH.

    Some tools are Python programs, some call others (`lspci`) that an SSH session has not on its PATH.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith(("LC_", "PYTHON")) and name not in ("LANG", "LANGUAGE")
    }
    folders = [folder for folder in kept.get("PATH", "").split(":") if folder]
    kept["PATH"] = ":".join([*folders, *(folder for folder in SYSTEM_FOLDERS if folder not in folders)])
    kept["LC_ALL"] = "C"
    kept.update(extra or {})
    return kept


def run(argv: Sequence[str], limit_s: float, env: Optional[Mapping[str, str]] = None, keep: int = OUTPUT_BYTES) -> Dict[str, Any]:
    """Run a program to its end, or to `limit_s`; never waits longer than that and a few seconds, and never raises.

    It gets a session of its own, no standard input and the C locale; `env` is added to its environment. When it ends, or at the
    limit, all of its process group is ended with SIGKILL, so that a child that it left behind keeps nothing open.

    :returns: `argv`; `rc` (negative: ended by that signal; None: it did not start, or did not end by itself); `seconds`;
        `timed_out`; `stdout` and `stderr`, the first `keep` bytes of each; and `note`: in words what its output does not say (it
        could not be started, was ended at the limit, does not even die, printed more than was kept), empty for nothing.
    """
    began = time.monotonic()
    entry: Dict[str, Any] = {"argv": list(argv), "rc": None, "seconds": 0.0, "timed_out": False}
    entry.update(stdout="", stderr="", note="")
    try:
        running = _start(argv, env, keep)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or str(exc)
        entry["note"] = f"{argv[0]} could not be started: {why}"
        return entry
    notes: List[str] = []
    try:
        if _watch(running, began + limit_s):
            _kill_group(running.process.pid)
            _rest(running.outputs)
            entry["rc"] = running.process.wait()
        else:
            entry["timed_out"] = True
            notes.append(f"{argv[0]} had not ended after {limit_s:g} s and was killed")
            notes += _end(running)
    finally:
        for stream in (running.process.stdout, running.process.stderr):
            if stream is not None:
                stream.close()
    out, err = running.outputs
    if out.is_cut or err.is_cut:
        notes.append(f"only the first {keep // 1024} KiB of what it printed were kept")
    entry.update(stdout=out.text, stderr=err.text, seconds=round(time.monotonic() - began, 3), note="; ".join(notes))
    return entry


def cut(entry: Mapping[str, Any]) -> Dict[str, Any]:
    """The same entry with at most OUTPUT_BYTES characters of each output, for a survey that is sent over the network."""
    return {**entry, "stdout": entry["stdout"][:OUTPUT_BYTES], "stderr": entry["stderr"][:OUTPUT_BYTES]}


def _start(argv: Sequence[str], env: Optional[Mapping[str, str]], keep: int) -> _Running:
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env=environment(env),
    )
    assert process.stdout is not None and process.stderr is not None
    outputs = [_Output(stream.fileno(), keep) for stream in (process.stdout, process.stderr)]
    for output in outputs:
        os.set_blocking(output.descriptor, False)
    return _Running(process, outputs)


def _has_ended(pid: int) -> bool:
    """Is the child dead? It is not reaped, so that its number stays taken and its group can be signalled without a mistake."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _watch(running: _Running, limit: float) -> bool:
    """Read until the program has ended; False when `limit` (monotonic time) comes first."""
    with selectors.DefaultSelector() as selector:
        for output in running.outputs:
            selector.register(output.descriptor, selectors.EVENT_READ, output)
        pause = 0.001
        while not _has_ended(running.process.pid):
            left = limit - time.monotonic()
            if left <= 0:
                return False
            if selector.get_map():
                for key, _ in selector.select(min(left, STEP_S)):
                    if not key.data.read():
                        selector.unregister(key.fd)
            else:
                # Nothing to read any more: mostly it is just about to be gone.
                time.sleep(min(left, pause))
                pause = min(2 * pause, STEP_S)
    return True


def _rest(outputs: Sequence[_Output]) -> None:
    """Read what is still in the pipes. Somebody outside of the group may still hold them, and write: no end is waited for."""
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output.descriptor, selectors.EVENT_READ, output)
        for _ in range(REST_READS):
            ready = selector.select(0) if selector.get_map() else []
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fd)
            if not ready:
                break


def _end(running: _Running) -> List[str]:
    """Kill the whole group; words when the program does not die of it, as one that waits inside a driver."""
    process = running.process
    _kill_group(process.pid)
    if _watch(running, time.monotonic() + DEATH_S):
        _rest(running.outputs)
        process.wait()
        return []
    # It is reaped when it dies at last; as a daemon thread this does not hold up the end of our own process.
    threading.Thread(target=process.wait, daemon=True).start()
    return [f"it is still there {DEATH_S:g} s after SIGKILL (pid {process.pid}, stuck in the kernel) and was left alone"]


def _kill_group(pgid: int) -> None:
    # What is gone, or runs as somebody else (a setuid helper), is none of ours any more.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)
