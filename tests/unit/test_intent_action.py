"""The action plugin `intent`, run for real on the control node: what an admin sees for a wrong inventory."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure
from ansible.template import trust_as_template
from ansible_collections.modelyard.core.plugins.action import intent
from ansible_collections.modelyard.core.plugins.module_utils.judge import acceptance
from ansible_collections.modelyard.core.plugins.module_utils.plan import planner
from unit import worlds
from unit.check_cases import acted

ROLES = str(worlds.ROOT / "roles")
MODEL = {"id": "tiny-qwen3", "path": "/srv/models/tiny-qwen3"}
TINY = {"modelyard_services": [{"name": "tiny-qwen3", "model": MODEL, "runtime_path": worlds.RUNTIME}]}
SECRET = "sk-Zq9xW7vK"


def read(args=None, /, **variables):
    """What the action returns for an inventory with these variables; `args`: more arguments of the task."""
    variables = {"inventory_hostname": "box", "modelyard_home": "/opt/modelyard/", **variables}
    return acted(intent, {"roles": ROLES, **(args or {})}, variables).run(None, variables)


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


def test_wheels_are_copied_only_to_a_folder_that_is_named(tmp_path, capfd):
    """Without one they would go to the root of the host's file system."""
    assert read(modelyard_wheelhouse_from=str(tmp_path))["failed"]
    assert "modelyard_wheelhouse_from" in capfd.readouterr().out
    assert not read(modelyard_wheelhouse_from=str(tmp_path), modelyard_wheelhouse="/srv/wheels").get("failed")


def test_the_gateways_program_is_made_only_where_there_is_a_gateway(monkeypatch):
    service = {"name": "tiny-qwen3", "model": MODEL}
    entry = {"kind": "modelyard", "port": 8100}
    assert len(read(modelyard_services=[{**service, "gateway": entry}])["gateway_package"]) == 64
    monkeypatch.setattr(intent.program, "gateway", lambda: pytest.fail("nobody needs it"))
    assert read(modelyard_services=[service])["gateway_package"] == ""


def test_text_from_the_command_line_becomes_the_wanted_type():
    service = {"name": "tiny-qwen3", "model": MODEL, "listen": {"base_port": "8010"}, "cards": "0,1"}
    result = read(modelyard_services=[service], modelyard_restart="true")
    assert result["services"][0]["listen"]["base_port"] == 8010
    assert result["services"][0]["cards"] == ["0", "1"]
    assert result["restart"] is True


def test_a_number_of_cards_a_preset_and_only_reach_the_planner():
    service = {"name": "tiny-qwen3", "model": MODEL, "topology": {"preset": "8xtp1"}, "cards": 8}
    result = read(modelyard_services=[service], only="tiny-qwen3:3")
    assert result["services"][0]["topology"] == {"preset": "8xtp1", "replicas": 8, "tensor_parallel_size": 1, "min_replicas": 0}
    assert (result["services"][0]["cards"], result["services"][0]["card_count"]) == (["all"], 8)
    assert result["only"] == {"tiny-qwen3": [3]}
    assert read(**TINY)["only"] == {}


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"only": "tiny-qwen"}, ["only.tiny-qwen"]),
        ({"only": "tiny-qwen3:1"}, ["only"]),
        ({"only": "tiny-qwen3:x"}, ["only"]),
        # a service that is refused for something else is known by its name
        (
            {"only": "tiny-qwen3", "modelyard_services": [{"name": "tiny-qwen3", "model": MODEL, "toplogy": {}}]},
            ["modelyard_services[tiny-qwen3].toplogy"],
        ),
        (
            {
                "modelyard_services": [
                    {"name": "tiny-qwen3", "model": MODEL, "topology": {"preset": "tp2", "replicas": 3}, "cards": ["x"]}
                ]
            },
            ["modelyard_services[tiny-qwen3].topology.replicas", "modelyard_services[tiny-qwen3].cards"],
        ),
        ({"modelyard_services": [{"name": "tiny-qwen3", "model": MODEL, "topology": {"preset": "tp3"}}]}, None),
        ({"modelyard_services": [{"name": "tiny-qwen3", "model": MODEL, "supervisor": "cron"}]}, None),
        ({"modelyard_services": [{"name": "tiny-qwen3", "model": MODEL, "logs": {"keep": 1}}]}, None),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_before_the_host_is_looked_at(variables, where):
    result = read({"show": False}, **{**TINY, **variables})
    assert result["failed"] is True
    assert where is None or [item["where"] for item in result["findings"]] == where


