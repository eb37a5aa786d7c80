"""nvidia-smi: what the arguments ask for, messages in place of an answer, -L, topo, reset, persistence mode."""

from __future__ import annotations

import os
import sys

from simulators import cards as cards_of
from simulators import faults, holders, nvidia_csv, nvidia_log, nvidia_table
from simulators.state import Sim

NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
NOTHING = "No devices were found\n"
IN_USE = (
    "\n1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
    "application such as an X server, or a monitoring application such as another instance of nvidia-smi). Please first kill all "
    "processes using this device and all compute applications running in the system.\n"
)
BAD_CALL = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
FLAGS = {
    "-L": "list", "--list-gpus": "list", "-q": "query", "--query": "query", "-a": "query", "-x": "xml", "--xml-format": "xml",
    "--gpu-reset": "reset", "-r": "reset", "--version": "version", "topo": "topo", "-m": "matrix", "--matrix": "matrix",
}  # fmt: skip
VALUES = {
    "-i": "id", "--id": "id", "--format": "format", "--query-gpu": "gpu", "--query-compute-apps": "apps",
    "-pm": "persistence", "--persistence-mode": "persistence",
}  # fmt: skip


class Answer(Exception):
    """A text and an exit status that end the call."""

    def __init__(self, text, status):
        self.text, self.status = text, status


def main(arguments, root) -> int:
    """Print what the real one would, on standard output; the exit status."""
    sim = Sim(root)
    faults.before_output(sim, arguments)
    try:
        asked = _asked(arguments)
        text, status = answer(sim, asked)
    except Answer as ended:
        text, status = ended.text, ended.status
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    return status


def _asked(arguments):
    asked = {}
    waiting = list(arguments)
    while waiting:
        word, has_value, value = waiting.pop(0).partition("=")
        if word in FLAGS and not has_value:
            asked[FLAGS[word]] = True
        elif word in VALUES and (has_value or waiting):
            asked[VALUES[word]] = value if has_value else waiting.pop(0)
        else:
            raise Answer(BAD_CALL, 1)
    if ("gpu" in asked or "apps" in asked) != ("format" in asked):
        raise Answer(BAD_CALL, 1)
    return asked


def answer(sim, asked):
    """Text and exit status."""
    _library(sim)
    every = [] if sim.fault("no_devices") else cards_of.look(sim)
    if not every:
        return NOTHING, 6
    chosen = _selected(every, asked.get("id"))
    if not chosen:
        return NOTHING, 6
    if "reset" in asked:
        return _reset(sim, chosen, asked)
    if "persistence" in asked:
        return _persistence(sim, chosen, asked["persistence"])
    lines, living = _handles(chosen)
    status = 15 if lines else 0
    if not living or any(card.lost == "all" for card in chosen):
        return lines, status
    return lines + _said(sim, asked, living, len(every)), status


