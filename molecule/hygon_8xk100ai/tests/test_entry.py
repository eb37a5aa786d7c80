"""Eight instances behind one port, without root: what clients of that port notice while instances and the gateway come and go.

One deploy for all: each test goes on where the one before it ended, and the last one takes the service down. The gateway is the
real one, the engines are stand-ins.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from entry import Entry
from harness import end, until

NAME = "minicpm-v-4.5"
COUNT = 8
ENTRY = f"/home/llm/modelyard/services/{NAME}.gateway/instance-0"
ALL = list(range(COUNT))
SETTINGS = "/opt/stand-in/stand-in.json"


@pytest.fixture(scope="module")
def entry(server, deployed):
    return Entry(server, NAME, 8000)


def changed(before, after):
    return [index for index in ALL if before[index] != after[index]]


def gateway(server):
    """Pid and start time of the gateway's first process."""
    return server.leaders(f"{NAME}.gateway", 1)[0]


def kill(server, index):
    """End a whole engine as the kernel would for lack of memory."""
    shown = server.must(["ps", "-o", "pid=,comm=", "--sid", str(server.state(NAME, index)["keeper"]["pid"])]).splitlines()
    # Python's resource tracker ends by itself, and gives the shared memory back.
    server.must(["kill", "-9", *(line.split()[0] for line in shown if line.split()[1] in ("vllm", "VLLM::EngineCor"))])
    until(lambda: server.comms(NAME, index) == [], 10, "the whole instance has ended")


def test_one_port_spreads_requests_over_eight_instances_and_nobody_is_root(server, entry):
    assert entry.spread(2 * COUNT) == dict.fromkeys(ALL, 2)
    shown = server.must(["ps", "-o", "user=", "--sid", str(server.state(f"{NAME}.gateway")["keeper"]["pid"])])
    assert set(shown.split()) == {"llm"}
    assert all(one["able"] for one in entry.status().values())


def test_a_second_deploy_changes_nothing(server, entry):
    before = [*server.leaders(NAME, COUNT), gateway(server)]
    again = server.play("deploy")
    assert (again.rc, again.changed) == (0, 0), again.output[-3000:]
    assert [*server.leaders(NAME, COUNT), gateway(server)] == before


def test_what_happened_to_a_request_is_told(server, entry):
    ((_, backend),) = entry.ask(user="batch-17", max_tokens=7)
    run = server.play("requests", requests_user="batch-17")
    assert run.rc == 0, run.output[-3000:]
    assert "of user batch-17" in run.output
    assert backend in run.output


def test_new_parameters_reach_one_instance_alone_and_no_answer_is_cut(server, entry):
    before = server.leaders(NAME, COUNT)
    server.services = [server.variant(engine={"max_num_seqs": 5})]
    # Two at each instance at any time, each of 2 s.
    with entry.load(2 * COUNT, max_tokens=2000, ignore_eos=True) as load:
        running = server.begin("deploy", ("-e", f"only={NAME}:3", "-e", "modelyard_restart=true"))
        try:
            until(lambda: entry.status()[3]["draining"] or running.poll() is not None, 90, "instance 3 is taken out")
            seen = entry.status()
            output = running.communicate(timeout=180)[0]
        finally:
            end(running)
    server.services = []
    assert running.returncode == 0, output[-3000:]
    assert [index for index in ALL if seen[index]["draining"]] == [3]
    assert all(seen[index]["in_flight"] for index in ALL if index != 3), "the others serve"
    waited = re.search(rf"gateway: {NAME}/3 takes no new requests, (\d+) in flight", output)
    assert waited and int(waited.group(1)) > 0
    assert f"gateway: {NAME}/3 empty after " in output
    assert (load.lost, load.refused) == ([], [])
    assert changed(before, server.leaders(NAME, COUNT)) == [3]
    argv = [server.state(NAME, index)["request"]["launch"]["argv"] for index in (2, 3)]
    assert [words[words.index("--max-num-seqs") + 1] for words in argv] == ["4", "5"]
    until(lambda: entry.status()[3]["state"] == "up" or not entry.ask(COUNT), 20, "instance 3 is back")


