from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.survey import read_hy_smi, read_nvidia_smi, read_rocm_smi
from harness import ROOT, until
from simulators import hy_smi, nvidia_smi, nvidia_table, rocm_smi
from simulators.engine.settings import USUAL
from simulators.faults import FAULTS
from simulators.install import MACHINES, install

FIXTURES = ROOT / "tests/fixtures"
XML = ["-q", "-x"]
CARDS = ["--showproductname", "--showdriverversion", "--showmeminfo", "vram", "--showuse", "--showbus", "--showuniqueid"]
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
ONE_CARD = (0, "00000000:01:00.0")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = install(tmp_path_factory.mktemp("sim") / name, name, python=PYTHON)
        made[name].reset()
        return made[name]

    return get


@pytest.fixture
def two(installed):
    return installed("2x4090")


@pytest.fixture
def dcus(installed):
    return installed("8xk100ai")


def call(sim, *arguments, **options):
    tool = {"nvidia": "nvidia-smi", "hygon": "hy-smi", "amd": "rocm-smi"}[sim.machine["vendor"]]
    return subprocess.run([str(sim.bin / tool), *arguments], capture_output=True, check=False, timeout=20, **options)


def output(sim, *arguments):
    """As `call`, but in this process, for speed: what the tool prints."""
    tool = {"nvidia": nvidia_smi, "hygon": hy_smi, "amd": rocm_smi}[sim.machine["vendor"]]
    written = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(written):
        tool.main(arguments, sim.root)
    return written.buffer.getvalue().decode("utf-8", "surrogateescape")


def xml(sim):
    return read_nvidia_smi(output(sim, *XML), {"format": "xml"})


def table(sim):
    return read_nvidia_smi(output(sim), {"format": "table"})


def csv(sim, fields, *options):
    text = output(sim, f"--query-gpu={fields}", f"--format={','.join(['csv', *options])}")
    request = {"format": "query_gpu_csv", "fields": fields.split(","), "header": "noheader" not in options}
    return read_nvidia_smi(text, {**request, "units": "nounits" not in options})


def apps(sim, *options):
    fields = "gpu_uuid,pid,process_name,used_memory"
    text = output(sim, f"--query-compute-apps={fields}", f"--format={','.join(['csv', *options])}")
    request = {"format": "compute_apps_csv", "fields": fields.split(","), "header": "noheader" not in options}
    return read_nvidia_smi(text, {**request, "units": "nounits" not in options})


def dcu(sim, *arguments):
    return read_hy_smi(output(sim, *arguments), "hy-smi " + " ".join(arguments))


def kinds(found):
    return {(error["kind"], error["gpu_index"], error["bus_id"]) for error in found["errors"]}


def health(found):
    return [gpu["health"] for gpu in found["gpus"]]


def used(found):
    return [gpu["memory_used_mib"] for gpu in found["gpus"]]


