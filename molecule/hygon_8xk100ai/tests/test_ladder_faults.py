"""Eight instances behind one port that are spoilt while they serve: what the acceptance says of each, and of their gateway.

The gateway is the real one, the engines are stand-ins, the cards are simulated. One deploy for all; nothing is restarted.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from spoilt import Fault, Spoilt, holds_to

NAME = "minicpm-v-4.5"
ALL = list(range(8))
SETTINGS = {"request_timeout_s": 3}
LADDER = [step.id for step in acceptance.ladder({"engine": {}, "acceptance": {"also": ["image"]}})]
KEY_FILE = f"/home/llm/modelyard/services/{NAME}/api_key"
TABLE = yaml.safe_load(Path(__file__).with_name("ladder_faults.yml").read_text(encoding="utf-8"))
EARLY, LATE = ([Fault(**one) for one in TABLE[part]] for part in ("early", "late"))
#: Halts a process again and again: what it passes on comes in clumps.
HICCUPS = 'while kill -STOP "$0"; do sleep 0.06; kill -CONT "$0"; sleep 0.002; done'


@pytest.fixture(scope="module")
def service(server):
    server.services = [server.variant(acceptance=SETTINGS)]
    return Spoilt(server, NAME)


@pytest.fixture(scope="module")
def gateway(server):
    """Pid of the gateway's first process."""
    return str(server.leaders(f"{NAME}.gateway", 1)[0]["pid"])


def together(faults):
    """The faults of one instance after the other as one."""
    ports = {str(8002 + index): fault.engine for index, fault in enumerate(faults)}
    changes = {name: [words for fault in faults for words in getattr(fault, name)] for name in ("simctl", "undo")}
    return Fault("", "", "", "", engine={"ports": ports}, **changes)


def test_the_table_has_a_fault_for_each_step():
    assert {fault.step for fault in [*EARLY, *LATE]} | {"process", "gateway"} == set(LADDER)


@pytest.mark.parametrize("faults", [EARLY, LATE], ids=["early", "late"])
def test_each_instance_is_told_with_its_own_fault_and_the_sound_ones_are_accepted(service, faults):
    with service.spoilt(together(faults).about(service.cores())):
        said = service.accept()
    first = min(faults, key=lambda fault: LADDER.index(fault.step))
    holds_to(first, said, NAME, LADDER, faults.index(first))
    for index, fault in enumerate(faults):
        last = said.last(index)
        assert (last["id"], last["verdict"]) == (fault.step, "fail")
        assert (last["cause"], last["restart"]) == (fault.cause, fault.restart)
        assert fault.words in last["detail"]
        assert fault.next in last["next"]
        assert f"FAIL  {NAME}/{index} {fault.step}: {last['detail']}" in said.run.output
    assert said.accepted == ALL[len(faults) :]
    assert said.leaders == service.leaders


def test_a_gateway_through_which_tokens_come_in_clumps(server, service, gateway):
    with service.engine({"stream": {"gap_s": 0.005}}), server.process(["bash", "-c", HICCUPS, gateway], user="root"):
        said = service.accept(only=f"{NAME}:0", acceptance_steps=["health", "gateway"])
    server.must(["kill", "-CONT", gateway], user="root")
    words = "tokens arrive in clumps through the gateway, with pauses of "
    fault = Fault("gateway", "clumped", words, "look for a proxy that buffers")
    holds_to(fault, said, NAME, ["health", "gateway"])


def test_a_gateway_that_does_not_answer_is_told_from_its_instances(server, service, gateway):
    server.must(["kill", "-STOP", gateway], user="root")
    try:
        said = service.accept(acceptance_steps=["health", "gateway"])
    finally:
        server.must(["kill", "-CONT", gateway], user="root")
    words = "through the gateway: no answer within 3 s: the gateway took the request, and the instance has none in work"
    holds_to(Fault("gateway", "held", words, "nothing of them needs a restart"), said, NAME, ["health", "gateway"])


def test_a_key_that_the_gateway_does_not_know(server, service):
    with server.file(KEY_FILE, "another-secret-31c9\n"):
        said = service.accept(acceptance_steps=["gateway"])
    fault = Fault("gateway", "key", "through the gateway: HTTP 401: the API key is missing or wrong", "compare the client's key")
    holds_to(fault, said, NAME, ["gateway"])
    assert "another-secret" not in said.run.output


def test_after_all_of_it_the_same_playbook_passes_and_nothing_was_restarted(server, service, gateway):
    said = service.accept()
    assert said.run.rc == 0, said.run.output[-3000:]
    assert said.accepted == ALL
    assert said.leaders == service.leaders
    assert str(server.leaders(f"{NAME}.gateway", 1)[0]["pid"]) == gateway


def test_what_is_left_of_an_instance_without_its_api_server_is_not_passed_over(server, service):
    """The plan refuses it, so it cannot be asked."""
    server.must(["kill", "-9", str(service.leaders[6]["pid"])], user="root")
    said = service.accept(acceptance_steps=["health"])
    assert said.run.rc != 0
    assert [said.of(index) for index in ALL] == [[] if index == 6 else [("health", "pass")] for index in ALL]
    assert f"{NAME} was not accepted: instance 6 was not asked, because the plan refuses it: PF-LEFTOVER" in said.run.output
    assert said.leaders == service.leaders


def test_an_instance_without_its_engine_and_a_gateway_that_has_ended(server, service, gateway):
    """The API server of instance 5 is halted, so that it cannot notice."""
    server.must(["kill", "-STOP", str(service.leaders[5]["pid"])], user="root")
    server.must(["kill", "-9", service.cores()[5]], user="root")
    server.must(["kill", "-9", gateway], user="root")
    try:
        said = service.accept()
    finally:
        server.must(["kill", "-CONT", str(service.leaders[5]["pid"])], user="root")
    fault = Fault("process", "ended", "no process below the API server", "read the end of its log, then deploy", restart=True)
    holds_to(fault, said, NAME, LADDER, 5)
    others = [said.last(index) for index in ALL if index not in (5, 6)]
    assert {(one["id"], one["cause"], one["restart"]) for one in others} == {("gateway", "refused", False)}
    assert "through the gateway: connection refused: nothing listens on the port" in said.run.output
    assert said.accepted == [6], "it was not asked; what it has is bound to a process that has ended"
    assert said.leaders == service.leaders
