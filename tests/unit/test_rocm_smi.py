"""rocm-smi, amd-smi and rocminfo: against every sample (tests/fixtures/amd), variants of them, and any text at all."""

from __future__ import annotations

import importlib.util
import json

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelyard.core.plugins.module_utils.survey.rocm_smi import read_hy_smi, read_rocm_smi
from hypothesis import given
from hypothesis import strategies as st
from unit import worlds

SAMPLES = worlds.ROOT / "tests/fixtures/amd"
NAMES = sorted(p.stem for p in SAMPLES.glob("*.txt"))
KEYS = ["driver_version", "devices", "processes", "errors"]
COMMANDS = ["rocm-smi", "amd-smi", "sudo amd-smi process --json", "amd-smi monitor -q", "rocminfo", "watch rocm-smi --csv"]
BOX = """\
+------------------------------------------------------------------------------+
| AMD-SMI 26.2.0+021c61fc      amdgpu version: 6.16.6   ROCm version: 7.1.1    |
| VBIOS version: 00107962                                                      |
| Platform: Linux Baremetal                                                    |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:C2:00.0                 0x1586 | N/A        N/A   0             N/A/0 W |
|   0       0     N/A             N/A | N/A        N/A           1013/65536 MB |
|-------------------------------------+----------------------------------------|
| 0000:05:00.1    AMD Instinct MI300X | 6 %      40 °C   0                 N/A |
|   1       1       7        DPX/NPS1 | 7 %     29.8 %           492/98296 MB |
|-------------------------------------+----------------------------------------|
| 0000:2d:00.0  AMD Radeon RX 9070 XT | 6 %      62 °C   0           189/266 W |
|   4       2     N/A             N/A | 100 %   51.76              0.5/16.0 GB |
+-------------------------------------+----------------------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|
|    4      36750  python3.12             2.0 MB    9.3 GB     9.5 GB  N/A     |
|    1      36750  python3.12             2.0 MB    9.3 GB     9.5 GB  88.0 %  |
|    9      36751  VLLM::Worker TP0       2.0 MB  512.0 KB     9.5 GB  N/A     |
|    0      36752  N/A                    2.0 MB     0.0 B     9.5 GB  N/A     |
|    0      36753  worker 1 B                N/A       N/A        N/A  N/A     |
+------------------------------------------------------------------------------+
"""


def sample(name):
    return (SAMPLES / f"{name}.txt").read_bytes().decode()


def wanted(name):
    return json.loads((SAMPLES / f"{name}.expected.json").read_text(encoding="utf-8"))


def compared(reading):
    """What a reading says, with its errors as the set that they are."""
    errors = {(e["kind"], e["device_index"]) for e in reading["errors"]}
    assert len(errors) == len(reading["errors"])
    return json.dumps([reading[k] for k in KEYS[:3]]), errors


def column(text, field, command="rocm-smi"):
    return {d["index"]: d[field] for d in read_rocm_smi(text, command)["devices"]}


def known(text, command="rocm-smi"):
    """Devices without what is not known of them."""
    return [{k: v for k, v in d.items() if v is not None} for d in read_rocm_smi(text, command)["devices"]]


def processes(text, command="rocm-smi"):
    """(pid, name, device_indices, used_memory_mib) of each process."""
    return [tuple(p.values()) for p in read_rocm_smi(text, command)["processes"]]


def kinds(text, command="rocm-smi"):
    return [(e["kind"], e["device_index"]) for e in read_rocm_smi(text, command)["errors"]]


