"""Sessions of screen and tmux, and systemd units, in which an engine may have been started by hand.

Standard library only; reads only. Screen is never started: its socket tells name and state. tmux is asked for the servers of this
user alone, since only they answer.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import opened, proc

#: Runs a program with a limit in seconds and gives what it printed; None when it is not there, failed or was too slow.
Run = Callable[[Sequence[str], float], Optional[str]]
TMUX_LIMIT_S = 2.0
SYSTEMCTL_LIMIT_S = 3.0
#: Folders in which builds of screen keep one folder of sockets for each user.
SCREEN_FOLDERS = ("/run/screen", "/var/run/screen", "/run/uscreens", "/tmp/screens", "/tmp/uscreens")
#: A row of /proc/net/unix about a socket that waits for connections and has a file: inode, path.
LISTENING = re.compile(r"(?m)^\S+ \S+ \S+ 00010000 \S+ \S+ +(\d+) (/.*)$")
#: Options of screen that take a word behind them.
SCREEN_VALUES = ("-c", "-e", "-h", "-p", "-s", "-T", "-t", "-Logfile")


class _Socket(NamedTuple):
    """A listening socket by the path it was made with; screen renames the file when a session gets another name."""

    inode: int
    path: str


def output(argv: Sequence[str], limit_s: float) -> Optional[str]:
    """What the program printed, within the limit; None when it is not there, failed or was too slow."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def sessions(
    table: Dict[int, proc.Process], handles: opened.Handles, run: Run = output, proc_root: Path = proc.PROC
) -> List[Dict[str, Any]]:
    """`[{"kind": "screen|tmux", "name", "pid", "user", "attached"}]`, one for each session, by pid of the server.

    A server whose sessions cannot be asked for has one entry with the name "". `attached` is None when it cannot be seen.
    Sockets that a server left when it was killed are no sessions.
    """
    screens = {p.pid: p for p in table.values() if _is_screen_server(p, proc_root)}
    multiplexers = [p for p in table.values() if p.comm in ("tmux: server", "tmux") and p.state not in "ZX"]
    if not screens and not multiplexers:
        return []
    sockets = _sockets(proc_root)
    found = [_screen(process, sockets, proc_root) for process in screens.values()]
    for process in multiplexers:
        found += _tmux(process, table, handles, sockets, run)
    return sorted(found, key=lambda session: (session["pid"], session["name"]))


def servers(found: List[Dict[str, Any]]) -> List[int]:
    """The pids of the servers of `sessions`."""
    return sorted({session["pid"] for session in found})


def _entry(kind: str, process: proc.Process, name: str, attached: Optional[bool]) -> Dict[str, Any]:
    return {"kind": kind, "name": name, "pid": process.pid, "user": proc.user_name(process.uid), "attached": attached}


