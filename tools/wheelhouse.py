"""Make a wheelhouse: all wheels of a runtime's lock for one kind of machine, to be carried to hosts without internet.

usage: make wheelhouse RUNTIME=vllm-cuda-0.33.0 PYTHON_MINOR=3.12 GLIBC=2.35 TO=/srv/wheelhouse

The folder TO/RUNTIME-pyMINOR gets the wheels, the lock, SHA256SUMS, and last wheelhouse.json, which makes it count. What was
downloaded before is not downloaded again, so one that was broken off is simply run again. pip is configured as usual on this
machine (its index, its proxies, its certificate); nothing is resolved, and nothing is installed.

Files that a vendor hands out (RUNTIME=vllm-dtk26.04-0.11.0) are taken from a folder: ARGS="--vendor /srv/hygon".
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.modelyard.core.plugins.module_utils.plan import tables, vendor, wheelhouse
from ansible_collections.modelyard.core.plugins.module_utils.survey.wheelhouse import MANIFEST, loose, sha256
from ansible_collections.modelyard.core.plugins.plugin_utils.wheels import Pin, Target, fits, least_glibc, missing, pins, problems

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
#: More than what is downloaded: files are complete before they get their names.
SPARE_MIB = 500
HOW = '\nName their folder: ARGS="--vendor FOLDER"; another build of a package: --vendor-file FILE beside it'


class Failed(Exception):
    """It could not be made; the text says why and what to do."""


def _pip(words: Sequence[str], target: Target, folder: Path, index: str) -> bool:
    """pip download into the folder, seen by whoever waits; did it go well?"""
    short = target.python.replace(".", "")
    tags = [word for name in target.platforms for word in ("--platform", name)]
    tags += ["--python-version", target.python, "--implementation", "cp", "--abi", f"cp{short}", "--abi", "abi3", "--abi", "none"]
    extra = ["--index-url", index] if index else []
    order = [*PIP, "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), *extra, *tags, *words]
    return subprocess.run(order, check=False).returncode == 0


def _build(pin: Pin, folder: Path) -> str:
    """A wheel of a package that the index has only as source: only pure Python, which is the same on every machine.

    Empty, or what is wrong.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        done = subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", place, str(pin)], check=False).returncode
        made = [path for path in Path(place).glob("*.whl") if path.name.endswith("-none-any.whl")]
        if done or not made:
            return f"{pin}: the index has no wheel for this kind of machine, and none could be built that runs everywhere"
        made[0].replace(folder / made[0].name)
    return ""


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.whl"))


def _gather(known: tables.Runtime, target: Target, folder: Path, index: str, torch_index: str) -> list[Pin]:
    """Download what is missing; the pins whose wheels are there now."""
    wanted = pins(known.lock, target)
    torch = [pin for pin in missing(wanted, _files(folder), target) if pin.name in known.torch_packages]
    # Where pip has a place of its own (find-links) that holds them, it is not sent to PyTorch's index.
    if torch and not _pip(["--no-index", *map(str, torch)], target, folder, ""):
        _pip(list(map(str, torch)), target, folder, torch_index)
    lacking = [pin for pin in missing(wanted, _files(folder), target) if pin.name not in known.torch_packages]
    if lacking:
        print(f"{len(lacking)} of {len(wanted)} wheels are downloaded to {folder}", flush=True)
        _pip(list(map(str, lacking)), target, folder, index)
    # pip ends at the first one: those that remain one by one, so that all that is missing is told at once.
    wrong = []
    for pin in missing(wanted, _files(folder), target):
        if pin.name in known.torch_packages or not _pip([str(pin)], target, folder, index):
            wrong.append(_build(pin, folder))
    if any(wrong):
        raise Failed("\n".join(filter(None, wrong)))
    return wanted


def _take(known: tables.Runtime, target: Target, folder: Path, source: Path | None) -> list[str]:
    """Copy the vendor's files; their names. Failed with all that is wrong with them, before anything is downloaded."""
    seen = loose(str(source) if source else "")
    wrong = vendor.judge(known, target.python, "here", seen) if known.vendor else []
    places = vendor.places(known, target.python, str(source), seen)
    if not wrong:
        wrong = [
            {"where": entry["path"], "what": f"its SHA-256 is not {entry['sha256']}"}
            for entry in places
            if entry["sha256"] and sha256(Path(entry["path"])) != entry["sha256"]
        ]
    if wrong:
        raise Failed("\n".join(f"{found['where'].removeprefix('here:')}: {found['what']}" for found in wrong) + HOW)
    for entry in places:
        there = folder / Path(entry["path"]).name
        if not there.is_file() or sha256(there) != sha256(Path(entry["path"])):
            part = there.with_suffix(".part")
            shutil.copyfile(entry["path"], part)
            part.replace(there)
    return [Path(entry["path"]).name for entry in places]


