"""Who holds the lock, and has that run died? Asked on the control node."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import proc
from ansible_collections.modelyard.core.plugins.plugin_utils import control
from unit import worlds


@pytest.fixture
def other_run():
    """A real process that stands for another ansible-playbook, and the lock that it would leave."""
    process = subprocess.Popen(["sleep", "60"])
    pid, start = proc.identity(process.pid)
    yield process, {"run": f"{control.node()} {pid} {start}", "what": "deploy"}
    process.kill()
    process.wait()


def test_a_run_that_lives_has_not_died(other_run):
    assert control.has_died(other_run[1]) is False


def test_a_run_whose_process_has_ended_has_died(other_run):
    process, lock = other_run
    process.kill()
    process.wait()
    assert control.has_died(lock) is True


def test_a_run_whose_pid_belongs_to_another_process_now_has_died(other_run):
    run, _, start = other_run[1]["run"].rpartition(" ")
    assert control.has_died({"run": f"{run} {int(start) - 1}"}) is True


@pytest.mark.parametrize(
    "lock",
    [
        None,
        {},
        {"run": ""},
        {"run": None},
        {"run": "other-control 1b4e28ba-2fa1-11d2-883f-0016d3cca427 999999 1"},
        {"run": "999999 1"},
        {"run": "no numbers here"},
    ],
    ids=str,
)
def test_nothing_is_said_about_runs_of_other_control_nodes_or_unreadable_ones(lock):
    assert control.has_died(lock) is False


def test_a_run_of_this_machine_before_its_last_boot_is_not_judged_by_a_pid_of_now(other_run):
    node, _pid, start = other_run[1]["run"].rsplit(" ", 2)
    assert control.has_died({"run": f"{node[:-1]}x 999999 {start}"}) is False


def test_a_run_is_named_by_its_ansible_playbook_and_not_by_the_worker():
    # The action plugin runs in a worker process; its parent is ansible-playbook, here this very test.
    code = (
        "from ansible_collections.modelyard.core.plugins.plugin_utils import control;"
        "import json; print(json.dumps([control.run_id(), control.holder('deploy')]))"
    )
    worker = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(worlds.ROOT / "collections")},
        capture_output=True,
        text=True,
        check=True,
    )
    run, holder = json.loads(worker.stdout)
    pid, start = proc.identity(os.getpid())
    assert run == f"{control.node()} {pid} {start}"
    assert set(holder) == {"run", "what", "by", "since"}
    assert (holder["run"], holder["what"]) == (run, "deploy")
    assert holder["by"].endswith(f"ansible-playbook pid {os.getpid()}")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", holder["since"])
