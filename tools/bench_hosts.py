"""Preflight of 100 simulated hosts beside Ansible's own `setup` on the same hosts, in one run on this machine.

usage: make bench      (BENCH_HOSTS=100, BENCH_ROUNDS=3; each round runs both, medians are compared)

The hosts are this machine under 100 names, over local connections; each has simulated cards of its own (tests/simulators), so a
preflight asks 100 vendor tools. Both runs start from nothing: one ansible-playbook each, forks 20.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import ends_with_me
from harness import BIN, ROOT
from simulators.install import install

HOSTS = int(os.environ.get("BENCH_HOSTS", "100"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
MACHINES = ("2x4090", "8xk100ai")
SETUP = [{"name": "Gather", "hosts": "all", "gather_facts": False, "tasks": [{"name": "Gather", "ansible.builtin.setup": {}}]}]


def inventory(folder: Path, hosts: int) -> Path:
    """Hosts with simulated cards below `folder`; half of them NVIDIA, half Hygon."""
    entries = {}
    for number in range(hosts):
        name = f"server{number:03d}"
        install(folder / name, MACHINES[number % len(MACHINES)], seed=name)
        entries[name] = {"modelyard_home": str(folder / name / "home"), "modelyard_sysroot": str(folder / name)}
    shared = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_forks": 20}
    path = folder / "hosts.json"
    path.write_text(json.dumps({"all": {"vars": shared, "hosts": entries}}), encoding="utf-8")
    return path


def seconds(playbook: str, hosts: Path, *more: str) -> float:
    """Wall time of one ansible-playbook that must succeed."""
    began = time.monotonic()
    done = subprocess.run(
        [str(BIN / "ansible-playbook"), "--forks=20", "-i", str(hosts), playbook, *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=ends_with_me.child(),
    )
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-1000:])
    return time.monotonic() - began


def main() -> None:
    """Measure and print."""
    ends_with_me.clean_up_on_signals()
    folder = ROOT / ".cache" / "bench" / "hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        many = inventory(folder, HOSTS)
        setup = folder / "setup.json"
        setup.write_text(json.dumps(SETUP), encoding="utf-8")
        gathered, looked, one = [], [], []
        for number in range(1, ROUNDS + 1):
            gathered.append(seconds(str(setup), many))
            looked.append(seconds("playbooks/preflight.yml", many))
            one.append(seconds("playbooks/preflight.yml", many, "--limit=server000"))
            print(f"round {number}: setup {gathered[-1]:.1f} s, preflight {looked[-1]:.1f} s, of one host {one[-1]:.2f} s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    base, preflight = statistics.median(gathered), statistics.median(looked)
    print(f"\nMedians of {ROUNDS} rounds, {HOSTS} simulated hosts (half 2x4090, half 8xk100ai), local connections, forks 20:")
    print(f"  ansible.builtin.setup alone             {base:6.1f} s")
    print(f"  playbooks/preflight.yml                 {preflight:6.1f} s")
    print(f"  preflight / setup                       {preflight / base:6.2f} x   (wanted: at most 1)")
    print(f"  preflight of one host                   {statistics.median(one):6.2f} s   (wanted: under 3 s)")


if __name__ == "__main__":
    main()
