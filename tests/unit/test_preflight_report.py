"""The action plugin `preflight_report`, run for real: what an admin sees of many hosts, and the file with all of it."""

from __future__ import annotations

import json
import stat

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.modelyard.core.plugins.action import preflight_report
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from ansible_collections.modelyard.core.plugins.plugin_utils import old_python
from unit import worlds
from unit.check_cases import acted, unreachable

BUSY = {"8000": {"service": "", "pid": 77, "user": "eve", "command": "python -m http.server"}}


def planned(name, wish=None, **seen):
    """What a host has registered when it was planned for."""
    survey = worlds.survey(host={"name": name}, **seen)
    plan = planner.plan(wish or worlds.intent(), survey)
    return {"modelyard_intent": {"changed": False}, "plan_result": {**plan, "survey_json": json.dumps(survey), "changed": False}}


def refused(task, findings):
    """What a host has registered when the task that registers `task` has refused."""
    return {task: {"failed": True, "msg": "was refused", "findings": findings}}


def report(hosts, **args):
    """The result of the action in a play over these hosts: {name: what it has registered}."""
    variables = {"inventory_hostname": next(iter(hosts)), "ansible_play_hosts_all": list(hosts), "hostvars": hosts}
    return acted(preflight_report, args, variables).run(None, variables)


def test_hosts_that_came_differently_far_stand_in_one_table(capfd):
    inventory = [
        {"id": "IN-VALUE", "severity": "refuse", "where": "modelyard_services[a].cards", "what": "bad", "do": "write all"}
    ]
    hosts = {
        "ready": planned("ready"),
        "busy": planned("busy", ports=BUSY),
        "wrong": refused("modelyard_intent", inventory),
        "far": {
            "modelyard_intent": {},
            **refused("plan_result", [{**item, "where": "far"} for item in unreachable()]),
        },
        "old": {"modelyard_intent": {}, **refused("plan_result", old_python.judge({"python3": "3.6"}, (3, 9), "old"))},
    }
    result = report(hosts)
    shown = capfd.readouterr().out.splitlines()
    assert result["changed"] is False
    assert result.get("failed") is not True
    assert result["hosts"] == ["ready", "busy", "wrong", "far", "old"]
    assert result["refused"] == ["busy", "wrong", "far", "old"]
    assert [(item["host"], item["id"]) for item in result["findings"]] == [
        ("busy", "PF-PORT-BUSY"),
        ("wrong", "IN-VALUE"),
        ("far", "PF-UNREACHABLE"),
        ("old", "PF-PYTHON-OLD"),
    ]
    table = shown[shown.index("Findings of 5 host(s): 4 refuse, 0 warn, 0 note") + 1 :][:6]
    assert [line.split() for line in table] == [
        ["host", "cards", "services", "refuse", "warn", "note", "verdict"],
        ["ready", "-", "tiny-qwen3", "(start)", "-", "-", "-", "ready"],
        ["busy", "-", "tiny-qwen3", "(refused)", "1", "-", "-", "refused"],
        ["wrong", "-", "-", "1", "-", "-", "refused"],
        ["far", "-", "-", "1", "-", "-", "refused"],
        ["old", "-", "-", "1", "-", "-", "refused"],
    ]
    assert "  refuse  IN-VALUE  wrong modelyard_services[a].cards" in shown
    assert "  refuse  PF-PORT-BUSY  busy:8000" in shown


@pytest.mark.parametrize(
    "registered",
    [
        {},
        {"modelyard_intent": {}},
        {"modelyard_intent": {}, "plan_result": {"failed": True, "msg": "MODULE FAILURE"}},
        {"modelyard_intent": {}, "plan_result": {"unreachable": True, "msg": "Connection timed out"}},
        {"modelyard_intent": {"failed": True, "msg": "Template error"}},
        {"modelyard_intent": {}, "plan_result": {"skipped": True, "changed": False}},
        {"modelyard_intent": {}, "plan_result": {"failed": True, "msg": "a defect", "survey": worlds.survey()}},
    ],
    ids=["nothing", "no survey", "the survey failed", "lost on the way", "the intent failed", "skipped", "no plan"],
)
def test_a_host_of_which_no_plan_was_made_is_never_ready(registered, capfd):
    result = report({"a": planned("a"), "b": registered})
    assert result["refused"] == ["b"]
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("  b ")]
    assert line.split()[-1] == "refused"


def test_why_no_plan_was_made_is_said_as_far_as_it_is_known(capfd):
    report({"b": {"modelyard_intent": {}, "plan_result": {"unreachable": True, "msg": "Connection timed out"}}})
    assert "Connection timed out" in capfd.readouterr().out


def test_cards_and_what_is_switched_off_are_shown(capfd):
    wish = worlds.intent(worlds.gpu_service(), checks={"PF-STRANGER": "off"})
    survey = worlds.nvidia(
        worlds.card(0, processes=[{"pid": 4711, "name": "python", "memory_mib": 2000}], memory_used_mib=2004),
        worlds.card(1),
        accelerators={"nvidia": {"process_list": "listed"}},
        processes={"4711": worlds.process(4711)},
    )
    result = report({"box": {"plan_result": {**planner.plan(wish, survey), "survey_json": json.dumps(survey)}}})
    shown = capfd.readouterr().out
    assert result["refused"] == []
    assert "2 x NVIDIA GeForce RTX 4090  qwen3-14b-32k (start)" in shown
    assert "Found as well, but switched off by modelyard_checks: PF-STRANGER" in shown


