"""The schedule on a control node: what is written, and that nothing of others is touched."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import timer
from ansible_collections.modelyard.core.plugins.module_utils.process import timer as installed
from hypothesis import given
from hypothesis import strategies as st

WORDS = ("/opt/my yard/.venv/bin/modelyard", "accept", "--inventory=/opt/my yard/inventory/lab 50%", "--trigger", "timer")


def wish(**changes):
    base = timer.Wish("lab", WORDS, "/opt/my yard", "*-*-* 06..20:00/30", "7 * * * *", 300, "llm")
    return base._replace(**changes)


def verified(folder, units, *words):
    for name, text in units.items():
        (folder / name).write_text(text, encoding="utf-8")
    paths = [str(folder / name) for name in units]
    return subprocess.run(["systemd-analyze", *words, "verify", *paths], capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("kind", [timer.SYSTEMD, timer.SYSTEMD_USER])
def test_systemd_reads_the_units_without_a_complaint(tmp_path, kind):
    program = tmp_path / "my yard 100%" / "modelyard"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    made = wish(words=(str(program), *WORDS[1:]), folder=str(program.parent), user="root")
    units = installed.Units(made, kind).texts
    done = verified(tmp_path, units)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "modelyard-accept-lab" in line]) == (0, [])
    broken = {name: text.replace("OnCalendar=*-*-* 06", "OnCalendar=someday 06") for name, text in units.items()}
    assert "modelyard-accept-lab.timer" in verified(tmp_path, broken).stderr
    installed.Units(made, kind).check()
    with pytest.raises(installed.Failed, match=r"schedule_calendar .someday.: .*someday"):
        installed.Units(made._replace(calendar="someday"), kind).check()


def test_the_units_make_up_for_a_missed_run_and_end_one_gently():
    text = timer.timer(wish())
    assert "Persistent=true" in text
    assert "RandomizedDelaySec=300" in text
    service = timer.service(wish(), timer.SYSTEMD)
    for line in ("Type=oneshot", "User=llm", "KillMode=mixed", "SuccessExitStatus=4 6", "X-Modelyard=accept lab"):
        assert line in service.splitlines()
    own = timer.service(wish(), timer.SYSTEMD_USER)
    assert "User=" not in own
    assert "network-online" not in own


def test_a_line_of_cron_means_to_a_shell_what_the_words_say():
    line = timer.cron_line(wish(words=(*WORDS, "--", "--forks", "50")))
    assert line.startswith("7 * * * * cd '/opt/my yard' && exec ")
    command = line.removeprefix("7 * * * * ").replace("\\%", "%")
    assert "%" not in line.replace("\\%", "")
    words = shlex.split(command)
    assert words[3:] == ["exec", *WORDS, "--quiet", "--random-delay", "300", "--", "--forks", "50"][: len(words) - 3]
    assert words[4:] == [*WORDS, "--quiet", "--random-delay", "300", "--", "--forks", "50"]


OTHERS = st.lists(st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",))), max_size=6)


@given(OTHERS, OTHERS, st.booleans())
def test_lines_of_others_stay_as_they_are(before, after, ends):
    table = "\n".join([*before, *after]) + ("\n" if ends else "")
    once = timer.merged(table, wish(), True)
    assert timer.merged(once, wish(), True) == once
    assert timer.entry(once, "lab") == timer.cron_line(wish())
    gone = timer.merged(once, wish(), False)
    assert gone in (table, f"{table}\n")
    later = timer.merged(once, wish(cron="@daily"), True)
    assert timer.entry(later, "lab").startswith("@daily cd ")
    assert timer.merged(later, wish(), False) == gone


def test_two_schedules_do_not_know_each_other():
    one = timer.merged("MAILTO=me\n", wish(), True)
    both = timer.merged(one, wish(name="prod"), True)
    assert timer.merged(both, wish(name="prod"), False) == one
    assert timer.merged(both, wish(), False).splitlines()[:2] == ["MAILTO=me", timer.mark("prod")]
    # A name that begins like another is another one.
    assert timer.entry(one, "la") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "a b"}, "schedule_name 'a b'"),
        ({"name": "../x"}, "schedule_name '../x'"),
        ({"cron": "hourly"}, "schedule_cron 'hourly'"),
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "7 * * * * root"}, "five fields"),
        ({"words": ("a", "b\n* * * * * rm")}, "line end"),
        ({"calendar": "daily\nUser=root"}, "line end"),
        ({"user": "a\tb"}, "control character"),
        ({"random_delay_s": -1}, "negative"),
    ],
)
def test_what_cannot_be_scheduled(changes, words):
    assert words in timer.problem(wish(**changes))
    assert timer.problem(wish()) == ""
    assert timer.problem(wish(cron="@daily")) == ""


class Manager:
    """Systemd as far as a schedule needs it: unit files in a folder, and what was asked."""

    there = {False: True, True: True}
    folder = None
    asked: list[tuple[str, ...]] = []
    states: dict[str, dict[str, str]] = {}

    def __init__(self, user):
        self.user = user

    @property
    def units(self):
        place = self.folder / ("user" if self.user else "system")
        place.mkdir(exist_ok=True)
        return place

    @property
    def is_there(self):
        return self.there[self.user]

    def install(self, source, name):
        self.asked.append(("install", name))
        (self.units / name).write_bytes(source.read_bytes())

    def enable(self, name):
        self.states[name] = {"UnitFileState": "enabled", "ActiveState": "active"}

    def start(self, name):
        self.asked.append(("start", name))

    def disable(self, name):
        self.states.pop(name)

    def stop(self, name, limit_s):
        self.asked.append(("stop", name))

    def remove(self, name):
        (self.units / name).unlink()

    @property
    def stamps(self):
        return self.folder

    def remove_file(self, path):
        self.asked.append(("remove", path.name))

    def show(self, name):
        return self.states.get(name, {})


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    monkeypatch.setattr(Manager, "folder", tmp_path)
    monkeypatch.setattr(Manager, "asked", [])
    monkeypatch.setattr(Manager, "states", {})
    monkeypatch.setattr(Manager, "there", {False: True, True: True})
    monkeypatch.setattr(installed.systemctl, "Manager", Manager)
    monkeypatch.setattr(installed.systemctl, "user_manager_problem", lambda: "" if Manager.there[True] else "no manager")
    monkeypatch.setattr(installed, "program", lambda name: "")
    monkeypatch.setattr(installed.os, "geteuid", lambda: 0)
    return Manager


def there(tmp_path):
    return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/modelyard-*"))


def apply(kind="auto", present=True, check_mode=False, **changes):
    return installed.apply(wish(user="root", **changes), kind, present, check_mode)


SYSTEM = ["system/modelyard-accept-lab.service", "system/modelyard-accept-lab.timer"]
OWN = [name.replace("system/", "user/") for name in SYSTEM]


def test_a_timer_comes_stays_changes_and_goes(tmp_path, systemd):
    assert apply(check_mode=True)["changed"] is True
    assert (there(tmp_path), systemd.asked) == ([], [])
    assert apply() | {"changes": []} == {"changed": True, "kind": "systemd", "changes": []}
    assert there(tmp_path) == SYSTEM
    assert ("start", "modelyard-accept-lab.timer") in systemd.asked
    assert apply()["changed"] is False
    assert apply(calendar="daily")["changed"] is True
    assert "OnCalendar=daily" in (tmp_path / SYSTEM[1]).read_text(encoding="utf-8")
    assert apply(present=False, check_mode=True)["changed"] is True
    assert there(tmp_path) == SYSTEM
    assert apply(present=False)["changed"] is True
    assert (there(tmp_path), systemd.states) == ([], {})
    assert systemd.asked[-1] == ("remove", "stamp-modelyard-accept-lab.timer")
    assert apply(present=False)["changed"] is False


def test_a_timer_that_was_switched_off_is_switched_on_again(systemd):
    apply()
    systemd.states.clear()
    assert apply(check_mode=True)["changes"] == [{"path": "modelyard-accept-lab.timer", "before": "off\n", "after": "on\n"}]
    assert apply()["changed"] is True
    assert apply()["changed"] is False


def test_another_kind_takes_the_place_of_the_first_so_that_nothing_runs_twice(tmp_path, systemd):
    apply("systemd")
    apply("systemd_user")
    assert there(tmp_path) == OWN
    assert apply("systemd_user")["changed"] is False


def test_a_unit_of_somebody_else_is_neither_overwritten_nor_removed(tmp_path, systemd):
    (tmp_path / "system").mkdir()
    (tmp_path / SYSTEM[1]).write_text("[Timer]\nOnCalendar=daily\n", encoding="utf-8")
    with pytest.raises(installed.Failed, match="is not of this project"):
        apply()
    assert apply(present=False)["changed"] is False
    assert there(tmp_path) == SYSTEM[1:]


def test_who_starts_it_is_chosen_by_what_is_there(systemd, monkeypatch):
    monkeypatch.setattr(installed.systemctl, "lingers", lambda user: user == "llm")
    assert installed.choose("auto", "llm") == "systemd"
    monkeypatch.setattr(installed.os, "geteuid", lambda: 1000)
    assert installed.choose("auto", "llm") == "systemd_user"
    with pytest.raises(installed.Failed) as caught:
        installed.choose("auto", "guest")
    for words in ("not root", "loginctl enable-linger guest", "no program crontab"):
        assert words in str(caught.value)
    monkeypatch.setattr(installed, "program", lambda name: f"/usr/bin/{name}")
    assert installed.choose("auto", "guest") == "cron"
    assert installed.choose("systemd", "guest") == "systemd"
    systemd.there = {False: False, True: False}
    with pytest.raises(installed.Failed, match="systemd does not run here"):
        installed.choose("systemd", "guest")
