"""Is there a Python on the host that this ansible-core can work with? Asked by plain commands: modules would fail unreadably."""

from __future__ import annotations

import shlex
from typing import Any

from ansible.module_utils import basic
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as ansible_version
from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding

#: Where Ansible's own discovery looks, newest first.
DISCOVERED = (*(f"python3.{minor}" for minor in range(14, 7, -1)), "/usr/bin/python3", "python3", "/usr/libexec/platform-python")
#: The program itself and not the name it was called by, which may be a wrapper.
VERSION = "import sys; sys.stdout.write('%s %d.%d' % ((sys.executable,) + sys.version_info[:2]))"


def needed() -> tuple[int, int]:
    """The oldest Python on a host that this ansible-core supports."""
    major, minor = basic._PY_MIN
    return int(major), int(minor)


def is_open(interpreter: Any) -> bool:
    """Does the inventory leave the choice of the interpreter open?"""
    named = str(interpreter or "")
    return not named or named.startswith("auto")


def look(action: ActionBase, interpreter: Any) -> dict[str, str] | None:
    """Version by place of the Pythons that answer; None where there is no shell. `interpreter`: as in the inventory."""
    places = DISCOVERED if is_open(interpreter) else (str(interpreter),)
    tries = " ".join(shlex.quote(place) for place in places)
    command = f'for p in {tries}; do v=$("$p" -c {shlex.quote(VERSION)} 2>/dev/null) && echo "$v"; done; true'
    said = action._low_level_execute_command(command)
    if said.get("rc"):
        return None
    found = [line.rpartition(" ") for line in str(said.get("stdout", "")).splitlines()]
    return {place: version for place, _, version in found if place and version.replace(".", "").isdigit()}


def chosen(versions: dict[str, str]) -> str:
    """The first interpreter that is new enough; "" for none."""
    return next((place for place, version in versions.items() if tuple(map(int, version.split("."))) >= needed()), "")


def judge(versions: dict[str, str], wanted: tuple[int, int], where: str) -> list[dict[str, str]]:
    """A finding when none of them is new enough."""
    if any(tuple(map(int, version.split("."))) >= wanted for version in versions.values()):
        return []
    seen = ", ".join(f"{place} is {version}" for place, version in versions.items()) or "none was found"
    return [
        finding(
            "PF-PYTHON-OLD",
            where,
            f"ansible-core {ansible_version} needs Python {'.'.join(map(str, wanted))} or newer on the host; {seen}",
            "install a newer Python beside the system's one (RHEL 8 and its kin: dnf install python3.11; without root: put one "
            "below the home) and set ansible_python_interpreter of this host to it",
        )
    ]
