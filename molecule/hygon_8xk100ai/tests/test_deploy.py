"""Eight instances on eight cards, without root, in sessions of screen. The engines are stand-ins, the cards are simulated.

One deploy for all: each test goes on where the one before it ended, and the last ones take the service down.
"""

from __future__ import annotations

import json
import re

import yaml
from ansible_collections.modelyard.core.plugins.module_utils.judge.acceptance import LADDER
from container_site import INVENTORY
from harness import until

NAME = "minicpm-v-4.5"
COUNT = 8
BUDGET_MIB = 58968  # 90 % of 65520, what is written out where the inventory says nothing
FOLDER = f"/home/llm/modelyard/services/{NAME}"
LINGERS = "/var/lib/systemd/linger/llm"
SMALL = "one-by-systemd"


def used(server):
    text = server.must(["/opt/hyhal/bin/hy-smi", "--showmeminfo", "vram"], user="root")
    return [int(mib) for mib in re.findall(r"Used Memory \(MiB\): (\d+)", text)]


def serving(server):
    """Indexes of the instances that answer."""
    code = (
        "import urllib.request as u\n"
        "for index in range(8):\n"
        "    try:\n"
        "        print(index, u.urlopen(f'http://127.0.0.1:{8002 + index}/health', timeout=5).status)\n"
        "    except OSError:\n"
        "        pass"
    )
    return [int(line.split()[0]) for line in server.must(["python3", "-c", code]).splitlines() if line.endswith(" 200")]


def script(server, words):
    """A line that llm types in the folder of the service; its exit status and what it printed."""
    done = server.run(["bash", "-lc", f"cd {FOLDER} && {words}"])
    return done.returncode, done.stdout + done.stderr


def changed(before, after):
    return [index for index in range(COUNT) if before[index] != after[index]]


def variant(server, **changes):
    """The scenario's service with other values."""
    file = INVENTORY / "group_vars" / "hygon_8xk100ai.yml"
    (service,) = yaml.safe_load(file.read_text(encoding="utf-8"))["modelyard_services"]
    return {**service, **changes}


def kill(server, index):
    """End a whole engine as the kernel would for lack of memory."""
    shown = server.must(["ps", "-o", "pid=,comm=", "--sid", str(server.state(NAME, index)["keeper"]["pid"])]).splitlines()
    # Python's resource tracker ends by itself, and gives the shared memory back.
    server.must(["kill", "-9", *(line.split()[0] for line in shown if line.split()[1] in ("vllm", "VLLM::EngineCor"))])
    until(lambda: server.comms(NAME, index) == [], 10, "the whole instance has ended")


def test_a_deploy_starts_and_accepts_eight_instances(server, deployed):
    assert sorted(server.steps(NAME)) == sorted((step.id, index, True) for step in LADDER for index in range(COUNT))
    assert serving(server) == list(range(COUNT))
    for index in range(COUNT):
        assert re.search(rf"{NAME}/{index}: started, pid \d+, \d+\.{NAME}-{index};", deployed.output)


def test_each_instance_has_a_session_of_screen_that_is_shown_with_its_full_id(server, deployed):
    sessions = re.findall(rf"\t(\d+\.{NAME}-\d)\t", server.run(["screen", "-ls"]).stdout)
    assert sorted(name.partition(".")[2] for name in sessions) == [f"{NAME}-{index}" for index in range(COUNT)]
    code, said = script(server, "./status_cluster.sh")
    assert code == 0, said
    for name in sessions:
        assert f"look in with screen -r {name}" in said


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


def test_a_dead_card_costs_one_eighth(server, deployed):
    before = server.leaders(NAME, COUNT)
    kill(server, 3)
    server.sim("set", "lost", "--card", "3")
    service = variant(server)
    server.services = [{**service, "topology": {**service["topology"], "min_replicas": 7}}]
    server.variables = {"modelyard_checks": {"PF-MEMORY": "off", "PF-CARD-COUNT": "warn"}}
    run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert "PL-REPLICAS-FEWER" in run.output
    assert changed(before, server.leaders(NAME, COUNT)) == []
    assert serving(server) == [0, 1, 2, 4, 5, 6, 7]


def test_of_eight_the_one_that_ended_is_started_again_and_no_other(server, deployed):
    before = server.leaders(NAME, COUNT)
    server.sim("clear")
    server.services, server.variables = [], {}
    run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert changed(before, server.leaders(NAME, COUNT)) == [3]
    assert serving(server) == list(range(COUNT))


