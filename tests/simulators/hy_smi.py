"""hy-smi of a 6.3.x driver: the table, lines with a label, JSON, and the list of processes."""

from __future__ import annotations

import json

from simulators import smi_options

#: In the order in which their answers stand.
OPTIONS = (
    "--showid", "--showproductname", "--showdriverversion", "--showserial", "--showuniqueid", "--showpower", "--showtemp",
    "--showuse", "--showmemuse", "--showmeminfo", "--showmemavailable", "--showbus", "--showpids",
)  # fmt: skip
WIDTH = 96
RULE = "=" * WIDTH
TOP = "\n================================= System Management Interface ==================================\n" + RULE + "\n"
END = "======================================== End of SMI Log ========================================\n"
COLUMNS = ("HCU", "Temp", "AvgPwr", "Perf", "PwrCap", "VRAM%", "HCU%", "Mode")
WIDTHS = (8, 9, 11, 9, 11, 11, 10, 9)
#: The key of the first of the power lines; the fault takes the commas behind the first two.
POWER = ("Average Graphics Package Power (W)", "Average GFX Core Power (W)", "Average Memory Power (W)")


def main(arguments, root) -> int:
    """Print what the real one would; the exit status."""
    return smi_options.run(arguments, root, OPTIONS, answer)


def answer(sim, asked, cards):
    """What goes to standard output, and what to standard error."""
    if sim.fault("driver_not_loaded"):
        return "", "ERROR:root:Driver not initialized (hycu not found in modules)\n"
    if not cards:
        return TOP + "Error: Dcu[0]: No DRM devices available, exiting.\n" + RULE + "\n" + END, ""
    if asked.json and "--showpids" not in asked.shown:
        return _json(sim, asked, cards), ""
    return TOP + (_lines(sim, asked, cards) if asked.shown else _table(cards)) + RULE + "\n" + END, ""


def _table(cards) -> str:
    rows = [COLUMNS]
    for card in cards:
        row = (card.index, f"{card.temperature:.1f}C", f"{card.power:.1f}W", "auto", f"{card['power_limit']:.1f}W")
        rows.append((*row, f"{card.percent}%", _use(card, "%"), "Normal"))
    return "".join("".join(f"{cell:<{width}}" for cell, width in zip(row, WIDTHS)) + "\n" for row in rows)


def _use(card, unit) -> str:
    return card.broken("util") or f"{float(card.util):.1f}{unit}"


def fields(option, card):
    """Keys and values that an option gives for a card."""
    power = (card.power, card.power * 0.6, card.power * 0.2)
    heat = zip(("edge", "junction", "mem", "core"), (0, 2, 1, 0))
    return {
        "--showid": {"Device ID": "0x" + card["device"]},
        "--showproductname": {"Card Series": card["name"], "Card Vendor": card["maker"]},
        "--showserial": {"Serial Number": card["serial"]},
        "--showuniqueid": {"Unique ID": card["uuid"]},
        "--showpower": dict(zip(POWER, (f"{watts:.1f}" for watts in power))),
        "--showtemp": {f"Temperature (Sensor {name}) (C)": f"{card.temperature + more:.1f}" for name, more in heat},
        "--showuse": {"HCU use (%)": _use(card, "")},
        "--showmemuse": {"HCU memory use (%)": str(card.percent)},
        "--showmeminfo": {"vram Total Memory (MiB)": str(card["total_mib"]), "vram Total Used Memory (MiB)": str(card.used)},
        "--showmemavailable": {"Available memory size (MiB)": str(card.free)},
        "--showbus": {"PCI Bus": f"{card['bus_id']} --> SN: {card['serial']}"},
    }[option]


def _json(sim, asked, cards) -> str:
    options = [option for option in OPTIONS if option in asked.shown and option != "--showdriverversion"]
    found = {}
    for card in cards:
        found[f"card{card.index}"] = {key: value for option in options for key, value in fields(option, card).items()}
    if "--showdriverversion" in asked.shown:
        found["system"] = {"Driver Version": sim.machine["driver"]}
    text = json.dumps(found)
    if sim.fault("missing_commas"):
        for key in POWER[1:]:
            text = text.replace(f', "{key}"', f'"{key}"')
    return text + "\n"


def _lines(sim, asked, cards) -> str:
    text = ""
    for option in (option for option in OPTIONS if option in asked.shown):
        if option == "--showdriverversion":
            text += f"Driver Version: {sim.machine['driver']}\n"
        elif option == "--showpids":
            text += _pids(sim, cards)
        else:
            gap = ":\t\t " if option == "--showproductname" else ": "
            for card in cards:
                text += "".join(f"HCU[{card.index}]\t\t: {key}{gap}{value}\n" for key, value in fields(option, card).items())
    return text


def _pids(sim, cards) -> str:
    if sim.fault("process_list_blank"):
        return "Unable to open process directory: No such file or directory\n"
    found = smi_options.processes(sim, cards)
    if not found:
        return "No KFD PIDs currently running!\n"
    text = "PIDs for KFD processes:\n\n"
    for place, (pid, used) in enumerate(found.items()):
        mib = sum(one for _, one in used)
        total = sum(card["total_mib"] for card, _ in used) or 1
        text += f"PID: {pid}\n\tPASID: {32769 + place}\n"
        text += "\tHCU Node(Include CPU sort): " + _brackets(sim.machine["cpu_nodes"] + card.number for card, _ in used)
        text += "\tHCU Index: " + _brackets(card.index for card, _ in used)
        text += "\tGPUID: " + _brackets(gpu_id(card["bus_id"]) for card, _ in used)
        text += "\tPCI BUS: " + _brackets(card["bus_id"] for card, _ in used)
        text += f"\tVRAM USED(MiB): {mib}\n\tVRAM USED(%): {round(100 * mib / total)}\n\tSDMA USED: 0\n\n"
    return text


def _brackets(values) -> str:
    return "".join(f"['{value}'] " for value in values) + "\n"


def gpu_id(bus_id) -> int:
    """The number by which KFD knows a card: the same wherever it is asked for."""
    bus, slot = bus_id.replace(".", ":").split(":")[1:3]
    return 1000 + int(bus, 16) * 251 + int(slot, 16)
