"""Package managers of hosts: what they offer, have and would do, and the changes themselves. Standard library only.

apt.py and dnf.py have the same functions; run.py starts their programs, holder.py says who has them locked.
"""

from __future__ import annotations

from typing import Optional, Sequence, Union

from ansible_collections.modelyard.core.plugins.module_utils.process.packages.apt import Apt
from ansible_collections.modelyard.core.plugins.module_utils.process.packages.dnf import Dnf
from ansible_collections.modelyard.core.plugins.module_utils.survey import tool

Manager = Union[Apt, Dnf]


def of_host(kind: str, sysroot: str, places: Sequence[str]) -> Optional[Manager]:
    """The manager of a host whose package database is of that `kind` (dpkg, rpm); None where its program is not there."""
    folders = [*places, *tool.SYSTEM_FOLDERS]
    if kind == "dpkg" and tool.find(Apt.program, folders, ""):
        return Apt(sysroot, places)
    return Dnf(sysroot, places) if kind == "rpm" and tool.find(Dnf.program, folders, "") else None
