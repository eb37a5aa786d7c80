"""Wheels that a vendor hands out as files: which does a runtime take, and are they there? By exact file names. Pure functions."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ansible_collections.modelyard.core.plugins.module_utils.plan.findings import finding
from ansible_collections.modelyard.core.plugins.module_utils.plan.stack import known as stack_known
from ansible_collections.modelyard.core.plugins.module_utils.plan.tables import Runtime
from ansible_collections.modelyard.core.plugins.module_utils.process.vendor_files import plain

#: NAME-VERSION-PYTHON-ABI-PLATFORM.whl, as PEP 427 has it, and the SHA-256 as addresses of pip carry it.
FILE = re.compile(
    r"(?P<file>(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-/]+)(-[0-9][^-/]*)?-(?P<python>[a-z{][^-/]*)-[^-/]+-[^-/]+\.whl)"
    r"(#sha256=(?P<sha256>.*))?"
)
SHA256 = re.compile(r"[0-9a-f]{64}")
#: Stands in the file names of the tables for the tag of a Python, `cp310`.
PYTHON = "{cp}"
INVENTORY = "modelyard_vendor_files"


class Wheel(NamedTuple):
    """One file; `name` as packages are compared, `python` its tag, `sha256` empty where nobody said it."""

    file: str
    name: str
    version: str
    python: str
    sha256: str


def read(text: str) -> Optional[Wheel]:
    """`torch-2.5.1+das.opt1.dtk25042-cp310-cp310-manylinux_2_28_x86_64.whl#sha256=...`; None for what is no name of a wheel."""
    found = FILE.fullmatch(text)
    if not found or (found.group("sha256") is not None and not SHA256.fullmatch(found.group("sha256"))):
        return None
    return Wheel(
        found.group("file"),
        plain(found.group("name")),
        found.group("version"),
        found.group("python"),
        found.group("sha256") or "",
    )


def inventory(files: Sequence[str]) -> List[Dict[str, str]]:
    """What is wrong with the names in the inventory, all at once."""
    found: List[Dict[str, str]] = []
    by_name: Dict[str, Wheel] = {}
    for text in files:
        wheel = read(text)
        if wheel is None:
            what = f"{text} is not the name of a wheel as its vendor calls it, with #sha256=... behind it or nothing"
            found.append(finding("IN-VALUE", INVENTORY, what, "write the file's own name, without a folder"))
        elif by_name.setdefault(wheel.name, wheel) != wheel:
            what = f"two files are named for {wheel.name}: {by_name[wheel.name].file} and {wheel.file}"
            found.append(finding("IN-VALUE", INVENTORY, what, "leave the one that is wanted"))
    return found


def chosen(known: Optional[Runtime], files: Sequence[str]) -> Optional[Runtime]:
    """A runtime with the files that the inventory names: each in place of the runtime's own of that package, or beside them.

    What comes as a file is not taken from an index as well. One without files of a vendor stays as it is.
    """
    if known is None or not known.vendor:
        return known
    named = {wheel.name: text for text in files for wheel in [read(text)] if wheel}
    own = {wheel.name: text for text in known.vendor for wheel in [read(text)] if wheel}
    taken = {**own, **named}
    version = {name: wheel.version for name, text in taken.items() for wheel in [read(text)] if wheel}
    lines = [line for line in known.lock.splitlines() if plain(re.split(r"[=\[ ]", line.strip())[0]) not in taken]
    return known._replace(
        vendor=tuple(sorted(taken.values())),
        lock="\n".join(lines) + "\n",
        vllm_release=version.get("vllm", known.vllm_release),
        expect={**known.expect, "torch": version.get("torch", "").partition("+")[0] or known.expect["torch"]},
    )


def wanted(known: Runtime, python: str) -> List[Wheel]:
    """The files of a runtime for a Python, `3.10`."""
    tag = "cp" + python.replace(".", "")
    return [wheel for text in known.vendor for wheel in [read(text.replace(PYTHON, tag))] if wheel]


def judge(known: Runtime, python: str, host: str, seen: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Findings about the vendor's files for a runtime that is to be made, all at once.

    `seen`: survey.wheelhouse.loose, of the folder on the host that the inventory names.
    """
    takes = wanted(known, python)
    found = [
        finding("PF-VENDOR-WHEELS", f"{host}:{INVENTORY}", f"{wheel.file} is {wrong}", "name one that fits the host")
        for wheel in takes
        for wrong in [_unfit(wheel, known, python)]
        if wrong
    ]
    if not seen["path"]:
        what = f"{known.name} is made from files of the vendor, and no folder with them is named. It takes "
        what += ", ".join(wheel.file for wheel in takes)
        do = "bring them to the host and name their folder with modelyard_vendor_wheels"
        return [*found, finding("PF-VENDOR-WHEELS", host, what, f"{do}, or name another environment with runtime_path")]
    if seen["problem"]:
        what, do = str(seen["problem"]), "correct modelyard_vendor_wheels"
        return [*found, finding("PF-VENDOR-WHEELS", f"{host}:{seen['path']}", what, do)]
    for wheel in takes:
        what, do = _missing(wheel, known, python, seen["files"])
        if what:
            found.append(finding("PF-VENDOR-WHEELS", f"{host}:{seen['path']}/{wheel.file}", what, do))
    return found