@pytest.mark.parametrize("supervisor", ["plain", "screen", "systemd", "systemd_user"])
def test_every_supervisor_can_be_wanted(supervisor):
    service = {"name": "tiny-qwen3", "model": MODEL, "supervisor": supervisor}
    assert read(modelyard_services=[service])["services"][0]["supervisor"] == supervisor


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
        [{"name": "tiny-qwen3", "model": MODEL, "topology": [1, 2]}],
        [{"name": "tiny-qwen3", "model": None}],
        [{"name": None, "model": MODEL}],
        [{"model": MODEL}],
        [None],
    ],
    ids=str,
)
@pytest.mark.parametrize("keys", [{}, {"tiny-qwen3": SECRET}], ids=["open", "with a key"])
def test_an_inventory_of_the_wrong_shape_is_refused_in_words(services, keys, capfd):
    result = read(modelyard_services=services, modelyard_api_keys=keys)
    assert result["failed"] is True
    assert "IN-VALUE" in capfd.readouterr().out


@pytest.mark.parametrize(
    "nothing",
    [
        {"topology": None},
        {"listen": None, "acceptance": None},
        {"topology": {"replicas": None, "tensor_parallel_size": None}, "listen": {"host": None}},
        {"model": {**MODEL, "recipe": None}},
        {"engine": None, "environment": None, "cards": None, "runtime": None, "backend": None, "ready_timeout_s": None},
    ],
    ids=str,
)
def test_a_key_of_a_service_with_nothing_behind_it_is_one_that_is_not_set(nothing):
    # `topology:` whose keys have all been commented out
    service = {"name": "tiny-qwen3", "model": MODEL}
    assert read(modelyard_services=[{**service, **nothing}])["services"] == read(modelyard_services=[service])["services"]


def test_an_option_of_the_engine_with_nothing_behind_it_reaches_the_plan():
    # There it means: leave this option out, also where the project would set it.
    service = {"name": "tiny-qwen3", "model": MODEL, "engine": {"shutdown_timeout": None}}
    assert read(modelyard_services=[service])["services"][0]["engine"] == {"shutdown_timeout": None}


def test_an_unknown_key_with_nothing_behind_it_is_refused_all_the_same():
    result = read({"show": False}, modelyard_services=[{"name": "tiny-qwen3", "model": MODEL, "toplogy": None}])
    assert [(item["id"], item["where"]) for item in result["findings"]] == [
        ("IN-KEY-UNKNOWN", "modelyard_services[tiny-qwen3].toplogy")
    ]


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


def test_expected_cards_have_their_defaults_and_types():
    assert read()["cards_expected"] == {"count": None, "name": ""}
    assert read(modelyard_cards_expected={"count": "8"})["cards_expected"] == {"count": 8, "name": ""}


@pytest.mark.parametrize("value", [{"count": "eight"}, {"cuont": 8}, "8 x RTX 4090", [8], 8], ids=str)
def test_expected_cards_of_another_shape_are_refused(value):
    assert read(modelyard_cards_expected=value)["failed"] is True


PLAN = yaml.safe_load((worlds.ROOT / "roles/plan/meta/argument_specs.yml").read_text(encoding="utf-8"))
LANGUAGE = sorted(set(PLAN["argument_specs"]["main"]["options"]) - {"modelyard_home"})


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_variable_with_nothing_behind_it_is_one_that_is_not_set(name):
    # `modelyard_checks:` whose entries have all been commented out
    assert {**read(**{name: None}), "run": ""} == {**read(), "run": ""}


