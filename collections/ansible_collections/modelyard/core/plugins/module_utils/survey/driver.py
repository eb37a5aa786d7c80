"""Versions of a card's driver: what runs in the kernel, what would be loaded next time, what programs are linked with."""

from __future__ import annotations

import importlib
import os
import re
import struct
from pathlib import Path
from typing import IO, Any, Callable, Dict, Mapping, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.survey import pci, tool
from ansible_collections.modelyard.core.plugins.module_utils.survey.device_files import below

#: Where distributions keep libraries. Not asked of ldconfig: it knows nothing of another system's folders.
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
)
#: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.173.02  Tue ...`, or `... Open Kernel Module for x86_64  515.43.04 ...`
_LOADED = re.compile(r"(Open )?Kernel Module(?:\s+for\s+\S+)?\s+([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
_VERSION = re.compile(rb"(?<![A-Za-z_])version=([0-9][0-9A-Za-z.+_~-]{0,63})\0")
_OF_LIBRARY = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)\Z")
PACKERS = {".gz": "gzip", ".xz": "lzma"}
CHUNK = 1 << 20
#: Larger than any module; what is larger is none.
MODULE_BYTES = 1 << 30
#: Packed with zstd, which the standard library does not read, a module is left to the kernel's own tool.
MODINFO_LIMIT_S = 5.0


def versions(entry: Mapping[str, Any], sysroot: str, kernel_release: str) -> Dict[str, str]:
    """`loaded`, `on_disk`, `library` and `flavour` (`open` or `proprietary`, of the loaded module); empty for absent or unknown.

    `entry` is the backend's: `modules`, and if it has them `version_file` and `library`. The paths are looked up below `sysroot`.
    """
    said = _LOADED.search(pci.read(below(sysroot, entry["version_file"]))) if entry.get("version_file") else None
    loaded = next(filter(None, (pci.read(below(sysroot, f"/sys/module/{name}/version")) for name in entry["modules"])), "")
    return {
        "loaded": loaded or (said.group(2) if said else ""),
        "on_disk": on_disk(entry["modules"], below(sysroot, f"/lib/modules/{kernel_release}")),
        "library": library(entry["library"], sysroot) if entry.get("library") else "",
        "flavour": ("open" if said.group(1) else "proprietary") if said else "",
    }


def library(name: str, sysroot: str = "/") -> str:
    """The version in the name of the file that the library's link leads to (`libx.so.1` -> `libx.so.580.65.06`)."""
    for folder in LIBRARY_FOLDERS:
        path = below(sysroot, f"{folder}/{name}")
        for _ in range(10):  # Debian goes through its alternatives; a ring has no end
            found = _OF_LIBRARY.search(path)
            if found and os.path.exists(path):
                return found.group(1)
            try:
                target = os.readlink(path)
            except OSError:
                break
            path = below(sysroot, target) if target.startswith("/") else str(Path(path).parent / target)
    return ""


def on_disk(modules: Sequence[str], folder: str) -> str:
    """Version of the first of the modules that `folder` (`/lib/modules/RELEASE`) has for its kernel; empty when it has none."""
    try:
        listed = (Path(folder) / "modules.dep").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for name in modules:
        stem = re.escape(name).replace("_", "[_-]")
        found = re.search(rf"^((?:[^:\n]*/)?{stem}\.ko(?:\.[a-z0-9]+)?):", listed, re.MULTILINE)
        if found:
            return module_version(str(Path(folder) / found.group(1)))
    return ""


def module_version(path: str) -> str:
    """The version that a module file carries, packed or not; empty when it has none or cannot be read."""
    packer = PACKERS.get(Path(path).suffix)
    try:
        if path.endswith(".ko"):
            with Path(path).open("rb") as plain:
                return _in_section(plain)
        if packer:  # loaded only now: it is rarely needed, and not every Python has both
            with importlib.import_module(packer).open(path, "rb") as unpacked:
                return _in_stream(unpacked.read)
    except Exception:  # of a damaged archive; the archives' errors have no common ancestor
        return ""
    return _asked(path)


def _in_section(stream: IO[bytes]) -> str:
    """Of an ELF file's section .modinfo. Modules can have a hundred megabytes: only the tables and the section are read."""
    head = stream.read(64)
    if head[:6] != b"\x7fELF\x02\x01":  # 64 bit, little-endian: all machines that have such cards
        return ""
    (table,) = struct.unpack_from("<Q", head, 0x28)
    size, count, names = struct.unpack_from("<HHH", head, 0x3A)
    stream.seek(table)
    raw = stream.read(size * count)
    sections = [struct.unpack_from("<I20xQQ", raw, place * size) for place in range(len(raw) // size)] if size >= 64 else []
    if names >= len(sections):
        return ""
    _, start, length = sections[names]
    stream.seek(start)
    strings = stream.read(min(length, CHUNK))
    for name, offset, length in sections:
        if strings[name : name + 9] == b".modinfo\0":
            stream.seek(offset)
            found = _VERSION.search(b"\0" + stream.read(min(length, CHUNK)) + b"\0")
            return found.group(1).decode() if found else ""
    return ""


def _in_stream(read: Callable[[int], bytes]) -> str:
    """Of a module that is being unpacked, from its beginning: to reach its tables it would be unpacked twice."""
    before, seen = b"", 0
    while seen < MODULE_BYTES:
        chunk = read(CHUNK)
        if not chunk:
            break
        seen += len(chunk)
        found = _VERSION.search(before + chunk)
        if found:
            return found.group(1).decode()
        before = chunk[-128:]
    return ""


def _asked(path: str) -> str:
    program = tool.find("modinfo", tool.SYSTEM_FOLDERS, "")
    if not program or not os.path.exists(path):
        return ""
    said = tool.run([program, "-F", "version", path], MODINFO_LIMIT_S)
    lines = said["stdout"].split() if said["rc"] == 0 else []
    return str(lines[0]) if lines else ""
