from __future__ import annotations

import pytest
import yaml
from ansible_collections.modelyard.core.plugins.module_utils.plan import findings, intent, meaning
from unit import worlds

SPEC = yaml.safe_load((worlds.ROOT / "roles/plan/meta/argument_specs.yml").read_text(encoding="utf-8"))
OPTIONS = SPEC["argument_specs"]["main"]["options"]
SERVICES = OPTIONS["modelyard_services"]


def whats(found):
    return [(f["id"], f["where"], f["what"]) for f in found]


@pytest.mark.parametrize(
    ("services", "where", "what"),
    [
        (
            [{"name": "a", "toplogy": {}}],
            "modelyard_services[a].toplogy",
            "toplogy is not a key that is known there; did you mean topology?",
        ),
        (
            [{"name": "a", "model": {"id": "m", "pat": "/m"}}],
            "modelyard_services[a].model.pat",
            "pat is not a key that is known there; did you mean path?",
        ),
        (
            [{"name": "a"}, {"name": "b", "topology": {"tensor_parallel": 2}}],
            "modelyard_services[b].topology.tensor_parallel",
            "tensor_parallel is not a key that is known there; did you mean tensor_parallel_size?",
        ),
        (
            [{"zzzzzz": 1}],
            "modelyard_services[0].zzzzzz",
            "zzzzzz is not a key that is known there",
        ),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest_right_one(services, where, what):
    assert whats(intent.unknown_keys(services, SERVICES, "modelyard_services")) == [("IN-KEY-UNKNOWN", where, what)]


def test_every_misspelt_key_is_named_at_once_at_every_depth():
    service = {"nam": "a", "listen": {"hots": "x", "base_port": 1}, "acceptance": {"serial": 3}}
    found = intent.unknown_keys([service], SERVICES, "modelyard_services")
    assert [f["where"] for f in found] == [
        "modelyard_services[0].nam",
        "modelyard_services[0].listen.hots",
        "modelyard_services[0].acceptance.serial",
    ]


def test_keys_below_engine_and_environment_are_left_to_the_planner():
    service = {"name": "a", "engine": {"anything": 1}, "environment": {"ANY": "1"}}
    assert intent.unknown_keys([service], SERVICES, "modelyard_services") == []


@pytest.mark.parametrize("value", [None, 5, "text", [None, 5, "text"], {}])
def test_a_value_of_another_shape_is_left_to_the_type_check(value):
    assert intent.unknown_keys(value, SERVICES, "modelyard_services") == []


def test_a_misspelt_variable_is_refused_and_foreign_ones_are_not_looked_at():
    names = ["modelyard_restrat", "modelyard_home", "ansible_host", "my_modelyard_thing"]
    found = intent.unknown_variables(names, ["modelyard_restart", "modelyard_home"], "modelyard_")
    assert whats(found) == [
        (
            "IN-VARIABLE-UNKNOWN",
            "modelyard_restrat",
            "the variable modelyard_restrat is not read by anything; did you mean modelyard_restart?",
        )
    ]


@pytest.mark.parametrize("name", ["qwen3-14b-32k", "a", "0", "bge-m3", "minicpm-v-4.5", "a" * 63, "model-a"])
def test_a_name_that_says_what_runs_is_accepted(name):
    assert meaning.findings([worlds.service(name=name)]) == []


@pytest.mark.parametrize(
    "name",
    [
        *("vllm", "engine", "server", "service", "llm", "model"),
        *("Qwen3", "qwen 3", "qwen/3", "..", ".", "-a", "a-", "a_b", "", "a\n", "ä", "a" * 64, "../../etc", "$(id)"),
    ],
)
def test_a_name_that_says_nothing_or_is_no_file_name_is_refused(name):
    assert [f["id"] for f in meaning.findings([worlds.service(name=name)])] == ["IN-NAME"]


@pytest.mark.parametrize(
    ("base_port", "replicas", "wrong"), [(0, 1, [0]), (65535, 2, [65536]), (-1, 1, [-1]), (65535, 1, []), (1, 1, [])]
)
def test_a_port_that_cannot_exist_is_refused(base_port, replicas, wrong):
    service = worlds.service(listen={"base_port": base_port}, topology={"replicas": replicas})
    assert whats(meaning.findings([service])) == [
        ("IN-VALUE", "modelyard_services[tiny-qwen3].listen.base_port", f"there is no port {port}") for port in wrong
    ]


@pytest.mark.parametrize("key", ["replicas", "tensor_parallel_size"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_topology_below_one_is_refused(key, value):
    found = meaning.findings([worlds.service(topology={key: value})])
    assert whats(found) == [("IN-VALUE", f"modelyard_services[tiny-qwen3].topology.{key}", f"{value} is below 1")]


@pytest.mark.parametrize(
    ("group", "key", "value", "words"),
    [
        ("start", "stagger_s", -0.5, "-0.5 is below 0"),
        ("start", "stagger_s", float("nan"), "nan is above 3600"),
        ("start", "wave", 0, "0 is below 1"),
        ("logs", "cap_mib", 0, "0 is below 1"),
        ("logs", "keep", 1, "1 is below 2"),
        ("stop", "drain_s", -1, "-1 is below 0"),
        ("stop", "memory_s", -1, "-1 is below 0"),
        ("topology", "min_replicas", -1, "-1 is below 0"),
        ("topology", "min_replicas", 2, "2 is more than the 1 replica(s) of the service"),
        ("topology", "replicas", 10**12, f"{10**12} is above 512"),
    ],
)
def test_a_number_out_of_range_is_refused(group, key, value, words):
    found = meaning.findings([worlds.service(**{group: {key: value}})])
    assert whats(found) == [("IN-VALUE", f"modelyard_services[tiny-qwen3].{group}.{key}", words)]


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [("start", "stagger_s", 0), ("start", "wave", 8), ("logs", "cap_mib", 1), ("logs", "keep", 2), ("stop", "memory_s", 0)],
)
def test_a_number_at_its_bound_is_accepted(group, key, value):
    assert meaning.findings([worlds.service(**{group: {key: value}})]) == []


def test_a_session_belongs_to_one_service():
    many = worlds.service(name="a", topology={"replicas": 2})
    one = worlds.service(name="a-0", listen={"base_port": 9000})
    other = worlds.service(name="a-7", listen={"base_port": 9100})
    assert whats(meaning.findings([many, one, other])) == [
        ("IN-NAME-TWICE", "modelyard_services", "the session a-0 is wanted by a and by a-0"),
    ]
    assert [intent.session(many, 1), intent.session(one, 0)] == ["a-1", "a-0"]


def test_each_port_that_two_services_want_is_named():
    first = worlds.service(name="first", topology={"replicas": 3})
    second = worlds.service(name="second", topology={"replicas": 2}, listen={"base_port": 8001})
    assert [f["what"] for f in meaning.findings([first, second])] == [
        "port 8001 is wanted by first and by second",
        "port 8002 is wanted by first and by second",
    ]


def test_neighbours_that_do_not_touch_are_accepted():
    first = worlds.service(name="first", topology={"replicas": 2})
    second = worlds.service(name="second", listen={"base_port": 8002})
    assert meaning.findings([first, second]) == []


def test_nothing_near_means_no_guess():
    assert intent.nearest("zzz", ["max_model_len", "seed"]) == ""
    assert intent.nearest("max_model_le", ["max_model_len", "seed"]) == "; did you mean max_model_len?"


# -- switches of checks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "word"), [(False, "off"), ("off", "off"), ("refuse", "refuse"), ("warn", "warn"), ("note", "note")], ids=repr
)
def test_a_switch_is_off_or_a_severity_and_yaml_may_read_off_as_false(value, word):
    assert intent.switches({"PF-STRANGER": value}) == ({"PF-STRANGER": word}, [])


def test_yaml_does_read_a_bare_off_as_false():
    assert intent.switches(yaml.safe_load("{PF-ZOMBIE: off, PF-SHM: 'off'}")) == ({"PF-ZOMBIE": "off", "PF-SHM": "off"}, [])


@pytest.mark.parametrize("value", [True, None, 0, 1, "", "OFF", "error", "no", [], {}], ids=repr)
def test_another_value_of_a_switch_is_refused(value):
    sound, found = intent.switches({"PF-STRANGER": value})
    assert sound == {}
    assert found == [
        {
            "id": "IN-VALUE",
            "severity": "refuse",
            "where": "modelyard_checks.PF-STRANGER",
            "what": f"{value!r} is no severity",
            "do": "write refuse, warn, note or off",
        }
    ]


@pytest.mark.parametrize(
    ("id", "what"),
    [
        ("PF-STRANGERS", "there is no check PF-STRANGERS; did you mean PF-STRANGER?"),
        ("pf-stranger", "there is no check pf-stranger"),
        ("PF-PID1", "there is no check PF-PID1"),
        ("stranger", "there is no check stranger"),
        (7, "there is no check 7"),
        (None, "there is no check None"),
    ],
    ids=str,
)
def test_a_switch_of_no_check_is_refused_with_the_nearest_one(id, what):
    sound, found = intent.switches({id: "off"})
    assert sound == {}
    ((kind, where, said),) = whats(found)
    assert (kind, where) == ("IN-KEY-UNKNOWN", f"modelyard_checks.{id}")
    assert said.startswith(what)


@pytest.mark.parametrize("id", sorted(id for id in findings.CATALOGUE if not findings.has_switch(id)))
@pytest.mark.parametrize("value", ["off", "note"])
def test_what_cannot_be_gone_on_after_has_no_switch(id, value):
    sound, found = intent.switches({id: value})
    assert sound == {}
    assert whats(found) == [
        ("IN-VALUE", f"modelyard_checks.{id}", f"{id} has no switch: nothing could go on after it, or it has one of its own")
    ]


def test_all_that_is_wrong_with_the_switches_is_found_at_once_and_the_others_count():
    sound, found = intent.switches({"PF-ZOMBIE": "off", "PF-NONE": "off", "IN-NAME": "off", "PF-SHM": "maybe"})
    assert sound == {"PF-ZOMBIE": "off"}
    assert [item["where"] for item in found] == [
        "modelyard_checks.PF-NONE",
        "modelyard_checks.IN-NAME",
        "modelyard_checks.PF-SHM",
    ]


def test_no_switches_are_no_finding():
    assert intent.switches({}) == ({}, [])


def test_a_misspelt_key_of_the_expected_cards_is_refused_with_the_nearest_one():
    found = intent.unknown_keys({"cuont": 8}, OPTIONS["modelyard_cards_expected"], "modelyard_cards_expected")
    assert whats(found) == [
        ("IN-KEY-UNKNOWN", "modelyard_cards_expected.cuont", "cuont is not a key that is known there; did you mean count?")
    ]


@pytest.mark.parametrize(
    "name", ["MODELYARD_INSTANCE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]
)
def test_which_cards_an_engine_sees_is_not_set_by_hand(name):
    (found,) = meaning.findings([worlds.service(environment={name: "0"})])
    assert (found["id"], found["where"]) == ("IN-VALUE", f"modelyard_services[tiny-qwen3].environment.{name}")
