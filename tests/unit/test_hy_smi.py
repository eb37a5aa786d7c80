"""hy-smi: against every sample (tests/fixtures/hygon), against variants of them, and against any text at all."""

from __future__ import annotations

import importlib.util
import json
import time

import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import read_hy_smi
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

SAMPLES = worlds.ROOT / "tests/fixtures/hygon"
NAMES = sorted(p.stem for p in SAMPLES.glob("*.txt"))
DEVICE_KEYS = [
    *("index", "name", "bus_id", "unique_id", "memory_total_mib", "memory_used_mib", "memory_used_pct"),
    *("utilization_gpu_pct", "temperature_c", "power_w", "perf_mode", "driver_version"),
]
KINDS = [
    *("driver_not_loaded", "no_permission", "device_open_failed", "no_devices", "tool_missing", "missing_dependency"),
    *("process_list_unavailable", "malformed_json", "truncated"),
]
COMMANDS = ["hy-smi", "rocm-smi --json", "sudo /opt/hyhal/bin/hy-smi --showpids", "rocminfo", "amd-smi process", ""]
TABLE = """
================================= System Management Interface ==================================
HCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      HCU%      Mode
0       59.0C    114.0W     auto     400.0W     31%        7.5%      Normal
1       61.0C    109.0W     auto     400.0W     N/A        N/A       N/A
======================================== End of SMI Log ========================================
"""


def sample(name):
    return (SAMPLES / f"{name}.txt").read_bytes().decode()


def wanted(name):
    return json.loads((SAMPLES / f"{name}.expected.json").read_text(encoding="utf-8"))


def compared(reading):
    """What a reading says, with its errors as the set that they are."""
    errors = {(e["kind"], e["device_index"]) for e in reading["errors"]}
    assert len(errors) == len(reading["errors"])
    return json.dumps([reading[k] for k in ("driver_version", "devices", "processes")]), errors


def kinds(text, command="hy-smi"):
    return [(e["kind"], e["device_index"]) for e in read_hy_smi(text, command)["errors"]]


def column(text, field, command="hy-smi"):
    return {d["index"]: d[field] for d in read_hy_smi(text, command)["devices"]}


def known(text, command="hy-smi"):
    """Devices without what is not known of them."""
    return [{k: v for k, v in d.items() if v is not None} for d in read_hy_smi(text, command)["devices"]]


def card(pairs):
    return json.dumps({"card0": pairs})


def assert_schema(reading):
    """The keys of the schema, with plain JSON types, in their order and each index and process once."""
    assert list(reading) == ["driver_version", "devices", "processes", "errors"]
    assert json.loads(json.dumps(reading, allow_nan=False)) == reading
    types = {"name": str, "bus_id": str, "unique_id": str, "perf_mode": str, "driver_version": str}
    types |= {"memory_total_mib": int, "memory_used_mib": int}
    for device in reading["devices"]:
        assert list(device) == DEVICE_KEYS
        assert type(device["index"]) is int
        assert all(v is None or type(v) is types.get(k, float) for k, v in device.items() if k != "index")
        assert device["driver_version"] == reading["driver_version"]
    indices = [d["index"] for d in reading["devices"]]
    assert indices == sorted(set(indices))
    for process in reading["processes"]:
        assert list(process) == ["pid", "name", "device_indices", "used_memory_mib"]
        cards = process["device_indices"]
        assert type(process["pid"]) is int
        assert cards is None or (cards == sorted(set(cards)) and all(type(i) is int for i in cards))
        assert process["used_memory_mib"] is None or type(process["used_memory_mib"]) is int
    pids = [p["pid"] for p in reading["processes"]]
    assert len(pids) == len(set(pids))
    for error in reading["errors"]:
        assert list(error) == ["kind", "device_index"]
        assert error["kind"] in KINDS


