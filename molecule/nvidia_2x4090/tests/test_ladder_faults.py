"""One instance over both cards that is spoilt in one way after the other while it serves: what the acceptance says, and keeps.

The engine is a stand-in, the cards are simulated. One deploy for all; what is in the table comes and goes without a restart.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from cases import always
from harness import until
from spoilt import KEY, Spoilt, holds_to, table

NAME = "qwen3-14b-32k"
SETTINGS = {"also": ["completions"], "request_timeout_s": 3, "busy_wait_s": 1}
LADDER = [step.id for step in acceptance.ladder({"engine": {}, "acceptance": SETTINGS})]
KEY_FILE = f"/root/modelyard/services/{NAME}/api_key"
FAULTS = table(Path(__file__).with_name("ladder_faults.yml"))
APPS = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]


@pytest.fixture(scope="module")
def service(server):
    server.services = [server.variant(acceptance=SETTINGS)]
    return Spoilt(server, NAME)


@pytest.fixture(scope="module")
def pids(server, service):
    """Of the workers, in the order of their cards."""
    return server.must(APPS, user="root").split()


def test_the_table_has_a_fault_for_each_step():
    assert {fault.step for fault in FAULTS.values()} | {"process", "gateway"} == set(LADDER)


@pytest.mark.parametrize("what", always(6, FAULTS))
def test_each_step_is_made_to_fail_and_the_report_says_why(service, pids, what):
    fault = FAULTS[what].about(pids)
    with service.spoilt(fault):
        said = service.accept(acceptance_steps=list(fault.steps))
    holds_to(fault, said, NAME, list(fault.steps) or LADDER)
    assert said.leaders == service.leaders


def test_a_key_that_was_changed_is_told_and_neither_is_shown(server, service):
    with server.file(KEY_FILE, "another-secret-31c9\n"):
        said = service.accept()
    assert said.run.rc != 0
    assert (said.last(0)["id"], said.last(0)["cause"], said.last(0)["restart"]) == ("models", "key", False)
    assert "HTTP 401: the API key is missing or wrong" in said.run.output
    assert "another-secret" not in said.run.output


def test_a_service_at_work_for_others_is_busy_and_no_failure(server, service):
    with service.engine({"metrics": {"running": 1, "waiting": 2, "moves": 50}}):
        said = service.accept()
    assert said.run.rc == 0, said.run.output[-3000:]
    assert (said.last(0)["id"], said.last(0)["verdict"], said.last(0)["cause"]) == ("chat", "busy", "loaded")
    assert "BUSY" in said.run.output
    assert said.new == []


def test_after_all_of_it_the_same_playbook_passes_and_nothing_was_restarted(service):
    said = service.accept()
    assert said.run.rc == 0, said.run.output[-3000:]
    assert said.accepted == [0]
    assert said.leaders == service.leaders


def test_a_worker_that_nobody_misses_yet(server, service, pids):
    """The engine's own process is halted, so that it cannot notice."""
    (halted,) = service.cores()
    server.must(["kill", "-STOP", halted], user="root")
    server.must(["kill", "-9", pids[1]], user="root")
    said = service.accept()
    server.must(["kill", "-CONT", halted], user="root")
    assert (said.last(0)["id"], said.last(0)["cause"], said.last(0)["restart"]) == ("process", "ended", True)
    assert "1 workers for tensor_parallel_size 2" in said.run.output
    assert said.new[0].endswith(f"-{NAME}-failed_process")
    assert said.leaders == service.leaders, "the acceptance restarts nothing"
    until(lambda: service.look()["leaders"] != service.leaders, 40, "systemd has started it anew")
    until(lambda: service.answers(8000), 20, "it serves again")


def test_a_worker_that_dies_of_a_request(server, service):
    pid = server.must(APPS, user="root").split()[1]
    with service.engine({"chat": {"do": f"kill -9 {pid}"}}):
        said = service.accept()
    last = said.last(0)
    assert (last["id"], last["cause"], last["restart"]) == ("chat", "log", True)
    assert last["detail"].startswith("HTTP 500: the engine behind the API has died")
    besides = last["detail"].partition("; besides, the engine's log has become fatal: ")[2]
    assert re.search("died unexpectedly|EngineCore encountered|EngineDeadError", besides), last["detail"]
    assert said.accepted == []
    assert KEY not in said.run.output
