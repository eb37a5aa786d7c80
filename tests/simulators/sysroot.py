"""The files that a system with these cards would show, below ROOT: sys, proc/driver/nvidia, dev, usr/lib, lib/modules.

`refresh` brings the tree to what the state says and touches nothing else: a device file keeps its inode, which its holders have
open, unless a fault takes the file away.
"""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

from simulators import hy_smi
from simulators.cards import Card
from simulators.state import read_json, write_json

DRIVERS = {"nvidia": "nvidia", "hygon": "hycu", "amd": "amdgpu"}
MODULES = {"nvidia": ("nvidia", "nvidia_uvm"), "hygon": ("hycu",), "amd": ("amdgpu",)}
SHARED = {"nvidia": ("nvidiactl", "nvidia-uvm"), "hygon": ("kfd", "mkfd"), "amd": ("kfd",)}
LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so"
KEPT = ("dev", "dri", "sys", "proc", "devices", "drivers", "drm", "module", "class", "lib")  # stay when nothing is in them
PCI = "sys/devices/pci0000:00"
BUS = "sys/bus/pci/devices"
INFORMATION = """\
Model: \t\t {name}
IRQ:   \t\t {irq}
GPU UUID: \t {uuid}
Video BIOS: \t {vbios}
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t {bus_id}
Device Minor: \t {minor}
GPU Firmware: \t {driver}
GPU Excluded:\t No
"""


def refresh(sim) -> None:
    """Make, change and remove files until the tree is as the state has it."""
    book = sim.folder / "tree.json"
    is_node = sim.machine.get("nodes", False)
    wanted = tree(sim)
    for path in reversed(read_json(book, [])):  # what stands deepest first
        if path not in wanted:
            _remove(sim.root / path)
    for path, entry in sorted(wanted.items()):
        _make(sim.root / path, entry, is_node)
    write_json(book, sorted(wanted))


def tree(sim):
    """{path: entry}. An entry is ("file", text or bytes), ("link", target), ("dir",) or ("device", mode, group)."""
    entries = {f"{BUS}": ("dir",), "sys/class/drm": ("dir",), "sys/module": ("dir",), "dev": ("dir",)}
    is_loaded = bool(sim.vendor) and not sim.fault("driver_not_loaded")
    for other in sim.machine["others"]:
        _function(entries, other, other.get("driver", ""))
        if "drm" in other:
            _drm(entries, other["bus_id"], f"card{other['drm']}")
            entries[f"dev/dri/card{other['drm']}"] = ("device", "0660", "video")
    cards = [Card(sim, number) for number in range(len(sim.machine["cards"]))]
    for card in cards:
        if not {"gone_from_bus", "absent"} & set(card.faults):
            data = {**card.data, "vendor": {"nvidia": "10de", "hygon": "1d94", "amd": "1002"}[sim.vendor]}
            _function(entries, data, DRIVERS[sim.vendor] if is_loaded else "")
    if is_loaded:
        _driver(entries, sim, cards)
    if sim.vendor:
        _on_disk(entries, sim, sim.fault("version_mismatch") or sim.machine["driver"])
    return entries


def _on_disk(entries, sim, version) -> None:
    """The module that the running kernel would load next time, and the library of the same package."""
    name = f"updates/dkms/{MODULES[sim.vendor][0]}.ko.gz"
    words = f"license=Dual MIT/GPL\0version={version}\0"
    folder = f"lib/modules/{os.uname().release}"
    entries[f"{folder}/modules.dep"] = ("file", f"{name}:\n")
    entries[f"{folder}/{name}"] = ("file", gzip.compress(b"\x7fELF\0" + words.encode(), mtime=0))
    if sim.vendor == "nvidia":
        entries[f"{LIBRARY}.1"] = ("link", f"libnvidia-ml.so.{version}")
        entries[f"{LIBRARY}.{version}"] = ("file", "")


def _function(entries, data, driver) -> None:
    """A function on the PCI bus."""
    folder = f"{PCI}/{data['bus_id']}"
    entries[f"{BUS}/{data['bus_id']}"] = ("link", f"../../../devices/pci0000:00/{data['bus_id']}")
    for name in ("vendor", "device", "class"):
        entries[f"{folder}/{name}"] = ("file", f"0x{data[name]}\n")
    if "subsystem" in data:
        entries[f"{folder}/subsystem_device"] = ("file", f"0x{data['subsystem'][:4]}\n")
        entries[f"{folder}/subsystem_vendor"] = ("file", f"0x{data['subsystem'][4:]}\n")
    entries[f"{folder}/numa_node"] = ("file", f"{data.get('numa', -1)}\n")
    if driver:
        entries[f"sys/bus/pci/drivers/{driver}"] = ("dir",)
        entries[f"{folder}/driver"] = ("link", f"../../../bus/pci/drivers/{driver}")


def _drm(entries, bus_id, name) -> None:
    entries[f"sys/class/drm/{name}"] = ("link", f"../../devices/pci0000:00/{bus_id}/drm/{name}")
    entries[f"{PCI}/{bus_id}/drm/{name}/device"] = ("link", f"../../../{bus_id}")


