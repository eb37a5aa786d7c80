"""One instance over both cards, kept by systemd, from a refused deploy to a server as it was before.

The engine is a stand-in, the cards are simulated, systemd is the real one. One deploy for all: each test goes on where the one
before it ended, and the last ones take the service down.
"""

from __future__ import annotations

import json

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from harness import until

NAME = "qwen3-14b-32k"
UNIT = f"modelyard-{NAME}.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
FOLDER = f"/root/modelyard/services/{NAME}"
BUDGET_MIB = 29484  # 60 % of 49140
LADDER = acceptance.ladder({"engine": {}, "acceptance": {}})
APPS = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
USED = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]


def used(server):
    return [int(line) for line in server.must(USED, user="root").split()]


def unit(server):
    """(is it started at boot, how it stands) by systemd's own word."""
    shown = server.must(["systemctl", "show", "-p", "UnitFileState", "-p", "ActiveState", "-p", "SubState", UNIT])
    values = dict(line.split("=", 1) for line in shown.split())
    return values["UnitFileState"], values["ActiveState"], values["SubState"]


def journal(server, since):
    return server.must(["journalctl", "-q", "-o", "cat", "-u", UNIT, f"--since=@{since}"])


def now(server):
    return server.must(["date", "+%s"]).strip()


def starts(server):
    return json.loads(server.must(["cat", f"{FOLDER}/instance-0/run/starts.json"]))["starts"]


def reports(server):
    return server.must(["bash", "-c", "ls -d /root/modelyard/evidence/*needs_admin* || true"]).split()


def answers(server):
    code = "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=5)"
    return server.run(["python3", "-c", code]).returncode == 0


def test_a_stranger_and_a_unit_of_that_name_refuse_the_deploy_and_are_left_alone(server):
    before = server.state(NAME)
    foreign = "[Service]\nExecStart=/bin/sleep 600\n"
    with (
        server.process(["sleep", "600"], user="llm", holds=["/sim/dev/nvidia1"]) as pid,
        server.file(UNIT_FILE, foreign),
    ):
        run = server.play("deploy")
        assert server.run(["kill", "-0", str(pid)], user="root").returncode == 0
        assert server.must(["cat", UNIT_FILE]) == foreign
    assert run.rc != 0
    assert "PF-STRANGER" in run.output
    assert f"pid {pid} of user llm" in run.output
    assert "PF-SUPERVISOR" in run.output
    assert f"there is a unit file {UNIT}, which was not made by this project" in run.output
    assert server.state(NAME) == before, "nothing was started"
    assert used(server) == [4, 4]


def test_a_deploy_is_accepted_in_all_steps_and_kept_by_systemd(server, deployed):
    assert server.steps(NAME) == [(step.id, 0, True) for step in LADDER]
    assert server.comms(NAME) == ["VLLM::EngineCor", "VLLM::Worker_TP", "VLLM::Worker_TP", "python", "python3", "vllm"]
    assert unit(server) == ("enabled", "active", "running")
    keeper = server.must(["systemctl", "show", "-p", "MainPID", "--value", UNIT]).strip()
    assert server.state(NAME)["keeper"]["pid"] == int(keeper)


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


def test_the_status_prints_nothing_after_a_deploy_and_a_line_after_an_edit_by_hand(server, deployed):
    assert server.drift() == []
    path = f"{FOLDER}/instance-0/launch.sh"
    with server.file(path, server.must(["cat", path]) + "# edited by hand\n"):
        assert server.drift() == [("file", "instance-0/launch.sh was changed on the host since it was rendered")]


def test_systemctl_stop_is_the_careful_stop(server, deployed):
    since = now(server)
    server.must(["systemctl", "stop", UNIT])
    assert server.comms(NAME) == []
    assert used(server) == [4, 4]
    assert unit(server)[0:2] == ("enabled", "inactive")
    assert starts(server)[-1]["asked"] is True
    assert "SIGINT" in journal(server, since)
    server.must(["systemctl", "start", UNIT])
    until(lambda: answers(server), 20, "it serves again")


def waits_for_memory(said):
    """After the back-off: the stop before it waits for the same memory."""
    _, paused, after = said.partition("1 start(s) in a row have failed: waiting")
    return bool(paused) and " s for memory: card 1 " in after and "20004 MiB" in after


