"""Units of systemd, as far as that goes without systemd: a small program in systemctl's place starts what a unit file says.

The real systemd is met in the scenarios in containers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployed
import pytest
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc, supervisor, systemctl
from ansible_collections.modelyard.core.plugins.module_utils.process.by_hand import free
from ansible_collections.modelyard.core.plugins.module_utils.process.stop import run
from ansible_collections.modelyard.core.plugins.module_utils.survey import supervisors
from harness import alive, end, free_port, until
from simulators.install import install
from trees import deployed_on_cards

NAME = "unit-one"
UNIT = f"modelyard-{NAME}.service"
# Keeps the states of units in files, runs ExecStart in a session of its own and ExecStop in the foreground.
SYSTEMCTL = r"""#!%(python)s
import json, os, shlex, subprocess, sys
from pathlib import Path
units, log = Path(%(units)r), Path(%(log)r)
words = [w for w in sys.argv[1:] if w not in ("--no-ask-password", "--no-block")]
log.open("a").write(" ".join(words) + "\n")
words = [w for w in words if w != "--user"]
state = units / "states"
states = json.loads(state.read_text()) if state.exists() else {}
verb, unit = words[0], words[-1]
def lines(key):
    return [l.split("=", 1)[1] for l in (units / unit).read_text().splitlines() if l.startswith(key + "=")]
def put(**more):
    states.setdefault(unit, {}).update(more)
    state.write_text(json.dumps(states))
