"""What a stop could not solve, for the person who has to: facts, what was tried, the choices with their side effects.

Nothing here is ever run. `needs_admin.json` in the service's folder stays until a look at the host shows that it is over.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.process import evidence, layout, proc

FILE = "needs_admin.json"
REASON = "needs_admin"
Record = Dict[str, Any]
#: What a refused reset of a card means. nvidia-smi's words; others were not found published.
REFUSALS = (
    ("In use by another client", "somebody has the card open: a job, a monitor, or the persistence mode (nvidia-smi -pm 0)"),
    ("Not Supported", "this card cannot be reset alone: only the driver's reload or a reboot is left"),
    ("primary GPU", "it draws the screen: end the display first"),
    ("Insufficient Permissions", "only root may"),
)


def path(home: str, service: str) -> Path:
    """The file that says that a person is needed."""
    return layout.service_dir(home, service) / FILE


def record(facts: Mapping[str, Any], report: str) -> Record:
    """What needs_admin.json holds: enough to see later whether it is over."""
    cards = [card for card in facts["cards"] if card["verdict"] in ("held", "silent")]
    keys = ("backend", "index", "uuid", "bus_id", "idle_mib", "used_mib", "what")
    return {
        "schema": 1,
        "at": facts["at"],
        "boot": facts["boot"],
        "service": facts["service"],
        "instances": list(facts["instances"]),
        "why": list(facts["why"]),
        "processes": [{key: p[key] for key in ("pid", "start", "comm", "state")} for p in facts["processes"]],
        "cards": [{key: card[key] for key in keys} for card in cards],
        "report": report,
    }


def left_of(known: Mapping[str, Any]) -> List[Tuple[int, int]]:
    """(pid, start) of those processes in a needs_admin.json that have not ended; none of another boot are there."""
    if known.get("boot") not in (None, "", proc.boot_id()):
        return []
    found = [(entry.get("pid"), entry.get("start")) for entry in dicts(known.get("processes"))]
    whole = [(pid, start) for pid, start in found if isinstance(pid, int) and isinstance(start, int)]
    return [(pid, start) for pid, start in whole if proc.alive(pid, start)]


def numbers(value: Any) -> List[int]:
    """The numbers of a list; people may have edited the file."""
    return [entry for entry in value if isinstance(entry, int)] if isinstance(value, list) else []


def dicts(value: Any) -> List[Record]:
    """The objects of a list; people may have edited the file."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def choice(do: str, effect: str, *commands: str) -> Record:
    """One way out, its side effects, and lines to copy."""
    return {"do": do, "effect": effect, "commands": list(commands)}


def choices(facts: Mapping[str, Any]) -> List[Record]:
    """The ways out, the gentlest first."""
    found = [
        choice(
            "Look again in a minute: memory can come back late, and a call into a driver can end.",
            "none",
            f"ansible-playbook -i INVENTORY playbooks/teardown.yml -e teardown_service={facts['service']}",
        )
    ]
    stuck = [p for p in facts["processes"] if p["state"] in "DRZ"]
    if stuck:
        pids = " ".join(str(p["pid"]) for p in stuck)
        found.append(
            choice(
                "Save where they hang and the kernel's log: everything after this step destroys it.",
                "none",
                f"for p in {pids}; do sudo grep -H . /proc/$p/task/*/stack /proc/$p/task/*/wchan; done > stacks.txt",
                "sudo dmesg -T > dmesg.txt",
            )
        )
    if facts["others"]:
        who = "; ".join(_words(p) for p in facts["others"])
        found.append(choice(f"Ask the owners of what else is on these cards: {who}.", "none; they are left alone by Modelyard"))
    found += _of_parents(facts)
    if any(p["state"] in "Tt" for p in facts["processes"]):
        found.append(choice("See who traces or has stopped the processes in state T.", "none", "grep TracerPid /proc/PID/status"))
    cards = [card for card in facts["cards"] if card["verdict"] in ("held", "silent")]
    if cards:
        numbers = ", ".join(str(card["index"]) for card in cards)
        found.append(choice(f"Serve from other cards than {numbers} meanwhile (cards: of the service).", "less room for models"))
        found += _of_cards(cards, facts)
    if cards or stuck:
        who = ", ".join(f"{user} ({count})" for user, count in sorted(facts["users"].items())) or "nobody else seen"
        found.append(
            choice(
                f"Reboot, after asking everybody with processes here: {who}.",
                "ends all work on this host; can hang at a process that is stuck in a driver: have somebody at the console",
                "sudo systemctl reboot",
            )
        )
    return found


def _of_parents(facts: Mapping[str, Any]) -> List[Record]:
    found = []
    for parent in facts["parents"]:
        pids = ", ".join(map(str, parent["children"]))
        found.append(
            choice(
                f"{pids} ended and wait for their parent {_words(parent)} to read it: its owner lets it end.",
                "ends that program",
                f"kill -TERM {parent['pid']}",
            )
        )
    return found


