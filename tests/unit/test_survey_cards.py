from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import tables
from ansible_collections.modelyard.core.plugins.module_utils.survey import card_records, cards, device_files, driver, pci
from unit import worlds

FIXTURES = worlds.ROOT / "tests" / "fixtures"
XML = (FIXTURES / "nvidia" / "xml-535-4090.xml").read_text(encoding="utf-8")
RELEASE = os.uname().release
OWN = "of-this-test"  # tools lie where the machine that runs the tests has none
BACKENDS = tables.accelerators()
LOST = "Unable to determine the device handle for GPU {}: GPU is lost.  Reboot the system to recover this GPU\n"
PROCESS = "<process_info><pid>{}</pid><type>C</type><process_name>{}</process_name><used_memory>{}</used_memory></process_info>"
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\nGCC version:  gcc 13\n"
BUS = [f"0000:{bus:02x}:00.0" for bus in (0x05, 0x2B, 0x14, 0x1A, 0x86, 0xB8, 0xC0, 0x9E)]


class Host:
    """A folder that looks like the part of a host which is about cards."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"

    def put(self, path: str, text: str = "") -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def function(self, bus_id, vendor="10de", pci_class="030000", node=0, driver="nvidia") -> None:
        folder = f"sys/bus/pci/devices/{bus_id}"
        words = {"vendor": f"0x{vendor}", "device": "0x2684", "class": f"0x{pci_class}", "numa_node": str(node)}
        for name, text in words.items():
            self.put(f"{folder}/{name}", text + "\n")
        if driver:
            self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")

    def drm(self, bus_id: str, card: int, render: int) -> None:
        for name in (f"card{card}", f"renderD{render}"):
            self.link(f"sys/class/drm/{name}/device", f"../../../{bus_id}")
            self.put(f"dev/dri/{name}")

    def tool(self, path: str, body: str) -> None:
        """A program; each call leaves its arguments in the file `calls`."""
        self.put(f"{OWN}/{path}", f'#!/bin/sh\necho "$*" >>{self.calls}\n{body}\n').chmod(0o755)

    def smi(self, text: str, rc: int = 0, more: str = "") -> None:
        """nvidia-smi that prints a text, whatever it is asked; `more` is shell before that."""
        self.put("said", text)
        self.tool("usr/bin/nvidia-smi", f"{more}\ncat {self.root}/said\nexit {rc}")

    def called(self) -> list[str]:
        return self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []

    def look(self, held: dict[str, list[int]] | None = None, limit_s: float = 20, linked: bool = False, **backends):
        """`linked`: also ask how the cards are linked, as is done where a service wants several for one instance."""
        entries = {
            name: {**entry, "tool_limit_s": limit_s, "tool_places": [f"/{OWN}{place}" for place in entry["tool_places"]]}
            for name, entry in BACKENDS.items()
        }
        for entry in entries.values():
            entry["queries"] = {name: words for name, words in entry["queries"].items() if linked or name != "topo"}
        entries.update(backends)
        asked = []

        def holders_of(paths):
            asked.append(list(paths))
            return {path: (held or {}).get(path, []) for path in paths}

        found = cards.look(entries, str(self.root), holders_of)
        self.asked = asked
        return found


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return Host(tmp_path / "root")


def gpu(bus_id: str, minor: int, processes: str = "", used: int = 4) -> str:
    """A `<gpu>` of a 4090 as nvidia-smi prints it."""
    block = XML[XML.index("    <gpu id") : XML.index("</nvidia_smi_log>")]
    block = block.replace("00000000:84:00.0", f"0000{bus_id.upper()}")
    block = re.sub(r"<uuid>.*</uuid>", f"<uuid>{uuid(bus_id)}</uuid>", block)
    block = block.replace("<minor_number>0<", f"<minor_number>{minor}<").replace("<used>2 MiB<", f"<used>{used} MiB<")
    return re.sub(r"<processes>\s*</processes>", f"<processes>{processes}</processes>", block)


def uuid(bus_id: str) -> str:
    return f"GPU-{bus_id[5:7]}000000-1111-2222-3333-444444444444"


def log(*gpus: str, attached: int | None = None) -> str:
    head = XML[: XML.index("    <gpu id")].replace("<attached_gpus>1<", f"<attached_gpus>{attached or len(gpus)}<")
    return head + "".join(gpus) + "</nvidia_smi_log>\n"


def nvidia_host(host: Host, buses: list[str], minors: list[int] | None = None) -> None:
    """Bus, driver and device files of NVIDIA cards; no tool."""
    for place, bus_id in enumerate(buses):
        host.function(bus_id, node=place % 2)
        host.put(f"dev/nvidia{(minors or range(99))[place]}")
    host.put("dev/nvidiactl")
    host.put("dev/nvidia-uvm")
    host.put("sys/module/nvidia/version", "580.95.05\n")
    host.put("proc/driver/nvidia/version", VERSION)
    host.link("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05")
    host.put("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05")


def dcu_host(host: Host, count: int = 2) -> None:
    """Bus, driver and device files of DCUs, whose card0 is the management controller's display."""
    host.function("0000:03:00.0", "1a03", driver="ast")
    host.drm("0000:03:00.0", 0, 99)
    for place in range(count):
        host.function(BUS[place], "1d94", "0b4000", node=-1, driver="hycu")
        host.drm(BUS[place], place + 1, 128 + place)
    host.put("dev/kfd")
    host.put("dev/mkfd")
    host.put("sys/module/hycu/version", "6.3.31-V1.5.0a\n")


def hy_smi(host: Host, listing: str, pids: str, place: str = "opt/hyhal/bin/hy-smi") -> None:
    host.put("cards", listing)
    host.tool(place, f"case $1 in --showpids)\n{pids}\n;;\n*) cat {host.root}/cards;; esac")


