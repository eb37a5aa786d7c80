"""The action plugin `intent`, run for real on the control node: what an admin sees for a wrong inventory."""

from __future__ import annotations

import json

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.loader import connection_loader
from ansible.template import Templar
from ansible_collections.modelyard.core.plugins.action import intent
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds

ROLES = str(worlds.ROOT / "roles")
MODEL = {"id": "tiny-qwen3", "path": "/srv/models/tiny-qwen3"}
SECRET = "sk-Zq9xW7vK"


def read(**variables):
    """What the action returns for an inventory with these variables."""
    variables = {"inventory_hostname": "box", "modelyard_home": "/opt/modelyard/", **variables}
    task, loader, context = Task(), DataLoader(), PlayContext()
    task.args = {"roles": ROLES}
    action = intent.ActionModule(
        task=task,
        connection=connection_loader.get("local", context, new_stdin=None),
        play_context=context,
        loader=loader,
        templar=Templar(loader, variables=variables),
        shared_loader_obj=None,
    )
    return action.run(None, variables)


def test_every_default_of_the_spec_is_filled_in_at_every_depth():
    result = read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL}])
    assert not result.get("failed")
    assert result["home"] == "/opt/modelyard"
    assert result["runtimes_dir"] == "/opt/modelyard/runtimes"
    assert result["restart"] is False
    assert result["services"] == [
        worlds.service(runtime_path="", engine={}, topology={"replicas": 1, "tensor_parallel_size": 1}),
    ]


def test_the_world_of_these_tests_has_the_shape_of_a_real_intent():
    result = read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL}])
    assert set(worlds.intent()) == set(result)


def test_text_from_the_command_line_becomes_the_wanted_type():
    service = {"name": "tiny-qwen3", "model": MODEL, "listen": {"base_port": "8010"}, "cards": "0,1"}
    result = read(modelyard_services=[service], modelyard_restart="true")
    assert result["services"][0]["listen"]["base_port"] == 8010
    assert result["services"][0]["cards"] == ["0", "1"]
    assert result["restart"] is True


def test_all_findings_of_an_inventory_come_at_once(capfd):
    result = read(
        modelyard_hom="/x",
        modelyard_services=[{"name": "tiny-qwen3", "model": MODEL, "toplogy": {}, "listen": {"base_port": "many"}}],
        modelyard_api_keys={"tiny-qwen": SECRET},
    )
    shown = capfd.readouterr().out
    assert result["failed"] is True
    assert "the variable modelyard_hom is not read by anything; did you mean modelyard_home?" in shown
    assert "toplogy is not a key that is known there; did you mean topology?" in shown
    assert "cannot be converted to an int" in shown
    assert "there is no service tiny-qwen; did you mean tiny-qwen3?" in shown


def test_one_misspelt_key_is_one_finding(capfd):
    read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL, "toplogy": {}}])
    shown = capfd.readouterr().out
    assert shown.count("toplogy is not a key that is known there") == 1
    assert "1 refuse, 0 warn, 0 note" in shown


@pytest.mark.parametrize(
    "services",
    [
        {"name": "tiny-qwen3", "model": MODEL},  # a mapping instead of a list
        "tiny-qwen3",
        ["tiny-qwen3"],
        [{"name": "tiny-qwen3", "model": "/srv/models/tiny-qwen3"}],
        [{"name": "tiny-qwen3", "model": MODEL, "topology": None}],
        [{"model": MODEL}],
    ],
    ids=str,
)
@pytest.mark.parametrize("keys", [{}, {"tiny-qwen3": SECRET}], ids=["open", "with a key"])
def test_an_inventory_of_the_wrong_shape_is_refused_in_words(services, keys, capfd):
    result = read(modelyard_services=services, modelyard_api_keys=keys)
    assert result["failed"] is True
    assert "IN-VALUE" in capfd.readouterr().out


@pytest.mark.parametrize(
    "keys",
    [SECRET, [SECRET], {"other": SECRET}, {"tiny-qwen3": [SECRET]}, {"tiny-qwen3": SECRET, "x": SECRET}],
    ids=str,
)
def test_no_message_about_api_keys_holds_a_key(keys, capfd):
    result = read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL}], modelyard_api_keys=keys)
    shown = capfd.readouterr().out + json.dumps(result)
    assert SECRET not in shown
    # Nor letter by letter, as happens when text is taken for a mapping.
    assert "modelyard_api_keys.Z" not in shown