def test_all_samples_are_here():
    listed = (SAMPLES / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert sorted(line.split("\t")[0] for line in listed) == NAMES
    assert len(NAMES) == 23


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_reads_as_expected(name):
    reading = read_rocm_smi(sample(name), wanted(name)["command"])
    assert list(reading) == KEYS
    assert compared(reading) == compared(wanted(name))


@pytest.mark.parametrize("name", NAMES)
def test_line_ends_escapes_and_marks_change_nothing(name):
    text, want = sample(name), compared(wanted(name))
    command = wanted(name)["command"]
    assert compared(read_rocm_smi(text.replace("\n", "\r\n"), command)) == want
    assert compared(read_rocm_smi("\ufeff" + text, command)) == want
    coloured = "\n".join(f"\x1b[38;5;9m{line}\x1b[0m" if line else line for line in text.split("\n"))
    assert compared(read_rocm_smi("\x1b[?25l" + coloured, command)) == want
    assert compared(read_rocm_smi(f"$ {command}\n{text}\n", command)) == want


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_cut_anywhere_gives_no_card_and_no_value_that_is_not_in_it(name):
    text, full = sample(name).encode(), wanted(name)
    framed = b"System Management Interface" in text or text.strip()[:1] in (b"{", b"|", b"+")
    devices = {d["index"]: d for d in full["devices"]}
    known_pids = {p["pid"] for p in full["processes"]}
    for end in range(0, len(text), max(1, len(text) // 60)):
        reading = read_rocm_smi(text[:end].decode("utf-8", "replace"), full["command"])
        assert json.loads(json.dumps(reading)) == reading
        if framed:
            assert {p["pid"] for p in reading["processes"]} <= known_pids
            for device in reading["devices"]:
                assert all(v in (None, devices[device["index"]][k]) for k, v in device.items())


@pytest.mark.parametrize("name", NAMES)
def test_the_sensors_are_all_that_hygons_reader_reads_otherwise(name):
    text, command = sample(name), wanted(name)["command"]
    other = [{**d, "temperature_c": 0} for d in read_hy_smi(text, command)["devices"]]
    assert other == [{**d, "temperature_c": 0} for d in read_rocm_smi(text, command)["devices"]]


# Calls 1, 2, 3, 4, 16: keys


def test_bytes_become_mib_and_only_vram_counts():
    keys = {"VRAM Total Memory (B)": "205822885888", "VIS_VRAM Total Used Memory (B)": "5242880", "GTT Total Memory (B)": "1"}
    assert known(json.dumps({"card0": keys})) == [{"index": 0, "memory_total_mib": 196288}]


def test_activity_of_the_memory_is_not_its_allocation():
    text = "GPU[0]\t\t: GPU memory use (%): 44\nGPU[0]\t\t: GPU use (%): 7\n"
    assert known(text) == [{"index": 0, "utilization_gpu_pct": 7.0}]
    text += "GPU[0]\t\t: GPU Memory Allocated (VRAM%): 12\n"
    assert known(text) == [{"index": 0, "memory_used_pct": 12.0, "utilization_gpu_pct": 7.0}]


def test_power_is_the_average_else_that_of_the_socket_and_never_the_limit():
    card = {"Max Graphics Package Power (W)": "290.0"}
    assert column(json.dumps({"card0": card}), "power_w") == {0: None}
    card["Current Socket Graphics Package Power (W)"] = "266.5"
    assert column(json.dumps({"card0": card}), "power_w") == {0: 266.5}
    card["Average Graphics Package Power (W)"] = "39.0"
    assert column(json.dumps({"card0": card}), "power_w") == {0: 39.0}
    assert column("GPU[1]\t: Average Graphics Package Power (W): N/A (Secondary die)", "power_w") == {1: None}


def test_temperature_is_that_of_the_edge_else_of_the_junction():
    card = {"Temperature (Sensor memory) (C)": "30.0", "Temperature (Sensor HBM 0) (C)": "31.0"}
    assert column(json.dumps({"card0": card}), "temperature_c") == {0: None}
    card["Temperature (Sensor junction) (C)"] = "60.0"
    assert column(json.dumps({"card0": {**card, "Temperature (Sensor edge) (C)": "N/A"}}), "temperature_c") == {0: 60.0}
    assert column(json.dumps({"card0": {**card, "Temperature (Sensor edge) (C)": "31.0"}}), "temperature_c") == {0: 31.0}


def test_keys_end_with_or_without_a_colon_and_a_model_is_no_name():
    assert known('{"card0": {"GPU use (%):": "3", "Card Model": "0x744c"}}') == [{"index": 0, "utilization_gpu_pct": 3.0}]
    assert known("GPU[0]\t\t: Card Series: \t\tNavi 31\nGPU[0]\t\t: Card SKU: \t\tD70401XT") == [{"index": 0, "name": "Navi 31"}]


# Call 12 and older tables

ROW = {
    "index": 0,
    "memory_used_pct": 38.0,
    "utilization_gpu_pct": 100.0,
    "temperature_c": 55.0,
    "power_w": 292.0,
    "perf_mode": "auto",
}


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (  # ROCm 6.3: two header lines
            "Device  Node  IDs              Temp        Power     Partitions    SCLK     MCLK    Fan  Perf  PwrCap  VRAM%  GPU%\n"
            "^[3m           (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)                        ^[0m\n"
            "===================================================\n"
            "0       7     0x74a1,   28851  55.0°C      292.0W    NPS1, SPX, 0  210Mhz  900Mhz  0%   auto  750.0W  38%    100%\n",
            [ROW],
        ),
        (  # ROCm 6.0: model and revision, the name in a line of its own
            "Device  [Model : Revision]    Temp    Power   Partitions      SCLK     MCLK     Fan  Perf    PwrCap  VRAM%  GPU%\n"
            "        Name (20 chars)       (Edge)  (Avg)   (Mem, Compute)\n"
            "0       [0x0b0c : 0x00]       55.0°C  292.0W  N/A, N/A        1425Mhz  1600Mhz  0%   auto  500.0W   38%   100%\n"
            "        AMD INSTINCT MI200 (\n",
            [ROW],
        ),
        (  # ROCm 5: the sensor beside the name of the column
            "GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%\n"
            "0    55.0c           292.0W  800Mhz  1600Mhz  0%   auto  560.0W   38%   100%\n",
            [ROW],
        ),
        (  # ROCm 2: columns of two words, a cell with a comma
            " GPU  Temp    AvgPwr   SCLK     MCLK     PCLK           Fan      Perf     PwrCap   SCLK OD   MCLK OD  GPU%\n"
            "  3   35c     18.0W    809Mhz   351Mhz   8.0GT/s, x16   21.96%   auto     180.0W   0%        0%       6%\n",
            [{"index": 3, "utilization_gpu_pct": 6.0, "temperature_c": 35.0, "power_w": 18.0, "perf_mode": "auto"}],
        ),
        (  # A card that does not answer
            "Device  Node  IDs              Temp    Power  Partitions     SCLK  MCLK  Fan  Perf     PwrCap       VRAM%  GPU%\n"
            "1       2     N/A              N/A     N/A    N/A, N/A, 0    None  None  0%   unknown  Unsupported  N/A    N/A\n",
            [{"index": 1, "perf_mode": "unknown"}],
        ),
    ],
)
def test_tables_of_all_versions_are_read_by_the_names_of_their_columns(text, devices):
    assert known(text) == devices
    assert known("\n".join(" ".join(line.split()) for line in text.split("\n"))) == devices


# Calls 5, 6: processes of rocm-smi


def test_showpids_counts_gpus_and_does_not_name_them():
    header = "PID\tPROCESS NAME\tGPU(s)\tVRAM USED\tSDMA USED\tCU OCCUPANCY\t\n"
    rows = "77\tmy  worker\t2\t7340032\t0\t0\t\n78\tN/A\t0\t0\t0\tUNKNOWN\t\n79\tUNKNOWN\t1\tUNKNOWN\t0\t0\t\n"
    assert processes(header + rows) == [(77, "my  worker", None, 7), (78, None, None, 0), (79, "UNKNOWN", None, None)]
    squeezed = "\n".join(" ".join(line.split()) for line in (header + rows).split("\n"))
    assert processes(squeezed) == [(77, "my worker", None, 7), (78, None, None, 0), (79, "UNKNOWN", None, None)]
    assert known(header + rows) == []


def test_columns_of_showpids_may_change_their_order_and_number():
    assert processes("PROCESS NAME VRAM USED PID\nllama 1048576 5\n") == [(5, "llama", None, 1)]


def test_json_hides_processes_in_the_system_object():
    system = {
        "Driver version": "6.14.14",
        "PID7": "a, b, 1, 7340032, 0, 88",
        "PID8": "python3, 0, 0, 0, 0",
        "PID9": "N/A",
        "PIDx": "y",
    }
    text = json.dumps({"system": system})
    assert processes(text) == [(7, "a, b", None, 7), (8, "python3", None, 0), (9, None, None, None)]
    assert read_rocm_smi(text, "rocm-smi")["driver_version"] == "6.14.14"


def test_showpidgpus_lists_indices_on_one_line_or_several():
    text = "PID 1 is using 3 DRM device(s):\n4 0\n12\nPID 2 is using 0 DRM device(s)\nPID 3 is using 1 DRM device(s): 5\n"
    assert processes(text) == [(1, None, [0, 4, 12], None), (2, None, [], None), (3, None, [5], None)]
    assert known(text) == []


def test_lists_of_one_output_complete_each_other():
    text = (
        "PID PROCESS NAME GPU(s) VRAM USED\n7 vllm 2 1048576\n=== GPUs Indexed by PID ===\nPID 7 is using 2 DRM device(s):\n0 1\n"
    )
    assert processes(text) == [(7, "vllm", [0, 1], 1)]


# Calls 7, 8: processes of amd-smi


def test_rows_of_a_process_are_one_process_and_differing_amounts_are_not_guessed():
    header = "gpu,name,pid,vram_mem,mem_usage\n"
    same = header + "5,w,7,1048576,9\n2,w,7,1048576,9\n"
    differ = header + "5,w,7,1048576,9\n2,w,7,2097152,9\n"
    one_unknown = header + "5,w,7,1048576,9\n2,w,7,N/A,9\n"
    assert processes(same, "amd-smi process --csv") == [(7, "w", [2, 5], 1)]
    assert processes(differ, "amd-smi process --csv") == [(7, "w", [2, 5], None)]
    assert processes(one_unknown, "amd-smi process --csv") == [(7, "w", [2, 5], None)]


def test_csv_columns_go_by_name_and_a_name_may_hold_commas():
    assert processes("pid,vram_mem,name,gpu\n7,1048576,a,b,0\n", "amd-smi process --csv") == [(7, "a,b", [0], 1)]
    assert processes('gpu,name,pid\n0,"a ""b"", c",7\n', "amd-smi process --csv") == [(7, 'a "b", c', [0], None)]


def test_blocks_of_processes_are_read_with_and_without_indents():
    text = """GPU: 0
    PROCESS_INFO: No running processes detected

GPU: 3
    PROCESS_INFO:
        NAME: N/A
        PID: 11
        MEMORY_USAGE:
            GTT_MEM: 2.0 MB
            VRAM_MEM: 28.8 GB
        MEM_USAGE: 28.9 GB
    PROCESS_INFO:
        NAME: b
        PID: 12
        MEM_USAGE: 1.0 GB
"""
    for form in (text, "\n".join(line.strip() for line in text.split("\n"))):
        assert processes(form, "amd-smi process") == [(11, None, [3], 29491), (12, "b", [3], None)]
        assert known(form, "amd-smi process") == []
        assert known(form, "amd-smi") == []


@pytest.mark.parametrize("outer", ["%s", '{"gpu_data": %s}'])
def test_json_lists_processes_below_their_gpu(outer):
    info = {
        "name": "python3",
        "pid": 42,
        "memory_usage": {"gtt_mem": {"value": 1, "unit": "GB"}, "vram_mem": {"value": 2, "unit": "MB"}},
    }
    flat = {"name": "N/A", "pid": 43, "vram_mem": 3145728, "mem_usage": {"value": 9, "unit": "MB"}}
    gpus = [
        {"gpu": 0, "process_list": [{"process_info": "No running processes detected"}]},
        {"gpu": 1, "process_list": [{"process_info": info}, flat]},
        {"gpu": 2, "process_list": [{"process_info": info}]},
    ]
    text = outer % json.dumps(gpus)
    assert processes(text, "amd-smi process --json") == [(42, "python3", [1, 2], 2), (43, None, [1], 3)]
    assert known(text, "amd-smi process --json") == known(text, "amd-smi") == []


def test_a_heading_of_a_list_of_processes_makes_no_device():
    assert known("GPU: 0\n", "sudo amd-smi process") == []
    assert known("gpu,process_info\n0,No running processes detected\n", "amd-smi process --csv") == []
    assert known("GPU: 0\n", "amd-smi list") == [{"index": 0}]


# Call 13: the table of amd-smi

CARDS = [
    {"index": 0, "name": "0x1586", "bus_id": "0000:c2:00.0", "memory_total_mib": 65536, "memory_used_mib": 1013},
    {
        **{
            "index": 1,
            "name": "AMD Instinct MI300X",
            "bus_id": "0000:05:00.1",
            "memory_total_mib": 98296,
            "memory_used_mib": 492,
        },
        **{"utilization_gpu_pct": 7.0, "temperature_c": 40.0},
    },
    {
        **{
            "index": 4,
            "name": "AMD Radeon RX 9070 XT",
            "bus_id": "0000:2d:00.0",
            "memory_total_mib": 16384,
            "memory_used_mib": 512,
        },
        **{"utilization_gpu_pct": 100.0, "temperature_c": 62.0, "power_w": 189.0},
    },
]
USERS = [
    (36750, "python3.12", [1, 4], 9523),
    (36751, "VLLM::Worker TP0", [9], 0),
    (36752, None, [0], 0),
    (36753, "worker 1 B", [0], None),
]


def test_amd_smis_table_has_two_lines_a_card():
    assert known(BOX, "amd-smi") == [{**card, "driver_version": "6.16.6"} for card in CARDS]
    assert processes(BOX, "amd-smi") == USERS
    assert kinds(BOX, "amd-smi") == []


def test_an_excerpt_of_amd_smis_table_is_read_all_the_same():
    cards = [line for line in BOX.split("\n") if line[2:3].isdigit() or line[4:5].isdigit()]
    assert known("\n".join(cards), "amd-smi") == CARDS
    assert known("\n".join(f"   {line}" for line in cards[2:]), "amd-smi") == CARDS[1:]
    assert known("\n".join(cards[:3]), "amd-smi") == CARDS[:1]
    assert known("\n".join([*cards[:3], cards[3][:-2]]), "amd-smi") == CARDS[:1]
    assert kinds("\n".join(cards[:3]), "amd-smi") == []


# Calls 14, 15: monitor, list, metric


def test_a_number_and_its_unit_are_one_cell_of_the_monitor():
    text = """\
GPU  VRAM_TOTAL  GFX_UTIL  VRAM_USED  GPU_TEMP  MEM_TEMP  PCIE_BW  MEM_UTIL  POWER
  2    16335 MB       N/A    1235 MB    N/A °C     84 °C  N/A Mb/s     31 %  N/A W
  0    16335 MB      99 %       0 MB    103 °C       N/A      N/A      31 %  199 W

PROCESS INFO:
GPU                  NAME      PID  GTT_MEM  CPU_MEM  VRAM_MEM  MEM_USAGE     GFX     ENC
  0                   rvs  1564865    0.0 B    0.0 B    1.1 GB      0.0 B    0 ns    0 ns
  1          my worker B   1564866    0.0 B    0.0 B       N/A      0.0 B    0 ns    0 ns
"""
    assert known(text, "amd-smi monitor -q") == [
        {
            **{"index": 0, "memory_total_mib": 16335, "memory_used_mib": 0, "utilization_gpu_pct": 99.0},
            **{"temperature_c": 103.0, "power_w": 199.0},
        },
        {"index": 2, "memory_total_mib": 16335, "memory_used_mib": 1235},
    ]
    assert processes(text, "amd-smi monitor -q") == [(1564865, "rvs", [0], 1126), (1564866, "my worker B", [1], None)]


def test_the_newer_monitor_has_other_names_and_a_row_for_each_partition():
    text = """\
GPU  XCP  POWER  PWR_CAP   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%  ENC%  DEC%  VRAM_USAGE
  0    0  143 W    750 W   40 °C   35 °C   132 MHz    7 %    0 %   N/A   0 %  0.3/192.0 GB
  0    1    N/A      N/A     N/A     N/A   132 MHz    9 %    0 %   N/A   0 %  N/A
"""
    assert known(text, "amd-smi monitor") == [
        {
            **{"index": 0, "memory_total_mib": 196608, "memory_used_mib": 307, "utilization_gpu_pct": 7.0},
            **{"temperature_c": 40.0, "power_w": 143.0},
        }
    ]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("GPU: 6\n    UUID: a-b\n    BDF: 0000:C3:00.0\n    NODE_ID: 1\n", "amd-smi list"),
        ('[{"gpu": 6, "bdf": "0000:c3:00.0", "uuid": "a-b", "kfd_id": 1}]', "amd-smi list --json"),
        ("gpu,gpu_bdf,gpu_uuid,kfd_id\n6,0000:c3:00.0,a-b,1\n", "amd-smi list --csv"),
    ],
)
def test_amd_smi_list_gives_bus_and_id_in_all_its_forms(text, command):
    assert known(text, command) == [{"index": 6, "bus_id": "0000:c3:00.0", "unique_id": "a-b"}]