def listing(count: int = 2, label: str = "HCU", used: int = 2, unit: str = "MiB") -> str:
    lines = ["", "===== System Management Interface =====", "Driver Version: 6.3.31-V1.5.0a"]
    size = 1 if unit == "MiB" else 2**20
    for index in range(count):
        lines += [
            f"{label}[{index}]\t\t: Card Series: \t K100_AI",
            f"{label}[{index}]\t\t: vram Total Memory ({unit}): {65520 * size}",
            f"{label}[{index}]\t\t: vram Total Used Memory ({unit}): {used * size}",
            f"{label}[{index}]\t\t: {label} use (%): 0.0",
            f"{label}[{index}]\t\t: PCI Bus: {BUS[index]} --> SN: N/A",
            f"{label}[{index}]\t\t: Unique ID: 7100000000000a{index}1",
        ]
    return "\n".join([*lines, "===== End of SMI Log =====", ""])


def brief(found: list[dict]) -> list[tuple]:
    return [(c["index"], c["bus_id"], c["minor"], c["health"]) for c in found]


# NVIDIA


def test_two_healthy_4090s(host):
    buses = ["0000:01:00.0", "0000:41:00.0"]
    nvidia_host(host, buses)
    rows = PROCESS.format(4711, "VLLM::Worker_TP0", "21000 MiB") + PROCESS.format(12, "[Not Found]", "N/A")
    host.smi(log(gpu(buses[0], 0, rows, used=21004), gpu(buses[1], 1)))
    found, accelerators, raw = host.look({"/dev/nvidia0": [4711, 12], "/dev/nvidiactl": [4711], "/dev/nvidia-uvm": [4711, 99]})
    assert list(found) == list(accelerators) == ["nvidia"]
    first, second = found["nvidia"]
    assert first == {
        "index": 0,
        "uuid": uuid(buses[0]),
        "name": "NVIDIA GeForce RTX 4090",
        "bus_id": "0000:01:00.0",
        "minor": 0,
        "memory_total_mib": 24564,
        "memory_used_mib": 21004,
        "utilization_pct": 0.0,
        "health": "ok",
        "compute_mode": "Default",
        "mig": False,
        "numa_node": 0,
        "driver_version": "535.86.05",
        "device_files": [{**device_files.look("/dev/nvidia0", str(host.root)), "state": "ok"}],
        "processes": [
            {"pid": 4711, "name": "VLLM::Worker_TP0", "memory_mib": 21000},
            {"pid": 12, "name": "", "memory_mib": None},
        ],
        "holders": [12, 4711],
    }
    assert (second["index"], second["numa_node"], second["holders"], second["processes"]) == (1, 1, [], [])
    seen = accelerators["nvidia"]
    assert 0 < seen["tool"].pop("seconds") < 20
    assert seen["tool"] == {"path": f"{host.root}/{OWN}/usr/bin/nvidia-smi", "state": "ok", "said": ""}
    assert seen["driver"] == {"loaded": "580.95.05", "on_disk": "", "library": "580.95.05", "flavour": "open"}
    assert [f["bus_id"] for f in seen["on_bus"]] == buses
    assert (seen["errors"], seen["process_list"], seen["shared_holders"]) == ([], "listed", [99, 4711])
    assert [f["path"] for f in seen["shared_files"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert host.called() == ["-q -x"]
    assert host.asked == [["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"]]
    assert [(r["argv"][1:], r["rc"], r["timed_out"]) for r in raw] == [(["-q", "-x"], 0, False)]
    assert raw[0]["stdout"].startswith("<?xml")
    assert json.loads(json.dumps([found, accelerators, raw])) == [found, accelerators, raw]


def test_device_files_go_by_the_minor_number_and_not_by_the_index(host):
    minors = [2, 3, 0, 1, 6, 7, 4, 5]
    nvidia_host(host, BUS, minors)
    host.smi(log(*(gpu(bus_id, minor) for bus_id, minor in zip(BUS, minors, strict=True))))
    found = host.look({"/dev/nvidia2": [4711]})[0]["nvidia"]
    assert [c["index"] for c in found] == list(range(8))
    assert [c["minor"] for c in found] == minors
    assert [c["device_files"][0]["path"] for c in found] == [f"/dev/nvidia{minor}" for minor in minors]
    assert [c["holders"] for c in found] == [[4711], *([[]] * 7)]


def test_a_lost_card_is_there_and_the_numbers_of_the_others_are_asked_for(host):
    buses = [f"0000:{bus}:00.0" for bus in ("01", "34", "ac")]
    nvidia_host(host, buses)
    host.put("proc/driver/nvidia/gpus/0000:34:00.0/information", "Model: \t NVIDIA GeForce RTX 4090\nDevice Minor: \t 1\n")
    # Whatever attached_gpus says: the place in the list is no number when a card is missing in it.
    host.put("xml", LOST.format("0000:34:00.0") + log(gpu(buses[0], 0), gpu(buses[2], 2)))
    host.put("csv", LOST.format("0000:34:00.0") + "".join(f"{i}, {uuid(buses[i])}, 0000{buses[i].upper()}\n" for i in (0, 2)))
    host.tool("usr/bin/nvidia-smi", f"[ $1 = -q ] && cat {host.root}/xml || cat {host.root}/csv\nexit 15")
    found, accelerators, raw = host.look()
    assert brief(found["nvidia"]) == [
        (0, "0000:01:00.0", 0, "ok"),
        (2, "0000:ac:00.0", 2, "ok"),
        (None, "0000:34:00.0", 1, "lost"),
    ]
    assert found["nvidia"][2]["device_files"][0]["path"] == "/dev/nvidia1"
    assert accelerators["nvidia"]["errors"] == [{"kind": "gpu_lost", "bus_id": "0000:34:00.0", "index": None, "detail": ""}]
    assert accelerators["nvidia"]["tool"]["state"] == "ok"
    assert host.called() == ["-q -x", "--query-gpu=index,uuid,pci.bus_id --format=csv,noheader"]
    assert len(raw) == 2


@pytest.mark.parametrize(
    ("said", "links"),
    [
        ("topo-2gpu-phb.txt", {"0-1": "PHB"}),
        ("topo-4x4090-two-numa.txt", {"0-1": "NODE", "0-2": "SYS", "0-3": "SYS", "1-2": "SYS", "1-3": "SYS", "2-3": "NODE"}),
        ("err-no-devices.txt", {}),
    ],
)
def test_how_cards_are_linked_is_asked_where_somebody_wants_to_know(host, said, links):
    buses = ["0000:01:00.0", "0000:41:00.0"]
    nvidia_host(host, buses)
    host.put("xml", log(*(gpu(bus, number) for number, bus in enumerate(buses))))
    host.tool("usr/bin/nvidia-smi", f"[ $1 = -q ] && cat {host.root}/xml || cat {FIXTURES}/nvidia/{said}")
    found, accelerators, _ = host.look(linked=True)
    assert [card["index"] for card in found["nvidia"]] == [0, 1]
    assert accelerators["nvidia"]["links"] == links
    assert accelerators["nvidia"]["tool"]["state"] == "ok"
    assert host.called() == ["-q -x", "topo -m"]
    host.calls.unlink()
    assert host.look()[1]["nvidia"]["links"] == {}
    assert host.called() == ["-q -x"]


def test_a_question_about_links_that_hangs_leaves_the_cards_known(host):
    buses = ["0000:01:00.0", "0000:41:00.0"]
    nvidia_host(host, buses)
    host.put("xml", log(*(gpu(bus, number) for number, bus in enumerate(buses))))
    host.tool("usr/bin/nvidia-smi", f"[ $1 = -q ] && exec cat {host.root}/xml\nexec sleep 60")
    found, accelerators, raw = host.look(linked=True, limit_s=1)
    assert [card["health"] for card in found["nvidia"]] == ["ok", "ok"]
    assert (accelerators["nvidia"]["tool"]["state"], accelerators["nvidia"]["links"]) == ("ok", {})
    assert raw[-1]["timed_out"] is True


def test_where_the_numbers_cannot_be_had_none_is_guessed(host):
    buses = ["0000:01:00.0", "0000:34:00.0"]
    nvidia_host(host, buses)
    host.put("xml", LOST.format("0000:34:00.0") + log(gpu(buses[0], 0)))
    host.tool("usr/bin/nvidia-smi", f"[ $1 = -q ] && cat {host.root}/xml\nexit 15")
    assert brief(host.look()[0]["nvidia"]) == [(None, "0000:01:00.0", 0, "ok"), (None, "0000:34:00.0", None, "lost")]


def test_an_error_that_prints_the_number_of_the_lost_card_gives_it_to_it(host):
    buses = ["0000:16:00.0", "0000:34:00.0"]
    nvidia_host(host, buses)
    text = "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n"
    host.put("xml", text + log(gpu(buses[0], 0), attached=2))
    host.tool("usr/bin/nvidia-smi", f"[ $1 = -q ] && cat {host.root}/xml || echo '0, GPU-x, 00000000:16:00.0'")
    found, accelerators, _ = host.look()
    assert brief(found["nvidia"]) == [(0, "0000:16:00.0", 0, "ok"), (1, "0000:34:00.0", None, "lost")]
    assert accelerators["nvidia"]["errors"][0]["kind"] == "device_handle_error"
    assert accelerators["nvidia"]["errors"][0]["detail"] == "Unknown Error"


def test_a_lost_card_that_left_the_bus_too_is_there(host):
    nvidia_host(host, ["0000:01:00.0"])
    host.smi(LOST.format("0000:34:00.0") + log(gpu("0000:01:00.0", 0)))
    assert [(c["bus_id"], c["health"]) for c in host.look()[0]["nvidia"]] == [("0000:01:00.0", "ok"), ("0000:34:00.0", "lost")]


def test_a_tool_that_prints_nothing_but_the_loss_fails_and_the_bus_shows_the_others(host):
    nvidia_host(host, ["0000:01:00.0", "0000:02:00.0"])
    host.smi((FIXTURES / "nvidia" / "err-gpu-is-lost.txt").read_text(encoding="utf-8"), 15)
    found, accelerators, _ = host.look()
    assert brief(found["nvidia"]) == [(None, "0000:01:00.0", None, "unknown"), (None, "0000:02:00.0", None, "lost")]
    assert accelerators["nvidia"]["tool"]["state"] == "failed"
    assert accelerators["nvidia"]["process_list"] == "unknown"
    assert host.called() == ["-q -x"]


def test_a_card_whose_fields_say_that_it_is_lost_is_lost(host):
    nvidia_host(host, ["0000:01:00.0"])
    host.smi(log(gpu("0000:01:00.0", 0).replace("<fan_speed>0 %<", "<fan_speed>GPU is lost<")))
    assert [c["health"] for c in host.look()[0]["nvidia"]] == ["lost"]


def test_a_card_that_the_tool_does_not_list_is_unknown(host):
    buses = ["0000:01:00.0", "0000:02:00.0"]
    nvidia_host(host, buses)
    host.smi(log(gpu(buses[0], 0)))
    assert brief(host.look()[0]["nvidia"]) == [(0, buses[0], 0, "ok"), (None, buses[1], None, "unknown")]


@pytest.mark.parametrize(
    ("text", "rc", "state", "kind"),
    [
        ("err-driver-not-loaded.txt", 9, "failed", "driver_not_loaded"),
        ("err-version-mismatch-570.txt", 18, "failed", "version_mismatch"),
        ("err-nvml-unknown-error.txt", 255, "failed", "nvml_init_failed"),
        ("err-no-devices.txt", 6, "failed", "no_devices"),
        ("xml-truncated-535.xml", 0, "unreadable", "truncated"),
        ("xml-truncated-535.xml", 1, "failed", "truncated"),
    ],
)
def test_a_tool_that_fails_says_so_and_the_cards_come_from_the_bus(host, text, rc, state, kind):
    nvidia_host(host, ["0000:84:00.0"])
    said = (FIXTURES / "nvidia" / text).read_text(encoding="utf-8")
    host.smi(said, rc)
    found, accelerators, _ = host.look()
    seen = accelerators["nvidia"]
    assert brief(found["nvidia"]) == [(None, "0000:84:00.0", None, "unknown")]
    assert found["nvidia"][0]["driver_version"] == "580.95.05"
    assert seen["tool"]["state"] == state
    assert seen["tool"]["said"] == "\n".join(line.strip() for line in said.splitlines() if line.strip())[:500]
    assert [e["kind"] for e in seen["errors"]] == [kind]
    assert seen["process_list"] == "unknown"


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "it printed nothing (exit code 0)"), ("\x1b[31m \x01noise\n", "\ufffd[31m \ufffdnoise"), ("Oops", "Oops")],
)
def test_garbage_is_unreadable(host, text, said):
    nvidia_host(host, ["0000:84:00.0"])
    host.smi(text)
    found, accelerators, _ = host.look()
    assert brief(found["nvidia"]) == [(None, "0000:84:00.0", None, "unknown")]
    assert accelerators["nvidia"]["tool"]["state"] == "unreadable"
    assert accelerators["nvidia"]["tool"]["said"] == said


