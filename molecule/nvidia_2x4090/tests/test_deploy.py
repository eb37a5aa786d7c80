"""One instance over both cards, from a refused deploy to a server as it was before. Engine: a stand-in. Cards: simulated.

One deploy for all: each test goes on where the one before it ended, and the last ones take the service down.
"""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.acceptance import LADDER
from harness import until

NAME = "qwen3-14b-32k"
BUDGET_MIB = 29484  # 60 % of 49140
APPS = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
USED = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


@pytest.fixture(scope="module")
def server(server):
    """The server as new; between the tests of this file nothing is reset."""
    server.put_back()
    yield server
    server.put_back()


@pytest.fixture(scope="module")
def deployed(server):
    """The run that deployed the service."""
    run = server.play("deploy")
    assert run.rc == 0, run.output[-4000:]
    return run


def used(server):
    return [int(line) for line in server.must(USED, user="root").split()]


def test_a_stranger_on_the_second_card_refuses_the_deploy_and_is_left_alone(server):
    before = server.state(NAME)
    with server.process(["sleep", "600"], user="llm", holds=["/sim/dev/nvidia1"]) as pid:
        run = server.play("deploy")
        assert server.run(["kill", "-0", str(pid)], user="root").returncode == 0
    assert run.rc != 0
    assert "PF-STRANGER" in run.output
    assert f"pid {pid} of user llm" in run.output
    assert server.state(NAME) == before, "nothing was started"
    assert used(server) == [4, 4]


def test_a_deploy_is_accepted_in_all_steps(server, deployed):
    assert server.steps(NAME) == [(step.id, 0, True) for step in LADDER]
    assert server.comms(NAME) == ["VLLM::EngineCor", "VLLM::Worker_TP", "VLLM::Worker_TP", "python", "python3", "vllm"]


def test_each_card_has_one_worker_and_the_memory_that_was_asked_for(server, deployed):
    look = server.look()
    assert look.run.rc == 0
    assert look.serious == []
    assert look.plan["services"][0]["action"] == "keep"
    cards = look.survey["cards"]["nvidia"]
    assert [len(card["holders"]) for card in cards] == [1, 1]
    assert cards[0]["holders"] != cards[1]["holders"]
    assert [card["memory_used_mib"] for card in cards] == [BUDGET_MIB + 4] * 2
    rows = [line.split(", ") for line in server.must(APPS, user="root").splitlines()]
    assert [(int(pid), int(mib)) for pid, mib in rows] == [(card["holders"][0], BUDGET_MIB) for card in cards]


def test_a_second_deploy_changes_nothing(server, deployed):
    before = server.leaders(NAME, 1)
    again = server.play("deploy")
    assert (again.rc, again.changed) == (0, 0), again.output[-3000:]
    assert server.leaders(NAME, 1) == before


def test_a_killed_api_server_leaves_its_engine_which_is_found_and_taken_down(server, deployed):
    (leader,) = server.leaders(NAME, 1)
    server.must(["kill", "-9", str(leader["pid"])], user="root")
    until(lambda: "vllm" not in server.comms(NAME), 10, "the API server has ended")
    look = server.look()
    assert "PF-LEFTOVER" in look.serious
    assert used(server) == [BUDGET_MIB + 4] * 2, "the engine outlives its API server"
    run = server.play("teardown")
    assert run.rc == 0, run.output[-3000:]


def test_after_that_nothing_is_left(server, deployed):
    assert server.comms(NAME) == []
    until(lambda: used(server) == [4, 4], 10, "the memory is back")
    assert server.must(APPS, user="root") == ""
    assert server.must(["bash", "-c", "ls /dev/shm | grep -E '^(psm_|sem.mp-)' || true"], user="root") == ""
    look = server.look()
    assert look.run.rc == 0
    assert look.serious == []
    assert look.plan["services"][0]["action"] == "start"
    assert json.dumps(look.findings).count("MEMORY-HELD") == 0
