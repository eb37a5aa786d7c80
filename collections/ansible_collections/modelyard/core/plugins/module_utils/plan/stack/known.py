"""What the tables say of one card, one CUDA, one release. Nothing is guessed: what no table knows is empty.

`Tables` is what tables.stack() reads: {drivers, cards, cuda, torch, packages, pins, hygon}.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import versions
from ansible_collections.modelyard.core.plugins.module_utils.plan.vllm_table import order

Tables = Mapping[str, Any]
#: What an entry is worth that says nothing of its confidence.
SURE = "A"


class Card(NamedTuple):
    """A card as the tables know it. Empty fields: not known."""

    name: str = ""
    generation: str = ""
    cc: str = ""
    first_driver: str = ""
    last_branch: str = ""
    open: str = ""
    proprietary: str = ""
    nvswitch: str = ""
    arch: str = ""
    vllm: bool = True
    confidence: str = SURE

    @property
    def geforce(self) -> bool:
        """Is it a card for which there is no forward compatibility?"""
        return "geforce" in self.name.lower()


class Told(NamedTuple):
    """A fact, and how sure it is."""

    value: Any
    confidence: str = SURE


def nvidia_card(tables: Tables, pci_id: str = "", name: str = "", generation: str = "") -> Card:
    """By the PCI device id, which needs no driver; else by the name the tool prints; else what its chip or generation says."""
    wanted = _plain(name)
    for entry in tables["cards"]["cards"]:
        if (pci_id and entry["pci_id"] == pci_id) or (not pci_id and wanted and _plain(entry["name"]) == wanted):
            return _card(tables, entry)
    chip = next((entry for entry in tables["cards"]["chips"] if pci_id and entry["from"] <= pci_id <= entry["to"]), None)
    if chip:
        title = re.sub(r"^NVIDIA\s+", "", name) or f"card 10de:{pci_id}"
        return _card(tables, {**chip, "name": title, "confidence": "B"})
    return _card(
        tables, {"name": name or (f"a card of the generation {generation}" if generation else ""), "generation": generation}
    )


def _plain(name: str) -> str:
    return re.sub(r"^nvidia\s+", "", name.strip().lower())


def _card(tables: Tables, entry: Mapping[str, Any]) -> Card:
    kind: Mapping[str, Any] = next((g for g in tables["cards"]["generations"] if g["name"] == entry.get("generation")), {})
    capabilities: Sequence[str] = kind.get("cc", ())
    return Card(
        name=str(entry.get("name", "")),
        generation=str(entry.get("generation", "")) if kind else "",
        # Of a whole generation only what all of it has.
        cc=str(entry.get("cc", capabilities[0] if len(capabilities) == 1 else "")),
        first_driver=str(entry.get("first_driver", kind.get("first_driver", ""))),
        last_branch=str(kind.get("last_branch", "")),
        open=str(kind.get("open", "")),
        proprietary=str(kind.get("proprietary", "")),
        nvswitch=str(entry.get("nvswitch", "")),
        confidence=str(entry.get("confidence", kind.get("confidence", SURE))),
    )


def dcu(tables: Tables, pci_id: str = "", name: str = "") -> Card:
    """A Hygon DCU by its PCI device id, else by the longest of the words that its name holds."""
    entries: List[Mapping[str, Any]] = tables["hygon"]["cards"]
    found = [entry for entry in entries if pci_id and entry.get("pci_id") == pci_id]
    if not found:
        words = [(len(word), entry) for entry in entries for word in entry["words"] if word.lower() in name.lower()]
        found = [entry for _, entry in sorted(words, key=lambda pair: -pair[0])]
    if not found:
        return Card(name=name)
    entry = found[0]
    return Card(
        name=str(entry["name"]),
        arch=str(entry["arch"]),
        first_driver=str(entry.get("first_driver", "")),
        vllm=bool(entry.get("vllm", True)),
        confidence=str(entry["confidence"]),
    )


def hard_driver(tables: Tables, cuda: str) -> Told:
    """The oldest driver on which programs of this CUDA's family run at all."""
    entry = tables["cuda"]["families"].get(versions.branch(cuda), {})
    return Told(str(entry.get("min_driver", "")), str(entry.get("confidence", SURE)))


def safe_driver(tables: Tables, cuda: str) -> Told:
    """The driver with which everything of this CUDA works. Which update a wheel was built with is not said: the newest counts."""
    found = Told("")
    for entry in tables["cuda"]["toolkits"]:
        driver = str(entry.get("driver") or "")
        if entry["version"] == versions.minor(cuda) and driver and versions.at_least(driver, found.value) is not False:
            found = Told(driver, str(entry["confidence"]))
    return found