def test_cards_before_a_cut_count(host):
    buses = ["0000:01:00.0", "0000:02:00.0"]
    nvidia_host(host, buses)
    whole = log(gpu(buses[0], 0), gpu(buses[1], 1))
    host.smi(whole[: whole.rindex("<temperature>")])
    found, accelerators, _ = host.look()
    assert [c["health"] for c in found["nvidia"]] == ["ok", "unknown"]
    assert (accelerators["nvidia"]["tool"]["state"], accelerators["nvidia"]["process_list"]) == ("unreadable", "unknown")


def test_a_tool_that_crashes_fails(host):
    nvidia_host(host, ["0000:84:00.0"])
    host.smi("", more="kill -SEGV $$")
    assert host.look()[1]["nvidia"]["tool"]["state"] == "failed"
    assert host.look()[1]["nvidia"]["tool"]["said"] == "it printed nothing (exit code -11)"


def test_a_tool_that_hangs_is_asked_nothing_more_and_what_it_complained_of_counts(host):
    buses = ["0000:01:00.0", "0000:02:00.0"]
    nvidia_host(host, buses)
    host.put("proc/driver/nvidia/gpus/0000:02:00.0/information", "Device Minor: \t 1\n")
    host.smi("", more=f"trap '' TERM\necho '{LOST.format('0000:01:00.0').strip()}'\nwhile :; do sleep 1; done")
    found, accelerators, raw = host.look(limit_s=1.0)
    seen = accelerators["nvidia"]
    assert brief(found["nvidia"]) == [(None, buses[0], None, "lost"), (None, buses[1], 1, "unknown")]
    assert seen["tool"]["state"] == "hangs"
    assert seen["tool"]["said"].startswith(
        f"{host.root}/{OWN}/usr/bin/nvidia-smi had not ended after 1 s and was killed\nUnable to"
    )
    assert seen["process_list"] == "unknown"
    assert (len(raw), raw[0]["timed_out"], len(host.called())) == (1, True, 1)


