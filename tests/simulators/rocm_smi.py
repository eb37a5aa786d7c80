"""rocm-smi of ROCm 6: the table, lines with a label, JSON, and the list of processes."""

from __future__ import annotations

import json

from simulators import holders, smi_options
from simulators.hy_smi import gpu_id

WIDTH = 90
TITLE = " ROCm System Management Interface "
END = " End of ROCm SMI Log "
MIB = 1048576
SECTIONS = {
    "--showid": "ID", "--showproductname": "Product Info", "--showdriverversion": "Version of System Component",
    "--showserial": "Serial Number", "--showuniqueid": "Unique ID", "--showpower": "Power Consumption",
    "--showtemp": "Temperature", "--showuse": "% time GPU is busy", "--showmemuse": "Current Memory Use",
    "--showmeminfo": "Memory Usage (Bytes)", "--showbus": "PCI Bus ID", "--showpids": "KFD Processes",
    "--showpidgpus": "GPUs Indexed by PID",
}  # fmt: skip
#: Sections that give no key of a card.
NO_KEYS = ("--showdriverversion", "--showpids", "--showpidgpus")
HEADER = (
    ("Device", "Node", "IDs", "Temp", "Power", "Partitions", "SCLK", "MCLK", "Fan", "Perf", "PwrCap", "VRAM%", "GPU%"),
    ("", "", "(DID,     GUID)", "(Junction)", "(Socket)", "(Mem, Compute, ID)", "", "", "", "", "", "", ""),
)


def main(arguments, root) -> int:
    """Print what the real one would; the exit status."""
    return smi_options.run(arguments, root, SECTIONS, answer)


def answer(sim, asked, cards):
    """What goes to standard output, and what to standard error."""
    if sim.fault("driver_not_loaded"):
        return "", "ERROR:root:Driver not initialized (amdgpu not found in modules)\n"
    if asked.json:
        return _json(sim, asked, cards), ""
    if not asked.shown:
        return _table(sim, cards), ""
    body = ""
    for option in (option for option in SECTIONS if option in asked.shown):
        body += _ruled(f" {SECTIONS[option]} ", WIDTH) + _section(sim, option, cards) + "=" * WIDTH + "\n"
    return "\n\n" + _ruled(TITLE, WIDTH) + body + _ruled(END, WIDTH), ""


def _ruled(text, width) -> str:
    return f"{text:=^{width}}\n"


def _section(sim, option, cards) -> str:
    if option == "--showdriverversion":
        return f"Driver version: {sim.machine['driver']}\n"
    if option == "--showpids":
        return _pids(sim, cards)
    if option == "--showpidgpus":
        return _pid_gpus(sim, cards)
    text = ""
    for card in cards:
        gap = ": \t\t" if option in ("--showproductname", "--showid") else ": "
        text += "".join(f"GPU[{card.index}]\t\t: {key}{gap}{value}\n" for key, value in fields(option, card).items())
    return text


def fields(option, card):
    """Keys and values that an option gives for a card."""
    heat = zip(("junction", "memory"), (0, 4))
    return {
        "--showid": {"Device Name": card["name"], "Device ID": "0x" + card["device"], "GUID": gpu_id(card["bus_id"])},
        "--showproductname": {
            "Card Series": card["name"],
            "Card Model": "0x" + card["device"],
            "Card Vendor": card["maker"],
            "Card SKU": card["sku"],
            "GFX Version": "gfx942",
        },
        "--showserial": {"Serial Number": card["serial"]},
        "--showuniqueid": {"Unique ID": "0x" + card["uuid"]},
        "--showpower": {"Current Socket Graphics Package Power (W)": f"{card.power:.1f}"},
        "--showtemp": {f"Temperature (Sensor {name}) (C)": f"{card.temperature + more:.1f}" for name, more in heat},
        "--showuse": {"GPU use (%)": card.broken("util") or str(int(card.util))},
        "--showmemuse": {"GPU Memory Allocated (VRAM%)": str(card.percent), "GPU Memory Read/Write Activity (%)": "0"},
        "--showmeminfo": {
            "VRAM Total Memory (B)": str(card["total_mib"] * MIB),
            "VRAM Total Used Memory (B)": str(card.used * MIB),
        },
        "--showbus": {"PCI Bus": card["bus_id"].upper()},
    }[option]


def _json(sim, asked, cards) -> str:
    options = [option for option in SECTIONS if option in asked.shown and option not in NO_KEYS]
    found = {}
    for card in cards if options else ():
        found[f"card{card.index}"] = {key: value for option in options for key, value in fields(option, card).items()}
    system = {}
    if "--showdriverversion" in asked.shown:
        system["Driver version"] = sim.machine["driver"]
    if "--showpids" in asked.shown:
        for pid, used in smi_options.processes(sim, cards).items():
            size = sum(mib for _, mib in used) * MIB
            system[f"PID{pid}"] = f"{_name(used, pid)}, {len(used)}, {size}, 0, 0"
    if system:
        found["system"] = system
    return json.dumps(found) + "\n"


def _pids(sim, cards) -> str:
    found = smi_options.processes(sim, cards)
    if not found:
        return "No KFD PIDs currently running\n"
    rows = [("PID", "PROCESS NAME", "GPU(s)", "VRAM USED", "SDMA USED", "CU OCCUPANCY")]
    for pid, used in found.items():
        size = sum(mib for _, mib in used) * MIB
        rows.append((str(pid), _name(used, pid), str(len(used)), str(size), "0", "0"))
    return "KFD process information:\n" + "".join(line + "\n" for line in _aligned(rows, "\t"))


def _pid_gpus(sim, cards) -> str:
    text = ""
    for pid, used in smi_options.processes(sim, cards).items():
        text += f"PID {pid} is using {len(used)} DRM device(s){':' if used else ''}\n"
        text += "".join(f"{card.index} \n" for card, _ in used)
    return text or "No KFD PIDs currently running\n"


def _name(used, pid) -> str:
    """The name as the tool prints it: without folders, 15 characters."""
    said = next((name for card, _ in used for one, name, _ in card.processes if one == pid), "") or holders.name(pid)
    return said.rpartition("/")[2][:15] or "UNKNOWN"


def _table(sim, cards) -> str:
    rows = list(HEADER)
    for card in cards:
        use = card.broken("util") or f"{int(card.util)}%"
        ids = f"0x{card['device']},   {gpu_id(card['bus_id'])}"
        row = [card.index, sim.machine["cpu_nodes"] + card.number, ids, f"{card.temperature:.1f}°C", f"{card.power:.1f}W"]
        row += ["NPS1, SPX, 0", "133Mhz", "900Mhz", "0%", "auto", f"{card['power_limit']:.1f}W", f"{card.percent}%", use]
        rows.append(tuple(str(cell) for cell in row))
    lines = _aligned(rows, "  ")
    width = len(lines[0])
    parts = [_ruled(TITLE, width), _ruled(" Concise Info ", width), *(f"{line}\n" for line in lines[:2]), "=" * width + "\n"]
    return "\n\n" + "".join([*parts, *(f"{line}\n" for line in lines[2:]), "=" * width + "\n", _ruled(END, width)])


def _aligned(rows, between):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [between.join(f"{cell:<{width}}" for cell, width in zip(row, widths)) + between for row in rows]
