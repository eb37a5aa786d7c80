"""Eight instances on eight cards, without root, in sessions of screen. The engines are stand-ins, the cards are simulated.

One deploy for all: each test goes on where the one before it ended, and the last ones take the service down. What clients of
their one entry notice is in test_entry.py.
"""

from __future__ import annotations

import re

from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance

NAME = "minicpm-v-4.5"
COUNT = 8
LADDER = acceptance.ladder({"engine": {}, "acceptance": {"also": ["image"]}})
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
    assert said.index(f"{NAME}/1: started") < said.index(f"{NAME}.gateway/0: started")
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