if verb == "restart":
    put(ActiveState="active", SubState="running", Result="success")
    for line in lines("ExecStartPre"):
        if subprocess.run(shlex.split(line)).returncode:
            put(ActiveState="failed", SubState="failed", Result="exit-code")
            sys.exit(0)
    subprocess.Popen(shlex.split(lines("ExecStart")[0]), start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
elif verb == "stop":
    for line in lines("ExecStop"):
        subprocess.run(shlex.split(line))
    put(ActiveState="inactive", SubState="dead")
elif verb in ("enable", "disable"):
    put(UnitFileState=verb + "d")
elif verb == "show":
    known = {"LoadState": "loaded" if (units / unit).exists() else "not-found", "ActiveState": "inactive", "SubState": "dead",
             "NRestarts": "0", "UnitFileState": ""}
    for key, value in {**known, **states.get(unit, {})}.items():
        print(f"{key}={value}")
elif verb == "reset-failed" and unit not in states:
    sys.exit(1)
"""

QUICK = {"grace_s": 1, "term_s": 1, "kill_s": 5, "memory_s": 0, "release_supervisor": False}


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of unit files, with `calls` of systemctl; sudo wants a password."""
    folder, programs = tmp_path / "units", tmp_path / "programs"
    folder.mkdir()
    programs.mkdir()
    text = SYSTEMCTL % {"python": sys.executable, "units": str(folder), "log": str(folder / "calls")}
    (programs / "systemctl").write_text(text)
    (programs / "sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(systemctl.Manager, "units", folder)
    monkeypatch.setattr(supervisor.systemd, "user_manager_problem", lambda: "")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "home"
    made.mkdir()
    yield made
    run.stop_service(str(made), NAME, options=QUICK)


def folder_of(home: Path, **changes: Any) -> Path:
    deployed.write(home, deployed.service(home, NAME, free_port(), supervisor="systemd", **changes))
    return layout.instance_dir(str(home), NAME, 0)


def request(folder: Path) -> dict[str, Any]:
    found = layout.read_json(folder / layout.REQUEST_FILE)
    assert found is not None
    return found


def calls(units: Path) -> list[str]:
    path = units / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_start_installs_enables_and_starts_and_a_release_stops_carefully(units: Path, home: Path) -> None:
    folder = folder_of(home)
    state = supervisor.start_once(folder, request(folder), sys.executable)
    assert state["supervised"] == {"kind": "systemd", "name": UNIT}
    assert (units / UNIT).read_bytes() == (folder / UNIT).read_bytes()
    verbs = [call.split()[0] for call in calls(units) if not call.startswith("show")]
    assert verbs == ["daemon-reload", "enable", "reset-failed", "restart"]
    kind = supervisor.SUPERVISORS["systemd"]
    shown = kind.describe(folder, request(folder))
    assert shown["alive"] is True
    assert shown["detail"].startswith("active (running), enabled; engine pid ")
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    done = kind.release(folder, request(folder), 60.0)
    assert done == [f"disabled {UNIT}: it is not started at boot", f"stopped {UNIT}: systemd does not start it again"]
    until(lambda: not alive(state["keeper"]["pid"]), 5, "the keeper has ended")
    assert json.loads((folder / "run/starts.json").read_text())["starts"][-1]["asked"] is True
    assert kind.release(folder, request(folder), 60.0) == []


def test_a_unit_file_of_somebody_else_is_left_alone(units: Path, home: Path) -> None:
    folder = folder_of(home)
    for text, words in (
        ("[Service]\nExecStart=/bin/true\n", "not made by Modelyard"),
        ("X-Modelyard=/other/home/x\n", "/other/home/x"),
    ):
        (units / UNIT).write_text(text)
        with pytest.raises(supervisor.StartError, match=words):
            supervisor.start_once(folder, request(folder), sys.executable)
        assert (units / UNIT).read_text() == text
    assert [c for c in calls(units) if not c.startswith("show")] == []
    seen = supervisors.look(str(home), {"systemd": [NAME, "none"]}, str(home))
    assert seen["systemd"]["units"] == {UNIT: "/other/home/x"}


def test_another_supervisor_takes_over_only_after_the_unit_was_released(units: Path, home: Path) -> None:
    folder = folder_of(home)
    before = supervisor.start_once(folder, request(folder), sys.executable)
    # The inventory has changed; instance.json says plain, and what runs is a unit.
    layout.write_json(folder / layout.REQUEST_FILE, {**request(folder), "supervisor": "plain"})
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    done = supervisor.SUPERVISORS["plain"].release(folder, request(folder), 60.0)
    assert [line.split()[0] for line in done] == ["disabled", "stopped"]
    until(lambda: not alive(before["keeper"]["pid"]), 5, "the keeper has ended")
    # A unit that waits for its next try is released by the start itself.
    states = json.loads((units / "states").read_text())
    layout.write_json(units / "states", {UNIT: {**states[UNIT], "ActiveState": "activating", "UnitFileState": "enabled"}})
    after = supervisor.start_once(folder, request(folder), sys.executable)
    assert after["supervised"]["kind"] == "plain"
    assert json.loads((units / "states").read_text())[UNIT]["ActiveState"] == "inactive"
    assert alive(after["leader"]["pid"])


def test_a_unit_of_another_name_is_released_before_the_new_one_starts(units: Path, home: Path) -> None:
    folder = folder_of(home)
    before = supervisor.start_once(folder, request(folder), sys.executable)
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    # A second instance has come: the files say NAME-0, and what runs is the unit NAME.
    folder_of(home, replicas=2)
    done = run.stop_service(str(home), NAME, [0], {**QUICK, "release_supervisor": True})
    assert (done["failed"], done["left"]) == (False, [])
    assert [line for line in done["actions"] if UNIT in line] == [
        f"disabled {UNIT}: it is not started at boot",
        f"stopped {UNIT}: systemd does not start it again",
    ]
    assert not alive(before["leader"]["pid"])
    # One that has ended by itself, and that systemd is about to start anew.
    states = json.loads((units / "states").read_text())
    layout.write_json(units / "states", {UNIT: {**states[UNIT], "ActiveState": "activating", "UnitFileState": "enabled"}})
    after = supervisor.start_once(folder, request(folder), sys.executable)
    assert after["supervised"]["name"] == f"modelyard-{NAME}-0.service"
    assert json.loads((units / "states").read_text())[UNIT] == {**states[UNIT], "UnitFileState": "disabled"}


def test_an_instance_that_is_wanted_no_more_is_stopped_carefully_by_its_unit(units: Path, home: Path) -> None:
    folder_of(home, replicas=2)
    folder = layout.instance_dir(str(home), NAME, 1)
    state = supervisor.start_once(folder, request(folder), sys.executable)
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    # A deploy writes service.json first; then the unit's own stop is called.
    known = layout.service(str(home), NAME)
    layout.write_json(folder.parent / layout.SERVICE_FILE, {**known, "instances": [0]})
    words = [str(folder.parent / layout.PROGRAM), "stop", str(folder), "--for-supervisor"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"SIGINT to {state['leader']['pid']}" in done.stdout


def test_without_rights_it_is_refused_with_the_reason_and_what_helps(
    units: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(home)
    monkeypatch.setattr(systemctl.os, "geteuid", lambda: 4711)
    with pytest.raises(supervisor.StartError, match=r"a password is required.*systemd_user needs neither"):
        supervisor.SUPERVISORS["systemd"].start(folder, request(folder), sys.executable)
    assert layout.state(folder) is None


def test_the_users_own_manager_is_reached_without_the_callers_environment(
    units: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(home)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/4711")
    state = supervisor.SUPERVISORS["systemd_user"].start(folder, request(folder), sys.executable)
    assert all(c.startswith("--user ") for c in calls(units))
    assert alive(state["leader"]["pid"])


def test_a_user_without_a_manager_is_told_what_to_do(home: Path) -> None:
    folder = folder_of(home)
    if os.path.isdir(systemctl.runtime_dir() + "/systemd"):
        pytest.skip("this user has a manager")
    with pytest.raises(supervisor.StartError, match="loginctl enable-linger"):
        supervisor.SUPERVISORS["systemd_user"].start(folder, request(folder), sys.executable)
    seen = supervisors.look(str(home), {"systemd_user": [NAME]})
    assert seen["systemd_user"]["problem"]
    assert seen["systemd_user"]["lingers"] is False


def test_an_engine_that_is_not_let_start_is_told_with_the_place_of_the_log(units: Path, home: Path) -> None:
    folder = folder_of(home)
    (folder.parent / layout.PROGRAM).write_text("import sys\nsys.exit(1)\n")
    with pytest.raises(supervisor.StartError, match="journalctl -u modelyard-unit-one"):
        supervisor.start_once(folder, request(folder), sys.executable)


def test_a_start_waits_after_failures_but_not_when_somebody_has_ordered_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(home)
    slept: list[float] = []
    monkeypatch.setattr(free.time, "sleep", slept.append)
    (folder / "run").mkdir()
    now = free.time.time()
    failed = {"log": "a", "at": now, "ended_at": now, "served_s": 0.0, "asked": False, "ordered": False}
    layout.write_json(folder / "run/starts.json", {"starts": [failed, failed, failed]})
    said: list[str] = []
    assert free.run(folder, said.append) == 0
    assert 35 < slept[0] <= 40
    assert said == ["3 start(s) in a row have failed: waiting 40 s before the next"]
    (folder / "run/ordered").touch()
    assert free.run(folder, said.append) == 0
    assert len(slept) == 1


def test_a_start_waits_until_the_memory_of_its_cards_is_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(home)
    info = {**layout.read_json(folder.parent / "service.json"), "backend": "nvidia", "stop": {"memory_s": 30}}
    entry = {"vendor": "10de", "tool": "nvidia-smi", "tool_places": [], "tool_limit_s": 5, "idle_mib": 4}
    layout.write_json(folder.parent / "service.json", {**info, "backends": {"nvidia": entry}})
    layout.write_json(folder / "instance.json", {**request(folder), "devices": [{"index": 1, "uuid": "GPU-1", "bus_id": ""}]})
    clock = [0.0]
    monkeypatch.setattr(free.cards.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(free.cards.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    used = [30000, 20000, 64]
    listed = {"tool": {"state": "answers", "said": ""}, "process_list": "listed"}

    def look(*more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        amount = used.pop(0) if len(used) > 1 else used[0]
        return [{"uuid": "GPU-1", "health": "ok", "memory_used_mib": amount, "processes": []}], listed

    monkeypatch.setattr(free.cards, "look", look)
    said: list[str] = []
    assert free.run(folder, said.append) == 0
    assert "waiting up to 30 s for memory: card 1: 30000 MiB in use, idle is 4 MiB" in said[0]
    assert clock[0] == 1.5
    used[:] = [30000]
    assert free.run(folder, said.append) == 1
    assert "not started: card 1: 30000 MiB in use" in said[-1]
    assert clock[0] >= 31.5
    # A tool that is gone keeps no engine down.
    monkeypatch.setattr(free.cards, "look", lambda *more: ([], {**listed, "tool": {"state": "missing", "said": "it is gone"}}))
    assert free.run(folder, said.append) == 0
    (folder.parent / "service.json").unlink()  # there is no such tool here, and nothing to stop


def on_a_card(home: Path, sim: Any, memory_s: float) -> Path:
    """The instance on the first simulated card."""
    planned = deployed.service(home, NAME, free_port(), supervisor="systemd")
    return deployed_on_cards(home, sim, [0], planned, memory_s=memory_s)


@pytest.fixture
def sim(tmp_path: Path) -> Any:
    return install(tmp_path / "sim", "2x4090", python=sys.executable)


def reports(home: Path) -> list[Path]:
    return sorted(home.glob("evidence/*/report.txt"))


def test_a_stop_through_the_unit_waits_once_for_memory_and_writes_one_report(units: Path, home: Path, sim: Any) -> None:
    folder = on_a_card(home, sim, memory_s=4)
    state = supervisor.start_once(folder, request(folder), sys.executable)
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    sim.set("memory_stays", 20000, card=0)
    said: list[str] = []
    result = run.stop_service(str(home), NAME, options={"grace_s": 5, "memory_s": 4}, say=said.append)
    assert "needs an admin: card 0" in result["msg"]
    # Those of the unit's stop are among them.
    assert [words.partition(" for memory")[0] for words in said if "for memory" in words] == ["waiting up to 4 s"]
    assert [str(path.parent) for path in reports(home)] == [result["needs_admin"]]
    report = reports(home)[0].read_text()
    assert f"SIGINT to {state['leader']['pid']}" in report, "what the unit's stop did is in the one report"
    assert report.index("SIGINT to") < report.index("stopped modelyard") < report.index("memory of card 0")
    sim.clear()


def test_a_unit_that_is_stopped_alone_judges_the_cards_and_forgets_the_admin_when_it_recovers(
    units: Path, home: Path, sim: Any
) -> None:
    folder = on_a_card(home, sim, memory_s=1)
    supervisor.start_once(folder, request(folder), sys.executable)
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    sim.set("memory_stays", 20000, card=0)
    words = [sys.executable, str(folder.parent / layout.PROGRAM), "stop", str(folder), "--for-supervisor"]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1
    needs = folder.parent / layout.NEEDS_ADMIN
    assert (needs.exists(), len(reports(home))) == (True, 1)
    said: list[str] = []
    assert free.run(folder, said.append) == 1
    assert needs.exists(), said
    sim.clear()
    # A process that the stop has left and that lives on keeps the file, whatever the memory says.
    known = layout.read_json(needs)
    lives = subprocess.Popen(["sleep", "60"], start_new_session=True)
    left = dict(zip(("pid", "start"), proc.identity(lives.pid), strict=True))
    layout.write_json(needs, {**known, "processes": [left]})
    assert free.run(folder, said.append) == 0
    end(lives)
    assert needs.exists(), said
    layout.write_json(needs, known)
    assert free.run(folder, said.append) == 0
    assert not needs.exists()
    assert said[-1] == "what an admin had to do is done: needs_admin.json removed"
    assert len(reports(home)) == 1, "the report stays as the history of it"


def test_memory_that_a_process_holds_which_a_stop_has_left_keeps_the_unit_down(units: Path, home: Path, sim: Any) -> None:
    folder = on_a_card(home, sim, memory_s=0)
    with Path(f"{sim.root}/dev/nvidia0").open("rb") as device:
        holder = subprocess.Popen(["sleep", "60"], stdin=device, start_new_session=True)
    try:
        sim.memory(holder.pid, 20000)
        said: list[str] = []
        assert free.run(folder, said.append) == 0, "that of a stranger keeps nothing down"
        left = dict(zip(("pid", "start"), proc.identity(holder.pid), strict=True))
        record = {"boot": proc.boot_id(), "processes": [left], "cards": []}
        layout.write_json(folder.parent / layout.NEEDS_ADMIN, record)
        assert free.run(folder, said.append) == 1
        assert f"{holder.pid} of an earlier stop did not end" in said[-1]
    finally:
        end(holder)


def test_an_api_server_that_leaves_parts_behind_costs_one_report_too(units: Path, home: Path, sim: Any) -> None:
    folder = on_a_card(home, sim, memory_s=1)
    supervisor.start_once(folder, request(folder), sys.executable)
    until(lambda: layout.state(folder)["ready_at"], 10, "it answers")
    sim.set("memory_stays", 20000, card=0)
    words = [sys.executable, str(folder.parent / layout.PROGRAM), "stop", str(folder), "--for-supervisor"]
    by_keeper = subprocess.run([*words, "--only-signals"], capture_output=True, text=True, check=False)
    assert (by_keeper.returncode, reports(home)) == (0, []), by_keeper.stdout
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1
    assert len(reports(home)) == 1
    sim.clear()


def test_the_unit_of_another_service_that_has_the_same_name_is_not_stopped(units: Path, home: Path) -> None:
    # `a` with several instances has a unit modelyard-a-0, like a service `a-0`; so has a service of another home.
    folder = folder_of(home)
    (units / UNIT).write_text("X-Modelyard=/other/home/services/unit/instance-0\n")
    (units / "states").write_text(json.dumps({UNIT: {"ActiveState": "active", "UnitFileState": "enabled"}}))
    result = run.stop_service(str(home), NAME, options={**QUICK, "release_supervisor": True})
    assert (result["failed"], result["changed"]) == (False, False), result
    assert [call.split()[0] for call in calls(units)] == ["show"]
    assert supervisor.SUPERVISORS["systemd"].release(folder, request(folder), 5.0) == []


def test_a_unit_that_may_not_be_stopped_is_no_stopped_service(units: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(home)
    (units / UNIT).write_bytes((folder / UNIT).read_bytes())
    (units / "states").write_text(json.dumps({UNIT: {"ActiveState": "active", "UnitFileState": "enabled"}}))
    monkeypatch.setattr(systemctl.os, "geteuid", lambda: folder.stat().st_uid or 4711)
    monkeypatch.setattr(run.look, "no_right", lambda home, service: "")
    result = run.stop_service(str(home), NAME, options={**QUICK, "release_supervisor": True})
    assert (result["failed"], result["stopped"]) == (True, False)
    assert "a password is required" in result["msg"]
    assert "systemd may start it again" in result["msg"]


def test_a_unit_that_was_stopped_is_a_change_although_this_run_has_signalled_nobody(units: Path, home: Path) -> None:
    folder = folder_of(home)
    state = supervisor.start_once(folder, request(folder), sys.executable)
    result = run.stop_service(str(home), NAME, options={**QUICK, "release_supervisor": True})
    assert (result["failed"], result["changed"]) == (False, True), result
    assert not alive(state["leader"]["pid"])
    # The stop of the unit has signalled, and this one tells it.
    assert result["actions"][0].startswith(f"SIGINT to {state['leader']['pid']} (")
    assert "1 signalled, 0 left" in result["actions"][-1]
    assert not (folder / "run/unit_stop.json").exists()
    again = run.stop_service(str(home), NAME, options={**QUICK, "release_supervisor": True})
    assert (again["failed"], again["changed"]) == (False, False), again


def test_a_systemd_that_does_not_answer_may_start_it_again(units: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(home)
    monkeypatch.setattr(systemctl.Manager, "show", lambda *_: {})
    assert supervisor.SUPERVISORS["systemd"].release(folder, request(folder), 5.0) == [], "there is no systemd at all"
    monkeypatch.setattr(systemctl.Manager, "is_there", True)
    with pytest.raises(supervisor.NotReleased, match="does not answer"):
        supervisor.SUPERVISORS["systemd"].release(folder, request(folder), 5.0)