def test_a_tool_that_prints_for_ever_hangs(host):
    nvidia_host(host, ["0000:01:00.0"])
    host.smi("", more="exec yes '<gpu>'")
    found, accelerators, raw = host.look(limit_s=0.5)
    assert accelerators["nvidia"]["tool"]["state"] == "hangs"
    assert brief(found["nvidia"]) == [(None, "0000:01:00.0", None, "unknown")]
    assert len(raw[0]["stdout"]) == 256 * 1024


def test_more_cards_than_the_survey_carries_are_read_all(host):
    padding = "<!-- " + 40000 * "x" + " -->"
    nvidia_host(host, BUS)
    host.smi(log(*(gpu(bus_id, minor) + padding for minor, bus_id in enumerate(BUS))))
    found, _, raw = host.look()
    assert [c["health"] for c in found["nvidia"]] == 8 * ["ok"]
    assert len(raw[0]["stdout"]) == 256 * 1024


def test_without_the_tool_the_bus_and_the_driver_still_speak(host):
    nvidia_host(host, ["0000:84:00.0"])
    host.put("proc/driver/nvidia/gpus/0000:84:00.0/information", "Device Minor: \t 0\nGPU Excluded:\t No\n")
    found, accelerators, raw = host.look({"/dev/nvidia0": [7]})
    assert brief(found["nvidia"]) == [(None, "0000:84:00.0", 0, "unknown")]
    assert found["nvidia"][0]["holders"] == [7]
    seen = accelerators["nvidia"]["tool"]
    assert (seen["path"], seen["state"], seen["seconds"]) == ("", "missing", 0.0)
    assert (
        seen["said"] == f"there is no nvidia-smi in /{OWN}/usr/bin, /{OWN}/usr/local/bin, /{OWN}/usr/lib/wsl/lib nor on the PATH"
    )
    assert raw == []


def test_a_card_that_complains_in_many_fields_gives_one_error_of_a_kind(host):
    nvidia_host(host, ["0000:84:00.0"])
    host.smi((FIXTURES / "nvidia" / "xml-field-errors.xml").read_text(encoding="utf-8"))
    found, accelerators, _ = host.look()
    errors = accelerators["nvidia"]["errors"]
    assert found["nvidia"][0]["health"] == "needs_reset"
    assert [(e["kind"], e["bus_id"], e["index"]) for e in errors] == [
        ("field_error", "0000:84:00.0", 0),
        ("needs_reset", "0000:84:00.0", 0),
    ]
    assert errors[0]["detail"].startswith("fan_speed, gpu_util")