def torch(tables: Tables, version: str) -> Mapping[str, Any]:
    """The entry of a PyTorch release; without one that of another patch of it, as they are built alike; else empty."""
    entries: List[Mapping[str, Any]] = tables["torch"]["releases"]
    release = str(version).partition("+")[0]
    same = [entry for entry in entries if entry["version"] == release]
    near = [entry for entry in entries if versions.minor(release) and versions.minor(entry["version"]) == versions.minor(release)]
    return (same or near or [{}])[-1]


def archs(tables: Tables, torch_version: str, cuda: str) -> Told:
    """Compute capabilities that a build of PyTorch has code for, as `9.0` or `12.0+PTX`; an empty list when it is not known."""
    release, minor = versions.numbers(torch_version)[:2], versions.minor(cuda)
    for entry in tables["torch"]["archs"]:
        if entry["cuda"] == minor and release and versions.numbers(entry["from"]) <= release <= versions.numbers(entry["to"]):
            return Told(list(entry["sm"]), str(entry["confidence"]))
    return Told([])


def pins(tables: Tables, release: str) -> Dict[str, Any]:
    """What a vLLM release asks for. Between two entries of the table what both say; beyond them nothing."""
    entries: Mapping[str, Mapping[str, Any]] = tables["pins"]["releases"]
    wanted = str(release).partition("+")[0]
    if wanted in entries:
        return dict(entries[wanted])
    if not versions.numbers(wanted):
        return {}
    before = [entry for name, entry in entries.items() if order(name) < order(wanted)]
    after = [entry for name, entry in entries.items() if order(name) > order(wanted)]
    if not before or not after:
        return {}
    return {key: value for key, value in before[-1].items() if after[0].get(key) == value}


def branch(tables: Tables, version: str) -> Mapping[str, Any]:
    """The entry of a driver branch; empty for one that is not in the table."""
    wanted = versions.branch(version)
    return next((entry for entry in tables["drivers"]["branches"] if entry["branch"] == wanted), {})


def toolkits_of_driver(tables: Tables, driver: str) -> Told:
    """The DTK releases that a Hygon driver works with; an empty list when the driver is not known."""
    found = Told([])
    for entry in tables["hygon"]["drivers"]:
        if versions.at_least(driver, entry["from"]):
            found = Told(list(entry["toolkits"]), str(entry["confidence"]))
    return found


def dtk_of_wheel(version: str) -> str:
    """The DTK in a vendor's version, digits alone: `25041` of 2.5.1+das.opt1.dtk25041; empty for a version without one."""
    found = re.search(r"dtk([0-9]+)", str(version))
    return found.group(1) if found else ""


def digits(version: str) -> str:
    """`25041` of DTK 25.04.1, as file names of wheels have it."""
    return "".join(re.findall(r"[0-9]+", version.partition("-")[0])) if version else ""


def packages(tables: Tables, host: Mapping[str, Any], flavour: str, version: str, source: str = "") -> Optional[Dict[str, Any]]:
    """How a branch's packages are called on a host, and how they are pinned; None where no table says it.

    `host`: survey.stack. `source`: id of one; empty for the preferred one.
    """
    wanted, system = versions.branch(version), host.get("system") or {}
    for entry in tables["packages"].get(flavour or "open", ()):
        of_version = not entry.get("versions") or str(system.get("version", "")).partition(".")[0] in entry["versions"]
        if system.get("id") not in entry["systems"] or not of_version or source not in ("", entry["id"]):
            continue
        if versions.older(wanted, entry.get("from", "0")) or versions.older(entry.get("to", "9999"), wanted):
            continue
        kernels = [kernel["release"] for kernel in host.get("kernels", ())] or ["generic"]
        modules = [entry["modules"].format(branch=wanted, kernel=kernel) for kernel in kernels] if "modules" in entry else []
        return {
            "id": entry["id"],
            "source": entry["source"],
            "signed": entry["signed"],
            "names": [*modules, *(name.format(branch=wanted) for name in entry["names"])],
            "fabric_manager": [name.format(branch=wanted) for name in entry["fabric_manager"]],
            "pin": entry["pin"].format(branch=wanted),
        }
    return None


def runs(archs_of_build: Sequence[str], capability: str) -> Optional[bool]:
    """Has a build code for a card? None when one of the two is not known.

    Code for 8.6 runs on 8.6 to 8.9. `9.0a` runs on 9.0 alone, `10.0f` on its family. PTX is compiled for newer cards.
    """
    card = _capability(capability)
    if not card or not archs_of_build:
        return None
    for text in archs_of_build:
        arch, _, ptx = text.partition("+")
        kind = arch[-1:] if arch[-1:] in ("a", "f") else ""
        built = _capability(arch[: len(arch) - len(kind)])
        if not built:
            continue
        if (built == card) or (kind != "a" and built[0] == card[0] and built[1] <= card[1]) or (ptx and built <= card):
            return True
    return False


def _capability(text: str) -> Tuple[int, ...]:
    parts = versions.numbers(text)
    return parts if len(parts) == 2 else ()
