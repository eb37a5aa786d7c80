"""playbooks/schedule.yml and what it installs, under the real systemd and the real cron of a control node.

The control node is the served machine as well: `modelyard accept` reaches it over SSH. The engines are stand-ins, the cards are
simulated. One story: each test goes on where the one before it ended. Cron needs up to a minute, so its lines come first and are
looked at later.
"""

from __future__ import annotations

import json

import pytest
from container_site import ContainerSite
from control_node import BIN, CHECKOUT, ControlNode
from harness import until

UNIT = "modelyard-accept-lab"
FILES = f"/etc/systemd/system/{UNIT}"
CRON_STATE = "/home/llm/nightly"
MINE = "MAILTO=admin\n# my own\n5 4 * * * /usr/local/bin/backup --percent 50\\%\n"
BACKUP = "[Unit]\nDescription=of somebody else\n\n[Timer]\nOnCalendar=daily\n\n[Install]\nWantedBy=timers.target\n"
#: Every five seconds, so that nobody waits; a run takes longer, and systemd lets none overlap.
OFTEN = {"random_delay_s": 0, "calendar": "*:*:0/5", "config": "/etc/modelyard/tell.yml"}
RARELY = {**OFTEN, "calendar": "*-*-* 03:00:00"}


@pytest.fixture(scope="module")
def node(scenario: ContainerSite) -> ControlNode:
    """The service runs; somebody else has a timer, a crontab, and a program that takes mails."""
    made = ControlNode(scenario)
    made.inventory("lab")
    made.write("/etc/systemd/system/backup.timer", BACKUP)
    made.write("/etc/systemd/system/backup.service", "[Service]\nExecStart=/bin/true\n")
    made.must("systemctl daemon-reload; systemctl enable --now backup.timer")
    made.write("/usr/sbin/sendmail", "#!/bin/sh\ncd /var/tmp; cat > mail-$$.part; mv mail-$$.part mail-$$\n", "0755")
    scenario.must(["crontab", "-u", "llm", "-"], "root", MINE)
    made.write("/usr/local/bin/note", "#!/bin/sh\nhead -c 100000 | tr -d '\\n' >> /var/tmp/told; echo >> /var/tmp/told\n", "0755")
    tell = {"tell": [{"kind": "command", "command": ["/usr/local/bin/note"]}], "busy_told_after_s": 5}
    made.write("/etc/modelyard/tell.yml", json.dumps(tell))
    done = made.play("deploy", user="llm")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return made


def told(node: ControlNode) -> list[dict]:
    lines = node.must("touch /var/tmp/told; cat /var/tmp/told").splitlines()
    return [json.loads(line) for line in lines]


def folder(node: ControlNode, inventory: str = "lab") -> str:
    return node.must(f"echo /root/.local/state/modelyard/accept/{inventory}-*").strip()


def runs(node: ControlNode) -> int:
    return int(node.must(f"ls {folder(node)}/runs/*.json 2>/dev/null | wc -l"))


def start(node: ControlNode, unit: str = UNIT) -> dict[str, str]:
    """Run it once as its timer would, to its end; what systemd says of it then."""
    node.sh(f"systemctl start {unit}.service", limit_s=180)
    return node.unit(f"{unit}.service")


def test_cron_gets_two_lines_among_those_of_others(node):
    node.inventory("broken", top_logprobs=400)
    often = {"kind": "cron", "cron": "* * * * *", "random_delay_s": 0}
    changed, shown = node.schedule(user="llm", check=True, **often)
    assert changed
    assert "+* * * * * cd /opt/modelyard && exec /opt/modelyard/.venv/bin/modelyard accept" in shown
    assert node.must("crontab -l", "llm") == MINE
    well = {**often, "name": "nightly", "state_dir": CRON_STATE}
    assert node.schedule(user="llm", **well)[0]
    assert not node.schedule(user="llm", **well)[0], "a second run changes nothing"
    assert node.schedule("broken", "llm", **often)[0]
    table = node.must("crontab -l", "llm")
    assert table.startswith(MINE)
    assert table.count("modelyard-accept-") == 2