METRIC = {
    "gpu": 0,
    "usage": {"gfx_activity": {"value": 7, "unit": "%"}, "umc_activity": {"value": 44, "unit": "%"}},
    "power": {"socket_power": {"value": 141, "unit": "W"}},
    "temperature": {"edge": "N/A", "hotspot": {"value": 38, "unit": "C"}},
    "mem_usage": {"total_vram": {"value": 196288, "unit": "MB"}, "used_vram": {"value": 2531, "unit": "MB"}},
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"gpu_data": [METRIC]}),
        "GPU: 0\n  USAGE:\n    GFX_ACTIVITY: 7 %\n    UMC_ACTIVITY: 44 %\n  POWER:\n    SOCKET_POWER: 141 W\n  TEMPERATURE:\n"
        "    EDGE: N/A\n    HOTSPOT: 38 °C\n  MEM_USAGE:\n    TOTAL_VRAM: 196288 MB\n    USED_VRAM: 2531 MB\n",
        "timestamp,gpu,gfx,power_usage,hotspot_temperature,vram_used,vram_total\n1,0,7,141,38,2531,196288\n",
        "timestamp,gpu,gfx,power_usage,hotspot_temperature,vram_used,vram_total\n1,0,7,141,38,2653945856,205822885888\n",
    ],
)
def test_figures_of_amd_smi_are_the_same_in_all_its_forms(text):
    assert known(text, "amd-smi metric") == [
        {
            **{"index": 0, "memory_total_mib": 196288, "memory_used_mib": 2531, "utilization_gpu_pct": 7.0},
            **{"temperature_c": 38.0, "power_w": 141.0},
        }
    ]