def test_an_engine_that_lost_a_worker_is_started_anew_when_its_cards_have_their_memory_back(server, deployed):
    since, before = now(server), server.leaders(NAME, 1)
    server.sim("set", "memory_stays=20000", "--card", "1")
    server.must(["kill", "-9", server.must(APPS, user="root").split(",")[0]], user="root")
    # The API server tells for 4 s that its engine is dead, the careful stop waits 5 s for memory, the start for the rest of 10 s.
    until(lambda: waits_for_memory(journal(server, since)), 40, "it waits")
    last = starts(server)[-1]
    assert (last["code"], last["asked"]) == (0, False), "an API server whose engine has died ends with 0"
    assert unit(server)[0:2] == ("enabled", "activating")
    # What waits there is no part of an engine.
    assert server.look().serious == ["PF-MEMORY-HELD", "PF-NEEDS-ADMIN"]
    assert server.leaders(NAME, 1) == before
    server.sim("clear")
    until(lambda: server.leaders(NAME, 1) != before and answers(server), 30, "it serves again")
    assert starts(server)[-1]["ordered"] is False
    assert server.run(["test", "-e", f"{FOLDER}/needs_admin.json"]).returncode == 1, "it recovered without a person"
    assert "what an admin had to do is done" in journal(server, since)
    assert used(server) == [BUDGET_MIB + 4] * 2


def test_memory_that_stays_after_a_stop_is_handed_to_an_admin(server, deployed):
    """The API server is killed besides: its engine lives on, is found, and is taken down."""
    (leader,) = server.leaders(NAME, 1)
    server.must(["kill", "-9", str(leader["pid"])], user="root")
    until(lambda: "vllm" not in server.comms(NAME), 10, "the API server has ended")
    look = server.look()
    before = reports(server)
    assert "PF-LEFTOVER" in look.serious
    assert used(server) == [BUDGET_MIB + 4] * 2, "the engine outlives its API server"
    server.sim("set", "memory_stays=20000", "--card", "1")
    since = now(server)
    run = server.play("teardown")
    assert run.rc != 0
    assert "needs an admin" in run.output
    assert "SIGTERM to" in run.output, "what the unit's stop did is told"
    assert server.comms(NAME) == []
    assert unit(server)[0:2] == ("disabled", "inactive"), "its part of the stop, the processes, is done"
    assert "s for memory: card 1" in run.output
    assert "for memory" not in journal(server, since), "it was waited for once, and not by the unit"
    assert len(reports(server)) == len(before) + 1
    known = json.loads(server.must(["cat", f"{FOLDER}/needs_admin.json"]))
    report = server.must(["cat", f"{known['report']}/report.txt"])
    assert "20004 MiB" in report
    assert "nvidia-smi --gpu-reset" in report
    assert report.index("Look again in a minute") < report.index("Reset the cards") < report.index("systemctl reboot")


def test_until_that_is_over_a_deploy_is_refused_and_a_refused_reset_is_explained(server, deployed):
    run = server.play("deploy")
    assert run.rc != 0
    assert "PF-NEEDS-ADMIN" in run.output
    assert "a stop of this service waits for an admin: card 1 holds 20004 MiB" in run.output
    server.sim("set", "reset_refused=not_supported", "--card", "1")
    run = server.play("recover", confirm_gpu_reset=f"{server.host}:1")
    assert run.rc != 0
    assert "RC-RESET-FAILED" in run.output
    assert "Not Supported" in run.output
    assert used(server) == [4, 20004]


def test_after_an_accepted_reset_the_recovery_goes_on_to_the_cards(server, deployed):
    server.sim("clear", "reset_refused")
    run = server.play("recover", confirm_gpu_reset=f"{server.host}:1")
    assert "card 1 answers: ok, 4 MiB in use" in run.output
    assert used(server) == [4, 4]
    # The stand-in has no torch that computes: the stage after the baseline stops it, and no engine was started.
    assert run.rc != 0
    assert "PF-CARD-TEST" in run.output
    assert server.comms(NAME) == []


def test_then_a_deploy_goes_on_and_a_teardown_leaves_nothing(server, deployed):
    run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert server.run(["test", "-e", f"{FOLDER}/needs_admin.json"]).returncode == 1
    assert unit(server) == ("enabled", "active", "running")
    run = server.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert unit(server)[0:2] == ("disabled", "inactive")
    assert server.comms(NAME) == []
    assert used(server) == [4, 4]
    assert server.must(APPS, user="root") == ""
    assert server.must(["bash", "-c", "ls /dev/shm | grep -E '^(psm_|sem.mp-)' || true"], user="root") == ""
    look = server.look()
    assert look.run.rc == 0
    assert look.serious == []
    assert look.plan["services"][0]["action"] == "start"
    assert json.dumps(look.findings).count("MEMORY-HELD") == 0