def test_a_unit_of_somebody_else_is_refused_and_left_alone(node):
    foreign = "[Timer]\nOnCalendar=daily\n"
    with node.server.file(f"{FILES}.timer", foreign):
        done = node.play("schedule")
        assert done.returncode != 0
        assert f"{FILES}.timer is not of this project" in done.stdout + done.stderr
        assert node.must(f"cat {FILES}.timer") == foreign
    assert node.unit(f"{UNIT}.service")["LoadState"] == "not-found"


def test_a_timer_of_the_system_is_shown_installed_and_fires(node):
    changed, shown = node.schedule(check=True, **OFTEN)
    assert changed
    assert "+OnCalendar=*:*:0/5" in shown
    assert node.sh(f"ls {FILES}.timer").returncode != 0
    assert node.schedule(**OFTEN)[0]
    assert not node.schedule(**OFTEN)[0], "a second run changes nothing"
    until(lambda: runs(node) > 0, 90, "the timer has made a run")
    seen = node.unit(f"{UNIT}.timer")
    assert (seen["UnitFileState"], seen["ActiveState"]) == ("enabled", "active")
    record = node.records(folder(node))[0]
    assert (record["answer"], record["trigger"], record["inventory"]) == ("accepted", "timer", "/etc/modelyard/lab")
    assert "by the timer" in node.must(f"journalctl -q -o cat -u {UNIT}.service")
    assert f"{UNIT}.timer" in node.must("systemctl list-timers 'modelyard-*'")


def test_another_interval_is_shown_and_taken_over(node):
    changed, shown = node.schedule(check=True, **RARELY)
    assert changed
    assert "-OnCalendar=*:*:0/5" in shown
    assert "+OnCalendar=*-*-* 03:00:00" in shown
    assert "*:*:00/5" in node.unit(f"{UNIT}.timer")["TimersCalendar"]
    assert node.schedule(**RARELY)[0]
    seen = node.unit(f"{UNIT}.timer")
    assert "03:00:00" in seen["TimersCalendar"]
    assert seen["ActiveState"] == "active"
    until(lambda: node.unit(f"{UNIT}.service")["ActiveState"] == "inactive", 60, "the last run has ended")
    assert told(node) == [], "nothing was wrong"


def test_cron_has_run_both_and_mails_what_is_news(node):
    until(lambda: node.sh(f"ls {CRON_STATE}/latest.json").returncode == 0, 90, "cron has made a run")
    until(lambda: node.sh("grep -q Record: /var/tmp/mail-*[0-9]").returncode == 0, 90, "cron has sent a mail")
    record = node.records(CRON_STATE)[0]
    assert (record["answer"], record["trigger"]) == ("accepted", "timer")
    # A busy machine may need more than the minute between two runs, and the later one says so.
    mail = node.must("cat $(grep -L 'another run is under way' /var/tmp/mail-*[0-9])")
    assert "server1/qwen3-8b: failed (was accepted). step logprobs on instance 0" in mail
    assert mail.count("Subject: Cron ") == 1, "neither a run without news nor the same news again"
    for name, inventory in (("nightly", "lab"), ("broken", "broken")):
        assert node.schedule(inventory, "llm", state="absent", name=name)[0]
    assert node.must("crontab -l", "llm") == MINE
    until(lambda: node.sh("pgrep -u llm -f 'modelyard accept'").returncode != 0, 60, "no run is under way")


