"""status.sh: what runs of a service, as a table for people or as JSON."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process import supervisor as supervisors
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import deployed, gateway
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand.deployed import Deployed, Instance
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import cards
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

READY, NOT_READY, NOTHING = 0, 1, 3
HEALTH_LIMIT_S = 2.0
TOOL_LIMIT_S = 20.0
COLUMNS = ("instance", "state", "pid", "port", "cards", "memory", "since", "supervisor", "log")
COLOURS = {"ready": "32", "starting": "33", "absent": "2", "stopped": "2"}
OTHERWISE = "31"
RUNNING = ("ready", "starting", "not answering", "leftovers")
#: What goes first where the terminal is too narrow for a line.
LEAST = ("log", "supervisor", "since", "memory", "cards")
#: The columns say all of it then, where the supervisor is no program of its own.
PLAIN_STATES = ("ready", "starting", "not answering", "absent", "stopped", "ended")


def look(service: Deployed, instances: Sequence[Instance]) -> List[Dict[str, Any]]:
    """One row of plain data for each instance."""
    where = cards.place(service.home, service.name, [instance.index for instance in instances])
    seen = cards.look(where, TOOL_LIMIT_S)[0] if where.watched else None
    table = proc.processes()
    return [_row(service, instance, seen, table) for instance in instances]


def _row(
    service: Deployed, instance: Instance, seen: Optional[Sequence[cards.Record]], table: Mapping[int, proc.Process]
) -> Dict[str, Any]:
    state = layout.state(instance.folder)
    request = state["request"] if state else instance.request
    devices = request.get("devices") or []
    kind = str(request.get("supervisor") or instance.request["supervisor"])
    row: Dict[str, Any] = {
        "instance": instance.name,
        "state": _state(service, instance, state),
        "pid": None,
        "port": request["port"],
        "cards": [device.get("index") for device in devices],
        "memory_mib": _memory(devices, seen, state, table),
        "started_at": state["started_at"] if state else None,
        "ended": state["ended"] if state else None,
        "log": state["log"] if state else None,
        "by_hand": request.get("words") or [],
        "supervisor": {"kind": kind, "name": "", "alive": None, "detail": "", "attach": ""},
    }
    if state and layout.leader_alive(state):
        row["pid"] = state["leader"]["pid"]
    known = supervisors.SUPERVISORS.get(kind)
    if known is not None:
        row["supervisor"] = known.describe(instance.folder, request)
    return row


def _state(service: Deployed, instance: Instance, state: Any) -> str:
    if (service.folder / layout.NEEDS_ADMIN).exists() and not (state and layout.leader_alive(state)):
        return "needs admin"
    if state is None:
        return "absent"
    if layout.leader_alive(state):
        request = state["request"]
        if http.status((request["host"], int(request["port"])), "/health", HEALTH_LIMIT_S) == 200:
            return "ready"
        return "not answering" if state.get("ready_at") else "starting"
    if layout.keeper_alive(state):
        return "leftovers"
    return "stopped" if layout.was_asked_to_stop(instance.folder, state) else "ended"


def _memory(
    devices: Sequence[Mapping[str, Any]],
    seen: Optional[Sequence[cards.Record]],
    state: Any,
    table: Mapping[int, proc.Process],
) -> Any:
    """MiB in use on its cards; without cards what its processes have in main memory; None when it cannot be told."""
    if seen is not None:
        found = [cards.of_device(device, seen) for device in devices]
        used = [card["memory_used_mib"] for card in found if card is not None and card["memory_used_mib"] is not None]
        return sum(used) if used else None
    if state is None or not layout.keeper_alive(state):
        return None
    return sum(_pss_mib(process.pid) for process in table.values() if process.sid == state["keeper"]["pid"])


def _pss_mib(pid: int) -> int:
    """What a process has in memory, shared pages in equal shares."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) // 1024
    except (OSError, ValueError):
        pass
    return 0