def _driver(entries, sim, cards) -> None:
    """What a loaded driver shows."""
    version = sim.machine["driver"]
    for module in MODULES[sim.vendor]:
        entries[f"sys/module/{module}/version"] = ("file", f"{version}\n")
        entries[f"sys/module/{module}/refcnt"] = ("file", "2\n" if module == "nvidia" else "0\n")
    denied = sim.fault("denied")
    group = "root" if sim.vendor == "nvidia" else "video"
    for name in SHARED[sim.vendor]:
        entries[f"dev/{name}"] = _device(denied, group)
    for card in cards:
        gone = {"gone_from_bus", "absent"} & set(card.faults)
        # A node of /dev/nvidia* is no work of the kernel and outlives its card until the machine boots.
        if gone and (sim.vendor != "nvidia" or "absent" in gone):
            continue
        for path in card.files:
            entries[path] = _device(card.faults.get("denied") or denied, group)
            if sim.vendor != "nvidia":
                _drm(entries, card["bus_id"], path.rpartition("/")[2])
    if sim.vendor == "nvidia":
        _nvidia_proc(entries, sim, cards)
    else:
        _kfd(entries, sim, cards)


def _device(denied, group):
    return ("device", str(denied), "root" if str(denied) == "0600" else group) if denied else ("device", "0666", group)


def _nvidia_proc(entries, sim, cards) -> None:
    version, built = sim.machine["driver"], sim.machine["built"]
    words = {
        "open": f"NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@U22-I3-AF03-09-1)  {built}",
        "proprietary": f"NVIDIA UNIX x86_64 Kernel Module  {version}  {built}",
    }[sim.machine["flavour"]]
    compiler = "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)"
    entries["proc/driver/nvidia/version"] = ("file", f"NVRM version: {words}\n{compiler}\n")
    for card in cards:
        if "absent" not in card.faults:
            text = INFORMATION.format(**card.data, irq=180 + card.number, driver=version)
            entries[f"proc/driver/nvidia/gpus/{card['bus_id']}/information"] = ("file", text)


def _kfd(entries, sim, cards) -> None:
    base = "sys/class/kfd/kfd/topology/nodes"
    for node in range(sim.machine["cpu_nodes"]):
        entries[f"{base}/{node}/gpu_id"] = ("file", "0\n")
        entries[f"{base}/{node}/properties"] = ("file", "cpu_cores_count 16\nsimd_count 0\n")
    for card in cards:
        if {"gone_from_bus", "absent"} & set(card.faults):
            continue
        domain, bus, slot = card["bus_id"].split(":")
        device, function = slot.split(".")
        place = (int(bus, 16) << 8) + (int(device, 16) << 3) + int(function)
        folder = f"{base}/{sim.machine['cpu_nodes'] + card.number}"
        entries[f"{folder}/gpu_id"] = ("file", f"{hy_smi.gpu_id(card['bus_id'])}\n")
        entries[f"{folder}/properties"] = (
            "file",
            f"cpu_cores_count 0\nsimd_count 480\ngfx_target_version {card['target']}\nvendor_id {int(_vendor(sim), 16)}\n"
            f"device_id {int(card['device'], 16)}\nlocation_id {place}\ndomain {int(domain, 16)}\n"
            f"drm_render_minor {card['render']}\n",
        )


def _vendor(sim) -> str:
    return {"hygon": "1d94", "amd": "1002"}[sim.vendor]


def _remove(path) -> None:
    if path.is_dir() and not path.is_symlink():
        if not any(path.iterdir()):
            path.rmdir()
        return
    path.unlink(missing_ok=True)
    # A folder that holds nothing now was made for this file, but the few that every kernel has stay.
    folder = path.parent
    while folder.name not in KEPT and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _make(path, entry, is_node) -> None:
    kind, *details = entry
    folder = path if kind == "dir" else path.parent
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        if not path.is_symlink() or str(path.readlink()) != details[0]:
            path.unlink(missing_ok=True)
            path.symlink_to(details[0])
    elif kind == "file":
        content = details[0] if isinstance(details[0], bytes) else details[0].encode()
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)
    elif kind == "device":
        _make_device(path, int(details[0], 8), details[1], is_node)


def _make_device(path, mode, group, is_node) -> None:
    is_root = os.geteuid() == 0
    if not path.exists():
        if is_node:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # the numbers of /dev/null
        else:
            path.touch()
    # Without root the owner is not root either: then denied must mean nobody.
    wanted = 0 if mode == 0o600 and not is_root else mode
    if stat.S_IMODE(path.stat().st_mode) != wanted:
        path.chmod(wanted)
    if is_root:
        os.chown(path, 0, _group(group))


def _group(name) -> int:
    """Number of a group of this machine; that of root where there is no such group."""
    for line in Path("/etc/group").read_text(encoding="utf-8", errors="replace").splitlines():
        parts = line.split(":")
        if parts[0] == name:
            return int(parts[2])
    return 0