def test_a_user_who_lingers_has_a_timer_without_root(node):
    often = {**OFTEN, "name": "mine", "state_dir": "/home/llm/mine"}
    changed, shown = node.schedule(user="llm", **often)
    assert changed
    assert "/home/llm/.config/systemd/user/modelyard-accept-mine.timer" in shown
    assert not node.schedule(user="llm", **often)[0]
    until(lambda: node.sh("ls /home/llm/mine/latest.json").returncode == 0, 90, "the timer has made a run")
    assert node.records("/home/llm/mine")[0]["answer"] == "accepted"
    seen = node.unit("modelyard-accept-mine.timer", "llm")
    assert (seen["UnitFileState"], seen["ActiveState"]) == ("enabled", "active")
    assert node.schedule(user="llm", state="absent", **often)[0]
    assert node.unit("modelyard-accept-mine.timer", "llm")["LoadState"] == "not-found"
    own = "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user is-active modelyard-accept-mine.service"
    until(lambda: node.sh(own, "llm").stdout.strip() != "activating", 60, "a run that was under way has gone on to its end")
    left = node.must("find /home/llm/.config /home/llm/.local/share -name '*modelyard-accept*' 2>/dev/null || true")
    assert left == ""


def test_a_run_leaves_the_connections_of_others_open_and_closes_its_own(node):
    """Somebody plays a playbook as the same user at the same time, and Ansible shares connections."""
    somebodys = "pgrep -f '^ssh: /root/.ansible/cp'"
    done = node.sh(f"cd {CHECKOUT} && {BIN}/ansible -i /etc/modelyard/lab server1 -m ansible.builtin.raw -a true")
    assert done.returncode == 0, done.stdout + done.stderr
    before, since = node.must(somebodys), node.must("date +%s").strip()
    assert start(node)["ExecMainStatus"] == "0"
    assert node.must(somebodys) == before
    assert node.sh("pgrep -f '^ssh: /tmp/modelyard-'").returncode != 0
    assert "Killing process" not in node.must(f"journalctl -q -o cat -u {UNIT}.service --since=@{since}")


def test_a_missed_run_is_made_up_for(node):
    """As after a night with the machine off: the timer was away when it was due."""
    before = runs(node)
    node.must(f"systemctl stop {UNIT}.timer; touch -d '2 days ago' /var/lib/systemd/timers/stamp-{UNIT}.timer")
    node.must(f"systemctl start {UNIT}.timer")
    until(lambda: runs(node) == before + 1, 60, "the run that was missed")
    until(lambda: node.unit(f"{UNIT}.service")["ActiveState"] == "inactive", 60, "it has ended")
    node.must(f"systemctl restart {UNIT}.timer")
    assert node.unit(f"{UNIT}.service")["ActiveState"] == "inactive", "it is made up for once"


def test_a_full_service_is_no_failure_of_the_unit_and_told_when_it_lasts(node):
    asked = told(node)
    with node.users(8000, 16, max_tokens=500) as first, node.users(8001, 16, max_tokens=500) as second:
        seen = start(node)
        assert (seen["Result"], seen["ExecMainStatus"], seen["ActiveState"]) == ("success", "4", "inactive")
        assert told(node) == asked
        node.must("sleep 2")
        assert start(node)["ExecMainStatus"] == "4"
    assert {one["status"] for one in first + second} == {200}
    assert [message["answer"] for message in told(node)[len(asked) :]] == ["busy"]
    assert start(node)["ExecMainStatus"] == "0"
    assert [message["answer"] for message in told(node)[len(asked) :]] == ["busy", "accepted"]


def test_of_two_runs_at_once_the_second_says_so_and_is_no_failure(node):
    state = folder(node)
    with node.halted(0):
        node.must(f"systemctl start --no-block {UNIT}.service")
        until(lambda: node.sh(f"grep -q ansible {state}/lock.json").returncode == 0, 30, "the timer's run plays")
        done = node.sh(f"{BIN}/modelyard accept -i /etc/modelyard/lab")
        assert done.returncode == 6, done.stdout + done.stderr
        assert f"another run is under way in {state}: pid " in done.stderr
        assert "of root on modelyard-control, since " in done.stderr
    until(lambda: node.unit(f"{UNIT}.service")["ActiveState"] != "activating", 60, "the first run has ended")
    with node.halted(0):
        node.must(f"cd / && setsid {BIN}/modelyard accept -i /etc/modelyard/lab >/dev/null 2>&1 &")
        until(lambda: node.sh(f"grep -q ansible {state}/lock.json").returncode == 0, 30, "the run by hand plays")
        seen = start(node)
        assert (seen["Result"], seen["ExecMainStatus"]) == ("success", "6")
    until(lambda: node.sh(f"ls {state}/lock.json").returncode != 0, 60, "the run by hand has ended")


