"""Put a simulated machine into a folder: `python3 install.py --machine 2x4090 --root /sim`, or `install(...)` from a test.

ROOT then holds bin (the tools and simctl), state, code, and the files of a kernel (sys, proc, dev, usr), for which ROOT is the
sysroot. Nothing outside of ROOT is written, unless `--link` asks for the tool at its real place.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import os
import shutil
import sys
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
if not __package__:  # called as a script
    sys.path[:] = [str(HERE.parent), *(place for place in sys.path if place != str(HERE))]

from simulators import sysroot  # noqa: E402
from simulators.control import Simulation  # noqa: E402
from simulators.state import EMPTY, Sim, read_json, write_json  # noqa: E402

MACHINES = read_json(HERE / "machines.json", {})
TOOLS = {"nvidia": "nvidia-smi", "hygon": "hy-smi", "amd": "rocm-smi", "": ""}
PLACES = {"nvidia": "/usr/bin", "hygon": "/opt/hyhal/bin", "amd": "/opt/rocm/bin"}
SCRIPT = '''\
#!{python} -IS
"""A simulated {tool}. It reads its machine from the folder that it stands in, or from where it was installed."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if not os.path.isdir(ROOT + "/code/simulators"):
    ROOT = {root!r}
sys.path.insert(0, ROOT + "/code")
from simulators import {module}  # noqa: E402

sys.exit({module}.main(sys.argv[1:], ROOT))
'''


def install(root, machine, seed="", nodes=False, python="/usr/bin/python3", link="") -> Simulation:
    """Make a machine of `machines.json` in `root`.

    :param seed: machines with different seeds have different UUIDs and serial numbers.
    :param nodes: character nodes with the numbers of /dev/null in place of plain files; needs root.
    :param python: what the tools run with.
    :param link: link the tool to the place of the real one (usr/bin/nvidia-smi, opt/hyhal/bin/hy-smi) below this folder.
    """
    root = Path(root).absolute()
    mask = os.umask(0o022)  # other users run the tools, too
    try:
        return _install(root, machine, describe(machine, seed or machine, nodes), python, link)
    finally:
        os.umask(mask)


def _install(root, machine, description, python, link):
    root.mkdir(parents=True, exist_ok=True)
    _copy_code(root)
    (root / "state").mkdir(exist_ok=True)
    (root / "state").chmod(0o777)  # tools of any user note there what they saw
    write_json(root / "state/machine.json", description)
    write_json(root / "state/state.json", EMPTY)
    (root / "state/lock").touch()
    (root / "state/lock").chmod(0o666)
    _scripts(root, machine, python, link)
    simulation = Simulation(root)
    sysroot.refresh(Sim(root))
    simulation.reset()
    return simulation


def describe(name, seed, nodes=False):
    """The description of a machine, with identities of its own for its cards."""
    machine = {"name": name, "nodes": nodes, **MACHINES[name]}
    machine["cards"] = [{**card, **_identity(machine["vendor"], seed, card["bus_id"])} for card in machine["cards"]]
    return machine


def _identity(vendor, seed, bus_id):
    digest = hashlib.sha256(f"{seed} {bus_id}".encode()).hexdigest()
    if vendor == "nvidia":
        return {"uuid": f"GPU-{uuid.UUID(digest[:32])}"}
    return {"uuid": digest[:16], "serial": "T" + str(int(digest[16:28], 16))[:15].zfill(15)}


def _copy_code(root) -> None:
    code = root / "code/simulators"
    if code.resolve() == HERE:
        return
    code.mkdir(parents=True, exist_ok=True)
    # Compiled, because who runs the tools may not write here and they are to start fast. What is compiled already is taken along:
    # with its time a file keeps its compiled form.
    (code / "__pycache__").mkdir(exist_ok=True)
    for file in [*HERE.glob("*.py"), HERE / "machines.json", *HERE.glob("__pycache__/*.pyc")]:
        shutil.copy2(file, code / file.relative_to(HERE))
    compileall.compile_dir(str(code), quiet=1)


def _scripts(root, machine, python, link) -> None:
    folder = root / "bin"
    folder.mkdir(exist_ok=True)
    vendor = MACHINES[machine]["vendor"]
    for tool in filter(None, (TOOLS[vendor], "simctl")):
        script = folder / tool
        values = {"python": python, "tool": tool, "root": str(root), "module": tool.replace("-", "_")}
        script.write_text(SCRIPT.format(**values), encoding="utf-8")
        script.chmod(0o755)
    # Where it stands on a real machine: below ROOT, and where it was asked for.
    for top in [root, *([link] if link else [])] if vendor else []:
        _link(Path(f"{str(top).rstrip('/')}{PLACES[vendor]}") / TOOLS[vendor], folder / TOOLS[vendor])


def _link(place, target) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() and not place.is_symlink():
        raise SystemExit(f"{place} is there already and is no link: a real tool?")
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Put a simulated machine with accelerators into a folder.")
    parser.add_argument("--machine", required=True, choices=sorted(MACHINES))
    parser.add_argument("--root", required=True, help="folder to make; it is the sysroot of the simulated cards")
    parser.add_argument("--seed", default="", help="any text: other UUIDs and serial numbers")
    parser.add_argument("--nodes", action="store_true", help="character nodes (those of /dev/null) in place of plain files")
    parser.add_argument(
        "--link", action="store_const", const="/", default="", help="link the tool to the place where the real one stands"
    )
    parser.add_argument("--python", default="/usr/bin/python3", help="interpreter of the tools")
    options = parser.parse_args()
    if options.nodes and os.geteuid() != 0:
        parser.error("--nodes needs root")
    made = install(options.root, options.machine, options.seed, options.nodes, options.python, options.link)
    print(f"{options.machine} in {made.root}: tools in {made.bin}, sysroot {made.root}")


if __name__ == "__main__":
    main()
