"""`--query-gpu` and `--query-compute-apps`: the usual fields, with and without header and units."""

from __future__ import annotations

import time

# Other names of fields; the header has the name at the right.
_SAME = {
    "gpu_uuid": "uuid", "gpu_name": "name", "gpu_bus_id": "pci.bus_id", "gpu_serial": "serial", "pstate": "pstate",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active", "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory",
}  # fmt: skip
_UNITS = {"memory": "MiB", "utilization": "%", "fan": "%", "power": "W", "enforced": "W", "clocks.current": "MHz"}
_APP_SAME = {"name": "process_name", "used_memory": "used_gpu_memory"}
_APP_FIELDS = ("timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid", "process_name", "used_gpu_memory")


class UnknownFieldError(Exception):
    """A field that the tool does not know."""


def gpus(machine, cards, count, fields, options) -> str:
    """One row for each card; there is at least one."""
    rows = [_card(machine, card, count) for card in cards]
    names = [_SAME.get(field, field) for field in fields]
    for field, name in zip(fields, names):
        if name not in rows[0]:
            raise UnknownFieldError(field)
    units = [_unit(name) for name in names]
    return _text(names, units, [[row[name] for name in names] for row in rows], options)


def apps(cards, fields, options, is_blank) -> str:
    """One row for each process on each card."""
    names = [_APP_SAME.get(field, field) for field in fields]
    for field, name in zip(fields, names):
        if name not in _APP_FIELDS:
            raise UnknownFieldError(field)
    rows = []
    for card in cards:
        for pid, name, mib in [] if is_blank else card.processes:
            values = (_now(), card["name"], _long_id(card), "[N/A]", card["uuid"], pid, _process_name(name), mib)
            row = dict(zip(_APP_FIELDS, values))
            rows.append([row[name] for name in names])
    return _text(names, ["MiB" if name == "used_gpu_memory" else "" for name in names], rows, options)


def _text(names, units, rows, options) -> str:
    lines = []
    if "noheader" not in options:
        lines.append(", ".join(f"{name} [{unit}]" if unit else name for name, unit in zip(names, units)))
    with_units = "nounits" not in options
    for row in rows:
        lines.append(", ".join(_cell(value, unit if with_units else "") for value, unit in zip(row, units)))
    return "".join(f"{line}\n" for line in lines)


def _cell(value, unit) -> str:
    is_number = not isinstance(value, str) or value[:1].isdigit()
    return f"{value} {unit}" if unit and is_number else f"{value}"


def _unit(name) -> str:
    return next((unit for start, unit in _UNITS.items() if name.startswith(start + ".")), "")


def _now() -> str:
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03d}"


def _long_id(card) -> str:
    return "0000" + card["bus_id"].upper()


def _process_name(name) -> str:
    return name.replace(",", "?") or "[Not Found]"


def _card(machine, card, count):
    """All fields of a card by name."""
    ecc = card.faults.get("ecc")

    def said(field, value):
        broken = card.broken(field)
        return value if broken is None else f"[{broken}]"

    domain, bus, slot = card["bus_id"].upper().split(":")
    clock = said("perf", 2520 if card.util else 210)
    power, limit = said("power", f"{card.power:.2f}"), said("power", f"{card['power_limit']:.2f}")
    ecc_mode, count_of = said("ecc", "[N/A]" if ecc is None else "Enabled"), "[N/A]" if ecc is None else ecc
    deprecated = "[Requested functionality has been deprecated]"
    return {
        "timestamp": _now(), "driver_version": machine["driver"], "count": count, "index": card.index,
        "name": said("name", card["name"]), "serial": "[N/A]", "uuid": card["uuid"], "compute_cap": card["compute_cap"],
        "vbios_version": card["vbios"], "pci.bus_id": "0000" + card["bus_id"].upper(), "pci.domain": f"0x0000{domain}",
        "pci.bus": f"0x{bus}", "pci.device": f"0x{slot[:2]}", "pci.device_id": f"0x{card['device'].upper()}10DE",
        "pci.sub_device_id": "0x" + card["subsystem"].upper(), "pcie.link.gen.current": 1, "pcie.link.gen.max": 4,
        "pcie.link.width.current": 16, "pcie.link.width.max": 16, "display_mode": deprecated, "display_active": "Disabled",
        "persistence_mode": "Enabled" if card.persistence else "Disabled", "accounting.mode": "Disabled",
        "fan.speed": said("fan", 30), "pstate": said("perf", "P2" if card.util else "P8"),
        "clocks_event_reasons.active": "0x0000000000000000" if card.util else "0x0000000000000001",
        "memory.total": said("memory", card["total_mib"]), "memory.reserved": said("memory", card["reserved_mib"]),
        "memory.used": said("memory", card.used), "memory.free": said("memory", card.free), "compute_mode": "Default",
        "utilization.gpu": said("util", card.util), "utilization.memory": said("util", int(card.util) // 3),
        "temperature.gpu": said("temp", card.temperature), "temperature.memory": "N/A",
        "ecc.mode.current": ecc_mode, "ecc.mode.pending": ecc_mode, "ecc.errors.uncorrected.volatile.total": count_of,
        "ecc.errors.corrected.volatile.total": "[N/A]" if ecc is None else 0, "retired_pages.pending": "[N/A]",
        "power.draw": power, "power.draw.average": power, "power.draw.instant": power, "power.limit": limit,
        "enforced.power.limit": limit, "power.default_limit": limit, "power.max_limit": said("power", "600.00"),
        "clocks.current.graphics": clock, "clocks.current.sm": clock, "clocks.current.memory": said("perf", 405),
        "mig.mode.current": "[N/A]", "mig.mode.pending": "[N/A]",
        "gpu_recovery_action": "Reset" if "needs_reset" in card.faults else "None",
        "reset_status.reset_required": deprecated, "reset_status.drain_and_reset_recommended": deprecated,
        "remapped_rows.pending": "No" if ecc is None else "Yes", "remapped_rows.failure": "No",
    }  # fmt: skip