def _sockets(root: Path) -> List[_Socket]:
    try:
        text = (root / "net" / "unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [_Socket(int(match.group(1)), match.group(2)) for match in LISTENING.finditer(text)]


def _mode(path: str) -> Optional[int]:
    """The mode of a socket (or, of old versions, a pipe); None when it is not there or not to be seen."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    return mode if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) else None


# -- screen ---------------------------------------------------------------------------------------------------------


def _arguments(pid: int, root: Path) -> List[str]:
    try:
        return (root / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _is_screen_server(process: proc.Process, root: Path) -> bool:
    """The client is called `screen`, its server `SCREEN` (with the path of the call), and both have the program's name."""
    if not process.comm.lower().startswith("screen") or process.state in "ZX":
        return False
    return [os.path.basename(word) for word in _arguments(process.pid, root)[:1]] == ["SCREEN"]


def _screen(process: proc.Process, sockets: List[_Socket], root: Path) -> Dict[str, Any]:
    """Name from the socket's file, which follows a change of name; else from the arguments. Its x bit means: attached."""
    user = proc.user_name(process.uid)
    prefix = f"{process.pid}."
    made = [os.path.split(socket.path) for socket in sockets if os.path.basename(socket.path).startswith(prefix)]
    folders = [folder for folder, _ in made] + [f"{folder}/S-{user}" for folder in SCREEN_FOLDERS] + _private(process.uid)
    for folder in dict.fromkeys(folders):
        for name in _names(folder):
            mode = _mode(f"{folder}/{name}") if name.startswith(prefix) else None
            if mode is not None:
                return _entry("screen", process, name[len(prefix) :], bool(mode & stat.S_IXUSR))
    name = next((name[len(prefix) :] for _, name in made), "")
    return _entry("screen", process, name or _name_in(_arguments(process.pid, root)), None)


def _private(uid: int) -> List[str]:
    """Folders of sockets that a user has for himself: below his home, and what our own environment says if it is us."""
    folders = [os.environ.get("SCREENDIR", "")] if uid == os.geteuid() else []
    with contextlib.suppress(KeyError):
        folders.append(f"{pwd.getpwuid(uid).pw_dir}/.screen")
    return [folder for folder in folders if folder]


def _names(folder: str) -> List[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def _name_in(arguments: List[str]) -> str:
    """The name in `SCREEN -dmS NAME ...`, `SCREEN -S NAME` or `SCREEN -SNAME`; "" when there is none."""
    words = iter(arguments[1:])
    for word in words:
        option = re.fullmatch(r"-[dDmRrxUqaAi]*S(.*)", word)
        if option:
            return option.group(1) or next(words, "")
        if word in SCREEN_VALUES:
            next(words, "")
        elif not word.startswith("-"):  # the program that runs inside begins
            break
    return ""


# -- tmux -----------------------------------------------------------------------------------------------------------


def _tmux(
    process: proc.Process, table: Dict[int, proc.Process], handles: opened.Handles, sockets: List[_Socket], run: Run
) -> List[Dict[str, Any]]:
    """The sessions of one server; nothing for a client."""
    path = _socket_of(process, table, handles, sockets)
    if not path and process.comm != "tmux: server":  # old versions give server and client the same name
        return []
    mode = _mode(path) if path else None
    listed = _listed(path, run) if process.uid == os.geteuid() and mode is not None else []
    if listed:
        return [_entry("tmux", process, name, attached) for name, attached in listed]
    return [_entry("tmux", process, "", None if mode is None else bool(mode & stat.S_IXUSR))]


def _socket_of(process: proc.Process, table: Dict[int, proc.Process], handles: opened.Handles, sockets: List[_Socket]) -> str:
    """The path of the server's socket.

    When its descriptors may not be read: the only socket in its user's folder, if he has one server. "" when it is not known.
    """
    if process.pid not in handles.denied:
        held = handles.targets.get(process.pid, frozenset())
        return next((socket.path for socket in sockets if f"socket:[{socket.inode}]" in held), "")
    own = [socket.path for socket in sockets if f"/tmux-{process.uid}/" in socket.path]
    alone = [p for p in table.values() if p.comm == process.comm and p.uid == process.uid] == [process]
    return own[0] if len(own) == 1 and alone else ""


def _listed(path: str, run: Run) -> List[Tuple[str, bool]]:
    """Names and states of the sessions behind a socket, from its server; nothing when it does not answer in time."""
    program = shutil.which("tmux")
    if program is None:
        return []
    # -u: else letters beyond ASCII come as "_". The name is last because it may hold spaces.
    said = run([program, "-u", "-S", path, "list-sessions", "-F", "#{session_attached} #{session_name}"], TMUX_LIMIT_S)
    rows = [line.partition(" ") for line in (said or "").splitlines()]
    return [(name, attached != "0") for attached, _, name in rows if attached.isdigit() and name]


# -- systemd --------------------------------------------------------------------------------------------------------


def units(
    names: Collection[str],
    run: Run = output,
    user_runtime: Optional[str] = None,
    system_runtime: Path = Path("/run/systemd/system"),
    proc_root: Path = proc.PROC,
) -> List[Dict[str, str]]:
    """`[{"name", "state", "scope": "system|user"}]`: units and scopes whose name contains one of `names`.

    Nothing without systemd as process 1. `user_runtime`: the folder of this user's own manager, looked for when None.
    """
    first = proc.read(1, proc_root)
    if not any(names) or first is None or first.comm not in ("systemd", "init") or not os.path.isdir(str(system_runtime)):
        return []
    ask = ["systemctl", "list-units", "--all", "--no-legend", "--plain", "--no-pager", "--full", "--type=service,scope"]
    found = _units(run(ask, SYSTEMCTL_LIMIT_S), "system", names)
    runtime = user_runtime or os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    if os.path.exists(f"{runtime}/systemd"):
        ask = ["env", f"XDG_RUNTIME_DIR={runtime}", ask[0], "--user", *ask[1:]]
        found += _units(run(ask, SYSTEMCTL_LIMIT_S), "user", names)
    return found


def _units(text: Optional[str], scope: str, names: Collection[str]) -> List[Dict[str, str]]:
    """The rows `UNIT LOAD ACTIVE SUB DESCRIPTION` that are wanted; a unit that others merely refer to is none."""
    found = []
    for line in (text or "").splitlines():
        fields = line.lstrip("●○↻×* ").split(None, 4)
        if len(fields) < 4 or fields[1] == "not-found":
            continue
        plain = re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code.group(1), 16)), fields[0])
        if any(name in plain or name in fields[0] for name in names if name):
            found.append({"name": fields[0], "state": fields[2], "scope": scope})
    return found
