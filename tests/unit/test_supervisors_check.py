"""What a preflight says about supervisors: only of what is needed, and never of our own sessions and units."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from ansible_collections.modelyard.core.plugins.module_utils.process import layout, proc, systemctl
from ansible_collections.modelyard.core.plugins.module_utils.survey import supervisors
from ansible_collections.modelyard.core.plugins.plugin_utils import surveying
from unit import worlds

NONE = {"running": True, "root": False, "sudo": False, "units": {}}


def ids(survey, *services):
    return [f["id"] for f in planner.plan(worlds.intent(*services), survey)["findings"]]


def test_a_service_that_runs_on_is_not_judged():
    service = worlds.service(supervisor="systemd")
    seen = worlds.kept(service, seen=worlds.survey(supervisors={"sessions": [], "systemd": {**NONE, "root": True}}))
    assert ids({**seen, "supervisors": {"sessions": [], "systemd": NONE}}, service) == []


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ({**NONE, "sudo": True}, []),
        ({**NONE, "root": True}, []),
        (NONE, ["PF-SUPERVISOR"]),
        ({**NONE, "root": True, "units": {"modelyard-tiny-qwen3.service": ""}}, ["PF-SUPERVISOR"]),
        ({**NONE, "root": True, "units": {"modelyard-tiny-qwen3.service": "/opt/modelyard/services/tiny-qwen3/instance-0"}}, []),
    ],
)
def test_systemd_of_the_system(seen, found):
    assert ids(worlds.survey(supervisors={"sessions": [], "systemd": seen}), worlds.service(supervisor="systemd")) == found


def test_our_own_session_and_unit_are_no_names_that_somebody_has():
    session = {"kind": "screen", "name": "tiny-qwen3", "pid": 600, "user": "ops", "attached": False}
    unit = {"name": "modelyard-tiny-qwen3.service", "state": "inactive", "scope": "system"}
    service = worlds.service(supervisor="systemd")
    seen = {"sessions": ["600.tiny-qwen3"], "systemd": {**NONE, "root": True}}
    assert ids(worlds.survey(sessions=[session], units=[unit], supervisors=seen), service) == []
    assert ids(worlds.survey(sessions=[session], supervisors={**seen, "sessions": []}), service) == ["PF-NAME-USED"]


def test_the_sessions_of_the_instances_are_names_too():
    service = worlds.service(topology={"replicas": 2, "tensor_parallel_size": 2})
    stranger = {"kind": "screen", "name": "tiny-qwen3-1", "pid": 600, "user": "eve", "attached": False}
    assert ids(worlds.survey(sessions=[stranger]), service) == ["PF-NAME-USED"]


def test_nothing_is_asked_of_a_host_whose_services_are_plain(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisors.tool, "run", lambda *more: pytest.fail("a program was called"))
    assert supervisors.look(str(tmp_path), {"plain": ["a"]}) == {"sessions": []}
    assert supervisors.look(str(tmp_path), {}) == {"sessions": []}


def test_sudo_is_tried_only_where_it_can_help(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(supervisors.tool, "run", lambda argv, *more: asked.append(argv) or {"rc": 0})
    monkeypatch.setattr(supervisors.os, "geteuid", lambda: 4711)
    seen = supervisors.look(str(tmp_path), {"systemd": ["a"]}, str(tmp_path))
    assert seen["systemd"]["sudo"] is True
    assert asked == [["sudo", "-n", "true"]]
    assert supervisors.look(str(tmp_path), {"systemd": ["a"]}, str(tmp_path / "none"))["systemd"]["sudo"] is False
    assert len(asked) == 1


def test_sessions_of_engines_of_this_boot_are_ours(tmp_path):
    folder = layout.instance_dir(str(tmp_path), "one", 0)
    (folder / "run").mkdir(parents=True)
    me = dict(zip(("pid", "start"), proc.identity(os.getpid()), strict=True))
    request = {"digest": "d", "host": "h", "port": 1, "launch": {}}
    state = {"keeper": me, "leader": me, "log": "l", "started_at": 1, "ended": None, "request": request, "boot": proc.boot_id()}
    for more, found in (
        ({"supervised": {"kind": "screen", "name": "7.one"}}, ["7.one"]),
        ({"supervised": {"kind": "systemd", "name": "x.service"}}, []),
        ({"supervised": "garbage"}, []),
        ({}, []),
        ({"supervised": {"kind": "screen", "name": "7.one"}, "boot": "another"}, []),
    ):
        layout.write_json(folder / "run/state.json", {**state, **more})
        assert supervisors.look(str(tmp_path), {})["sessions"] == found


def test_a_unit_file_that_cannot_be_read_is_nobodys(tmp_path, monkeypatch):
    monkeypatch.setattr(systemctl.Manager, "units", tmp_path)
    (tmp_path / "modelyard-a.service").mkdir()
    assert supervisors.look("/none", {"systemd": ["a", "b"]}, "/none")["systemd"]["units"] == {"modelyard-a.service": ""}


def test_the_names_that_are_asked_for_are_those_of_the_plan():
    services = [
        worlds.service(supervisor="screen", topology={"replicas": 2, "tensor_parallel_size": 1}),
        worlds.service(name="b", supervisor="screen"),
        worlds.service(name="c"),
    ]
    wanted = surveying.request(worlds.intent(*services))["supervisors"]
    assert wanted == {"screen": ["tiny-qwen3-0", "tiny-qwen3-1", "b"], "plain": ["c"]}


def test_lingering_is_told_by_a_file(tmp_path):
    (tmp_path / "ops").touch()
    assert systemctl.lingers("ops", str(tmp_path))
    assert not systemctl.lingers("eve", str(tmp_path))
    assert not systemctl.lingers("ops", str(Path("/nonexistent")))
