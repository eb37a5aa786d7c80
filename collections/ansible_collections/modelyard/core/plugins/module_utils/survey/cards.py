"""The cards of a host: what its vendors' tools, the PCI bus, the driver and the device files say, for each backend.

A tool is asked only where there is a trace of its cards, and each under a limit. How texts become cards is in card_records.py.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey import card_records, device_files, driver, pci, tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.card_records import Reading, Record

#: What is read of a tool: the XML of 16 cards with MIG devices is larger than what the survey keeps of it.
READ_BYTES = 4 * 2**20
#: How often a list of processes is asked for: hy-smi can crash when two ask at the same time.
TRIES = 3
WSL_DEVICE = "/dev/dxg"
_MINOR = re.compile(r"Device Minor\s*:\s*([0-9]+)")


class Answers(NamedTuple):
    """What a backend's tool said, and the account of asking it."""

    reading: Reading
    tool: Record
    raw: List[Record]
    links: Dict[str, str] = {}


def look(
    backends: Mapping[str, Mapping[str, Any]], sysroot: str, holders_of: Callable[[Sequence[str]], Dict[str, List[int]]]
) -> Tuple[Dict[str, List[Record]], Dict[str, Record], List[Record]]:
    """Cards and accelerators by backend, and the outputs of the tools as they came.

    `backends` are entries of plan/data/backends.yml; those without `vendor` have no cards of their own. A backend of which there
    is no trace (a PCI function, a kernel module, its tool) is left out. `holders_of` gives for device files (without the
    sysroot) the processes that have them open; it is asked once, and not at all when there is nothing to ask.
    """
    entries = {name: entry for name, entry in backends.items() if "vendor" in entry}
    on_bus = pci.functions(sysroot, {entry["vendor"] for entry in entries.values()})
    cards: Dict[str, List[Record]] = {}
    accelerators: Dict[str, Record] = {}
    raw: List[Record] = []
    for name, entry in entries.items():
        program = _program(entry, sysroot)
        other = entries.get(entry.get("tool_also_of", ""))
        if not _is_there(entry, on_bus, sysroot) and (not program or (other and _is_there(other, on_bus, sysroot))):
            continue
        cards[name], accelerators[name], said = _backend(entry, on_bus, sysroot, program)
        raw += said
    _add_holders(cards, accelerators, holders_of)
    return cards, accelerators, raw


def usage(entry: Mapping[str, Any], sysroot: str) -> List[Record]:
    """The cards of one backend as its tool lists them just now: one question, no processes, no look at the bus.

    Empty where the tool is missing, hangs or says nothing usable. For looking again and again beside a working engine.
    """
    program = _program(entry, sysroot)
    if not program:
        return []
    output = _Queries(entry, program).ask("cards")
    return [] if output["timed_out"] else _read_cards(entry["tool"], output).cards


def _program(entry: Mapping[str, Any], sysroot: str) -> str:
    """Path of the backend's tool. With a sysroot its own comes first, then PATH: the host's may speak of other cards."""
    places: List[str] = entry["tool_places"]
    path = os.environ.get("PATH", "")
    if sysroot in ("", "/"):
        return tool.find(entry["tool"], places, path)
    return tool.find(entry["tool"], [device_files.below(sysroot, place) for place in places], ":".join([path, *places]))


def _mine(entry: Mapping[str, Any], on_bus: Sequence[Record]) -> List[Record]:
    return [f for f in on_bus if f["vendor"] == entry["vendor"] and f["class"] in entry["classes"]]


def _is_there(entry: Mapping[str, Any], on_bus: Sequence[Record], sysroot: str) -> bool:
    """Is there a card on the bus, or the driver in the kernel?"""
    loaded = (os.path.isdir(device_files.below(sysroot, f"/sys/module/{name}")) for name in entry["modules"])
    return bool(_mine(entry, on_bus)) or any(loaded)


def _backend(
    entry: Mapping[str, Any], on_bus: Sequence[Record], sysroot: str, program: str
) -> Tuple[List[Record], Record, List[Record]]:
    mine = _mine(entry, on_bus)
    answers = _ask(entry, program, mine)
    others = [f["bus_id"] for f in on_bus if f["vendor"] != entry["vendor"]]
    cards, errors = card_records.merge(answers.reading, mine, others)
    versions = driver.versions(entry, sysroot, os.uname().release)
    nodes = pci.drm(sysroot) if "{card}" in "".join(entry["card_files"]) else {}
    for card in cards:
        _add_files(card, entry, nodes.get(card["bus_id"], {}), sysroot)
        card["driver_version"] = card["driver_version"] or versions["loaded"]
    shared = entry["shared_files"]
    if not mine and os.path.exists(device_files.below(sysroot, WSL_DEVICE)):
        shared = entry.get("wsl_files", shared)
    accelerator = {
        "tool": answers.tool,
        "driver": versions,
        "on_bus": mine,
        "errors": errors,
        "links": answers.links,
        "process_list": answers.reading.process_list,
        "unplaced_processes": answers.reading.unplaced,
        "shared_files": [device_files.look(path, sysroot) for path in shared],
        "shared_holders": [],
    }
    return cards, accelerator, answers.raw


