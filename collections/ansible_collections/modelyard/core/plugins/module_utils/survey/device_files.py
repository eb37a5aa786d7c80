"""May this user open a device file?"""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path
from typing import Dict

from ansible_collections.modelyard.core.plugins.module_utils.process import proc


def look(path: str, sysroot: str = "/") -> Dict[str, str]:
    """State of one device file, which lies below `sysroot`: `path`, `state`, `owner`, `group`, `mode` (`0660`).

    `state` is `ok`, `missing`, or `denied`: this user may not open it for reading and writing. It is not opened, because that can
    wake a card up. So a rule of a container that forbids the device (cgroup) is not seen.
    """
    place = below(sysroot, path)
    found = {"path": path, "state": "missing", "owner": "", "group": "", "mode": ""}
    try:
        status = Path(place).stat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError:  # it is in a folder that may not be looked into
        return {**found, "state": "denied"}
    return {
        **found,
        "state": "ok" if os.access(place, os.R_OK | os.W_OK) else "denied",
        "owner": proc.user_name(status.st_uid),
        "group": _group_name(status.st_gid),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
    }


def below(sysroot: str, path: str) -> str:
    """An absolute path as it is below `sysroot`."""
    return f"{sysroot.rstrip('/')}/{path.lstrip('/')}"


def _group_name(gid: int) -> str:
    """The group's name, or its number when the group database does not know it."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