def test_mig_and_processes_on_it(host):
    text = (FIXTURES / "nvidia" / "xml-535-a100-mig-one-of-four.xml").read_text(encoding="utf-8")
    nvidia_host(host, ["0000:01:00.0"], [1])
    host.put("csv", "2, GPU-x, 00000000:01:00.0\n")
    host.put("xml", text)
    host.tool("usr/bin/nvidia-smi", f"[ $1 = -q ] && cat {host.root}/xml || cat {host.root}/csv")
    found = host.look()[0]["nvidia"][0]
    # One of four cards was asked for, so its place is not its number.
    assert (found["mig"], found["minor"], found["index"]) == (True, 1, 2)


def test_wsl_has_no_cards_on_a_bus_and_one_device_file(host):
    text = log(gpu("0000:01:00.0", 0)).replace("<minor_number>0<", "<minor_number>N/A<")
    host.put("said", text)
    host.tool("usr/lib/wsl/lib/nvidia-smi", f"cat {host.root}/said")
    host.put("dev/dxg")
    found, accelerators, _ = host.look({"/dev/dxg": [5]})
    card = found["nvidia"][0]
    assert (card["index"], card["health"], card["device_files"], card["holders"]) == (0, "ok", [], [])
    assert [f["path"] for f in accelerators["nvidia"]["shared_files"]] == ["/dev/dxg"]
    assert accelerators["nvidia"]["shared_holders"] == [5]
    assert accelerators["nvidia"]["driver"] == {"loaded": "", "on_disk": "", "library": "", "flavour": ""}


# Hygon and AMD


def test_dcus_are_found_by_address_and_card0_is_the_management_controllers(host):
    dcu_host(host)
    pids = f"cat {FIXTURES}/hygon/showpids_one_bw.txt"
    hy_smi(host, listing(), pids)
    found, accelerators, raw = host.look({"/dev/dri/card2": [2004092], "/dev/dri/renderD129": [2004092, 3], "/dev/kfd": [3]})
    assert list(found) == ["hygon"]
    first, second = found["hygon"]
    assert (first["index"], first["bus_id"], first["minor"], first["uuid"]) == (0, BUS[0], 1, "7100000000000a01")
    assert [f["path"] for f in first["device_files"]] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert (first["name"], first["memory_total_mib"], first["memory_used_mib"]) == ("K100_AI", 65520, 2)
    assert (first["health"], first["numa_node"], first["driver_version"]) == ("ok", None, "6.3.31-V1.5.0a")
    assert second["processes"] == [{"pid": 2004092, "name": "", "memory_mib": 9649}]
    assert second["holders"] == [3, 2004092]
    seen = accelerators["hygon"]
    assert (seen["process_list"], seen["errors"], seen["shared_holders"]) == ("listed", [], [3])
    assert seen["driver"]["loaded"] == "6.3.31-V1.5.0a"
    assert seen["tool"]["path"] == f"{host.root}/{OWN}/opt/hyhal/bin/hy-smi"
    assert [f["path"] for f in seen["shared_files"]] == ["/dev/kfd", "/dev/mkfd"]
    assert host.called() == [
        "--showproductname --showdriverversion --showmeminfo vram --showuse --showbus --showuniqueid",
        "--showpids",
    ]
    assert len(raw) == 2


def test_a_process_on_several_dcus_is_on_each_without_an_amount(host):
    dcu_host(host, 8)
    hy_smi(host, listing(8), f"cat {FIXTURES}/hygon/showpids_multi_card.txt")
    found, accelerators, _ = host.look()
    assert [c["processes"] for c in found["hygon"]] == 8 * [[{"pid": 3865170, "name": "", "memory_mib": None}]]
    assert accelerators["hygon"]["process_list"] == "listed"


def test_a_process_of_which_no_card_is_known_is_not_lost(host):
    dcu_host(host)
    hy_smi(host, listing(), "printf 'PIDs for KFD processes:\\nPID: 77\\n\\tHCU Index: \\n\\tVRAM USED(MiB): 12\\n'")
    found, accelerators, _ = host.look()
    assert [c["processes"] for c in found["hygon"]] == [[], []]
    assert accelerators["hygon"]["process_list"] == "partial"
    assert accelerators["hygon"]["unplaced_processes"] == [{"pid": 77, "name": "", "memory_mib": 12}]


@pytest.mark.parametrize("text", ["showpids_none.txt", "showpids_no_kfd_pids.txt"])
def test_an_empty_list_is_none(host, text):
    dcu_host(host)
    hy_smi(host, listing(), f"cat {FIXTURES}/hygon/{text}")
    assert host.look()[1]["hygon"]["process_list"] == "none"
    assert len(host.called()) == 2


def test_a_list_that_crashes_is_asked_for_three_times(host):
    dcu_host(host)
    hy_smi(host, listing(), "echo 'PIDs for KFD processes:'; kill -ABRT $$")
    found, accelerators, raw = host.look()
    assert (accelerators["hygon"]["process_list"], len(host.called()), len(raw)) == ("unknown", 4, 4)
    assert [c["health"] for c in found["hygon"]] == ["ok", "ok"]
    assert accelerators["hygon"]["tool"]["state"] == "ok"


def test_the_second_try_counts(host):
    dcu_host(host)
    body = f"[ -e {host.root}/tried ] && cat {FIXTURES}/hygon/showpids_one_bw.txt && exit 0\n: >{host.root}/tried; exit 134"
    hy_smi(host, listing(), body)
    found, accelerators, _ = host.look()
    assert (accelerators["hygon"]["process_list"], len(host.called())) == ("listed", 3)
    assert [len(c["processes"]) for c in found["hygon"]] == [0, 1]


