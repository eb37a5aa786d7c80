"""What comes after the signals: is it really over? Ports, what was accepted, what a person had to do."""

from __future__ import annotations

import contextlib
from typing import Any, Collection, Mapping, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, opened, proc, sockets
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import admin
from ansible_collections.modelyard.core.plugins.module_utils.process.stop.cards import BACK, TAKEN

CLEARED = "what an admin had to do is done: needs_admin.json removed"


def ports(states: Mapping[int, Optional[Mapping[str, Any]]]) -> str:
    """In words: are the ports closed, and if not, who has them?"""
    wanted = {int(state["request"]["port"]) for state in states.values() if state}
    if not wanted and states:
        return "port unknown"
    listening = [x for x in sockets.listeners() if x.port in wanted]
    if not listening:
        return "port closed"
    owners = sockets.socket_owners(opened.handles(proc.processes()))
    who = [f"{x.port} (user {proc.user_name(x.uid)}, pid {owners.get(x.inode, 'unknown')})" for x in listening]
    return f"port still open: {', '.join(sorted(set(who)))}"


def forget_acceptance(home: str, service: str, indexes: Optional[Collection[int]]) -> bool:
    """What was stopped is accepted no more; other instances keep what they have. False when it could not be written down."""
    file = layout.service_dir(home, service) / "accepted.json"
    known = layout.read_json(file)
    try:
        if known is None or indexes is None:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
            return True
        entries = known.get("instances")
        entries = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        kept = [entry for entry in entries if entry.get("index") not in indexes]
        if not kept:
            file.unlink()
        elif len(kept) != len(entries):
            layout.write_json(file, {**known, "instances": kept})
    except OSError:
        return False
    return True


def clear_admin(home: str, service: str, verdicts: Sequence[Mapping[str, Any]]) -> bool:
    """Remove needs_admin.json when the look that was just taken has shown that it is over; True when it was removed.

    It is over when none of its processes lives and the memory of all its cards is back, as `verdicts` say.
    """
    file = admin.path(home, service)
    known = layout.read_json(file)
    if known is None or admin.left_of(known):
        return False
    back = {str(v["uuid"] or v["bus_id"] or v["index"]) for v in verdicts if v["verdict"] in (BACK, TAKEN)}
    waiting = {str(card.get("uuid") or card.get("bus_id") or card.get("index")) for card in admin.dicts(known.get("cards"))}
    if waiting - back:
        return False
    with contextlib.suppress(OSError):
        file.unlink()
        return True
    return False