@contextlib.contextmanager
def holding(sim, *files, name=None):
    """A process that has files of the simulated machine open."""
    code = "import sys, time; files = [open(p) for p in sys.argv[1:]]; print('open', flush=True); time.sleep(100)"
    paths = [str(sim.root / file) for file in files]
    process = subprocess.Popen([name or sys.executable, "-c", code, *paths], executable=sys.executable, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"open\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("name", ["1x4090", "2x4090", "8x4090"])
def test_every_form_names_the_cards_of_an_nvidia_machine(installed, name):
    sim = installed(name)
    cards = sim.machine["cards"]
    total = sim.machine["card"]["total_mib"]
    long_ids = ["0000" + card["bus_id"].upper() for card in cards]

    log = read_nvidia_smi(call(sim, *XML).stdout.decode(), {"format": "xml"})
    assert [gpu["minor_number"] for gpu in log["gpus"]] == [card["minor"] for card in cards]
    rows = csv(sim, "index,uuid,name,pci.bus_id,memory.total,memory.used,utilization.gpu,driver_version,compute_cap")
    bare = csv(sim, "index,uuid,name,gpu_bus_id,memory.total,memory.used,utilization.gpu", "noheader", "nounits")
    for found in (log, table(sim), rows, bare):
        assert [gpu["index"] for gpu in found["gpus"]] == list(range(len(cards)))
        assert [gpu["bus_id"] for gpu in found["gpus"]] == long_ids
        assert {(gpu["memory_total_mib"], gpu["memory_used_mib"]) for gpu in found["gpus"]} == {(total, 4)}
        assert {(gpu["name"], gpu["utilization_gpu_pct"]) for gpu in found["gpus"]} == {("NVIDIA GeForce RTX 4090", 0)}
        assert health(found) == ["ok"] * len(cards)
        assert found["errors"] == []
    listed = read_nvidia_smi(output(sim, "-L"), {"format": "list_gpus"})
    for found in (log, rows, bare, listed):
        assert [gpu["uuid"] for gpu in found["gpus"]] == [card["uuid"] for card in cards]
    assert {found["process_list"] for found in (log, table(sim), apps(sim), apps(sim, "noheader"))} == {"none"}


def test_machines_differ_in_their_identities(tmp_path, two):
    other = install(tmp_path / "other", "2x4090", seed="another", python=PYTHON)
    assert len({card["uuid"] for sim in (other, two) for card in sim.machine["cards"]}) == 4


def test_the_minor_numbers_of_eight_cards_are_not_in_order(installed):
    sim = installed("8x4090")
    first = sim.machine["cards"][0]
    assert first["minor"] == 2
    information = (sim.root / f"proc/driver/nvidia/gpus/{first['bus_id']}/information").read_text()
    assert "Device Minor: \t 2\n" in information
    assert first["uuid"] in information


@pytest.mark.parametrize("options", [CARDS, [*CARDS, "--json"]])
def test_hy_smi_names_all_cards(dcus, options):
    found = read_hy_smi(call(dcus, *options).stdout.decode(), "hy-smi")
    cards = dcus.machine["cards"]
    assert [device["index"] for device in found["devices"]] == list(range(8))
    assert [device["bus_id"] for device in found["devices"]] == [card["bus_id"] for card in cards]
    assert [device["unique_id"] for device in found["devices"]] == [card["uuid"] for card in cards]
    assert {(d["name"], d["memory_total_mib"], d["memory_used_mib"], d["utilization_gpu_pct"]) for d in found["devices"]} == {
        ("K100_AI", 65520, 2, 0.0)
    }
    assert (found["driver_version"], found["errors"], found["processes"]) == ("6.3.13-V1.12.0a", [], [])


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("--showproductname", "name", "K100_AI"),
        ("--showmeminfo vram", "memory_total_mib", 65520),
        ("--showmemuse", "memory_used_pct", 0.0),
        ("--showuse", "utilization_gpu_pct", 0.0),
        ("--showbus", "bus_id", "0000:05:00.0"),
        ("--showpower", "power_w", 106.0),
        ("--showtemp", "temperature_c", 35.0),
        ("", "perf_mode", "auto"),
    ],
)
def test_hy_smi_answers_each_option_alone(dcus, option, field, value):
    found = dcu(dcus, *option.split())
    assert len(found["devices"]) == 8
    assert found["devices"][0][field] == value
    assert found["errors"] == []


def test_rocm_smi_names_all_cards(installed):
    sim = installed("4xmi300x")
    for options in ([], CARDS, [*CARDS, "--json"]):
        found = read_rocm_smi(call(sim, *options).stdout.decode(), "rocm-smi")
        assert [device["index"] for device in found["devices"]] == [0, 1, 2, 3]
        assert found["errors"] == []
        if options:
            assert [device["bus_id"] for device in found["devices"]] == [card["bus_id"] for card in sim.machine["cards"]]
            assert {(device["memory_total_mib"], device["memory_used_mib"]) for device in found["devices"]} == {(196592, 284)}
    assert read_rocm_smi(output(sim, "--showpids", "--showpidgpus"), "rocm-smi --showpids")["processes"] == []
    with holding(sim, "dev/kfd", "dev/dri/renderD129") as holder:
        for options in (["--showpids"], ["--showpids", "--json"]):
            (process,) = read_rocm_smi(output(sim, *options), "rocm-smi " + " ".join(options))["processes"]
            assert (process["pid"], process["used_memory_mib"]) == (holder.pid, 14000)
        (process,) = read_rocm_smi(output(sim, "--showpids", "--showpidgpus"), "rocm-smi --showpids --showpidgpus")["processes"]
        assert (process["pid"], process["device_indices"]) == (holder.pid, [1])


def test_a_machine_without_cards_has_no_tool(installed):
    sim = installed("none")
    assert [tool.name for tool in sim.bin.iterdir()] == ["simctl"]
    assert [file.name for file in (sim.root / "dev").iterdir()] == ["kmsg"]
    vendors = [file.read_text().strip() for file in sim.root.glob("sys/bus/pci/devices/*/vendor")]
    assert vendors == ["0x1a03"]


def test_memory_follows_the_processes_of_an_nvidia_card(installed):
    sim = installed("8x4090")
    with holding(sim, "dev/nvidiactl", "dev/nvidia3", name="VLLM::Worker_TP0") as holder:
        assert used(xml(sim)) == [4, 14004, 4, 4, 4, 4, 4, 4]
        for found in (xml(sim), table(sim), apps(sim), apps(sim, "noheader", "nounits")):
            (process,) = found["processes"]
            assert (process["pid"], process["name"], process["used_memory_mib"]) == (holder.pid, "VLLM::Worker_TP0", 14000)
            assert process["gpu_index"] in (1, None)
            assert process["gpu_uuid"] in (sim.machine["cards"][1]["uuid"], None)
            assert found["process_list"] == "listed"
        sim.memory(holder.pid, 9000)
        assert used(table(sim))[1] == 9004
        sim.memory(holder.pid, 0, card=1)
        assert (used(xml(sim))[1], xml(sim)["process_list"]) == (4, "none")
        sim.memory(holder.pid, None)
        assert used(xml(sim))[1] == 14004
    assert (used(xml(sim))[1], xml(sim)["process_list"]) == (4, "none")


