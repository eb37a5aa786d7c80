"""What lies on a host about a service that failed: logs of all starts, processes with stacks, the kernel log. Only reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import evidence, identity, layout, stop
from ansible_collections.modelyard.core.plugins.module_utils.survey import kernel_log
from ansible_collections.modelyard.core.plugins.module_utils.triage import classify, classify_streams, restart
from ansible_collections.modelyard.core.plugins.module_utils.triage.text import redacted

BLOCK = 1 << 18
KERNEL_LIMIT_S = 5.0


def look(home: str, name: str) -> Dict[str, Any]:
    """Of one service: the answer about each start, the newest first, about its processes now and about the kernel log.

    The logs of its instances are answered one by one: instances fail each for itself. So is the kernel log: it may tell of things
    that are days old.
    """
    known = evidence.secrets(home, name)
    problems: List[str] = []
    starts = []
    for index, folder in layout.instances(home, name):
        state = layout.state(folder)
        current = str(state["log"]) if state else ""
        for log in _logs(folder, problems):
            try:
                answer = redacted(classify_streams({str(log): _pieces(log)}), known)
            except OSError as exc:
                problems.append(f"{log}: {exc.strerror or exc}")
                continue
            running = str(log) == current and state is not None and layout.leader_alive(state)
            starts.append(
                {"instance": index, "log": str(log), "running": running, "answer": answer, "restart": restart.advice(answer)}
            )
    processes = [identity.describe(found) for found in identity.census(stop.claim(home, name))]
    rows, stacks = _processes(processes)
    now = redacted(classify(rows + stacks), known)
    return {
        "service": name,
        "starts": starts,
        "processes": [{key: one[key] for key in ("pid", "ppid", "state", "comm", "verdict")} for one in processes],
        "stacks": stacks,
        "now": now,
        # Without any instance that runs, whatever is alive is left of an old start.
        "left": [] if any(start["running"] for start in starts) else [one["pid"] for one in processes],
        "kernel": redacted(_kernel(home, name, problems), known),
        "problems": problems,
    }


def _logs(folder: Path, problems: List[str]) -> List[Path]:
    """The logs of all starts, the newest first; `current.log` is a link to one of them."""
    try:
        found = [path for path in (folder / "logs").glob("*.log") if not path.is_symlink()]
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError as exc:
        problems.append(f"{folder / 'logs'}: {exc.strerror or exc}")
        return []


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        piece = stream.read(BLOCK)
        while piece:
            yield piece
            piece = stream.read(BLOCK)


def _processes(found: List[Dict[str, object]]) -> Tuple[str, str]:
    """The service's own processes as rows of a table, and the kernel stacks of those that may be stuck, where readable."""
    rows = ["PID PPID STAT CMD"]
    stacks: List[str] = []
    for one in found:
        gone = " <defunct>" if one["state"] == "Z" else ""
        rows.append(f"{one['pid']} {one['ppid']} {one['state']} {one['comm']}{gone}")
        if one["state"] in ("D", "Z", "R"):
            try:
                stacks.append(Path(f"/proc/{one['pid']}/stack").read_text(encoding="utf-8", errors="replace"))
            except OSError:
                continue  # root only, or the process has gone
    return "\n".join(rows) + "\n", "\n".join(stacks)


def _kernel(home: str, name: str, problems: List[str]) -> Dict[str, Any]:
    sysroot = Path(str(layout.service(home, name).get("sysroot") or "/"))
    found = kernel_log.read(KERNEL_LIMIT_S, journal=sysroot == Path("/"), kmsg=str(sysroot / "dev/kmsg"))
    if not found["readable"]:
        problems.append(f"the kernel log: {found['why']}")
    return classify("\n".join(found["lines"]))
