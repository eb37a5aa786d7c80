"""How much this session may use: limits of the process and of its control groups. Reads only; standard library only."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

RESOURCES = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
    "core": resource.RLIMIT_CORE,
}
UNLIMITED = -1
MEMORY_LIMIT = ("memory.max", "memory.limit_in_bytes")  # version 2, version 1
#: Version 1 says "no limit" with the largest number of whole pages, which depends on the size of a page.
NO_LIMIT_V1 = 2**62


def look(cgroup_root: str = "/sys/fs/cgroup", proc_root: str = "/proc") -> Dict[str, Any]:
    """survey["limits"].

    `nofile`, `nproc`, `memlock` (bytes), `core` (bytes): [soft, hard], -1 for unlimited.
    `pids_max`, `pids_current`: limit and use of that control group, of all that this session is in, in which the fewest further
    processes fit; without any limit the use of the session's own group. None: no limit, or it may not be read.
    `cgroup_memory_max_mib`: the smallest limit of memory of those groups, None for none.
    """
    own = own_groups(Path(proc_root))
    found: Dict[str, Any] = {name: _pair(*resource.getrlimit(number)) for name, number in RESOURCES.items()}
    pids = [(_number(f / "pids.max"), _number(f / "pids.current")) for f in folders(Path(cgroup_root), own, "pids")]
    limited = [(limit, used) for limit, used in pids if limit is not None]
    unlimited = (None, next((used for _, used in pids if used is not None), None))
    found["pids_max"], found["pids_current"] = min(limited, key=lambda p: p[0] - (p[1] or 0), default=unlimited)
    memory = [_number(f / name) for f in folders(Path(cgroup_root), own, "memory") for name in MEMORY_LIMIT]
    found["cgroup_memory_max_mib"] = min((limit // 2**20 for limit in memory if limit is not None), default=None)
    return found


def own_groups(proc_root: Path) -> Dict[str, str]:
    """The control groups of this process: {controller: path}; the path in the common tree of version 2 is at ""."""
    found: Dict[str, str] = {}
    try:
        text = (proc_root / "self" / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return found
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def folders(cgroup_root: Path, own: Dict[str, str], controller: str) -> Iterator[Path]:
    """The folders of this process' groups in which `controller` keeps its files: its own group first, then up to the root.

    A container may see its own group as the root, so folders on the way need not be there: the caller reads what is.
    """
    places: List[Path] = []
    if controller in own:  # version 1: a tree for each controller
        places.append(cgroup_root / controller)
    elif "" in own:  # version 2: one tree, beside those of version 1 on hosts that have both
        places.append(cgroup_root / "unified" if (cgroup_root / "unified").is_dir() else cgroup_root)
    for root in places:
        folder = root / os.path.normpath("/" + own.get(controller, own.get("", ""))).lstrip("/")
        while folder != root:
            yield folder
            folder = folder.parent
        yield root


def _pair(soft: int, hard: int) -> List[int]:
    return [UNLIMITED if value == resource.RLIM_INFINITY else value for value in (soft, hard)]


def _number(path: Path) -> Optional[int]:
    """The number in a file of a control group; None for "max", for what stands for it, and for what cannot be read."""
    try:
        value = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return value if value < NO_LIMIT_V1 else None
