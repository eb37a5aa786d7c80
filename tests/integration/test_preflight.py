"""The preflight of hosts that never saw the project: this machine under several names, some of them broken."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness import BIN, ROOT


def preflight(inventory: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As an admin calls it."""
    return subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", inventory, "playbooks/preflight.yml", *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_host_that_never_saw_the_project_needs_no_inventory_and_is_not_changed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = preflight("box,", "--connection=local", "-e", f"modelyard_home={home}")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"Findings of 1 host\(s\): 0 refuse, ", run.stdout)
    assert re.search(r"  box  +\S.* ready\n", run.stdout)
    assert "changed=0" in run.stdout
    assert not home.exists()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An interpreter that says that it is an old one."""
    program = tmp_path / "python3.6"
    program.write_text('#!/bin/sh\nprintf "%s 3.6" "$0"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def test_every_host_is_in_the_one_table_however_far_it_came(tmp_path: Path, old: Path) -> None:
    hosts = tmp_path / "hosts.ini"
    report = tmp_path / "report.json"
    hosts.write_text(
        f"well ansible_connection=local ansible_python_interpreter={sys.executable}\n"
        "away ansible_host=127.0.0.1 ansible_port=1\n"
        f"old ansible_connection=local ansible_python_interpreter={old}\n"
        "wrong ansible_connection=local modelyard_hoem=/x\n",
        encoding="utf-8",
    )
    run = preflight(str(hosts), "-e", f"modelyard_home={tmp_path / 'home'}", "-e", f"preflight_json={report}")
    assert run.returncode == 2, run.stdout + run.stderr
    table = run.stdout[run.stdout.index("Findings of 4 host(s): 3 refuse") :]
    verdicts = dict(re.findall(r"^  (well|away|old|wrong) .* (ready|refused)$", table, re.MULTILINE))
    assert verdicts == {"well": "ready", "away": "refused", "old": "refused", "wrong": "refused"}
    for id, place in (("PF-UNREACHABLE", "away"), ("PF-PYTHON-OLD", "old"), ("IN-VARIABLE-UNKNOWN", "wrong modelyard_hoem")):
        assert f"  refuse  {id}  {place}\n" in table
    assert "did you mean modelyard_home?" in table
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    written = json.loads(report.read_text(encoding="utf-8"))["hosts"]
    assert [written[name]["survey"] is not None for name in ("well", "away", "old", "wrong")] == [True, False, False, False]
    assert written["well"]["survey"]["host"]["name"] == "well"