def test_all_samples_are_here():
    listed = (SAMPLES / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert sorted(line.split("\t")[0] for line in listed) == NAMES
    assert len(NAMES) == 33


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_reads_as_expected(name):
    reading = read_hy_smi(sample(name), wanted(name)["command"])
    assert_schema(reading)
    assert compared(reading) == compared(wanted(name))


@pytest.mark.parametrize("name", NAMES)
def test_line_ends_escapes_and_marks_change_nothing(name):
    text, want = sample(name), compared(wanted(name))
    command = wanted(name)["command"]
    assert compared(read_hy_smi(text.replace("\n", "\r\n"), command)) == want
    assert compared(read_hy_smi("\ufeff" + text, command)) == want
    coloured = "\n".join(f"\x1b[1;32m{line}\x1b[0m" if line else line for line in text.split("\n"))
    assert compared(read_hy_smi("\x1b[H\x1b[2J\x1b]0;title\x07" + coloured, command)) == want
    assert compared(read_hy_smi(f"[root@host ~]# {command}\n{text}\n...\n", command)) == want


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_cut_anywhere_gives_no_card_and_no_value_that_is_not_in_it(name):
    text, full = sample(name).encode(), wanted(name)
    framed = b"System Management Interface" in text or text.startswith(b"{")
    devices = {d["index"]: d for d in full["devices"]}
    processes = {p["pid"] for p in full["processes"]}
    for end in range(0, len(text), max(1, len(text) // 60)):
        reading = read_hy_smi(text[:end].decode("utf-8", "replace"), full["command"])
        assert_schema(reading)
        if framed:
            assert {p["pid"] for p in reading["processes"]} <= processes
            for device in reading["devices"]:
                assert all(v in (None, devices[device["index"]][k]) for k, v in device.items())


# Calls 1, 2, 6, 8, 9, 10: the table


def test_columns_are_found_by_name_in_any_order_and_cards_keep_their_numbers():
    text = """Mode VRAM% Enc% HCU% HCU Fan Perf AvgPwr SCLK Temp
N/A 3% 1% 12.5% 4 0% high 77.0W 900Mhz 41.5C
MIG 0% 0% 0% 9 0% auto 9W N/A 40c
"""
    assert known(text) == [
        {
            **{"index": 4, "memory_used_pct": 3.0, "utilization_gpu_pct": 12.5, "temperature_c": 41.5},
            **{"power_w": 77.0, "perf_mode": "high"},
        },
        {
            **{"index": 9, "memory_used_pct": 0.0, "utilization_gpu_pct": 0.0, "temperature_c": 40.0},
            **{"power_w": 9.0, "perf_mode": "auto"},
        },
    ]


def test_what_is_not_a_number_is_unknown_and_never_nought():
    assert column(TABLE, "utilization_gpu_pct") == {0: 7.5, 1: None}
    assert column(TABLE, "memory_used_pct") == {0: 31.0, 1: None}
    for words in ("N/A", "None", "Unsupported", "", "unknown", "-", "inf", "nan"):
        raw = {"HCU use (%)": words, "vram Total Memory (MiB)": words, "Temperature (Sensor edge) (C)": words}
        assert known(card(raw), "hy-smi --json") == [{"index": 0}]


def test_squeezed_indented_and_bannerless_tables_are_the_same_table():
    want = compared(read_hy_smi(TABLE, "hy-smi"))
    squeezed = "\n".join(" ".join(line.split()) for line in TABLE.split("\n"))
    indented = "\n".join(f"\t    {line}" for line in TABLE.split("\n"))
    bare = "\n".join(line for line in TABLE.split("\n") if "=" not in line)
    assert [compared(read_hy_smi(text, "hy-smi")) for text in (squeezed, indented, bare)] == [want] * 3


def test_old_label_new_label_and_amds_label_are_one():
    for label in ("DCU", "HCU", "GPU"):
        table = TABLE.replace("HCU", label)
        assert compared(read_hy_smi(table, "hy-smi")) == compared(read_hy_smi(TABLE, "hy-smi"))
        assert column(f"{label}[2] : {label} use (%): 4", "utilization_gpu_pct") == {2: 4.0}


@pytest.mark.parametrize("printed", ["41,5C", "41,5 °C", "41.5°C", "41.5\ufffdC", "41.5Â°C", "41.5c", "41.5"])
def test_a_number_is_read_in_any_locale_and_encoding(printed):
    assert column(f"HCU Temp Perf\n3 {printed} auto", "temperature_c") == {3: 41.5}


def test_a_row_with_a_cell_too_many_is_read_only_where_units_show_that_it_stands_right():
    header = "HCU Temp AvgPwr Perf PwrCap VRAM% HCU% Mode\n"
    assert column(header + "0 59.0C 114.0W auto 400.0W 31% 7% Normal (locked by user)", "utilization_gpu_pct") == {0: 7.0}
    assert column(header + "0 59.0C 114.0W auto slow 400.0W 31% 7% Normal", "utilization_gpu_pct") == {}
    assert column(header + "3 of the cards do not answer any more, see the log", "temperature_c") == {}


def test_of_two_pictures_of_a_card_the_later_counts():
    later = TABLE.replace("7.5%", "9.5%").replace("59.0C", "N/A")
    assert column(TABLE + later, "utilization_gpu_pct") == {0: 9.5, 1: None}
    assert column(TABLE + later, "temperature_c") == {0: 59.0, 1: 61.0}


# Calls 3, 4, 5, 7, 8, 11, 12, 18, 19, 20: keys


@pytest.mark.parametrize(
    ("key", "value", "mib"),
    [
        ("vram Total Memory (MiB)", "65520", 65520),
        ("VRAM Total Memory (MiB)", "65,520", 65520),
        ("VRAM Total Memory (B)", "68702699520", 65520),
        ("vram Total Memory (GiB)", "64", 65536),
        ("vram Total Memory", "65520", None),
        ("VIS_VRAM Total Memory (B)", "68702699520", None),
        ("GTT Total Memory (MiB)", "65520", None),
        ("Available memory size (MiB)", "65438", None),
        ("vram Total Memory (MiB)", "-1", None),
    ],
)
def test_the_unit_of_memory_stands_in_the_key(key, value, mib):
    assert column(f"HCU[0]\t\t: {key}: {value}", "memory_total_mib") == {0: mib}
    assert column(card({key: value}), "memory_total_mib") == {0: mib}


def test_memory_in_use_is_allocation_under_hygons_labels_and_activity_under_amds():
    for key, percentage in [("HCU memory use (%)", 98.0), ("DCU memory use (%)", 98.0), ("GPU memory use (%)", None)]:
        assert column(card({key: "98"}), "memory_used_pct") == {0: percentage}
    totals = {"vram Total Memory (MiB)": "100", "vram Total Used Memory (MiB)": "50"}
    assert column(card(totals), "memory_used_pct") == {0: None}


def test_the_first_sensor_with_a_number_gives_the_temperature():
    sensors = {"mem": "51.0", "core": "N/A", "junction": "None", "edge": "N/A"}
    for sensor, value, read in [
        ("mem", "51.0", 51.0),
        ("core", "52.0", 52.0),
        ("junction", "53.0", 53.0),
        ("edge", "54.0", 54.0),
    ]:
        sensors[sensor] = value
        assert column(card({f"Temperature (Sensor {s}) (C)": v for s, v in sensors.items()}), "temperature_c") == {0: read}
    assert column(card({"Temperature (Sensor memory) (C)": "55"}), "temperature_c") == {0: 55.0}


def test_power_is_that_of_the_package():
    other = {"Average GFX Core Power (W)": "20.0", "Average Memory Power (W)": "38.0", "Max Graphics Package Power (W)": "400"}
    assert column(card(other), "power_w") == {0: None}
    assert column(card({**other, "Average Graphics Package Power (W)": "91.0"}), "power_w") == {0: 91.0}


@pytest.mark.parametrize(
    ("printed", "bus"),
    [
        ("0000:05:00.0 --> SN: 2500000000000001", "0000:05:00.0"),
        ("0000:C9:1F.7", "0000:c9:1f.7"),
        ("0000:09:00.0 --> SN: 01-000000-00AAA0 --> OAM ID: 1", "0000:09:00.0"),
        ("09:00.0", "0000:09:00.0"),
        ("N/A", None),
    ],
)
def test_a_bus_address_is_lower_case_and_alone(printed, bus):
    assert column(f"HCU[6]\t: PCI Bus: {printed}", "bus_id") == {6: bus}


def test_a_name_is_the_series_or_the_device_name_and_nothing_else():
    other = {"Card Vendor": "V", "Card Model": "M", "Card SKU": "S", "Device ID": "0x6210", "Serial Number": "N"}
    assert column(card(other), "name") == {0: None}
    assert column(card({**other, "Device Name": "D"}), "name") == {0: "D"}
    assert column(card({**other, "Device Name": "D", "Card series": "K100_AI"}), "name") == {0: "K100_AI"}
    assert column(card({"Device Name": "D", "Card Series": "N/A"}), "name") == {0: "D"}
    assert column(card({"Unique ID": "TCA00000000001 "}), "unique_id") == {0: "TCA00000000001"}


def test_window_counters_are_not_the_utilisation():
    text = "HCU[0]\t: HCU util in last second : 91%\nHCU[0]\t: CU util in last second : 64%\n"
    assert column(text, "utilization_gpu_pct") == {0: None}
    assert column(text + "HCU[0]\t: HCU use (%): 88.5\n", "utilization_gpu_pct") == {0: 88.5}


def test_the_drivers_version_is_the_whole_word_and_goes_into_every_card():
    reading = read_hy_smi("Driver Version: 6.3.31-V1.5.0a  \nHCU[0] : x: 1\nHCU[5] : x: 1", "hy-smi")
    assert reading["driver_version"] == "6.3.31-V1.5.0a"
    assert [(d["index"], d["driver_version"]) for d in reading["devices"]] == [(0, "6.3.31-V1.5.0a"), (5, "6.3.31-V1.5.0a")]
    assert read_hy_smi("Driver Version: N/A", "hy-smi")["driver_version"] is None


# Calls 13, 14: JSON, and what was cut


@pytest.mark.parametrize(
    ("text", "use", "errors"),
    [
        ('{"card0": {"a": "1""HCU use (%)": "5"}}', {0: 5.0}, ["malformed_json"]),
        ('{"card0": {"": "", "": "", "HCU use (%)": "5"}}', {0: 5.0}, []),
        ('{"card0": {"HCU use (%)": "5",}}', {0: 5.0}, ["malformed_json"]),
        ('{"card0": {"HCU use (%)": "5"} "card3": {"HCU use (%)": "6"}}', {0: 5.0, 3: 6.0}, ["malformed_json"]),
        ('{"card0": {"HCU use (%)": "5"}}, "card1": {"HCU use (%)": "6"}}', {0: 5.0, 1: 6.0}, ["malformed_json"]),
        ('{"card0": {"x": N/A, "HCU use (%)": 5}}', {0: 5.0}, ["malformed_json"]),
        ("{'card0': {'HCU use (%)': '5'}}", {0: 5.0}, ["malformed_json"]),
        ('{"card0": {"HCU use (%)": 5.0, "x": null, "y": true}}', {0: 5.0}, []),
        ('{"card0": {"HCU use (%)": "5"}}\n{"card1": {"HCU use (%)": "6"}}', {0: 5.0, 1: 6.0}, []),
        ('warning: {"this": is text\n{"card0": {"HCU use (%)": "5"}}\nbye', {0: 5.0}, []),
        ('{"card0": {"HCU use (%)": "5"}, "card1": {"HCU use (%)": "6', {0: 5.0, 1: None}, ["truncated"]),
        ('{"card0": {"HCU use (%)": "5"}, "card1": {', {0: 5.0, 1: None}, ["truncated"]),
        ('{"card0": {"HCU use (%)": "5"}, "card1"', {0: 5.0}, ["truncated"]),
        ('{"card0": {"a": "1""HCU use (%)": "5"', {0: 5.0}, ["truncated"]),
        ('{"card0": {"HCU use (%)": 5', {0: None}, ["truncated"]),
        ('{"card0": {"HCU use (%)": "5", "card1": {"HCU use (%)": "6"}}', {0: 5.0, 1: 6.0}, ["truncated"]),
        ('{"card0": {"HCU use (%)": "5\nKilled\n', {0: None}, ["truncated"]),
        ("{", {}, ["truncated"]),
        ("{}", {}, []),
        ("[]", {}, []),
        ('{"card0": "no object", "cardX": {}, "system": {}}', {}, []),
    ],
)
def test_json_is_read_as_far_as_it_goes_and_says_what_was_wrong(text, use, errors):
    assert column(text, "utilization_gpu_pct", "hy-smi --json") == use
    assert kinds(text, "hy-smi --json") == [(kind, None) for kind in errors]


def test_a_banner_without_its_end_is_truncated_and_a_fragment_without_a_banner_is_not():
    head = TABLE[: TABLE.index("=====", 200)]
    assert kinds(head) == [("truncated", None)]
    assert kinds(TABLE) == []
    assert kinds(TABLE.replace("= End of SMI Log =", "=End of SMI Log=")) == []
    assert kinds(TABLE + head) == [("truncated", None)]
    assert kinds(head[head.index("HCU ") :]) == []
    assert kinds("=== Concise Info ===\n") == []
    assert kinds("AMD ROCm System Management Interface  |  usage: rocm-smi [-h]\n") == []


def test_a_cut_row_makes_no_card_and_a_whole_one_does_without_a_line_end():
    cut = TABLE[: TABLE.index("7.5%")]
    header = "=== System Management Interface ===\nDCU Temp AvgPwr Fan Perf PwrCap VRAM% DCU%\n"
    assert column(cut, "temperature_c") == {}
    assert column(header + "0 44.0c 20.0W 0.0% auto 450.0W 7% 74%", "utilization_gpu_pct") == {0: 74.0}
    assert column(header + "0 44.0c 20.0W 0.0% auto 450.0W 7% 7", "utilization_gpu_pct") == {}
    assert column(header + "0 44.0c 20.0W 0.0% auto 450.0W 7% 74%\n1 44.0c 20", "utilization_gpu_pct") == {0: 74.0}


def test_a_cut_value_is_unknown_and_its_card_stays():
    head = "=== System Management Interface ===\n"
    assert column(head + "HCU[3]\t: vram Total Memory (MiB): 6552", "memory_total_mib") == {3: None}
    assert read_hy_smi(head + "Driver Version: 6.3.3", "hy-smi")["driver_version"] is None
    assert read_hy_smi(head + "PID: 20040", "hy-smi --showpids")["processes"] == []


# Call 15: processes


def test_a_block_of_showpids_may_lack_fields_and_blank_lines():
    text = """PID: 12
\tHCU Node(Include CPU sort): ['9'] ['10']
\tHCU Index: ['3'] ['1']
\tGPUID: ['34430']
\tVRAM USED(MiB): 512
PID: 13
\tHCU Index:
\tVRAM USED(MiB): N/A
PID: 14
\tVRAM USED(B): 1048576
================
\tHCU Index: ['7']
"""
    assert read_hy_smi(text, "hy-smi --showpids")["devices"] == []
    assert read_hy_smi(text, "hy-smi --showpids")["processes"] == [
        {"pid": 12, "name": None, "device_indices": [1, 3], "used_memory_mib": 512},
        {"pid": 13, "name": None, "device_indices": [], "used_memory_mib": None},
        {"pid": 14, "name": None, "device_indices": None, "used_memory_mib": 1},
    ]


def test_an_empty_list_of_processes_is_success_and_an_unknown_one_is_not():
    assert kinds("No KFD PIDs currently running!") == []
    assert kinds("PIDs for KFD processes:\n\n") == []
    assert kinds("Unable to open process directory: Permission denied") == [("process_list_unavailable", None)]


# Call 17: what makes a device


def test_a_labelled_line_makes_a_device_and_an_error_line_does_not():
    assert known("HCU[2]\t\t: Available memory size (MiB): 65438") == [{"index": 2}]
    assert known("GPU[1]\t\t: get_od_volt, Requested function is not implemented on this setup") == [{"index": 1}]
    assert known("Error: Dcu[0]: No DRM devices available, exiting.") == []
    assert known("HCU[0] : Unable to open /dev/kfd read-write: Permission denied") == []
    assert kinds("HCU[4] : Unable to open /dev/kfd read-write: Permission denied") == [("no_permission", 4)]


# Call 21: CSV


def test_csv_is_read_by_its_header_wherever_that_stands():
    text = "\nhy-smi --showuse --csv\n\nHCU memory use (%),device,HCU use (%)\n31,card2,7.5\nN/A,card0,\n9,card1\n"
    assert known(text, "hy-smi --csv") == [
        {"index": 0},
        {"index": 2, "memory_used_pct": 31.0, "utilization_gpu_pct": 7.5},
    ]


def test_commas_in_csv_values_do_not_move_the_columns():
    header = "device,Card Vendor,Card Series,HCU use (%)\n"
    for vendor in ('"Chengdu Haiguang IC Design Co., Ltd."', "Chengdu Haiguang IC Design Co., Ltd.", '"a ""b"", c"'):
        assert known(f"{header}card0,{vendor},K100_AI,3\n") == [{"index": 0, "name": "K100_AI", "utilization_gpu_pct": 3.0}]


# Call 22: rocminfo


def test_rocminfo_counts_what_is_no_cpu_and_takes_its_first_global_pool():
    text = """*******
Agent 3
*******
  Name:                    gfx936
  Uuid:                    GPU-a
  Marketing Name:
  Device Type:             HCU
  BDFID:                   51456
  Domain:                  1
  Pool Info:
    Pool 1
      Segment:                 GROUP
      Size:                    64(0x40) KB
    Pool 2
      Size:                    67092480(0x3ffc000) KB
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
    Pool 3
      Segment:                 GLOBAL; FLAGS: FINE GRAINED
      Size:                    1024(0x400) KB
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx936
Agent 4
  Marketing Name:          Hygon C86 Processor
  Device Type:             CPU
Agent 5
  Marketing Name:          BW
  Device Type:             HCU
Agent 6
  Marketing Name:          of no type
"""
    assert known(text, "rocminfo") == [
        {"index": 0, "bus_id": "0001:c9:00.0", "unique_id": "GPU-a", "memory_total_mib": 65520},
        {"index": 1, "name": "BW"},
    ]


# Errors


@pytest.mark.parametrize(
    ("text", "command", "kind"),
    [
        ("bash: hy-smi: command not found...", "hy-smi", "tool_missing"),
        ("bash: line 1: hy-smi: command not found", "ssh host hy-smi", "tool_missing"),
        ("sh: 1: /opt/hyhal/bin/hy-smi: not found", "watch -n 1 '/opt/hyhal/bin/hy-smi'", "tool_missing"),
        ("bash: /opt/hyhal/bin/hy-smi: No such file or directory", "sudo /opt/hyhal/bin/hy-smi", "tool_missing"),
        ("zsh: command not found: hy-smi", "hy-smi --json", "tool_missing"),
        ("env: ‘hy-smi’: No such file or directory", "env LANG=C hy-smi", "tool_missing"),
        ("bash: hy-smi：未找到命令", "hy-smi", "tool_missing"),
        ("bash: hy-smi: Kommando nicht gefunden.", "hy-smi", "tool_missing"),
        ("Command 'rocm-smi' not found, but can be installed with:", "rocm-smi", "tool_missing"),
        ('exec failed: exec: "hy-smi": executable file not found in $PATH: unknown', "kubectl exec p -- hy-smi", "tool_missing"),
        ("sh: 1: lspci: not found", "hy-smi", "missing_dependency"),
        ("sh: lspci: command not found", "hy-smi", "missing_dependency"),
        ("/usr/bin/env: 'python3': No such file or directory", "rocm-smi", "missing_dependency"),
        ("bash: hy-smi: command not found", "rocm-smi", "missing_dependency"),
        ("ERROR:root:Driver not initialized (hycu not found in modules)", "hy-smi", "driver_not_loaded"),
        ("The hydcu driver is not loaded", "hy-smi", "driver_not_loaded"),
        ("ROCk module is NOT loaded, possibly no GPU devices", "rocminfo", "driver_not_loaded"),
        ("Unable to open /dev/mkfd read-write: Operation not permitted", "hy-smi", "no_permission"),
        ("Failed to open /dev/dri/renderD128: Permission denied", "hy-smi", "no_permission"),
        ("Unable to open /dev/kfd read-write: Cannot allocate memory", "hy-smi", "device_open_failed"),
        ("Unable to open /dev/kfd read-write: No such file or directory", "hy-smi", "device_open_failed"),
        ("Error: No DRM devices available, exiting.", "hy-smi", "no_devices"),
        ("rsmi could not be initialized", "hy-smi", "no_devices"),
        ("hsa_init Failed, possibly no supported GPU devices", "rocminfo", "no_devices"),
        ("The HSA runtime is not initialised", "rocminfo", "no_devices"),
        ("Unable to open process directory: No such file or directory", "hy-smi --showpids", "process_list_unavailable"),
    ],
)
def test_a_message_is_the_error_that_it_states(text, command, kind):
    assert kinds(text, command) == [(kind, None)]
    assert kinds(f"{text}\n{text}\n", command) == [(kind, None)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ROCk module is loaded",
        "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status",
        'user is not member of "render" group, the default DRM access group.',
        "DeprecationWarning: hy-smi will be replaced",
        "hsa api call failure at: rocminfo.cc:1142\nCall returned HSA_STATUS_ERROR_OUT_OF_RESOURCES: failed to allocate",
        "Exception caught: map::at",
        'Expected integer value from monitor, but got ""',
        "bash: /opt/hyhal/bin/hy-smi: Permission denied",
        "No running processes found",
    ],
)
def test_warnings_and_explanations_are_no_errors(text):
    assert kinds(text) == []


def test_an_error_bears_the_number_in_brackets_of_its_own_line():
    text = "Error: Dcu[0]: No DRM devices available\nError: Dcu[3]: No DRM devices available\nNo DRM devices available [HCU]\n"
    assert kinds(text) == [("no_devices", 0), ("no_devices", 3), ("no_devices", None)]


# Any text


@given(st.text(), st.sampled_from(COMMANDS))
def test_any_text_gives_the_schema_and_raises_nothing(text, command):
    assert_schema(read_hy_smi(text, command))


LINES = sorted({line for name in NAMES for line in sample(name)[:4000].split("\n")})
NOISE = st.sampled_from(
    [
        *(
            "{",
            "}",
            "[",
            "]",
            '"',
            ",",
            ":",
            "|",
            "=",
            "(",
            ")",
            "%",
            "W",
            "\x1b[",
            "\r",
            " ",
            "N/A",
            "/",
            "0",
            "7.5",
            "99999999999999999999",
        ),
        *(
            "HCU[1]:",
            "PID: 1",
            "HCU Index:",
            "PID 1 is using 2 DRM device(s):",
            "GPU: 0",
            "PROCESS_INFO:",
            "Agent 1",
            "Pool 1",
            "PID NAME X",
        ),
        *(
            "GPU Temp",
            "device,gpu,pid,name",
            "system,1,2,3",
            "| 0 | 1 |",
            "| BDF | x |",
            '{"card0":',
            '"gpu": 0',
            '"pid": 1',
            "'",
        ),
    ]
)


@given(st.lists(st.one_of(st.sampled_from(LINES), NOISE)), st.sampled_from(["\n", "", " ", "\r\n"]), st.sampled_from(COMMANDS))
def test_lines_of_samples_in_any_order_give_the_schema(parts, between, command):
    assert_schema(read_hy_smi(between.join(parts), command))


@pytest.mark.parametrize(
    "unit",
    [
        *("[", '{"a":', '{"card0":', '[{"gpu":0,"pid":1,"a":', '"', "\\", "{\n", "[ ", "}", "=", "1,", "1", " ", "\n", "\t"),
        *("HCU[0]:", "\x1b[", "\x1b]", "^[", "driver ", "not ", "no a b ", "initialize ", "failed to ", "unable to find a "),
        *("HCU Temp\n", "PID NAME X\n1 2 3\n", "PID: 1\n", "device,", 'device,"', ", x", "GPU: 0\n", "| 0 | 1 |\n", "( ", "% "),
    ],
)
def test_a_long_text_takes_no_long_time_and_deep_brackets_no_stack(unit):
    text = '{"card0": {"' + unit * (60_000 // len(unit))
    began = time.process_time()  # others may keep the machine busy
    for given_text in (text, text[12:], "HCU Temp Perf\n0 " + text[12:]):
        assert_schema(read_hy_smi(given_text, "hy-smi"))
    assert time.process_time() - began < 5


# The filter


def call(text, **words):
    spec = importlib.util.spec_from_file_location("hy_smi_devices", worlds.ROOT / "filter_plugins/hy_smi_devices.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()["hy_smi_devices"](text, **words)


def test_the_filter_gives_the_devices_of_the_reader_as_plain_data():
    tagged = DataLoader().load(json.dumps([TABLE]), json_only=True)[0]
    devices = call(tagged)
    assert [d["index"] for d in devices] == [0, 1]
    assert all(type(d["perf_mode"]) is str for d in devices)
    assert call("HCU[0] : PCI Bus: 0000:05:00.0", command="hy-smi --showbus")[0]["bus_id"] == "0000:05:00.0"


@pytest.mark.parametrize(
    ("given_input", "kind"), [({"stdout": ""}, "a mapping"), (None, "NoneType"), (b"HCU", "bytes"), ([], "list")]
)
def test_the_filter_says_what_it_wants_when_it_gets_no_text(given_input, kind):
    with pytest.raises(AnsibleFilterError, match=f"not {kind}: pass the .stdout of the command"):
        call(given_input)
    with pytest.raises(AnsibleFilterError, match="reads the command as text"):
        call("", command=given_input)
