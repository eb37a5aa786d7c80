"""What is written down about a service's processes, as the ground for telling whose a process is."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Set

from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, supervisor

SYSTEMD = ("systemd", "systemd_user")


def claim(home: str, service: str, runtimes_dir: str = "", instance: Optional[int] = None) -> identity.Claim:
    """The claim of a service, or of one of its instances, from what is written down in its folder.

    Works when nothing is written down, and when the folder is gone: then name and place are all that is known.
    """
    folder_path = layout.service_dir(home, service)
    manifest = layout.read_json(folder_path / "manifest.json") or {}
    known = manifest.get("runtime")
    settings = layout.read_json(folder_path / "service.json") or {}
    given = runtimes_dir or str(settings.get("runtimes_dir") or "") or f"{home}/runtimes"
    more = [str(known.get("path", "")) if isinstance(known, dict) else "", given]
    recorded: Set[identity.Recorded] = set()
    sessions: Set[identity.Recorded] = set()
    others: Set[identity.Recorded] = set()
    units: Set[str] = set()
    runtime = ""
    for index, folder in layout.instances(home, service):
        state = layout.state(folder)
        wanted = instance in (None, index)
        keeper, leader = _people(state)
        if wanted:
            recorded |= leader | _retired(state)
            sessions |= keeper
            units |= _units(layout.read_json(folder / "instance.json")) | _units((state or {}).get("request"))
        else:
            others |= keeper | leader
        request = (state or {}).get("request") or layout.read_json(folder / "instance.json") or {}
        if wanted:
            runtime = str(request.get("runtime") or runtime)
    return identity.Claim(
        service=service,
        folder=os.path.realpath(str(folder_path)),  # the kernel names working directories by their real path
        runtime=runtime,
        more_runtimes=tuple(sorted({place for path in (*more, runtime) if path for place in (path, os.path.realpath(path))})),
        uid=folder_path.stat().st_uid if os.path.isdir(str(folder_path)) else None,
        recorded=frozenset(recorded),
        sessions=frozenset(sessions),
        units=frozenset(units),
        instance=instance,
        others=frozenset(others - recorded - sessions),
    )


def _people(state: Optional[Dict[str, Any]]) -> Any:
    """(keeper, leader) of a start, as sets of one; empty when its numbers mean nothing any more."""
    if not state or not supervisor.of_this_boot(state):
        return set(), set()
    return tuple({identity.Recorded(int(state[who]["pid"]), int(state[who]["start"]))} for who in ("keeper", "leader"))


def _retired(state: Optional[Dict[str, Any]]) -> Set[identity.Recorded]:
    """Programs that another one has followed, and that work off their last requests."""
    if not state or not supervisor.of_this_boot(state):
        return set()
    return {identity.Recorded(int(one["pid"]), int(one["start"])) for one in state.get("retired", [])}


def _units(request: Optional[Dict[str, Any]]) -> Set[str]:
    """The systemd unit of what is to be started, or was, where it has one: they differ when a deploy has renamed it."""
    if not request or request.get("supervisor") not in SYSTEMD or not request.get("session"):
        return set()
    return {f"modelyard-{request['session']}.service"}
