"""Reading hy-smi (Hygon DCU) and AMD's rocm-smi, amd-smi and rocminfo: text in, plain data out.

Both readers understand every form that any of these tools prints (tables, lines with a label, JSON, CSV, lists of processes),
because DTK installs hy-smi under the name rocm-smi and because a command line does not always tell what came out of it. They
differ in one point: the sensors whose temperature counts. They never raise for a text, whatever it is.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import (
    amd_smi,
    csv_text,
    fields,
    json_cards,
    json_text,
    key_lines,
    messages,
    processes,
    rocminfo,
    screen,
    tables,
)

__all__ = ["read_hy_smi", "read_rocm_smi"]


def read_hy_smi(text: str, command: str) -> Dict[str, Any]:
    """What hy-smi printed (or rocm-smi or rocminfo of DTK), whatever options `command` gave it.

    Returns `driver_version` (str or None) and three lists:

    - `devices`: index, name, bus_id (`dddd:bb:dd.f`), unique_id, memory_total_mib, memory_used_mib, memory_used_pct,
      utilization_gpu_pct, temperature_c, power_w, perf_mode, driver_version; in order of index, one for each;
    - `processes`: pid, name, device_indices, used_memory_mib; in order of first appearance, one for each pid;
    - `errors`: kind and device_index; each pair once.

    None is "not printed" or "not a number", never nought. `device_indices` is None where the tool does not say which cards,
    and empty where it names none. No devices and no errors does not mean that all is well.

    Kinds of errors: driver_not_loaded, no_permission, device_open_failed, no_devices, tool_missing, missing_dependency,
    process_list_unavailable, malformed_json, truncated.
    """
    return _read(text, command, fields.HYGON_SENSORS)


def read_rocm_smi(text: str, command: str) -> Dict[str, Any]:
    """What AMD's rocm-smi, amd-smi or rocminfo printed. The result is that of `read_hy_smi`."""
    return _read(text, command, fields.AMD_SENSORS)


def _read(text: str, command: str, sensors: Sequence[str]) -> Dict[str, Any]:
    page = screen.page(text)
    documents = json_text.find("\n".join(page.lines))
    lines = documents.outside.split("\n")
    said = messages.split(lines, command)
    # An error line that begins with a label (`HCU[0]: ...`) makes no device.
    rest = [line for number, line in enumerate(lines) if number not in said]
    as_list = messages.lists_processes(command)

    cards = json_cards.read(documents.roots, sensors, as_list)
    csv = csv_text.read(rest, sensors, as_list)
    blocks = amd_smi.blocks(rest, sensors, as_list)
    driver = key_lines.driver_version(rest) or cards.driver_version or csv.driver_version or blocks.driver_version
    devices = [
        *cards.devices,
        *csv.devices,
        *blocks.devices,
        *rocminfo.devices(rest),
        *key_lines.devices(rest, sensors),
        # Last, so that the temperature of a table beats that of a sensor.
        *amd_smi.box(rest, sensors),
        *tables.devices(rest, sensors),
    ]
    lists = [
        cards.processes,
        csv.processes,
        blocks.processes,
        [] if amd_smi.has_blocks(rest) else processes.blocks(rest),
        tables.process_rows(rest),
        processes.using(rest),
        processes.bare(rest),
    ]
    # JSON that was cut is not malformed as well.
    return {
        "driver_version": driver,
        "devices": _devices(devices, driver),
        "processes": processes.complete([processes.merge(rows) for rows in lists]),
        "errors": _errors(said.values(), page.truncated or documents.cut, documents.repaired and not documents.cut),
    }


def _devices(found: Iterable[Tuple[int, fields.Fields]], driver: Optional[str]) -> List[Dict[str, Any]]:
    """One device for each index; where two parts of an output give the same field the later one counts."""
    known: Dict[int, fields.Fields] = {}
    for index, read in found:
        known.setdefault(index, {}).update(read)
    return [
        {"index": index, **{name: known[index].get(name) for name in fields.FIELDS}, "driver_version": driver}
        for index in sorted(known)
    ]


def _errors(said: Iterable[messages.Message], truncated: bool, malformed: bool) -> List[Dict[str, Any]]:
    """Each pair once, in the order of the output."""
    extra = [messages.Message("truncated", None)] if truncated else []
    extra += [messages.Message("malformed_json", None)] if malformed else []
    return [{"kind": message.kind, "device_index": message.device_index} for message in dict.fromkeys([*said, *extra])]