def test_who_holds_the_control_file_alone_uses_nothing(two):
    with holding(two, "dev/nvidiactl", "dev/nvidia-uvm"):
        assert (used(xml(two)), xml(two)["processes"]) == ([4, 4], [])


def test_memory_follows_the_processes_of_a_dcu(dcus):
    with holding(dcus, "dev/kfd", "dev/dri/renderD129", "dev/dri/renderD131") as holder, holding(dcus, "dev/kfd") as looker:
        assert [device["memory_used_mib"] for device in dcu(dcus, *CARDS)["devices"]] == [2, 14002, 2, 14002, 2, 2, 2, 2]
        listed = {process["pid"]: process for process in dcu(dcus, "--showpids")["processes"]}
        assert set(listed) == {holder.pid, looker.pid}
        assert (listed[holder.pid]["device_indices"], listed[holder.pid]["used_memory_mib"]) == ([1, 3], 28000)
        assert (listed[looker.pid]["device_indices"], listed[looker.pid]["used_memory_mib"]) == ([], 0)
        assert dcu(dcus, "--showpids")["errors"] == []
    assert "No KFD PIDs currently running!" in output(dcus, "--showpids")
    assert dcu(dcus, "--showpids")["processes"] == []


def test_blocks_of_processes_read_as_the_captured_ones(dcus):
    sample = (FIXTURES / "hygon/showpids_one_bw.txt").read_text()
    with holding(dcus, "dev/dri/renderD128"):
        text = output(dcus, "--showpids")

    def shape(block):
        return re.sub(r"\d[\d:.a-f]*", "N", block[block.index("PID: ") :].split("\n\n")[0])

    assert shape(text) == shape(sample)


def test_a_process_whose_first_thread_has_ended_still_holds(two):
    number = {"x86_64": 60, "aarch64": 93}.get(platform.machine())
    if number is None:
        pytest.skip("the number of the system call exit is not known here")
    code = (
        "import ctypes, sys, threading, time; held = open(sys.argv[1]); threading.Thread(target=time.sleep, args=(100,)).start();"
        f"print('open', flush=True); ctypes.CDLL(None).syscall({number}, 0)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(two.root / "dev/nvidia0")], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        until(lambda: ") Z " in Path(f"/proc/{process.pid}/stat").read_text(), 5, "the first thread has ended")
        found = apps(two)
        assert [(row["pid"], row["name"]) for row in found["processes"]] == [(process.pid, None)]
        assert used(xml(two)) == [14004, 4]
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert used(xml(two)) == [4, 4]


def test_a_listed_process_need_not_exist(two):
    two.process(4194305, 2048, 1, name="python,3")
    assert [(row["pid"], row["name"]) for row in apps(two)["processes"]] == [(4194305, "python?3")]
    assert used(xml(two)) == [4, 2052]
    two.process(4194305, 0, 1)
    assert xml(two)["processes"] == []


@AS_ROOT
def test_character_nodes_are_told_apart_though_they_share_their_number(tmp_path):
    sim = install(tmp_path / "nodes", "2x4090", nodes=True, python=PYTHON)
    node = sim.root / "dev/nvidia1"
    assert node.is_char_device()
    try:
        node.open().close()
    except OSError:
        pytest.skip("no device nodes on this file system")
    with holding(sim, "dev/nvidia1"):
        assert used(xml(sim)) == [4, 14004]


def elements(node, path=""):
    for child in node:
        yield f"{path}/{child.tag}"
        yield from elements(child, f"{path}/{child.tag}")


@pytest.mark.parametrize("sample", ["xml-590-2x2080.xml", "xml-570-3060-deprecated-reset.xml"])
def test_the_log_has_the_elements_of_captured_ones_in_their_order(two, sample):
    captured = list(elements(ElementTree.parse(FIXTURES / "nvidia" / sample).getroot().find("gpu")))
    ours = list(elements(ElementTree.fromstring(output(two, *XML).partition("\n")[2]).find("gpu")))
    # What only these drivers print, or older cards: PDI (590), limits in degrees in place of distances to them.
    other = re.compile(r"/pdi|/temperature/.*threshold")
    missing = [path for path in captured if path not in ours and not other.match(path)]
    assert missing == []
    common = [path for path in captured if path in ours]
    assert [path for path in ours if path in common] == common


def test_the_rows_of_a_process_in_the_log_are_those_of_a_captured_one(two):
    captured = ElementTree.parse(FIXTURES / "nvidia/xml-550-empty-process-name.xml").getroot().find("gpu/processes/process_info")
    two.process(7, 982, 0, name="<a & b>")
    found = ElementTree.fromstring(output(two, *XML).partition("\n")[2]).find("gpu/processes/process_info")
    assert [child.tag for child in found] == [child.tag for child in captured]
    assert found.findtext("process_name") == "<a & b>"