def _ask(entry: Mapping[str, Any], program: str, mine: Sequence[Record]) -> Answers:
    """Ask the backend's tool for its cards and their processes. Of one that hangs no more is asked."""
    account: Record = {"path": program, "state": "missing", "seconds": 0.0, "said": ""}
    if not program:
        account["said"] = f"there is no {entry['tool']} in {', '.join(entry['tool_places'])} nor on the PATH"
        return Answers(card_records.NOTHING, account, [])
    queries = _Queries(entry, program)
    output = queries.ask("cards")
    reading = _read_cards(entry["tool"], output)
    account["state"], account["said"] = card_records.judge(output, reading, mine)
    if account["state"] == "hangs":
        # Cards that it listed before it hung prove nothing; what it complained of does.
        told = [error for error in reading.errors if error["kind"] not in card_records.BROKEN]
        reading = card_records.NOTHING._replace(errors=told)
    elif entry["tool"] == "nvidia-smi":
        if card_records.needs_indexes(reading):
            reading = card_records.with_indexes(reading, _text(queries.ask("indexes")))
    elif account["state"] == "ok" and reading.cards:
        reading = _add_processes(entry["tool"], queries, reading)
    links = _links(queries) if account["state"] == "ok" and len(reading.cards) > 1 else {}
    account["seconds"] = round(sum(said["seconds"] for said in queries.raw), 3)
    return Answers(reading, account, queries.raw, links)


def _links(queries: _Queries) -> Dict[str, str]:
    """How pairs of cards are connected, by their numbers: {"0-1": "PIX"}; empty where nobody asks for it or nothing is told."""
    if "topo" not in queries.entry["queries"]:
        return {}
    from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import topo, values  # noqa: PLC0415

    pairs: Dict[str, str] = topo.read(values.clean(_text(queries.ask("topo"))))["topology"]["pairs"]
    return pairs


class _Queries:
    """The questions to one tool; `raw` is what it answered."""

    def __init__(self, entry: Mapping[str, Any], program: str) -> None:
        self.entry = entry
        self.program = program
        self.raw: List[Record] = []

    def ask(self, name: str) -> Record:
        """Run one of the backend's queries."""
        output = tool.run([self.program, *self.entry["queries"][name]], self.entry["tool_limit_s"], keep=READ_BYTES)
        self.raw.append(tool.cut(output))
        return output


def _text(output: Mapping[str, Any]) -> str:
    """Both outputs: which one a message goes to is no rule."""
    return "\n".join(part for part in (output["stdout"], output["stderr"]) if part)


def _read_cards(name: str, output: Mapping[str, Any]) -> Reading:
    if name == "nvidia-smi":
        return card_records.nvidia(_text(output))
    return card_records.rocm(name, _text(output), " ".join(output["argv"]))


def _add_processes(name: str, queries: _Queries, reading: Reading) -> Reading:
    """Ask for the processes; a few times, when what comes is no whole list."""
    known = reading
    for _ in range(TRIES):
        output = queries.ask("processes")
        if output["timed_out"]:
            break
        crashed = output["rc"] is None or not 0 <= output["rc"] < 128  # above: the shell's number for a signal
        known, again = card_records.rocm_processes(reading, name, _text(output), " ".join(output["argv"]), crashed)
        if not again:
            break
    return known


def _add_files(card: Record, entry: Mapping[str, Any], node: Mapping[str, int], sysroot: str) -> None:
    """The card's minor number, and its device files as far as their names are known."""
    if card["minor"] is None:
        card["minor"] = node.get("card", _minor(card["bus_id"], sysroot))
    known = {"minor": card["minor"], **node}
    for template in entry["card_files"]:
        try:
            path = template.format(**{key: value for key, value in known.items() if value is not None})
        except KeyError:
            continue
        card["device_files"].append(device_files.look(path, sysroot))


def _minor(bus_id: str, sysroot: str) -> Optional[int]:
    """The number that NVIDIA's driver gives a card, also when nvidia-smi does not answer."""
    said = _MINOR.search(pci.read(device_files.below(sysroot, f"/proc/driver/nvidia/gpus/{bus_id}/information")))
    return int(said.group(1)) if bus_id and said else None


def _add_holders(
    cards: Mapping[str, List[Record]],
    accelerators: Mapping[str, Record],
    holders_of: Callable[[Sequence[str]], Dict[str, List[int]]],
) -> None:
    """Who has the files of a card, and those common to all cards, open. All of them are asked for at once."""
    wanted = [(card, "holders", card["device_files"]) for found in cards.values() for card in found]
    wanted += [(found, "shared_holders", found["shared_files"]) for found in accelerators.values()]
    paths = sorted({file["path"] for _, _, files in wanted for file in files})
    holders = holders_of(paths) if paths else {}
    for target, key, files in wanted:
        target[key] = sorted({pid for file in files for pid in holders.get(file["path"], [])})
