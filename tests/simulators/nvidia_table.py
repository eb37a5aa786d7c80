"""The table that plain `nvidia-smi` prints, to the column as branch 580 does."""

from __future__ import annotations

import time

RULE = "+-----------------------------------------------------------------------------------------+"
SPLIT = "+-----------------------------------------+------------------------+----------------------+"
HEADER = """\
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|"""
PROCESSES = """\
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|"""
NONE = "|  No running processes found                                                             |"
NAME_WIDTH = 27
PROCESS_WIDTH = 34


def table(machine, cards, is_blank) -> str:
    """The whole text. `is_blank`: the panel of processes has neither rows nor the words that there are none."""
    driver = machine["driver"]
    lines = [
        f"{time.ctime()}       ",
        RULE,
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA Version: {machine['cuda']:<8} |",
        SPLIT,
        HEADER,
    ]
    for card in cards:
        lines += [*rows(card), SPLIT]
    listed = [] if is_blank else [process(card.index, *row) for card in cards for row in card.processes]
    lines += [f"{' ' * len(RULE)}", RULE, PROCESSES, *(listed or ([] if is_blank else [NONE])), RULE]
    return "\n".join(lines) + "\n"


def rows(card):
    """The three rows of a card."""

    def said(field, value):
        broken = card.broken(field)
        return value if broken is None else "N/A" if broken == "N/A" else "ERR!"

    name = card["name"]
    if len(name) > NAME_WIDTH:
        name = name[: NAME_WIDTH - 3] + "..."
    mode = "On" if card.persistence else "Off"
    ecc = card.faults.get("ecc", "Off")
    bus_id = "0000" + card["bus_id"].upper()
    watts, cap = said("power", f"{card.power:.0f}W"), said("power", f"{card['power_limit']}W")
    used = said("memory", f"{card.used}MiB")
    perf = said("perf", "   P2" if card.util else "   P8")
    return [
        f"| {card.index:3d}  {said('name', name):<{NAME_WIDTH}}    {mode:<3} |   {bus_id} Off | {said('ecc', ecc):>20} |",
        f"|{said('fan', '30%'):>4}  {said('temp', f'{card.temperature}C'):>4} {perf:<5} {watts:>15} / {cap:>5} |"
        f" {used:>10} / {card['total_mib']:>6}MiB | {said('util', f'{card.util}%'):>7} {'Default':>12} |",
        f"|{'':41}|{'':24}| {said('ecc', 'N/A'):>20} |",
    ]


def process(index, pid, name, mib) -> str:
    """A row of the panel; a long name is cut at its left."""
    name = name or "[Not Found]"
    if len(name) > PROCESS_WIDTH:
        name = "..." + name[3 - PROCESS_WIDTH :]
    return f"| {index:4d}   N/A  N/A {pid:>15}      C   {name:<36}{mib:>7}MiB |"
