"""Eight instances on eight cards, without root. The engines are stand-ins, the cards are simulated.

One deploy for all: each test goes on where the one before it ended, and the last one takes the service down.
"""

from __future__ import annotations

import re

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.judge.acceptance import LADDER
from harness import until

NAME = "minicpm-v-4.5"
COUNT = 8
BUDGET_MIB = 60279  # 92 % of 65520, vLLM's own share
#: Both come with parts of this change that are not here yet: with them, set True, and then take the switch away.
ONE_IS_STARTED_ALONE = False
STOP_WAITS_FOR_MEMORY = False


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
    text = server.must(["/opt/hyhal/bin/hy-smi", "--showmeminfo", "vram"], user="root")
    return [int(mib) for mib in re.findall(r"Used Memory \(MiB\): (\d+)", text)]


def health(server):
    code = (
        "import sys, urllib.request as u\n"
        "for port in range(8002, 8010):\n"
        "    print(port, u.urlopen(f'http://127.0.0.1:{port}/health', timeout=5).status)"
    )
    return server.must(["python3", "-c", code]).splitlines()


def test_a_deploy_starts_and_accepts_eight_instances(server, deployed):
    assert sorted(server.steps(NAME)) == sorted((step.id, index, True) for step in LADDER for index in range(COUNT))
    assert health(server) == [f"{port} 200" for port in range(8002, 8010)]


def test_each_instance_has_a_card_of_its_own(server, deployed):
    look = server.look()
    assert look.serious == []
    assert look.plan["services"][0]["action"] == "keep"
    cards = look.survey["cards"]["hygon"]
    assert [len(card["holders"]) for card in cards] == [1] * COUNT
    assert used(server) == [BUDGET_MIB + 2] * COUNT
    sessions = {server.state(NAME, index)["keeper"]["pid"]: index for index in range(COUNT)}
    shown = server.must(["ps", "-o", "sid=,comm=", *(f"-p{card['holders'][0]}" for card in cards)], user="root").splitlines()
    assert {line.split()[1] for line in shown} == {"VLLM::EngineCor"}
    by_pid = server.must(["ps", "-o", "pid=,sid=", *(f"-p{card['holders'][0]}" for card in cards)], user="root").splitlines()
    owner = {int(line.split()[0]): sessions[int(line.split()[1])] for line in by_pid}
    assert [owner[card["holders"][0]] for card in cards] == list(range(COUNT)), "instance i has card i"


def test_a_second_deploy_changes_nothing(server, deployed):
    before = server.leaders(NAME, COUNT)
    again = server.play("deploy")
    assert (again.rc, again.changed) == (0, 0), again.output[-3000:]
    assert server.leaders(NAME, COUNT) == before


@pytest.mark.skipif(not ONE_IS_STARTED_ALONE, reason="the planner does not start one instance alone yet")
def test_of_eight_the_one_that_was_killed_is_started_again_and_no_other(server, deployed):
    before = server.leaders(NAME, COUNT)
    keeper = server.state(NAME, 3)["keeper"]["pid"]
    shown = server.must(["ps", "-o", "pid=,comm=", "--sid", str(keeper)]).splitlines()
    # Python's resource tracker ends by itself, and gives the shared memory back.
    server.must(["kill", "-9", *(line.split()[0] for line in shown if line.split()[1] in ("vllm", "VLLM::EngineCor"))])
    until(lambda: server.comms(NAME, 3) == [], 10, "the whole instance has ended")
    run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    after = server.leaders(NAME, COUNT)
    assert [index for index in range(COUNT) if before[index] != after[index]] == [3]
    assert health(server) == [f"{port} 200" for port in range(8002, 8010)]


def test_a_teardown_leaves_nothing_although_the_memory_comes_back_late(server, deployed):
    server.sim("set", "late_release=3")
    used(server)  # only memory that was seen in use can come back late
    run = server.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    if STOP_WAITS_FOR_MEMORY:
        assert used(server) == [2] * COUNT
    until(lambda: used(server) == [2] * COUNT, 15, "the memory is back")
    assert [server.comms(NAME, index) for index in range(COUNT)] == [[]] * COUNT
    assert server.must(["bash", "-c", "ls /dev/shm | grep -E '^(psm_|sem.mp-)' || true"], user="root") == ""
    server.sim("clear")
    look = server.look()
    assert look.serious == []
    assert look.plan["services"][0]["action"] == "start"