def test_a_host_that_is_down_fails_the_unit_until_it_is_back_or_the_schedule_is_gone(node):
    node.inventory("two", {"away": {"ansible_host": "127.0.0.1", "ansible_port": 1}})
    assert node.schedule("two", **RARELY)[0]
    seen = start(node, "modelyard-accept-two")
    assert (seen["Result"], seen["ExecMainStatus"]) == ("exit-code", "3")
    (record,) = node.records(folder(node, "two"))
    assert {name: host["answer"] for name, host in record["hosts"].items()} == {"away": "unreachable", "server1": "accepted"}
    assert "modelyard-accept-two.service" in node.must("systemctl --failed --plain")
    assert node.schedule("two", state="absent")[0]
    assert "modelyard-accept-two" not in node.must("systemctl --failed --plain; systemctl list-units --all --plain 'modelyard-*'")


def test_on_a_full_disk_the_answer_is_the_same_and_what_is_lost_is_said(node):
    assert node.schedule(name="small", state_dir="/srv/small/state", **RARELY)[0]
    assert start(node, "modelyard-accept-small")["ExecMainStatus"] == "0"
    node.sh("dd if=/dev/zero of=/srv/small/fill bs=4k 2>/dev/null")
    seen = start(node, "modelyard-accept-small")
    assert (seen["Result"], seen["ExecMainStatus"]) == ("success", "0")
    said = node.must("journalctl -q -o cat -u modelyard-accept-small.service")
    assert "the disk of /srv/small/state is full" in said
    assert ".json was not written: No space left on device" in said
    assert said.count("Record: ") == 1, "only of the run before"
    node.must("rm /srv/small/fill")
    assert start(node, "modelyard-accept-small")["ExecMainStatus"] == "0"
    assert node.schedule(state="absent", name="small")[0]


def test_without_any_environment_it_finds_what_it_needs(node):
    """No PATH, no home, no user, no input; a locale that is not installed."""
    done = node.sh(f"env -i LC_ALL=de_DE.UTF-8 {BIN}/modelyard accept -i /etc/modelyard/lab --depth quick <&-")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Accepted: ")


def test_after_a_boot_the_timer_is_there_and_makes_up_for_what_was_missed(node):
    before = runs(node)
    node.must(f"touch -d '2 days ago' /var/lib/systemd/timers/stamp-{UNIT}.timer")
    node.server.restart()
    until(lambda: runs(node) == before + 1, 90, "the run that was missed while the machine was off")
    record = node.records(folder(node))[-1]
    assert record["trigger"] == "timer"
    until(lambda: node.unit(f"{UNIT}.service")["ActiveState"] != "activating", 60, "it has ended")
    until(lambda: start(node)["ExecMainStatus"] == "0", 90, "the service is back, kept by the user's systemd")


def test_a_removal_leaves_nothing(node):
    changed, shown = node.schedule(check=True, state="absent")
    assert changed
    assert "-OnCalendar=*-*-* 03:00:00" in shown
    assert node.schedule(state="absent")[0]
    assert not node.schedule(state="absent")[0]
    assert node.must("find /etc /var/lib /root/.config /home -name '*modelyard-accept*' 2>/dev/null || true") == ""
    assert node.must("systemctl list-units --all --plain --no-legend 'modelyard-accept-*'") == ""
    assert node.must("cat /etc/systemd/system/backup.timer") == BACKUP
    assert node.unit("backup.timer")["ActiveState"] == "active"
    assert node.must("crontab -l", "llm") == MINE
    assert runs(node) > 0, "the history stays"