# -- inputs of the other roles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("acceptance_steps", {"health": True}, "cannot be converted to a list"),
        ("acceptance_steps", None, "cannot be converted to a list"),
        ("card_test_enabled", "perhaps", "is not a valid boolean"),
        ("card_test_deadline_s", "long", "cannot be converted to an int"),
        ("service_stop_margin_s", None, "cannot be converted to an int"),
        ("teardown_grace_s", 1.5, "cannot be converted to an int"),
        ("acceptance_always", {}, "cannot be converted to a bool"),
    ],
)
def test_an_input_of_a_role_of_another_type_is_refused(name, value, words):
    result = read({"show": False}, **TINY, **{name: value})
    assert [(item["id"], item["where"], item["do"]) for item in result["findings"]] == [
        ("IN-VALUE", name, "correct it in the inventory")
    ]
    assert f"argument '{name}'" in result["findings"][0]["what"]
    assert words in result["findings"][0]["what"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("card_test_deadline_s", "240"),  # as -e hands it over
        ("card_test_enabled", "false"),
        ("runtime_index_url", None),
        ("preflight_json", ""),
        ("acceptance_steps", ["health", "schema"]),
    ],
)
def test_an_input_of_a_role_that_can_be_read_as_its_type_is_none(name, value):
    assert read(**TINY, **{name: value})["services"][0]["name"] == "tiny-qwen3"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("card_test_deadline_s", "{{ ansible_facts['distribution_major_version'] }}"),
        ("acceptance_steps", ["{{ of_another_play }}"]),
    ],
)
def test_an_input_of_a_role_that_is_made_of_what_is_not_known_yet_is_not_judged(name, value):
    trusted = {name: [trust_as_template(v) for v in value] if isinstance(value, list) else trust_as_template(value)}
    assert read(**TINY, **trusted).get("failed") is not True
    known = {"of_another_play": "health", "ansible_facts": {"distribution_major_version": "long"}}
    refused = read({"show": False}, **TINY, **trusted, **known).get("findings", [])
    assert [item["where"] for item in refused] == (["card_test_deadline_s"] if name == "card_test_deadline_s" else [])


def test_everything_wrong_with_the_inputs_of_all_roles_comes_at_once_with_the_rest():
    wrong = {"card_test_enabled": "perhaps", "teardown_grace_s": "long", "teardown_servcie": "x", "modelyard_restart": "perhaps"}
    assert sorted((item["id"], item["where"]) for item in read({"show": False}, **wrong)["findings"]) == [
        ("IN-VALUE", "card_test_enabled"),
        ("IN-VALUE", "inventory"),
        ("IN-VALUE", "teardown_grace_s"),
        ("IN-VARIABLE-UNKNOWN", "teardown_servcie"),
    ]


def test_variables_of_ones_own_that_begin_like_a_role_are_not_looked_at():
    assert read(**TINY, survey_of_last_year=["anything"], service_contact={"a": 1}).get("failed") is not True


# -- switches ---------------------------------------------------------------------------------------------------------


def test_switches_of_checks_reach_the_plan():
    assert read()["checks"] == {}
    assert read(modelyard_checks={"PF-ZOMBIE": False, "PF-SHM": "note"})["checks"] == {"PF-ZOMBIE": "off", "PF-SHM": "note"}
    plan = planner.plan(read(modelyard_checks={"PF-SHM": "off"}, **TINY), worlds.survey(host={"shm_free_mib": 1}))
    assert (plan["findings"], plan["switched_off"], plan["changes"]) == ([], ["PF-SHM"], ["tiny-qwen3"])


@pytest.mark.parametrize(
    "checks", [{"PF-ZOMBY": "off"}, {"PF-SHM": "quiet"}, {"PF-LOCK-HELD": "off"}, "PF-SHM", ["PF-SHM"]], ids=str
)
def test_a_switch_that_switches_nothing_is_refused(checks):
    assert read(modelyard_checks=checks)["failed"] is True


