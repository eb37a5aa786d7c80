"""Eight DCUs without root: each fault is provoked and recognised. The cards are simulated; processes and files are real."""

from __future__ import annotations

import json

import pytest
from cases import always

CARD3 = "/sim/dev/dri/renderD131"  # renderD128 is card 0; card0 of /dev/dri is the board's own display


def test_a_clean_server_passes_and_gives_each_instance_a_card_and_a_port(site):
    look = site.look()
    assert look.run.rc == 0
    assert look.serious == []
    instances = look.plan["services"][0]["instances"]
    assert [(i["port"], i["cards"], i["environment"]["HIP_VISIBLE_DEVICES"]) for i in instances] == [
        (8002 + n, [[n]], str(n)) for n in range(8)
    ]
    assert [raw["argv"][1] for raw in look.survey["raw"]] == ["--showproductname", "--showpids"]


def test_what_a_user_without_root_cannot_see_is_said(site):
    with site.process(["sleep", "600"], user="root", holds=[CARD3]):
        look = site.look()
    assert "user llm could not read: open files of" in look.text("PF-NOT-READABLE")
    assert "the kernel's log" in look.text("PF-NOT-READABLE") or look.survey["kernel_log"]["readable"]


#: What is set, what it is recognised by, a word of that finding, and what else comes with it.
FAULTS = [
    (["lost", "--card", "5"], "PF-CARD-COUNT", "8 card(s) expected, 7 answer", ["PF-CARD-UNKNOWN", "PL-CARDS"]),
    (["gone_from_bus", "--card", "5"], "PF-CARD-COUNT", "7 answer and 7 are on the bus", ["PL-CARDS"]),
    (["memory_stays=24000", "--card", "3"], "PF-MEMORY-HELD", "card 3 (0000:1a:00.0): 24002 MiB of 65520 MiB", ["PL-CARDS"]),
    (["denied", "--card", "2"], "PF-DEVICE-DENIED", "user llm may not open /dev/dri/renderD130", []),
    (["driver_not_loaded"], "PF-DRIVER-NOT-LOADED", "is on disk", ["PF-CARD-COUNT", "PF-DEVICE-MISSING", "PL-CARDS"]),
    (["process_list_blank"], "PF-CARD-USERS-UNKNOWN", "the tool's list of processes is unknown", []),
    (["crash=--showpids"], "PF-CARD-USERS-UNKNOWN", "unknown", []),
    (["garbage"], "PF-TOOL-OUTPUT", "hy-smi cannot be relied on", ["PF-CARD-COUNT", "PL-CARDS"]),
]


@pytest.mark.parametrize(("fault", "id", "words", "beside"), always(4, FAULTS), ids=[case[0][0] for case in FAULTS])
def test_a_fault_of_a_card_or_its_driver_is_recognised(site, fault, id, words, beside):
    site.sim("set", *fault)
    look = site.look()
    assert look.serious == sorted([id, *beside])
    assert words in look.text(id)


@pytest.mark.further
def test_use_that_the_tool_does_not_know_is_no_idleness(site):
    site.sim("set", "util_na")
    look = site.look()
    assert look.serious == []
    assert {card["utilization_pct"] for card in look.survey["cards"]["hygon"]} == {None}


def test_a_strangers_process_is_named_also_where_its_files_may_not_be_read(site):
    with site.process(["sleep", "600"], user="root") as pid:
        site.sim("process", str(pid), "24000", "--card", "3")
        look = site.look()
        assert site.run(["kill", "-0", str(pid)], user="root").returncode == 0
    # In a container a pid of the tool counts only with the device file open, which this user may not see: memory without owner.
    assert look.serious == ["PF-MEMORY-HELD", "PL-CARDS"]
    assert f"the tool still names pid {pid}" in look.text("PF-MEMORY-HELD")
    assert "Its owner may be there and not to be seen" in look.text("PF-MEMORY-HELD")


@pytest.mark.further
def test_ones_own_process_on_a_card_is_found(site):
    with site.process(["sleep", "600"], user="llm", holds=[CARD3, "/sim/dev/kfd"]) as pid:
        look = site.look()
    assert look.serious == ["PF-STRANGER", "PL-CARDS"], "without that card there are seven for eight instances"
    assert f"card 3 (0000:1a:00.0): pid {pid} of user llm (sleep 600" in look.text("PF-STRANGER")


def test_sessions_of_the_same_and_of_a_similar_name_are_found(site):
    site.must(["screen", "-dmS", "minicpm-v-4.5", "sleep", "600"])
    site.must(["tmux", "new-session", "-d", "-s", "old-minicpm-v-4.5", "sleep 600"])
    try:
        look = site.look()
    finally:
        site.must(["screen", "-S", "minicpm-v-4.5", "-X", "quit"])
        site.must(["tmux", "kill-server"])
    assert look.serious == ["PF-NAME-USED"]
    assert "screen session minicpm-v-4.5 of user llm" in look.text("PF-NAME-USED")
    assert "tmux session old-minicpm-v-4_5 of user llm" in look.text("PF-NAME-SIMILAR")


def test_the_users_own_shell_settings_are_read(site):
    with site.file("/home/llm/.profile", "export HIP_VISIBLE_DEVICES=\nexport all_proxy=socks5://127.0.0.1:1\n"):
        look = site.look()
    assert look.serious == ["PF-PROXY-DEAD", "PF-VISIBILITY"]
    assert "HIP_VISIBLE_DEVICES is set, but empty" in look.text("PF-VISIBILITY")


def test_many_faults_at_once_come_together(site):
    site.sim("set", "memory_stays=30000", "--card", "0")
    site.sim("set", "denied", "--card", "7")
    with site.file("/etc/environment", "http_proxy=http://127.0.0.1:9\n"), site.process(["sleep", "600"], holds=[CARD3]):
        look = site.look()
    assert look.serious == ["PF-DEVICE-DENIED", "PF-MEMORY-HELD", "PF-PROXY-DEAD", "PF-STRANGER", "PL-CARDS"]
    severities = [f["severity"] for f in look.findings]
    assert severities == sorted(severities, key=["refuse", "warn", "note"].index)


def test_a_missing_card_leaves_the_other_seven_to_a_service_that_names_them(site):
    site.sim("set", "lost", "--card", "5")
    site.variables = {"modelyard_cards_expected": {}}
    site.services = [
        {
            "name": "minicpm-v-4.5",
            "backend": "hygon",
            "model": {"id": "m", "path": "/srv/models/stand-in"},
            "topology": {"replicas": 7},
            "cards": [0, 1, 2, 3, 4, 6, 7],
            "runtime_path": "/opt/stand-in",
        }
    ]
    look = site.look()
    assert look.run.rc == 0
    assert look.serious == []
    assert "no service wants this card" in json.dumps(look.findings)