def test_api_keys_that_are_no_mapping_are_refused():
    result = read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL}], modelyard_api_keys=SECRET)
    assert result["failed"] is True


@pytest.mark.parametrize("key", ["", None, [SECRET], {"a": SECRET}, "two\nlines", "sk-\u20ac"], ids=repr)
def test_a_key_that_cannot_guard_anything_is_refused(key):
    # vLLM takes an empty VLLM_API_KEY for no key at all; a key must fit into one HTTP header.
    result = read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL}], modelyard_api_keys={"tiny-qwen3": key})
    assert result.get("failed") is True


def test_a_key_is_known_to_the_plan_only_as_a_fact_and_never_by_its_text():
    result = read(
        modelyard_services=[{"name": "tiny-qwen3", "model": MODEL}],
        modelyard_api_keys={"tiny-qwen3": SECRET},
    )
    plan = planner.plan(result, worlds.survey())
    assert plan["services"][0]["secured"] is True
    assert SECRET not in json.dumps([result, plan])


# -- refused before anything starts, by the inventory's check or by the planner ---------------------------------------


def planned(**service):
    """The service as it would be started, or None when it was refused."""
    result = read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL, **service}])
    if result.get("failed"):
        return None
    plan = planner.plan(result, worlds.survey())
    return plan["services"][0] if plan["changes"] else None


def test_a_usual_service_is_not_refused():
    assert planned(environment={"VLLM_LOGGING_LEVEL": "DEBUG"}, cards=["0", "1"])["action"] == "start"


@pytest.mark.parametrize("name", ["MY-VAR", "2ND", "A;id", ""])
def test_an_environment_name_that_no_shell_can_set_is_refused(name):
    assert planned(environment={name: "1"}) is None


@pytest.mark.parametrize(
    "cards",
    [["0", "0"], ["first"], ["all", "1"], ["0-1"], ["-1"], ["1.0"], ["\u00b2"], []],
    ids=str,
)
def test_cards_that_are_no_set_of_indexes_are_refused(cards):
    assert planned(cards=cards, topology={"tensor_parallel_size": 1}) is None


def test_the_marker_of_a_service_cannot_be_another_ones():
    # With another service's marker, in that one's folder or session, its teardown would end these processes.
    service = planned(environment={"MODELYARD_SERVICE": "other"})
    assert service is None or service["instances"][0]["environment"]["MODELYARD_SERVICE"] == "tiny-qwen3"


def test_processes_cannot_be_made_unrecognisable():
    service = planned(environment={"SPT_NOENV": "0"})
    assert service is None or service["instances"][0]["environment"]["SPT_NOENV"] == "1"


@pytest.mark.parametrize(
    "where",
    [{"engine": {"api_key": SECRET}}, {"engine": {"hf_token": SECRET}}, {"environment": {"VLLM_API_KEY": SECRET}}],
    ids=["engine.api_key", "engine.hf_token", "environment.VLLM_API_KEY"],
)
def test_a_secret_where_process_lists_and_diffs_would_show_it_is_refused(where, capfd):
    assert planned(**where) is None
    assert SECRET not in capfd.readouterr().out


def test_an_empty_list_never_leaves_an_option_without_its_values():
    service = planned(engine={"cudagraph_capture_sizes": []})
    assert service is None or "--cudagraph-capture-sizes" not in service["instances"][0]["argv"]


def test_a_context_beyond_the_model_is_refused_also_when_it_came_as_text():
    # `-e max_len=32769` hands over text, and Ansible does not convert below `engine`.
    assert planned(engine={"max_model_len": "32768"}) is not None
    assert planned(engine={"max_model_len": "32769"}) is None


def test_a_context_length_that_came_as_text_is_compared_with_what_the_engine_shows():
    service = planned(engine={"max_model_len": "4096"})
    judge = acceptance.ladder(["models"])[0].judge
    shown = {
        "status": 200,
        "body": {"data": [{"id": "tiny-qwen3", "max_model_len": 2048}]},
        "seconds": 0.1,
        "error": "",
    }
    assert judge(service, service["instances"][0], {"answers": [shown]})[0]
    shown["body"]["data"][0]["max_model_len"] = 4096
    assert judge(service, service["instances"][0], {"answers": [shown]})[0] == ""