def places(known: Runtime, python: str, folder: str, seen: Mapping[str, Any]) -> List[Dict[str, str]]:
    """Where a runtime's files lie on a host: [{path, sha256}]. `seen`: as for judge; empty for a wheelhouse, which is flat."""
    where = {place.rpartition("/")[2]: place for place in sorted(seen.get("files", ()), reverse=True)}
    return [{"path": f"{folder}/{where.get(wheel.file, wheel.file)}", "sha256": wheel.sha256} for wheel in wanted(known, python)]


def of_dtk(known: Runtime, release: str) -> bool:
    """Is a runtime for this DTK? By the same rule as the stack's: of 25.04 and 25.04.1 one is said less exactly."""
    own, host = stack_known.digits(known.dtk), stack_known.digits(release)
    return bool(own and host) and (own.startswith(host) or host.startswith(own))


def _unfit(wheel: Wheel, known: Runtime, python: str) -> str:
    """Why a file cannot be of this runtime: another DTK, another Python. Empty when it can."""
    wrong = []
    dtk, own = stack_known.dtk_of_wheel(wheel.version), stack_known.digits(known.dtk)
    if dtk and not (dtk.startswith(own) or own.startswith(dtk)):
        wrong.append(f"for DTK {dtk} and not for {known.dtk}")
    tag = "cp" + python.replace(".", "")
    if wheel.python.startswith("cp") and wheel.python != tag:
        wrong.append(f"for Python {wheel.python} and not for {tag}")
    return " and ".join(wrong)


def _missing(wheel: Wheel, known: Runtime, python: str, files: Mapping[str, str]) -> List[str]:
    """[what is wrong with this file in the folder, what to do]; two empty texts when it is there, once and whole."""
    there = [place for place in sorted(files) if place.rpartition("/")[2] == wheel.file]
    if len(there) > 1:
        return [f"it lies there {len(there)} times: {', '.join(there)}", "leave one of them"]
    if there and files[there[0]]:
        return [files[there[0]], "bring it again"]
    if there:
        return ["", ""]
    others = [
        other for place in sorted(files) for other in [read(place.rpartition("/")[2])] if other and other.name == wheel.name
    ]
    said = [f"{other.file} is {_unfit(other, known, python) or 'another build'}" for other in others]
    fitting = [other.file for other in others if not _unfit(other, known, python)]
    do = f"bring exactly this file from the vendor ({known.name} takes it)"
    if fitting:
        do += f". To take another build of the same DTK and Python, name it in {INVENTORY}: {' or '.join(fitting)}"
    return ["it is not there" + (f"; {', '.join(said)}" if said else ""), do]