def test_the_table_is_that_of_a_captured_one_to_the_column(installed):
    sample = (FIXTURES / "nvidia/table-580-4x4090-vllm.txt").read_text().splitlines()
    sim = installed("1x4090")
    sim.process(297682, 9756, 0, name="VLLM::EngineCore")
    lines = output(sim).splitlines()
    assert len({len(line) for line in lines[1:]}) == 1

    def same(ours, captured, *changed):
        for old, new in changed:
            captured = captured.replace(old, new)
        assert ours == captured

    same(lines[2], sample[2], ("580.126.18    ", "580.95.05     "))
    assert lines[3:8] == sample[3:8]
    same(lines[8], sample[8], ("4B:00", "01:00"))
    same(lines[9], sample[9], ("47%", "30%"), ("21429", " 9760"))
    assert lines[10] == sample[10]
    rows = [line for line in sample if "297682" in line]
    assert rows == [line for line in lines if "297682" in line]
    assert nvidia_table.process(1, 2, "/opt/" + "x" * 60, 5).index("...") == rows[0].index("VLLM")


def test_the_broken_row_of_the_table_looks_like_the_captured_one(two):
    two.set("field_error", card=1)
    sample = (FIXTURES / "nvidia/table-525-8xa40-one-err.txt").read_text()

    def shape(text):
        rows = [line.replace("|", " ").split() for line in text.splitlines() if "ERR!" in line]
        return [["N" if any(map(str.isdigit, word)) else word.replace("Off", "On") for word in row] for row in rows]

    assert shape(output(two)) == shape(sample)


@pytest.mark.parametrize(
    ("value", "expected", "listed"),
    [
        ("line", "gpu_lost", True),
        ("unknown_error", "device_handle_error", True),
        ("all", "gpu_lost", False),
    ],
)
def test_a_lost_card_is_missing_and_the_others_keep_their_index(two, value, expected, listed):
    two.set("lost", value, card=0)
    error = {(expected, None, "00000000:01:00.0")}
    assert kinds(table(two)) == kinds(xml(two)) == error
    assert [gpu["index"] for gpu in table(two)["gpus"]] == ([1] if listed else [])
    assert [gpu["index"] for gpu in csv(two, "index,uuid")["gpus"]] == ([1] if listed else [])
    # The log prints no index, and one of the cards that it counts is missing.
    assert [(gpu["index"], gpu["minor_number"]) for gpu in xml(two)["gpus"]] == ([(None, 1)] if listed else [])
    assert call(two).returncode == 15
    assert (two.root / "sys/bus/pci/devices/0000:01:00.0/vendor").exists()
    two.clear("lost")
    assert len(xml(two)["gpus"]) == 2


def test_a_card_that_was_lost_after_it_had_been_listed(two):
    two.set("lost", "fields", card=1)
    found = csv(two, "index,name,utilization.gpu,memory.used")
    assert ("gpu_lost", 1, "00000000:02:00.0") in kinds(xml(two))
    assert health(found) == health(xml(two)) == ["ok", "error"]
    assert used(found) == [4, None]


def test_a_card_that_is_gone_from_the_bus_comes_back(two):
    place = two.root / "sys/bus/pci/devices/0000:02:00.0"
    two.set("gone_from_bus", card=1)
    assert not os.path.lexists(place)
    assert not (two.root / "sys/devices/pci0000:00/0000:02:00.0").exists()
    assert kinds(xml(two)) == {("gpu_lost", None, "00000000:02:00.0")}
    two.clear()
    assert (place / "vendor").read_text() == "0x10de\n"
    assert [gpu["index"] for gpu in xml(two)["gpus"]] == [0, 1]


def test_a_card_that_was_not_there_at_boot_leaves_no_gap(two):
    two.set("absent", card=0)
    (card,) = xml(two)["gpus"]
    assert (card["index"], card["minor_number"], card["bus_id"]) == (0, 1, "00000000:02:00.0")
    assert [(gpu["index"], gpu["bus_id"]) for gpu in table(two)["gpus"]] == [(0, "00000000:02:00.0")]
    assert not (two.root / "dev/nvidia0").exists()


def test_a_dcu_that_is_lost_is_not_listed(dcus):
    dcus.set("gone_from_bus", card=2)
    assert [device["index"] for device in dcu(dcus, *CARDS)["devices"]] == [0, 1, 3, 4, 5, 6, 7]
    assert not os.path.lexists(dcus.root / "sys/class/drm/renderD130")
    assert not (dcus.root / "dev/dri/renderD130").exists()