# Calls 9, 10, 11, 17: messages


def test_the_drivers_version_comes_from_either_tool():
    for text, version in [
        ("Driver version: \t6.8.5-amd\n", "6.8.5-amd"),
        ("AMDSMI Tool: 25.4.2+aca1101 | ROCm version: 6.4.1 | amdgpu version: 6.10.5 | amd_hsmp version: N/A", "6.10.5"),
        ('{"system": {"Driver version": "6.3.6"}}', "6.3.6"),
        ('[{"gpu": 0, "driver": {"name": "amdgpu", "version": "6.10.5"}}]', "6.10.5"),
        ("ROCm version: 7.0.0", None),
    ]:
        assert read_rocm_smi(text, "rocm-smi")["driver_version"] == version


@pytest.mark.parametrize(
    ("text", "command", "errors"),
    [
        ("WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status", "rocm-smi", []),
        ("Exception caught: map::at", "rocm-smi", []),
        ("ROCk module is loaded", "rocminfo", []),
        (
            "WARNING: User is missing the following required groups: render, video. Please add user to these groups.",
            "amd-smi",
            [],
        ),
        ("cat: /sys/module/amdgpu/initstate: No such file or directory", "rocm-smi", []),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)", "rocm-smi", ["driver_not_loaded"]),
        ("34 | AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded", "amd-smi", ["driver_not_loaded"]),
        ("WARNING: No AMD GPUs specified", "rocm-smi", ["no_devices"]),
        (
            "Unable to detect any GPU devices, check amdgpu version and module status (sudo modprobe amdgpu)",
            "amd-smi",
            ["no_devices"],
        ),
        ("Call returned HSA_STATUS_ERROR_NOT_INITIALIZED: The HSA runtime is not initialized", "rocminfo", ["no_devices"]),
        (
            "Unable to open /dev/kfd read-write: Permission denied\nHSA_STATUS_ERROR_NOT_INITIALIZED: not initialized",
            "rocminfo",
            ["no_permission"],
        ),
        ("bash: amd-smi: command not found", "sudo amd-smi process", ["tool_missing"]),
        ("bash: rocminfo: command not found", "kubectl exec pod -- /opt/rocm/bin/rocminfo", ["tool_missing"]),
        ("/bin/sh: 1: lsmod: not found", "rocminfo", ["missing_dependency"]),
    ],
)
def test_a_message_is_the_error_that_it_states_and_a_warning_is_none(text, command, errors):
    assert kinds(text, command) == [(kind, None) for kind in errors]
    assert known(text, command) == []