def _cells(row: Mapping[str, Any]) -> List[str]:
    def text(value: Any) -> str:
        return "-" if value in (None, "", []) else str(value)

    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["started_at"])) if row["started_at"] else "-"
    name = row["supervisor"]["name"]
    return [
        row["instance"],
        row["state"],
        text(row["pid"]),
        text(row["port"]),
        text(",".join(str(card) for card in row["cards"])),
        "-" if row["memory_mib"] is None else f"{row['memory_mib']} MiB",
        since,
        f"{row['supervisor']['kind']}{f' {name}' if name else ''}",
        text(row["log"]),
    ]


def _narrow(lines: List[List[str]], width: int) -> List[str]:
    """Leave columns out until a line fits; their names."""
    gone: List[str] = []
    while width and sum(max(len(line[place]) for line in lines) + 2 for place in range(len(lines[0]))) - 2 > width:
        left = [name for name in LEAST if name not in gone]
        if not left:
            break
        place = lines[0].index(left[0])
        gone.append(left[0])
        for line in lines:
            del line[place]
    return gone


def table(rows: Sequence[Mapping[str, Any]], colour: bool, width: int = 0) -> str:
    """The rows under their headings, then what does not fit a column: commands to attach, how it ended, words given by hand.

    `width`: of the terminal; 0 for none.
    """
    lines = [list(COLUMNS), *(_cells(row) for row in rows)]
    gone = _narrow(lines, width)
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    text = []
    for place, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths)]
        if colour and place:
            cells[1] = f"\033[{COLOURS.get(line[1], OTHERWISE)}m{cells[1]}\033[0m"
        text.append("  ".join(cells).rstrip())
    if gone:
        text.append(f"no room for: {', '.join(gone)}; a wider terminal, a pipe or --json shows it")
    for row in rows:
        if row["supervisor"]["detail"] and not (row["supervisor"]["kind"] == "plain" and row["state"] in PLAIN_STATES):
            text.append(f"{row['instance']}: {row['supervisor']['detail']}")
        if row["ended"] and row["state"] == "ended":
            how = f"signal {row['ended']['signal']}" if row["ended"].get("signal") else f"exit code {row['ended'].get('code')}"
            text.append(f"{row['instance']}: ended with {how}; why: {row['log']}")
        if row["by_hand"]:
            text.append(
                f"{row['instance']}: started by hand with {' '.join(row['by_hand'])}; the next deploy shows the difference"
            )
        if row["supervisor"]["attach"]:
            text.append(f"{row['instance']}: look in with {row['supervisor']['attach']}")
    return "\n".join(text)


def exit_code(rows: Sequence[Mapping[str, Any]]) -> int:
    """0 all are ready, 3 nothing of them runs, 1 everything else."""
    if all(row["state"] == "ready" for row in rows):
        return READY
    return NOT_READY if any(row["state"] in RUNNING or row["state"] == "needs admin" for row in rows) else NOTHING


def run(service: Deployed, words: Sequence[str], as_json: bool, terminal: bool) -> Tuple[str, int]:
    """(what to print, exit code). Raises Refused."""
    rows = look(service, deployed.chosen(service, words))
    entry = gateway.row(service)
    code = exit_code(rows)
    if entry and entry["state"] != "ready" and code == READY and not words:
        code = NOT_READY
    if as_json:
        known = {"service": service.name, "instances": rows, "gateway": entry, "exit": code}
        return json.dumps(known, indent=1, sort_keys=True), code
    problem = deployed.admin_problem(service)
    given = os.environ.get("COLUMNS", "")
    width = int(given) if given.isdecimal() else shutil.get_terminal_size().columns if terminal else 0
    shown = table(rows, terminal and not os.environ.get("NO_COLOR"), width)
    return "\n".join([shown, *([gateway.line(entry)] if entry else []), *([problem] if problem else [])]), code