def test_new_parameters_are_brought_to_one_instance_alone(server, deployed):
    before = server.leaders(NAME, COUNT)
    server.services = [variant(server, engine={"max_num_seqs": 5})]
    run = server.play("deploy", only=f"{NAME}:3", modelyard_restart=True)
    assert run.rc == 0, run.output[-3000:]
    assert changed(before, server.leaders(NAME, COUNT)) == [3]
    argv = [server.state(NAME, index)["request"]["launch"]["argv"] for index in (2, 3)]
    assert [words[words.index("--max-num-seqs") + 1] for words in argv] == ["4", "5"]


def test_a_roll_stops_at_the_first_instance_that_does_not_come_back(server, deployed):
    before = server.leaders(NAME, COUNT)
    settings = json.loads(server.must(["cat", "/opt/stand-in/stand-in.json"]))
    with server.file("/opt/stand-in/stand-in.json", json.dumps({**settings, "ports": {"8003": {"die": "loading"}}})):
        run = server.play("deploy", modelyard_restart=True)
    assert run.rc != 0
    assert f"the restart of {NAME}/1 failed" in run.output
    assert f"Restarted and proven: {NAME}/0." in run.output
    others = ", ".join(f"{NAME}/{index}" for index in (2, 4, 5, 6, 7))
    assert f"Not touched, they run as before: {others}." in run.output
    assert changed(before, server.leaders(NAME, COUNT)) == [0, 1]
    assert serving(server) == [0, 2, 3, 4, 5, 6, 7]


def test_a_teardown_leaves_nothing_although_the_memory_comes_back_late(server, deployed):
    server.sim("set", "late_release=3")
    used(server)  # only memory that was seen in use can come back late
    run = server.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert used(server) == [2] * COUNT
    assert [server.comms(NAME, index) for index in range(COUNT)] == [[]] * COUNT
    assert server.must(["bash", "-c", "ls /dev/shm | grep -E '^(psm_|sem.mp-)' || true"], user="root") == ""
    server.sim("clear")
    look = server.look()
    assert look.serious == []
    assert look.plan["services"][0]["action"] == "start"


def test_two_of_eight_are_started_and_stopped_by_hand(server, deployed):
    code, said = script(server, "N=2 MAX_SEQS=1 ./start_cluster.sh")
    assert code == 0, said
    assert serving(server) == [0, 1]
    code, said = script(server, "./status_cluster.sh")
    assert code == 1, said
    assert f"{NAME}/1: started by hand with --max-num-seqs 1; the next deploy shows the difference" in said
    code, said = script(server, "./stop_cluster.sh")
    assert code == 0, said
    assert re.fullmatch(r"stopped and verified in \d+\.\d s: nothing of it is left", said.splitlines()[-1]), said
    assert used(server) == [2] * COUNT
    assert script(server, "./status_cluster.sh")[0] == 3


def test_a_unit_of_the_user_wants_lingering(server, deployed):
    server.services = [
        {
            "name": SMALL,
            "backend": "hygon",
            "model": {"id": "m", "path": "/srv/models/stand-in"},
            "cards": [7],
            "runtime_path": "/opt/stand-in",
            "supervisor": "systemd_user",
        }
    ]
    server.must(["mv", LINGERS, "/tmp/linger"], user="root")
    try:
        look = server.look()
    finally:
        server.must(["mv", "/tmp/linger", LINGERS], user="root")
    assert look.serious == ["PF-LINGER"]
    assert "loginctl enable-linger llm" in look.text("PF-LINGER")


def test_a_unit_of_the_user_keeps_an_engine_without_root(server, deployed):
    words = 'export XDG_RUNTIME_DIR=/run/user/$UID; for verb in is-enabled is-active; do systemctl --user $verb "$0"; done'
    asked = ["bash", "-c", words, f"modelyard-{SMALL}.service"]
    run = server.play("deploy")
    assert run.rc == 0, run.output[-3000:]
    assert server.run(asked).stdout.split() == ["enabled", "active"]
    run = server.play("teardown")
    assert run.rc == 0, run.output[-3000:]
    assert server.run(asked).stdout.split() == ["disabled", "inactive"]
    assert used(server) == [2] * COUNT
