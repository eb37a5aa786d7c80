"""The actions of playbooks/status.yml, run for real on what hosts have registered."""

from __future__ import annotations

import copy
import json
import stat
import sys

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.modelyard.core.plugins.action import service_status, status_report
from unit import worlds
from unit.check_cases import acted
from unit.test_drift import core_world
from unit.test_filters import tagged

LINE = {"kind": "file", "instance": 0, "what": "launch.sh was changed", "do": "deploy"}
CLEAN = {"name": "tiny", "instances": [], "accepted": {"valid": True, "at": 1.0}, "deployed": {}, "drift": []}
UNREACHABLE = {"id": "PF-UNREACHABLE", "severity": "refuse", "where": "away", "what": "no route", "do": "look"}


def seen(*lines):
    return {"modelyard_intent": {}, "status_result": {"services": [{**CLEAN, "drift": list(lines)}], "drift": []}}


def failed(task="status_result", **more):
    return {task: {"failed": True, "msg": "it went wrong", **more}}


def report(hosts, **args):
    variables = {"inventory_hostname": next(iter(hosts)), "ansible_play_hosts_all": list(hosts), "hostvars": hosts}
    return acted(status_report, args, variables).run(None, variables)


def test_without_drift_the_run_is_a_success_also_when_strict():
    assert report({"a": seen(), "b": seen()}, strict=True).get("failed", False) is False


@pytest.mark.parametrize(("strict", "fails"), [(False, False), (True, True), ("false", False), ("yes", True)])
def test_drift_fails_the_run_only_when_strict(strict, fails, capfd):
    result = report({"a": seen(LINE), "b": seen()}, strict=strict)
    assert bool(result.get("failed")) is fails
    assert result["drift"] == 1
    assert "  file  a:tiny/0\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (failed(findings=[UNREACHABLE]), "PF-UNREACHABLE away: no route -> look"),
        (failed("modelyard_intent", findings=[{**UNREACHABLE, "id": "IN-VALUE"}]), "IN-VALUE away"),
        (failed(), "it went wrong"),
        ({}, "no reason was given"),
    ],
)
def test_a_host_that_was_not_looked_at_fails_the_run_and_says_why(host, words, capfd):
    result = report({"a": seen(), "away": host})
    assert result["failed"] is True
    assert result["not_looked_at"] == ["away"]
    assert words in capfd.readouterr().out


def test_programs_get_all_hosts_in_one_file_for_its_owner(tmp_path):
    path = tmp_path / "new/status.json"
    report({"a": seen(LINE), "away": failed()}, json=str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = json.loads(path.read_text())
    assert document["schema"] == 1
    assert document["hosts"]["a"]["services"][0]["drift"] == [LINE]
    assert document["hosts"]["away"] == {"services": [], "drift": [], "problem": "it went wrong"}


def test_a_file_that_cannot_be_written_fails_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AnsibleActionFail, match="could not be written"):
        report({"a": seen()}, json=str(tmp_path / "file/status.json"))


def looked(wish, survey, asked):
    """The result of the action service_status on a host where the module sees this."""
    variables = {"inventory_hostname": "box", "ansible_python_interpreter": sys.executable}
    action = acted(service_status, {"intent": tagged(wish)}, variables)

    def look(name, module_args, task_vars):
        asked.update(module_args)
        return {"changed": False, "survey": tagged(survey)}

    action._execute_module = look
    return action.run(None, variables)


def test_one_look_is_compared_with_manifests_and_with_the_inventory():
    wish, survey = core_world()
    asked = {}
    result = looked(worlds.intent(wish), survey, asked)
    assert asked["deployed"] is True
    assert (result["changed"], result.get("failed", False)) == (False, False)
    assert [(s["name"], s["drift"]) for s in result["services"]] == [("two", [])]
    other = looked(worlds.intent({**wish, "engine": {"max_model_len": 1024}}), survey, {})
    assert {item["kind"] for item in other["services"][0]["drift"]} == {"inventory"}


def test_each_instance_tells_its_own_acceptance_and_what_is_wanted_no_more_only_while_it_runs(capfd):
    wish, survey = core_world()
    first, second = survey["services"]["two"]["instances"]
    gone, runs = ({**copy.deepcopy(first), "index": index, "alive": index == 3} for index in (2, 3))
    survey["services"]["two"]["instances"] += [gone, runs]
    second.update(accepted=False, accepted_at=None)
    result = looked(worlds.intent(wish), survey, {})
    rows = result["services"][0]["instances"]
    assert [(row["index"], row["accepted_at"] is not None) for row in rows] == [(0, True), (1, False), (3, True)]
    report({"a": {"modelyard_intent": {}, "status_result": result}})
    shown = [line for line in capfd.readouterr().out.splitlines() if " two/" in line and "ago" in line]
    assert ["lost" in line for line in shown] == [False, True, False]


def test_a_host_of_which_the_inventory_wants_nothing_is_compared_with_its_manifests_alone():
    _, survey = core_world()
    result = looked({**worlds.intent(), "services": []}, survey, {})
    assert [s["drift"] for s in result["services"]] == [[]]
