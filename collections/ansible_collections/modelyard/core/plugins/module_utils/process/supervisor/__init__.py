"""Who keeps an instance running, behind one small interface.

    plain         the keeper as a detached process; needs nothing of the host
    screen        the same, with a named session of screen whose window shows the log
    systemd       a unit of the system; starts anew what has ended, also after a reboot
    systemd_user  the same as a unit of the user's own manager

Only the systemd ones start anything again by themselves. A further supervisor is one more class and one more entry below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.layout import leader_alive, of_this_boot
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor.base import (
    NotReleased,
    Running,
    StartError,
    Supervisor,
)
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor.plain import Plain
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor.screen import Screen
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor.systemd import (
    Systemd,
    release_earlier,
    unit_is_current,
)

__all__ = [
    "SUPERVISORS",
    "NotReleased",
    "Plain",
    "Running",
    "StartError",
    "Supervisor",
    "leader_alive",
    "of_this_boot",
    "start_once",
    "unit_is_current",
]

#: How long a unit of an earlier supervisor may take to stop.
RELEASE_S = 300.0
#: How long is waited for somebody else who is just starting the instance.
BUSY_S = 20.0
SUPERVISORS: Dict[str, Supervisor] = {
    "plain": Plain(),
    "screen": Screen(),
    "systemd": Systemd(user=False),
    "systemd_user": Systemd(user=True),
}


def _handed_over(folder: Path, known: Dict[str, Any]) -> bool:
    """Did a stop hand this keeper over to an admin, because what it has to reap does not end? Then nothing waits for it."""
    from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin  # noqa: PLC0415  it imports this file

    left = admin.left_of(layout.read_json(folder.parent / layout.NEEDS_ADMIN) or {})
    return (known["keeper"]["pid"], known["keeper"]["start"]) in left


def start_once(folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
    """Start an instance by order of a person or a deploy; raises StartError, also when it runs already or is being started."""
    if request["supervisor"] not in SUPERVISORS:
        raise StartError(f"there is no supervisor {request['supervisor']}: there are {', '.join(SUPERVISORS)}")
    try:
        with layout.starting(folder, BUSY_S):
            known = layout.state(folder)
            if known and leader_alive(known):
                raise Running(f"{request['name']} runs already (pid {known['leader']['pid']}, port {known['request']['port']})")
            if known and layout.keeper_alive(known) and not _handed_over(folder, known):
                raise StartError(
                    f"parts of the last start of {request['name']} live on without their API server (keeper pid "
                    f"{known['keeper']['pid']}): stop it first"
                )
            release_earlier(folder, request, RELEASE_S)
            (folder / "run" / "ordered").touch()
            return SUPERVISORS[request["supervisor"]].start(folder, request, python)
    except layout.Busy as exc:
        raise StartError(str(exc)) from exc
