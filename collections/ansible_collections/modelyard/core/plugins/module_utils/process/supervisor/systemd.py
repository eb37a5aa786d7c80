"""A unit of systemd, of the system or of the user: starts the keeper anew when it has ended, and at boot.

The unit file is rendered into the instance's folder, where its changes are shown, and put into systemd's place at the start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List

from ansible_collections.modelyard.core.plugins.module_utils.process import layout
from ansible_collections.modelyard.core.plugins.module_utils.process.supervisor import base
from ansible_collections.modelyard.core.plugins.module_utils.process.systemctl import (
    Manager,
    Refused,
    owner,
    user_manager_problem,
)

MEMORY_S = 120.0


def unit_name(request: Dict[str, Any]) -> str:
    """`modelyard-qwen3-14b-32k.service`."""
    return f"modelyard-{request['session']}.service"


class Systemd:
    """`user`: of this user's own manager, which needs no root."""

    def __init__(self, user: bool) -> None:
        self.manager = Manager(user)
        self.kind = "systemd_user" if user else "systemd"

    def start(self, folder: Path, request: Dict[str, Any], python: str) -> Dict[str, Any]:
        """Put the unit file in place, enable and start it, and wait until the engine's pid is written down."""
        name = unit_name(request)
        source = folder / name
        base.program(folder)
        problem = self._problem(source, folder)
        if problem:
            raise base.StartError(problem)
        layout.ask_for(folder, request)
        before = layout.state(folder)
        known = layout.read_json(folder.parent / layout.SERVICE_FILE) or {}
        limit_s = base.START_LIMIT_S + float(known.get("stop", {}).get("memory_s", MEMORY_S))  # as ExecStartPre waits
        try:
            self.manager.install(source, name)
            self.manager.enable(name)
            self.manager.start(name)
        except (Refused, OSError) as exc:
            raise base.StartError(f"{name} could not be started: {exc}. {self._rights()}") from exc
        looks = [0]

        def failed() -> str:
            looks[0] += 1
            if looks[0] % 50:  # each look is a program
                return ""
            shown = self.manager.show(name)
            return f"{name} has failed ({shown.get('Result', '')}): {self._journal(name)}" if _is_over(shown) else ""

        state = base.wait_for_state(folder, before, limit_s, failed)
        if state is None:
            raise base.StartError(f"{name} has not started the engine within {limit_s:.0f} s: {self._journal(name)}")
        return state

    def _problem(self, source: Path, folder: Path) -> str:
        if not source.is_file():
            return f"{source} is not there: deploy the service again"
        if self.manager.user and user_manager_problem():
            return f"{user_manager_problem()}. `loginctl enable-linger` starts one; where that is refused, root does it"
        target = self.manager.units / source.name
        try:
            whose = owner(target.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return ""
        except OSError as exc:
            return f"{target} cannot be read: {exc}"
        if whose and os.path.realpath(whose) == os.path.realpath(str(folder)):
            return ""
        return (
            f"{target} is there and is not this instance's ({whose or 'not made by Modelyard'}): rename the service, or remove it"
        )

    def _rights(self) -> str:
        if self.manager.user:
            return "Nothing was started."
        return "Units of the system need root, or sudo without a password; systemd_user needs neither. Nothing was started."

    def _journal(self, name: str) -> str:
        return f"see `journalctl {'--user ' if self.manager.user else ''}-u {name}`"

    def release(self, folder: Path, request: Dict[str, Any], limit_s: float) -> List[str]:
        """Disable and stop the unit; its ExecStop is the careful stop, so the engine is gone afterwards as a rule."""
        layout.asked_to_stop(folder)
        return [*release_earlier(folder, request, limit_s), *self.release_unit(folder, request, limit_s)]

    def release_unit(self, folder: Path, request: Dict[str, Any], limit_s: float) -> List[str]:
        """The same for the unit alone. One of this name that is another service's, or another home's, is left alone."""
        name = unit_name(request)
        shown = self.manager.show(name)
        if not shown and self.manager.is_there:
            raise base.NotReleased(f"systemd does not answer, and may start {name} again")
        if shown.get("LoadState") in (None, "not-found") or not self._is_ours(shown, name, folder):
            return []
        done: List[str] = []
        layout.asked_to_stop(folder)
        try:
            if shown.get("UnitFileState") == "enabled":
                self.manager.disable(name)
                done.append(f"disabled {name}: it is not started at boot")
            if shown.get("ActiveState") not in ("inactive", "failed"):
                self.manager.stop(name, limit_s)
                done.append(f"stopped {name}: systemd does not start it again")
        except Refused as exc:
            more = "" if self.manager.user else " Units of the system need root, or sudo without a password."
            raise base.NotReleased(f"{name} could not be released, systemd may start it again: {exc}.{more}", done) from exc
        return done

    def _is_ours(self, shown: Dict[str, str], name: str, folder: Path) -> bool:
        """Was the unit written for this instance, or does it run this instance's keeper? Its name proves nothing."""
        state = layout.state(folder)
        if state and layout.keeper_alive(state) and shown.get("MainPID") == str(state["keeper"]["pid"]):
            return True
        try:
            whose = owner((self.manager.units / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return False
        return bool(whose) and os.path.realpath(whose) == os.path.realpath(str(folder))

    def describe(self, folder: Path, request: Dict[str, Any]) -> Dict[str, Any]:
        """The unit as systemd shows it."""
        name = unit_name(request)
        shown = self.manager.show(name)
        words = [f"{shown.get('ActiveState', 'unknown')} ({shown.get('SubState', 'systemd does not answer')})"]
        words += [f"started anew {shown['NRestarts']} times"] if shown.get("NRestarts", "0") not in ("0", "") else []
        words += [shown["UnitFileState"]] if shown.get("UnitFileState") else ["not installed"] if shown else []
        alive = shown.get("ActiveState") in ("active", "activating", "deactivating", "reloading") if shown else None
        detail = f"{', '.join(words)}; {base.keeper_line(folder)}"
        return {"kind": self.kind, "name": name, "alive": alive, "detail": detail, "attach": ""}


def release_earlier(folder: Path, request: Dict[str, Any], limit_s: float) -> List[str]:
    """Release the unit that the last start was made with, when `request` wants another supervisor or a unit of another name.

    Otherwise systemd would go on starting it anew beside that one. The name changes with the number of instances: NAME, NAME-0.
    """
    state = layout.state(folder) or {}
    seen = state.get("supervised")
    before = seen.get("kind") if isinstance(seen, dict) else None
    if before not in ("systemd", "systemd_user") or not state["request"].get("session"):
        return []
    if (before, state["request"]["session"]) == (request.get("supervisor"), request.get("session")):
        return []
    return Systemd(user=before == "systemd_user").release_unit(folder, state["request"], limit_s)


def unit_is_current(folder: Path, request: Dict[str, Any]) -> bool:
    """Does systemd have the very unit file that lies in the instance's folder?"""
    name = unit_name(request)
    try:
        installed = Manager(request["supervisor"] == "systemd_user").units / name
        return installed.read_bytes() == (folder / name).read_bytes()
    except OSError:
        return False


def _is_over(shown: Dict[str, str]) -> bool:
    return shown.get("ActiveState") in ("failed", "inactive") and shown.get("SubState") != "auto-restart"