def _of_cards(cards: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> List[Record]:
    found = []
    entry, users = facts["entry"], "; ".join(_words(p) for p in facts["on_devices"]) or "nobody else seen"
    if entry.get("reset"):
        lines = [f"sudo {shlex.join(word.format(index=card['index']) for word in entry['reset'])}" for card in cards]
        refusals = "; ".join(f'"{words}": {meaning}' for words, meaning in REFUSALS) if facts["backend"] == "nvidia" else ""
        found.append(
            choice(
                "Reset the cards, when nobody uses them."
                + (" With links between cards (NVLink, Infinity Fabric) all linked ones are reset together." if cards else ""),
                f"ends whatever runs on them; on cards of this kind now: {users}"
                + (f". Refusals: {refusals}" if refusals else ""),
                *lines,
            )
        )
    modules = entry.get("reload") or entry.get("modules") or []
    if modules:
        found.append(
            choice(
                "Reload the driver. Stop the cards' monitors and persistence daemons first: a module in use stays.",
                f"every program on every card of this kind loses it: {users}",
                f"sudo modprobe -r {shlex.join(modules)}",
                f"sudo modprobe {shlex.join(modules[-1:])}",
            )
        )
    return found


def _words(process: Mapping[str, Any]) -> str:
    more = [f"unit {process['unit']}"] if process.get("unit") else []
    more += [f"container {process['container']}"] if process.get("container") else []
    command = str(process.get("command") or process.get("comm") or "?")[:120]
    return f"pid {process['pid']} of user {process['user']} ({'; '.join([command, *more])})"


def text(facts: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [f"{facts['service']} on {facts['host']} needs an admin ({facts['at']})", ""]
    lines += [f"- {why}" for why in facts["why"]]
    lines += ["", "Processes that are left"]
    for p in facts["processes"]:
        lines.append(f"  {_words(p)}: state {p['state']}, parent {p['ppid']}, started at tick {p['start']}, signs {p['signs']}")
        lines.append(
            f"    has open: {', '.join(p['devices']) if p['devices'] else 'no card' if p['devices'] == [] else 'not readable'}"
        )
        lines += [f"    thread {t['tid']} {t['comm']}: state {t['state']}" for t in p["threads"]]
        shown = "not readable (root only)" if p["stack"] is None and p["state"] in "DR" else " < ".join(p["stack"] or []) or "-"
        lines.append(f"    in the kernel: {shown}")
    lines += [f"  {z['pid']} [{z['comm']}] has ended, its parent {z['ppid']} has not read it" for z in facts["zombies"]]
    lines += [] if facts["processes"] or facts["zombies"] else ["  none"]
    lines += ["", "Cards"]
    lines += [f"  {c['card']}: {c['what']} -> {c['verdict']}" for c in facts["cards"]] or ["  none was watched"]
    lines += [f"  on them, not ours, left alone: {_words(p)}" for p in facts["others"]]
    lines += [
        "",
        "What was tried",
        *(f"  {at:7.1f} s  {words}" for at, words in facts["actions"]),
        "",
        "Choices, the gentlest first",
    ]
    for number, one in enumerate(choices(facts), 1):
        lines += [f"  {number}. {one['do']}", f"     side effects: {one['effect']}", *(f"       {c}" for c in one["commands"])]
    lines += [
        "",
        "Then look again: playbooks/preflight.yml. The next deploy refuses (PF-NEEDS-ADMIN) until these processes are gone and",
        f"the memory is back, and then removes {facts['file']} itself. If you know better, remove that file.",
    ]
    return "\n".join(lines) + "\n"


def write(home: str, service: str, facts: Mapping[str, Any]) -> Tuple[str, List[str]]:
    """Write report and needs_admin.json; (folder of the report, what could not be written). Never raises: a disk may be full."""
    documents = {
        "report.txt": text(facts),
        "report.json": json.dumps({**facts, "choices": choices(facts)}, indent=1, sort_keys=True, default=str) + "\n",
    }
    folder, problems = evidence.keep(home, service, REASON, documents)
    try:
        layout.write_json(path(home, service), record(facts, str(folder)))
    except OSError as exc:
        problems.append(str(exc))
    return str(folder), problems


def stamp() -> str:
    """Now, in words that sort."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def users(table: Mapping[int, proc.Process]) -> Dict[str, int]:
    """Users of people with processes on this host, and how many."""
    counts: Dict[str, int] = {}
    for process in table.values():
        if process.uid >= 1000 and process.uid != 65534:
            counts[proc.user_name(process.uid)] = counts.get(proc.user_name(process.uid), 0) + 1
    return counts