def _library(sim) -> None:
    """What keeps the library from starting."""
    machine = sim.machine
    if sim.fault("driver_not_loaded") or not machine["cards"]:
        raise Answer(NOT_LOADED, 9)
    if sim.fault("version_mismatch"):
        short = ".".join(str(sim.fault("version_mismatch")).split(".")[:2])
        raise Answer(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n", 18)
    if sim.fault("nvml_error"):
        raise Answer(f"Failed to initialize NVML: {sim.fault('nvml_error')}\n", 255)
    control = sim.root / "dev/nvidiactl"
    if control.exists() and not os.access(control, os.R_OK | os.W_OK):
        raise Answer("Failed to initialize NVML: Insufficient Permissions\n", 4)


def _selected(every, wanted):
    """The cards that `-i` names by index, UUID or bus id."""
    if wanted is None:
        return every
    found = []
    for one in wanted.split(","):
        short = one.lower()[-12:]
        found += [card for card in every if one in (str(card.index), card["uuid"]) or (":" in one and short == card["bus_id"])]
    return found


def _handles(chosen):
    """Lines about cards that are lost, and the cards that answer."""
    lines = ""
    living = []
    for card in chosen:
        if card.lost in (None, "fields"):
            living.append(card)
            continue
        reason = "Unknown Error" if card.lost == "unknown_error" else "GPU is lost.  Reboot the system to recover this GPU"
        lines += f"Unable to determine the device handle for GPU{card['bus_id'].upper()}: {reason}\n"
    return lines, living


def _said(sim, asked, cards, count) -> str:
    machine, is_blank = sim.machine, bool(sim.fault("process_list_blank"))
    if "gpu" in asked or "apps" in asked:
        return _csv(machine, asked, cards, count, is_blank)
    if "list" in asked:
        return "".join(f"GPU {card.index}: {card.broken('name') or card['name']} (UUID: {card['uuid']})\n" for card in cards)
    if "version" in asked:
        driver = machine["driver"]
        short = ".".join(driver.split(".")[:2])
        return f"""\
NVIDIA-SMI version  : {driver}
NVML version        : {short}
DRIVER version      : {driver}
CUDA Version        : {machine["cuda"]}
"""
    if "topo" in asked:
        return _topology(machine, cards)
    if "query" in asked:
        write = nvidia_log.xml if "xml" in asked else nvidia_log.text
        return write(machine, cards, count, is_blank)
    return nvidia_table.table(machine, cards, is_blank)


def _csv(machine, asked, cards, count, is_blank) -> str:
    options = asked["format"].split(",")
    if options[0] != "csv":
        raise Answer(BAD_CALL, 1)
    try:
        if "gpu" in asked:
            return nvidia_csv.gpus(machine, cards, count, _fields(asked["gpu"]), options)
        return nvidia_csv.apps(cards, _fields(asked["apps"]), options, is_blank)
    except nvidia_csv.UnknownFieldError as unknown:
        raise Answer(f'Field "{unknown}" is not a valid field to query.\n\n', 2) from None


def _fields(text):
    return [field.strip() for field in text.split(",")]


def _topology(machine, cards) -> str:
    names = [f"GPU{card.index}" for card in cards]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for one in cards:
        row = [_link(one, other) for other in cards]
        lines.append("\t".join([f"GPU{one.index}", *row, machine["cpus"][str(one["numa"])], str(one["numa"]), "", "N/A"]))
    return "\n".join(lines) + "\n" + LEGEND


def _link(one, other) -> str:
    if one is other:
        return " X "
    if one["bridge"] == other["bridge"]:
        return "PHB"
    return "NODE" if one["numa"] == other["numa"] else "SYS"


def _reset(sim, chosen, asked):
    """Reset the cards, or say why not. What holds one of them is asked of /proc, as everywhere."""
    done, refused, sums, status = [], [], "", 0
    for card in chosen:
        bus_id = "0000" + card["bus_id"].upper()
        reason = _refusal(sim, card)
        if reason == "primary_gpu":
            return f"GPU Reset couldn't run because GPU {bus_id} is the primary GPU.\n", 3
        if reason is None:
            done.append(f"GPU {bus_id} was successfully reset.\n")
            if not card.faults.get("reset_useless"):
                _make_new(sim, card)
        else:
            text, status = reason
            refused.append(f"  GPU {bus_id}: {text}\n")
            sums = IN_USE if text.startswith("In use") else sums
    if refused:
        return "\nThe following GPUs could not be reset:\n" + "".join(refused) + sums, status
    return "".join(done) + "All done.\n", 0


def _refusal(sim, card):
    """None when the card may be reset; else the text and exit status, or `primary_gpu`."""
    if os.geteuid() != 0:
        return "Insufficient Permissions", 4
    if card.lost:
        return "GPU is lost", 15
    said = card.faults.get("reset_refused")
    if said == "primary_gpu":
        return said
    if said == "not_supported":
        return "Not Supported", 3
    held = holders.find({0: str(sim.root / card.files[-1])})[0]
    if said or held or card.persistence:
        return "In use by another client", 255
    return None


def _make_new(sim, card) -> None:
    """What a reset clears."""
    with sim.change() as state:
        own = state["cards"][card.number]
        for name in ("memory_stays", "needs_reset", "field_error", "late_release", "util_na"):
            own["faults"].pop(name, None)
        own["util"] = 0


def _persistence(sim, chosen, wanted):
    if os.geteuid() != 0:
        bus_id = "0000" + chosen[0]["bus_id"].upper()
        return f"Unable to set persistence mode for GPU {bus_id}: Insufficient Permissions\n", 4
    is_on = wanted in ("1", "ENABLED")
    with sim.change() as state:
        for card in chosen:
            state["cards"][card.number]["persistence"] = is_on
    word = "Enabled" if is_on else "Disabled"
    return "".join(f"{word} persistence mode for GPU 0000{card['bus_id'].upper()}.\n" for card in chosen) + "All done.\n", 0
