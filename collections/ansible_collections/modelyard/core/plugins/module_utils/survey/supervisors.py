"""What the supervisors that services want would need of this host. Reads only; asks nothing that no service wants."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process.systemctl import (
    Manager,
    lingers,
    owner,
    user_manager_problem,
)
from ansible_collections.modelyard.core.plugins.module_utils.survey import tool

SUDO_LIMIT_S = 5.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def look(home: str, wanted: Mapping[str, Sequence[str]], system_runtime: str = "/run/systemd/system") -> Dict[str, Any]:
    """survey["supervisors"], with a key for each kind of supervisor in `wanted` (kind -> names of sessions) but plain:

    screen: {path}; systemd: {running, root (this user is it), sudo (works without a password), units}; systemd_user: {running,
    problem (why the user's manager cannot be reached), lingers, user, units}. `units`: {name: the folder it was rendered for, ""
    where it is not of this project} of unit files of those names that are there. And `sessions`: full ids of the screen sessions
    that engines of this home were started in.
    """
    found: Dict[str, Any] = {"sessions": _sessions(home)}
    running = os.path.isdir(system_runtime)
    if "screen" in wanted:
        found["screen"] = {"path": shutil.which("screen", path=SYSTEM_PATH) or ""}
    if "systemd" in wanted:
        root = os.geteuid() == 0
        sudo = running and not root and tool.run(["sudo", "-n", "true"], SUDO_LIMIT_S)["rc"] == 0
        found["systemd"] = {
            "running": running,
            "root": root,
            "sudo": sudo,
            "units": _units(Manager(False).units, wanted["systemd"]),
        }
    if "systemd_user" in wanted:
        user = proc.user_name(os.geteuid())
        found["systemd_user"] = {
            "running": running,
            "problem": user_manager_problem(),
            "lingers": lingers(user),
            "user": user,
            "units": _units(Manager(True).units, wanted["systemd_user"]),
        }
    return found


def _units(folder: Path, names: Sequence[str]) -> Dict[str, str]:
    found = {}
    for name in names:
        path = folder / f"modelyard-{name}.service"
        try:
            found[path.name] = owner(path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            continue
        except OSError:
            found[path.name] = ""
    return found


def _sessions(home: str) -> List[str]:
    states = [layout.state(folder) for name in layout.services(home) for _, folder in layout.instances(home, name)]
    seen = [state.get("supervised") or {} for state in states if state and layout.of_this_boot(state)]
    return sorted(str(one["name"]) for one in seen if isinstance(one, dict) and one.get("kind") == "screen" and one.get("name"))
