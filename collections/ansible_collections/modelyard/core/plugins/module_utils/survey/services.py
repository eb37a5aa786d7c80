"""The services of a home: what runs, what is left over, who listens on their ports. Standard library only."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import identity, layout, opened, proc, sockets
from ansible_collections.modelyard.core.plugins.module_utils.survey import http


def service(home: str, name: str, table: Dict[int, proc.Process], runtimes_dir: str = "") -> Dict[str, Any]:
    """State of one service from its folder and the process table, never from memory of what was done."""
    # Most hosts have no service.
    from ansible_collections.modelyard.core.plugins.module_utils.process import stop  # noqa: PLC0415
    from ansible_collections.modelyard.core.plugins.module_utils.process.stop import look  # noqa: PLC0415

    claim = stop.claim(home, name, runtimes_dir)
    indexes = [index for index, _ in layout.instances(home, name)]
    claims: Dict[Optional[int], identity.Claim] = {i: stop.claim(home, name, runtimes_dir, i) for i in indexes}
    seen, mounts = identity.observe([claim, *claims.values()], table), proc.mounts("self")
    found = identity.judge(claim, seen, table, mounts)
    belongs = {
        one.process.pid: key
        for one in seen
        for verdict, key, _ in [look.assign(one, claims, table, mounts)]
        if verdict == identity.OURS
    }
    keepers = {recorded.pid for recorded in claim.sessions}
    instances: List[Dict[str, Any]] = []
    sessions_alive = set()
    proofs = accepted(home, name)
    for index, folder in layout.instances(home, name):
        state = layout.state(folder)
        if state is None:
            continue
        request = state["request"]
        alive = layout.leader_alive(state)
        if alive:
            sessions_alive.add(int(state["keeper"]["pid"]))
        ready = alive and http.status((request["host"], request["port"]), "/health") == 200
        proven = _proof(proofs, index, state) if ready else None
        instances.append(
            {
                "index": index,
                "pids": sorted(pid for pid, key in belongs.items() if key == index),
                "alive": alive,
                "ready": ready,
                "accepted": proven is not None,
                "accepted_at": (proven or {}).get("at"),
                "port": request["port"],
                "leader": state["leader"],
                "started_at": state["started_at"],
                "ended": state["ended"],
                "log": state["log"],
                "digest": request["digest"],
                "launch": request["launch"],
                "devices": request.get("devices", []),
                "supervisor": request.get("supervisor", ""),
                "session": request.get("session", ""),
            }
        )
    leftovers = [
        {**identity.describe(f), "instance": belongs.get(f.process.pid)}
        for f in found
        if f.verdict == identity.OURS and f.living and f.process.pid not in keepers and f.process.sid not in sessions_alive
    ]
    return {
        "instances": instances,
        "leftovers": leftovers,
        "suspects": [identity.describe(f) for f in found if f.verdict == identity.SUSPECT and f.living],
        "accepted": any(i["alive"] for i in instances) and all(i["accepted"] for i in instances if i["alive"]),
        "known": bool(instances or found or os.path.isdir(str(layout.service_dir(home, name)))),
        "pids": [f.process.pid for f in found if f.verdict == identity.OURS],
        "needs_admin": needs_admin(home, name),
    }


def needs_admin(home: str, name: str) -> Optional[Dict[str, Any]]:
    """What a stop has handed over to an admin, and `left`: pids of those of its processes that have not ended. None: nothing."""
    from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin  # noqa: PLC0415  as above

    known = layout.read_json(admin.path(home, name))
    return None if known is None else {**known, "left": [pid for pid, _ in admin.left_of(known)]}


def accepted(home: str, name: str) -> List[Dict[str, Any]]:
    """What passed a whole acceptance, by instance: {index, leader, digest, at, result}; at is in seconds since 1970.

    It is bound to that very process with those very parameters. Empty when nothing readable was written down.
    """
    found = (layout.read_json(layout.service_dir(home, name) / "accepted.json") or {}).get("instances")
    return [one for one in found if isinstance(one, dict) and "index" in one] if isinstance(found, list) else []


def _proof(proofs: Sequence[Dict[str, Any]], index: int, state: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    bound = (index, state["leader"], state["request"]["digest"])
    return next((one for one in proofs if (one["index"], one.get("leader"), one.get("digest")) == bound), None)


def listeners(handles: opened.Handles, readable: Collection[int]) -> List[Dict[str, Any]]:
    """Every listening TCP socket: {address, port, user, pid, command}; pid None for a process that may not be looked into.

    `readable`: pids whose command line can be read without the risk of hanging with them; of others it is left empty.
    """
    owners = sockets.socket_owners(handles)
    found = []
    for listener in sockets.listeners():
        pid = owners.get(listener.inode)
        found.append(
            {
                "address": listener.address,
                "port": listener.port,
                "user": proc.user_name(listener.uid),
                "pid": pid,
                "command": (proc.command(pid) or "") if pid is not None and pid in readable else "",
            }
        )
    return found


def ports(
    wanted: Sequence[int], services: Mapping[str, Mapping[str, Any]], listening: Sequence[Mapping[str, Any]]
) -> Dict[str, Any]:
    """Those of the wanted ports that somebody listens on: {port: {service, pid, user, command}}."""
    found: Dict[str, Any] = {}
    for listener in listening:
        pid, port = listener["pid"], str(listener["port"])
        if listener["port"] not in wanted or port in found:
            continue
        owner = next((name for name, s in services.items() if pid is not None and pid in s["pids"]), "")
        found[port] = {"service": owner, **{key: listener[key] for key in ("pid", "user", "command")}}
    return found


def state_digest(home: str) -> str:
    """Changes whenever a deploy or teardown has changed something in `home`: the keepers' states of all services."""
    states = {}
    for name in layout.services(home):
        for index, folder in layout.instances(home, name):
            state = layout.state(folder) or {}
            states[f"{name}/{index}"] = [state.get("keeper"), state.get("leader"), state.get("ended")]
    return json.dumps(states, sort_keys=True)


def shared_with(home: str) -> str:
    """Name of another machine that runs services from this very home (a home on a network file system); empty for none."""
    for name in layout.services(home):
        for _, folder in layout.instances(home, name):
            state = layout.state(folder) or {}
            if state.get("machine") not in (None, socket.gethostname()) and not state["ended"]:
                return str(state["machine"])
    return ""