def test_a_card_that_needs_a_reset(two):
    two.set("needs_reset", card=0)
    text = output(two, "--query-gpu=index,temperature.gpu,utilization.gpu,memory.used", "--format=csv")
    sample = (FIXTURES / "nvidia/csv-gpu-requires-reset.csv").read_text()
    assert text.splitlines()[:2] == sample.replace(" 0 MiB", " 4 MiB").splitlines()
    assert health(xml(two)) == ["needs_reset", "ok"]
    assert ("needs_reset", *ONE_CARD) in kinds(xml(two))
    assert health(csv(two, "index,gpu_recovery_action")) == ["needs_reset", "ok"]


@pytest.mark.parametrize(("value", "expected"), [("vital", "error"), ("sensor", "degraded")])
def test_fields_that_cannot_be_read(two, value, expected):
    two.set("field_error", value, card=0)
    for found in (xml(two), table(two), csv(two, "index,pci.bus_id,name,fan.speed,utilization.gpu")):
        assert health(found) == [expected, "ok"]
        assert kinds(found) == {("field_error", *ONE_CARD)}


def test_uncorrectable_errors_are_counted_and_no_fault_of_their_own(two):
    two.set("ecc", 3, card=1)
    text = output(two, *XML)
    assert text.count("<dram_uncorrectable>3<") == 2
    assert "<remapped_row_pending>Yes<" in text
    assert health(xml(two)) == ["ok", "ok"]


def test_memory_that_stays_without_a_process(two, dcus):
    two.set("memory_stays", 30000, card=0)
    assert (used(xml(two)), xml(two)["process_list"]) == ([30004, 4], "none")
    dcus.set("memory_stays")
    assert {device["memory_used_mib"] for device in dcu(dcus, *CARDS)["devices"]} == {30002}


def test_memory_that_comes_back_late(dcus):
    def on_first():
        return dcu(dcus, *CARDS)["devices"][0]["memory_used_mib"]

    dcus.set("late_release", 0.6, card=0)
    with holding(dcus, "dev/dri/renderD128") as holder:
        assert on_first() == 14002
    began = time.monotonic()
    assert on_first() == 14002
    assert holder.pid not in {row["pid"] for row in dcu(dcus, "--showpids")["processes"]}
    until(lambda: on_first() == 2, 10, "the memory is back")
    assert time.monotonic() - began >= 0.6


def test_a_stuck_utilisation_and_none_at_all(two, dcus):
    two.util(100, card=1)
    assert [gpu["utilization_gpu_pct"] for gpu in xml(two)["gpus"]] == [0, 100]
    two.set("util_na", card=1)
    for found in (xml(two), table(two), csv(two, "index,utilization.gpu")):
        assert [gpu["utilization_gpu_pct"] for gpu in found["gpus"]] == [0, None]
        assert found["errors"] == []
    dcus.set("util_na")
    for options in ([], CARDS, [*CARDS, "--json"]):
        assert {device["utilization_gpu_pct"] for device in dcu(dcus, *options)["devices"]} == {None}


def test_a_list_of_processes_that_nobody_can_give(two, dcus):
    with holding(two, "dev/nvidia0"):
        two.set("process_list_blank")
        for found in (xml(two), table(two)):
            assert (found["process_list"], found["processes"], used(found)) == ("unknown", [], [14004, 4])
    dcus.set("process_list_blank")
    assert {error["kind"] for error in dcu(dcus, "--showpids")["errors"]} == {"process_list_unavailable"}


@pytest.mark.parametrize(
    ("fault", "kind", "status", "sample"),
    [
        ("driver_not_loaded", "driver_not_loaded", 9, "err-driver-not-loaded.txt"),
        ("version_mismatch", "version_mismatch", 18, "err-version-mismatch-570.txt"),
        ("no_devices", "no_devices", 6, "err-no-devices.txt"),
        ("nvml_error", "nvml_init_failed", 255, "err-nvml-unknown-error.txt"),
    ],
)
def test_messages_in_place_of_an_answer(two, fault, kind, status, sample):
    two.set(fault)
    for arguments in (XML, ["--query-gpu=index", "--format=csv"]):
        done = call(two, *arguments)
        text = done.stdout.decode()
        found = read_nvidia_smi(text, {"format": "message"})
        assert ({error["kind"] for error in found["errors"]}, found["process_list"]) == ({kind}, "unknown")
        assert (done.returncode, done.stderr) == (status, b"")
    assert text.strip() == (FIXTURES / "nvidia" / sample).read_text().replace("570.124", "580.126").strip()


