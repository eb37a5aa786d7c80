"""`nvidia-smi -q -x` and, from the same text, `nvidia-smi -q`."""

from __future__ import annotations

import re
import time

from simulators.nvidia_template import GPU, PROCESS

DEPRECATED = "Requested functionality has been deprecated"
HEAD = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
"""

_PARTS = re.compile(r"<(\w+)> (\w+=.*)")
_PART = re.compile(r" ?(\w+)=(.*?)(?= \w+=|$)")
_LEAF = re.compile(r"<(\w+)>(.*)</\w+>")
_WORDS = {
    **{word: word.upper() for word in ("gpu", "uuid", "pci", "ecc", "mig", "sram", "dram", "id", "gsp", "sm", "oem", "pdi")},
    **{"fb": "FB", "bar1": "BAR1", "vbios": "VBIOS", "pcie": "PCIe", "multigpu": "MultiGPU", "util": "Util", "pid": "Process ID"},
    **{"sw": "SW", "hw": "HW", "cc": "CC", "c2c": "C2C", "vgpu": "vGPU"},
}
_LABELS = {
    "tx_util": "Tx Throughput", "rx_util": "Rx Throughput", "gpu_util": "GPU",
    "memory_util": "Memory", "encoder_util": "Encoder", "decoder_util": "Decoder", "uuid": "GPU UUID",
    "serial": "Serial Number", "gpu_temp": "GPU Current Temp", "minor_number": "Minor Number", "used_memory": "Used GPU Memory",
    "process_name": "Name", "pci_bus_id": "Bus Id", "pci_bus": "Bus", "pci_device": "Device", "pci_domain": "Domain",
    "current_mig": "Current", "pending_mig": "Pending", "current_ecc": "Current", "pending_ecc": "Pending",
}  # fmt: skip


def xml(machine, cards, count, is_blank) -> str:
    """The whole log. `count`: the cards attached, shown or not; `is_blank`: nobody can say which processes run."""
    driver = machine["driver"]
    body = [
        f"<timestamp>{_now()}</timestamp>",
        f"<driver_version>{driver}</driver_version>",
        f"<cuda_version>{machine['cuda']}</cuda_version>",
        f"<attached_gpus>{count}</attached_gpus>",
    ]
    for card in cards:
        body += [*GPU.format(**values(card, driver, is_blank)).strip().split("\n"), ""]
    return HEAD + "\n".join(_indented(body)) + "\n</nvidia_smi_log>\n"


def text(machine, cards, count, is_blank) -> str:
    """The same for people: `nvidia-smi -q`."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        *_pairs(0, [("Timestamp", _now()), ("Driver Version", machine["driver"]), ("CUDA Version", machine["cuda"])]),
        "",
        *_pairs(0, [("Attached GPUs", count)]),
    ]
    for card in cards:
        for line in _indented(GPU.format(**values(card, machine["driver"], is_blank)).strip().split("\n")):
            lines += _plain(line.strip(), line.count("\t") - 1)
        lines.append("")
    return "\n".join(lines) + "\n"


def values(card, driver, is_blank):
    """What the template needs, of one card."""
    domain, bus, slot = card["bus_id"].upper().split(":")
    ecc = card.faults.get("ecc")

    def said(field, value):
        return card.broken(field) or value

    if is_blank:
        processes = "N/A</processes>"
    else:
        rows = (PROCESS.format(pid, _escaped(name), mib) for pid, name, mib in card.processes)
        processes = "".join(rows) + "\n</processes>"
    ecc_mode = said("ecc", "N/A" if ecc is None else "Enabled")
    return {
        **{"deprecated": DEPRECATED, "id": f"0000{domain}:{bus}:{slot}", "name": said("name", card["name"]), "driver": driver},
        **{key: card[key] for key in ("brand", "architecture", "uuid", "minor", "vbios")},
        "persistence": "Enabled" if card.persistence else "Disabled",
        "board": f"0x{int(bus, 16) << 8:x}",
        **{"bus": bus, "slot": slot.split(".", 1)[0], "domain": domain},
        "device": f"{card['device']}10DE".upper(),
        "subsystem": card["subsystem"].upper(),
        "recovery": "Reset" if "needs_reset" in card.faults else "None",
        "fan": said("fan", "30 %"),
        "perf": said("perf", "P2" if card.util else "P8"),
        "idle": "Not Active" if card.util else "Active",
        **{key: said("memory", f"{value} MiB") for key, value in memory(card).items()},
        "util": said("util", f"{card.util} %"),
        "memory_util": said("util", f"{int(card.util) // 3} %"),
        **{"ecc": ecc_mode, "ecc_none": "N/A" if ecc is None else 0, "ecc_count": "N/A" if ecc is None else ecc},
        **{"remapped": 0 if ecc is None else 1, "remap_pending": "No" if ecc is None else "Yes"},
        "temp": said("temp", f"{card.temperature} C"),
        "temp_left": said("temp", f"{90 - card.temperature} C"),
        "power": said("power", f"{card.power:.2f} W"),
        "power_limit": said("power", f"{card['power_limit']:.2f} W"),
        "clock": said("perf", "2520 MHz" if card.util else "210 MHz"),
        "processes": processes,
    }


def memory(card):
    """total, reserved, used, free in MiB."""
    return {"total": card["total_mib"], "reserved": card["reserved_mib"], "used": card.used, "free": card.free}


def _now() -> str:
    return " ".join(time.ctime().split())


def _escaped(name) -> str:
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def _indented(lines):
    depth = 1
    for line in lines:
        parts = _PARTS.fullmatch(line)
        if parts:
            yield "\t" * depth + f"<{parts.group(1)}>"
            for name, value in _PART.findall(parts.group(2)):
                yield "\t" * (depth + 1) + f"<{name}>{value}</{name}>"
            yield "\t" * depth + f"</{parts.group(1)}>"
        elif line == "<mig_devices>None</mig_devices>":
            yield from ("\t" * depth + "<mig_devices>", "\t" * (depth + 1) + "None", "\t" * depth + "</mig_devices>")
        else:
            depth -= line.startswith("</")
            yield "\t" * depth + line if line else ""
            depth += line.startswith("<") and "</" not in line


def _plain(line, depth):
    leaf = _LEAF.fullmatch(line)
    if leaf and leaf.group(1) not in ("mig_devices", "gpu_instance_id", "compute_instance_id"):
        yield from _pairs(depth, [(_label(leaf.group(1)), leaf.group(2).replace("&lt;", "<").replace("&gt;", ">"))])
    elif line.startswith("<gpu id="):
        yield "GPU " + line.split('"')[1]
    elif line.startswith("<") and not line.startswith("</") and "mig_devices" not in line and "process_info" not in line:
        yield "    " * depth + _label(line.strip("<>"))


def _pairs(depth, pairs):
    for label, value in pairs:
        yield f"{'    ' * depth + label:<42}: {value}"


def _label(tag) -> str:
    words = (_WORDS.get(word, word.capitalize()) for word in tag.split("_"))
    return _LABELS.get(tag) or " ".join(word for word in words if word)