def test_what_a_crashing_list_had_printed_is_shown_as_a_part(host):
    dcu_host(host)
    hy_smi(host, listing(), f"cat {FIXTURES}/hygon/showpids_one_bw.txt; kill -ABRT $$")
    found, accelerators, _ = host.look()
    assert accelerators["hygon"]["process_list"] == "partial"
    assert [[p["pid"] for p in c["processes"]] for c in found["hygon"]] == [[], [2004092]]


def test_a_list_that_is_not_to_be_had_is_not_asked_for_again(host):
    dcu_host(host)
    hy_smi(host, listing(), f"cat {FIXTURES}/hygon/showpids_unavailable_line.txt")
    seen = host.look()[1]["hygon"]
    assert (seen["process_list"], len(host.called())) == ("unknown", 2)
    assert [e["kind"] for e in seen["errors"]] == ["process_list_unavailable"]


def test_a_list_that_hangs_is_not_asked_for_again(host):
    dcu_host(host)
    hy_smi(host, listing(), "exec sleep 60")
    found, accelerators, _ = host.look(limit_s=2.0)
    assert (accelerators["hygon"]["process_list"], len(host.called())) == ("unknown", 2)
    assert [c["health"] for c in found["hygon"]] == ["ok", "ok"]


def test_hy_smi_that_hangs_leaves_the_cards_of_the_bus(host):
    dcu_host(host)
    host.tool("opt/hyhal/bin/hy-smi", "exec sleep 60")
    found, accelerators, _ = host.look(limit_s=0.5)
    assert brief(found["hygon"]) == [(None, BUS[0], 1, "unknown"), (None, BUS[1], 2, "unknown")][:: 1 if BUS[0] < BUS[1] else -1]
    assert accelerators["hygon"]["tool"]["state"] == "hangs"
    assert len(host.called()) == 1


def test_hy_smi_without_lspci_fails(host):
    dcu_host(host)
    host.tool("opt/hyhal/bin/hy-smi", f"cat {FIXTURES}/hygon/no_drm_devices_lspci_missing.txt")
    found, accelerators, _ = host.look()
    assert accelerators["hygon"]["tool"]["state"] == "failed"
    assert accelerators["hygon"]["tool"]["said"] == "sh: 1: lspci: not found\nError: Dcu[0]: No DRM devices available, exiting."
    assert {e["kind"] for e in accelerators["hygon"]["errors"]} == {"missing_dependency", "no_devices"}
    assert len(found["hygon"]) == 2


def test_dcus_that_are_listed_without_an_address_are_not_counted_twice(host):
    dcu_host(host)
    hy_smi(host, re.sub(r".*PCI Bus.*\n", "", listing()), "echo 'No KFD PIDs currently running!'")
    found, accelerators, _ = host.look()
    assert [(c["index"], c["bus_id"], c["device_files"]) for c in found["hygon"]] == [(0, "", []), (1, "", [])]
    assert accelerators["hygon"]["errors"] == []


def test_a_dcu_that_is_not_among_those_without_an_address_is_told(host):
    dcu_host(host, 3)
    hy_smi(host, re.sub(r".*PCI Bus.*\n", "", listing(2)), "echo 'No KFD PIDs currently running!'")
    errors = host.look()[1]["hygon"]["errors"]
    assert [(e["kind"], e["detail"]) for e in errors] == [("not_listed", "3 cards on the bus, 2 listed, without address")]


def test_bridges_of_a_hygon_cpu_are_no_cards(host):
    for place, pci_class in enumerate(("060000", "060400", "080600", "108000", "040300")):
        host.function(f"0000:00:0{place}.0", "1d94", pci_class, driver="")
    assert host.look() == ({}, {}, [])
    assert host.asked == []


def test_the_rocm_smi_of_dtk_makes_no_amd_cards(host):
    dcu_host(host)
    hy_smi(host, listing(), "echo 'No KFD PIDs currently running!'")
    host.tool("usr/bin/rocm-smi", f"cat {host.root}/cards")
    found, _, _ = host.look()
    assert list(found) == ["hygon"]


def test_what_rocm_smi_lists_of_another_vendor_is_no_amd_card(host):
    dcu_host(host)
    host.function("0000:0a:00.0", "1002", "030000", driver="amdgpu")
    hy_smi(host, listing(), "echo 'No KFD PIDs currently running!'")
    host.tool("usr/bin/rocm-smi", f"cat {host.root}/cards")
    assert [c["bus_id"] for c in host.look()[0]["amd"]] == ["0000:0a:00.0"]


def test_amd_cards_with_their_processes(host):
    for place in range(2):
        host.function(BUS[place], "1002", "120000", driver="amdgpu")
        host.drm(BUS[place], place, 128 + place)
    text = listing(2, "GPU", used=283, unit="B").replace("vram", "VRAM")
    rows = (FIXTURES / "amd" / "showpids_llama_3.txt").read_text(encoding="utf-8").replace("2728  ", "79301")
    host.put("rows", rows + (FIXTURES / "amd" / "showpidgpus_mi300.txt").read_text(encoding="utf-8"))
    hy_smi(host, text, f"cat {host.root}/rows", place="opt/rocm/bin/rocm-smi")
    found, accelerators, _ = host.look()
    assert [c["memory_used_mib"] for c in found["amd"]] == [283, 283]
    assert found["amd"][1]["processes"][0] == {"pid": 79301, "name": "llama-server", "memory_mib": 288}
    assert [p["pid"] for p in found["amd"][0]["processes"]] == [1949829, 10678]
    assert accelerators["amd"]["process_list"] == "partial"
    assert {p["pid"] for p in accelerators["amd"]["unplaced_processes"]} == {417281, 555979, 78912, 9710, 1951076}
    assert host.called()[1] == "--showpids --showpidgpus"