def test_the_files_of_the_kernel_follow_the_driver(two):
    library = two.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    version = two.root / "proc/driver/nvidia/version"
    (module,) = two.root.glob("lib/modules/*/updates/dkms/nvidia.ko.gz")
    assert (module.parents[2] / "modules.dep").read_text() == "updates/dkms/nvidia.ko.gz:\n"
    assert b"version=580.95.05\0" in gzip.decompress(module.read_bytes())
    assert os.readlink(library) == "libnvidia-ml.so.580.95.05"
    two.set("version_mismatch", "580.126.09")
    assert os.readlink(library) == "libnvidia-ml.so.580.126.09"
    assert b"version=580.126.09\0" in gzip.decompress(module.read_bytes())
    assert "  580.95.05  " in version.read_text()
    two.set("driver_not_loaded")
    assert not version.exists()
    assert not (two.root / "sys/module/nvidia").exists()
    assert not (two.root / "dev/nvidia0").exists()
    assert not os.path.lexists(two.root / "sys/bus/pci/devices/0000:01:00.0/driver")
    two.clear()
    assert os.readlink(library) == "libnvidia-ml.so.580.95.05"
    assert os.path.basename(os.readlink(two.root / "sys/bus/pci/devices/0000:01:00.0/driver")) == "nvidia"
    assert (two.root / "sys/module/nvidia/version").read_text() == "580.95.05\n"


def test_a_change_leaves_the_device_files_of_holders_alone(two):
    with holding(two, "dev/nvidia1"):
        two.set("needs_reset", card=0)
        two.set("denied", card=0)
        two.clear()
        assert used(xml(two)) == [4, 14004]


def test_the_files_of_the_kernel_of_a_dcu(dcus):
    for number, card in enumerate(dcus.machine["cards"]):
        for name in (f"card{number + 1}", f"renderD{128 + number}"):
            device = dcus.root / "sys/class/drm" / name / "device"
            assert device.resolve().name == card["bus_id"]
            assert ((device / "vendor").read_text(), (device / "device").read_text()) == ("0x1d94\n", "0x6210\n")
            assert (dcus.root / "dev/dri" / name).exists()
    display = dcus.root / "sys/class/drm/card0/device"
    assert (display / "vendor").read_text() == "0x1a03\n"
    assert (dcus.root / "sys/module/hycu/version").read_text() == "6.3.13-V1.12.0a\n"
    # The vendor of the cards is that of a bridge of the CPU as well.
    assert (dcus.root / "sys/bus/pci/devices/0000:00:00.0/class").read_text() == "0x060000\n"
    properties = (dcus.root / "sys/class/kfd/kfd/topology/nodes/8/properties").read_text()
    assert f"location_id {0x05 << 8}\n" in properties
    assert "drm_render_minor 128\n" in properties


def test_a_dcu_machine_without_its_driver_or_cards(dcus):
    dcus.set("no_devices")
    assert dcu(dcus, *CARDS)["errors"] == [{"kind": "no_devices", "device_index": 0}]
    dcus.set("driver_not_loaded")
    done = call(dcus, *CARDS)
    assert done.stdout == b""
    assert {error["kind"] for error in read_hy_smi(done.stderr.decode(), "hy-smi")["errors"]} == {"driver_not_loaded"}
    assert not (dcus.root / "dev/kfd").exists()
    assert (dcus.root / "dev/dri/card0").exists()


def test_json_without_commas_can_still_be_read(dcus):
    dcus.set("missing_commas")
    options = ["--showproductname", "--showpower", "--showtemp", "--showuse", "--showmeminfo", "vram", "--json"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(output(dcus, *options))
    found = dcu(dcus, *options)
    assert [error["kind"] for error in found["errors"]] == ["malformed_json"]
    assert [device["power_w"] for device in found["devices"]] == [106.0 + number for number in range(8)]
    assert dcu(dcus, *CARDS, "--json")["errors"] == []


def test_noise_is_no_card(two, dcus):
    two.set("garbage")
    dcus.set("garbage")
    assert call(two, *XML).returncode == 0
    assert read_nvidia_smi(call(two, *XML).stdout.decode("utf-8", "replace"), {"format": "xml"})["gpus"] == []
    assert read_hy_smi(call(dcus).stdout.decode("utf-8", "replace"), "hy-smi")["devices"] == []


def test_a_tool_that_hangs_is_ended_by_nothing_but_kill(two):
    two.set("hang")
    process = subprocess.Popen([str(two.bin / "nvidia-smi"), *XML], stdout=subprocess.PIPE)
    try:
        status = Path(f"/proc/{process.pid}/status")
        ignored = re.compile(r"SigIgn:\s*([0-9a-f]+)")
        term = 1 << (signal.SIGTERM - 1)
        until(lambda: int(ignored.search(status.read_text()).group(1), 16) & term, 5, "SIGTERM is ignored")
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.3)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


