"""The reader for nvidia-smi: real outputs, one variant for each judgement call of fixtures/nvidia/README.md, damaged texts."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.modelyard.core.plugins.module_utils.survey.nvidia_smi import ReaderError, read_nvidia_smi, values
from hypothesis import given, settings
from hypothesis import strategies as st
from unit import worlds

FIXTURES = worlds.ROOT / "tests" / "fixtures" / "nvidia"
EXPECTED = {path.name[: -len(".expected.json")]: path for path in sorted(FIXTURES.glob("*.expected.json"))}
SAMPLES = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in EXPECTED.items()}
TEXTS = {name: (FIXTURES / sample["sample"]).read_text(encoding="utf-8") for name, sample in SAMPLES.items()}
COMPARED = ("gpus", "processes", "process_list", "mig_devices", "topology", "resets", "kernel_events")
FORMATS = (*("query_gpu_csv", "compute_apps_csv", "xml", "list_gpus", "table", "topo", "gpu_reset", "kernel_log", "message"),)
GPU_FIELDS = ["index", "uuid", "name", "memory.used", "memory.total"]
APP_FIELDS = ["gpu_uuid", "pid", "process_name", "used_memory"]
UUID = "GPU-88089156-7455-4e42-e31f-daeaaef06f80"
OTHER_UUID = "GPU-c550b3b9-a0cc-0052-5758-72dd77a46e8c"

NOTHING_KNOWN = {
    "index": None,
    "uuid": None,
    "name": None,
    "bus_id": None,
    "minor_number": None,
    "memory_total_mib": None,
    "memory_used_mib": None,
    "utilization_gpu_pct": None,
    "compute_mode": None,
    "mig_mode": None,
    "driver_version": None,
    "compute_cap": None,
    "health": "unknown",
}
KINDS = {
    *("driver_not_loaded", "version_mismatch", "nvml_init_failed", "no_devices", "gpu_lost", "device_handle_error"),
    *("needs_reset", "field_error", "insufficient_permissions", "inforom_corrupted", "invalid_field"),
    *("reset_in_use", "reset_not_supported", "reset_primary_gpu", "truncated"),
}
MIG_KEYS = {
    *("parent_bus_id", "parent_uuid", "index", "gpu_instance_id", "compute_instance_id"),
    *("uuid", "profile", "memory_total_mib", "memory_used_mib"),
}
KEY_OF_FORMAT = {"topo": "topology", "gpu_reset": "resets", "kernel_log": "kernel_events"}


# -- helpers --------------------------------------------------------------------------------------------------------


def request_for(form, fields=None, header=True, units=True):
    """A request; CSV formats get usual fields."""
    usual = {"query_gpu_csv": GPU_FIELDS, "compute_apps_csv": APP_FIELDS}.get(form)
    return {"format": form, "fields": fields or usual, "header": header, "units": units}


def read(text, form, **words):
    return read_nvidia_smi(text, request_for(form, **words))


def errors(reading):
    """Errors as the README compares them."""
    return {(e["kind"], e["bus_id"], e["gpu_index"]) for e in reading["errors"]}


def kinds(reading):
    return [e["kind"] for e in reading["errors"]]


def csv_gpu(cells, fields, **words):
    """The only GPU of a headerless row, and the kinds of error."""
    reading = read(cells, "query_gpu_csv", fields=fields, header=False, **words)
    assert len(reading["gpus"]) == 1
    return reading["gpus"][0], kinds(reading)


def xml(*gpus, attached=1, driver="<driver_version>535.86.05</driver_version>"):
    """A log of these elements."""
    head = f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n{driver}'
    return f"{head}<attached_gpus>{attached}</attached_gpus>\n{''.join(gpus)}</nvidia_smi_log>\n"


def xml_gpu(inner="", bus="00000000:01:00.0", processes="<processes></processes>"):
    return f'<gpu id="{bus}"><uuid>{UUID}</uuid><product_name>NVIDIA A100</product_name>{inner}{processes}</gpu>\n'


def info(pid="42", name="python", memory="5 MiB", kind="C"):
    inner = f"<pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name><used_memory>{memory}</used_memory>"
    return f"<process_info>{inner}</process_info>"


WIDE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
{cards}
{panels}"""
CARD = """\
|   {index}  {name:<30}  {beside:>4}  |   00000000:{bus}:00.0 Off |                {ecc:>5} |
| {fan:>3}   {temp:>3}    P0            {power} | {memory:>22} | {load:>7}  {mode:>11} |
|                                         |                        | {mig:>20} |
+-----------------------------------------+------------------------+----------------------+"""
PROCESSES = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{rows}
+-----------------------------------------------------------------------------------------+
"""
NO_PROCESSES = "|  No running processes found                                                             |"


def card(**words):
    usual = {
        **{"index": 0, "name": "NVIDIA A100", "beside": "On", "bus": "01", "ecc": "0", "fan": "N/A", "temp": "26C"},
        **{"power": "144W /  700W", "memory": "10MiB /  97887MiB", "load": "3%", "mode": "Default", "mig": "Disabled"},
    }
    return CARD.format(**{**usual, **words})


def table(*cards, rows=NO_PROCESSES, panels=""):
    processes = PROCESSES.format(rows=rows) if rows is not None else ""
    return WIDE.format(cards="\n".join(cards or [card()]), panels=panels + processes)


def process_row(content):
    return f"|{content:<89}|"


def process(pid, name="python", memory=5, **more):
    return {"pid": pid, "gpu_index": None, "gpu_uuid": None, "type": None, "name": name, "used_memory_mib": memory, **more}


def check_schema(reading, form):
    """Plain types, the closed lists, and the keys that a format may have."""
    assert_plain(reading)
    expected = {"gpus", "processes", "process_list", "errors"} | {KEY_OF_FORMAT[form]} if form in KEY_OF_FORMAT else None
    assert set(reading) - {"mig_devices"} == (expected or {"gpus", "processes", "process_list", "errors"})
    lists_processes = form in ("compute_apps_csv", "xml", "table", "message")
    assert reading["process_list"] in (["listed", "none", "partial", "unknown"] if lists_processes else [None])
    assert bool(reading["processes"]) <= lists_processes
    if "mig_devices" in reading:
        assert reading["mig_devices"] and all(set(device) == MIG_KEYS for device in reading["mig_devices"])
    for gpu in reading["gpus"]:
        assert set(gpu) == set(NOTHING_KNOWN)
        assert gpu["health"] in ("ok", "unknown", "degraded", "error", "needs_reset")
        assert gpu["mig_mode"] in ("Enabled", "Disabled", None)
    for row in reading["processes"]:
        assert set(row) == set(process(1)) and isinstance(row["pid"], int)
        assert row["type"] in ("C", "G", "C+G", None)
    for entry in reading["errors"]:
        assert set(entry) == {"kind", "bus_id", "gpu_index", "gpu_uuid", "field", "detail"}
        assert entry["kind"] in KINDS
    for entry in [*reading["gpus"], *reading["errors"], *reading.get("resets", []), *reading.get("kernel_events", [])]:
        assert entry["bus_id"] is None or re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7]", entry["bus_id"])


def assert_plain(value):
    assert type(value) in (dict, list, str, int, bool, type(None))
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            assert_plain(each)


# -- real outputs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_reads_exactly_as_expected(name):
    sample = SAMPLES[name]
    reading = read_nvidia_smi(TEXTS[name], sample["input"])
    assert {key: reading.get(key) for key in COMPARED} == {key: sample.get(key) for key in COMPARED}
    assert errors(reading) == errors(sample)
    assert ("mig_devices" in reading) == ("mig_devices" in sample)
    check_schema(reading, sample["input"]["format"])


def test_there_are_samples_of_every_format():
    assert {sample["input"]["format"] for sample in SAMPLES.values()} == set(FORMATS)


WRAPPED = {
    "windows line ends": lambda text: text.replace("\n", "\r\n"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "colours around lines": lambda text: "".join(f"\x1b[1;32m{line}\x1b[0m\n" for line in text.split("\n")),
    "a window title": lambda text: "\x1b]0;root@host: ~\x07" + text,
    "blank lines around": lambda text: "\n\n" + text + "\n \n",
    "no line end at the end": lambda text: text.rstrip("\n"),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_what_a_terminal_or_windows_adds_changes_nothing(wrap):
    for name, sample in SAMPLES.items():
        reading = read_nvidia_smi(wrap(TEXTS[name]), sample["input"])
        assert {key: reading.get(key) for key in COMPARED} == {key: sample.get(key) for key in COMPARED}, name
        assert errors(reading) == errors(sample), name


# -- the request ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"format": "yaml"}, "unknown format 'yaml'; known are: query_gpu_csv"),
        ({}, "unknown format None"),
        ("xml", "must be a dict"),
        ({"format": "query_gpu_csv"}, "needs the key fields"),
        ({"format": "compute_apps_csv", "fields": []}, "needs the key fields"),
        ({"format": "query_gpu_csv", "fields": "index,uuid"}, "needs the key fields"),
        ({"format": "query_gpu_csv", "fields": ["index", 7]}, "not 7"),
        ({"format": "query_gpu_csv", "fields": ["index"], "header": "no"}, "header must be true or false"),
        ({"format": "query_gpu_csv", "fields": ["index"], "units": 0}, "units must be true or false"),
    ],
)
def test_an_unusable_request_is_refused_with_what_would_be_right(request_, words):
    with pytest.raises(ReaderError, match=re.escape(words)):
        read_nvidia_smi("", request_)


def test_what_is_no_text_is_refused():
    with pytest.raises(ReaderError, match="must be text, not bytes"):
        read_nvidia_smi(b"", {"format": "xml"})


def test_header_and_units_are_expected_unless_the_request_says_otherwise():
    reading = read_nvidia_smi(
        "index, memory.used [MiB]\n0, 5 MiB\n", {"format": "query_gpu_csv", "fields": ["index", "memory.used"]}
    )
    assert reading["gpus"] == [{**NOTHING_KNOWN, "index": 0, "memory_used_mib": 5, "health": "ok"}]


# -- values (rules 1, 5, 6, 7, 8) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["N/A", "Not Supported", "Not Found", "Requested functionality has been deprecated"])
@pytest.mark.parametrize("form", ["{}", "[{}]", " {} "])
def test_a_text_in_place_of_a_value_is_null_and_never_zero(text, form):
    gpu, found = csv_gpu(f"0, {form.format(text)}, 12 MiB", ["index", "memory.total", "memory.used"])
    assert (gpu["memory_total_mib"], gpu["memory_used_mib"], gpu["health"], found) == (None, 12, "ok", [])


@pytest.mark.parametrize(
    ("text", "field", "kind", "health"),
    [
        ("[Insufficient Permissions]", "memory.total", "insufficient_permissions", "ok"),
        ("Insufficient Permissions", "serial", "insufficient_permissions", "ok"),
        ("[Unknown Error]", "fan.speed", "field_error", "degraded"),
        ("Unknown Error", "ecc.mode.current", "field_error", "degraded"),
        ("ERR!", "memory.total", "field_error", "degraded"),
        ("[Unknown Error]", "name", "field_error", "error"),
        ("[Unknown Error]", "gpu_name", "field_error", "error"),
        ("[Unknown Error]", "uuid", "field_error", "error"),
        ("[Unknown Error]", "gpu_bus_id", "field_error", "error"),
        ("[Unknown Error]", "utilization.gpu", "field_error", "error"),
        ("[Unknown Error]", "utilization.memory", "field_error", "degraded"),
        ("[GPU requires reset]", "clocks.sm", "needs_reset", "needs_reset"),
        ("GPU requires reset", "name", "needs_reset", "needs_reset"),
        ("[GPU is lost]", "temperature.gpu", "gpu_lost", "error"),
    ],
)
def test_a_complaint_of_any_field_is_an_error_and_decides_the_health(text, field, kind, health):
    gpu, found = csv_gpu(f"0, {text}, 12 MiB", ["index", field, "memory.used"])
    assert (gpu["health"], found, gpu["memory_used_mib"]) == (health, [kind], 12)


def test_errors_of_fields_name_the_gpu_of_their_record():
    fields = ["index", "uuid", "pci.bus_id", "fan.speed", "pstate"]
    reading = read(f"3, {UUID}, 0000:0c:00.0, [Unknown Error], ERR!", "query_gpu_csv", fields=fields, header=False)
    same = {"kind": "field_error", "bus_id": "00000000:0C:00.0", "gpu_index": 3, "gpu_uuid": UUID, "detail": None}
    assert reading["errors"] == [{**same, "field": "fan.speed"}, {**same, "field": "pstate"}]


@pytest.mark.parametrize("field", ["memory.used", "memory.free", "temperature.gpu", "temperature.memory", "power.draw"])
@pytest.mark.parametrize("value", ["0", "35", "11.17 W", "11,17 W"])
def test_one_live_reading_makes_a_gpu_ok(field, value):
    assert csv_gpu(f"0, {value}", ["index", field])[0]["health"] == "ok"
    assert csv_gpu("0, [N/A]", ["index", field])[0]["health"] == "unknown"


@pytest.mark.parametrize(
    "field", ["memory.total", "power.limit", "fan.speed", "clocks.sm", "ecc.errors.uncorrected.volatile.total"]
)
def test_limits_and_counters_prove_no_life(field):
    assert csv_gpu("0, 12", ["index", field])[0]["health"] == "unknown"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("81920 MiB", 81920), ("81920MiB", 81920), ("81920", 81920), ("0 MiB", 0), ("4095 MB", 4095)),
        *(("81,920 MiB", 81920), ("81.920 MiB", 81920), ("81 920 MiB", 81920), ("81\u00a0920 MiB", 81920), ("80 GiB", 81920)),
        *(("81920.5 MiB", 81920), ("81920 parsecs", None), ("0x50", None), ("", None), ("-", None), ("9" * 5000, None)),
        *(("\u0663 MiB", None), ("1" + " " * 100000 + "!", None)),
    ],
)
def test_memory_is_whole_mib_with_or_without_unit_in_any_notation(text, number):
    assert values.mib(text) == number


@pytest.mark.parametrize(
    ("text", "number"), [("7 %", 7), ("7%", 7), ("100", 100), ("6.9 %", 6), ("6,9 %", 6), ("12.345 %", 12), ("7 MiB", None)]
)
def test_utilisation_is_whole_percent(text, number):
    assert values.percent(text) == number


@pytest.mark.parametrize(
    ("text", "bus_id"),
    [
        ("0000:34:00.0", "00000000:34:00.0"),
        ("00000000:0c:00.0", "00000000:0C:00.0"),
        ("0000000F:01:00.0", "0000000F:01:00.0"),
        ("10000:e1:00.0", "00010000:E1:00.0"),
        ("PCI:0000:9b:00", "00000000:9B:00.0"),
        ("PCI:0000:01:00 GPU-I:05", "00000000:01:00.0"),
        ("GPU0000:07:00.0:", "00000000:07:00.0"),
        ("000:BA:80.0", None),
        ("[N/A]", None),
    ],
)
def test_bus_ids_have_one_form(text, bus_id):
    assert values.bus_id(text) == bus_id


# -- reset state (rule 2) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "health"),
    [
        ("reset_status.reset_required", "Yes", "needs_reset"),
        ("reset_status.reset_required", "No", "ok"),
        ("reset_status.reset_required", "[Requested functionality has been deprecated]", "unknown"),
        ("reset_status.drain_and_reset_recommended", "Yes", "needs_reset"),
        ("gpu_recovery_action", "None", "ok"),
        ("gpu_recovery_action", "Reset", "needs_reset"),
        ("gpu_recovery_action", "Drain and Reset", "needs_reset"),
        ("gpu_recovery_action", "Some Action Of Tomorrow", "needs_reset"),
        ("gpu_recovery_action", "[N/A]", "unknown"),
        ("gpu_recovery_action", "[Unknown Error]", "degraded"),
    ],
)
def test_reset_state_is_read_from_its_fields(field, text, health):
    gpu, found = csv_gpu(f"0, {text}", ["index", field])
    assert gpu["health"] == health
    assert ("needs_reset" in found) == (health == "needs_reset")


@pytest.mark.parametrize(
    ("inner", "health"),
    [
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "needs_reset"),
        (
            "<gpu_reset_status><drain_and_reset_recommended>Yes</drain_and_reset_recommended></gpu_reset_status>",
            "needs_reset",
        ),
        ("<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>", "ok"),
        ("<gpu_recovery_action>Node Reboot</gpu_recovery_action>", "needs_reset"),
        ("<gpu_recovery_action>None</gpu_recovery_action>", "ok"),
        ("<gpu_recovery_action>Requested functionality has been deprecated</gpu_recovery_action>", "unknown"),
    ],
)
def test_reset_state_is_read_from_xml_too(inner, health):
    reading = read(xml(xml_gpu(inner)), "xml")
    assert reading["gpus"][0]["health"] == health
    assert errors(reading) == ({("needs_reset", "00000000:01:00.0", 0)} if health == "needs_reset" else set())


# -- query-gpu CSV (rules 3, 7, 12, 16) -----------------------------------------------------------------------------


def test_columns_are_those_asked_for_whatever_the_header_calls_them():
    text = "foo.used [MiB], gpu_uuid, clocks_event_reasons.active, power.other [W]\n5 MiB, GPU-1, 0x0, 3.00 W\n"
    fields = ["memory.used", "uuid", "clocks_throttle_reasons.active", "power.draw"]
    assert read(text, "query_gpu_csv", fields=fields)["gpus"] == [
        {**NOTHING_KNOWN, "memory_used_mib": 5, "uuid": "GPU-1", "health": "ok"}
    ]


def test_a_header_with_the_same_names_in_another_order_or_with_more_of_them_is_followed():
    other = read("name, uuid, index\nA100, GPU-1, 2\n", "query_gpu_csv", fields=["index", "uuid", "name"])
    more = read("name, pstate, uuid, index\nA100, P0, GPU-1, 2\n", "query_gpu_csv", fields=["index", "uuid", "name"])
    assert other["gpus"] == more["gpus"] == [{**NOTHING_KNOWN, "index": 2, "uuid": "GPU-1", "name": "A100"}]


def test_fields_have_two_names():
    fields = ["gpu_name", "gpu_uuid", "gpu_bus_id", "kmd_version"]
    gpu, _ = csv_gpu("A100, GPU-1, 00000000:0C:00.0, 610.57.04", fields)
    assert (gpu["name"], gpu["uuid"], gpu["bus_id"]) == ("A100", "GPU-1", "00000000:0C:00.0")
    assert gpu["driver_version"] == "610.57.04"


def test_a_driver_version_has_two_or_three_parts_and_is_no_sentence():
    assert csv_gpu("0, 536.40", ["index", "driver_version"])[0]["driver_version"] == "536.40"
    assert csv_gpu('0, Deprecated; see "KMD Version"', ["index", "driver_version"])[0]["driver_version"] is None


def test_a_plain_comma_between_cells_and_a_comma_in_a_name_are_read():
    assert csv_gpu("0,GPU-1,A100,5,80", GPU_FIELDS, units=False)[0]["memory_total_mib"] == 80
    assert csv_gpu("0, GPU-1, A100, 80 GB, 5 MiB, 80 MiB", GPU_FIELDS)[0]["name"] == "A100, 80 GB"


def test_a_row_that_is_cut_off_gives_what_was_printed_whole():
    reading = read("0, GPU-1, A100, 5 MiB, 80 MiB\n1, GPU-2, A1", "query_gpu_csv", header=False)
    assert reading["gpus"][1] == {**NOTHING_KNOWN, "index": 1, "uuid": "GPU-2"}
    assert errors(reading) == {("truncated", None, None)}


def test_memory_that_lost_its_unit_at_the_end_of_the_text_is_not_believed():
    reading = read("0, GPU-1, A100, 5 MiB, 80 MiB\n1, GPU-2, A100, 5 MiB, 8", "query_gpu_csv", header=False)
    assert [gpu["memory_total_mib"] for gpu in reading["gpus"]] == [80, None]
    assert kinds(reading) == ["truncated"]


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("fields", [["name"], ["index"], ["index", "name"], GPU_FIELDS])
@pytest.mark.parametrize(
    "text",
    [
        "No devices were found\n",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
        'Field "foo" is not a valid field to query.\n\n',
        "bash: line 1: nvidia-smi: command not found\n",
    ],
)
def test_a_message_in_place_of_csv_gives_no_gpu(text, fields, header):
    reading = read(text, "query_gpu_csv", fields=fields, header=header)
    assert reading["gpus"] == []
    assert len(reading["errors"]) == (0 if "bash" in text else 1)


def test_rows_beside_a_message_are_read_without_renumbering():
    text = "Unable to determine the device handle for GPU0: 0000:07:00.0: Unknown Error\nindex, uuid\n1, GPU-1\n"
    reading = read(text, "query_gpu_csv", fields=["index", "uuid"])
    assert reading["gpus"] == [{**NOTHING_KNOWN, "index": 1, "uuid": "GPU-1"}]
    assert errors(reading) == {("device_handle_error", "00000000:07:00.0", 0)}


# -- messages (rule 10 and the table) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Failed to initialize NVML: Driver Not Loaded", "driver_not_loaded"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "nvml_init_failed"),
        ("Failed to initialize NVML: Insufficient Permissions", "nvml_init_failed"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124", "version_mismatch"),
        ("Failed to initialize NVML: Unknown Error\nFailed to properly shut down NVML: Unknown Error", "nvml_init_failed"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure", "driver_not_loaded"),
        ("NVIDIA-SMI has failed because it couldn\u2019t communicate with the NVIDIA driver. Make sure", "driver_not_loaded"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure", "nvml_init_failed"),
        ("No devices were found", "no_devices"),
        ('Field "a.b" is not a valid field to query.', "invalid_field"),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_message_has_its_kind_in_place_of_any_format(text, kind, form):
    reading = read(text, form)
    assert errors(reading) == {(kind, None, None)}
    assert reading["gpus"] == [] and reading["processes"] == []
    assert reading["process_list"] == ("unknown" if form in ("compute_apps_csv", "xml", "table", "message") else None)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU", ("gpu_lost", "00000000:02:00.0", None)),
        ("gpu 0000:08:00.0: Unknown Error", ("device_handle_error", "00000000:08:00.0", None)),
        ("GPU0000:07:00.0: Not Found", ("device_handle_error", "00000000:07:00.0", None)),
        ("GPU00000001:07:00.0: Unknown Error", ("device_handle_error", "00000001:07:00.0", None)),
        ("GPU1: 0000:34:00.0: Unknown Error", ("device_handle_error", "00000000:34:00.0", 1)),
        ("GPU12: 0000:34:00.0: GPU is lost", ("gpu_lost", "00000000:34:00.0", 12)),
        ("GPU 3: Unknown Error", ("device_handle_error", None, 3)),
        ("GPU 000:BA:80.0: Unknown Error", ("device_handle_error", None, None)),
        ("", ("device_handle_error", None, None)),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_a_device_handle_error_names_what_it_prints(rest, expected, form):
    assert errors(read(f"Unable to determine the device handle for {rest}\n", form)) == {expected}


def test_a_message_that_is_repeated_counts_once():
    assert kinds(read("No devices were found\n" * 3, "message")) == ["no_devices"]


def test_the_library_version_after_a_mismatch_is_its_detail():
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n"
    assert read(text, "message")["errors"][0]["detail"] == "570.124"


@pytest.mark.parametrize("form", ["before", "after"])
def test_a_corrupted_inforom_degrades_the_card_it_names(form):
    warning = "WARNING: infoROM is corrupted at gpu 0000:02:00.0\n"
    body = table(card(), card(index=1, bus="02"))
    reading = read(warning + body if form == "before" else body + warning, "table")
    assert [gpu["health"] for gpu in reading["gpus"]] == ["ok", "degraded"]
    assert errors(reading) == {("inforom_corrupted", "00000000:02:00.0", None)}
    assert reading["process_list"] == "none"
    logged = read(xml(xml_gpu("<fb_memory_usage><used>1 MiB</used></fb_memory_usage>", "00000000:02:00.0")) + warning, "xml")
    assert (logged["gpus"][0]["health"], logged["process_list"]) == ("degraded", "none")


# -- compute-apps CSV (rules 13, 14) --------------------------------------------------------------------------------


def apps(text, fields=("pid", "process_name", "used_memory"), header=False, units=True):
    return read(text, "compute_apps_csv", fields=list(fields), header=header, units=units)


def test_names_are_what_is_left_between_both_ends():
    text = f"{UUID}, 42, /a, b, 7 MiB, c, 12 MiB\n"
    assert apps(text, APP_FIELDS)["processes"] == [process(42, "/a, b, 7 MiB, c", 12, gpu_uuid=UUID)]
    other_order = apps(f"12 MiB, x,y z,, {UUID}, 42\n", ("used_memory", "name", "gpu_uuid", "pid"))
    assert other_order["processes"] == [process(42, "x,y z,", 12, gpu_uuid=UUID)]


@pytest.mark.parametrize("name", ["[Not Found]", "[N/A]", "[Insufficient Permissions]", "", "N/A", "Insufficient Permissions"])
def test_a_process_whose_name_cannot_be_looked_up_keeps_its_row(name):
    reading = apps(f"42, {name}, [N/A]")
    assert (reading["processes"], reading["process_list"], reading["errors"]) == ([process(42, None, None)], "listed", [])


def test_a_name_in_brackets_is_a_name():
    assert apps("42, [kworker/0], 5 MiB")["processes"] == [process(42, "[kworker/0]")]


@pytest.mark.parametrize(
    ("pid", "kind"),
    [
        ("[Insufficient Permissions]", "insufficient_permissions"),
        ("[Unknown Error]", "field_error"),
        ("[GPU requires reset]", "needs_reset"),
        ("[N/A]", None),
        ("[Not Found]", None),
    ],
)
def test_a_row_without_pid_makes_the_list_partial_and_is_one_error_by_its_text(pid, kind):
    fields = ["gpu_bus_id", "gpu_uuid", "pid", "process_name", "used_memory"]
    reading = apps(f"0000:0c:00.0, {UUID}, {pid}, {pid}, {pid}\n0000:0c:00.0, {UUID}, 42, python, 5 MiB", fields)
    assert reading["processes"] == [process(42, gpu_uuid=UUID)]
    assert reading["process_list"] == "partial"
    assert errors(reading) == ({(kind, "00000000:0C:00.0", None)} if kind else set())
    assert all(entry["gpu_uuid"] == UUID and entry["field"] == "pid" for entry in reading["errors"])


@pytest.mark.parametrize(
    ("text", "header", "state"),
    [
        ("", False, "none"),
        ("\n", False, "none"),
        ("", True, "unknown"),
        ("pid, process_name, used_gpu_memory [MiB]\n", True, "none"),
        ("pid, name, used_memory [MiB]\n", True, "none"),
        ("pid, process_name, used_gpu_memory [MiB]\n", False, "none"),
        ("pid, process_na", True, "unknown"),
        ("No running processes found\n", False, "none"),
        ("No devices were found\n", False, "unknown"),
        ("No devices were found\n", True, "unknown"),
        ("something else altogether\n", False, "unknown"),
        ("42, python, 5 MiB\nsomething else altogether\n", False, "unknown"),
        ("pid, process_name, used_gpu_memory [MiB]\nFailed to initialize NVML: Unknown Error\n", True, "unknown"),
    ],
)
def test_no_rows_are_no_processes_only_where_the_text_says_so(text, header, state):
    assert apps(text, header=header)["process_list"] == state


def test_a_gpu_that_did_not_answer_changes_nothing_in_the_process_list():
    lost = "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n"
    head = "pid, process_name, used_gpu_memory [MiB]\n"
    assert apps(lost + head, header=True)["process_list"] == "none"
    assert apps(lost + head + "42, python, 5 MiB\n", header=True)["process_list"] == "listed"
    assert apps(lost)["process_list"] == "unknown"


@pytest.mark.parametrize("cut", ["43, pyth", "43, python, ", "43, python, 1", "4"])
def test_a_row_that_is_cut_off_is_left_out_and_the_list_is_unknown(cut):
    reading = apps(f"42, python, 5 MiB\n{cut}".rstrip())
    if cut == "43, python, ":
        # An empty cell at the end may be what was printed: the process is real.
        assert reading["processes"] == [process(42), process(43, memory=None)]
        return
    assert reading["processes"] == [process(42)]
    assert reading["process_list"] == "unknown"


# -- XML (rules 3, 4, 9, 14, 18, 19) --------------------------------------------------------------------------------


def test_the_index_is_the_position_only_if_all_attached_gpus_are_there():
    both = [xml_gpu(bus="00000000:01:00.0"), xml_gpu(bus="00000000:02:00.0")]
    assert [gpu["index"] for gpu in read(xml(*both, attached=2), "xml")["gpus"]] == [0, 1]
    assert [gpu["index"] for gpu in read(xml(*both, attached=3), "xml")["gpus"]] == [None, None]
    assert [gpu["index"] for gpu in read(xml(*both, attached=1), "xml")["gpus"]] == [None, None]
    assert [gpu["index"] for gpu in read(xml(*both, attached="N/A"), "xml")["gpus"]] == [None, None]


def test_the_minor_number_is_what_is_printed():
    gpu = read(xml(xml_gpu("<minor_number>2</minor_number>")), "xml")["gpus"][0]
    assert (gpu["index"], gpu["minor_number"]) == (0, 2)


@pytest.mark.parametrize(
    ("processes", "state"),
    [
        ("<processes></processes>", "none"),
        ("<processes/>", "none"),
        ("<processes>\n\t\t</processes>", "none"),
        ("", "unknown"),
        ("<processes>N/A</processes>", "unknown"),
        ("<processes>Not Supported</processes>", "unknown"),
        (f"<processes>{info()}</processes>", "listed"),
        (f"<processes>{info()}{info(pid='N/A')}</processes>", "partial"),
    ],
)
def test_the_state_of_the_process_list_is_the_worst_of_all_gpus(processes, state):
    assert read(xml(xml_gpu(processes=processes)), "xml")["process_list"] == state
    two = [xml_gpu(processes=processes), xml_gpu(processes=f"<processes>{info()}</processes>")]
    assert read(xml(*two, attached=2), "xml")["process_list"] == ("listed" if state == "none" else state)


def test_a_log_without_any_gpu_knows_of_processes_only_if_none_are_attached():
    assert read(xml(attached=0), "xml")["process_list"] == "none"
    assert read(xml(attached=4), "xml")["process_list"] == "unknown"


def test_processes_of_all_types_are_listed_with_the_gpu_they_stand_in():
    rows = [info("1", kind="G"), info("2", kind="C+G"), info("3", kind="M+C"), info("4", name="", memory="N/A")]
    assert read(xml(xml_gpu(processes=f"<processes>{''.join(rows)}</processes>")), "xml")["processes"] == [
        process(1, gpu_index=0, gpu_uuid=UUID, type="G"),
        process(2, gpu_index=0, gpu_uuid=UUID, type="C+G"),
        process(3, gpu_index=0, gpu_uuid=UUID),
        process(4, None, None, gpu_index=0, gpu_uuid=UUID, type="C"),
    ]


def test_a_pid_that_cannot_be_read_is_one_error_of_its_gpu_and_no_complaint_of_it():
    rows = info(pid="Unknown Error", name="Unknown Error", memory="Unknown Error")
    used = "<fb_memory_usage><used>1 MiB</used></fb_memory_usage>"
    reading = read(xml(xml_gpu(used, processes=f"<processes>{rows}</processes>")), "xml")
    assert errors(reading) == {("field_error", "00000000:01:00.0", 0)}
    assert (reading["gpus"][0]["health"], reading["process_list"]) == ("ok", "partial")


def test_fields_that_feed_no_key_complain_too_but_not_those_of_accounted_processes():
    inner = (
        "<clocks><sm_clock>Unknown Error</sm_clock></clocks>"
        "<accounted_processes><accounted_process_info><gpu_util>Unknown Error</gpu_util></accounted_process_info>"
        "</accounted_processes>"
    )
    reading = read(xml(xml_gpu(inner)), "xml")
    assert [entry["field"] for entry in reading["errors"]] == ["sm_clock"]
    assert reading["gpus"][0]["health"] == "degraded"


def test_power_readings_prove_life_under_either_name_and_limits_do_not():
    for tag in ("power_readings", "gpu_power_readings"):
        for name in ("power_draw", "average_power_draw", "instant_power_draw"):
            inner = f"<{tag}><{name}> 8.19 W </{name}></{tag}>"
            assert read(xml(xml_gpu(inner)), "xml")["gpus"][0]["health"] == "ok"
        limit = f"<{tag}><power_draw>N/A</power_draw><max_power_limit>190.00 W</max_power_limit></{tag}>"
        assert read(xml(xml_gpu(limit)), "xml")["gpus"][0]["health"] == "unknown"


def test_memory_of_mig_devices_is_not_that_of_the_gpu():
    inner = (
        "<mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device><index>0</index>"
        "<gpu_instance_id>3</gpu_instance_id><compute_instance_id>1</compute_instance_id>"
        "<fb_memory_usage><total>19968 MiB</total><used>12 MiB</used></fb_memory_usage></mig_device></mig_devices>"
        "<fb_memory_usage><total>Insufficient Permissions</total><used>Insufficient Permissions</used></fb_memory_usage>"
    )
    reading = read(xml(xml_gpu(inner)), "xml")
    assert (reading["gpus"][0]["memory_total_mib"], reading["gpus"][0]["mig_mode"]) == (None, "Enabled")
    assert errors(reading) == {("insufficient_permissions", "00000000:01:00.0", 0)}
    assert reading["mig_devices"] == [
        {
            **{"parent_bus_id": "00000000:01:00.0", "parent_uuid": UUID, "index": 0, "gpu_instance_id": 3},
            **{"compute_instance_id": 1, "uuid": None, "profile": None, "memory_total_mib": 19968, "memory_used_mib": 12},
        }
    ]


def test_the_driver_is_the_kmd_where_the_old_element_holds_a_sentence():
    driver = "<driver_version>Deprecated; use KMD version</driver_version><kmd_version>610.57.04</kmd_version>"
    assert read(xml(xml_gpu(), driver=driver), "xml")["gpus"][0]["driver_version"] == "610.57.04"


def test_of_a_truncated_log_the_closed_gpus_count_with_their_processes():
    whole = xml(xml_gpu(processes=f"<processes>{info()}</processes>"), xml_gpu("<fan_speed>1</fan_speed>"), attached=2)
    reading = read(whole[: whole.index("<fan_speed>")], "xml")
    assert [(gpu["index"], gpu["driver_version"]) for gpu in reading["gpus"]] == [(0, "535.86.05")]
    assert [row["pid"] for row in reading["processes"]] == [42]
    assert (reading["process_list"], errors(reading)) == ("unknown", {("truncated", None, None)})


def test_a_log_that_was_cut_between_gpus_does_not_number_them():
    whole = xml(xml_gpu(), xml_gpu(), attached=2)
    reading = read(whole[: whole.index("</gpu>") + 6], "xml")
    assert [gpu["index"] for gpu in reading["gpus"]] == [None]


@pytest.mark.parametrize("name", ["R&D/run", "a <b> c", "x\x01y", "\ud800", 'a "q" b'])
def test_a_process_name_that_breaks_the_xml_costs_no_gpu(name):
    text = xml(xml_gpu(processes=f"<processes>{info(name=name)}</processes>"), xml_gpu(bus="00000000:02:00.0"), attached=2)
    reading = read(text, "xml")
    assert [gpu["index"] for gpu in reading["gpus"]] == [0, 1]
    assert [row["name"] for row in reading["processes"]] == [name]
    assert (reading["process_list"], reading["errors"]) == ("listed", [])


def test_escaped_names_are_unescaped_also_in_a_broken_log():
    name = "a &amp;&lt;b&gt; &quot;c&quot;"
    whole = xml(xml_gpu(processes=f"<processes>{info(name=name)}</processes>"))
    for text in (whole, whole.replace("NVIDIA A100", "NVIDIA & A100"), whole.replace("</nvidia_smi_log>", "")):
        assert [row["name"] for row in read(text, "xml")["processes"]] == ['a &<b> "c"']


def test_a_message_between_the_elements_is_found():
    lost = "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.\n"
    reading = read(xml(xml_gpu(), lost, attached=2), "xml")
    assert errors(reading) == {("gpu_lost", "00000000:02:00.0", None)}
    assert [gpu["index"] for gpu in reading["gpus"]] == [None]


def test_no_doctype_is_fetched_and_no_entity_is_expanded():
    bomb = '<!DOCTYPE nvidia_smi_log SYSTEM "file:///etc/passwd" [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n'
    body = xml(xml_gpu()).split("\n", 2)[2]
    assert read(bomb + body, "xml")["gpus"] == read(body, "xml")["gpus"] != []
    named = read(bomb + body.replace("NVIDIA A100", "NVIDIA &b;"), "xml")
    assert named["gpus"][0]["name"] == "NVIDIA &b;"


# -- list (rule 9) --------------------------------------------------------------------------------------------------


def test_an_old_mig_uuid_tells_the_ids_and_a_new_one_does_not():
    old = f"MIG-{UUID}/7/0"
    new = "MIG-14a182a6-55c0-f1e9-b4eb-336795a5a8fb"
    lines = [
        f"GPU 0: A100-SXM4-40GB (UUID: {UUID})",
        f"  MIG 1g.5gb      Device  0: (UUID: {old})",
        f"  MIG 1c.3g.40gb+me Device  1: (UUID: {new})",
        f"GPU 1: Tesla C2050 / C2070 (UUID: {OTHER_UUID})",
    ]
    reading = read("\n".join(lines), "list_gpus")
    assert [(gpu["index"], gpu["name"], gpu["mig_mode"]) for gpu in reading["gpus"]] == [
        (0, "A100-SXM4-40GB", "Enabled"),
        (1, "Tesla C2050 / C2070", None),
    ]
    found = [
        (d["index"], d["profile"], d["uuid"], d["gpu_instance_id"], d["compute_instance_id"]) for d in reading["mig_devices"]
    ]
    assert found == [(0, "1g.5gb", old, 7, 0), (1, "1c.3g.40gb+me", new, None, None)]
    assert {d["parent_uuid"] for d in reading["mig_devices"]} == {UUID}


def test_a_listed_gpu_that_cannot_say_who_it_is_has_an_error():
    reading = read(f"GPU 0: Unknown Error (UUID: {UUID})\nGPU 1: NVIDIA A100 (UUID: ERR!)\n", "list_gpus")
    assert [(gpu["name"], gpu["uuid"], gpu["health"]) for gpu in reading["gpus"]] == [
        (None, UUID, "error"),
        ("NVIDIA A100", None, "error"),
    ]
    assert errors(reading) == {("field_error", None, 0), ("field_error", None, 1)}


def test_a_line_of_the_list_that_is_cut_off_gives_no_gpu():
    reading = read(f"GPU 0: NVIDIA A100 (UUID: {UUID})\nGPU 1: NVIDIA A100 (UUID: GPU-c550b3b9-a0", "list_gpus")
    assert [gpu["index"] for gpu in reading["gpus"]] == [0]
    assert errors(reading) == {("truncated", None, None)}


# -- table (rules 6, 7, 8, 11, 14, 15, 20) --------------------------------------------------------------------------


def test_a_card_of_a_table_is_read_by_its_header():
    gpu = read(table(card(mode="E. Process", mig="Enabled*", load="N/A")), "table")["gpus"][0]
    assert gpu == {
        **NOTHING_KNOWN,
        **{"index": 0, "name": "NVIDIA A100", "bus_id": "00000000:01:00.0", "memory_total_mib": 97887, "memory_used_mib": 10},
        **{"compute_mode": "Exclusive_Process", "mig_mode": "Enabled", "driver_version": "550.54.15", "health": "ok"},
    }


@pytest.mark.parametrize(
    ("printed", "mode"),
    [("E. Process", "Exclusive_Process"), ("E. Thread", "Exclusive_Thread"), ("Prohibited", "Prohibited"), ("N/A", None)],
)
def test_compute_modes_of_tables_are_spelled_out(printed, mode):
    assert read(table(card(mode=printed)), "table")["gpus"][0]["compute_mode"] == mode


@pytest.mark.parametrize("beside", ["On", "Off", "WDDM", "TCC", "MCDM", "N/A"])
def test_the_mode_beside_a_name_is_not_part_of_it(beside):
    assert read(table(card(beside=beside, name="NVIDIA RTX PRO 6000 Blac...")), "table")["gpus"][0]["name"] == (
        "NVIDIA RTX PRO 6000 Blac..."
    )


@pytest.mark.parametrize(
    ("words", "health"),
    [
        ({"name": "ERR!"}, "error"),
        ({"load": "ERR!"}, "error"),
        ({"fan": "ERR!"}, "degraded"),
        ({"temp": "ERR!"}, "degraded"),
        ({"power": "ERR! / 250W"}, "degraded"),
        ({"ecc": "ERR!"}, "degraded"),
        ({"mig": "ERR!"}, "degraded"),
        ({"beside": "ERR!"}, "degraded"),
        ({"memory": "GPU requires reset", "fan": "ERR!"}, "needs_reset"),
    ],
)
def test_err_in_a_sensor_degrades_and_in_name_or_utilisation_is_an_error(words, health):
    reading = read(table(card(**words), card(index=1, bus="02")), "table")
    assert [gpu["health"] for gpu in reading["gpus"]] == [health, "ok"]
    assert ("field_error", "00000000:01:00.0", 0) in errors(reading)
    assert kinds(reading).count("field_error") == 1
    if "memory" not in words:
        assert reading["gpus"][0]["memory_used_mib"] == 10


@pytest.mark.parametrize("memory", ["Not Supported", "N/A", "N/A / N/A"])
def test_memory_that_is_not_printed_is_null(memory):
    gpu = read(table(card(memory=memory)), "table")["gpus"][0]
    assert (gpu["memory_total_mib"], gpu["memory_used_mib"], gpu["health"]) == (None, None, "ok")


def test_of_a_pair_of_amounts_each_is_kept_for_itself():
    first, second = read(table(card(memory="N/A /  97887MiB"), card(memory="10MiB /  ERR!")), "table")["gpus"]
    assert (first["memory_used_mib"], first["memory_total_mib"]) == (None, 97887)
    assert (second["memory_used_mib"], second["memory_total_mib"], second["health"]) == (10, None, "degraded")


NARROW = """\
+------------------------------------------------------+
| NVIDIA-SMI 331.62     Driver Version: 331.62         |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  GeForce GTX 680     Off  | 0000:03:00.0     N/A |                  N/A |
| 30%   35C  N/A     N/A /  N/A |        9MB /  4095MB |     N/A      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Compute processes:                                               GPU Memory |
|  GPU       PID  Process name                                     Usage      |
|=============================================================================|
|    0            Not Supported                                               |
|    0      1813  /usr/bin/X -a  b                                    293MiB  |
+-----------------------------------------------------------------------------+
"""


def test_a_narrow_table_of_an_old_driver_is_read():
    reading = read(NARROW, "table")
    assert reading["gpus"] == [
        {
            **NOTHING_KNOWN,
            **{"index": 0, "name": "GeForce GTX 680", "bus_id": "00000000:03:00.0", "memory_total_mib": 4095},
            **{"memory_used_mib": 9, "compute_mode": "Default", "driver_version": "331.62", "health": "ok"},
        }
    ]
    assert reading["processes"] == [process(1813, "/usr/bin/X -a  b", 293, gpu_index=0)]
    assert (reading["process_list"], reading["errors"]) == ("partial", [])


def test_rows_of_the_process_panel_are_read_with_or_without_instances():
    rows = [
        "    0   N/A  N/A          297682      C   VLLM::EngineCore                       9756MiB ",
        "    0    3    0             1234    C+G   C:\\Program Files\\x | y.exe                N/A      ",
        "    1   N/A  N/A              36    M+C   Insufficient Permissions                N/A      ",
        "    1   N/A  N/A              37      G   [Not Found]                               12MiB ",
    ]
    reading = read(table(rows="\n".join(map(process_row, rows))), "table")
    assert reading["processes"] == [
        process(297682, "VLLM::EngineCore", 9756, gpu_index=0, type="C"),
        process(1234, "C:\\Program Files\\x | y.exe", None, gpu_index=0, type="C+G"),
        process(36, None, None, gpu_index=1),
        process(37, None, 12, gpu_index=1, type="G"),
    ]
    assert (reading["process_list"], reading["errors"]) == ("listed", [])


def test_a_row_without_pid_is_an_error_of_its_card():
    rows = [
        "    0   N/A  N/A            ERR!      C   python                                    5MiB ",
        "    0   N/A  N/A              42      C   python                                    5MiB ",
    ]
    reading = read(table(rows="\n".join(map(process_row, rows))), "table")
    assert (reading["process_list"], [row["pid"] for row in reading["processes"]]) == ("partial", [42])
    assert errors(reading) == {("field_error", "00000000:01:00.0", 0)}


def test_a_panel_must_say_that_nothing_runs():
    assert read(table(), "table")["process_list"] == "none"
    assert read(table(rows=""), "table")["process_list"] == "unknown"
    assert read(table(rows=None), "table")["process_list"] == "unknown"


def test_a_panel_without_its_lower_border_is_not_all_of_it():
    row = process_row("    0   N/A  N/A              42      C   python                                    5MiB ")
    whole = table(rows=row)
    cut = read(whole[: whole.rindex("+---")].rstrip("+-\n"), "table")
    assert (cut["process_list"], [row["pid"] for row in cut["processes"]]) == ("unknown", [42])


MIG_PANEL = """
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
{rows}
+-----------------------------------------------------------------------------------------+
"""


def test_mig_devices_of_a_table_belong_to_their_card():
    rows = (
        "|  0   11   2   5  |             142MiB / 20096MiB    | 56      0 |  4   0    2    0    0 |\n"
        "|                  |               0MiB / 12211MiB    |           |                       |"
    )
    reading = read(table(card(mig="Enabled"), panels=MIG_PANEL.format(rows=rows)), "table")
    assert reading["mig_devices"] == [
        {
            **{"parent_bus_id": "00000000:01:00.0", "parent_uuid": None, "index": 5, "gpu_instance_id": 11},
            **{"compute_instance_id": 2, "uuid": None, "profile": None, "memory_total_mib": 20096, "memory_used_mib": 142},
        }
    ]
    assert (reading["process_list"], len(reading["gpus"])) == ("none", 1)
    none = "|  No MIG devices found                                                                   |"
    assert "mig_devices" not in read(table(panels=MIG_PANEL.format(rows=none)), "table")


def test_cards_are_read_even_where_the_header_was_left_out():
    rows = "\n".join(line for line in card(index=3).split("\n") if "|" in line)
    gpu = read(rows, "table")["gpus"][0]
    assert (gpu["index"], gpu["memory_used_mib"], gpu["utilization_gpu_pct"]) == (3, 10, 3)


def test_a_gpu_that_is_gone_leaves_the_other_indexes_alone():
    text = "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n" + table(
        card(), card(index=2, bus="ac")
    )
    reading = read(text, "table")
    assert [gpu["index"] for gpu in reading["gpus"]] == [0, 2]
    assert errors(reading) == {("device_handle_error", "00000000:34:00.0", 1)}
    assert reading["process_list"] == "none"


# -- topology (rule 22) ---------------------------------------------------------------------------------------------


def test_network_cards_and_missing_columns_do_not_disturb_the_topology():
    text = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV12\tPIX\t0-11\nGPU1\tNV12\t X \tNODE\t\nmlx5_0\tPIX\tNODE\t X \t\n"
    assert read(text, "topo")["topology"] == {
        "gpu_count": 2,
        "pairs": {"0-1": "NV12"},
        "cpu_affinity": {"0": "0-11", "1": None},
        "numa_affinity": {"0": None, "1": None},
        "closest_pairs": ["0-1"],
    }


def test_a_topology_with_spaces_and_lost_escape_characters_is_read():
    text = "  [4mGPU0   GPU2   NIC0   CPU Affinity   NUMA Affinity   GPU NUMA ID[0m\n"
    text += "GPU0    X     SYS    PIX    0-27,56-83     0-1    N/A\nGPU2   SYS     X     NODE   N/A   N/A   N/A\n"
    assert read(text, "topo")["topology"] == {
        "gpu_count": 2,
        "pairs": {"0-2": "SYS"},
        "cpu_affinity": {"0": "0-27,56-83", "2": None},
        "numa_affinity": {"0": "0-1", "2": None},
        "closest_pairs": ["0-2"],
    }


@pytest.mark.parametrize(
    ("first", "second", "closest"),
    [
        *(("NV4", "NV12", "0-2"), ("NV2", "PIX", "0-1"), ("PXB", "PIX", "0-2"), ("PXB", "PHB", "0-1")),
        *(("NODE", "PHB", "0-2"), ("NODE", "SYS", "0-1"), ("SYS", "WHAT", "0-1")),
    ],
)
def test_closeness_goes_by_class_and_more_links_are_closer(first, second, closest):
    rows = f"GPU0\t X \t{first}\t{second}\nGPU1\t{first}\t X \tODD\nGPU2\t{second}\tODD\t X \n"
    topology = read("\tGPU0\tGPU1\tGPU2\n" + rows, "topo")["topology"]
    assert (topology["closest_pairs"], topology["pairs"]["1-2"]) == ([closest], "ODD")


def test_a_topology_that_is_cut_off_says_so_and_gives_what_is_there():
    reading = read("\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tPHB\tSYS\t0-3\n", "topo")
    assert reading["topology"]["pairs"] == {"0-1": "PHB", "0-2": "SYS"}
    assert reading["topology"]["cpu_affinity"] == {"0": "0-3", "1": None, "2": None}
    assert errors(reading) == {("truncated", None, None)}


def test_no_matrix_is_no_gpu():
    assert read("No devices were found\n", "topo")["topology"] == {
        **{"gpu_count": 0, "pairs": {}, "cpu_affinity": {}, "numa_affinity": {}, "closest_pairs": []},
    }


# -- reset (rule 23) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "ok", "reason"),
    [
        ("GPU 00000000:1A:00.0 was successfully reset.", True, None),
        ("  GPU 00000000:1A:00.0: In use by another client", False, "in_use"),
        ("GPU 00000000:1A:00.0 is currently in use by another process.", False, "in_use"),
        ("  GPU 00000000:1A:00.0: Not Supported", False, "not_supported"),
        ("Resetting GPU 00000000:1A:00.0 is not supported.", False, "not_supported"),
        ("GPU Reset couldn't run because GPU 0000:1a:00.0 is the primary GPU.", False, "primary_gpu"),
        ("  GPU 00000000:1A:00.0: Unknown Error", False, None),
    ],
)
def test_a_line_with_bus_id_and_verdict_is_one_entry(line, ok, reason):
    sums = "\n1 device is currently being used by one or more other processes (e.g., Fabric Manager). Not Supported.\nAll done.\n"
    reading = read(line + sums, "gpu_reset")
    assert reading["resets"] == [{"bus_id": "00000000:1A:00.0", "ok": ok, "reason": reason}]
    assert errors(reading) == ({(f"reset_{reason}", "00000000:1A:00.0", None)} if reason else set())


def test_each_card_of_a_reset_has_its_own_verdict():
    text = "GPU 00000000:1A:00.0 was successfully reset.\nThe following GPUs could not be reset:\n"
    text += "  GPU 00000000:1B:00.0: In use by another client\n  GPU 00000000:1C:00.0: Not Supported\n"
    assert [(entry["bus_id"][9:11], entry["ok"], entry["reason"]) for entry in read(text, "gpu_reset")["resets"]] == [
        *(("1A", True, None), ("1B", False, "in_use"), ("1C", False, "not_supported")),
    ]


# -- kernel log (rule 21) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix", ["", "[12.5] ", "Sep 23 18:37:03 node01 kernel: [   34.1] ", "kern  :warn  : 2025-01-21T04:41:44,2+00:00 "]
)
@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout", (119, 2024380, "nvidia-smi")),
        ("NVRM: Xid (0000:9b:00): 31, Ch 0000003a, engmask 00000101", (31, None, None)),
        ("NVRM: Xid (PCI:0000:9b:00 GPU-I:05): 94, pid='7194', name='a b', Contained", (94, 7194, "a b")),
        ("NVRM: Xid (PCI:0000:9b:00): 43, pid=2924364, Ch 00000008", (43, 2924364, None)),
        ("NVRM: Xid (PCI:0000:9b:00): 13, pid='<unknown>', name=python3.10, x", (13, None, "python3.10")),
        ("NVRM: Xid (PCI:0000:9b:00): 13, pid=5, name=<unknown>, x", (13, 5, None)),
    ],
)
def test_an_xid_line_is_one_event(prefix, line, event):
    reading = read(f"{prefix}{line}\n", "kernel_log")
    xid, pid, name = event
    assert reading["kernel_events"] == [{"bus_id": "00000000:9B:00.0", "xid": xid, "pid": pid, "process": name}]
    assert reading["errors"] == []


def test_lines_of_switches_and_of_others_are_no_events():
    text = "nvidia-nvswitch0: SXid (PCI:0000:09:00.0): 12028, Non-fatal\npcieport 0000:00:01.1: Link Down\n"
    assert read(text, "kernel_log") == {
        **{"gpus": [], "processes": [], "process_list": None, "errors": [], "kernel_events": []},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n" * 2, {("gpu_lost", "00000000:01:00.0", None)}),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n", {("gpu_lost", "00000000:01:00.0", None)}),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0\npcieport 0000:00:01.1: x\n"
            "NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.\nNVRM: GPU 0000:c4:00.0: fine\n",
            {("gpu_lost", "00000000:B3:00.0", None)},
        ),
        (
            "NVRM: GPU at PCI:0000:b3:00 has fallen\nNVRM: off the bus. See GPU 0000:c4:00.0\n",
            {("gpu_lost", "00000000:B3:00.0", None)},
        ),
        ("nvidia 0000:01:00.0: GPU has fallen off the bus.\n", {("gpu_lost", "00000000:01:00.0", None)}),
        ("xhci_hcd 0000:01:00.0: controller has fallen off the bus\n", set()),
        ("NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, something else\n", set()),
        (
            "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n",
            {("needs_reset", "00000000:01:00.0", None)},
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)\n",
            set(),
        ),
        ("NVRM: Xid (PCI:0000:01:00): 95, Uncontained. RST: Yes, D-RST: No\n", {("needs_reset", "00000000:01:00.0", None)}),
        ("NVRM: Xid (PCI:0000:01:00): 94, Contained. RST: No, D-RST: Yes\n", {("needs_reset", "00000000:01:00.0", None)}),
        ("NVRM: Xid (PCI:0000:01:00): 94, Contained. RST: No, D-RST: No\n", set()),
        (
            "NVRM: Xid (PCI:0000:01:00): 63, page retired, reboot to activate (0x2).\n",
            {("needs_reset", "00000000:01:00.0", None)},
        ),
        ("NVRM: Rate limiting for GPU at PCI:0000:9b:00.  The GPU likely needs to be reset.\n", set()),
    ],
)
def test_errors_of_the_kernel_log_come_from_plain_statements_only(text, expected):
    reading = read(text, "kernel_log")
    assert errors(reading) == expected
    assert len(reading["errors"]) == len(expected)


# -- damaged and hostile texts --------------------------------------------------------------------------------------

FRAGMENTS = [
    *("|", "+---", "|===|", "\n", "\n\n", ", ", ",", "\t", " ", "[N/A]", "ERR!", "[Unknown Error]", "GPU requires reset", "MiB"),
    *("<nvidia_smi_log>", "</nvidia_smi_log>", "<gpu id='0000:01:00.0'>", "</gpu>", "<processes>", "<process_name>", "<", "&x;"),
    *("NVRM: Xid (PCI:0000:01:00): 79, pid=1", " fallen off the bus", "GPU0", "GPU 0: a (UUID: ", "\x1b[4m", "\x00", "\ud800"),
    *("| Processes:", "| GPU Name | Bus-Id |", "No devices were found", "Failed to initialize NVML: ", "0000:01:00.0", "0, 1, 2"),
]


LINES = sorted({line for text in TEXTS.values() for line in text.split("\n")})
ANY_TEXT = st.one_of(
    st.text(),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=5))).map("".join),
    st.lists(st.one_of(st.sampled_from(LINES), st.sampled_from(FRAGMENTS))).map("\n".join),
)


@pytest.mark.parametrize("form", FORMATS)
@given(text=ANY_TEXT)
@settings(max_examples=300)
def test_any_text_gives_the_schema_and_never_raises(form, text):
    for header in (True, False):
        check_schema(read(text, form, header=header), form)


@pytest.mark.parametrize("form", FORMATS)
def test_the_text_of_any_other_format_gives_the_schema(form):
    for text in TEXTS.values():
        check_schema(read(text, form), form)
        check_schema(read(text, form, fields=["name"], header=False), form)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_cut_anywhere_gives_the_schema_and_no_value_that_is_not_in_it(name):
    sample, data = SAMPLES[name], TEXTS[name].encode("utf-8")
    form = sample["input"]["format"]
    for end in range(0, len(data), max(1, len(data) // 200)):
        reading = read_nvidia_smi(data[:end].decode("utf-8", "replace"), sample["input"])
        check_schema(reading, form)
        if form in ("xml", "table", "list_gpus"):
            for found, whole in zip(reading["gpus"], sample["gpus"]):
                assert all(found[key] in (None, whole[key]) for key in whole if key != "health")
            assert reading["processes"] == sample["processes"][: len(reading["processes"])]
        if form == "xml" and end:
            assert reading["process_list"] == "unknown"
        if form in ("table", "message"):
            assert reading["process_list"] in ("unknown", sample["process_list"])


HOSTILE = {
    "digits": "1" * 200_000,
    "unended colours": "\x1b[" + "0" * 200_000,
    "window titles": "\x1b]" * 100_000,
    "opening tags": "<nvidia_smi_log>" + "<gpu>" * 40_000,
    "deep tags": "<nvidia_smi_log><gpu>" + "<a>" * 50_000 + "</b>" * 50_000 + "</gpu></nvidia_smi_log>",
    "deep well-formed tags": "<nvidia_smi_log><gpu>" + "<a>" * 50_000 + "ERR!" + "</a>" * 50_000 + "</gpu></nvidia_smi_log>",
    "a tag without end": "<nvidia_smi_log><gpu><" + "a" * 200_000 + "</gpu></nvidia_smi_log>",
    "names without end": "<nvidia_smi_log><gpu>" + "<process_name>" * 20_000 + "</gpu></nvidia_smi_log>",
    "commas": ", " * 100_000,
    "bars": "|\n" * 50_000,
    "spaces in a row": "| Processes: |\n|===|\n|  0  1 C" + " " * 100_000 + "x |\n",
    "cards": "|===|\n" + "|  0 a | 0000:01:00.0 | c |\n" * 5_000,
    "bus ids": "0000:00:00:" * 20_000,
    "xid heads": "NVRM: Xid (" * 20_000,
    "recovery actions": "NVRM: Xid (PCI:0000:01:00): 154," + " recovery action changed from" * 10_000,
    "handles": "Unable to determine the device handle for" * 5_000,
    "a handle far away": "Unable to determine the device handle for" + " " * 200_000 + "0000:01:00.0",
    "field names": "Field " * 20_000,
    "uuids": "GPU 0: " + "(UUID:" * 30_000,
    "columns": "\t".join(f"GPU{i}" for i in range(20_000)),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_read_in_one_pass(text):
    # Not timed: with quadratic work one of these would take minutes.
    for form in FORMATS:
        assert read(text, form)["errors"] is not None


# -- the filter -----------------------------------------------------------------------------------------------------


def gpus_filter(value, *args, **words):
    """The filter, with the tagged values that Ansible hands out."""
    spec = importlib.util.spec_from_file_location("nvidia_smi_gpus", worlds.ROOT / "filter_plugins" / "nvidia_smi_gpus.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loader = DataLoader()
    handed = {k: loader.load(json.dumps(v), json_only=True) if isinstance(v, list) else v for k, v in words.items()}
    return module.FilterModule().filters()["nvidia_smi_gpus"](value, *args, **handed)


def test_the_filter_gives_the_gpus_of_a_query():
    gpus = gpus_filter("index, memory.used [MiB]\n0, 5 MiB\n", fields=["index", "memory.used"])
    assert gpus == [{**NOTHING_KNOWN, "index": 0, "memory_used_mib": 5, "health": "ok"}]
    assert gpus_filter("0, 5\n", fields=["index", "memory.used"], header=False, units=False) == gpus
    assert_plain(gpus)


def test_the_filter_reads_the_other_formats_that_list_gpus():
    for name, form in (("xml-590-2x2080", "xml"), ("list-590-h100-mig", "list_gpus"), ("table-550-wsl", "table")):
        full = next(key for key in SAMPLES if key.startswith(name))
        assert gpus_filter(TEXTS[full], format=form) == SAMPLES[full]["gpus"]


@pytest.mark.parametrize(
    ("value", "words", "message"),
    [
        ({"stdout": ""}, {}, "reads text, not dict: pass the .stdout of the command"),
        (None, {}, "reads text, not NoneType"),
        ("", {}, "needs the key fields: the list of fields asked for, in their order"),
        ("", {"fields": "index,uuid"}, "needs the key fields"),
        ("", {"format": "topo"}, "GPUs are listed by query_gpu_csv, xml, list_gpus, table"),
        ("", {"fields": ["index"], "header": "no"}, "header must be true or false"),
    ],
)
def test_the_filter_says_what_to_pass(value, words, message):
    with pytest.raises(AnsibleFilterError, match=re.escape(message)):
        gpus_filter(value, **words)