def test_rocm_smi_that_finds_no_driver_exits_with_nought_and_fails_all_the_same(host):
    host.function(BUS[0], "1002", "120000", driver="")
    host.tool("opt/rocm/bin/rocm-smi", f"cat {FIXTURES}/amd/rocm_smi_driver_not_loaded.txt >&2; exit 0")
    found, accelerators, _ = host.look()
    assert accelerators["amd"]["tool"]["state"] == "failed"
    assert [e["kind"] for e in accelerators["amd"]["errors"]] == ["driver_not_loaded"]
    assert brief(found["amd"]) == [(None, BUS[0], None, "unknown")]


# Hosts without cards


def test_a_host_without_anything(host):
    assert host.look() == ({}, {}, [])


def test_a_host_whose_tool_finds_no_cards_is_no_failure(host):
    host.smi("No devices were found\n", 6)
    found, accelerators, _ = host.look()
    assert found == {"nvidia": []}
    assert accelerators["nvidia"]["tool"]["state"] == "ok"


def test_a_module_alone_is_a_trace(host):
    host.put("sys/module/hydcu/version", "6.2.26\n")
    found, accelerators, _ = host.look()
    assert found == {"hygon": []}
    assert accelerators["hygon"]["driver"]["loaded"] == "6.2.26"


def test_backends_without_a_vendor_are_passed_over(host):
    assert host.look(cpu=tables.backend("cpu")) == ({}, {}, [])


def test_readers_are_not_loaded_and_little_time_goes_by_without_cards(host):
    """A host of the usual size: 300 PCI functions, none of them a card."""
    for place in range(300):
        host.function(f"0000:{place // 8:02x}:{place % 8:02x}.0", "8086", "088000", driver="")
    program = (
        "import json, sys, time\n"
        "from ansible_collections.modelyard.core.plugins.module_utils.survey import cards\n"
        "backends = json.load(sys.stdin)\n"
        "best = 9\n"
        "for _ in range(5):\n"
        "    began = time.perf_counter()\n"
        f"    assert cards.look(backends, {str(host.root)!r}, None) == ({{}}, {{}}, [])\n"
        "    best = min(best, time.perf_counter() - began)\n"
        "assert not [name for name in sys.modules if 'nvidia_smi' in name or 'rocm_smi' in name]\n"
        "print(best)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(BACKENDS),
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(worlds.ROOT / "collections")},
    )
    assert float(done.stdout) < 0.015


# Device files, driver, bus


def test_a_device_file_that_this_user_may_not_open_is_denied(host, monkeypatch):
    nvidia_host(host, ["0000:84:00.0"])
    host.smi(log(gpu("0000:84:00.0", 0)))
    (host.root / "dev/nvidia0").chmod(0o640)
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((str(path), mode)) or "dev/nvidia" not in str(path))
    found = host.look()[0]["nvidia"][0]["device_files"]
    assert [(f["path"], f["state"], f["mode"]) for f in found] == [("/dev/nvidia0", "denied", "0640")]
    assert (f"{host.root}/dev/nvidia0", os.R_OK | os.W_OK) in asked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_denied_as_another_user_sees_it():
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "nvidia0").touch()
        (root / "nvidia0").chmod(0o640)
        (root / "hidden").mkdir(mode=0o700)
        (root / "hidden" / "nvidia1").touch()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                states = [device_files.look(name, folder)["state"] for name in ("/nvidia0", "/hidden/nvidia1", "/nvidia9")]
                os._exit(0 if states == ["denied", "denied", "missing"] else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0


def test_a_device_file_says_whose_it_is(tmp_path):
    (tmp_path / "kfd").touch()
    (tmp_path / "kfd").chmod(0o660)
    found = device_files.look("/kfd", str(tmp_path))
    assert (found["state"], found["mode"]) == ("ok", "0660")
    assert found["owner"] == (tmp_path / "kfd").owner()
    assert found["group"] == (tmp_path / "kfd").group()
    missing = {"path": "/dev/mkfd", "state": "missing", "owner": "", "group": "", "mode": ""}
    assert device_files.look("/dev/mkfd", str(tmp_path)) == missing


def test_functions_of_the_bus(host):
    host.function("0000:01:00.0", node=-1, driver="vfio-pci")
    host.function("10000:e1:00.0", "8086", "010802", driver="")
    host.put("sys/bus/pci/devices/0000:02:00.0/class", "0x030000")
    every = pci.functions(str(host.root))
    assert [f["bus_id"] for f in every] == ["0000:01:00.0", "10000:e1:00.0"]
    assert every[0] == {
        "bus_id": "0000:01:00.0",
        "vendor": "10de",
        "device": "2684",
        "class": "0300",
        "numa_node": None,
        "driver": "vfio-pci",
    }
    assert every[1]["driver"] == ""
    assert [f["bus_id"] for f in pci.functions(str(host.root), ["10de"])] == ["0000:01:00.0"]


def test_connectors_are_no_device_files(host):
    host.drm("0000:05:00.0", 1, 128)
    host.link("sys/class/drm/card1-HDMI-A-1/device", "../../card1")
    host.put("sys/class/drm/version", "drm 1.1.0")
    host.link("sys/class/drm/card7/device", "../../../simple-framebuffer.0")
    assert pci.drm(str(host.root)) == {"0000:05:00.0": {"card": 1, "render": 128}}


def test_without_sysfs_there_is_nothing(tmp_path):
    assert pci.functions(str(tmp_path)) == []
    assert pci.drm(str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000:AC:00.0", "0000:ac:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("x", ""),
        (None, ""),
    ],
)
def test_addresses(text, address):
    assert card_records.address(text) == address


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (VERSION, "580.95.05", "open"),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue Jun 23 08:38:17 UTC 2026\n",
            "580.173.02",
            "proprietary",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  515.43.04  Release Build  (roo", "515.43.04", "open"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  610.57\n", "610.57", "open"),
        ("something else 1.2.3", "", ""),
    ],
)
def test_the_drivers_own_words(host, text, version, flavour):
    host.put("proc/driver/nvidia/version", text)
    found = driver.versions(BACKENDS["nvidia"], str(host.root), RELEASE)
    assert (found["loaded"], found["flavour"]) == (version, flavour)


