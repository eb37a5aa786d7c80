"""What a key or a column means. One table for all outputs, because the tools agree on names more than on forms."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import values

#: What is known of one device: keys of the schema without `index` and `driver_version`.
Fields = Dict[str, Any]
#: A key or column as `key` writes it, and what was printed there.
Raw = Dict[str, str]

FIELDS = (
    "name",
    "bus_id",
    "unique_id",
    "memory_total_mib",
    "memory_used_mib",
    "memory_used_pct",
    "utilization_gpu_pct",
    "temperature_c",
    "power_w",
    "perf_mode",
)
#: Sensors in the order in which the first with a number is taken.
HYGON_SENSORS = ("edge", "junction", "core", "mem", "memory")
AMD_SENSORS = ("edge", "junction")

_NAME = ("card series", "device name", "gpu-name", "market_name")
_BUS = ("pci bus", "bdf", "gpu_bdf")
_UNIQUE = ("unique id", "uuid", "gpu_uuid")
_TEMPERATURE = (
    *("temp", "gpu_temp", "gpu_t", "edge", "edge_temperature"),
    # amd-smi's hotspot is the junction sensor.
    *("hotspot", "hotspot_temp", "hotspot_temperature"),
)
_POWER = (
    *("average graphics package power (w)", "average graphics package power"),
    *("current socket graphics package power (w)", "current socket graphics package power"),
    *("avgpwr", "power", "power-usage", "power_usage"),
    *("socket_power", "current_socket_power", "average_socket_power"),
)
# Never `gpu memory use (%)`, `mem_util`, `mem-uti`: on AMD they are the activity of the memory and not its allocation.
_ALLOCATED = (
    *("vram%", "hcu memory use (%)", "dcu memory use (%)"),
    *("gpu memory allocated (vram%)", "hcu memory allocated (vram%)", "dcu memory allocated (vram%)"),
)
_USE = (
    *("hcu%", "dcu%", "gpu%", "hcu use (%)", "dcu use (%)", "gpu use (%)"),
    *("gfx_util", "gfx%", "gfx-uti", "gfx_activity", "gfx"),
)
_PERFORMANCE = ("perf", "performance level")
_USED_AND_TOTAL = ("mem-usage", "vram_usage")
_SIZES = ("b", "mib", "mb", "kib", "kb", "gib", "gb")

#: Columns that mean nothing here and yet show that a line is the header of a table of devices.
OTHER_COLUMNS = """
    node ids partitions pwrcap fan sclk mclk pclk mode xcp pwr_cap mem_temp mem_t gfx_clock gfx_clk mem_util mem% mem_clock
    enc_util enc_clock dec_util dec_clock vclk dclk enc% dec% throttle single_ecc double_ecc correctable_ecc
    uncorrectable_ecc pcie_replay pcie_bw vram_free
"""
KNOWN_COLUMNS = frozenset(OTHER_COLUMNS.split()) | frozenset(
    (*_TEMPERATURE, *_POWER, *_ALLOCATED, *_USE, *_PERFORMANCE, *_USED_AND_TOTAL, "vram_used", "vram_total")
)


def key(text: str) -> str:
    """A key as it is looked up: lower case, single blanks, no colon at its end."""
    return " ".join(text.split()).rstrip(": ").lower()


def raw_of(pairs: Iterable[Tuple[str, str]]) -> Raw:
    """Keys and values of one device. Of a key that comes twice the last value counts that says something."""
    raw: Raw = {}
    for name, value in pairs:
        looked_up = key(name)
        if looked_up and (looked_up not in raw or values.word(value) is not None):
            raw[looked_up] = value
    return raw


def read(raw: Raw, sensors: Sequence[str]) -> Fields:
    """What `raw` says about its device; a field that it does not give is absent. Units as in the names of the fields."""
    read_fields = {
        "name": _first(raw, _NAME, values.word),
        "bus_id": _first(raw, _BUS, values.bus_id),
        "unique_id": _first(raw, _UNIQUE, values.word),
        "memory_total_mib": _memory(raw, "vram total memory", ["vram_total", "total_vram"], side=1),
        "memory_used_mib": _memory(raw, "vram total used memory", ["vram_used", "used_vram"], side=0),
        "memory_used_pct": _first(raw, _ALLOCATED, _percent),
        "utilization_gpu_pct": _first(raw, _USE, _percent),
        "temperature_c": _temperature(raw, sensors),
        "power_w": _first(raw, _POWER, _power),
        "perf_mode": _first(raw, _PERFORMANCE, values.word),
    }
    return {name: value for name, value in read_fields.items() if value is not None}


def _first(raw: Raw, keys: Iterable[str], reader: Callable[[str], Any]) -> Any:
    """The first of the keys whose value can be read."""
    for name in keys:
        if name in raw:
            value = reader(raw[name])
            if value is not None:
                return value
    return None


def _percent(text: str) -> Optional[float]:
    return values.measure(text, "%")


def _celsius(text: str) -> Optional[float]:
    return values.measure(text, "c", signed=True)


def _power(text: str) -> Optional[float]:
    # `135/750 W` is the draw and the cap.
    return values.measure(values.ratio(text)[0], "w")


def _temperature(raw: Raw, sensors: Sequence[str]) -> Optional[float]:
    keys: List[str] = [*_TEMPERATURE]
    for sensor in sensors:
        keys += [f"temperature (sensor {sensor}) (c)", f"temperature (sensor {sensor})"]
    found: Optional[float] = _first(raw, keys, _celsius)
    return found


def _memory(raw: Raw, named: str, amd: Sequence[str], side: int) -> Optional[int]:
    """Memory in MiB from keys with the unit in their name, from amd-smi's columns, or from a side of `used/total`."""
    for size in _SIZES:
        found = values.mib(raw.get(f"{named} ({size})", ""), size)
        if found is not None:
            return found
    found = _first(raw, amd, _amd_size)
    if found is None:
        found = _first(raw, _USED_AND_TOTAL, lambda text: values.mib(values.ratio(text)[side], "mib"))
    result: Optional[int] = found
    return result


def _amd_size(text: str) -> Optional[int]:
    """amd-smi's figures are MiB, but bytes in its CSV of some versions, where the unit is not printed.

    No card has 16 TiB and none has less than 16 MiB, so the size of a bare number tells which it is; the nought is the same.
    """
    found = values.quantity(text, grouped=True)
    bare_bytes = found is not None and not found[1] and found[0] >= 16 * values.MIB
    return values.mib(text, "b" if bare_bytes else "mib")