def test_a_warning_before_json_or_a_table_does_not_hide_it():
    text = 'WARNING: AMD GPU device(s) is/are in a low-power state.\n\n{"card1": {"GPU use (%)": "3"}}\nERROR: GPU[2]: x\n'
    assert column(text, "utilization_gpu_pct", "rocm-smi --json") == {1: 3.0}
    assert kinds(text) == []


@pytest.mark.parametrize("command", ["rocm-smi --json", "rocm-smi --csv", "amd-smi", "rocminfo", "rocm-smi"])
def test_another_form_than_the_command_asked_for_is_read_for_what_it_is(command):
    for text in (
        '{"card1": {"GPU use (%)": "3"}}',
        "device,GPU use (%)\ncard1,3\n",
        "GPU[1] : GPU use (%): 3",
        "GPU Temp GPU%\n1 N/A 3%",
    ):
        assert column(text, "utilization_gpu_pct", command) == {1: 3.0}


# Any text


@given(st.text(), st.sampled_from(COMMANDS))
def test_any_text_gives_plain_data_and_raises_nothing(text, command):
    reading = read_rocm_smi(text, command)
    assert list(reading) == KEYS
    assert json.loads(json.dumps(reading, allow_nan=False)) == reading


LINES = sorted({line for name in NAMES for line in (sample(name)[:4000] + BOX).split("\n")})


