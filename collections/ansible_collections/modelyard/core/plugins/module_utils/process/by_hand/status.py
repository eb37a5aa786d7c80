"""status.sh: what runs of a service, as a table for people or as JSON."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc
from ansible_collections.modelyard.core.plugins.module_utils.process import supervisor as supervisors
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import card_memory, deployed
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand.deployed import Deployed, Instance
from ansible_collections.modelyard.core.plugins.module_utils.survey import http

READY, NOT_READY, NOTHING = 0, 1, 3
HEALTH_LIMIT_S = 2.0
COLUMNS = ("instance", "state", "pid", "port", "cards", "memory", "since", "supervisor", "log")
COLOURS = {"ready": "32", "starting": "33", "absent": "2"}
OTHERWISE = "31"
RUNNING = ("ready", "starting", "not answering", "leftovers")


def look(service: Deployed, instances: Sequence[Instance]) -> List[Dict[str, Any]]:
    """One row of plain data for each instance."""
    memory = card_memory.look(service.info, service.home)
    table = proc.processes()
    return [_row(service, instance, memory, table) for instance in instances]


def _row(
    service: Deployed, instance: Instance, memory: Mapping[str, card_memory.Memory], table: Mapping[int, proc.Process]
) -> Dict[str, Any]:
    state = layout.state(instance.folder)
    request = state["request"] if state else instance.request
    devices = request.get("devices") or []
    row: Dict[str, Any] = {
        "instance": instance.name,
        "state": _state(service, instance, state),
        "pid": None,
        "port": request["port"],
        "cards": [device.get("index") for device in devices],
        "memory_mib": _memory(devices, memory, state, table),
        "started_at": state["started_at"] if state else None,
        "ended": state["ended"] if state else None,
        "log": state["log"] if state else None,
        "by_hand": request.get("words") or [],
        "supervisor": {"kind": request["supervisor"], "name": "", "alive": None, "detail": "", "attach": ""},
    }
    if state and layout.leader_alive(state):
        row["pid"] = state["leader"]["pid"]
    known = supervisors.SUPERVISORS.get(request["supervisor"])
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
    return "leftovers" if layout.keeper_alive(state) else "ended"


def _memory(
    devices: Sequence[Mapping[str, Any]], memory: Mapping[str, card_memory.Memory], state: Any, table: Mapping[int, proc.Process]
) -> Any:
    """MiB in use on its cards; without cards what its processes have in main memory; None when it cannot be told."""
    if memory:
        seen = [card_memory.of_device(device, memory) for device in devices]
        used = [one.used_mib for one in seen if one is not None and one.used_mib is not None]
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


def table(rows: Sequence[Mapping[str, Any]], colour: bool) -> str:
    """The rows under their headings, then what does not fit a column: commands to attach, how it ended, words given by hand."""
    lines = [list(COLUMNS), *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(COLUMNS))]
    text = []
    for place, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths)]
        if colour and place:
            cells[1] = f"\033[{COLOURS.get(line[1], OTHERWISE)}m{cells[1]}\033[0m"
        text.append("  ".join(cells).rstrip())
    for row in rows:
        if row["supervisor"]["detail"]:
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


def run(service: Deployed, words: Sequence[str], as_json: bool, terminal: bool) -> tuple[str, int]:
    """(what to print, exit code). Raises Refused."""
    rows = look(service, deployed.chosen(service, words))
    code = exit_code(rows)
    if as_json:
        return json.dumps({"service": service.name, "instances": rows, "exit": code}, indent=1, sort_keys=True), code
    problem = deployed.admin_problem(service)
    shown = table(rows, terminal and not os.environ.get("NO_COLOR"))
    return (f"{shown}\n{problem}" if problem else shown), code