def test_findings_are_kept_for_the_report_and_shown_at_once_unless_the_report_does(capfd):
    wrong = {"modelyard_hom": "/x", "modelyard_checks": {"PF-ZOMBY": "off"}}
    shown = read(**wrong)
    assert "IN-VARIABLE-UNKNOWN" in capfd.readouterr().out
    quiet = read({"show": False}, **wrong)
    assert capfd.readouterr().out == ""
    assert quiet["findings"] == shown["findings"]
    assert [(item["id"], item["where"]) for item in quiet["findings"]] == [
        ("IN-VARIABLE-UNKNOWN", "modelyard_hom"),
        ("IN-KEY-UNKNOWN", "modelyard_checks.PF-ZOMBY"),
    ]
    assert quiet["msg"].startswith("The inventory of box was refused: IN-VARIABLE-UNKNOWN, IN-KEY-UNKNOWN.")


def test_show_may_come_as_text_and_is_handed_on_as_what_it_means(capfd):
    read({"show": "false"}, modelyard_hom="/x")
    assert capfd.readouterr().out == ""
    assert (read({"show": "false"})["show"], read({"show": "yes"})["show"], read()["show"]) == (False, True, True)


def test_one_folder_of_tools_may_come_as_text():
    # `-e modelyard_tool_path=/opt/hyhal/bin` must not become a folder for each letter.
    assert read(modelyard_tool_path="/opt/hyhal/bin")["tool_path"] == ["/opt/hyhal/bin"]
    assert (read()["tool_path"], read()["sysroot"]) == ([], "/")


def test_a_home_below_the_users_own_is_asked_on_the_host_and_a_silent_host_is_left_to_the_survey():
    variables = {"inventory_hostname": "box", "modelyard_home": "~/modelyard/", **TINY}
    action = acted(intent, {"roles": ROLES}, variables)
    action._remote_expand_user = lambda path: path.replace("~", "/home/ops")
    assert action.run(None, variables)["home"] == "/home/ops/modelyard"

    def refuse(path):
        raise AnsibleConnectionFailure("no route to host")

    action._remote_expand_user = refuse
    result = action.run(None, variables)
    assert result.get("failed") is not True
    assert result["home"] == "~/modelyard"


@pytest.mark.parametrize("backend", ["nvidia", "hygon", "amd"])
def test_a_service_on_cards_can_be_wanted(backend):
    service = {"name": "qwen3-14b-32k", "model": MODEL, "backend": backend, "runtime_path": "/opt/vllm"}
    assert read(modelyard_services=[service])["services"][0]["backend"] == backend


def test_a_kind_of_card_that_is_not_known_is_refused():
    assert read(modelyard_services=[{"name": "tiny-qwen3", "model": MODEL, "backend": "gpu"}])["failed"] is True


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


def test_a_variable_of_the_engine_with_nothing_behind_it_is_not_set_to_a_word():
    service = planned(environment={"VLLM_LOGGING_LEVEL": None})
    assert service is None or service["instances"][0]["environment"].get("VLLM_LOGGING_LEVEL", "") == ""


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
    judge = acceptance.ladder(service, ["models"])[0].judge
    shown = {
        "status": 200,
        "body": {"data": [{"id": "tiny-qwen3", "max_model_len": 2048}]},
        "seconds": 0.1,
        "error": "",
    }
    assert judge(service, service["instances"][0], {"answers": [shown]})[0]
    shown["body"]["data"][0]["max_model_len"] = 4096
    assert judge(service, service["instances"][0], {"answers": [shown]})[0] == ""


SOURCE = {"from": "huggingface"}