@given(st.lists(st.sampled_from(LINES)), st.sampled_from(["\n", "", " "]), st.sampled_from(COMMANDS))
def test_lines_of_samples_in_any_order_give_plain_data(parts, between, command):
    reading = read_rocm_smi(between.join(parts), command)
    assert list(reading) == KEYS
    assert json.loads(json.dumps(reading, allow_nan=False)) == reading
    assert [d["index"] for d in reading["devices"]] == sorted({d["index"] for d in reading["devices"]})
    assert len(reading["processes"]) == len({p["pid"] for p in reading["processes"]})


# The filter


def call(text, **words):
    spec = importlib.util.spec_from_file_location("rocm_smi_devices", worlds.ROOT / "filter_plugins/rocm_smi_devices.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()["rocm_smi_devices"](text, **words)


def test_the_filter_gives_the_devices_of_the_reader():
    assert [d["index"] for d in call(BOX, command="amd-smi")] == [0, 1, 4]
    assert call(sample("csv_rx7900xt")) == wanted("csv_rx7900xt")["devices"]
    assert call("GPU: 0", command="amd-smi process") == []


@pytest.mark.parametrize(
    ("given_input", "kind"), [({"stdout": ""}, "a mapping"), (None, "NoneType"), (b"GPU", "bytes"), ([], "list")]
)
def test_the_filter_says_what_it_wants_when_it_gets_no_text(given_input, kind):
    with pytest.raises(AnsibleFilterError, match=f"not {kind}: pass the .stdout of the command"):
        call(given_input)
    with pytest.raises(AnsibleFilterError, match="reads the command as text"):
        call("", command=given_input)