@pytest.fixture
def usual_signals():
    """A tool that hangs hears no signal, and here it is called within this very process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_tool_may_hang_for_one_question_or_for_a_while(dcus, usual_signals):
    dcus.set("hang", "--showpids")
    assert len(dcu(dcus, *CARDS)["devices"]) == 8
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([str(dcus.bin / "hy-smi"), "--showpids"], capture_output=True, timeout=0.3, check=False)
    dcus.reset()
    for fault in ("slow", "hang_s"):
        dcus.set(fault, 0.2)
        began = time.monotonic()
        assert len(dcu(dcus, *CARDS)["devices"]) == 8
        assert time.monotonic() - began >= 0.2
        dcus.clear()
    dcus.set("crash", "--showpids")
    assert call(dcus, "--showpids").returncode == -signal.SIGABRT
    assert call(dcus).returncode == 0


def test_cards_are_chosen_by_index_uuid_or_bus_id(installed):
    sim = installed("8x4090")
    card = sim.machine["cards"][3]
    for word in ("3", card["uuid"], card["bus_id"], "0000" + card["bus_id"].upper()):
        text = output(sim, "-i", word, "--query-gpu=index,uuid", "--format=csv,noheader")
        assert text == f"3, {card['uuid']}\n"
    (one,) = read_nvidia_smi(output(sim, *XML, "-i", "3"), {"format": "xml"})["gpus"]
    assert (one["index"], one["minor_number"]) == (None, card["minor"])
    assert output(sim, "-i", "8") == "No devices were found\n"


def test_a_field_that_does_not_exist(two):
    sample = (FIXTURES / "nvidia/csv-gpu-invalid-field.txt").read_text()
    fields = "index,clocks_event_reasons.hw_power_brake"
    done = call(two, f"--query-gpu={fields}", "--format=csv")
    assert (done.stdout.decode(), done.returncode) == (sample, 2)
    assert {error["kind"] for error in csv(two, fields)["errors"]} == {"invalid_field"}
    assert call(two, "--query-compute-apps=minor", "--format=csv").returncode == 2


def test_the_other_answers(two, installed):
    assert "DRIVER version      : 580.95.05\n" in output(two, "--version")
    text = output(two, "-q")
    assert re.search(r"^ {4}Minor Number {26}: 1$", text, re.MULTILINE)
    assert re.search(r"^ {4}FB Memory Usage\n {8}Total {29}: 49140 MiB$", text, re.MULTILINE)
    assert call(two, "--nonsense").returncode != 0
    assert call(two, "--query-gpu=index").returncode != 0
    eight = installed("8x4090")
    topology = (FIXTURES / "nvidia/topo-8x4090.txt").read_text()
    assert output(eight, "topo", "-m") == topology
    assert output(two, "topo", "-m").splitlines()[:3] == (FIXTURES / "nvidia/topo-2gpu-phb.txt").read_text().splitlines()[:3]


def resets(sim, *arguments):
    done = call(sim, "--gpu-reset", *arguments)
    found = read_nvidia_smi(done.stdout.decode(), {"format": "gpu_reset"})
    return [(row["ok"], row["reason"]) for row in found["resets"]], done


@AS_ROOT
def test_a_reset_clears_what_it_can(two):
    for fault in ("memory_stays", "needs_reset", "field_error"):
        two.set(fault, card=0)
    assert health(xml(two)) == ["needs_reset", "ok"]
    assert resets(two, "-i", "0")[0] == [(True, None)]
    assert (health(xml(two)), used(xml(two))) == (["ok", "ok"], [4, 4])


@AS_ROOT
def test_a_reset_is_refused(two):
    for reason, expected in (("in_use", "in_use"), ("not_supported", "not_supported"), ("primary_gpu", "primary_gpu")):
        two.set("reset_refused", reason, card=1)
        assert resets(two, "-i", "1")[0] == [(False, expected)]
    two.clear()
    two.set("memory_stays", card=0)
    sample = (FIXTURES / "nvidia/reset-in-use.txt").read_text()
    with holding(two, "dev/nvidia0"):
        found, done = resets(two, "-i", "0")
        assert (found, done.returncode) == ([(False, "in_use")], 255)
        assert done.stdout.decode() == sample.replace("00000000:00:06.0", "00000000:01:00.0")
    call(two, "-pm", "1", "-i", "0")
    assert resets(two, "-i", "0")[0] == [(False, "in_use")]
    assert used(xml(two)) == [30004, 4]
    call(two, "-pm", "0", "-i", "0")
    assert resets(two, "-i", "0")[0] == [(True, None)]


@AS_ROOT
def test_what_another_user_may_not_do():
    folder = Path(tempfile.mkdtemp(prefix="sim-"))
    try:
        folder.chmod(0o755)
        sim = install(folder / "root", "2x4090", python=PYTHON)
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}

        def said(*arguments):
            return call(sim, *arguments, **nobody).stdout.decode()

        assert len(read_nvidia_smi(said(*XML), {"format": "xml"})["gpus"]) == 2
        found = read_nvidia_smi(said("--gpu-reset", "-i", "0"), {"format": "gpu_reset"})
        assert [row["ok"] for row in found["resets"]] == [False]
        assert {error["kind"] for error in found["errors"]} == {"insufficient_permissions"}
        sim.set("denied", card=0)
        assert (sim.root / "dev/nvidia0").stat().st_mode & 0o777 == 0o600
        # The library leaves the card out and counts without it.
        assert [gpu["minor_number"] for gpu in read_nvidia_smi(said(*XML), {"format": "xml"})["gpus"]] == [1]
        sim.set("denied")
        assert "Insufficient Permissions" in said()
        assert read_nvidia_smi(said(), {"format": "message"})["errors"][0]["kind"] == "nvml_init_failed"
        assert len(xml(sim)["gpus"]) == 2
    finally:
        shutil.rmtree(folder)


def test_lines_of_the_kernel_log(two):
    for xid in (13, 31, 43, 48, 79, 119, 154):
        two.kernel_log(xid, card=1, pid=None if xid == 79 else 4711)
    found = read_nvidia_smi((two.root / "dev/kmsg").read_text(), {"format": "kernel_log"})
    assert [event["xid"] for event in found["kernel_events"]] == [13, 31, 43, 48, 63, 79, 119, 154]
    assert {event["bus_id"] for event in found["kernel_events"]} == {"00000000:02:00.0"}
    assert [event["pid"] for event in found["kernel_events"]] == [4711, 4711, 4711, None, None, None, 4711, None]
    assert {error["kind"] for error in found["errors"]} == {"gpu_lost", "needs_reset"}


def test_the_command_that_changes_a_machine(two):
    def simctl(*words):
        return subprocess.run([str(two.bin / "simctl"), *words], capture_output=True, text=True, check=False, timeout=20)

    assert simctl("set", "needs_reset", "memory_stays=2000", "--card", "1").returncode == 0
    assert (health(xml(two)), used(xml(two))) == (["ok", "needs_reset"], [4, 2004])
    assert simctl("set", "version_mismatch=580.10").returncode == 0
    assert "NVML library version: 580.10\n" in output(two)
    simctl("clear", "version_mismatch")
    simctl("process", "99", "100", "--card", "0")
    assert used(xml(two)) == [104, 2004]
    assert "needs_reset" in simctl("show").stdout
    assert {line.split()[0] for line in simctl("faults").stdout.splitlines()} == set(FAULTS)
    assert simctl("clear").returncode == 0
    assert health(xml(two)) == ["ok", "ok"]
    assert simctl("reset").returncode == 0
    assert used(xml(two)) == [4, 4]
    for wrong in (["set", "lsot"], ["set", "missing_commas"], ["set", "hang", "--card", "0"], ["set", "lost", "--card", "2"]):
        done = simctl(*wrong)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1
    assert json.loads(simctl("show").stdout)["faults"] == {}


def test_a_tool_finds_its_machine_from_another_place(two, tmp_path):
    (tmp_path / "link").symlink_to(two.bin / "nvidia-smi")
    shutil.copy(two.bin / "nvidia-smi", tmp_path / "copy")
    for tool in ("link", "copy"):
        done = subprocess.run([str(tmp_path / tool), "-L"], capture_output=True, text=True, check=True, env={}, cwd="/")
        assert done.stdout.count("GPU ") == 2


def test_the_tool_may_be_linked_to_its_real_place_but_not_over_a_real_one(tmp_path):
    for _ in range(2):
        sim = install(tmp_path / "sim", "1x4090", python=PYTHON, link=tmp_path / "top")
    place = tmp_path / "top/usr/bin/nvidia-smi"
    assert (sim.root / "usr/bin/nvidia-smi").resolve() == sim.bin / "nvidia-smi"
    assert place.resolve() == sim.bin / "nvidia-smi"
    place.unlink()
    place.write_text("the real one")
    with pytest.raises(SystemExit):
        install(tmp_path / "sim", "1x4090", python=PYTHON, link=tmp_path / "top")
    assert place.read_text() == "the real one"


def test_the_installer_needs_nothing_but_its_folder(tmp_path):
    copied = tmp_path / "anywhere"
    shutil.copytree(ROOT / "tests/simulators", copied / "simulators", ignore=shutil.ignore_patterns("__pycache__"))
    command = [PYTHON, "-I", str(copied / "simulators/install.py"), "--machine", "8xk100ai", "--root", str(tmp_path / "sim")]
    subprocess.run([*command, "--python", PYTHON], check=True, capture_output=True, env={"PATH": "/nonexistent"}, cwd="/")
    shutil.rmtree(copied)
    text = subprocess.run([str(tmp_path / "sim/bin/hy-smi")], capture_output=True, text=True, check=True).stdout
    assert len(read_hy_smi(text, "hy-smi")["devices"]) == 8


def test_every_fault_is_for_a_simulated_vendor():
    vendors = {machine["vendor"][:1] for machine in MACHINES.values()} - {""}
    assert {letter for _, letters, _, _ in FAULTS.values() for letter in letters} == vendors
    readme = (ROOT / "tests/simulators/README.md").read_text()
    assert [name for name in FAULTS if f"`{name}`" not in readme] == []


def test_every_setting_of_the_stand_in_is_explained():
    readme = (ROOT / "tests/simulators/README.md").read_text()
    assert [name for name in USUAL if f"`{name}`" not in readme] == []