def test_a_finding_of_the_tensor_test_refuses_as_well(capfd):
    bad = {"id": "PF-CARD-TEST", "severity": "refuse", "where": "box:card 1", "what": "it computes wrong", "do": "replace it"}
    result = report({"box": {**planned("box"), "card_test_findings": [bad]}})
    assert result["refused"] == ["box"]
    assert "  refuse  PF-CARD-TEST  box:card 1" in capfd.readouterr().out


def test_a_host_is_refused_once_however_much_was_found():
    busy = planned("a", ports=BUSY, home_problem="no right", limits={"nofile": [1, 1]})
    assert report({"a": busy})["refused"] == ["a"]


def test_a_hundred_hosts_with_the_same_finding_make_a_short_report(capfd):
    hosts = {f"s{number}": planned(f"s{number}", home_problem="no right") for number in range(1, 101)}
    result = report(hosts)
    shown = capfd.readouterr().out.splitlines()
    assert len(result["refused"]) == 100
    (line,) = [line for line in shown if "PF-HOME" in line]
    assert line == "  refuse  PF-HOME  s1:/opt/modelyard, s2:/opt/modelyard, s3:/opt/modelyard and 97 more"


# -- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_holds_findings_plans_and_surveys_for_its_owner_alone(tmp_path, capfd):
    path = tmp_path / "new" / "preflight.json"
    raw = [{"argv": ["nvidia-smi", "-q", "-x"], "rc": 0, "seconds": 0.3, "timed_out": False, "stdout": "<xml/>", "stderr": ""}]
    inventory = [{"id": "IN-VALUE", "severity": "refuse", "where": "x", "what": "bad", "do": "write all"}]
    hosts = {"a": planned("a", ports=BUSY, raw=raw), "b": refused("modelyard_intent", inventory)}
    report(hosts, json=str(path))
    assert f"Written: {path}" in capfd.readouterr().out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["preflight.json"]
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["schema"] == 1
    assert document["at"].endswith("+00:00")
    assert list(document["hosts"]) == ["a", "b"]
    assert document["hosts"]["a"]["findings"] == hosts["a"]["plan_result"]["findings"]
    assert document["hosts"]["a"]["survey"] == json.loads(hosts["a"]["plan_result"]["survey_json"])
    assert document["hosts"]["a"]["survey"]["raw"] == raw
    assert document["hosts"]["b"]["findings"] == inventory
    assert (document["hosts"]["b"]["plan"], document["hosts"]["b"]["survey"]) == (None, None)
    # what docs/checks.md says of it
    keys = ["findings", "switched_off", "services", "cards", "plan", "survey"]
    assert [list(host) for host in document["hosts"].values()] == [keys, keys]


def test_the_file_holds_the_plan_as_its_description_says(tmp_path):
    # roles/preflight/meta/argument_specs.yml: "all findings, plans and surveys of all hosts"
    made = planner.plan(worlds.intent(), worlds.survey(host={"name": "a"}))
    # what a registered result has besides
    hosts = {"a": {"plan_result": {**planned("a")["plan_result"], "failed": False, "ansible_facts": {}}}}
    report(hosts, json=str(tmp_path / "report"))
    plan = json.loads((tmp_path / "report").read_text())["hosts"]["a"]["plan"]
    assert plan == made, "the survey stands beside the plan, and the rest is Ansible's"


def test_findings_of_the_tensor_test_are_in_the_file(tmp_path):
    bad = {"id": "PF-CARD-TEST", "severity": "refuse", "where": "box:card 1", "what": "it computes wrong", "do": "replace it"}
    report({"box": {**planned("box"), "card_test_findings": [bad]}}, json=str(tmp_path / "report"))
    assert json.loads((tmp_path / "report").read_text())["hosts"]["box"]["findings"] == [bad]


def test_an_older_file_is_replaced_whole_and_closed_to_others(tmp_path):
    path = tmp_path / "preflight.json"
    path.write_text("x" * 100000)
    path.chmod(0o644)
    report({"a": planned("a")}, json=str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(json.loads(path.read_text())["hosts"]) == ["a"]


@pytest.mark.parametrize("json_path", [None, ""])
def test_without_a_path_nothing_is_written(json_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report({"a": planned("a")}, **({} if json_path is None else {"json": json_path}))
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_written_is_a_failure_in_words(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in ("file/report.json", "file/new/report.json", "folder", "loop/report.json", "x" * 300):
        with pytest.raises(AnsibleActionFail, match="the report could not be written to"):
            report({"a": planned("a")}, json=str(tmp_path / place))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder", "loop"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_the_report_is_shown_also_when_the_file_cannot_be_written(tmp_path, capfd):
    (tmp_path / "file").write_text("x")
    with pytest.raises(AnsibleActionFail):
        report({"a": planned("a", ports=BUSY)}, json=str(tmp_path / "file" / "report.json"))
    assert "PF-PORT-BUSY  a:8000" in capfd.readouterr().out
