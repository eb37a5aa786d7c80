"""Cards as the PCI bus shows them, straight from sysfs: there is no need of a driver, of lspci or of its list of names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Collection, Dict, List, Optional

DEVICES = "sys/bus/pci/devices"
DRM = "sys/class/drm"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE = re.compile(r"(card|renderD)([0-9]{1,4})")
_KINDS = {"card": "card", "renderD": "render"}


def functions(sysroot: str = "/", vendors: Optional[Collection[str]] = None) -> List[Dict[str, Any]]:
    """PCI functions, in order of their address, of the given vendors (four hexadecimal digits) or of all.

    Each has `bus_id` (`0000:01:00.0`), `vendor`, `device`, `class` (the first four of six digits), `numa_node` (None where
    the firmware does not say) and `driver` (empty for none). An empty list where there is no such bus.
    """
    root = f"{sysroot.rstrip('/')}/{DEVICES}"
    found = []
    for address in _names(root):
        folder = f"{root}/{address}"
        # The vendor first: a server has hundreds of functions, few of which are cards.
        vendor = _hexadecimal(folder, "vendor")
        if not ADDRESS.fullmatch(address) or not vendor or (vendors is not None and vendor not in vendors):
            continue
        found.append(
            {
                "bus_id": address,
                "vendor": vendor,
                "device": _hexadecimal(folder, "device"),
                "class": _hexadecimal(folder, "class")[:4],
                "numa_node": _node(read(f"{folder}/numa_node")),
                "driver": os.path.basename(_link(f"{folder}/driver")),
            }
        )
    return found


def drm(sysroot: str = "/") -> Dict[str, Dict[str, int]]:
    """Numbers of the device files by PCI address: `{"0000:05:00.0": {"card": 1, "render": 128}}`.

    `card0` is often the display of the board's management controller, so neither number is that of a card's place in a list.
    """
    root = f"{sysroot.rstrip('/')}/{DRM}"
    found: Dict[str, Dict[str, int]] = {}
    for name in _names(root):
        node = _NODE.fullmatch(name)
        address = os.path.basename(_link(f"{root}/{name}/device")) if node else ""
        if node and ADDRESS.fullmatch(address):
            found.setdefault(address, {})[_KINDS[node.group(1)]] = int(node.group(2))
    return found


def read(path: str) -> str:
    """The text of a small file without blanks around it; empty when it is not there or may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _names(folder: str) -> List[str]:
    try:
        return sorted(entry.name for entry in Path(folder).iterdir())
    except OSError:
        return []


def _hexadecimal(folder: str, name: str) -> str:
    """The digits of `0x10de`."""
    text = read(f"{folder}/{name}").lower()
    return text[2:] if text.startswith("0x") else text


def _node(text: str) -> Optional[int]:
    return int(text) if text.isdigit() else None  # -1 where the firmware does not say


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