def elf(version: str, more: int = 0) -> bytes:
    """A module with three sections: nothing, names, .modinfo behind `more` bytes of code."""
    names = b"\0.shstrtab\0.modinfo\0"
    info = b"license=NVIDIA\0" + f"version={version}\0".encode() + b"srcversion=0123\0vermagic=6.8.0 SMP\0"
    at = 64 + more
    table = at + len(names) + len(info)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 1)
    sections = [(0, 0, 0), (1, at, len(names)), (11, at + len(names), len(info))]
    rows = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, start, size, 0, 0, 1, 0) for name, start, size in sections)
    return head + more * b"\x90" + names + info + rows


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("updates/dkms/nvidia.ko", lambda data: data),
        ("kernel/drivers/video/nvidia.ko.xz", lzma.compress),
        ("nvidia.ko.gz", gzip.compress),
    ],
)
def test_the_module_on_disk(host, name, pack):
    place = host.put(f"lib/modules/{RELEASE}/{name}")
    place.write_bytes(pack(elf("580.126.09", 3 * 2**20 + 7)))
    host.put(f"lib/modules/{RELEASE}/modules.dep", f"extra/nvidia-uvm.ko: {name}\nkernel/xnvidia.ko:\n{name}: kernel/drm.ko\n")
    assert driver.versions(BACKENDS["nvidia"], str(host.root), RELEASE)["on_disk"] == "580.126.09"


def test_a_module_packed_with_zstd_is_left_to_modinfo(host, monkeypatch, tmp_path):
    host.put(f"lib/modules/{RELEASE}/nvidia.ko.zst", "packed")
    host.put(f"lib/modules/{RELEASE}/modules.dep", "nvidia.ko.zst:\n")
    monkeypatch.setattr(driver.tool, "SYSTEM_FOLDERS", (str(tmp_path),))
    assert driver.versions(BACKENDS["nvidia"], str(host.root), RELEASE)["on_disk"] == ""
    (tmp_path / "modinfo").write_text(
        '#!/bin/sh\n[ "$1 $2" = "-F version" ] && [ -f "$3" ] && echo 580.126.09\n', encoding="ascii"
    )
    (tmp_path / "modinfo").chmod(0o755)
    assert driver.versions(BACKENDS["nvidia"], str(host.root), RELEASE)["on_disk"] == "580.126.09"


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + 58 * b"\xff", elf("1.2")[:-150], b"text"])
@pytest.mark.parametrize("name", ["nvidia.ko", "nvidia.ko.xz", "nvidia.ko.gz"])
def test_a_damaged_module_has_no_version(host, name, data):
    host.put(f"lib/modules/{RELEASE}/{name}").write_bytes(data)
    host.put(f"lib/modules/{RELEASE}/modules.dep", f"{name}:\n")
    assert driver.versions(BACKENDS["nvidia"], str(host.root), RELEASE)["on_disk"] == ""


def test_hyphen_and_underscore_are_one_in_names_of_modules(host):
    host.put(f"lib/modules/{RELEASE}/hy-cu.ko").write_bytes(elf("6.3.31-V1.5.0a"))
    host.put(f"lib/modules/{RELEASE}/modules.dep", "hy-cu.ko:\n")
    assert driver.on_disk(["none", "hy_cu"], str(host.root / "lib/modules" / RELEASE)) == "6.3.31-V1.5.0a"


def test_the_three_versions_of_a_half_done_update(host):
    nvidia_host(host, ["0000:84:00.0"])
    shutil.rmtree(host.root / "usr")
    host.put("usr/lib64/libnvidia-ml.so.580.126.09")
    host.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09")
    host.put(f"lib/modules/{RELEASE}/updates/nvidia.ko").write_bytes(elf("580.126.09"))
    host.put(f"lib/modules/{RELEASE}/modules.dep", "updates/nvidia.ko:\n")
    host.smi("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n", 18)
    seen = host.look()[1]["nvidia"]
    assert seen["driver"] == {"loaded": "580.95.05", "on_disk": "580.126.09", "library": "580.126.09", "flavour": "open"}
    assert seen["errors"] == [{"kind": "version_mismatch", "bus_id": "", "index": None, "detail": "580.126"}]


def test_a_library_behind_several_links(host):
    host.link("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "nvidia/current/libnvidia-ml.so.1")
    host.link("usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1", "/etc/alternatives/nvidia--libnvidia-ml.so.1")
    host.link("etc/alternatives/nvidia--libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.535.247.01")
    host.put("usr/lib/libnvidia-ml.so.535.247.01")
    assert driver.library("libnvidia-ml.so.1", str(host.root)) == "535.247.01"


def test_a_library_that_leads_nowhere_or_in_a_ring_has_no_version(host):
    host.link("usr/lib/libnvidia-ml.so.1", "libnvidia-ml.so.580.1.2")
    host.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1")
    assert driver.library("libnvidia-ml.so.1", str(host.root)) == ""


def test_the_table_names_what_a_host_needs():
    for name, entry in BACKENDS.items():
        assert entry["card_files"] and entry["shared_files"] and entry["queries"]["cards"], name
        assert set(entry.get("optional_files", [])) <= set(entry["shared_files"]), name
        assert all(len(program) < 16 for program in entry["bystanders"]), f"{name}: the kernel cuts names"
        assert isinstance(entry["idle_mib"], int), name
    assert set(BACKENDS) == {"nvidia", "hygon", "amd"}