@pytest.mark.parametrize(
    ("model", "place", "words"),
    [
        ({"id": "tiny", "source": SOURCE}, "model.source.repo", "'tiny' is no name of a model on a hub"),
        ({"source": {"from": "folder"}}, "model.source.at", "it is not said where the files are"),
        ({"source": {"from": "folder", "at": "models/a"}}, "model.source.at", "is not an absolute path"),
        ({"source": {"from": "mirror", "at": "ftp://a/b"}}, "model.source.at", "is no address"),
        ({"source": {"from": "mirror", "at": "https://me:s3cret@a/b"}}, "model.source.at", "the address holds a login"),
        ({"source": {**SOURCE, "repo": "a/b", "subfolder": "../x"}}, "model.source.subfolder", "leads out of the source"),
        ({"merge": {"base": "/a"}}, "model.merge", "a merge wants two folders"),
        ({"merge": {"base": "/a", "adapter": "b"}}, "model.merge.adapter", "is not an absolute path"),
        ({"source": {**SOURCE, "repo": "a/b"}, "recipe": "x.py"}, "model", "source and recipe are both set"),
        ({"merge": {"base": f"{MODEL['path']}/", "adapter": "/b"}}, "model.merge.base", "would be written over"),
        ({"merge": {"base": "/a", "adapter": MODEL["path"]}}, "model.merge.adapter", "would be written over"),
        ({"source": {"from": "folder", "at": MODEL["path"]}}, "model.source.at", "would be written over"),
        ({"source": {**SOURCE, "repo": "a/b"}, "path": "//"}, "model.path", "the root of the host's files"),
    ],
)
def test_where_a_model_comes_from_is_checked(model, place, words):
    service = {**TINY["modelyard_services"][0], "model": {**TINY["modelyard_services"][0]["model"], **model}}
    result = read({"show": False}, modelyard_services=[service])
    (one,) = result["findings"]
    assert one["where"] == f"modelyard_services[{service['name']}].{place}" and words in one["what"]
    assert "s3cret" not in str(result)


def test_a_folder_is_made_in_one_way_alone():
    def told(*models, **model):
        service = {**TINY["modelyard_services"][0], "model": {**MODEL, **model}}
        result = read({"show": False}, modelyard_models=list(models), modelyard_services=[service])
        return [(item["where"], item["what"]) for item in result["findings"]] if result.get("failed") else []

    hub = {"id": "Qwen/Qwen3", "path": MODEL["path"], "source": SOURCE}
    assert told(hub) == []  # the service only names the folder
    assert told(hub, id="tiny", source={**SOURCE, "repo": "Qwen/Qwen3"}) == []
    assert told(hub, {**hub, "id": "Qwen/Qwen3-8B", "path": f"{MODEL['path']}/"}) == [
        ("modelyard_models[Qwen/Qwen3-8B].path", f"modelyard_models[Qwen/Qwen3] makes {MODEL['path']}/ in another way")
    ]
    assert [where for where, _ in told(hub, recipe="x.py")] == ["modelyard_services[tiny-qwen3].model.path"]


def test_a_model_beside_the_services_says_where_it_comes_from():
    entry = {"id": "BAAI/bge-m3", "path": "/srv/models/bge-m3"}
    for listed in ("BAAI/bge-m3", ["BAAI/bge-m3"]):  # not read as "no models"
        (told,) = read({"show": False}, modelyard_models=listed, **TINY)["findings"]
        assert (told["where"], told["what"]) == ("modelyard_models", "it is not a list of models")
    result = read({"show": False}, modelyard_models=[entry, {"id": "x", "pat": "/y"}], **TINY)
    assert [(item["id"], item["where"]) for item in result["findings"]] == [
        ("IN-KEY-UNKNOWN", "modelyard_models[x].pat"),
        ("IN-VALUE", "modelyard_models[BAAI/bge-m3]"),
        ("IN-VALUE", "modelyard_models[x]"),
    ]
    found = read(modelyard_models=[{**entry, "source": {"from": "modelscope"}}], **TINY)["models"]
    assert found[0]["source"]["by"] == "host" and found[0]["merge"] == {"base": "", "adapter": ""} and found[0]["recipe"] == ""