def _sums(folder: Path, names: Sequence[str]) -> dict[str, dict[str, object]]:
    files: dict[str, dict[str, object]] = {}
    for name in names:
        with (folder / name).open("rb") as wheel:
            files[name] = {"sha256": hashlib.file_digest(wheel, "sha256").hexdigest(), "size": (folder / name).stat().st_size}
    return files


def make(known: tables.Runtime, target: Target, to: Path, index: str, torch_index: str, source: Path | None = None) -> Path:
    """The whole folder; Failed with what is missing."""
    folder = to / wheelhouse.folder(known.name, target.python)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)  # it does not count until it is whole again
    free = shutil.disk_usage(folder).free >> 20
    if not _files(folder) and free < known.disk_mib // 2 + SPARE_MIB:
        raise Failed(f"{folder}: {free} MiB are free, and about {known.disk_mib // 2 + SPARE_MIB} are wanted")
    taken = _take(known, target, folder, source)
    wanted = _gather(known, target, folder, index, torch_index)
    lacking = missing(wanted, _files(folder), target)
    if lacking:
        raise Failed(f"no wheel for this kind of machine: {', '.join(map(str, lacking))}")
    names = [name for name in _files(folder) if fits(name, target)]
    needed = {*taken, *(name for pin in wanted for name in names if not missing([pin], [name], target))}
    for name in sorted(set(_files(folder)) - needed):
        print(f"removed, the lock does not name it any more: {name}")
        (folder / name).unlink()
    files = _sums(folder, sorted(needed))
    (folder / f"{known.name}.txt").write_text(known.lock, encoding="utf-8")
    (folder / "SHA256SUMS").write_text("".join(f"{fact['sha256']}  {name}\n" for name, fact in files.items()), encoding="utf-8")
    said = {
        "runtime": known.name,
        "digest": known.digest,
        "python": target.python,
        "machine": target.machine,
        "needs_glibc": least_glibc(files, target),
        "files": files,
    }
    new = folder / f"{MANIFEST}.new"
    new.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    new.replace(folder / MANIFEST)
    return folder


def main(words: Sequence[str] | None = None) -> int:
    """For the command line."""
    parser = argparse.ArgumentParser(
        prog="make wheelhouse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runtime", help=", ".join(tables.runtime_names()))
    parser.add_argument("to", type=Path, help="folder for wheelhouses")
    parser.add_argument("--python", default="", help="minor version of the hosts' Python; default: the runtime's first")
    parser.add_argument(
        "--glibc", default="", help="glibc of the oldest host (ldd --version); default: the least that the lock needs"
    )
    parser.add_argument("--machine", default=platform.machine(), help="as `uname -m` says it")
    parser.add_argument("--index-url", default="", help="default: pip's own")
    parser.add_argument("--torch-index-url", default="https://download.pytorch.org/whl/cpu", help="for PyTorch's CPU builds")
    parser.add_argument("--vendor", type=Path, default=None, help="folder with the wheels that the vendor hands out as files")
    parser.add_argument(
        "--vendor-file",
        action="append",
        default=[],
        help="name of a wheel instead of the runtime's own, as in modelyard_vendor_files",
    )
    args = parser.parse_args(words)
    known = vendor.chosen(tables.runtime(args.runtime), args.vendor_file)
    if known is None:
        print(f"There is no runtime {args.runtime}; there are {', '.join(tables.runtime_names())}", file=sys.stderr)
        return 2
    target = Target(args.python or known.pythons[0], args.glibc or known.glibc, args.machine)
    wrong = problems(target, known.pythons, known.machines)
    wrong += [found["what"] for found in vendor.inventory(args.vendor_file)]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    try:
        folder = make(known, target, args.to.expanduser(), args.index_url, args.torch_index_url, args.vendor)
    except (Failed, OSError) as exc:
        print(f"make wheelhouse: {exc}", file=sys.stderr)
        return 1
    said = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    mib = sum(fact["size"] for fact in said["files"].values()) >> 20
    what = f"Python {target.python}, {target.machine}, glibc {said['needs_glibc']} or newer"
    print(f"{folder}: {len(said['files'])} wheels, {mib} MiB, for {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