def test_after_a_killed_instance_is_ejected_no_request_fails_and_the_status_says_it(server, entry):
    with entry.load() as load:
        kill(server, 3)
        killed = time.time()
        until(lambda: not entry.status()[3]["able"], 10, "instance 3 is ejected")
        drift = server.drift()
        assert any(kind == "instance" and "it ended at" in what for kind, what in drift), drift
        assert 3 not in entry.spread(14)
    assert set(entry.spread(14)) == set(ALL) - {3}
    assert {one["backend"] for one in load.lost} <= {f"{NAME}/3"}
    assert all(one["at"] <= killed for one in load.lost), load.lost
    assert load.refused == []


def test_a_lost_card_leaves_seven_behind_the_entry(server, entry):
    before, first = server.leaders(NAME, COUNT), gateway(server)
    server.sim("set", "lost", "--card", "3")
    server.services = [server.variant(topology={"min_replicas": 7})]
    server.variables = {"modelyard_checks": {"PF-MEMORY": "off", "PF-CARD-COUNT": "warn"}}
    with entry.load() as load:
        run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert "PL-REPLICAS-FEWER" in run.output
    assert (load.lost, load.refused) == ([], [])
    assert changed(before, server.leaders(NAME, COUNT)) == []
    assert gateway(server) == first
    assert set(entry.spread(14)) == set(entry.status()) == set(ALL) - {3}


def test_the_one_that_ended_is_started_again_alone_and_comes_back_in(server, entry):
    before, first = server.leaders(NAME, COUNT), gateway(server)
    server.sim("clear")
    server.services, server.variables = [], {}
    run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert changed(before, server.leaders(NAME, COUNT)) == [3]
    assert gateway(server) == first
    until(lambda: entry.status()[3]["state"] == "up" or not entry.ask(COUNT), 20, "instance 3 is up")
    assert set(entry.spread(2 * COUNT)) == set(ALL)


def test_a_roll_stops_at_the_first_instance_that_does_not_come_back(server, entry):
    before = server.leaders(NAME, COUNT)
    settings = json.loads(server.must(["cat", SETTINGS]))
    server.services = [server.variant(engine={"max_num_seqs": 5})]
    with (
        server.file(SETTINGS, json.dumps({**settings, "ports": {"8003": {"die": "loading"}}})),
        entry.load() as load,
    ):
        run = server.play("deploy", modelyard_restart=True)
    assert run.rc != 0
    assert f"the restart of {NAME}/1 failed" in run.output
    assert f"Restarted and proven: {NAME}/0." in run.output
    others = ", ".join(f"{NAME}/{index}" for index in ALL[2:])
    assert f"Not touched, they run as before: {others}." in run.output
    assert f"The gateway sends no requests to {NAME}/1 until a deploy has proven it." in run.output
    assert changed(before, server.leaders(NAME, COUNT)) == [0, 1]
    assert (load.lost, load.refused) == ([], [])
    assert set(entry.spread(14)) == set(ALL) - {1}


def test_a_roll_and_a_change_to_haproxy_lose_no_request_that_was_accepted(server, entry):
    before, first = server.leaders(NAME, COUNT), gateway(server)
    server.services = [server.variant(gateway={"kind": "haproxy"})]
    with entry.load() as load:
        run = server.play("deploy", modelyard_restart=True)
    assert run.rc == 0, run.output[-3000:]
    until(lambda: set(entry.spread(2 * COUNT)) == set(ALL), 15, "all eight answer")
    assert gateway(server) != first
    assert load.lost == []
    # The port is closed between the end of the one and the start of the other, and only then.
    assert not load.refused or load.refused[-1] - load.refused[0] < 10, load.refused
    assert set(load.backends) >= {f"{NAME}/{index}" for index in ALL if index != 1}
    # Instance 1 was down, and 0 had the parameters that are wanted no more.
    assert changed(before, server.leaders(NAME, COUNT)) == [0, 1]


def test_a_teardown_leaves_nothing_of_the_entry_but_its_log(server, entry):
    run = server.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert run.output.index(f"{NAME}.gateway on ") < run.output.index(f"{NAME} on "), "no request meets an engine that is going"
    assert [server.comms(NAME, index) for index in ALL] == [[]] * COUNT
    assert server.comms(f"{NAME}.gateway") == []
    assert server.run(["pgrep", "-f", "modelyard_gateway|/haproxy "], user="root").returncode == 1
    listening = server.must(["ss", "-Hltn"]).split()
    assert not [address for address in listening if address.endswith((":8000", ":8001"))]
    lines = [json.loads(line) for line in server.must(["cat", f"{ENTRY}/logs/results.jsonl"]).splitlines()]
    assert {line["user"] for line in lines if "user" in line} >= {"batch-17", "load"}
