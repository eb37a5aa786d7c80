"""In which control group a process lives, and which unit or container that is. Standard library only; reads only."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Union

UNIT = re.compile(r"[^/]+\.(?:service|scope)")
#: Elements of a cgroup path that name a container: an id of 64 digits (docker, podman, containerd, CRI-O, and what is built on
#: them; `conmon` is only the watcher of one), LXC, systemd-nspawn and libvirt. POD: for a pod whose container does not show.
CONTAINER = re.compile(
    r"(?P<id>(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f]))"
    r"|(?:^|/)lxc(?:\.payload[./]|/)(?P<lxc>[^/]+)"
    r"|(?:^|/)machine\.slice/(?:machine-|systemd-nspawn@)(?P<machine>[^/]+)\.(?:scope|service)"
)
POD = re.compile(r"(?:^|/)kubepods.*[/-](pod[0-9a-f_-]{32,36})")
WATCHER = re.compile(r"(?:^|/)[^/]*conmon-[^/]*")


def _text(path: str) -> str:
    try:
        with io.FileIO(path) as file:
            return file.readall().decode("utf-8", "replace")
    except OSError:
        return ""


def path_of(pid: int, root: Union[Path, str] = "/proc") -> str:
    """The process' path in the tree of control groups, "" when it cannot be read.

    Version 2 first, then systemd's tree, then the longest path. On hosts with both versions docker places containers only in
    the trees of version 1, so a path that names a container comes first, and "/" says nothing as long as another path does.
    """
    paths = {}
    for line in (_text(f"{root}/{pid}/cgroup")).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers if number != "0" else "0"] = path
    order = [paths.get("0", ""), paths.get("name=systemd", ""), max(paths.values(), key=len, default="")]
    order += sorted(paths.values(), key=len, reverse=True)
    known = [path for path in order if path]
    named = [path for path in known if container_of(path)] or [path for path in known if path != "/"] or known
    return named[0] if named else ""


def unit_of(path: str) -> str:
    """The systemd unit of a cgroup path, the innermost one ("x.service", "session-3.scope"); "" when it has none."""
    units = [element for element in path.split("/") if UNIT.fullmatch(element)]
    return units[-1] if units else ""


def container_of(path: str) -> str:
    """The container of a cgroup path, the outermost one, as its tool shows it: 12 digits of the id, or a name. "" for none."""
    path = WATCHER.sub("", path)
    match = CONTAINER.search(path)
    if match is None:
        pod = POD.search(path)
        return pod.group(1) if pod else ""
    if match.group("id"):
        return match.group("id")[:12]
    name = match.group("lxc") or match.group("machine")
    return re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code.group(1), 16)), name)  # as systemd writes special characters
